"""Three pods as etcd-druid makes them, through the start protocol: two processes each, in networks of their
own, with leases on a real API server and a store that can go away.
"""

from __future__ import annotations

import re

import pytest

from tests.agent.druid_scene import Cluster

pytestmark = pytest.mark.timeout(900)
SIDECAR = "backup-restore"


@pytest.fixture(scope="module")
def started(tmp_path_factory, control_plane, seaweed):
    """Three pods that began with nothing."""
    with Cluster(tmp_path_factory.mktemp("druid"), control_plane, bucket=seaweed.new_bucket()) as cluster:
        cluster.start()
        yield cluster


@pytest.fixture
def cluster(started):
    """The three, whole; each test leaves them so."""
    started.wait_whole()
    return started


def test_three_members_from_nothing_are_one_cluster_that_is_backed_up(cluster):
    first, second, third = cluster.pods
    first.put("k", "fresh")
    assert third.get("k") == "fresh"
    assert first.cluster_id() == second.cluster_id() == third.cluster_id()
    roles = ["Leader", "Member", "Member"]
    cluster.wait(
        lambda: sorted((held or "").rpartition(":")[2] for held in cluster.holders()) == roles, "roles"
    )
    full, _ = cluster.etcd.snapshot_leases
    cluster.wait(lambda: cluster.lease(full).spec.holder_identity, "a full is in the store, and in its lease")
    # whichever sidecar is asked, the leader's cuts the delta
    cluster.wait(lambda: second.ask("/snapshot/delta")[0] == 200, "a delta")
    for pod in cluster.pods:
        assert (pod.volume / "safe_guard").read_text() == cluster.etcd.namespace
        assert (pod.data_dir / "member").stat().st_uid == 65532
    decided = [told for pod in cluster.pods for told in re.findall('text="decided: (\\w+)', pod.log(SIDECAR))]
    assert sorted(decided) in (["start"] * 3, ["join", "start", "start"])  # who comes late joins the others


def test_a_pod_that_is_restarted_starts_on_its_data_after_a_light_look(cluster):
    pod = cluster.pods[1]
    pod.put("k", "before")
    pod.delete()
    assert (pod.volume / "exit_code").read_text() == "terminated"
    cluster.pods[0].put("k", "meanwhile")
    pod.forget_logs()
    pod.start()
    cluster.wait_whole()
    assert pod.get("k") == "meanwhile"
    assert "start on the data that is there" in pod.log("backup-restore")
    assert "sanity" in pod.log("etcd")
    assert not pod.quarantines()


def test_while_the_store_is_away_a_lost_member_joins_again_and_a_healthy_one_starts(cluster):
    kept, lost, healthy = cluster.pods
    kept.put("k", "before")
    cluster.close_store()
    lost.delete()
    lost.new_volume()
    lost.forget_logs()
    lost.start()
    cluster.wait_whole()
    assert "joins again" in lost.log("backup-restore")
    healthy.delete()
    healthy.forget_logs()
    healthy.start()
    cluster.wait_whole()
    assert "start on the data that is there" in healthy.log("backup-restore")
    assert lost.get("k") == healthy.get("k") == "before"
    cluster.wait(lambda: len({pod.hash_kv() for pod in cluster.pods}) == 1, "all have the same")
    cluster.open_store()
