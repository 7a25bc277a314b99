"""Writes: only what changes, only on what was seen, only by who leads."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootcellar.errors import FencedError, KubeConflictError, KubeExistsError
from rootcellar.kube.kinds import Key, untyped
from rootcellar.kube.writes import APPLIED, Writer, pruned
from tests.kube.things import ANY_THINGS, CONFIG_MAPS, THINGS, body, define

QUOTAS = untyped("", "v1", "resourcequotas")
LEAVES = (
    st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["", "a"]) | st.lists(st.integers(0, 1))
)
NAMES = st.sampled_from("abc")
PATCHES = st.dictionaries(
    NAMES, st.recursive(LEAVES, lambda inner: st.dictionaries(NAMES, inner), max_leaves=8)
)


def without_none(value):
    if isinstance(value, dict):
        return {name: without_none(each) for name, each in value.items() if each is not None}
    return value


OBJECTS = PATCHES.map(without_none)


def merged(target, patch):
    """RFC 7386, as its section 2 has it."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def solid(value):
    """Without mappings that hold nothing: where there was nothing, a patch of None alone makes one."""
    if not isinstance(value, dict):
        return value
    inner = {name: solid(each) for name, each in value.items()}
    return {name: each for name, each in inner.items() if each != {}}


@given(PATCHES, OBJECTS)
def test_what_is_left_of_a_patch_does_the_same(patch, seen):
    assert solid(merged(seen, pruned(patch, seen))) == solid(merged(seen, patch))


@given(PATCHES, OBJECTS)
def test_nothing_is_left_of_a_patch_that_was_carried_out(patch, seen):
    assert pruned(patch, merged(seen, patch)) == {}


@given(PATCHES, OBJECTS)
def test_whatever_is_left_changes_something(patch, seen):
    left = pruned(patch, seen)
    assert not left or msgspec.json.encode(merged(seen, left)) != msgspec.json.encode(seen)


def test_true_is_not_one():
    assert pruned({"a": True}, {"a": 1}) == {"a": True}


@pytest.fixture(scope="module")
def things(control_plane):
    define(control_plane.client)


class Desk:
    """A writer, and the object that it writes as it is stored."""

    def __init__(self, client, namespace):
        self.client, self.namespace, self.leads = client, namespace, True
        self.writer = Writer(client, "desk.rootcellar.dev", lambda: self.leads)
        self.key = Key(namespace, "it")

    def raw(self, kind=THINGS):
        return self.client.get_raw(kind, "it", self.namespace)

    def stored(self, kind=ANY_THINGS):
        return self.client.get(kind, "it", self.namespace)

    def version(self, kind=ANY_THINGS):
        return self.stored(kind)["metadata"]["resourceVersion"]


@pytest.fixture
def desk(things, control_plane, namespace):
    desk = Desk(control_plane.client, namespace)
    desk.client.create(THINGS, body("it", 1), namespace)
    return desk


def config_map(namespace, **data):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "it", "namespace": namespace, "labels": {"ours": "yes"}},
        "data": data,
    }


def test_a_status_is_written_once_and_keeps_what_others_say_in_it(desk):
    theirs = {"status": {"theirs": {"a": 1}, "gone": "x"}}
    desk.client.merge_patch(THINGS, "it", theirs, desk.namespace, subresource="status")
    ours = {"size": 3, "by": "us", "gone": None}
    assert desk.writer.status(THINGS, desk.key, ours, desk.raw())
    assert desk.stored()["status"] == {"theirs": {"a": 1}, "size": 3, "by": "us"}
    version = desk.version()
    assert not desk.writer.status(THINGS, desk.key, ours, desk.raw())
    assert desk.version() == version


def test_a_status_that_is_all_taken_away_is_not_written_where_there_is_none(desk):
    version = desk.version()
    assert not desk.writer.status(THINGS, desk.key, {"size": None, "by": None}, desk.raw())
    assert desk.version() == version


def test_a_finalizer_is_added_once_and_taken_away_once_beside_those_of_others(desk):
    add, remove = desk.writer.add_finalizer, desk.writer.remove_finalizer
    assert add(THINGS, desk.key, "rootcellar.dev/theirs", desk.raw())
    assert add(THINGS, desk.key, "rootcellar.dev/ours", desk.raw())
    assert not add(THINGS, desk.key, "rootcellar.dev/ours", desk.raw())
    assert desk.stored()["metadata"]["finalizers"] == ["rootcellar.dev/theirs", "rootcellar.dev/ours"]
    assert remove(THINGS, desk.key, "rootcellar.dev/ours", desk.raw())
    assert not remove(THINGS, desk.key, "rootcellar.dev/ours", desk.raw())
    assert desk.stored()["metadata"]["finalizers"] == ["rootcellar.dev/theirs"]
    assert remove(THINGS, desk.key, "rootcellar.dev/theirs", desk.raw())
    assert "finalizers" not in desk.stored()["metadata"]


def test_a_finalizer_of_somebody_else_is_not_lost_to_an_old_sight(desk):
    old = desk.raw()
    desk.writer.add_finalizer(THINGS, desk.key, "rootcellar.dev/theirs", old)
    with pytest.raises(KubeConflictError):
        desk.writer.add_finalizer(THINGS, desk.key, "rootcellar.dev/ours", old)
    assert desk.stored()["metadata"]["finalizers"] == ["rootcellar.dev/theirs"]


def test_the_last_finalizer_lets_an_object_go_and_letting_go_twice_is_no_error(desk):
    desk.writer.add_finalizer(THINGS, desk.key, "rootcellar.dev/ours", desk.raw())
    assert desk.writer.delete(THINGS, desk.key, desk.raw())
    last = desk.raw()
    assert desk.writer.remove_finalizer(THINGS, desk.key, "rootcellar.dev/ours", last)
    assert not desk.writer.remove_finalizer(THINGS, desk.key, "rootcellar.dev/ours", last)
    assert not desk.writer.delete(THINGS, desk.key, last)


def test_an_object_that_was_made_anew_is_not_deleted_for_the_one_that_was_seen(desk):
    seen = desk.raw()
    desk.client.delete(THINGS, "it", desk.namespace)
    desk.client.create(THINGS, body("it", 1), desk.namespace)
    with pytest.raises(KubeConflictError):
        desk.writer.delete(THINGS, desk.key, seen)
    assert desk.stored()


def test_an_order_is_taken_away_only_as_it_was_seen(desk):
    def order(value):
        patch = {"metadata": {"annotations": {"operation": value, "keep": "it"}}}
        desk.client.merge_patch(THINGS, "it", patch, desk.namespace)

    order("reconcile")
    seen = desk.raw()
    order("migrate")
    with pytest.raises(KubeConflictError):
        desk.writer.annotate(THINGS, desk.key, {"operation": None}, seen)
    assert desk.writer.annotate(THINGS, desk.key, {"operation": None, "done": "1"}, desk.raw())
    assert desk.stored()["metadata"]["annotations"] == {"keep": "it", "done": "1"}
    version = desk.version()
    assert not desk.writer.annotate(THINGS, desk.key, {"operation": None, "done": "1"}, desk.raw())
    assert desk.version() == version


def test_what_is_ours_is_applied_once_and_a_field_that_we_no_longer_want_goes(desk):
    apply, space = desk.writer.apply, desk.namespace
    assert apply(CONFIG_MAPS, config_map(space, a="1", b="2"), None)
    assert not apply(CONFIG_MAPS, config_map(space, a="1", b="2"), desk.raw(CONFIG_MAPS))
    assert apply(CONFIG_MAPS, config_map(space, a="1"), desk.raw(CONFIG_MAPS))
    assert desk.stored(CONFIG_MAPS)["data"] == {"a": "1"}
    theirs = {"data": {"a": "9", "theirs": "x"}, "metadata": {"annotations": {"theirs": "y"}}}
    desk.client.merge_patch(CONFIG_MAPS, "it", theirs, space)
    assert apply(CONFIG_MAPS, config_map(space, a="1"), desk.raw(CONFIG_MAPS))
    found = desk.stored(CONFIG_MAPS)
    assert found["data"] == {"a": "1", "theirs": "x"}
    assert set(found["metadata"]["annotations"]) == {"theirs", APPLIED}
    assert not apply(CONFIG_MAPS, config_map(space, a="1"), desk.raw(CONFIG_MAPS))


def test_what_the_api_server_does_not_keep_as_written_is_sent_again_and_changes_nothing(desk):
    meta = {"name": "it", "namespace": desk.namespace}
    hard = {"hard": {"cpu": "1000m"}}
    wanted = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": hard}
    assert desk.writer.apply(QUOTAS, wanted, None)
    assert desk.stored(QUOTAS)["spec"]["hard"]["cpu"] == "1"
    seen = desk.raw(QUOTAS)
    manager = desk.stored(QUOTAS)["metadata"]["managedFields"][0]
    assert desk.writer.apply(QUOTAS, wanted, seen)
    assert desk.stored(QUOTAS)["metadata"]["managedFields"][0] == manager


def test_one_that_must_not_be_there_yet_is_not_overwritten(desk):
    with pytest.raises(KubeExistsError):
        desk.writer.create(THINGS, body("it", 9), desk.namespace)
    assert desk.stored()["spec"] == {"size": 1}


def test_nothing_is_written_by_who_does_not_lead(desk):
    writer, key, raw, version = desk.writer, desk.key, desk.raw(), desk.version()
    desk.leads = False
    for write in (
        lambda: writer.status(THINGS, key, {"size": 5}, raw),
        lambda: writer.annotate(THINGS, key, {"a": "b"}, raw),
        lambda: writer.add_finalizer(THINGS, key, "rootcellar.dev/ours", raw),
        lambda: writer.delete(THINGS, key, raw),
        lambda: writer.create(THINGS, body("other"), desk.namespace),
        lambda: writer.apply(CONFIG_MAPS, config_map(desk.namespace, a="1"), None),
    ):
        with pytest.raises(FencedError) as caught:
            write()
        assert "does not lead any more" in caught.value.message
    assert desk.version() == version
    assert [each.metadata.name for each in desk.client.list(THINGS, desk.namespace)] == ["it"]
