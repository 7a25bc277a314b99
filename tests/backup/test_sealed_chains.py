"""Sealed chains of a real etcd, on files and on S3: written, restored, looked into, their keys changed."""

from __future__ import annotations

import itertools
import os
import re

import pytest

from rootcellar.backup.browse import browse
from rootcellar.backup.capture.full import FullOptions
from rootcellar.backup.capture.outcome import Need
from rootcellar.backup.catalogue import documents, keys, ledger, names
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.chain import AtRevision
from rootcellar.backup.catalogue.records import Check, Grant, Record, Result
from rootcellar.backup.objects import codecs
from rootcellar.backup.objects.sealing.grants import add_recipient, remove_recipient
from rootcellar.backup.objects.sealing.keyring import NO_KEYS, Keyring
from rootcellar.backup.objects.sealing.seal import decrypt, unlock
from rootcellar.backup.restore.restore import restore
from rootcellar.backup.verify import LEVELS, verify
from rootcellar.errors import ConfigError, DamagedObjectError, NoKeyError, UsageError
from tests.backup import ebr_rules
from tests.backup.builders import record
from tests.backup.capture_scene import a_scene
from tests.backup.killing import Killer
from tests.backup.plans import plan_of
from tests.backup.sealed_scene import FIRST, NOW, SECOND, STRANGER, grant_and_die
from tests.stores.places import s3_store

_prefixes = itertools.count(1)


def restore_into(data_dir, store, revision=None, *, keyring=NO_KEYS):
    plan = plan_of(store, revision)
    return restore(plan, store, {plan.members[0].name: data_dir}, keyring=keyring)


def ring(*identities):
    return Keyring(identities)


@pytest.fixture(params=["file", "s3"])
def anywhere(request, store):
    if request.param == "file":
        return store
    return s3_store(request.getfixturevalue("bucket"), f"sealed-{next(_prefixes)}")


@pytest.fixture
def scene(etcd, store):
    with a_scene(etcd, "3.6", store) as scene:
        yield scene


def seals(*identities, suffix=".zst.age"):
    """How a capture writes for these."""
    return {
        "how": FullOptions(suffix),
        "recipients": tuple(each.recipient for each in identities),
    }


def a_chain(scene, *identities, suffix=".zst.age", store=None):
    """A full and two deltas, sealed; the last revision."""
    scene.write(20, value=os.urandom(2000))
    scene.capture(full=True, store=store, **seals(*identities, suffix=suffix))
    for _ in range(2):
        last = scene.write(7)
        scene.capture(store=store, **seals(*identities, suffix=suffix))
    return last


def objects(store):
    return [info.key for info in store.list("sealed/")]


@pytest.mark.parametrize("suffix", [".zst.age", ".gz.age", ".age"])
def test_an_encrypted_chain_restores_to_what_etcd_had(etcd, anywhere, tmp_path, suffix):
    with a_scene(etcd, "3.6", anywhere) as scene:
        last = a_chain(scene, FIRST, suffix=suffix)
        assert [names.read(key).suffix for key in objects(anywhere)] == [suffix] * 3
        assert list(anywhere.list("v2/")) == []
        for revision in (last, last - 9):
            restored = restore_into(tmp_path / str(revision), anywhere, revision, keyring=ring(FIRST))
            assert restored.hashkv.hash == scene.member.hash_kv(revision).hash
        proof = verify(anywhere, plan_of(anywhere), LEVELS[4], by="tests", keyring=ring(FIRST))
        assert {each.result for each in proof.findings if each.check is not Check.COMPARED} == {Result.PASSED}
        with browse.opened(anywhere, AtRevision(last - 9), keyring=ring(FIRST)) as opened:
            assert len(list(browse.keys(opened))) == 10


def test_zstd_alone_is_sealed_and_needs_no_key(scene, tmp_path):
    last = a_chain(scene, suffix=".zst")
    assert all(key.endswith(".zst") for key in objects(scene.store))
    restored = restore_into(tmp_path / "data", scene.store)
    assert restored.hashkv.hash == scene.member.hash_kv(last).hash


@pytest.mark.parametrize("keyring", [NO_KEYS, ring(STRANGER)], ids=["no key", "wrong key"])
def test_without_the_right_key_nothing_is_written_or_downloaded(scene, tmp_path, keyring):
    a_chain(scene, FIRST, SECOND)
    full = objects(scene.store)[-1]
    assert names.read(full).kind is names.Kind.FULL
    read = Reads(scene.store)
    data = tmp_path / "data"
    with pytest.raises(NoKeyError) as told:
        restore_into(data, read, keyring=keyring)
    assert f"it needs one of {FIRST.key_id}, {SECOND.key_id}" in told.value.message
    assert full in told.value.message
    assert not (data / "member").exists()
    assert not (data / ".rootcellar-new").exists()
    assert read.most <= 4096
    with pytest.raises(NoKeyError):
        verify(scene.store, plan_of(scene.store), LEVELS[3], by="tests", keyring=keyring)
    with pytest.raises(NoKeyError), browse.opened(scene.store, keyring=keyring):
        pass


class Reads:
    """A store that notes the most that was read at once of a sealed object."""

    def __init__(self, store):
        self._store = store
        self.most = 0

    def __getattr__(self, name):
        return getattr(self._store, name)

    def get(self, key, **where):
        chunks = list(self._store.get(key, **where))
        if key.startswith("sealed/"):
            self.most = max(self.most, sum(map(len, chunks)))
        return iter(chunks)


def test_recipients_may_change_along_a_chain(scene, tmp_path):
    scene.write(5)
    scene.capture(full=True, **seals(FIRST))
    last = scene.write(5)
    scene.capture(**seals(SECOND))
    for lonely in (FIRST, SECOND):
        with pytest.raises(NoKeyError):
            restore_into(tmp_path / lonely.key_id, scene.store, keyring=ring(lonely))
    restored = restore_into(tmp_path / "both", scene.store, keyring=ring(SECOND, FIRST))
    assert restored.hashkv.hash == scene.member.hash_kv(last).hash


def test_a_new_key_opens_old_objects_and_none_is_written_again(scene, tmp_path):
    last = a_chain(scene, FIRST)
    before = {key: b"".join(scene.store.get(key)) for key in objects(scene.store)}
    catalogue = read_catalogue(scene.store)
    with pytest.raises(NoKeyError):
        add_recipient(scene.store, catalogue, SECOND.recipient, ring(STRANGER), by="t", now=NOW)
    assert list(scene.store.list(keys.GRANTS)) == []
    granted = add_recipient(scene.store, catalogue, SECOND.recipient, ring(FIRST), by="t", now=NOW)
    assert len(granted) == 3
    assert {key: b"".join(scene.store.get(key)) for key in objects(scene.store)} == before
    restored = restore_into(tmp_path / "new", scene.store, keyring=ring(SECOND))
    assert restored.hashkv.hash == scene.member.hash_kv(last).hash
    catalogue = read_catalogue(scene.store)
    assert catalogue.damaged == ()
    assert {catalogue.key_ids(each) for each in catalogue.snapshots} == {(FIRST.key_id, SECOND.key_id)}
    assert add_recipient(scene.store, catalogue, SECOND.recipient, ring(FIRST), by="t", now=NOW) == []
    with pytest.raises(NoKeyError, match=f"{FIRST.key_id}, {SECOND.key_id}"):
        restore_into(tmp_path / "stranger", scene.store, keyring=ring(STRANGER))
    # From the granted key to a third: the old one may be lost by then.
    third = add_recipient(scene.store, catalogue, STRANGER.recipient, ring(SECOND), by="t", now=NOW)
    assert len(third) == 3


@pytest.mark.parametrize(
    ("at", "when"), [(1, "before"), (1, "within"), (1, "after"), (2, "after"), (3, "before")]
)
def test_a_run_that_was_killed_at_a_grant_is_completed_by_the_next(scene, tmp_path, at, when):
    a_chain(scene, FIRST)
    with Killer() as killer:
        assert killer.run(grant_and_die, tmp_path / "store", at, when)
    catalogue = read_catalogue(scene.store)
    assert catalogue.damaged == ()
    done = at if when == "after" else at - 1
    assert len(catalogue.grants) == done
    with pytest.raises(NoKeyError):
        restore_into(tmp_path / "half", scene.store, keyring=ring(SECOND))
    again = add_recipient(scene.store, catalogue, SECOND.recipient, ring(FIRST), by="t", now=NOW)
    assert len(again) == 3 - done
    restore_into(tmp_path / "whole", scene.store, keyring=ring(SECOND))


def test_a_key_that_was_taken_back_opens_only_what_was_written_for_it(scene, tmp_path):
    a_chain(scene, FIRST)
    add_recipient(scene.store, read_catalogue(scene.store), SECOND.recipient, ring(FIRST), by="t", now=NOW)
    done = remove_recipient(scene.store, read_catalogue(scene.store), SECOND.key_id)
    assert (len(done.removed), done.locked, done.own) == (3, (), ())
    with pytest.raises(NoKeyError):
        restore_into(tmp_path / "data", scene.store, keyring=ring(SECOND))
    honest = remove_recipient(scene.store, read_catalogue(scene.store), FIRST.key_id)
    assert (honest.removed, len(honest.own)) == ((), 3)
    restore_into(tmp_path / "still", scene.store, keyring=ring(FIRST))


def test_a_damaged_or_foreign_grant_opens_nothing_and_hides_nothing(scene, tmp_path):
    a_chain(scene, FIRST)
    add_recipient(scene.store, read_catalogue(scene.store), SECOND.recipient, ring(FIRST), by="t", now=NOW)
    first, second, *_ = (info.key for info in scene.store.list(keys.GRANTS))
    wrong = documents.fetch(scene.store, second, Grant)
    scene.store.put(first, [documents.seal(wrong)])
    with pytest.raises(DamagedObjectError):
        restore_into(tmp_path / "swapped", scene.store, keyring=ring(SECOND))
    scene.store.put(first, [b"nothing"])
    with pytest.raises(NoKeyError):
        restore_into(tmp_path / "damaged", scene.store, keyring=ring(SECOND))
    restore_into(tmp_path / "first", scene.store, keyring=ring(FIRST))


def test_switching_starts_with_a_full_both_ways(scene, tmp_path):
    scene.write(5)
    scene.capture(full=True)
    scene.write(5)
    done = scene.capture(**seals(FIRST))
    assert (done.why_full.need, done.full.record.name.is_encrypted) == (Need.LAYOUT, True)
    scene.write(5)
    done = scene.capture(**seals(FIRST))
    assert done.full is None
    assert ebr_rules.check_prefix(scene.store) == []
    scene.write(5)
    with pytest.raises(ConfigError, match="are encrypted, and this one would not be"):
        scene.capture()
    last = scene.write(1)
    done = scene.capture(allows_clear=True)
    assert (done.why_full.need, done.full.record.name.is_sealed) == (Need.LAYOUT, False)
    assert ebr_rules.check_prefix(scene.store) == []
    for revision in (7, 12, 17, last):
        restored = restore_into(tmp_path / str(revision), scene.store, revision, keyring=ring(FIRST))
        assert restored.hashkv.hash == scene.member.hash_kv(revision).hash


def test_a_refused_capture_claims_nothing(scene):
    a_chain(scene, FIRST)
    before = [info.key for info in scene.store.list()]
    with pytest.raises(ConfigError):
        scene.capture(full=True)
    assert [info.key for info in scene.store.list()] == before


def test_nothing_is_ever_stored_in_the_clear_under_the_name_of_an_encrypted_object(scene):
    scene.write(5)
    with pytest.raises(UsageError, match="would have no recipients"):
        scene.capture(full=True, **seals(suffix=".zst.age"))
    assert objects(scene.store) == []


def test_what_is_killed_before_its_record_is_read_all_the_same(scene, tmp_path):
    last = a_chain(scene, FIRST)
    for info in list(scene.store.list(keys.RECORDS)):
        scene.store.delete(info.key)
    catalogue = read_catalogue(scene.store)
    assert len(catalogue.unrecorded) == 3
    restored = restore_into(tmp_path / "data", scene.store, keyring=ring(FIRST))
    assert restored.hashkv.hash == scene.member.hash_kv(last).hash
    with pytest.raises(NoKeyError, match=FIRST.key_id):
        restore_into(tmp_path / "other", scene.store, keyring=ring(STRANGER))


def test_records_of_encrypted_snapshots_say_the_keys_and_not_the_hash_of_what_is_in_them(scene):
    a_chain(scene, FIRST, SECOND)
    for snapshot in read_catalogue(scene.store).snapshots:
        assert snapshot.record.keys == (FIRST.key_id, SECOND.key_id)
        assert snapshot.record.payload_sha256 == ""


def test_records_of_what_ebr_reads_have_not_changed_by_a_byte():
    raw = documents.seal(record(names.full(9, 15)))
    assert b"key_ids" not in raw
    assert documents.unseal(raw, Record, "x").keys == ()
    fields = re.findall(rb'"(\w+)":', raw)
    assert fields == sorted(fields)
    assert b"payload_sha256" in raw


def test_a_sealed_object_of_a_newer_rootcellar_is_told(store):
    key = names.full(9, 15, ".zst.age").key.replace(".age", ".pq")
    store.put(key, [b"x"])
    (damage,) = read_catalogue(store).damaged
    assert (damage.key, "newer rootcellar" in damage.reason) == (key, True)


def test_no_byte_of_an_encrypted_chain_changes_unnoticed(scene, tmp_path):
    """With its records gone, which alone would tell: every byte of the smallest object, cuts of all."""
    a_chain(scene, FIRST)
    for info in list(scene.store.list(keys.RECORDS)):
        scene.store.delete(info.key)
    sizes = {info.key: info.size for info in scene.store.list("sealed/")}
    smallest = min(sizes, key=sizes.get)
    for key, size in sizes.items():
        raw = b"".join(scene.store.get(key))
        step = 1 if key == smallest else size // 200
        for at in range(0, size, step):
            damaged = bytearray(raw)
            damaged[at] ^= 1 << at % 8
            scene.store.put(key, [bytes(damaged)])
            assert told(scene.store, key), f"byte {at} of {key}"
        for length in range(0, size, max(step, 13)):
            scene.store.put(key, [raw[:length]])
            assert told(scene.store, key), f"{key} cut to {length}"
        scene.store.put(key, [raw])
        assert not told(scene.store, key)


def told(store, key):
    """Whether reading all of an object says that it is damaged, by name."""
    try:
        file_key = unlock(store, [key], ring(FIRST)).file_key(key)
        plain = decrypt(store.get(key), key, file_key)
        for _ in codecs.hash_tail(codecs.decompress(plain, names.read(key).suffix, name=key), name=key):
            pass
    except DamagedObjectError as error:
        return error.name == key
    return False


def test_an_old_full_in_the_place_of_a_newer_one_is_told(scene, tmp_path):
    scene.write(5)
    old = scene.capture(full=True, **seals(FIRST)).full
    scene.write(5)
    new = scene.capture(full=True, **seals(FIRST)).full
    scene.store.put(new.key, scene.store.get(old.key))
    scene.store.delete(keys.record(new.record.name))
    with pytest.raises(DamagedObjectError, match="lies here under another name") as raised:
        restore_into(tmp_path / "data", scene.store, keyring=ring(FIRST))
    assert raised.value.name == new.key


def test_holds_and_proofs_lie_beside_sealed_chains_as_ever(scene):
    a_chain(scene, FIRST)
    catalogue = read_catalogue(scene.store)
    full = next(each for each in catalogue.snapshots if each.is_full)
    ledger.write_hold(scene.store, full, reason="audit", by="t", now=NOW)
    assert read_catalogue(scene.store).holds[0].key == full.key


def test_without_a_key_the_stored_bytes_are_held_against_the_records(scene):
    a_chain(scene, FIRST)
    plan = plan_of(scene.store)
    with pytest.raises(NoKeyError, match="it needs one of"):
        verify(scene.store, plan, LEVELS[3], by="tests")

    proof = verify(scene.store, plan, LEVELS[2], by="tests")

    finding = next(each for each in proof.findings if each.check is Check.HASH)
    assert finding.result is Result.PASSED
    assert finding.detail.startswith("of the stored bytes; the hash inside was skipped: ")
    assert FIRST.key_id in finding.detail
    assert [link.sha256 for link in proof.objects] == [each.sha256 for each in (plan.full, *plan.deltas)]
    key = plan.deltas[-1].key
    stored = b"".join(scene.store.get(key))
    scene.store.put(key, [stored[:-1] + bytes([stored[-1] ^ 1])])
    damaged = next(
        each for each in verify(scene.store, plan, LEVELS[2], by="tests").findings if each.check is Check.HASH
    )
    assert (damaged.result, key in damaged.detail) == (Result.FAILED, True)


def test_without_a_key_and_a_record_the_hash_is_skipped_and_never_passed(scene):
    a_chain(scene, FIRST)
    full = read_catalogue(scene.store).snapshots[0]
    scene.store.delete(keys.record(full.name))
    proof = verify(scene.store, plan_of(scene.store), LEVELS[2], by="tests")
    finding = next(each for each in proof.findings if each.check is Check.HASH)
    assert finding.result is Result.SKIPPED
    assert f"{full.key} has no record" in finding.detail
