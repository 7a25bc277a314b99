from __future__ import annotations

import gzip
import hashlib
import os
import subprocess
import sys
import zlib
from datetime import UTC, datetime

import pytest

from rootcellar.backup.capture.capture import capture
from rootcellar.backup.capture.full import CORRUPT_ALARM, LIVE_HASH_UNANSWERED, FullOptions
from rootcellar.backup.catalogue import keys, names
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.records import Caution
from rootcellar.bolt.file import BoltFile
from rootcellar.errors import EtcdDeniedError, EtcdError, EtcdUnavailableError
from rootcellar.etcd.answers import Alarm, AlarmKind
from rootcellar.etcd.client import EtcdClient
from rootcellar.mvcc.meta import StoreMeta
from rootcellar.stores.file import FileStore
from tests.backup import ebr_rules
from tests.backup.capture_scene import Between, Writers, a_scene
from tests.stores.places import SMALL_PART, s3_store

UNPACK = {names.GZIP: gzip.decompress, names.ZLIB: zlib.decompress, names.NONE: bytes}


@pytest.fixture
def scene(etcd, etcd_line, store):
    with a_scene(etcd, etcd_line, store) as scene:
        yield scene


@pytest.fixture
def newest(etcd, store):
    """For what does not depend on the version."""
    with a_scene(etcd, "3.7", store) as scene:
        yield scene


def published(store):
    return [info.key for prefix in ("v2/", keys.RECORDS) for info in store.list(prefix)]


def test_fulls_taken_while_writers_go_on_are_the_database_at_their_real_revision(scene, tmp_path):
    records = []
    with Writers([scene.member.endpoint]) as writers:
        for _ in range(3):
            writers.more(150)
            records.append(scene.full())
    for record in records:
        payload = gzip.decompress(b"".join(scene.store.get(record.key)))
        path = tmp_path / "db"
        path.write_bytes(payload[:-32])
        with BoltFile(path) as file:
            assert StoreMeta.read(file).revision == record.last_revision
        assert record.name.last <= record.last_revision
        assert record.payload_size == len(payload) - 32
        assert record.payload_sha256 == hashlib.sha256(payload[:-32]).hexdigest()
    assert ebr_rules.check_prefix(scene.store) == []
    last = records[-1].last_revision
    scene.must_equal(scene.restored(), last, records[0].last_revision, last - 17)


def test_the_record_says_what_was_captured(scene):
    scene.write(30)
    scene.client.compact(11, physical=True)
    record = scene.full()
    stored = b"".join(scene.store.get(record.key))
    assert (record.stored_size, record.stored_sha256) == (len(stored), hashlib.sha256(stored).hexdigest())
    assert (record.kind, record.start, record.last_revision) == (names.Kind.FULL, 0, 31)
    assert record.compact_revision == 11
    header = scene.client.header()
    assert (record.cluster_id, record.member_id) == (f"{header.cluster_id:x}", f"{header.member_id:x}")
    assert record.etcd_version == scene.member.version
    assert record.auth_revision == 1
    assert record.last_change == scene.client.fingerprint(31)
    assert (record.hashkv, record.warnings, record.previous) == (None, (), None)
    assert read_catalogue(scene.store).snapshots[-1].record == record
    assert scene.full().previous == record.link


@pytest.mark.parametrize("suffix", UNPACK)
def test_every_compression_that_ebr_reads_is_written(newest, suffix):
    newest.write(30)
    record = newest.full(suffix=suffix, final=True)
    assert record.key.endswith(f"{suffix}.final")
    payload = UNPACK[suffix](b"".join(newest.store.get(record.key)))
    assert hashlib.sha256(payload[:-32]).digest() == payload[-32:]


def test_a_full_goes_to_s3_in_parts(newest, bucket):
    store = s3_store(bucket, "capture-full")
    for number in range(30):
        newest.client.put(b"%d" % number, os.urandom(1_000_000))
    record = newest.capture(full=True, store=store).full.record
    assert record.stored_size == store.stat(record.key).size > 4 * SMALL_PART
    newest.write(5)
    newest.capture(store=store)
    assert ebr_rules.check_prefix(store) == []
    newest.store = store
    newest.must_equal(newest.restored(), 36, 31)


MEASURED = """
import sys, threading
from pathlib import Path
from rootcellar.backup.capture.capture import capture
from rootcellar.etcd.client import EtcdClient
from rootcellar.stores.file import FileStore

def resident():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

peak, done = [0], threading.Event()

def watch():
    while not done.wait(0.01):
        peak.append(max(peak[-1], resident()))

watcher = threading.Thread(target=watch)
watcher.start()
try:
    with EtcdClient([sys.argv[1]]) as client:
        full = capture(client, FileStore(sys.argv[2]), full=True, writer="measured").full
finally:
    done.set()
    watcher.join()
print(peak[-1] // 1024, full.record.payload_size >> 20)
"""


def test_memory_does_not_grow_with_the_database(newest, tmp_path):
    for number in range(200):
        newest.client.put(b"%d" % number, os.urandom(1_000_000))
    said = subprocess.run(
        [sys.executable, "-c", MEASURED, newest.member.endpoint, tmp_path / "measured"],
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    peak, size = map(int, said.split())
    assert size > 190
    assert peak < 120, f"{peak} MiB for a database of {size} MiB"


def test_what_is_written_behind_the_name_is_in_the_record(newest):
    """H is read, then others write, then the stream begins."""
    newest.write(10)

    def late(client):
        newest.write(5)
        return client.snapshot()

    record = newest.capture(full=True, client=Between(newest.client, snapshot=late)).full.record
    assert (record.name.last, record.last_revision) == (11, 16)
    assert record.last_change == newest.client.fingerprint(16)


def test_fulls_of_one_revision_do_not_collide_and_ebr_takes_the_later(newest):
    newest.write(10)
    clock = datetime(2026, 7, 24, 9, 23, 23, tzinfo=UTC)
    records = [
        capture(newest.client, newest.store, full=True, writer="tests", clock=lambda: clock).full.record
        for _ in range(3)
    ]
    assert [record.name.created - records[0].name.created for record in records] == [0, 1, 2]
    assert ebr_rules.check_prefix(newest.store) == []


def test_a_member_that_lags_is_not_captured_below_the_name(etcd, etcd_line, store):
    members = etcd.start_cluster(etcd_line)
    endpoints = [member.endpoint for member in members]
    with EtcdClient(endpoints) as client, Writers(endpoints, threads=1) as writers:
        for endpoint in endpoints:
            writers.more(50)
            with EtcdClient([endpoint]) as one:
                record = capture(one, store, full=True, writer="tests").full.record
            assert record.name.last <= record.last_revision
            assert record.member_id == f"{client.member(endpoint).status().header.member_id:x}"


def test_a_learner_is_captured_once_it_has_caught_up(etcd, store):
    with a_scene(etcd, "3.6", store, flags=["--strict-reconfig-check=false"]) as scene:
        scene.write(200)
        learner = etcd.make("3.6", "learner", flags=["--initial-cluster-state=existing"])
        scene.client.member_add([learner.peer_url], learner=True)
        learner.initial_cluster = f"{scene.member.initial_cluster},learner={learner.peer_url}"
        learner.start_soon()
        with EtcdClient([learner.endpoint, scene.member.endpoint]) as client:
            while not _is_learner(client.member(learner.endpoint)):
                assert learner.running
            record = capture(client, store, full=True, writer="tests").full.record
            assert record.member_id == f"{client.member(learner.endpoint).status().header.member_id:x}"
        assert record.last_revision == 201
        scene.must_equal(scene.restored(), 201)


def _is_learner(member):
    try:
        return member.status(timeout=5).is_learner
    except EtcdUnavailableError:
        return False


def test_an_endpoint_that_is_gone_is_passed_over(newest):
    newest.write(3)
    dead = newest.etcd.make("3.7", "dead").endpoint
    with EtcdClient([dead, newest.member.endpoint]) as client:
        assert newest.capture(full=True, client=client).full.record.last_revision == 4
    with EtcdClient([dead]) as client, pytest.raises(EtcdUnavailableError, match=dead):
        newest.capture(full=True, client=client)


def test_without_the_role_root_nothing_is_published_and_the_privilege_is_named(scene):
    scene.client.role_add("root")
    scene.client.role_add("reader", (b"\0", b"\0"))
    scene.client.user_add("root", "p", roles=["root"])
    scene.client.user_add("reader", "r", roles=["reader"])
    scene.client.auth_enable()
    with EtcdClient([scene.member.endpoint], user="reader", password="r") as client:
        with pytest.raises(EtcdDeniedError) as caught:
            scene.capture(full=True, client=client)
        assert caught.value.hint == "the user needs the role root"
    assert published(scene.store) == []
    with EtcdClient([scene.member.endpoint], user="root", password="p") as client:
        record = scene.capture(full=True, client=client).full.record
    assert record.auth_revision > 1


class Tampered:
    """A snapshot stream whose blocks pass through a function."""

    def __init__(self, stream, change):
        self._stream = stream
        self._change = change

    def __getattr__(self, name):
        return getattr(self._stream, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stream.close()

    def __iter__(self):
        return iter(self._change(list(self._stream)))


def flipped(blocks):
    block = bytearray(blocks[0])
    block[len(block) // 2] ^= 1
    return [bytes(block), *blocks[1:]]


def shortened(blocks):
    return [b"".join(blocks)[4096:]]


@pytest.mark.parametrize("change", [flipped, shortened])
def test_bytes_that_are_not_what_etcd_hashed_are_not_published(newest, change):
    newest.write(500, value=bytes(3000))
    tampered = Between(newest.client, snapshot=lambda client: Tampered(client.snapshot(), change))
    with pytest.raises(EtcdError, match="sha256 is not that of the bytes that came") as caught:
        newest.capture(full=True, client=tampered)
    assert caught.value.hint
    assert published(newest.store) == []


def test_a_database_that_ends_below_what_its_member_answered_is_not_published(newest):
    newest.write(10)
    ahead = Between(newest.client, header=lambda client, **_: client.header()._replace(revision=99))
    with pytest.raises(EtcdError, match="ends at revision 11, and it had answered from revision 99"):
        newest.capture(full=True, client=ahead)
    assert published(newest.store) == []


def test_a_member_that_dies_while_it_streams_leaves_nothing(scene):
    scene.write(60, value=bytes(1_000_000))

    class Dying(Tampered):
        def __iter__(self):
            blocks = iter(self._stream)
            yield next(blocks)
            scene.member.kill()
            yield from blocks

    client = Between(scene.client, snapshot=lambda client: Dying(client.snapshot(), None))
    with pytest.raises(EtcdUnavailableError):
        scene.capture(full=True, client=client)
    assert published(scene.store) == []


def test_the_members_own_hash_is_recorded_when_wanted(scene):
    last = scene.write(30)
    scene.client.compact(9, physical=True)
    record = scene.full(live_hash=True)
    answer = scene.client.hash_kv(last)
    assert (record.hashkv.hash, record.hashkv.revision) == (answer.hash, last)
    assert record.hashkv.compact_revision == answer.compact_revision == 9


def test_a_hash_that_cannot_be_had_is_no_reason_to_fail(newest):
    newest.write(10)

    def compacting(client, revision):
        newest.write(5)
        newest.client.compact(newest.client.header().revision, physical=True)
        return client.hash_kv(revision)

    client = Between(newest.client, hash_kv=compacting)
    record = newest.capture(full=True, how=FullOptions(live_hash=True), client=client).full.record
    assert record.hashkv is None
    assert [notice.code for notice in record.warnings] == [LIVE_HASH_UNANSWERED]
    assert "compacted" in record.warnings[0].message


def test_values_that_kubernetes_encrypted_are_warned_of(newest):
    for number in range(3000):
        newest.client.put(b"/registry/secrets/s/%d" % number, b"k8s:enc:aescbc:v1:key1:" + bytes(1000))
    assert [notice.code for notice in newest.full().warnings] == [Caution.ENCRYPTED_AT_REST]


def test_a_prefix_that_ebr_cannot_see_is_warned_of(newest, tmp_path):
    newest.write(1)
    hidden = FileStore(tmp_path / "dev1" / "etcd-main")
    record = newest.capture(full=True, store=hidden).full.record
    assert [notice.code for notice in record.warnings] == [Caution.EBR_CANNOT_SEE]


def test_an_alarm_of_corruption_is_warned_of(newest):
    alarmed = Between(newest.client, alarms=lambda client: (Alarm(0xABC, AlarmKind.CORRUPT),))
    record = newest.capture(full=True, client=alarmed).full.record
    assert [notice.code for notice in record.warnings] == [CORRUPT_ALARM]
    assert "abc" in record.warnings[0].message
