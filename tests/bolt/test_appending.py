"""Commits of ours on one file, one after the other, against a model of dicts, with bbolt as the judge."""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rootcellar.bolt import leaves
from rootcellar.bolt.append import Transaction
from rootcellar.bolt.check import check
from rootcellar.bolt.file import BoltFile
from rootcellar.bolt.layout import LEAF, NO_FREELIST, PAGE_HEADER, Meta
from rootcellar.errors import BoltError
from tests.bolt.files import bbolt_dump, bucket, dump, make

LOGS = [b"key", b"log"]
SMALL = [b"alarm", b"lease", b"zebra"]


def blank(path, page_size):
    """A file without buckets, as small as can be."""
    metas = [Meta(page_size, 2, NO_FREELIST, 3, txid).page(txid) for txid in (0, 1)]
    path.write_bytes(metas[0] + metas[1] + PAGE_HEADER.pack(2, LEAF, 0, 0).ljust(page_size, b"\0"))
    return path


def contents(path):
    with BoltFile(path) as file:
        return {name: dict(inner.items()) for name, inner in file.root().buckets()}


seeds = st.integers(0, 1 << 30)
sizes = st.sampled_from([(0, 0), (0, 20), (0, 300), (100, 100), (900, 5000), (4000, 4100), (0, 70_000)])


def rows(after, count, seed, size, key_size=40):
    """Rows in ascending order of their keys, all of them above the key `after`."""
    chance = random.Random(seed)
    number = int.from_bytes(after[:8].ljust(8, b"\0"), "big")
    keys, values = [], []
    for _ in range(count):
        number += chance.randint(1, 5)
        keys.append(number.to_bytes(8, "big") + chance.randbytes(chance.randint(0, key_size)))
        values.append(chance.randbytes(chance.randint(*size)))
    return keys, values


class Appending(RuleBasedStateMachine):
    """`model` is what was committed, `next` what the open transaction makes of it."""

    boltcheck = None

    def __init__(self):
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.path = Path(self.directory.name) / "db"
        self.transaction = None
        self.next = None
        self.in_place = False
        self.judged = 0

    @initialize(page_size=st.sampled_from([1024, 4096, 16384, 65536]), seed=seeds, ours=st.booleans())
    def start(self, page_size, seed, ours):
        if ours:
            blank(self.path, page_size)
        else:
            shape = bucket("key", 300, key_size=[17, 18], sequential=True, transactions=3)
            make(
                self.boltcheck,
                self.path,
                shape,
                bucket("lease", 9),
                page_size=page_size,
                seed=seed,
                unsynced=True,
            )
        self.page_size = page_size
        self.model = contents(self.path)

    # one transaction at a time

    @precondition(lambda self: self.transaction is None)
    @rule()
    def begin(self):
        self.transaction = Transaction(self.path)
        self.next = {name: dict(content) for name, content in self.model.items()}
        self.in_place = False
        self.edges = set()

    @precondition(lambda self: self.transaction is not None)
    @rule(name=st.sampled_from(LOGS), count=st.integers(0, 400), seed=seeds, size=sizes, packed=st.booleans())
    def append(self, name, count, seed, size, packed):
        if size[1] > 1000:
            count //= 20
        content = self.next.setdefault(name, {})
        keys, values = rows(max(content, default=b""), count, seed, size)
        edge = self.transaction.edge(name)
        self.edges.add(name)
        if packed and keys:
            edge.append_leaves(leaves.build(keys, values, self.page_size), keys[-1])
        else:
            edge.append(keys, values)
        content.update(zip(keys, values, strict=True))

    @precondition(lambda self: self.transaction is not None)
    @rule(
        name=st.sampled_from(LOGS),
        seed=seeds,
        size=st.integers(1 << 20, 5 << 20),
        key_size=st.integers(0, 32_000),
    )
    def append_a_huge_row(self, name, seed, size, key_size):
        self.append_one(name, seed, size, key_size)

    def append_one(self, name, seed, size, key_size):
        content = self.next.setdefault(name, {})
        keys, values = rows(max(content, default=b""), 1, seed, (size, size), key_size)
        self.transaction.edge(name).append(keys, values)
        self.edges.add(name)
        content.update(zip(keys, values, strict=True))

    @precondition(lambda self: self.transaction is not None and any(self.next.get(name) for name in LOGS))
    @rule(name=st.sampled_from(LOGS))
    def append_what_does_not_follow(self, name):
        if not self.next.get(name):
            return
        last = max(self.next[name])
        for key in (last, last[:-1], b"\0"):
            with pytest.raises(BoltError, match="only appending is possible"):
                self.transaction.edge(name).append([key], [b""])
        self.edges.add(name)

    @precondition(lambda self: self.transaction is not None)
    @rule(name=st.sampled_from(SMALL), count=st.integers(0, 150), seed=seeds, size=sizes)
    def replace(self, name, count, seed, size):
        keys, values = rows(b"", count if size[1] < 1000 else count // 20, seed, size)
        content = dict(zip(keys, values, strict=True))
        shuffled = list(content.items())
        random.Random(seed).shuffle(shuffled)
        self.transaction.replace(name, shuffled)
        self.next[name] = content

    @precondition(lambda self: self.transaction is not None)
    @rule(name=st.sampled_from(SMALL + LOGS))
    def drop(self, name):
        if name not in self.edges:
            self.transaction.drop(name)
            self.next.pop(name, None)

    @precondition(lambda self: self.transaction is not None)
    @rule(name=st.sampled_from(LOGS), seed=seeds, part=st.sampled_from([0.0, 0.1, 0.6, 1.0]))
    def thin_in_place(self, name, seed, part):
        """What superseding does: rows leave their leaves, and a new tree goes over what is left."""
        chance = random.Random(seed)
        inner = self.transaction.reader.bucket(name)
        if inner is None or inner.is_inline or name in self.edges or name not in self.next:
            return
        children = []
        content = {}
        for node in inner.leaves():
            found = [(node.buffer[k:v], node.buffer[v:e]) for _, k, v, e in node.leaf_elements()]
            kept = [row for row in found if chance.random() >= part]
            if kept and len(kept) < len(found):
                pages = (node.end - node.start) // self.page_size
                self.transaction.overwrite_leaf(node.page_id, pages, kept)
                self.in_place = True
            if kept:
                children.append((kept[0][0], node.page_id))
                content.update(kept)
        self.transaction.adopt(name, children)
        self.edges.add(name)
        self.next[name] = content

    @precondition(lambda self: self.transaction is not None)
    @rule(both=st.booleans())
    def commit(self, both):
        with self.transaction as transaction:
            meta = transaction.commit(both_metas=both or self.in_place)
        self.transaction = None
        self.model = self.next
        with BoltFile(self.path) as file:
            assert file.meta == meta
            check(file)
        assert contents(self.path) == self.model
        self.judge()

    @precondition(lambda self: self.transaction is not None and not self.in_place)
    @rule()
    def leave_without_commit(self):
        with self.transaction:
            pass
        self.transaction = None
        assert contents(self.path) == self.model

    @precondition(lambda self: self.transaction is None)
    @rule(seed=seeds, synced=st.booleans())
    def let_bbolt_go_on(self, seed, synced):
        """Small changes by bbolt itself; from then on the model is what both readers see."""
        spec = {
            "seed": seed,
            "commits": 3,
            "operations": 20,
            "bucket": "zebra",
            "delete": 0.4,
            "synced": synced,
        }
        spec |= {"key_size": [9, 40], "value_size": [0, 300]}
        done = self.boltcheck("commits", self.path, json.dumps(spec))
        assert done.returncode == 0, done.stderr
        self.judge()
        after = contents(self.path)
        assert {name: content for name, content in after.items() if name != b"zebra"} == {
            name: content for name, content in self.model.items() if name != b"zebra"
        }
        self.model = after

    def judge(self):
        found = dump(self.path)
        assert found == bbolt_dump(self.boltcheck, self.path)
        done = self.boltcheck("check", self.path)
        assert done.returncode == 0, done.stdout + done.stderr

    @invariant()
    def the_old_state_is_there_until_the_commit(self):
        if self.transaction is not None and not self.in_place:
            with BoltFile(self.path) as file:
                assert {name for name, _ in file.root().buckets()} == self.model.keys()

    def teardown(self):
        if self.transaction is not None:
            with self.transaction:
                pass
        self.directory.cleanup()


@pytest.mark.hypothesis
def test_any_sequence_of_commits_leaves_what_the_model_says(boltcheck):
    class Machine(Appending):
        pass

    Machine.boltcheck = staticmethod(boltcheck)
    profile = settings.default
    Machine.TestCase.settings = settings(
        profile, max_examples=max(profile.max_examples // 4, 10), stateful_step_count=25
    )
    Machine.TestCase("runTest").runTest()


def test_growth_by_levels(boltcheck, tmp_path):
    """From one inline row to four levels of pages, a commit each time the tree may have grown."""
    path = blank(tmp_path / "db", 1024)
    model = {}
    for step, count in enumerate((1, 5, 20, 100, 400, 2000, 9000, 30_000)):
        keys, values = rows(max(model, default=b""), count, step, (0, 60), key_size=30)
        with Transaction(path) as transaction:
            transaction.edge(b"key").append(keys, values)
            transaction.commit()
        model.update(zip(keys, values, strict=True))
        with BoltFile(path) as file:
            check(file)
        assert contents(path) == {b"key": model}
        assert dump(path) == bbolt_dump(boltcheck, path)
    depth = json.loads(boltcheck("dump", path).stdout)["buckets"][0]["depth"]
    assert depth >= 4


def test_many_small_commits_still_fill_their_pages(tmp_path):
    path = blank(tmp_path / "db", 4096)
    for number in range(300):
        commit_one(path, number.to_bytes(17, "big"), bytes(100))
    with BoltFile(path) as file:
        leaves_used = sum(1 for _ in file.bucket(b"key").leaves())
    assert leaves_used <= 300 * 133 // 4096 + 2


def commit_one(path, key, value):
    with Transaction(path) as transaction:
        transaction.edge(b"key").append([key], [value])
        transaction.commit()


@pytest.mark.parametrize("key", [b"", b"k" * 32_769])
def test_a_key_that_bbolt_does_not_allow_is_refused(tmp_path, key):
    path = blank(tmp_path / "db", 4096)
    with pytest.raises(BoltError):
        commit_one(path, key, bytes(5000))
    assert contents(path) == {}


def test_more_buckets_than_a_page_can_hold_are_refused(tmp_path):
    path = blank(tmp_path / "db", 1024)
    with Transaction(path) as transaction:
        for number in range(65_536):
            transaction.edge(b"%05d" % number)
        with pytest.raises(BoltError, match="do not fit into one page"):
            transaction.commit()
    assert contents(path) == {}


def test_a_bucket_that_holds_buckets_is_left_alone(boltcheck, tmp_path):
    path = make(boltcheck, tmp_path / "db", bucket("nest", 3, buckets=[bucket("in", 2)]))
    with Transaction(path) as transaction, pytest.raises(BoltError, match="cannot be appended to"):
        transaction.edge(b"nest")
    with Transaction(path) as transaction:
        transaction.edge(b"beside").append([b"k"], [b"v"])
        transaction.commit()
    assert dump(path) == bbolt_dump(boltcheck, path)


def test_a_file_that_is_no_bbolt_file_leaves_nothing_open(tmp_path):
    """An unclosed file would be a warning, which is an error here."""
    path = tmp_path / "db"
    path.write_bytes(bytes(10_000))
    with pytest.raises(BoltError):
        Transaction(path)
    blank(path, 1024)
    path.chmod(0o400)
    data = bytearray(path.read_bytes())
    data[2 * 1024 + 8] = 9
    path.write_bytes(data)
    with pytest.raises(BoltError, match="neither branch nor leaf"):
        Transaction(path)
