from __future__ import annotations

import base64
import gzip
import hashlib
import json
import subprocess
import zlib

import pytest

from rootcellar.stores.file import FileStore
from tests.backup import ebr_rules
from tests.backup.ebr_data import EBR, EBR_PREFIX


def unpack(path):
    raw = path.read_bytes()
    return {".gz": gzip.decompress, ".zlib": zlib.decompress, ".Z": ebr_rules.lzw}.get(path.suffix, bytes)(
        raw
    )


def rewrite(path, events=None, *, payload=None, tail=True):
    """Put another payload into a gzip object, with its hash."""
    body = payload if payload is not None else json.dumps(events, separators=(",", ":")).encode()
    path.write_bytes(gzip.compress(body + (hashlib.sha256(body).digest() if tail else b"")))


def events_of(path):
    return json.loads(unpack(path)[:-32])


@pytest.fixture
def plain(tmp_path):
    """The plain backup: its objects in order, and the store."""
    root = tmp_path / "etcd-main"
    subprocess.run(["cp", "-r", EBR / "gzip-3.5" / "store" / EBR_PREFIX, root], check=True)
    return sorted((root / "v2").iterdir()), FileStore(root)


def test_what_ebr_wrote_keeps_its_rules(ebr_backup):
    assert ebr_rules.check_prefix(ebr_backup.store, EBR_PREFIX) == []


def test_the_full_holds_the_revision_it_is_named_after(ebr_backup):
    [full] = (ebr_backup.root / "v2").glob("Full*")
    revision = ebr_backup.expected["full_revision"]
    assert ebr_rules.current_revision(unpack(full)[:-32]) == revision


def test_a_prefix_that_hides_the_backup_from_ebr_is_told(plain):
    _, store = plain
    assert ebr_rules.check_prefix(store, "dev1/etcd-main") == ["EBR finds no full"]


def test_a_missing_delta_is_told_by_the_one_behind_it(plain):
    [_, _, second, third, *_], store = plain
    second.unlink()
    [violation] = ebr_rules.check_prefix(store)
    assert violation.startswith(f"v2/{third.name}: its revision 212 would be replayed as 169")


def test_a_missing_full_is_told(plain):
    [full, *_], store = plain
    full.unlink()
    assert ebr_rules.check_prefix(store) == ["EBR finds no full"]


def test_a_sidecar_beside_a_snapshot_is_told(plain):
    [_, *_, last], store = plain
    (last.parent / f"{last.name}.sha256").write_text("0" * 64)
    violations = ebr_rules.check_prefix(store)
    assert f"v2/{last.name}.sha256: EBR takes it for a snapshot" in violations


def test_an_overlap_after_the_first_delta_is_told(plain):
    [_, _, second, third, *_], store = plain
    third.rename(third.with_name(third.name.replace("00000212", "00000211")))
    third = third.with_name(third.name.replace("00000212", "00000211"))
    rewrite(third, events_of(second)[-1:] + events_of(third))
    [violation] = ebr_rules.check_prefix(store)
    assert violation == f"v2/{third.name}: its revision 211 would be replayed as 212"


def test_a_first_delta_that_lies_wholly_inside_the_full_is_told(plain):
    [full, first, *_], store = plain
    # The full's pages go up to 127; a name below that makes EBR start with a delta that it already holds.
    early = full.with_name(full.name.replace("00000127", "00000120"))
    full.rename(early)
    inside = first.with_name("Incr-00000121-00000125-1795250724.gz")
    events = events_of(first)
    for event, revision in zip(events, range(121, 126), strict=False):
        event["etcdEvent"]["kv"]["mod_revision"] = revision
    rewrite(inside, events[:5])
    [violation] = ebr_rules.check_prefix(store)
    assert violation == f"v2/{inside.name}: the full holds all of it and more (it ends at 127)"


def test_a_last_event_that_is_not_the_names_is_told(plain):
    [*_, last], store = plain
    rewrite(last, events_of(last)[:-1])
    violations = ebr_rules.check_prefix(store)
    assert f"v2/{last.name}: its last event has revision 293" in violations
    assert f"v2/{last.name}: after it etcd would be at revision 293" in violations


def test_a_wrong_hash_is_told(plain):
    [_, first, *_], store = plain
    payload = bytearray(unpack(first))
    payload[-1] ^= 1
    rewrite(first, payload=bytes(payload), tail=False)
    assert ebr_rules.check_prefix(store) == [f"v2/{first.name}: the hash at its end is wrong"]


def test_a_full_that_is_not_whole_pages_is_told(plain):
    [full, *_], store = plain
    rewrite(full, payload=unpack(full)[:-32] + b"x")
    assert ebr_rules.check_prefix(store) == [
        f"v2/{full.name}: database and hash are not 32 bytes above a multiple of 512"
    ]


def test_a_suffix_that_ebr_cannot_read_is_told(plain):
    [full, *_], store = plain
    full.rename(full.with_suffix(".zst"))
    violations = ebr_rules.check_prefix(store)
    assert f"v2/{full.stem}.zst: unsupported compression .zst" in violations


def test_a_truncated_object_is_told(plain):
    [_, first, *_], store = plain
    first.write_bytes(first.read_bytes()[:-9])
    [violation] = ebr_rules.check_prefix(store)
    assert violation.startswith(f"v2/{first.name}: cannot be decompressed")


def test_fulls_that_sort_alike_are_told(plain):
    [full, *_], store = plain
    twin = full.with_suffix("")
    twin.write_bytes(unpack(full))
    assert f"v2/{full.name}: EBR cannot tell it from v2/{twin.name}" in ebr_rules.check_prefix(store)


@pytest.mark.parametrize(
    ("events", "problem"),
    [
        pytest.param([("a", 2 << 20)], "a request of 2097", id="a transaction of 2 MiB"),
        pytest.param([(f"key{n}", 1) for n in range(10_241)], "10241 operations", id="too many operations"),
    ],
)
def test_a_revision_that_ebr_cannot_replay_is_told(plain, events, problem):
    [*_, last], store = plain
    added = [
        {
            "etcdEvent": {
                "kv": {
                    "key": base64.b64encode(key.encode()).decode(),
                    "create_revision": 295,
                    "mod_revision": 295,
                    "version": 1,
                    "value": base64.b64encode(b"v" * size).decode(),
                }
            },
            "time": "2026-07-24T09:23:23Z",
        }
        for key, size in events
    ]
    rewrite(last.with_name("Incr-00000295-00000295-1795250799.gz"), added)
    [violation] = ebr_rules.check_prefix(store)
    assert "revision 295" in violation
    assert problem in violation
