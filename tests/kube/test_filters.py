"""Which changes count, and whom they concern."""

from __future__ import annotations

import msgspec
import pytest

from rootcellar.kube import filters
from rootcellar.kube.cache import Cache, Change
from rootcellar.kube.filters import all_of, any_of, none_of
from rootcellar.kube.kinds import Key, Kind, untyped
from tests.kube.things import THINGS

KEY = Key("space", "it")
OPERATION = "gardener.cloud/operation"


def thing(*, generation=1, status=None, **meta):
    return msgspec.json.encode(
        {
            "metadata": {
                "name": "it",
                "namespace": "space",
                "uid": "u",
                "resourceVersion": "5",
                "generation": generation,
                **meta,
            },
            "spec": {"size": generation},
            **({} if status is None else {"status": status}),
        }
    )


def annotated(value):
    return thing(annotations={OPERATION: value})


CREATED = Change(KEY, None, thing())
REMOVED = Change(KEY, thing(), None)
SAME = Change(KEY, thing(), thing(labels={"a": "b"}))
NEW_SPEC = Change(KEY, thing(), thing(generation=2))
NEW_STATUS = Change(KEY, thing(status={"size": 1}), thing(status={"size": 2}))
ENDING = Change(KEY, thing(), thing(deletionTimestamp="2026-11-21T00:00:00Z", generation=2))
ORDERED = Change(KEY, thing(), annotated("reconcile"))
OBEYED = Change(KEY, annotated("reconcile"), thing())
ALL = {
    "created": CREATED,
    "removed": REMOVED,
    "same": SAME,
    "spec": NEW_SPEC,
    "status": NEW_STATUS,
    "ending": ENDING,
    "ordered": ORDERED,
    "obeyed": OBEYED,
}


@pytest.mark.parametrize(
    ("admits", "names"),
    [
        (filters.everything, set(ALL)),
        (filters.created, {"created"}),
        (filters.removed, {"removed"}),
        (filters.updated, set(ALL) - {"created", "removed"}),
        (filters.generation_changed, {"created", "removed", "spec", "ending"}),
        (filters.deleting, {"ending"}),
        (filters.status_same, {"same", "spec", "ending", "ordered", "obeyed"}),
        (filters.annotated(OPERATION), {"ordered"}),
        (filters.annotated(OPERATION, "reconcile", "migrate"), {"ordered"}),
        (filters.annotated(OPERATION, "migrate"), set()),
        (filters.annotation_changed(OPERATION), {"ordered", "obeyed"}),
        (filters.now(THINGS, lambda each: each.status.size == 2), {"status"}),
        (
            filters.changed(THINGS, lambda each: each.status.size),
            {"created", "removed", "status"},
        ),
        (any_of(filters.created, filters.removed), {"created", "removed"}),
        (all_of(filters.updated, filters.generation_changed), {"spec", "ending"}),
        (none_of(filters.updated, filters.created), {"removed"}),
    ],
)
def test_a_filter_admits_these_and_no_others(admits, names):
    assert {name for name, change in ALL.items() if admits(change)} == names


def test_the_filters_of_gardeners_extensions_are_made_of_these():
    """gardener.md 1.7, in the mode that respects annotations."""
    ordered = filters.annotated(OPERATION, "reconcile", "restore", "migrate")
    unfinished = filters.now(THINGS, lambda each: each.status.size is None)
    counts = any_of(
        all_of(filters.created, any_of(ordered, filters.deleting, unfinished)),
        all_of(filters.updated, any_of(ordered, all_of(filters.deleting, filters.status_same))),
    )
    done = thing(status={"size": 1})
    assert counts(CREATED)
    assert counts(ORDERED)
    assert counts(ENDING)
    assert not counts(NEW_SPEC)
    assert not counts(NEW_STATUS)
    assert not counts(REMOVED)
    assert not counts(Change(KEY, None, done))


def owned_by(**reference):
    given = {"apiVersion": "tests.rootcellar.dev/v1", "kind": "Thing", "name": "boss", "controller": True}
    return thing(ownerReferences=[{**given, **reference}])


def test_the_controlling_owner_is_concerned_and_so_is_the_one_before():
    keys = filters.owner("tests.rootcellar.dev", "Thing")
    assert keys(Change(KEY, None, owned_by())) == {Key("space", "boss")}
    assert keys(Change(KEY, owned_by(), None)) == {Key("space", "boss")}
    both = Change(KEY, owned_by(), owned_by(name="other", apiVersion="tests.rootcellar.dev/v2"))
    assert keys(both) == {Key("space", "boss"), Key("space", "other")}
    cluster = filters.owner("tests.rootcellar.dev", "Thing", is_namespaced=False)
    assert cluster(Change(KEY, None, owned_by())) == {Key("", "boss")}
    for other in ({"controller": False}, {"kind": "Other"}, {"apiVersion": "v1"}):
        assert keys(Change(KEY, None, owned_by(**other))) == set()


def test_an_annotation_may_name_whom_a_change_concerns():
    keys = filters.named_by(OPERATION)
    assert keys(Change(KEY, None, annotated("far/away"))) == {Key("far", "away")}
    assert keys(Change(KEY, annotated("one"), annotated("two"))) == {
        Key("", "one"),
        Key("", "two"),
    }
    assert keys(SAME) == set()


def test_those_that_name_a_secret_are_concerned_when_it_changes():
    cache = Cache(untyped("", "v1", "users"), {"secret": lambda each: each["secrets"]})
    for name, secrets in (("one", ["far/secret"]), ("two", ["far/secret", "far/other"]), ("three", [])):
        meta = {"name": name, "resourceVersion": "1", "uid": name}
        cache.put(msgspec.json.encode({"metadata": meta, "secrets": secrets}))
    keys = filters.users(cache, "secret")
    assert set(keys(Change(Key("far", "secret"), None, thing()))) == {Key("", "one"), Key("", "two")}
    assert set(keys(Change(Key("far", "unknown"), thing(), None))) == set()
    assert filters.reference(Key("", "cluster-wide")) == "cluster-wide"


def test_a_kind_without_a_generation_changes_with_nothing_but_coming_and_going():
    kind = Kind("", "v1", "secrets", dict)
    raw = msgspec.json.encode({"metadata": {"name": "it"}, "data": {}})
    other = msgspec.json.encode({"metadata": {"name": "it"}, "data": {"a": "b"}})
    assert not filters.generation_changed(Change(KEY, raw, other))
    assert filters.changed(kind, lambda each: each["data"])(Change(KEY, raw, other))
