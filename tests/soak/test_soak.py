"""The soak in short, on fixed seeds; `make soak` is the long one."""

from __future__ import annotations

import pytest

from tests.soak.run import soak

SECONDS = 40


@pytest.mark.servers
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("store", "seed"), [("s3", 11), ("file", 12)])
def test_after_a_storm_every_acknowledged_write_up_to_the_recovery_point_is_restorable(store, seed, tmp_path):
    struck, proof = soak(tmp_path, seed=seed, seconds=SECONDS, store=store, samples=3, every=1.2)
    assert sum(struck.values()) >= SECONDS / 3
    assert proof.gaps == 0
    assert any(each.hashed for each in proof.restores)
