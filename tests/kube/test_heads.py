"""Objects of which the API server sends metadata alone: secrets are not held by who need not read them."""

from __future__ import annotations

import base64

import pytest

from rootcellar.kube.kinds import Key, heads, untyped
from rootcellar.kube.reflector import Pace, Reflector
from tests.kube.things import CONFIG_MAPS, wait_until

SECRETS = untyped("", "v1", "secrets")
HEADS = heads(SECRETS)
HIDDEN = base64.b64encode(b"nobody's business").decode()


@pytest.fixture
def client(control_plane, namespace):
    for number in range(5):
        meta = {"name": f"s{number}", "annotations": {"number": str(number)}}
        control_plane.client.create(SECRETS, {"metadata": meta, "data": {"word": HIDDEN}}, namespace)
    return control_plane.client


def test_pages_are_of_one_moment_and_hold_metadata_alone(client, namespace):
    first = client.list_page(HEADS, namespace, page=2)
    client.delete(SECRETS, "s4", namespace)
    second = client.list_page(HEADS, namespace, page=2, more=first.more)
    third = client.list_page(HEADS, namespace, page=2, more=second.more)
    assert [len(each.items) for each in (first, second, third)] == [2, 2, 1]
    assert (first.resource_version, third.more) == (third.resource_version, "")
    assert HIDDEN.encode() not in b"".join((*first.items, *second.items, *third.items))
    assert [each.metadata.annotations["number"] for each in client.list(HEADS, namespace, page=2)] == [
        *"0123"
    ]
    assert client.get(HEADS, "s0", namespace).metadata.uid
    assert HIDDEN.encode() not in client.get_raw(HEADS, "s0", namespace)
    assert HIDDEN.encode() in client.get_raw(SECRETS, "s0", namespace)


def test_where_there_is_none_there_is_an_empty_page(control_plane, namespace):
    page = control_plane.client.list_page(HEADS, namespace, page=2)
    assert (page.items, page.more) == ([], "")
    assert int(page.resource_version)


def test_a_reflector_follows_them_and_hears_of_what_it_does_not_hold(client, namespace):
    heard = []
    reflector = Reflector(client, HEADS, namespace=namespace, pace=Pace(window=3, first=0.01, page=2))
    reflector.listen(heard.append)
    reflector.start()
    try:
        assert reflector.wait_synced(60), reflector.fault
        wait_until(lambda: reflector.tally.watches, "watched")
        heard.clear()
        client.merge_patch(SECRETS, "s1", {"data": {"word": "bmV3"}}, namespace)
        client.delete(SECRETS, "s2", namespace)
        wait_until(lambda: len(heard) > 1, "both are told")
        assert [(each.key.name, each.new is None) for each in heard] == [("s1", False), ("s2", True)]
        told = b"".join(raw for each in heard for raw in (each.old, each.new) if raw)
        assert b"bmV3" not in told
        assert HIDDEN.encode() not in told
        assert reflector.cache.get(Key(namespace, "s1")).metadata.annotations == {"number": "1"}

        later = client.create(CONFIG_MAPS, {"metadata": {"name": "loud"}}, namespace)["metadata"]
        assert len(list(client.list(HEADS, namespace))) == 4  # has the API server's cache look where etcd is
        until = int(later["resourceVersion"])
        wait_until(lambda: int(reflector.resource_version) >= until, "a bookmark")
        assert reflector.tally.bookmarks
        assert (reflector.tally.lists, reflector.tally.failures) == (1, 0)
    finally:
        reflector.stop()
