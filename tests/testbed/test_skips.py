import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDS_ETCD = "tests/testbed/test_etcd.py::test_a_failing_etcdctl_says_why"


@pytest.mark.parametrize(("ci", "outcome", "code"), [(None, "1 skipped", 0), ("true", "1 failed", 1)])
def test_what_cannot_be_had_skips_with_the_reason_and_fails_in_ci(ci, outcome, code, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "CI"}
    environment |= {"TESTBED_ETCD_3_6": str(tmp_path / "nowhere")} | ({"CI": ci} if ci else {})
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", NEEDS_ETCD],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome in done.stdout
    assert f"{tmp_path}/nowhere/etcd: not found" in done.stdout
    assert done.returncode == code
