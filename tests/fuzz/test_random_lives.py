"""A real etcd lives at random, is captured at random, and comes back at random: always to the same hashes.

The seed is all there is to a life, and hypothesis prints it when one does not come back.
"""

from __future__ import annotations

import random
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rootcellar.backup.catalogue import names
from rootcellar.etcd.client import EtcdClient
from rootcellar.mvcc.hashkv import HashKV
from rootcellar.stores.file import FileStore
from testbed.binaries import LINES
from testbed.etcd import Etcds
from tests.backup.plans import restore_into, restore_members
from tests.backup.source import Source
from tests.mvcc.workload import Workload


@dataclass
class Life:
    """What was captured, and what the etcd said of itself at times."""

    line: str
    store: FileStore
    said: list[HashKV] = field(default_factory=list)


def live(chance, line, directory, etcds):
    client = ExitStack()
    with client:
        asked = client.enter_context(EtcdClient([etcds.start(line).endpoint]))
        life = Life(line, FileStore(directory / "store"))
        source = Source(asked, life.store, chance.choice([names.GZIP, names.ZLIB, names.NONE]))
        keys, size = chance.choice([1, 5, 40, 400]), chance.choice([10, 300, 6000])
        workload = Workload(asked, chance.random(), keys=keys, value_size=size)
        compacted = -1
        workload.run(chance.randint(0, 80))
        source.full()
        for _ in range(chance.randint(1, 6)):
            if chance.random() < 0.15:
                workload.empty()
            if workload.run(chance.randint(1, 60)) > source.last:
                source.delta()
            if chance.random() < 0.3:
                asked.defragment()
            answer = asked.hash_kv()
            if answer.compact_revision == compacted and answer.revision != compacted:
                life.said.append(HashKV(answer.hash, answer.revision, compacted))
            if chance.random() < 0.4:
                compacted = workload.compact()
            if chance.random() < 0.25:
                source.full()
        return life


@pytest.mark.servers
@settings(max_examples=max(settings.default.max_examples // 25, 4))
@given(seed=st.integers(0, (1 << 32) - 1), line=st.sampled_from(list(LINES)))
def test_any_life_comes_back(seed, line):
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as name, Etcds(Path(name) / "etcds") as etcds:
        directory = Path(name)
        life = live(chance, line, directory, etcds)
        comparable = []
        for number, said in enumerate(life.said):
            restored = restore_into(
                directory / f"{number}", life.store, said.revision, compact_to=said.compact_revision
            )
            assert restored.revision == said.revision
            # A full of this very revision may have been taken after a later compaction.
            if restored.compact_revision == said.compact_revision:
                assert restored.hashkv == said
                comparable.append(said)
        if comparable:
            said = chance.choice(comparable)
            member = etcds.make(chance.choice([other for other in LINES if other >= line]))
            restore_members([member], life.store, said.revision, compact_to=said.compact_revision)
            member.start()
            found = member.hash_kv(said.revision)
            assert (found.hash, found.compact_revision) == (said.hash, said.compact_revision)
            member.etcdctl("put", "life", "goes on")
            assert member.hash_kv().revision == said.revision + 1
