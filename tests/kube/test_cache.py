"""What a cache holds, and under what it is found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct, json

from rootcellar.errors import KubeError
from rootcellar.kube.cache import Cache, Change, header, version
from rootcellar.kube.kinds import Key, Kind, Meta


class Spec(Struct, frozen=True):
    colours: tuple[str, ...] = ()


class Thing(Struct, frozen=True):
    metadata: Meta
    spec: Spec = Spec()


THINGS = Kind("tests.rootcellar.dev", "v1", "things", Thing)


def colours(thing):
    return thing.spec.colours


def thing(name, *, uid="u", at=1, namespace="space", shown=(), **meta):
    metadata = {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": str(at), **meta}
    return json.encode({"metadata": metadata, "spec": {"colours": shown}, "status": {"unknown": [1]}})


@pytest.fixture
def cache():
    return Cache(THINGS, {"colour": colours})


def test_an_object_is_kept_as_it_came_and_decoded_when_asked_for(cache):
    key, raw = Key("space", "a"), thing("a", shown=["red"], generation=3)
    found, changes = cache.put(raw)
    assert changes == (Change(key, None, raw),)
    assert (cache.raw(key), cache.keys(), len(cache)) == (raw, (key,), 1)
    assert cache.get(key) == Thing(
        Meta(name="a", namespace="space", uid="u", resource_version="1", generation=3), Spec(("red",))
    )
    assert cache.header(key) == found
    assert (found.key, found.uid, found.resource_version, found.generation) == (key, "u", "1", 3)


def test_of_what_is_not_there_nothing_is_known(cache):
    key = Key("space", "a")
    assert (cache.get(key), cache.raw(key), cache.header(key), cache.drop(key)) == (None, None, None, ())
    assert cache.by("colour", "red") == ()


def test_a_version_that_is_here_already_is_no_change_even_in_other_bytes(cache):
    cache.put(thing("a"))
    assert cache.put(thing("a", labels={"said": "otherwise"}))[1] == ()


def test_an_object_made_anew_under_its_name_is_two_changes(cache):
    old, new = thing("a", uid="first"), thing("a", uid="second", at=2)
    cache.put(old)
    key = Key("space", "a")
    assert cache.put(new)[1] == (Change(key, old, None), Change(key, None, new))
    assert cache.raw(key) == new


def test_an_object_that_is_to_go_is_told_apart():
    assert header(thing("a", deletionTimestamp="2026-01-01T00:00:00Z")).deleting
    assert not header(thing("a")).deleting


def test_an_object_in_no_namespace_has_a_key_without_one(cache):
    raw = thing("a", namespace="")
    cache.put(raw)
    assert cache.raw(Key("", "a")) == raw
    assert str(Key("", "a")) == "a"
    assert str(Key("space", "a")) == "space/a"


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b'{"metadata":{"name":"a"}}', b'{"metadata":7}', b"\xff"])
def test_what_is_no_object_is_refused(cache, raw):
    with pytest.raises(KubeError) as caught:
        cache.put(raw)
    assert "what came is no object" in caught.value.message
    assert "proxy" in caught.value.hint
    assert len(cache) == 0


def test_a_bookmark_has_a_version_and_is_no_object():
    bookmark = b'{"kind":"Lease","metadata":{"resourceVersion":"12","creationTimestamp":null}}'
    assert version(bookmark) == "12"
    with pytest.raises(KubeError, match="it has no name"):
        header(bookmark)


def test_an_object_of_another_shape_stops_no_other_and_is_told_to_who_asks(cache):
    odd = b'{"metadata":{"name":"odd","resourceVersion":"1"},"spec":{"colours":7}}'
    cache.put(odd)
    cache.put(thing("a", shown=["red"]))
    with pytest.raises(KubeError) as caught:
        cache.get(Key("", "odd"))
    assert caught.value.message.startswith("things odd: not the shape that is expected")
    assert "$.spec.colours" in caught.value.message
    assert "CRD" in caught.value.hint
    assert cache.raw(Key("", "odd")) == odd
    assert cache.by("colour", "red") == (Key("space", "a"),)


def test_an_index_that_was_not_declared_is_a_mistake(cache):
    with pytest.raises(LookupError, match="things have no index 'size'"):
        cache.by("size", "1")


NAMES = st.sampled_from("abcd")
PUTS = st.tuples(
    st.just("put"), NAMES, st.sampled_from(["u1", "u2"]), st.lists(st.sampled_from(["red", "blue"]))
)
DROPS = st.tuples(st.just("drop"), NAMES)
KEEPS = st.tuples(st.just("keep"), st.sets(NAMES))


@given(st.lists(st.one_of(PUTS, DROPS, KEEPS), max_size=30))
def test_changes_tell_all_and_indexes_find_what_a_search_would(deeds):
    cache, heard, model = Cache(THINGS, {"colour": colours}), {}, {}
    for at, deed in enumerate(deeds, 1):
        if deed[0] == "put":
            _, name, uid, shown = deed
            model[Key("space", name)] = thing(name, uid=uid, at=at, shown=shown)
            changes = cache.put(model[Key("space", name)])[1]
        elif deed[0] == "drop":
            model.pop(Key("space", deed[1]), None)
            changes = cache.drop(Key("space", deed[1]))
        else:
            kept = {Key("space", name) for name in deed[1]}
            model = {key: raw for key, raw in model.items() if key in kept}
            changes = cache.keep_only(kept)
        for change in changes:
            assert heard.pop(change.key, None) == change.old
            if change.new is not None:
                heard[change.key] = change.new
    assert heard == model == {key: cache.raw(key) for key in cache.keys()}  # noqa: SIM118  no dict
    for colour in ("red", "blue"):
        found = [key for key in model if colour in colours(cache.get(key))]
        assert list(cache.by("colour", colour)) == sorted(found)
