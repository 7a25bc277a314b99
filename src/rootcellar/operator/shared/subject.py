"""One extension object under reconcile: reading it, writing of it, and the secret that it refers to.

What both contracts do around their own work, in Gardener's order (extensions/pkg/controller/backupbucket and
backupentry).  Each write is of what was read, or of what the write before it made.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

import msgspec

from rootcellar.errors import FencedError, KubeConflictError, KubeExistsError, KubeNotFoundError
from rootcellar.kube.events import Regarding
from rootcellar.kube.kinds import Key
from rootcellar.kube.steps import reached
from rootcellar.operator.shared import status
from rootcellar.operator.shared.gardener import OPERATION, Ask, OperationType, State
from rootcellar.operator.shared.operation import operation_of
from rootcellar.operator.shared.secrets import SECRETS, Contents, Secret
from rootcellar.stores.admin.codes import codes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rootcellar.kube.client import KubeClient
    from rootcellar.kube.events import Events
    from rootcellar.kube.kinds import Kind, Meta
    from rootcellar.kube.writes import Writer
    from rootcellar.logs import Log
    from rootcellar.operator.shared.extension import ExtensionSpec, ExtensionStatus
    from rootcellar.operator.shared.status import Finding

SILENT: Final = (FencedError, KubeConflictError)
"""What no status tells: another process works, or it is tried again at once."""


class Extension(Protocol):
    """What the kinds of both contracts have in common."""

    @property
    def metadata(self) -> Meta: ...
    @property
    def spec(self) -> ExtensionSpec: ...
    @property
    def status(self) -> ExtensionStatus: ...


E = TypeVar("E", bound=Extension)


def utc_now() -> datetime:
    """Now, with its zone."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Ground:
    """What a controller's reconciles stand on."""

    client: KubeClient
    writer: Writer
    events: Events
    log: Log
    now: Callable[[], datetime] = utc_now


class Subject(Generic[E]):
    """An object as it was last read.  Methods raise KubeError; KubeNotFoundError once it is gone."""

    def __init__(
        self,
        ground: Ground,
        kind: Kind[E],
        kind_name: str,
        key: Key,
        *,
        finalizer: str,
        noun: Callable[[OperationType], str],
    ) -> None:
        self.ground, self.kind, self.key, self._name = ground, kind, key, kind_name
        self._finalizer, self._noun = finalizer, noun
        self.refresh()
        self.operation = operation_of(self.object.metadata, self.object.status.last_operation)
        self._order = self.asked
        """What this turn was asked for, until the annotation has gone."""
        self._generation = self.object.metadata.generation
        """Of the spec when the turn began: one that comes meanwhile is not what was carried out."""
        self.acts = False
        """Whether the contract's own work has begun: only what fails then is told in the status."""

    def refresh(self) -> None:
        """Read it again."""
        self._see(self.ground.client.get_raw(self.kind, self.key.name, self.key.namespace))

    def _see(self, raw: bytes | None) -> None:
        """What was read, or what a write of ours made of it; None where that changed nothing."""
        if raw is not None:
            self.raw = raw
            self.object: E = msgspec.json.decode(raw, type=self.kind.type)

    @property
    def asked(self) -> str | None:
        """The operation that its annotation asks for."""
        return self.object.metadata.annotations.get(OPERATION)

    @property
    def is_finalized(self) -> bool:
        """Whether it waits for us before it goes."""
        return self._finalizer in self.object.metadata.finalizers

    def put_secret(
        self, key: Key, contents: Callable[[Secret | None], Contents], *, is_new: bool = False
    ) -> None:
        """Have a secret of ours be as `contents` makes it of what is there.  Others write into it meanwhile
        (they renew tokens): what is changed is the very version that `contents` saw, or KubeConflictError.

        With `is_new` it is taken to be missing, which spares a request where that is so.
        """
        if is_new:
            try:
                self._make_secret(key, contents)
            except KubeExistsError:
                self.put_secret(key, contents)
            return
        try:
            there = SeenSecret.read(self.ground, key)
        except KubeNotFoundError:
            self._make_secret(key, contents)
        else:
            patch = contents(there.secret).patch(there.secret)
            self.ground.writer.patch(SECRETS, key, patch, there.raw, only_this=True)

    def _make_secret(self, key: Key, contents: Callable[[Secret | None], Contents]) -> None:
        self.ground.writer.create(SECRETS, contents(None).manifest(key), key.namespace)

    # orders

    def take_order(self, *, tell_first: bool = False) -> None:
        """The annotation `reconcile` goes before the work, so that one that comes meanwhile is another order;
        `migrate` and `restore` stay until it is done.

        With `tell_first` the status says before that the work has begun: killed between the two, the next
        process finds an operation that has not succeeded, and the order is not lost.  A deletion is found by
        itself.  That status comes with the annotation still there, and so looks like a second order.
        """
        if self.asked == Ask.RECONCILE:
            if tell_first and self.operation != OperationType.DELETE:
                self.begin()
            self.drop_order()  # and with it one that came since, so what is there now is carried out
            self._generation = self.object.metadata.generation

    def drop_order(self) -> None:
        """Take this turn's order away.  One that has come meanwhile is another's."""
        if self._order is not None and self.asked == self._order:
            self.unmark(OPERATION)
        self._order = None

    def unmark(self, annotation: str) -> None:
        """Take an annotation away that has been obeyed, unless somebody changed the object since."""
        self._see(self.ground.writer.annotate(self.kind, self.key, {annotation: None}, self.raw))

    # finalizers

    def hold(self) -> None:
        self._see(self.ground.writer.add_finalizer(self.kind, self.key, self._finalizer, self.raw))

    def let_go(self) -> None:
        """The last that is done in a deletion: the object is gone after it, where nobody else holds it."""
        self.ground.writer.remove_finalizer(self.kind, self.key, self._finalizer, self.raw)

    def let_all_go(self) -> None:
        """Take every finalizer off, whoever set it: the object is given up here."""
        patch = {"metadata": {"finalizers": None}}
        self.ground.writer.patch(self.kind, self.key, patch, self.raw, only_this=True)

    # the status

    def wait(self, until: str) -> None:
        """Nothing is done yet; `until` says what is waited for."""
        self.write_status(status.pending(self.operation, until, self._moment()))

    def begin(self, *, progress: int = 1, doing: str = "") -> None:
        self.write_status(
            status.processing(
                self.operation, self._noun(self.operation), self._moment(), progress=progress, doing=doing
            )
        )

    def begin_deletion(self) -> None:
        """As `begin`, but one that is under way keeps its progress."""
        last = self.object.status.last_operation
        if last is None or (last.type, last.state) != (OperationType.DELETE, State.PROCESSING):
            self.begin()

    def succeed(self, findings: Sequence[Finding] = (), **more: Any) -> None:
        """`findings` and `more`, other fields of the status, are of the same write.  Raises as `find`."""
        done = status.succeeded(self.operation, self._noun(self.operation), self._generation, self._moment())
        flipped = status.conditions(self.object.status.conditions, findings, self._moment())
        self.write_status({**done, **flipped, **more}, only_this=bool(flipped))

    def fail(self, error: Exception) -> None:
        """Tell what went wrong, where that is to be told."""
        if not self.acts or isinstance(error, SILENT):
            return
        told = status.failed(
            self.operation,
            self._noun(self.operation),
            self._generation,
            self._moment(),
            error=error,
            codes=codes(error),
            step=reached(),
        )
        with suppress(KubeNotFoundError):  # gone meanwhile: nobody is left to be told
            self.write_status(told)

    def find(self, findings: Sequence[Finding], *, gone: Sequence[str] = ()) -> None:
        """Write conditions, where one flipped.  The list is replaced as a whole, so it must be the one that
        was seen, or KubeConflictError.
        """
        patch = status.conditions(self.object.status.conditions, findings, self._moment(), gone=gone)
        self.write_status(patch, only_this=True)

    def tell(self, reason: str, action: str, note: str, *, warning: bool = False) -> None:
        """An event of the object."""
        about = Regarding(f"{self.kind.group}/{self.kind.version}", self._name, self.object.metadata)
        self.ground.events.tell(about, reason, action, note, warning=warning)

    def write_status(self, patch: dict[str, Any], *, only_this: bool = False) -> None:
        """Change these fields of it; with `only_this` of the very version that was seen."""
        if patch:
            writer = self.ground.writer
            self._see(writer.status(self.kind, self.key, patch, self.raw, only_this=only_this))

    def _moment(self) -> datetime:
        return status.moment(self.object.metadata, self.ground.now())

    # the secret

    def secret(self) -> SeenSecret:
        """The secret of `spec.secretRef`, read now.  Raises KubeNotFoundError."""
        reference = self.object.spec.secret_ref
        return SeenSecret.read(self.ground, Key(reference.namespace, reference.name))

    def hold_secret(self) -> SeenSecret:
        """The same with our finalizer on it: credentials must not go before what they open.  Where there is
        none the status stays at Processing, as Gardener's tests demand, and an event says why.
        """
        try:
            seen = self.secret()
        except KubeNotFoundError as error:
            self.tell("SecretMissing", "ReadCredentials", error.message, warning=True)
            raise
        held = self.ground.writer.add_finalizer(SECRETS, seen.key, self._finalizer, seen.raw)
        return seen if held is None else SeenSecret.of(seen.key, held)

    def let_secret_go(self, others: Callable[[Key], Iterable[Key]]) -> None:
        """Take our finalizer off it, read anew: others change secrets at any time.  None there is fine.

        It stays where one of `others`, the keys of objects of our kind that refer to a secret, is still to be
        let go of.  Each is asked of the API server: two that go together would else wait for each other, each
        in a cache that has not heard of the other's end.  For the same reason the caller lets go of the
        secret and of the object under one lock.
        """
        reference = self.object.spec.secret_ref
        if any(self._is_held(key) for key in others(Key(reference.namespace, reference.name))):
            return
        try:
            seen = self.secret()
        except KubeNotFoundError:
            return
        self.ground.writer.remove_finalizer(SECRETS, seen.key, self._finalizer, seen.raw)

    def _is_held(self, key: Key) -> bool:
        """Whether another object waits for us before it goes."""
        if key == self.key:
            return False
        try:
            other = self.ground.client.get(self.kind, key.name, key.namespace)
        except KubeNotFoundError:
            return False
        return self._finalizer in other.metadata.finalizers


@dataclass(frozen=True, slots=True)
class SeenSecret:
    """A secret as it was read."""

    key: Key
    raw: bytes
    secret: Secret

    @classmethod
    def read(cls, ground: Ground, key: Key) -> SeenSecret:
        """Raises KubeNotFoundError."""
        return cls.of(key, ground.client.get_raw(SECRETS, key.name, key.namespace))

    @classmethod
    def of(cls, key: Key, raw: bytes) -> SeenSecret:
        return cls(key, raw, msgspec.json.decode(raw, type=Secret))
