"""What a proof says of what is damaged, torn apart, or cannot be served; and what it does not say."""

from __future__ import annotations

import gzip
import hashlib
import signal

import msgspec
import pytest

from rootcellar.backup.boot import boot
from rootcellar.backup.catalogue import names
from rootcellar.backup.catalogue.chain import Latest
from rootcellar.backup.catalogue.records import Check, Result
from rootcellar.backup.objects import codecs
from rootcellar.backup.restore.plan import PlannedObject
from rootcellar.backup.restore.planner import Wish, plan_bare
from rootcellar.backup.verify import LEVELS, verify
from rootcellar.bolt.append import Transaction
from rootcellar.errors import ChainError, EtcdError, EtcdUnavailableError, ProofError, StoreError
from rootcellar.etcd.client import EtcdClient
from rootcellar.etcd.process import EtcdProcess, find_etcd
from rootcellar.mvcc.hashkv import HashKV
from rootcellar.stores.decorator import StoreDecorator
from testbed import binaries
from tests.backup.capture_scene import a_scene
from tests.backup.histories import BEGINNING, SECOND, database, invent, stored, upto
from tests.backup.plans import plan_of, restore_into

EVENTS = invent(59, 3)  # revisions 2 to 60
WISH = Wish(Latest(), token="proof", bump_revision=0, quota=0)
FULL = names.full(20, 1_790_000_020).key


def delta(first, last):
    return names.delta(first, last, 1_790_000_000 + last).key


def part(first, last):
    return [each for each in EVENTS if first <= each.mod_revision <= last]


def packed(payload):
    return gzip.compress(payload + hashlib.sha256(payload).digest())


def flip(store, key):
    raw = bytearray(b"".join(store.get(key)))
    raw[len(raw) // 2] ^= 1
    store.put(key, [bytes(raw)])


@pytest.fixture
def chain(store, tmp_path):
    """A full up to 20, and deltas of ten revisions up to 60."""
    store.put(FULL, [packed(database(tmp_path / "full", upto(EVENTS, 20)).read_bytes())])
    for first in (21, 31, 41, 51):
        store.put(delta(first, first + 9), [stored(part(first, first + 9))])
    return store


def results(proof):
    return {each.check: each.result for each in proof.findings}


def detail(proof, check):
    return next(each.detail for each in proof.findings if each.check is check)


def tried(store, level, plan=None, **how):
    checks = LEVELS[level] if isinstance(level, int) else level
    return verify(store, plan or plan_of(store), checks, by="tests", **how)


# A chain that does not hold together


@pytest.mark.parametrize("level", [3, 4, 5])
def test_a_gap_that_no_name_shows_fails_the_structure(chain, level):
    chain.put(delta(31, 40), [stored(part(35, 40))])

    proof = tried(chain, level)

    assert proof.failed.check is Check.STRUCTURE
    assert delta(31, 40) in proof.failed.detail
    assert "the chain has reached 30" in proof.failed.detail
    assert results(proof)[Check.HASH] is Result.PASSED
    assert all(link.sha256 for link in proof.objects), "what is behind the gap was read for its hash"
    assert {results(proof)[each] for each in LEVELS[level] - LEVELS[3]} <= {Result.SKIPPED}


@pytest.mark.parametrize("level", [3, 4])
def test_what_is_damaged_behind_a_gap_has_no_hash_that_passed(chain, level):
    chain.put(delta(31, 40), [stored(part(35, 40))])
    flip(chain, delta(51, 60))

    proof = tried(chain, level)

    assert (results(proof)[Check.HASH], results(proof)[Check.STRUCTURE]) == (Result.FAILED, Result.FAILED)
    assert delta(51, 60) in detail(proof, Check.HASH)


def test_where_the_rest_cannot_be_read_its_hash_is_skipped_and_the_structure_failed(chain):
    class Failing(StoreDecorator):
        def get(self, key, **how):
            if key == delta(51, 60):
                raise StoreError(f"{key}: no answer")
            return self.inner.get(key, **how)

    chain.put(delta(31, 40), [stored(part(35, 40))])
    proof = tried(Failing(chain), 3)
    assert (results(proof)[Check.HASH], results(proof)[Check.STRUCTURE]) == (Result.SKIPPED, Result.FAILED)
    assert "no answer" in detail(proof, Check.HASH)


def test_a_time_that_lies_in_a_gap_behind_the_chain_disproves_nothing(chain):
    plan = plan_of(chain, moment=BEGINNING + 55 * SECOND)
    inside = msgspec.structs.replace(plan, must_stop=True)
    assert tried(chain, 4, inside).revision == 55
    behind = msgspec.structs.replace(plan, must_stop=True, moment=BEGINNING + 90 * SECOND)
    with pytest.raises(ChainError, match="before that time is missing"):
        tried(chain, 4, behind)


# Hashes


def test_a_delta_that_a_restore_leaves_out_is_held_against_its_hash_too(chain, tmp_path):
    whole = database(tmp_path / "later", upto(EVENTS, 40)).read_bytes()
    chain.put(FULL, [packed(whole)])  # as fulls of etcd-backup-restore do, it holds more than its name says
    flip(chain, delta(21, 30))

    proof = tried(chain, 4)

    assert (results(proof)[Check.HASH], results(proof)[Check.REPLAYED]) == (Result.FAILED, Result.PASSED)
    assert delta(21, 30) in proof.failed.detail


@pytest.mark.parametrize("suffix", [names.NONE, names.GZIP])
@pytest.mark.parametrize("level", [2, 3, 4])
class TestBareFiles:
    """Single files: of a data directory, without a hash, or of a snapshot, with one."""

    def tried(self, store, level, payload, suffix):
        raw = payload if suffix == names.NONE else gzip.compress(payload)
        store.put("db", [raw])
        planned = PlannedObject("db", len(raw), suffix, 0, has_tail=None)
        return tried(store, level, plan_bare(store.url, planned, WISH))

    def test_without_a_hash_none_has_passed_or_failed(self, store, tmp_path, level, suffix):
        proof = self.tried(store, level, database(tmp_path / "full", EVENTS).read_bytes(), suffix)
        assert results(proof)[Check.HASH] is Result.SKIPPED
        assert detail(proof, Check.HASH) == "no hash is in db, and none was recorded of it"
        assert proof.failed is None

    def test_with_a_hash_that_holds_it_has_passed(self, store, tmp_path, level, suffix):
        payload = database(tmp_path / "full", EVENTS).read_bytes()
        proof = self.tried(store, level, payload + hashlib.sha256(payload).digest(), suffix)
        assert (results(proof)[Check.HASH], proof.failed) == (Result.PASSED, None)

    def test_with_a_hash_that_does_not_hold_it_has_failed(self, store, tmp_path, level, suffix):
        payload = database(tmp_path / "full", EVENTS).read_bytes()
        proof = self.tried(store, level, payload + bytes(32), suffix)
        assert proof.failed.check is Check.HASH
        assert "sha256 at the end" in proof.failed.detail

    def test_what_is_no_database_and_has_no_hash_has_none_that_passed(self, store, level, suffix):
        proof = self.tried(store, level, b"root:x:0:0:root:/root:/bin/sh\n" * 100, suffix)
        assert results(proof)[Check.HASH] is Result.SKIPPED
        assert (proof.failed and proof.failed.check) == (Check.STRUCTURE if level > 2 else None)


# Etcd on what was restored


def etcd_of(line):
    return find_etcd(binaries.etcd(line).etcd)


@pytest.fixture
def guarded(etcd, etcd_line, store):
    """A full of an etcd whose authentication is on."""
    with a_scene(etcd, etcd_line, store) as scene:
        scene.write(5)
        scene.member.enable_auth()
        with EtcdClient([scene.member.endpoint], user="root", password="secret") as client:
            yield scene.capture(full=True, client=client).full.snapshot.key


def harmed(store, key, tmp_path, change):
    """Put a full in place of another whose database `change` has changed; every hash holds."""
    path = tmp_path / "harmed"
    path.write_bytes(gzip.decompress(b"".join(store.get(key)))[: -codecs.HASH_SIZE])
    with Transaction(path) as transaction:
        change(transaction)
        transaction.commit(both_metas=True)
    for info in list(store.list("catalogue/")):
        store.delete(info.key)
    store.put(key, [packed(path.read_bytes())])


def test_an_etcd_with_authentication_serves_what_was_restored(guarded, store, etcd_line):
    proof = tried(store, 5, etcd=etcd_of(etcd_line))
    assert (results(proof)[Check.BOOTED], proof.failed) == (Result.PASSED, None)
    assert detail(proof, Check.BOOTED).endswith("with its users and roles it served too")
    assert proof.etcd_version.startswith(etcd_line)


def test_an_etcd_that_ends_over_its_users_has_failed_to_boot(guarded, store, etcd_line, tmp_path):
    harmed(store, guarded, tmp_path, lambda edit: edit.replace(b"authUsers", [(b"root", b"\xff\xff\xff")]))

    proof = tried(store, 5, etcd=etcd_of(etcd_line))

    assert proof.failed.check is Check.BOOTED
    assert "ended over it: " in proof.failed.detail
    assert "unmarshal" in proof.failed.detail
    assert "\n" not in proof.failed.detail
    assert results(proof)[Check.REPLAYED] is Result.PASSED, "what was found before is kept"
    assert proof.hashkv is not None
    alone = tried(store, {Check.BOOTED}, etcd=etcd_of(etcd_line))
    assert results(alone) == {Check.BOOTED: Result.FAILED}


one_backup = pytest.mark.parametrize("ebr_backup", ["gzip-3.5"], indirect=True)


@one_backup
@pytest.mark.parametrize(
    ("revision", "told"), [(0, "answered HashKV"), (1000, "answered: .*future revision")]
)
def test_an_etcd_with_another_history_has_failed_to_boot(ebr_backup, tmp_path, monkeypatch, revision, told):
    monkeypatch.setattr("rootcellar.backup.boot._DYING", 0.1)
    data_dir = tmp_path / "data"
    restored = restore_into(data_dir, ebr_backup.store)
    other = HashKV(1, revision or restored.revision, -1)
    with pytest.raises(ProofError, match=told):
        boot(etcd_of("3.5"), data_dir, name="default", expected=other, has_authentication=False)


@one_backup
@pytest.mark.parametrize(
    ("ending", "told"),
    [
        ("echo 'no such instruction' >&2; exit 1", "does not start on an empty directory either: no such"),
        ("echo 'panic: write wal: no space left on device' >&2; exit 2", "ended: write wal: no space left"),
        ("kill -KILL $$", f"was ended by signal {signal.SIGKILL:d}"),
    ],
)
def test_an_etcd_that_ends_for_another_reason_has_disproven_nothing(ebr_backup, tmp_path, ending, told):
    real, program = etcd_of("3.5").path, tmp_path / "broken"
    program.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exec {real} --version\n{ending}\n')
    program.chmod(0o755)
    with pytest.raises(EtcdError, match=told) as caught:
        tried(ebr_backup.store, 5, etcd=find_etcd(program))
    assert caught.value.hint.startswith("that says nothing of the backup")


@one_backup
def test_an_etcd_that_is_late_has_disproven_nothing(ebr_backup, monkeypatch):
    def late(process, client, **_):
        raise EtcdUnavailableError("not ready")

    monkeypatch.setattr(EtcdProcess, "wait_ready", late)
    monkeypatch.setattr("rootcellar.backup.boot._DYING", 0.01)
    with pytest.raises(EtcdUnavailableError, match="not ready"):
        tried(ebr_backup.store, 5, etcd=etcd_of("3.5"))
