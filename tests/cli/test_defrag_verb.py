"""`defrag` from a command line."""

from __future__ import annotations

import pytest

from rootcellar.etcd.client import EtcdClient
from tests.agent.test_defragment import fill, wasteful


@pytest.fixture
def wasting(etcd):
    """A member whose file is mostly holes."""
    member = etcd.start("3.6")
    with EtcdClient([member.endpoint]) as client:
        fill(client)
        wasteful(client)
    return member


def test_a_dry_run_says_whose_turn_it_is_and_does_nothing(ok, wasting):
    words = ("defrag", "--endpoints", wasting.endpoint, "--least", "1MiB", "--output", "json")
    planned = ok(*words, "--dry-run").json
    (member,) = planned["members"]
    assert (planned["dryRun"], member["leader"], member["after"]) == (True, True, None)
    done = ok(*words).json
    assert done["members"][0]["before"] >= member["before"]
    assert done["members"][0]["after"] < member["before"] // 2
    assert ok(*words, "--dry-run").json["members"][0]["after"] is None


def test_a_member_that_wastes_little_is_spared(ok, wasting):
    shown = ok("defrag", "--endpoints", wasting.endpoint, "--least", "1TiB").out
    assert "default  leader" in shown
    assert "now" not in shown


@pytest.mark.parametrize("waste", ["much", "-1", "101"])
def test_a_share_is_a_percentage(cli, waste):
    result = cli("defrag", "--endpoints", "http://127.0.0.1:1", f"--waste={waste}")
    assert result.code == 11
    assert "not a number of percent" in result.err
