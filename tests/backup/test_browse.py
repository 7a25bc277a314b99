import json
import shutil

import pytest

from rootcellar.backup.browse import browse
from rootcellar.backup.browse.browse import opened, opened_twice
from rootcellar.backup.browse.difference import difference
from rootcellar.backup.browse.live import LiveKeyspace
from rootcellar.backup.capture.capture import capture
from rootcellar.backup.catalogue.chain import AtRevision, AtTime, Latest
from rootcellar.backup.imports.unwrapped import Stored
from rootcellar.backup.imports.wrappings import is_wrapping
from rootcellar.errors import (
    ChainError,
    CompactedError,
    DamagedObjectError,
    NothingToRestoreError,
    TargetError,
    UsageError,
)
from rootcellar.etcd.client import EtcdClient
from rootcellar.mvcc.hashkv import hash_kv
from rootcellar.mvcc.history import KeyRange, Keyspace
from rootcellar.stores.file import FileStore
from tests.backup.ebr_data import EBR, EBR_NAMES, EBR_PREFIX
from tests.mvcc.databases import as_record, snapshot_of


def test_every_revision_of_ebrs_backups_opens_with_the_history_it_had(ebr_backup, tmp_path):
    for revision, expected in ebr_backup.expected["hashkv"].items():
        with opened(ebr_backup.store, AtRevision(int(revision)), scratch=tmp_path) as backup:
            assert backup.revision == int(revision)
            if expected != "compacted":  # that is: at the source, when its answers were noted
                compacted = expected["compact_revision"]
                found = hash_kv(backup.file, int(revision), compact_revision=compacted)
                assert found.hash == expected["hash"]
    assert not list(tmp_path.glob("rootcellar-*"))


def test_the_latest_keys_of_ebrs_backups_are_those_that_were_live(ebr_backup):
    with opened(ebr_backup.store) as backup:
        assert len(list(browse.keys(backup))) == ebr_backup.expected["keys"]
        assert backup.revision == ebr_backup.expected["last_revision"]
        assert len(backup.objects) == 5


def test_a_revision_in_the_full_is_read_from_the_full_alone(ebr_backup):
    first = ebr_backup.expected["full_revision"]
    with opened(ebr_backup.store, AtRevision(first)) as backup:
        assert len(backup.objects) == 1
        assert backup.revision == first


def test_a_revision_below_the_full_is_read_from_its_history(tmp_path):
    store = FileStore(EBR / "gzip-3.5" / "store" / EBR_PREFIX)
    with opened(store, AtRevision(60)) as backup:
        assert backup.revision == 60
        assert all(found.record.mod_revision <= 60 for found in browse.keys(backup))


def test_a_moment_opens_what_had_been_received_by_then(ebr_backup):
    name = min((ebr_backup.root / "v2").glob("Incr-*")).name
    created = int(name.split("-")[3].split(".")[0])
    with opened(ebr_backup.store, AtTime((created + 1) * 10**9)) as backup:
        assert backup.revision >= int(name.split("-")[2])


def test_what_no_chain_holds_is_refused_with_what_could_be_read(ebr_backup):
    last = ebr_backup.expected["last_revision"]
    with pytest.raises(ChainError, match="was not captured"), opened(ebr_backup.store, AtRevision(last + 1)):
        pass
    with pytest.raises(NothingToRestoreError), opened(FileStore(ebr_backup.root / "nothing")):
        pass


def test_a_revision_that_the_full_had_compacted_away_is_refused():
    store = FileStore(EBR / "none-compacted-3.5" / "store" / EBR_PREFIX)
    with pytest.raises(CompactedError, match="was compacted away"), opened(store, AtRevision(2)):
        pass


def test_a_damaged_delta_is_named_and_can_be_done_without(ebr_backup, tmp_path):
    path = max((ebr_backup.root / "v2").glob("Incr-*"))
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    with pytest.raises(DamagedObjectError, match=path.name), opened(ebr_backup.store, scratch=tmp_path):
        pass
    assert not list(tmp_path.glob("rootcellar-*"))
    before = int(path.name.split("-")[1]) - 1
    with opened(ebr_backup.store, AtRevision(before), exclude={f"v2/{path.name}"}) as backup:
        assert backup.revision == before


def test_one_key_is_read_with_its_history(etcd, tmp_path):
    member = etcd.start("3.6")
    with EtcdClient([member.endpoint]) as client:
        client.put(b"/registry/x", b"1")
        client.put(b"/registry/x", b"2")
        (live,) = client.range(b"/registry/x").kvs
        with opened(snapshot_of(client, tmp_path / "snapshot.db")) as backup:
            assert browse.get(backup, b"/registry/x").record == as_record(live)
            assert browse.get(backup, b"/registry/") is None
            assert [v.record.value for v in browse.history(backup, b"/registry/x")] == [b"1", b"2"]


def test_keys_name_what_kubernetes_stored_and_stop_at_the_limit(etcd, tmp_path):
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "d"}}
    member = etcd.start("3.5")
    with EtcdClient([member.endpoint]) as client:
        client.put(b"/registry/pods/d/p", json.dumps(pod).encode())
        client.put(b"/registry/pods/d/q", b"k8s:enc:aescbc:v1:key1:\x00")
        client.put(b"/registry/pods/d/r", b"plain")
        with opened(snapshot_of(client, tmp_path / "db")) as backup:
            within = KeyRange.prefix(b"/registry/")
            told = [str(found.kubernetes) for found in browse.keys(backup, within)]
            assert told == ["v1 Pod d/p", "encrypted by aescbc with key key1", "None"]
            assert [found.record.key for found in browse.keys(backup, within, limit=1)] == [
                b"/registry/pods/d/p"
            ]


def test_the_data_directory_of_a_stopped_etcd_opens_where_it_lies_and_a_running_ones_does_not(etcd, tmp_path):
    member = etcd.start("3.6")
    with EtcdClient([member.endpoint]) as client:
        client.put(b"a", b"1")
        with pytest.raises(TargetError, match="an etcd is running"), opened(member.data_dir):
            pass
    member.stop()
    for path in (member.data_dir, member.data_dir / "member", member.data_dir / "member" / "snap" / "db"):
        with opened(path) as backup:
            assert [found.record.key for found in browse.keys(backup)] == [b"a"]
    with opened(member.data_dir) as backup:
        assert backup.file.path == member.data_dir / "member" / "snap" / "db"
        assert "log alone" in backup.warnings[0]


def test_a_snapshot_somebody_uploaded_is_read_from_its_store(store, ebr_backup, tmp_path):
    name = next((ebr_backup.root / "v2").glob("Full-*")).name
    store.put(f"uploads/{name}", [(ebr_backup.root / "v2" / name).read_bytes()])
    with opened(Stored(store, f"uploads/{name}"), scratch=tmp_path) as backup:
        assert backup.revision == ebr_backup.expected["full_revision"]
        assert backup.warnings == ()
    assert not list(tmp_path.glob("rootcellar-*"))


def test_a_single_file_knows_no_times_and_a_delta_is_no_backup(ebr_backup):
    full = next((ebr_backup.root / "v2").glob("Full-*"))
    with pytest.raises(UsageError, match="knows no times"), opened(full, AtTime(0)):
        pass
    delta = next((ebr_backup.root / "v2").glob("Incr-*"))
    with pytest.raises(UsageError, match="is a delta"), opened(delta):
        pass


@pytest.mark.parametrize("name", EBR_NAMES)
def test_two_points_of_a_chain_share_one_file_where_it_holds_both(name, tmp_path):
    store = FileStore(EBR / name / "store" / EBR_PREFIX)
    expected = json.loads((EBR / name / "expected.json").read_text())
    first = expected["full_revision"] + 3
    with opened_twice(store, AtRevision(first), Latest()) as (one, two):
        assert one.file is two.file
        assert (one.revision, two.revision) == (first, expected["last_revision"])
    with opened_twice(store, Latest(), AtRevision(first)) as (one, two):
        assert one.file is not two.file
        assert (one.revision, two.revision) == (expected["last_revision"], first)


def test_a_directory_is_a_backup_or_a_store(tmp_path):
    (tmp_path / "a.db").touch()
    assert not is_wrapping(tmp_path)
    snap = tmp_path / "data" / "member" / "snap"
    snap.mkdir(parents=True)
    (snap / "db").touch()
    assert is_wrapping(tmp_path / "data")
    (tmp_path / "kops").mkdir()
    shutil.copy(tmp_path / "a.db", tmp_path / "kops" / "etcd.backup.gz")
    assert is_wrapping(tmp_path / "kops")


def test_a_scratch_directory_that_is_not_there_is_told(ebr_backup, tmp_path):
    with (
        pytest.raises(TargetError, match="No such file"),
        opened(ebr_backup.store, scratch=tmp_path / "none"),
    ):
        pass


def test_a_rebuilt_history_reads_at_every_revision_between():
    store = FileStore(EBR / "gzip-3.5" / "store" / EBR_PREFIX)
    with opened(store) as backup:
        counts = [sum(1 for _ in Keyspace(backup.file, revision).live()) for revision in (1, 127, 294)]
        assert counts[0] == 0
        assert counts[-1] == 307


def test_a_chain_of_our_own_opens_as_it_was_and_knows_the_leases_of_its_deltas(etcd, etcd_line, store):
    member = etcd.start(etcd_line)
    with EtcdClient([member.endpoint]) as client:
        for number in range(20):
            client.put(b"k%d" % number, b"1", lease=client.lease_grant(500) if number == 0 else 0)
        capture(client, store, full=True, writer="test")
        lease = client.lease_grant(700)
        client.put(b"k1", b"2", lease=lease)
        client.delete(b"k2")
        between = client.header().revision
        client.put(b"k3", b"3")
        capture(client, store, full=False, writer="test")
        with opened(store) as backup:
            assert len(backup.objects) == 2
            live = LiveKeyspace(client)
            assert [f.record for f in browse.keys(backup)] == [each.record for each in live.live()]
            assert list(difference(backup.keyspace, live, rewritten=True)) == []
            assert backup.lease_ttls[lease] == 700
            assert sorted(backup.lease_ttls.values()) == [500, 700]
        with opened(store, AtRevision(between)) as backup:
            then = LiveKeyspace(client, between)
            assert list(difference(backup.keyspace, then, rewritten=True)) == []
