"""Making the folded full in scratch: the chain's database, written anew, proven, hashed and compressed.

Nothing here writes to the store.  What comes out is equal to the chain by structure, revision and HashKV,
or an error is raised.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from rootcellar.backup.capture.publisher import Tally
from rootcellar.backup.catalogue import names
from rootcellar.backup.catalogue.history import SECOND
from rootcellar.backup.catalogue.records import Lease
from rootcellar.backup.compact import database
from rootcellar.backup.compact.held import kept_leases, unused_leases
from rootcellar.backup.objects import codecs
from rootcellar.backup.objects.delta import parse_time
from rootcellar.backup.objects.pipeline import ahead
from rootcellar.backup.objects.sealing.seal import encrypt, read_header
from rootcellar.backup.restore.database import Piece, apply_deltas
from rootcellar.backup.restore.plan import PlannedObject
from rootcellar.backup.restore.preflight import estimate
from rootcellar.backup.restore.replay import StoredDelta
from rootcellar.backup.restore.restore import compare, fetch_full, proven_bytes
from rootcellar.backup.restore.rows import Window
from rootcellar.bolt.append import Transaction
from rootcellar.bolt.check import check
from rootcellar.bolt.file import BoltFile
from rootcellar.errors import ChainError, DamagedObjectError, ProofError, TargetError
from rootcellar.mvcc.hashkv import hash_kv
from rootcellar.mvcc.meta import StoreMeta, leases
from rootcellar.mvcc.probe import SnapshotProbe

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from rootcellar.backup.catalogue.chain import ChainPlan
    from rootcellar.backup.catalogue.names import SnapshotName
    from rootcellar.backup.compact.plan import Fold, Unfinished
    from rootcellar.backup.objects.sealing.keyring import Recipient
    from rootcellar.backup.objects.sealing.seal import Unlocked
    from rootcellar.backup.restore.database import Progress
    from rootcellar.backup.restore.plan import RestorePlan
    from rootcellar.mvcc.hashkv import HashKV
    from rootcellar.mvcc.probe import SnapshotFacts
    from rootcellar.stores.protocol import Store

_CHUNK = 1 << 20
_CLEARED = "the store was not changed"


@dataclass(frozen=True, slots=True)
class Built:
    """The new database, proven, and what its record says.  `read`: sha256 by key of all that was read."""

    path: Path
    hashkv: HashKV
    last_change: str | None
    leases: tuple[Lease, ...]
    auth_revision: int
    captured_at: datetime
    base_size: int
    rows_dropped: int
    read: dict[str, str]


@dataclass(frozen=True, slots=True)
class Packed:
    """The object as it is stored, and what passed while it was made, or read again.

    `key_ids` are the keys that open an encrypted one, UNSET for all others.
    """

    path: Path
    suffix: str
    payload: Tally
    stored_size: int
    stored_sha256: str
    facts: SnapshotFacts
    key_ids: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET


@contextmanager
def scratch_directory(fold: Fold, parent: Path | None) -> Generator[Path]:
    """A directory that is gone afterwards.  Raises TargetError, for what goes wrong inside it, too."""
    try:
        with tempfile.TemporaryDirectory(prefix="rootcellar-compact-", dir=parent) as name:
            needed, free = 2 * estimate(fold.plan), shutil.disk_usage(name).free
            if free < needed:
                raise TargetError(
                    f"{Path(name).parent} has {free >> 20:,} MiB free, and a fold takes {needed >> 20:,}",
                    hint="name another file system with --scratch",
                )
            yield Path(name)
    except OSError as error:
        raise TargetError(
            f"{error.filename or parent or 'the scratch directory'}: {error.strerror or error}", hint=_CLEARED
        ) from error
    except DamagedObjectError as error:
        error.hint = _sound_part(fold.plan, error.name) or error.hint
        raise


def build(store: Store, fold: Fold, directory: Path, unlocked: Unlocked, progress: Progress) -> Built:
    """The database that the chain comes to, written anew; equal to the chain by structure and HashKV."""
    plan, read = fold.plan, dict[str, str]()
    chained, path = directory / "chain", directory / "db"
    fetch_full(chained, store, plan.full, read, unlocked, progress)
    base_size = chained.stat().st_size
    compare(plan, chained)
    with BoltFile(chained) as file:
        unused = unused_leases(file)
    pieces = [
        _piece(store, plan, planned, directory / f"delta-{number}", read, unlocked)
        for number, planned in enumerate(plan.deltas)
    ]
    with Transaction(chained) as transaction:
        applied = apply_deltas(transaction, pieces, compact_revision=plan.compact_revision, progress=progress)
        if applied.revision != fold.revision:
            raise ChainError(
                f"the chain ends at revision {applied.revision}, not at {fold.revision}",
                hint=f"fold what there is: --to-revision {applied.revision}",
            )
        database.settle(transaction, applied, plan.lease_ttls)
        transaction.commit(both_metas=True)
    with BoltFile(chained) as file:
        expected = hash_kv(file)
        kept = kept_leases(file, unused, applied.leases)
    rows_dropped = applied.rows_dropped + database.rewrite(chained, path, kept)
    chained.unlink()
    return _proven(
        Built(
            path=path,
            hashkv=expected,
            last_change=None,
            leases=(),
            auth_revision=0,
            captured_at=_captured_at(fold.chain, applied.last_time),
            base_size=base_size,
            rows_dropped=rows_dropped,
            read=read,
        )
    )


def _proven(built: Built, hint: str = f"report it: {_CLEARED}") -> Built:
    """The same with what its record says of its database, which has the chain's HashKV.  Raises ProofError,
    BoltError, RecordError.
    """
    with BoltFile(built.path) as file:
        check(file)
        found = hash_kv(file)
        if found != built.hashkv:
            raise ProofError(f"the folded database has {found}, its chain {built.hashkv}", hint=hint)
        return replace(
            built,
            last_change=database.last_change(file, int(found.revision)),
            leases=tuple(Lease(lease.id, lease.ttl) for lease in leases(file).values()),
            auth_revision=StoreMeta.read(file).auth_revision,
        )


def pack(built: Built, path: Path, suffix: str, progress: Progress) -> Packed:
    """Hash, compress and look through the database as it goes into `path`.  Raises ProofError, OSError."""
    payload, stored, probe = Tally(), Tally(), SnapshotProbe()
    passing = codecs.append_hash(_watched(built, payload, probe, progress))
    with path.open("xb") as file:
        for chunk in stored.through(codecs.compress(ahead(passing), suffix.removesuffix(names.AGE))):
            file.write(chunk)
    facts = _facts(built, payload, probe)
    built.path.unlink()
    return Packed(path, suffix, payload, stored.size, stored.sha256, facts)


def seal(packed: Packed, name: SnapshotName, recipients: Sequence[Recipient]) -> Packed:
    """The same encrypted under its name, beside it, if the name says so.  Raises OSError."""
    if not name.is_encrypted:
        return packed
    path, stored = packed.path.with_name("sealed"), Tally()
    with path.open("wb") as file:
        for chunk in stored.through(encrypt(chunks(packed.path), name, recipients)):
            file.write(chunk)
    key_ids = tuple(each.key_id for each in recipients)
    return replace(packed, path=path, stored_size=stored.size, stored_sha256=stored.sha256, key_ids=key_ids)


def reread(
    store: Store, left: Unfinished, built: Built, path: Path, unlocked: Unlocked, progress: Progress
) -> tuple[Built, Packed]:
    """What a fold that was killed has stored, proven to be what it claimed, and what the chain comes to.

    Raises DamagedObjectError, ProofError, OSError, StoreErrors.
    """
    full = left.full
    planned = PlannedObject(full.key, full.size, full.name.suffix, full.name.last, sha256=left.stored_sha256)
    fetch_full(path, store, planned, {}, unlocked, progress)
    built.path.unlink()
    hint = "give the --compact-to that it was folded with, or take a new full"
    built = _proven(replace(built, path=path), hint)
    payload, probe = Tally(), SnapshotProbe()
    for _ in _watched(built, payload, probe, progress):
        pass
    key_ids = read_header(store, full.key).key_ids if full.name.is_encrypted else msgspec.UNSET
    facts = _facts(built, payload, probe)
    return built, Packed(path, planned.suffix, payload, full.size, left.stored_sha256, facts, key_ids)


def _watched(built: Built, payload: Tally, probe: SnapshotProbe, progress: Progress) -> Iterator[bytes]:
    for chunk in payload.through(chunks(built.path)):
        probe.feed(chunk)
        yield chunk
        progress("store", len(chunk))


def _facts(built: Built, payload: Tally, probe: SnapshotProbe) -> SnapshotFacts:
    facts = probe.result()
    if (facts.size, facts.revision) != (payload.size, built.hashkv.revision):
        raise ProofError(
            f"the folded pages hold {facts.size} bytes up to revision {facts.revision},"
            f" not {payload.size} up to {built.hashkv.revision}",
            hint=f"report it: {_CLEARED}",
        )
    return facts


def _sound_part(plan: RestorePlan, damaged: str) -> str | None:
    last = 0
    for planned in (plan.full, *plan.deltas):
        if planned.key == damaged:
            return f"fold what is sound: --to-revision {last}" if last else "take a new full now"
        last = planned.last
    return None


def _piece(
    store: Store,
    plan: RestorePlan,
    planned: PlannedObject,
    spooled: Path,
    read: dict[str, str],
    unlocked: Unlocked,
) -> Piece:
    """A delta to apply, proven and kept in scratch, as a compaction has it read twice."""
    with spooled.open("xb") as file:
        for chunk in proven_bytes(store, planned, read, unlocked):
            file.write(chunk)
    stored = StoredDelta(planned.key, planned.suffix, planned.last, Window(0, plan.upto))
    return Piece(stored, planned.size, lambda: chunks(spooled))


def chunks(path: Path) -> Iterator[bytes]:
    """A file's bytes, a MiB at a time."""
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk


def _captured_at(chain: ChainPlan, last_time: str) -> datetime:
    """When all that is in the result had happened: for restores to a time."""
    last = chain.steps[-1]
    ends = [each.ended_at for each in chain.snapshots[:-1]]
    ends.append(
        last.snapshot.ended_at if last.upto == last.snapshot.last or not last_time else parse_time(last_time)
    )
    seconds, fraction = divmod(max(ends), SECOND)
    return datetime.fromtimestamp(seconds, UTC) + timedelta(microseconds=-(-fraction // 1000))
