"""A restore that leaves out what a compaction supersedes, beside one that lives through that compaction.

The control is the same chain restored with its whole history, on which etcd itself compacts.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from rootcellar.backup.objects.delta import DELETE, PUT
from rootcellar.bolt.file import BoltFile
from rootcellar.errors import CompactedError, EtcdError
from rootcellar.etcd import operations as op
from rootcellar.etcd.client import ALL_KEYS, EtcdClient
from rootcellar.mvcc.meta import FINISHED_COMPACTION, encode_compaction
from rootcellar.mvcc.revision import KEY_BUCKET
from rootcellar.stores.file import FileStore
from testbed.etcd import Etcds
from tests.backup.plans import restore_members
from tests.backup.source import Source
from tests.mvcc.databases import snapshot_of
from tests.mvcc.workload import Workload


@dataclass(frozen=True)
class Lived:
    """A chain, the keys it is about, and revisions where compacting is delicate."""

    line: str
    store: FileStore
    keys: list[bytes]
    last: int
    positions: dict[str, int]


def live(line, directory):
    """A compacted full and two deltas; keys deleted for good, recreated, or never touched again."""
    with Etcds(directory / "etcd") as etcds, EtcdClient([etcds.start(line).endpoint]) as client:
        source = Source(client, FileStore(directory / "store"))
        workload = Workload(client, 21, keys=24)
        client.put(b"never touched again", b"1")
        client.put(b"deleted before the full", b"1")
        client.delete(b"deleted before the full")
        workload.run(50)
        client.compact(client.header().revision - 20, physical=True)
        client.put(b"twice in the full", b"1")
        client.put(b"twice in the full", b"2")
        full = source.full()
        ends = []
        for number in range(2):
            workload.run(40)
            client.put(b"only in a delta", b"%d" % number)
            client.delete(b"only in a delta")
            client.put(b"only in a delta", b"again")
            workload.run(30)
            ends.append(source.delta())
        events = source.events(full + 1, ends[-1])
        deletion = next(event for event in events if event.type == DELETE and event.mod_revision > full + 10)
        recreation = next(
            event
            for event in events
            if event.type == PUT and event.key == b"only in a delta" and event.version == 1
        )
        positions = {
            "below the full": full - 3,
            "the full's last revision": full,
            "the first of a delta": full + 1,
            "a deletion": deletion.mod_revision,
            "behind a deletion": deletion.mod_revision + 1,
            "a recreation": recreation.mod_revision,
            "between the deltas": ends[0],
            "the first of the second delta": ends[0] + 1,
            "within the second delta": ends[0] + 30,
            "before the last": ends[1] - 1,
            "the last": ends[1],
        }
        named = [b"never touched again", b"deleted before the full", b"twice in the full", b"only in a delta"]
        return Lived(line, source.store, [*named, *workload.keys], ends[1], positions)


POSITIONS = [
    "below the full",
    "the full's last revision",
    "the first of a delta",
    "a deletion",
    "behind a deletion",
    "a recreation",
    "between the deltas",
    "the first of the second delta",
    "within the second delta",
    "before the last",
    "the last",
]


@pytest.fixture(scope="module")
def chains(tmp_path_factory):
    """The chain of each line, made once."""
    made = {}

    def chain(line):
        if line not in made:
            made[line] = live(line, tmp_path_factory.mktemp("chain"))
        return made[line]

    return chain


def cases():
    """Every position on one line, the telling ones on all."""
    for line in ("3.4", "3.5", "3.6", "3.7"):
        for position in POSITIONS:
            if line == "3.6" or position in {"the full's last revision", "a deletion", "the last"}:
                yield pytest.param(line, position, id=f"{line}-{position.replace(' ', '-')}")


class Pair:
    """The restore under test and the control, both running."""

    def __init__(self, etcd, lived, compacted, stack):
        self.members = [etcd.make(lived.line), etcd.make(lived.line)]
        self.restored = restore_members(self.members[:1], lived.store, compact_to=compacted)
        restore_members(self.members[1:], lived.store, keep_history=True)
        for member in self.members:
            member.start()
        self.clients = [stack.enter_context(EtcdClient([member.endpoint])) for member in self.members]

    def restart(self):
        for member in self.members:
            member.stop()
            member.start()

    def rows(self, tmp_path, compacted):
        """What lies in each file once its compaction is finished."""
        return [
            finished(member, client, tmp_path / "db", compacted)
            for member, client in zip(self.members, self.clients, strict=True)
        ]

    def live(self):
        return [list(map(described, client.range(*ALL_KEYS).kvs)) for client in self.clients]

    def hashes(self):
        return [client.hash_kv() for client in self.clients]


def described(kv):
    return kv.key, kv.create_revision, kv.mod_revision, kv.version, kv.value, kv.lease


def finished(member, client, path, compacted):
    """The rows of the `key` bucket, as soon as etcd says that it has finished the compaction."""
    rows = {}

    def is_finished():
        with BoltFile(snapshot_of(client, path)) as file:
            rows.clear()
            rows.update(file.bucket(KEY_BUCKET).items())
            return file.bucket(b"meta").get(FINISHED_COMPACTION) == encode_compaction(compacted)

    member.wait_until(is_finished, f"done with the compaction at {compacted}")
    return dict(rows)


@pytest.mark.parametrize(("line", "position"), [*cases()])
def test_nobody_can_tell_it_from_an_etcd_that_compacted_itself(etcd, chains, line, position, tmp_path):
    lived = chains(line)
    compacted = lived.positions[position]
    with ExitStack() as stack:
        pair = Pair(etcd, lived, compacted, stack)
        pair.clients[1].compact(compacted, physical=True)

        restored, control = pair.rows(tmp_path, compacted)
        assert restored == control
        assert restored
        one, other = pair.live()
        assert one == other
        for client in pair.clients:
            with pytest.raises(CompactedError):
                client.range(*ALL_KEYS, revision=compacted - 1)
        pair.restart()
        assert pair.hashes() == [pair.clients[1].hash_kv()] * 2
        assert (pair.restored.hashkv.hash, pair.restored.compact_revision) == (
            pair.clients[1].hash_kv().hash,
            compacted,
        )

        # What etcd makes of each key's next write shows what it thinks of the ones before.
        for key in lived.keys:
            for client in pair.clients:
                client.put(key, b"next")
        one, other = pair.live()
        assert one == other
        assert len(one) == len(lived.keys)

        last = pair.clients[0].header().revision
        for client in pair.clients:
            client.delete(lived.keys[0])
            client.compact(last, physical=True)
        restored, control = pair.rows(tmp_path, last)
        assert restored == control
        pair.restart()
        for client in pair.clients:
            client.put(lived.keys[0], b"again")
            client.put(lived.keys[1], b"again")
        one, other = pair.live()
        assert one == other
        assert len(set(pair.hashes())) == 1


def test_one_key_cannot_change_twice_in_a_transaction(etcd, etcd_line):
    """Why no delta has a put and a deletion of one key at one revision."""
    with EtcdClient([etcd.start(etcd_line).endpoint]) as client:
        for operations in (
            [op.put(b"k", b"1"), op.delete(b"k")],
            [op.delete(b"k"), op.put(b"k", b"1")],
            [op.put(b"k", b"1"), op.delete(b"a", b"z")],
            [op.put(b"k", b"1"), op.put(b"k", b"2")],
        ):
            with pytest.raises(EtcdError, match="duplicate key"):
                client.txn(operations)
