import random
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootcellar.bolt.file import BoltFile
from rootcellar.errors import CompactedError, EtcdError, FormatError, UsageError
from rootcellar.etcd import operations
from rootcellar.etcd.client import ALL_KEYS, EtcdClient
from rootcellar.mvcc import record
from rootcellar.mvcc.history import KeyRange, Keyspace, Version
from rootcellar.mvcc.record import KeyValue
from rootcellar.mvcc.revision import encode_row_key
from tests.mvcc.databases import as_record, snapshot_of, write_database

SEED = 20251


def write_at_random(client, rounds, rng):
    """Puts, deletes, range deletes and transactions over a few keys, so that each has a history."""
    names = [f"/registry/pods/ns{n % 3}/pod-{n}".encode() for n in range(20)]
    names += [b"/a", b"/a/b", b"\x00\xff", b"long/" + b"x" * 300, b"/registry/", b"~"]
    lease = client.lease_grant(3600)
    for _ in range(rounds):
        key = rng.choice(names)
        kind = rng.random()
        if kind < 0.6:
            client.put(key, rng.randbytes(rng.randrange(60)), lease=rng.choice([0, 0, lease]))
        elif kind < 0.75:
            client.delete(key)
        elif kind < 0.8:
            client.delete(b"/registry/pods/ns1/", b"/registry/pods/ns10")
        else:
            other = rng.choice([name for name in names if name != key])
            client.txn([operations.put(key, b"together"), operations.delete(other)])
    return client.header().revision


def ranged(client, within, revision):
    """etcd's own answer."""
    key, range_end = within.for_etcd()
    return [as_record(kv) for page in client.pages(key, range_end, revision=revision) for kv in page.kvs]


RANGES = [
    KeyRange(),
    KeyRange.prefix(b"/registry/pods/ns1/"),
    KeyRange.prefix(b"/registry/pods/ns1/pod-1"),
    KeyRange.prefix(b"long/" + b"x" * 299),
    KeyRange.prefix(b"\xff"),
    KeyRange.single(b"/a"),
    KeyRange(b"/a/", b"/registry/pods/ns2"),
    KeyRange(b"\x00\xff", None),
    KeyRange(b"b", b"a"),
]


def test_every_revision_reads_as_etcd_answers_it(etcd, etcd_line, tmp_path):
    rng = random.Random(SEED)
    member = etcd.start(etcd_line)
    with EtcdClient([member.endpoint]) as client:
        middle = write_at_random(client, 150, rng)
        client.compact(middle - 50, physical=True)
        last = write_at_random(client, 100, rng)
        with BoltFile(snapshot_of(client, tmp_path / "db")) as file:
            assert Keyspace(file).revision == last
            for revision in range(middle - 50, last + 1, 7):
                keyspace = Keyspace(file, revision)
                for within in RANGES:
                    if within.end is not None and within.start > within.end:
                        assert list(keyspace.live(within)) == []
                        continue
                    read = [entry.record for entry in keyspace.live(within)]
                    assert read == ranged(client, within, revision), (revision, within)


def test_a_compacted_and_a_future_revision_are_refused_where_etcd_refuses_them(etcd, etcd_line, tmp_path):
    member = etcd.start(etcd_line)
    with EtcdClient([member.endpoint]) as client:
        last = write_at_random(client, 20, random.Random(SEED))
        client.compact(last - 5, physical=True)
        with BoltFile(snapshot_of(client, tmp_path / "db")) as file:
            Keyspace(file, last - 5)
            client.range(*ALL_KEYS, revision=last - 5)
            with pytest.raises(CompactedError, match=f"revision {last - 6} was compacted away"):
                Keyspace(file, last - 6)
            with pytest.raises(CompactedError):
                client.range(*ALL_KEYS, revision=last - 6)
            with pytest.raises(UsageError, match=f"the last one here is {last}"):
                Keyspace(file, last + 1)
            with pytest.raises(EtcdError, match="future revision"):
                client.range(*ALL_KEYS, revision=last + 1)


def test_the_history_of_a_key_is_what_a_watch_from_the_compaction_tells(etcd, etcd_line, tmp_path):
    rng = random.Random(SEED + 1)
    member = etcd.start(etcd_line)
    key = b"/registry/pods/ns1/pod-1"
    with EtcdClient([member.endpoint]) as client:
        middle = write_at_random(client, 120, rng)
        client.put(key, b"before")
        compacted = client.put(b"other", b"").revision
        client.compact(compacted, physical=True)
        client.delete(key)
        client.put(key, b"after")
        last = write_at_random(client, 150, rng)
        told = []
        with closing(client.watch(compacted + 1, key, key + b"\0")) as watch:
            client.put(key, b"end")
            for batch in watch:
                told += [Version(as_record(event.kv), event.type == 1) for event in batch.events]
                if told and told[-1].record.value == b"end":
                    break
        with BoltFile(snapshot_of(client, tmp_path / "db")) as file:
            found = list(Keyspace(file).history(key))
            assert found[0].record.value == b"before"
            assert middle < found[0].record.mod_revision < compacted
            assert found[1:] == told
            assert list(Keyspace(file, last).history(key)) == found[:-1]
            assert list(Keyspace(file).history(b"/registry/pods/ns1/pod-")) == []


def test_a_key_deleted_before_the_compaction_has_no_history(etcd, tmp_path):
    member = etcd.start("3.6")
    with EtcdClient([member.endpoint]) as client:
        client.put(b"gone", b"1")
        client.delete(b"gone")
        client.compact(client.put(b"other", b"").revision, physical=True)
        with BoltFile(snapshot_of(client, tmp_path / "db")) as file:
            assert list(Keyspace(file).history(b"gone")) == []
            assert Keyspace(file).get(b"gone") is None


def test_an_empty_store_has_no_keys_at_its_first_revision(etcd, tmp_path):
    member = etcd.start("3.7")
    with EtcdClient([member.endpoint]) as client, BoltFile(snapshot_of(client, tmp_path / "db")) as file:
        assert Keyspace(file).revision == 1
        assert list(Keyspace(file).live()) == []


@pytest.mark.parametrize("size", [(1 << 24) - 60, (1 << 24) + 5])
def test_a_value_of_any_size_is_read_whole(etcd, tmp_path, size):
    member = etcd.start("3.5", flags=["--max-request-bytes", str(1 << 26)])
    with EtcdClient([member.endpoint]) as client:
        client.put(b"large", b"v" * size)
        client.put(b"small", b"s")
        with BoltFile(snapshot_of(client, tmp_path / "db")) as file:
            assert [(e.key, len(e.record.value)) for e in Keyspace(file).live()] == [
                (b"large", size),
                (b"small", 1),
            ]


@given(st.binary(max_size=5), st.binary(max_size=5))
def test_a_prefix_holds_the_keys_that_begin_with_it(prefix, key):
    assert (key in KeyRange.prefix(prefix)) == key.startswith(prefix)
    assert prefix + key in KeyRange.prefix(prefix)


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.booleans(), st.binary(max_size=3), st.integers(0, 2)), max_size=60
    ),
    st.data(),
)
def test_any_history_reads_as_replaying_it_does(tmp_path_factory, changes, data):
    """Against a model, with keys on both sides of every width that the scan filters by."""
    names = [b"k" * n + b"\xfe" * (n % 3) for n in (1, 6, 7, 8, 9, 16, 64, 65, 127, 128)]
    rows, states, now = {}, [{}], {}
    main, sub = 1, 0
    for number, is_put, value, step in changes:
        main, sub = (main + step, 0) if step or main == 1 else (main, sub + 1)
        main = max(main, 2)
        key = names[number]
        if not is_put and key not in now:
            continue
        now = dict(now)
        row = main.to_bytes(8, "big") + b"_" + sub.to_bytes(8, "big")
        if is_put:
            old = now.get(key)
            now[key] = KeyValue(
                key, old.create_revision if old else main, main, (old.version if old else 0) + 1, value
            )
            rows[row] = record.encode(now[key])
        else:
            del now[key]
            rows[row + b"t"] = record.encode(KeyValue(key))
        states += [states[-1]] * (main + 1 - len(states))
        states[main] = now
    path = tmp_path_factory.mktemp("file") / "db"
    with BoltFile(write_database(path, {b"key": rows})) as file:
        revision = data.draw(st.integers(1, max(len(states) - 1, 1)))
        state = states[revision] if revision < len(states) else {}
        keyspace = Keyspace(file, min(revision, Keyspace(file).revision))
        wanted = data.draw(
            st.sampled_from([KeyRange(), *map(KeyRange.prefix, names), *map(KeyRange.single, names)])
        )
        assert [e.record for e in keyspace.live(wanted)] == [
            state[key] for key in sorted(state) if key in wanted
        ]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The bytes of a file with puts, a deletion, a long key and a compaction, on a leaf page of their own."""
    changes = [(b"a", b"1"), (b"b" * 200, b"2" * 900), (b"a", None), (b"c", b"3"), (b"a", b"4")]
    rows = {}
    for revision, (key, value) in enumerate(changes, 2):
        kv = KeyValue(key) if value is None else KeyValue(key, revision, revision, 1, value)
        rows[encode_row_key(revision, tombstone=value is None)] = record.encode(kv)
    meta = {b"finishedCompactRev": encode_row_key(3)}
    path = tmp_path_factory.mktemp("small") / "db"
    return write_database(path, {b"key": rows, b"meta": meta}).read_bytes()


@given(st.data())
def test_a_damaged_file_reads_or_says_what_is_wrong(small, tmp_path_factory, data):
    raw = bytearray(small)
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("damaged") / "db"
    path.write_bytes(raw)
    try:
        with BoltFile(path) as file:
            keyspace = Keyspace(file)
            for within in (KeyRange(), KeyRange.prefix(b"b" * 150)):
                assert all(entry.record is not None for entry in keyspace.live(within))
            assert all(version.record is not None for version in keyspace.history(b"a"))
    except FormatError:
        return
