"""Whatever is wrong with a database file, each reader gives a result or says what is wrong.

Never another exception, never an endless walk, never memory without bound.
"""

from __future__ import annotations

import contextlib
import resource
import shutil
import signal
from pathlib import Path

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from rootcellar.backup.catalogue import names
from rootcellar.backup.objects import codecs
from rootcellar.backup.restore import membership
from rootcellar.backup.restore.database import Applied
from rootcellar.bolt.append import Transaction
from rootcellar.bolt.check import check
from rootcellar.bolt.file import BoltFile
from rootcellar.errors import BoltError, RootcellarError
from rootcellar.mvcc.hashkv import hash_kv
from rootcellar.mvcc.membership import parse_members
from rootcellar.mvcc.meta import StoreMeta, leases
from rootcellar.mvcc.probe import SnapshotProbe
from rootcellar.mvcc.record import KeyValue, encode
from rootcellar.mvcc.revision import KEY_BUCKET, encode_row_key
from rootcellar.mvcc.rows import KeyRows
from rootcellar.mvcc.supersede import drop_rows
from rootcellar.mvcc.truncate import truncate_after
from tests.backup.ebr_data import EBR
from tests.bolt.damage import changes, damaged
from tests.mvcc.databases import PAGE, write_database

SECONDS = 10
"""Of CPU time, for all readers of one file of some 60 KiB together: a sound one takes some 20 ms."""
ROOM = 512 << 20
"""Bytes of address space that one example may take beyond what the process has."""


def ebr_full(name):
    (path,) = (EBR / name).glob("store/*/*/v2/Full-*")
    payload = codecs.decompress([path.read_bytes()], names.parse(f"v2/{path.name}").suffix)
    return b"".join(codecs.HashTail(payload))


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A directory of sound files with 4 KiB pages, one of them with many and two levels of branches."""
    directory = tmp_path_factory.mktemp("sound")
    for number, name in enumerate(("gzip-3.4", "zlib-leases-3.5", "none-compacted-3.5")):
        (directory / str(number)).write_bytes(ebr_full(name))
    rows = {
        encode_row_key(revision): encode(KeyValue(b"key-%d" % (revision % 50), 2, revision, 1, b"value" * 20))
        for revision in range(2, 2000)
    }
    write_database(directory / "3", {KEY_BUCKET: rows, b"meta": {}, b"lease": {}})
    return directory


@contextlib.contextmanager
def bounded():
    """Little memory and little CPU time for what is inside."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)

    def late(_number, _frame):
        raise TimeoutError(f"more than {SECONDS} s of CPU time")

    handler = signal.signal(signal.SIGVTALRM, late)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (size + ROOM, before[1]))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)


def walk(file):
    for bucket in _buckets(file.root(), 0):
        for key, value in bucket.items():
            assert len(key) + len(value) <= file.size
        bucket.last()
        bucket.get(b"term")
        for _ in bucket.items(b"\x00" * 7 + b"\x20_"):
            break


def _buckets(bucket, depth):
    yield bucket
    if depth < 5:
        for _, inner in bucket.buckets():
            yield from _buckets(inner, depth + 1)


def rows_of(file):
    for batch in KeyRows(file):
        batch.user_keys()
    KeyRows(file).any_key_begins(b"/registry/")


def hashes(file):
    last = StoreMeta.read(file).revision
    hash_kv(file)
    hash_kv(file, last - 20, compact_revision=last - 30)


READERS = [walk, check, StoreMeta.read, leases, rows_of, hashes]


def drop(transaction):
    drop_rows(transaction, {b"key-1", b"key-2"}, 90)


def truncate(transaction):
    truncate_after(transaction, 100)


def append(transaction):
    edge = transaction.edge(KEY_BUCKET)
    edge.append([encode_row_key(1 << 60, sub) for sub in range(500)], [bytes(90)] * 500)


def stamp(transaction):
    members = parse_members(["a=http://localhost:2380"], token="t")
    membership.stamp(transaction, members, Applied(100, 90, leases={1, 2}), {})


WRITERS = [drop, truncate, append, stamp]


def attempt(action, *arguments):
    with contextlib.suppress(RootcellarError):
        action(*arguments)


def read(path):
    try:
        file = BoltFile(path)
    except BoltError:
        return
    with file:
        for reader in READERS:
            note(reader.__name__)
            attempt(reader, file)


def write(path, writer):
    copy = path.with_name("copy")
    shutil.copyfile(path, copy)

    def run():
        with Transaction(copy) as transaction:
            writer(transaction)
            transaction.commit(both_metas=True)

    note(writer.__name__)
    attempt(run)
    copy.unlink()


def probe(data, size):
    def run():
        probe = SnapshotProbe()
        for at in range(0, len(data), size):
            probe.feed(data[at : at + size])
        probe.result()

    note("probe")
    attempt(run)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("damaged")


@given(which=st.integers(0, 3), made=changes, chunk=st.sampled_from([1000, 4096, 70_000, 1 << 20]))
def test_every_reader_and_writer_copes_with_a_damaged_file(sound, directory, which, made, chunk):
    data = damaged((sound / str(which)).read_bytes(), PAGE, made)
    path = directory / "db"
    path.write_bytes(data)

    with bounded():
        read(path)
        probe(data, chunk)
        for writer in WRITERS:
            write(path, writer)
        note("bump_revision")
        attempt(membership.bump_revision, path, 1000)
