"""The backups that EBR wrote come back to the HashKV that their etcd had, offline and in a started etcd."""

from __future__ import annotations

import json

import pytest

from rootcellar.bolt.file import BoltFile
from rootcellar.mvcc.hashkv import HashKV, hash_kv
from tests.backup.ebr_data import EBR, EBR_NAMES
from tests.backup.plans import restore_into


def targets():
    """(fixture, revision, the HashKV that its etcd answered there) for all that were recorded."""
    for name in EBR_NAMES:
        recorded = json.loads((EBR / name / "expected.json").read_text())["hashkv"]
        for revision, said in recorded.items():
            if said != "compacted":
                found = HashKV(said["hash"], int(revision), said["compact_revision"])
                yield pytest.param(name, found, id=f"{name}@{revision}")


@pytest.mark.parametrize(("ebr_backup", "recorded"), [*targets()], indirect=["ebr_backup"])
def test_every_recorded_revision_comes_back_to_its_hash(ebr_backup, recorded, tmp_path):
    restored = restore_into(
        tmp_path / "data", ebr_backup.store, recorded.revision, compact_to=recorded.compact_revision
    )

    assert restored.hashkv == recorded


@pytest.mark.parametrize("ebr_backup", ["none-compacted-3.5"], indirect=True)
def test_what_the_source_compacted_later_can_be_restored_with_its_history(ebr_backup, tmp_path):
    """Nobody recorded these hashes; but the chain restored to its end holds the same history."""
    restore_into(tmp_path / "whole", ebr_backup.store)
    compacted = [int(at) for at, said in ebr_backup.expected["hashkv"].items() if said == "compacted"]
    with BoltFile(tmp_path / "whole" / "member" / "snap" / "db") as whole:
        for revision in compacted:
            restored = restore_into(tmp_path / str(revision), ebr_backup.store, revision)

            assert restored.revision == revision
            assert restored.hashkv == hash_kv(whole, revision)
    assert len(compacted) == 6
