"""A store with real chains that nobody captured, and a prune of it in a process that is killed."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta

from rootcellar.backup.catalogue import ledger, names
from rootcellar.backup.catalogue.names import Kind
from rootcellar.backup.objects import codecs, delta
from rootcellar.backup.prune.prune import prune
from rootcellar.backup.prune.retention import LimitBased
from rootcellar.backup.prune.values import Rules
from rootcellar.bolt.file import BoltFile
from rootcellar.mvcc.hashkv import hash_kv
from tests.backup.builders import EPOCH, moment, record
from tests.backup.capture_scene import Dying, store_at
from tests.backup.histories import database, invent, upto
from tests.backup.plans import restore_into

EVENTS = invent(260, 11, keys=8)
FULLS = (40, 100, 160)
STEP, DELTAS = 20, 3
KEEP_ONE = Rules(LimitBased(1))


def fill(store, scratch):
    """Three fulls, a day apart, with three deltas each, all with records."""
    for number, first in enumerate(FULLS):
        at = number * 86_400
        path = database(scratch / f"full-{first}", upto(EVENTS, first))
        _put(store, names.full(first, EPOCH + at), path.read_bytes(), at)
        path.unlink()
        for step in range(DELTAS):
            start, last = first + step * STEP + 1, first + (step + 1) * STEP
            part = [event for event in EVENTS if start <= event.mod_revision <= last]
            late = at + 3600 * (step + 1)
            _put(store, names.delta(start, last, EPOCH + late), b"".join(delta.encode(part)), late)


def _put(store, name, payload, at):
    stored = b"".join(codecs.compress(codecs.append_hash([payload]), names.GZIP))
    store.put(name.key, [stored])
    ledger.write_record(
        store,
        record(
            name,
            captured_at=moment(at),
            payload_size=len(payload),
            payload_sha256=hashlib.sha256(payload).hexdigest(),
            stored_size=len(stored),
            stored_sha256=hashlib.sha256(stored).hexdigest(),
            first_received=None if name.kind is Kind.FULL else moment(at - 60),
            last_received=None if name.kind is Kind.FULL else moment(at - 1),
        ),
    )


def contents(store, prefix="v2/"):
    """Keys and bytes."""
    return {info.key: b"".join(store.get(info.key)) for info in store.list(prefix)}


def must_restore(store, scratch, *revisions):
    """What the store restores to at a revision is what its events come to."""
    for revision in revisions:
        target = scratch / f"restored-{revision}"
        restore_into(target, store, revision)
        path = database(scratch / f"whole-{revision}", upto(EVENTS, revision))
        with BoltFile(target / "member" / "snap" / "db") as ours, BoltFile(path) as theirs:
            assert hash_kv(ours, revision).hash == hash_kv(theirs, revision).hash
        path.unlink()


class DyingAtDeletions(Dying):
    """Many deletions are many chances to die."""

    def delete_many(self, keys):
        failed = {}
        for key in keys:
            due = self._due()
            failed |= self._store.delete_many([key])
            self._die_if(due == "after")
        return failed


def prune_and_die(place, at=None, when="after", rules=KEEP_ONE, later=timedelta(0)):
    """One prune in a process of its own; without `at` whoever started it kills it."""
    store = store_at(place)
    clock = (lambda: datetime.now(UTC) + later) if later else None
    prune(store if at is None else DyingAtDeletions(store, at, when), rules, writer="doomed/1", clock=clock)
