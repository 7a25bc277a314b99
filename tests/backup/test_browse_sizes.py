import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootcellar.backup.browse import sizes as module
from rootcellar.backup.browse.browse import opened
from rootcellar.backup.browse.sizes import Size, sizes
from rootcellar.bolt.file import BoltFile
from rootcellar.mvcc import record
from rootcellar.mvcc.history import Keyspace
from rootcellar.mvcc.record import KeyValue
from rootcellar.mvcc.revision import encode_row_key
from tests.mvcc.databases import write_database

ROW_KEY = 17


@pytest.fixture
def keyspace(tmp_path):
    """Makes a keyspace of puts (key, value) and deletions (key, None)."""

    def make(*changes, at=None):
        rows = {}
        for revision, (key, value) in enumerate(changes, 2):
            kv = KeyValue(key) if value is None else KeyValue(key, 2, revision, 1, value)
            rows[encode_row_key(revision, tombstone=value is None)] = record.encode(kv)
        file = BoltFile(write_database(tmp_path / "db", {b"key": rows}))
        files.append(file)
        return Keyspace(file, at)

    files = []
    yield make
    for file in files:
        file.close()


def test_live_bytes_and_history_are_counted_apart(keyspace):
    space = keyspace(
        (b"/registry/pods/a/x", b"first"),
        (b"/registry/pods/a/x", b"second"),
        (b"/registry/pods/b/y", b"1"),
        (b"/registry/pods/b/y", None),
        (b"/registry/nodes/n", b"123"),
        (b"compact_rev_key", b"9"),
    )
    x1, x2 = (
        KeyValue(b"/registry/pods/a/x", 2, at, 1, value) for at, value in ((2, b"first"), (3, b"second"))
    )
    y, gone = KeyValue(b"/registry/pods/b/y", 2, 4, 1, b"1"), KeyValue(b"/registry/pods/b/y")
    history = sum(len(record.encode(kv)) + ROW_KEY for kv in (x1, y, gone)) + 1
    found = sizes(space)
    assert found[0] == Size(b"/registry/pods/", 1, len(record.encode(x2)) + ROW_KEY, 3, history)
    assert [(size.prefix, size.live_keys, size.history_rows) for size in found[1:]] == [
        (b"/registry/nodes/", 1, 0),
        (b"compact_rev_key", 1, 0),
    ]


def test_depth_counts_segments_below_the_prefix(keyspace):
    names = (b"/registry/pods/a/x", b"/registry/pods/b/y", b"/registry/podsecurity/z")
    space = keyspace(*((name, b"") for name in names))
    assert [size.prefix for size in sizes(space, depth=1)] == [b"/registry/"]
    below = sizes(space, b"/registry/pods/", depth=1)
    assert [size.prefix for size in below] == [b"/registry/pods/a/", b"/registry/pods/b/"]
    assert {size.prefix for size in sizes(space, depth=9)} == set(names)


def test_another_separator_may_be_longer(keyspace):
    space = keyspace((b"a::b::c", b""), (b"a::b::d", b""), (b"a:b", b""))
    assert {size.prefix: size.live_keys for size in sizes(space, depth=1, separator=b"::")} == {
        b"a::": 2,
        b"a:b": 1,
    }


def test_an_earlier_revision_has_the_sizes_of_then(keyspace):
    changes = ((b"a", b"1"), (b"a", b"2"), (b"a", None))
    assert [(size.live_keys, size.history_rows) for size in sizes(keyspace(*changes))] == [(0, 3)]
    assert [(size.live_keys, size.history_rows) for size in sizes(keyspace(*changes, at=3))] == [(1, 1)]


def test_prefixes_beyond_the_limit_are_counted_together(keyspace, monkeypatch):
    monkeypatch.setattr(module, "MOST_GROUPS", 2)
    space = keyspace(*((b"k%d" % number, b"v") for number in range(5)), (b"k0", b"v"))
    found = {size.prefix: (size.live_keys, size.history_rows) for size in sizes(space)}
    assert found == {b"k0": (1, 1), b"k1": (1, 0), None: (3, 0)}


def test_the_sizes_of_a_backup_add_up_to_its_rows(ebr_backup):
    with opened(ebr_backup.store) as backup:
        found = sizes(backup.keyspace, depth=1)
        assert sum(size.live_keys for size in found) == ebr_backup.expected["keys"]
        rows = sum(len(key) + len(value) for key, value in backup.file.bucket(b"key").items())
        assert sum(size.total_bytes for size in found) == rows


@given(st.lists(st.tuples(st.sampled_from([b"/a/b", b"/a/c", b"d", b"/"]), st.booleans()), max_size=20))
def test_any_sequence_of_changes_adds_up(tmp_path_factory, changes):
    rows, live = {}, {}
    for revision, (key, is_put) in enumerate(changes, 2):
        kv = KeyValue(key, 2, revision, 1, b"v" * revision) if is_put else KeyValue(key)
        rows[encode_row_key(revision, tombstone=not is_put)] = record.encode(kv)
        live.pop(key, None)
        if is_put:
            live[key] = len(record.encode(kv)) + ROW_KEY
    path = write_database(tmp_path_factory.mktemp("sizes") / "db", {b"key": rows})
    with BoltFile(path) as file:
        found = sizes(Keyspace(file), depth=1)
    assert sum(size.live_bytes for size in found) == sum(live.values())
    assert sum(size.live_keys for size in found) == len(live)
    assert sum(size.total_bytes for size in found) == sum(len(k) + len(v) for k, v in rows.items())
    assert sum(size.live_keys + size.history_rows for size in found) == len(rows)
