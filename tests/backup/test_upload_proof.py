"""What an upload proves in passing, on a file system and on S3; what it costs, and what stays of it."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

import pytest

from rootcellar.backup.capture.capture import capture
from rootcellar.backup.capture.etag import Etag, etag_for, is_comparable
from rootcellar.backup.capture.proof import READ_BACK, prove_upload
from rootcellar.backup.capture.publisher import utc_now
from rootcellar.backup.catalogue import keys
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.records import Check, Result
from rootcellar.backup.prune.prune import prune
from rootcellar.backup.prune.retention import LimitBased
from rootcellar.backup.prune.values import Rules
from rootcellar.errors import TransientError
from rootcellar.etcd.client import EtcdClient
from rootcellar.stores.decorator import StoreDecorator
from rootcellar.stores.meter import Meter, MeteredStore
from rootcellar.stores.s3.options import PART_SIZE
from tests.backup.capture_scene import Dying, a_scene, store_at
from tests.backup.killing import Killer
from tests.stores.places import s3_store

FREE = [Check.LISTED, Check.HASH, Check.STRUCTURE]


@pytest.fixture(scope="module")
def killer():
    with Killer() as killer:
        yield killer


@pytest.fixture(params=["file", "s3"])
def place(request, tmp_path):
    return tmp_path / "store" if request.param == "file" else (request.getfixturevalue("bucket"), "proofs")


@pytest.fixture
def scene(etcd, place):
    with a_scene(etcd, "3.6", store_at(place)) as scene:
        scene.write(20)
        yield scene


def results(proof):
    return [next(each.result for each in proof.findings if each.check is check) for check in FREE]


def detail(proof, check):
    return next(each.detail for each in proof.findings if each.check is check)


def proven(store, captured):
    return prove_upload(store, captured, utc_now)


def test_a_full_and_a_delta_each_have_a_proof_of_what_passed_by(scene):
    full = proven(scene.store, scene.capture(full=True).full)
    last = scene.write(3)
    delta = proven(scene.store, scene.capture().deltas[0])

    assert results(full) == [Result.PASSED, Result.PASSED, Result.SKIPPED]
    assert "not seen in passing" in detail(full, Check.STRUCTURE)
    assert results(delta) == [Result.PASSED, Result.PASSED, Result.PASSED]
    assert (
        detail(delta, Check.STRUCTURE) == f"revisions {last - 2} to {last}, without a gap behind {last - 3}"
    )
    catalogue = read_catalogue(scene.store)
    assert catalogue.proofs == (full, delta)
    assert [proof.objects for proof in catalogue.proofs] == [
        (each.record.link,) for each in catalogue.snapshots
    ]
    for proof in catalogue.proofs:
        assert proof.in_passing
        beyond = {each.check for each in proof.findings if each.result is Result.SKIPPED} - {Check.STRUCTURE}
        assert beyond == {Check.REPLAYED, Check.COMPARED, Check.BOOTED}


def test_what_s3_has_is_known_by_its_etag_and_not_read_again(etcd, bucket):
    store = s3_store(bucket, "large", part_size=PART_SIZE)
    with a_scene(etcd, "3.6", store) as scene:
        for number in range(20):
            scene.client.put(b"large%d" % number, os.urandom(1_000_000))
        full = scene.capture(full=True).full
        assert full.record.stored_size > READ_BACK
        meter = Meter()
        proof = proven(MeteredStore(store, meter), full)

    assert results(proof) == [Result.PASSED, Result.PASSED, Result.SKIPPED]
    assert detail(proof, Check.HASH) == "the store's etag is that of what was sent"
    read = meter.read()
    assert {verb: each.calls for verb, each in read.verbs.items()} == {"stat": 1, "put": 1}
    assert read.downloaded == 0


class Etagless(StoreDecorator):
    """A store that tells no hash, as many do."""

    @property
    def url(self):
        return "azure://account/container"

    def stat(self, key, *, version=None):
        found = self.inner.stat(key, version=version)
        return type(found)(found.key, found.size, found.modified, "0x8D00000000000000")


@pytest.mark.parametrize(("size", "result"), [(1_000, Result.PASSED), (READ_BACK, Result.SKIPPED)])
def test_what_a_store_tells_no_hash_of_is_read_again_while_it_is_small(etcd, tmp_path, size, result):
    with a_scene(etcd, "3.6", store_at(tmp_path)) as scene:
        for number in range(0, size, 1_000_000):
            scene.client.put(b"large%d" % number, os.urandom(1_000_000))
        proof = proven(Etagless(scene.store), scene.capture(full=True).full)

    assert results(proof)[1] == result
    assert ("not read again" in detail(proof, Check.HASH)) == (result is Result.SKIPPED)


def flip(store, key):
    """The same size, other bytes."""
    raw = bytearray(b"".join(store.get(key)))
    raw[len(raw) // 2] ^= 1
    store.put(key, [bytes(raw)])


@pytest.mark.parametrize(
    ("harm", "check", "told"),
    [
        (flip, Check.HASH, "as was sent"),
        (lambda store, key: store.put(key, [b"short"]), Check.LISTED, "has 5 bytes, not"),
        (lambda store, key: store.delete(key), Check.LISTED, "is gone"),
    ],
)
def test_an_object_that_is_not_what_was_sent_has_a_proof_that_failed(scene, harm, check, told):
    captured = scene.capture(full=True).full
    harm(scene.store, captured.key)
    proof = proven(scene.store, captured)

    assert (proof.failed.check, proof.failed.result) == (check, Result.FAILED)
    assert told in proof.failed.detail
    assert read_catalogue(scene.store).proofs == (proof,)


def test_where_the_store_does_not_answer_nothing_is_proven_and_nothing_disproven(scene):
    class Away(StoreDecorator):
        def stat(self, key, *, version=None):
            raise TransientError("away")

    captured = scene.capture(full=True).full
    with pytest.raises(TransientError):
        proven(Away(scene.store), captured)
    assert read_catalogue(scene.store).proofs == ()


def test_proofs_of_uploads_go_with_what_they_speak_of(scene):
    for _ in range(3):
        proven(scene.store, scene.capture(full=True).full)
        for _ in range(2):
            scene.write(2)
            proven(scene.store, scene.capture().deltas[0])
        scene.write(1)
        proven(scene.store, scene.capture().deltas[0])
    assert len([*scene.store.list(keys.PROOFS)]) == 12

    # Deltas go before their full does, and their proofs with them.
    def days(number):
        return lambda: datetime.now(UTC) + timedelta(days=number)

    prune(scene.store, Rules(LimitBased(2), deltas=timedelta(0)), writer="tests/1", clock=days(30))
    left = read_catalogue(scene.store)
    assert 2 <= len(left.snapshots) < 12
    assert {proof.objects[0].key for proof in left.proofs} == {each.key for each in left.snapshots}
    assert len([*scene.store.list(keys.PROOFS)]) == len(left.snapshots)


def capture_prove_and_die(endpoint, place, at, when):
    """A full in a process of its own that is killed at the `at`-th thing which its proof writes."""
    with EtcdClient([endpoint]) as client:
        store = store_at(place)
        done = capture(client, store, full=True, writer="doomed/1")
        prove_upload(Dying(store, at, when), done.full, utc_now)


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_its_proof_a_full_is_there_with_or_without_one(scene, place, when, killer):
    assert killer.run(capture_prove_and_die, scene.member.endpoint, place, 1, when)
    catalogue = read_catalogue(scene.store)
    assert (catalogue.damaged, len(catalogue.unrecorded)) == ((), 0)
    assert len(catalogue.proofs) == (when == "after")
    scene.write(3)
    assert scene.capture().full is None, "the chain goes on from it all the same"


@pytest.mark.parametrize(
    "sizes", [[], [1], [PART_SIZE], [PART_SIZE, 1], [1, PART_SIZE - 1], [7, 2 * PART_SIZE, 0, 5]]
)
def test_an_etag_depends_on_the_bytes_and_not_on_how_they_come(sizes):
    chunks = [bytes(size) for size in sizes]
    etag = Etag()
    for chunk in chunks:
        etag.add(chunk)
    whole = etag_for("s3://bucket")
    whole.add(b"".join(chunks))
    assert etag.value == whole.value
    parts = -(-sum(sizes) // PART_SIZE)
    assert etag.value.partition("-")[2] == (str(parts) if parts > 1 else "")
    assert etag_for("file:///store").value == ""


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ("a" * 32, "b" * 32, True),
        (f"{'a' * 32}-3", f"{'b' * 32}-3", True),
        (f"{'a' * 32}-3", f"{'b' * 32}-2", False),  # other parts
        (f"{'a' * 32}-3", "b" * 32, False),  # a manifest of Swift's
        ("a" * 32, "0x8DC0FFEE", False),
        ("a" * 32, None, False),
        ("", "b" * 32, False),
    ],
)
def test_only_etags_of_one_form_say_something_by_being_different(ours, theirs, expected):
    assert is_comparable(ours, theirs) is expected
