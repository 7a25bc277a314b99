"""Which changes of an extension object are an order, and which operation it asks for.  Pure.

The rules are Gardener's (extensions/pkg/predicate, pkg/apis/core/v1beta1/helper): whoever waits for an object
there counts on them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec import Struct, field

from rootcellar.kube.filters import created, generation_changed, status_same, updated
from rootcellar.kube.kinds import Meta
from rootcellar.operator.shared.extension import (
    LastOperation,  # noqa: TC001  msgspec reads the annotations at run time
)
from rootcellar.operator.shared.gardener import DEFAULT_CLASS, OPERATION, Ask, OperationType, State

if TYPE_CHECKING:
    from collections.abc import Collection

    from rootcellar.kube.cache import Change
    from rootcellar.kube.filters import Filter

ORDERS = frozenset({Ask.RECONCILE, Ask.MIGRATE, Ask.RESTORE})
"""What asks for something; the other values only hold it back."""
_FINISHED_FIRST = (OperationType.CREATE, OperationType.MIGRATE, OperationType.RESTORE)


def operation_of(meta: Meta, last: LastOperation | None) -> OperationType:
    """What is to be done with an object now.  What was begun and has not succeeded goes on under its name."""
    asked = meta.annotations.get(OPERATION)
    if asked == Ask.MIGRATE:
        return OperationType.MIGRATE
    if meta.deletion_timestamp:
        return OperationType.DELETE
    if asked == Ask.RESTORE:
        return OperationType.RESTORE
    if last is None:
        return OperationType.CREATE
    for begun in _FINISHED_FIRST:
        if last.type == begun and last.state != State.SUCCEEDED:
            return begun
    return OperationType.RECONCILE


class _Spec(Struct, frozen=True):
    type: str = ""
    class_: str | None = field(name="class", default=None)


class _Status(Struct, frozen=True, rename="camel"):
    last_operation: LastOperation | None = None


class _Object(Struct, frozen=True):
    metadata: Meta = field(default_factory=Meta)
    spec: _Spec = field(default_factory=_Spec)
    status: _Status = field(default_factory=_Status)


_decoder = msgspec.json.Decoder(_Object)


class Typed(Protocol):
    """What of a spec tells whose it is."""

    @property
    def type(self) -> str: ...
    @property
    def class_(self) -> str | None: ...


def is_ours(spec: Typed, types: Collection[str], classes: Collection[str]) -> bool:
    """Whether an object with this spec is for a controller of these types and classes.

    Without classes it is for `shoot`; an object without a class is of `shoot`, too.
    """
    return spec.type in types and (spec.class_ or DEFAULT_CLASS) in {
        each or DEFAULT_CLASS for each in classes or [DEFAULT_CLASS]
    }


def orders(types: Collection[str], classes: Collection[str], *, ignore_annotation: bool) -> Filter:
    """The changes that a controller of these types and classes acts on.

    By default an object is only touched when its annotation asks for it, when it is deleted, or, of those
    found at the start, when its last operation has not succeeded.  With `ignore_annotation` every change of
    a spec counts, and nothing else.
    """
    is_order = generation_changed if ignore_annotation else _is_order

    def counts(change: Change) -> bool:
        if change.new is None:
            return False
        return is_ours(_decoder.decode(change.new).spec, types, classes) and is_order(change)

    return counts


def _is_order(change: Change) -> bool:
    if change.new is None:
        return False
    found = _decoder.decode(change.new)
    if found.metadata.annotations.get(OPERATION) in ORDERS:
        return True
    if created(change):
        last = found.status.last_operation
        return bool(found.metadata.deletion_timestamp) or last is None or last.state != State.SUCCEEDED
    # Under deletion our own writes of the status are no orders.
    return updated(change) and bool(found.metadata.deletion_timestamp) and status_same(change)
