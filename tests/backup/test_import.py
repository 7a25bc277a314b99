import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rootcellar.backup.browse import browse
from rootcellar.backup.browse.browse import opened
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.names import GZIP, NONE, ZLIB
from rootcellar.backup.catalogue.timeline import bind_marker
from rootcellar.backup.imports.imports import IMPORTED, import_backup
from rootcellar.backup.imports.unwrapped import Stored
from rootcellar.backup.objects.codecs import decompress
from rootcellar.bolt.check import check
from rootcellar.bolt.file import BoltFile
from rootcellar.bolt.layout import Meta
from rootcellar.errors import DamagedObjectError, IdentityError, NotFoundError
from rootcellar.etcd.client import EtcdClient
from rootcellar.mvcc.hashkv import hash_kv
from rootcellar.stores.file import FileStore
from testbed.etcd import Etcds
from tests.backup.ebr_rules import check_prefix
from tests.backup.plans import restore_members
from tests.backup.wrapped import FORMS, HASHED, K3S_SECONDS, KOPS_SECONDS, TAIL
from tests.mvcc.databases import snapshot_of

BY = "test"


@dataclass(frozen=True)
class Source:
    """A stopped etcd and the snapshot that was taken just before."""

    member: object
    raw: bytes
    revision: int
    hash: int
    compact_revision: int


def stopped_etcd(etcds, top, line="3.6"):
    member = etcds.start(line)
    with EtcdClient([member.endpoint]) as client:
        for number in range(300):
            client.put(b"/registry/k%d" % (number % 40), b"v%d" % number * 30)
        client.compact(200, physical=True)
        client.delete(b"/registry/k7")
        answer = client.hash_kv()
        raw = snapshot_of(client, top / "taken").read_bytes()
    member.stop()
    return Source(member, raw, answer.revision, answer.hash, answer.compact_revision)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    top = tmp_path_factory.mktemp("source")
    with Etcds(top / "etcd") as etcds:
        yield stopped_etcd(etcds, top)


def imported(source, form, top, store, **options):
    (top / "from").mkdir(exist_ok=True)
    return import_backup(FORMS[form](source, top / "from"), store, by=BY, **options)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_becomes_a_full_that_ebr_and_rootcellar_read(source, form, tmp_path, store):
    found = imported(source, form, tmp_path, store)
    assert not found.repeated
    assert check_prefix(store) == []
    (full,) = read_catalogue(store).snapshots
    assert full.record == found.record
    assert (full.last, full.record.compact_revision) == (source.revision, 200)
    with opened(store, scratch=tmp_path) as backup:
        answer = hash_kv(backup.file)
        assert (answer.hash, answer.revision) == (source.hash, source.revision)
        check(backup.file)
    codes = {notice.code for notice in found.record.warnings}
    assert IMPORTED in codes
    assert ("no-hash" in codes) == (form not in HASHED | {"data-dir"})
    assert not list(tmp_path.glob("rootcellar-*"))


@pytest.mark.parametrize("form", FORMS)
def test_every_form_can_be_looked_into_where_it_lies(source, form, tmp_path):
    path = Path(FORMS[form](source, tmp_path))
    before = sorted(tmp_path.rglob("*"))
    with opened(path) as backup:
        assert hash_kv(backup.file).hash == source.hash
        assert browse.get(backup, b"/registry/k8").record.value == b"v288" * 30
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("suffix", [NONE, GZIP, ZLIB])
def test_a_snapshot_with_its_hash_is_kept_byte_for_byte(source, suffix, tmp_path, store):
    record = imported(source, "k3s-zip", tmp_path, store, suffix=suffix).record
    assert b"".join(decompress(store.get(record.key), suffix)) == source.raw
    assert record.payload_sha256 == source.raw[-TAIL:].hex()
    assert record.stored_sha256 == hashlib.sha256(b"".join(store.get(record.key))).hexdigest()


def test_a_copied_file_gets_one_state_in_both_meta_pages_and_a_hash(source, tmp_path, store):
    record = imported(source, "copied-db", tmp_path, store).record
    payload = b"".join(decompress(store.get(record.key), GZIP))
    database, tail = payload[:-TAIL], payload[-TAIL:]
    assert tail == hashlib.sha256(database).digest()
    first, second = Meta.parse(database[:4096]), Meta.parse(database[4096:8192])
    assert (first.root, first.high_water) == (second.root, second.high_water)
    assert abs(first.txid - second.txid) == 1
    assert len(database) == first.high_water * first.page_size


def test_an_import_restores_under_its_own_etcd(etcd, etcd_line, tmp_path, store):
    source = stopped_etcd(etcd, tmp_path, etcd_line)
    imported(source, "k3s-zip", tmp_path, store)
    (member,) = etcd.make_cluster(etcd_line, 1)
    restore_members([member], store)
    member.start()
    assert member.hash_kv(source.revision).hash == source.hash


def test_the_time_is_what_the_name_or_the_notes_say_or_what_it_is_told(source, tmp_path):
    def taken(form, number, **options):
        return imported(source, form, tmp_path, FileStore(tmp_path / f"s{number}"), **options).record

    assert taken("k3s-zip", 1).captured_at == datetime.fromtimestamp(K3S_SECONDS, UTC)
    kops = taken("kops", 2)
    assert kops.captured_at == datetime.fromtimestamp(KOPS_SECONDS, UTC)
    assert kops.etcd_version == "3.5.9"
    assert taken("openshift", 3).captured_at == datetime(2026, 6, 30, 12, tzinfo=UTC)
    told = datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)
    record = taken("bare", 4, taken_at=told)
    assert record.captured_at == told
    assert record.name.created == int(told.timestamp())


def test_the_same_database_is_imported_once_and_others_beside_it(source, tmp_path, store):
    first = imported(source, "k3s-zip", tmp_path, store)
    again = imported(source, "snapshot", tmp_path, store)
    assert (again.repeated, again.record) == (True, first.record)
    other = imported(source, "copied-db", tmp_path, store, taken_at=first.record.captured_at)
    assert not other.repeated
    assert other.record.name.created == first.record.name.created + 1
    assert len(read_catalogue(store).snapshots) == 2


def test_a_prefix_with_backups_of_a_cluster_is_refused(source, tmp_path, ebr_backup):
    with pytest.raises(IdentityError, match="is in use: v2/") as caught:
        imported(source, "snapshot", tmp_path, ebr_backup.store)
    assert "prefix of its own" in caught.value.hint


def test_a_prefix_that_a_cluster_marked_is_refused(source, tmp_path, store):
    bind_marker(store, "cafe", writer="agent", now=datetime.now(UTC))
    with pytest.raises(IdentityError, match="cluster cafe"):
        imported(source, "snapshot", tmp_path, store)


def test_an_import_killed_before_its_record_does_not_block_the_next(source, tmp_path, store):
    record = imported(source, "snapshot", tmp_path, store).record
    (path,) = (tmp_path / "store" / "catalogue" / "records").iterdir()
    path.unlink()
    # Told, as else it is the time of a file that is written anew.
    again = imported(source, "snapshot", tmp_path, store, taken_at=record.captured_at)
    assert not again.repeated
    assert again.record.name.created == record.name.created + 1


def test_a_snapshot_uploaded_to_another_store_is_imported_from_there(source, tmp_path, store):
    uploads = FileStore(tmp_path / "uploads")
    zipped = FORMS["k3s-zip"](source, tmp_path)
    uploads.put(f"k3s/{zipped.name}", [zipped.read_bytes()])
    record = import_backup(Stored(uploads, f"k3s/{zipped.name}"), store, by=BY, scratch=tmp_path).record
    assert record.captured_at == datetime.fromtimestamp(K3S_SECONDS, UTC)
    assert not list(tmp_path.glob("rootcellar-*"))
    with pytest.raises(NotFoundError):
        import_backup(Stored(uploads, "k3s/none.zip"), store, by=BY)


def test_a_database_whose_tree_is_damaged_is_not_imported(source, tmp_path, store):
    raw = bytearray(source.raw[:-TAIL])
    with BoltFile(FORMS["bare"](source, tmp_path)) as file:
        root = file.bucket(b"key").root
    raw[root * 4096 + 8] ^= 0xFF  # the page's flags
    path = tmp_path / "damaged.db"
    path.write_bytes(raw)
    with pytest.raises(DamagedObjectError, match=r"damaged\.db: .*page") as caught:
        import_backup(path, store, by=BY)
    assert "take another backup" in caught.value.hint
    assert list(store.list()) == []


def test_what_kubernetes_encrypted_is_said(etcd, tmp_path, store):
    member = etcd.start("3.6")
    with EtcdClient([member.endpoint]) as client:
        for number in range(40):
            client.put(b"/registry/secrets/a/%d" % number, b"k8s:enc:aescbc:v1:key1:" + bytes(60_000))
        path = snapshot_of(client, tmp_path / "taken")
    record = import_backup(path, store, by=BY).record
    assert "encrypted-at-rest" in {notice.code for notice in record.warnings}


def test_progress_counts_the_database_twice(source, tmp_path, store):
    seen = {"check": 0, "full": 0}

    def progress(phase, more):
        seen[phase] += more

    imported(source, "snapshot", tmp_path, store, progress=progress)
    assert seen == dict.fromkeys(seen, len(source.raw) - TAIL)
