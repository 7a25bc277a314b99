"""The soak in short, on fixed seeds; `make soak` is the long one."""

from __future__ import annotations

import subprocess
import sys

import pytest

from testbed.cache import UnavailableError
from tests.soak.run import NO_MOUNTS, soak

SECONDS = 30


@pytest.mark.servers
@pytest.mark.timeout(900)
def test_after_a_storm_every_acknowledged_write_up_to_the_recovery_point_is_restorable(tmp_path):
    struck, proof = soak(tmp_path, seed=11, seconds=SECONDS, store="s3", samples=2, every=1.0)
    assert sum(struck.values()) >= SECONDS / 3
    assert any(each.hashed for each in proof.restores)


@pytest.mark.servers
@pytest.mark.timeout(900)
def test_so_it_is_when_the_store_s_disk_is_struck_too():
    """In a process of its own, because the disk's mounts are."""
    words = ("--store", "file", "--seed", "12", "--seconds", f"{SECONDS}", "--every", "1", "--samples", "2")
    ended = subprocess.run(
        [sys.executable, "-m", "tests.soak.run", *words], capture_output=True, text=True, check=False
    )
    if ended.returncode == NO_MOUNTS:
        raise UnavailableError(ended.stderr)
    assert ended.returncode == 0, ended.stdout + ended.stderr
