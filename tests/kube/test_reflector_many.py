"""Objects in great number: a first list, a storm of changes, and what is left of them."""

from __future__ import annotations

import pytest

from rootcellar.kube.reflector import Reflector
from testbed.crowd import Crowd
from tests.agent.agents import wait_until


@pytest.mark.parametrize("many", [1000, pytest.param(10_000, marks=pytest.mark.long)])
def test_of_many_objects_and_a_storm_of_updates_none_is_lost(own_control_plane, many):
    crowd, namespace = Crowd(own_control_plane), own_control_plane.new_namespace()
    crowd.fill(namespace, range(many))
    reflector = Reflector(own_control_plane.client, crowd.kind, namespace=namespace)
    heard = []
    reflector.listen(heard.append)
    reflector.start()
    try:
        assert reflector.wait_synced(120), reflector.fault
        assert len(reflector.cache) == len(heard) == many
        heard.clear()
        crowd.write(namespace, range(many), generation=2)
        crowd.remove(namespace, range(0, many, 2))
        wait_until(lambda: len(reflector.cache) == many // 2, "what was removed is gone")
        wanted = {
            each["metadata"]["name"]: each["metadata"]["resourceVersion"]
            for each in own_control_plane.client.list(crowd.kind, namespace)
        }
        held = [reflector.cache.header(key) for key in reflector.cache.keys()]  # noqa: SIM118  no dict
        assert {each.key.name: each.resource_version for each in held} == wanted
        assert {each.generation for each in held} == {2}
        wait_until(lambda: len(heard) >= many + many // 2, "what the cache has is told, too")
        assert len(heard) == many + many // 2, "each change is told once"
        assert reflector.tally.lists == 1
    finally:
        reflector.stop()
