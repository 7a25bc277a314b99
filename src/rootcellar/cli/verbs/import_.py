"""`import`: take over what another tool backed up."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rootcellar.backup.imports.imports import import_backup
from rootcellar.cli import columns, flags, sources
from rootcellar.cli.backups import foreign
from rootcellar.cli.document import Document
from rootcellar.cli.identity import whoami
from rootcellar.cli.progress import Phase, progress
from rootcellar.cli.sealing import writing
from rootcellar.cli.window import moment

if TYPE_CHECKING:
    from rootcellar.backup.imports.imports import Imported
    from rootcellar.cli.context import Context


class ImportedBackup(Document, frozen=True):
    """The full that it became.  `repeated`: it was there.  `notices` say what could not be checked."""

    store: str
    key: str
    repeated: bool
    revision: int
    compact_revision: int
    etcd_version: str
    size: int
    captured_at: datetime
    notices: tuple[str, ...]


def run(context: Context) -> int:
    """Check it, write it, tell what it is."""
    arguments, console = context.arguments, context.console
    store = sources.writable(context)
    how = writing(context)
    taken_at = arguments.get(flags.TAKEN_AT)
    with progress(console, {"check": Phase("check"), "full": Phase("write")}) as advance:
        imported = import_backup(
            foreign(context, arguments.needed(flags.BACKUP)),
            store,
            by=whoami(),
            suffix=how.suffix,
            recipients=how.recipients,
            taken_at=None if taken_at is None else moment(taken_at),
            scratch=arguments.get(flags.SCRATCH),
            clock=lambda: datetime.now(UTC),
            progress=advance,
        )
    shown = _document(store.url, imported)
    if not console.is_text:
        console.document(shown)
        return 0
    done = "was there already" if shown.repeated else "written"
    version = f"etcd {shown.etcd_version}, " if shown.etcd_version else ""
    facts = f"revision {shown.revision}, {columns.size(shown.size)}, {columns.date(shown.captured_at)}"
    console.lines([f"{shown.key} {done} in {shown.store}", f"  {version}{facts}"])
    console.lines(f"  {notice}" for notice in shown.notices)
    return 0


def _document(url: str, imported: Imported) -> ImportedBackup:
    record = imported.record
    return ImportedBackup(
        store=url,
        key=record.key,
        repeated=imported.repeated,
        revision=record.last_revision,
        compact_revision=record.compact_revision,
        etcd_version=record.etcd_version,
        size=record.payload_size,
        captured_at=record.captured_at,
        notices=tuple(notice.message for notice in record.warnings),
    )
