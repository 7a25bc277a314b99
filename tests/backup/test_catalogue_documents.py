from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootcellar.backup.catalogue import documents, keys, names
from rootcellar.backup.catalogue.ownership import Epoch, Marker
from rootcellar.backup.catalogue.records import HashKV, Lease, Link, Notice, Record
from rootcellar.errors import AlreadyExistsError, NotFoundError, RecordError
from tests.backup import ebr_rules

NOW = datetime(2026, 7, 24, 9, 23, 23, 123456, tzinfo=UTC)
FULL = names.full(120, 1795250784)
DELTA = names.delta(121, 161, 1795250786)
LEGACY = names.parse("v1/Backup-1795250784/Full-00000000-00000120-1795250784.gz.final")
SEALED = names.delta(121, 180, 1795250999, ".zst.age")
MARKER = Marker(number=1, cluster_id="cdf818194e3a8c32", writer="agent/1", created_at=NOW)

ALL_KEYS = [
    key
    for name in (FULL, DELTA, LEGACY, SEALED)
    for key in (
        keys.record(name),
        keys.proof(name, NOW, "ab12"),
        keys.tombstone(name),
        keys.abandoned(name, 2),
    )
] + [
    keys.hold("ab12"),
    keys.release("ab12"),
    keys.pin(NOW, "ab12"),
    keys.marker(1),
    keys.timeline(1),
    keys.fork(NOW, "ab12"),
    keys.epoch(1),
    keys.claim(121, 3),
    keys.heartbeat(NOW, 1),
    keys.grant(SEALED, "0123456789abcdef"),
    SEALED.key,
    "catalogue/probe/anything",
]
# What people and other tools have called prefixes, and what would be worst.
PREFIXES = st.lists(
    st.one_of(
        st.sampled_from(
            [
                "v1",
                "v2",
                "dev1",
                "xv2",
                "v1-v2",
                "Full-1-2-3",
                "Incr-1-2-3",
                "Full-0",
                "a-b-c",
                "Backup-1",
                "Full",
                "-",
            ]
        ),
        st.text("av12-./F", min_size=1, max_size=6),
    ),
    max_size=5,
).map("/".join)


def record(name: names.SnapshotName, **fields) -> Record:
    defaults = {
        "key": name.key,
        "kind": name.kind,
        "start": name.start,
        "last_revision": name.last,
        "compact_revision": -1,
        "payload_size": 1000,
        "payload_sha256": "a" * 64,
        "stored_size": 100,
        "stored_sha256": "b" * 64,
        "cluster_id": "cdf818194e3a8c32",
        "member_id": "8e9e05c52164694d",
        "timeline": 1,
        "epoch": 1,
        "writer": "agent/1",
        "captured_at": NOW,
    }
    return Record(**(defaults | fields))


@given(PREFIXES)
def test_ebr_never_takes_one_of_our_keys_for_a_snapshot(prefix):
    for key in ALL_KEYS:
        whole = f"{prefix}/{key}" if prefix else key
        assert ebr_rules.parse(whole) is None
        assert names.parse(whole) is None


def test_our_keys_are_all_different_and_below_three_roots():
    assert len(set(ALL_KEYS)) == len(ALL_KEYS)
    for key in ALL_KEYS:
        assert key.startswith(("catalogue/", "abandoned/", "sealed/"))
        assert "-" not in key
        assert key.count("/") >= 2


@pytest.mark.parametrize(
    "name",
    [
        FULL,
        DELTA,
        LEGACY,
        names.full(5, 7, "", final=True),
        names.delta(12345678901, 12345678902, 7, ".zlib"),
    ],
)
def test_an_abandoned_key_tells_the_former_name(name):
    assert keys.parse_abandoned(keys.abandoned(name, 3)) == (3, name)


@pytest.mark.parametrize("key", ["abandoned/3/full_0_1_2", "abandoned/0000000003/full_2_1_0", "abandoned/x"])
def test_other_keys_among_the_abandoned_are_nothing(key):
    assert keys.parse_abandoned(key) is None


def test_keys_sort_as_what_they_number():
    assert keys.epoch(9) < keys.epoch(10) < keys.epoch(100)
    assert keys.claim(9, 2) < keys.claim(10, 1) < keys.claim(2**62, 1)
    later = NOW.replace(year=2027)
    assert keys.heartbeat(NOW, 2) < keys.heartbeat(later, 1)


def test_a_document_comes_back_as_it_was():
    whole = record(
        DELTA,
        hashkv=HashKV(3610261574, 161, -1),
        etcd_version="3.5.35",
        auth_revision=3,
        first_received=NOW,
        last_received=NOW,
        previous=Link(FULL.key, "c" * 64),
        leases=(Lease(129656598510661019, 3600),),
        catch_up=True,
        warnings=(Notice("encrypted-at-rest", "…"),),
    )
    assert documents.unseal(documents.seal(whole), Record, "k") == whole
    assert documents.unseal(documents.seal(MARKER), Marker, "k") == MARKER


def test_a_document_is_canonical_json_with_its_own_hash():
    raw = documents.seal(MARKER)
    members = json.loads(raw)
    assert list(members) == sorted(members)
    assert members["type"] == "marker"
    assert raw == json.dumps(members, sort_keys=True, separators=(",", ":")).encode()


def test_every_flipped_bit_of_a_document_is_noticed():
    raw = bytearray(documents.seal(MARKER))
    for index in range(len(raw) * 8):
        raw[index // 8] ^= 1 << index % 8
        with pytest.raises(RecordError, match=r"^catalogue/m\.json: "):
            documents.unseal(bytes(raw), Marker, "catalogue/m.json")
        raw[index // 8] ^= 1 << index % 8


def test_every_truncation_of_a_document_is_noticed():
    raw = documents.seal(MARKER)
    for length in range(len(raw)):
        with pytest.raises(RecordError):
            documents.unseal(raw[:length], Marker, "k")


@given(st.binary(max_size=100))
def test_any_bytes_end_in_a_record_error(raw):
    with pytest.raises(RecordError):
        documents.unseal(raw, Marker, "k")


@pytest.mark.parametrize(
    "raw", [b"[" * 100_000, b"{}", b'{"sha256":1}', b'{"sha256":"x"}', b"null", b'{"a":' * 100_000]
)
def test_json_that_is_no_document_is_refused(raw):
    with pytest.raises(RecordError):
        documents.unseal(raw, Marker, "k")


def with_members(**changed) -> bytes:
    """A marker with other members and a true hash."""
    members = msgspec.json.decode(documents.seal(MARKER))
    members = {name: value for name, value in (members | changed).items() if name != "sha256"}
    digest = hashlib.sha256(canonical(members)).hexdigest()
    return canonical(members | {"sha256": digest})


def canonical(members) -> bytes:
    return json.dumps(members, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def test_members_that_a_newer_rootcellar_added_are_ignored():
    assert documents.unseal(with_members(mood="good", nested={"b": [1, None]}), Marker, "k") == MARKER


def test_a_newer_format_is_not_guessed_at():
    with pytest.raises(RecordError, match="k: has format 2, and this rootcellar knows 1") as told:
        documents.unseal(with_members(format=2), Marker, "k")
    assert told.value.hint == "use a newer rootcellar"


@pytest.mark.parametrize(
    "changed",
    [
        {"type": "epoch"},
        {"number": -1},
        {"number": "1"},
        {"cluster_id": "not hex"},
        {"created_at": "2026-07-24T09:23:23"},
        {"format": "1"},
    ],
)
def test_members_that_cannot_be_are_refused_although_the_hash_is_true(changed):
    with pytest.raises(RecordError):
        documents.unseal(with_members(**changed), Marker, "k")


def test_one_kind_of_document_is_not_taken_for_another():
    with pytest.raises(RecordError, match="k: "):
        documents.unseal(documents.seal(MARKER), Epoch, "k")


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        (FULL, {"last_revision": 119}),
        (DELTA, {"last_revision": 160}),
        (DELTA, {"last_revision": 162}),
        (DELTA, {"start": 120}),
        (FULL, {"kind": names.Kind.DELTA}),
        (FULL, {"key": DELTA.key}),
        (FULL, {"key": "v2/Full-00000000-00000120-1795250784.gz.sha256"}),
        (FULL, {"key": "catalogue/x"}),
    ],
)
def test_a_record_that_contradicts_the_name_is_refused(name, changed):
    with pytest.raises(RecordError):
        assert record(name, **changed).name


def test_a_fulls_real_revision_may_be_above_its_name():
    assert record(FULL, last_revision=125).name == FULL


def test_a_document_is_written_once(store):
    documents.put_once(store, keys.marker(1), MARKER)
    documents.put_once(store, keys.marker(1), MARKER)
    other = msgspec.structs.replace(MARKER, cluster_id="1")
    with pytest.raises(AlreadyExistsError):
        documents.put_once(store, keys.marker(1), other)
    assert documents.fetch(store, keys.marker(1), Marker) == MARKER


def test_a_document_that_is_not_there_is_not_found(store):
    with pytest.raises(NotFoundError):
        documents.fetch(store, keys.marker(1), Marker)


def test_a_document_without_end_is_not_read_to_its_end(store, monkeypatch):
    monkeypatch.setattr(documents, "SIZE_LIMIT", 2 << 20)
    store.put(keys.marker(1), (b"x" * (1 << 20) for _ in range(8)))
    with pytest.raises(RecordError, match="is longer than 2 MiB"):
        documents.fetch(store, keys.marker(1), Marker)
