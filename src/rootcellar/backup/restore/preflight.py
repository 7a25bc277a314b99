"""What is checked before a restore writes its first byte, and once more when the size is known."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from rootcellar.errors import QuotaError, TargetError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from rootcellar.backup.restore.plan import PlannedObject, RestorePlan

MARGIN = 16 << 20
"""Bytes: WAL, raft snapshot and the branch pages of a restored member take less."""


def check_quota(plan: RestorePlan, *, size: int | None = None) -> None:
    """Raise QuotaError when the result (`size` in bytes, else what the records promise at least) is over
    quota.

    etcd would start on it and refuse every write until someone compacts, defragments and disarms the alarm.
    """
    least = plan.full.payload_size if size is None else size
    if least > plan.quota > 0:
        raise QuotaError(
            f"the restored database has {_mib(least)}, etcd's quota is {_mib(plan.quota)}",
            hint="give the quota etcd will run with (--quota), or restore with --compact-to",
        )


def check_space(plan: RestorePlan, data_dirs: Iterable[Path]) -> None:
    """Raise TargetError when a file system cannot take what will be written to it."""
    needed: dict[int, int] = {}
    places: dict[int, Path] = {}
    for data_dir in data_dirs:
        device = data_dir.stat().st_dev
        needed[device] = needed.get(device, 0) + estimate(plan)
        places[device] = data_dir
    for device, bytes_needed in needed.items():
        free = shutil.disk_usage(places[device]).free
        if free < bytes_needed:
            raise TargetError(
                f"{places[device]} has {_mib(free)} free, the restore needs {_mib(bytes_needed)}",
                hint="free space there, or restore into another file system",
            )


def estimate(plan: RestorePlan) -> int:
    """Bytes that one member will take: recorded sizes where there are some, else stored ones as a lower
    bound.
    """
    spool = sum(planned.size for planned in plan.deltas) if plan.compact_revision >= 0 else 0
    return _payload(plan.full) + sum(map(_payload, plan.deltas)) + spool + MARGIN


def _payload(planned: PlannedObject) -> int:
    return planned.payload_size or planned.size


def _mib(size: int) -> str:
    return f"{size / (1 << 20):,.0f} MiB"
