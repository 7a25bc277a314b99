"""One watch of a real API server: what it brings, and how it ends."""

from __future__ import annotations

import threading
from itertools import islice

import pytest

from rootcellar.errors import KubeDeniedError, KubeUnavailableError
from rootcellar.kube.cache import header, version
from rootcellar.kube.client import KubeClient
from rootcellar.kube.discovery import in_cluster
from rootcellar.kube.kinds import LEASES
from tests.kube.line import WATCH, Line
from tests.stores.proxy import CutDown, Freeze


@pytest.fixture
def admin(control_plane):
    return control_plane.client


@pytest.fixture
def now(admin, namespace):
    """The version from which on a test watches."""
    return admin.list_page(LEASES, namespace).resource_version


def lease(name):
    return {"metadata": {"name": name}, "spec": {"holderIdentity": "nobody"}}


def test_events_come_in_order(admin, namespace, now):
    admin.create(LEASES, lease("a"), namespace)
    admin.merge_patch(LEASES, "a", {"spec": {"holderIdentity": "somebody"}}, namespace)
    admin.delete(LEASES, "a", namespace)
    with admin.watch(LEASES, namespace, resource_version=now, seconds=300, idle=300) as watch:
        events = list(islice(watch, 3))
    assert [each.type for each in events] == ["ADDED", "MODIFIED", "DELETED"]
    assert {header(each.object).key.name for each in events} == {"a"}
    reached = [int(version(each.object)) for each in events]
    assert reached == sorted(reached)
    assert reached[0] > int(now)


def test_the_server_ends_the_answer(admin, namespace, now):
    with admin.watch(LEASES, namespace, resource_version=now, seconds=1, idle=300) as watch:
        assert {each.type for each in watch} <= {"BOOKMARK"}


def test_closing_from_another_thread_ends_the_iteration(admin, namespace, now):
    with admin.watch(LEASES, namespace, resource_version=now, seconds=300, idle=300) as watch:
        ended = threading.Thread(target=list, args=(watch,))
        ended.start()
        watch.close()
        ended.join(30)
        assert not ended.is_alive()
        watch.close()
    watch.close()
    assert list(watch) == []


def test_silence_beyond_the_deadline_is_an_error(control_plane, namespace, now):
    with Line(control_plane) as line:
        line.proxy.on(WATCH, Freeze(500))
        control_plane.client.create(LEASES, lease("a"), namespace)
        watch = line.client.watch(LEASES, namespace, resource_version=now, seconds=300, idle=0.2)
        with watch, pytest.raises(KubeUnavailableError) as caught:
            list(watch)
    assert "timed out" in caught.value.message
    assert caught.value.retryable


def test_a_line_that_breaks_is_an_error_that_is_worth_another_try(control_plane, namespace, now):
    with Line(control_plane) as line:
        line.proxy.on(WATCH, CutDown(500))
        control_plane.client.create(LEASES, lease("a"), namespace)
        watch = line.client.watch(LEASES, namespace, resource_version=now, seconds=300, idle=30)
        with watch, pytest.raises(KubeUnavailableError) as caught:
            list(watch)
    assert caught.value.retryable


def test_a_watch_that_is_forbidden_says_so_before_it_begins(control_plane, account, now):
    with KubeClient(in_cluster(control_plane.environ(), mounted=account.directory)) as pod:
        with pytest.raises(KubeDeniedError) as caught:
            pod.watch(LEASES, account.namespace, resource_version=now, seconds=5, idle=5)
        assert 'cannot watch resource "leases"' in caught.value.message
