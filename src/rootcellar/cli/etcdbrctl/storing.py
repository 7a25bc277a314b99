"""`compact` and `copy`: what is done to backups, with no etcd near."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from rootcellar.agent.lease_plan import UNKNOWN, Reached
from rootcellar.backup.catalogue import names
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.chain import Latest, plan_chain
from rootcellar.backup.compact.compact import compact
from rootcellar.backup.copy.copy import copy_as_reference
from rootcellar.cli import columns
from rootcellar.cli.etcdbrctl import leasing, stores
from rootcellar.cli.etcdbrctl.sections import Copying, Restoration
from rootcellar.cli.identity import whoami
from rootcellar.cli.values import SECOND
from rootcellar.errors import DamagedObjectError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rootcellar.cli.console import Console
    from rootcellar.cli.etcdbrctl.reading import Configuration


def fold(configuration: Configuration, console: Console, environ: Mapping[str, str]) -> int:
    """Fold the newest chain into a full, in scratch beside --data-dir, which itself is not made."""
    scratch = Path(configuration.get(Restoration).data_dir).absolute().parent
    scratch.mkdir(parents=True, exist_ok=True)
    store = stores.opened(configuration, environ)
    folded = compact(store, by=whoami(), scratch=scratch)
    if folded is None:
        # The one before may have been killed, or the API server away, before it renewed the lease; and as
        # long as that is behind, druid has the chain compacted again and again.
        full = plan_chain(read_catalogue(store), Latest()).full
        name, record, told = full.name, full.record, "nothing to fold"
    else:
        written, record = names.read(folded.key), folded.record
        assert written is not None  # noqa: S101  it was just written
        name, deltas = written, columns.plural(len(folded.folded) - 1, "delta")
        told = f"a full and {deltas} are now also {folded.key}, {columns.size(folded.stored_size)}"
    reached = Reached(record.timeline if record is not None else UNKNOWN, name.last)
    if why := leasing.renew_for_folded(configuration, environ, reached, name.created):
        console.warn(f"the lease of the full was not renewed: {why}")
    console.lines([told])
    return 0


def copy(configuration: Configuration, console: Console, environ: Mapping[str, str]) -> int:
    """Copy from the source's store into the other.  Raises DamagedObjectError for what could not be."""
    asked = configuration.get(Copying)
    done = copy_as_reference(
        stores.opened(configuration, environ, "source-"),
        stores.opened(configuration, environ),
        max_backups_to_copy=asked.max_backups,
        max_backup_age=asked.max_age,
        max_parallel_copy_operations=asked.parallel,
        wait_for_final_snapshot=asked.wait,
        wait_for_final_snapshot_timeout=timedelta(seconds=asked.wait_timeout / SECOND),
    )
    copied = columns.plural(len(done.copied), "object")
    console.lines([f"{copied} copied, {len(done.present)} were there"])
    for failure in done.failed:
        console.warn(f"{failure.key}: {failure.reason}")
    if done.failed:
        raise DamagedObjectError(
            done.failed[0].key, "was not copied", hint="`rootcellar verify` says what can be restored"
        )
    return 0
