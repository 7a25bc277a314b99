"""`history`: what happened to one key."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rootcellar.backup.browse import browse
from rootcellar.backup.browse.extract import text
from rootcellar.cli import columns, flags
from rootcellar.cli.document import Document, Part, stream
from rootcellar.cli.looking import base64, lease, opened
from rootcellar.errors import NotFoundError
from rootcellar.mvcc.kubernetes import recognise

if TYPE_CHECKING:
    from rootcellar.cli.context import Context
    from rootcellar.mvcc.history import Version

_PREVIEW = 60


class Change(Part, frozen=True, omit_defaults=True, kw_only=True):
    """One change of the key.  A deletion has neither version nor value."""

    revision: int
    type: str
    version: int = 0
    lease: str | None = None
    value: str | None = None
    value_base64: str | None = None

    @classmethod
    def of(cls, version: Version) -> Change:
        """What to show of it."""
        record = version.record
        if version.is_deletion:
            return cls(revision=record.mod_revision, type="delete")
        return cls(
            revision=record.mod_revision,
            type="put",
            version=record.version,
            lease=lease(record),
            value=text(record.value),
            value_base64=base64(record.value),
        )


class History(Document, frozen=True):
    """What stands above the changes.  What lies before `compact_revision` is not known."""

    ITEMS: ClassVar[type | None] = Change
    origin: str
    key: str | None
    key_base64: str | None
    revision: int
    compact_revision: int


def run(context: Context) -> int:
    """Oldest first."""
    console, key = context.console, context.arguments.needed(flags.KEY)
    with opened(context) as backup:
        versions = list(browse.history(backup, key))
        compacted = backup.keyspace.compact_revision
        if not versions:
            since = f" since revision {compacted}" if compacted > 0 else ""
            raise NotFoundError(
                f"nothing is known of {columns.key(key)} up to revision {backup.revision}{since}",
                hint="keys are written exactly as etcd has them: `rootcellar keys` lists them",
            )
        if console.is_text:
            header = ("REVISION", "CHANGE", "VERSION", "LEASE", "SIZE", "VALUE")
            console.lines(columns.table(header, map(_row, versions), right=(0, 2, 4)))
            if compacted > 0:
                console.note(f"what came before revision {compacted} was compacted away")
        else:
            head = History(
                origin=backup.origin,
                key=text(key),
                key_base64=base64(key),
                revision=backup.revision,
                compact_revision=compacted,
            )
            stream(console, head, map(Change.of, versions))
    return 0


def _row(version: Version) -> tuple[str, ...]:
    record = version.record
    if version.is_deletion:
        return (str(record.mod_revision), "delete", "", "", "", "")
    return (
        str(record.mod_revision),
        "put",
        str(record.version),
        lease(record) or "-",
        columns.size(len(record.value)),
        _preview(record.value),
    )


def _preview(value: bytes) -> str:
    known = recognise(value)
    if known is not None:
        return str(known)
    shown = columns.key(value[: _PREVIEW + 1])
    return shown if len(shown) <= _PREVIEW else f"{shown[:_PREVIEW]}..."
