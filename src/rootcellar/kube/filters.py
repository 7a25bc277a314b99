"""Which changes are worth a reconcile, and of what: pure functions over a change.

A filter says whether a change counts; a mapper says which keys it concerns.  A change without `old` is an
object that is new, or that was there when the controller began: so what a filter admits of these is what a
controller takes up after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from rootcellar.kube.cache import Change
from rootcellar.kube.kinds import Head, Key

if TYPE_CHECKING:
    from rootcellar.kube.cache import Cache
    from rootcellar.kube.kinds import Kind, Meta

T = TypeVar("T")

Filter = Callable[[Change], bool]
Mapper = Callable[[Change], Iterable[Key]]


class _Rest(Struct, frozen=True):
    status: Any = None


_head = msgspec.json.Decoder(Head)
_rest = msgspec.json.Decoder(_Rest)


def _meta(raw: bytes) -> Meta:
    return _head.decode(raw).metadata


# filters


def everything(_change: Change) -> bool:
    """Every change."""
    return True


def created(change: Change) -> bool:
    """It is new, or was there at the beginning."""
    return change.old is None


def updated(change: Change) -> bool:
    """It was there, and still is."""
    return change.old is not None and change.new is not None


def removed(change: Change) -> bool:
    """It is no more."""
    return change.new is None


def generation_changed(change: Change) -> bool:
    """It came, went, or its spec changed: not its status, where a kind has that as a subresource."""
    if change.old is None or change.new is None:
        return True
    return _meta(change.old).generation != _meta(change.new).generation


def deleting(change: Change) -> bool:
    """It is to be deleted, and something holds it yet."""
    return change.new is not None and bool(_meta(change.new).deletion_timestamp)


def status_same(change: Change) -> bool:
    """It was there, still is, and the status has not changed."""
    if change.old is None or change.new is None:
        return False
    return bool(_rest.decode(change.old) == _rest.decode(change.new))


def annotated(name: str, *values: str) -> Filter:
    """It has the annotation, with one of `values` where some are given."""

    def test(change: Change) -> bool:
        if change.new is None:
            return False
        value = _meta(change.new).annotations.get(name)
        return value is not None and (not values or value in values)

    return test


def annotation_changed(name: str) -> Filter:
    """It has not the annotation that it had."""

    def test(change: Change) -> bool:
        values = [
            None if raw is None else _meta(raw).annotations.get(name) for raw in (change.old, change.new)
        ]
        return values[0] != values[1]

    return test


def now(kind: Kind[T], test: Callable[[T], bool]) -> Filter:
    """It is there, and `test` holds of it as it is now."""
    decoder = msgspec.json.Decoder(kind.type)
    return lambda change: change.new is not None and test(decoder.decode(change.new))


def changed(kind: Kind[T], what: Callable[[T], object]) -> Filter:
    """It came, went, or what `what` sees of it is not the same any more."""
    decoder = msgspec.json.Decoder(kind.type)

    def test(change: Change) -> bool:
        if change.old is None or change.new is None:
            return True
        return what(decoder.decode(change.old)) != what(decoder.decode(change.new))

    return test


def any_of(*filters: Filter) -> Filter:
    """One of them admits it."""
    return lambda change: any(each(change) for each in filters)


def all_of(*filters: Filter) -> Filter:
    """All of them admit it."""
    return lambda change: all(each(change) for each in filters)


def none_of(*filters: Filter) -> Filter:
    """None of them admits it."""
    return lambda change: not any(each(change) for each in filters)


# mappers


def itself(change: Change) -> Iterable[Key]:
    """The object that changed."""
    return (change.key,)


def owner(group: str, kind: str, *, is_namespaced: bool = True) -> Mapper:
    """The object of this kind that controls it, or did."""

    def keys(change: Change) -> Iterable[Key]:
        found = set()
        for raw in (change.old, change.new):
            for each in _meta(raw).owner_references if raw is not None else ():
                if each.controller and each.kind == kind and each.api_version.rpartition("/")[0] == group:
                    found.add(Key(change.key.namespace if is_namespaced else "", each.name))
        return found

    return keys


def named_by(annotation: str) -> Mapper:
    """What an annotation names, or did: `name`, or `namespace/name`."""

    def keys(change: Change) -> Iterable[Key]:
        texts = {
            _meta(raw).annotations.get(annotation) for raw in (change.old, change.new) if raw is not None
        }
        return {Key(space, name) for space, _, name in (text.rpartition("/") for text in texts if text)}

    return keys


def users(cache: Cache[Any], index: str) -> Mapper:
    """The objects of `cache` that name it, by an index whose values are `reference` of what is named."""
    return lambda change: cache.by(index, reference(change.key))


def reference(key: Key) -> str:
    """An object as a value of an index: `namespace/name`, or `name` where there is no namespace."""
    return f"{key.namespace}/{key.name}" if key.namespace else key.name
