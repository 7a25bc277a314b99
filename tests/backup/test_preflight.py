from __future__ import annotations

import shutil

import msgspec
import pytest

from rootcellar.backup.restore.plan import PlannedObject
from rootcellar.backup.restore.preflight import MARGIN, check_quota, check_space, estimate
from rootcellar.errors import QuotaError, TargetError
from tests.backup.test_restore_plan import plan

MIB = 1 << 20


def planned(size, payload=0):
    return PlannedObject("v2/object", size, ".gz", 5, payload_size=payload)


def test_recorded_sizes_count_and_stored_ones_where_there_are_none():
    recorded = plan(full=planned(10, 100), deltas=(planned(3, 30), planned(4)))
    assert estimate(recorded) == 100 + 30 + 4 + MARGIN


def test_a_compaction_needs_room_for_stored_deltas_beside_the_database():
    compacting = plan(full=planned(10, 100), deltas=(planned(3, 30),), compact_revision=4)
    assert estimate(compacting) == 100 + 30 + 3 + MARGIN


def test_a_full_that_is_recorded_as_too_large_is_refused_before_it_is_fetched():
    large = plan(full=planned(10, 3 * MIB), quota=2 * MIB)
    with pytest.raises(QuotaError, match="has 3 MiB, etcd's quota is 2 MiB") as caught:
        check_quota(large)
    assert "--quota" in caught.value.hint
    check_quota(msgspec.structs.replace(large, quota=3 * MIB))
    check_quota(msgspec.structs.replace(large, quota=0))


def test_the_real_size_is_held_against_the_quota_too():
    small = plan(full=planned(10, 100), quota=2 * MIB)
    check_quota(small)
    with pytest.raises(QuotaError):
        check_quota(small, size=2 * MIB + 1)


def test_members_on_one_file_system_need_its_room_together(tmp_path):
    directories = [tmp_path / name for name in ("a", "b", "c")]
    for directory in directories:
        directory.mkdir()
    free = shutil.disk_usage(tmp_path).free
    # Far from both limits: other tests fill and free this disk meanwhile.
    half = plan(full=planned(1, free // 2), deltas=(), quota=0)
    check_space(half, directories[:1])
    with pytest.raises(TargetError, match=r"MiB free, the restore needs [\d,]+ MiB") as caught:
        check_space(half, directories)
    assert "another file system" in caught.value.hint
