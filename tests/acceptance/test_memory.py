"""A gigabyte goes through a capture and a restore in the memory that a small one takes."""

from __future__ import annotations

import sys

import pytest

from benchmarks.measure import measure
from benchmarks.workload import Size, fill
from rootcellar.etcd.client import EtcdClient

GIGABYTE = Size("1 GB", 330_000, 3000, 0)
CAPTURE_MIB = 180  # at any size of database
RESTORE_MIB = 220  # a sixth of what replaying workload R takes


def rootcellar(*arguments):
    return measure([sys.executable, "-m", "rootcellar", *map(str, arguments)])


@pytest.mark.long
def test_a_gigabyte_stays_within_the_memory_bars(etcd, tmp_path):
    source = etcd.start("3.5", flags=["--quota-backend-bytes=8589934592"])
    with EtcdClient([source.endpoint]) as client:
        fill(client, GIGABYTE)
    store = tmp_path / "store"

    captured = rootcellar("snapshot", "full", store, "--endpoints", source.endpoint)
    source.stop()
    restored = rootcellar("restore", store, "--data-dir", tmp_path / "data", "--bump-revision", "0")

    assert (tmp_path / "data/member/snap/db").stat().st_size > 1e9
    assert captured.peak < CAPTURE_MIB
    assert restored.peak < RESTORE_MIB
