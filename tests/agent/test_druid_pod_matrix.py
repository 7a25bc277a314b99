"""The rest of what can become of pods that etcd-druid made: deaths, damage, loss, growth, TLS."""

from __future__ import annotations

import shutil

import pytest

from tests.agent.door_scene import break_pages
from tests.agent.druid_scene import Cluster

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture
def clusters(tmp_path, control_plane):
    """Makes one cluster."""
    made = []

    def make(**how):
        made.append(Cluster(tmp_path / "cluster", control_plane, **how))
        return made[-1]

    yield make
    for each in made:
        each.__exit__()


@pytest.fixture
def three(clusters, bucket):
    cluster = clusters(bucket=bucket)
    cluster.start()
    cluster.wait_whole()
    cluster.pods[0].put("k", "kept")
    return cluster


def same_everywhere(cluster):
    cluster.wait(lambda: len({pod.hash_kv() for pod in cluster.pods}) == 1, "all have the same")


def backed_up(cluster):
    """Put something, and have it in the store; the hash and the revision."""
    pod = cluster.pods[0]
    pod.put("k", "kept")
    cluster.wait(lambda: pod.ask("/snapshot/delta")[0] == 200, "a delta")
    return pod.hash_kv()


def damage(pod):
    break_pages(pod.data_dir / "member" / "snap" / "db")


# restarts


def test_all_three_killed_at_once_come_back_with_what_they_had(three):
    before = three.pods[0].cluster_id(), three.pods[0].hash_kv()
    for pod in three.pods:
        pod.crash()
        assert not (pod.volume / "exit_code").exists()
        pod.forget_logs()
    three.start()
    three.wait_whole()
    assert (three.pods[0].cluster_id(), three.pods[0].hash_kv()) == before
    for pod in three.pods:
        assert "start on the data that is there" in pod.log("backup-restore")
        assert "full" in pod.log("etcd")
        assert not pod.quarantines()


def test_a_killed_etcd_container_comes_back_and_a_killed_sidecar_disturbs_no_etcd(three):
    pod = three.pods[0]
    pod.kill("etcd")
    three.wait(lambda: pod.restarts == 1, "restarted")
    three.wait_whole()
    began = pod.containers["etcd"].pid
    pod.kill("backup-restore")
    three.wait(lambda: pod.restarts == 2, "restarted")
    three.wait(lambda: pod.ask("/initialization/status")[1] == "New", "the sidecar answers")
    assert pod.containers["etcd"].pid == began
    assert pod.get("k") == "kept"
    three.wait(lambda: three.lease(pod.name).spec.renew_time, "the lease is renewed")


# one member of three


@pytest.mark.parametrize("provider", ["S3", "Local", ""], ids=["S3", "Local", "no store"])
def test_damaged_data_goes_to_quarantine_and_the_member_joins_again(clusters, bucket, provider):
    cluster = clusters(bucket=bucket) if provider == "S3" else clusters(provider=provider)
    cluster.start()
    cluster.wait_whole()
    kept, _, damaged = cluster.pods
    kept.put("k", "kept")
    damaged.crash()
    damage(damaged)
    damaged.forget_logs()
    damaged.start()
    cluster.wait_whole()
    same_everywhere(cluster)
    (quarantine,) = damaged.quarantines()
    assert (quarantine / "snap" / "db").exists()
    assert "the database is damaged" in damaged.log("backup-restore")
    assert "joins again" in damaged.log("backup-restore")


def test_when_two_of_three_are_lost_they_wait_and_nothing_is_destroyed(three, tmp_path):
    """A quorum's data is gone: no program may decide that what is left is the truth."""
    survivor, *lost = three.pods
    for pod in lost:
        pod.crash()
        shutil.copytree(pod.volume, tmp_path / pod.name, symlinks=True)
        pod.new_volume()
        pod.forget_logs()
    three.start(*lost)
    for pod in lost:
        three.wait_told(pod, "backup-restore", "has been a member, and the cluster does not answer")
        assert not (pod.data_dir / "member").exists()
        assert "restore the cluster" in pod.log("backup-restore")
    assert not survivor.is_ready
    assert (survivor.data_dir / "member" / "snap" / "db").exists()
    survivor.delete()
    survivor.forget_logs()
    survivor.start()  # and it starts, though nobody answers
    three.wait_told(survivor, "backup-restore", "start on the data that is there")
    (found, *_) = lost
    found.delete()  # the volume of one is found again
    shutil.rmtree(found.volume)
    shutil.copytree(tmp_path / found.name, found.volume, symlinks=True)
    found.own_volume()
    found.start()
    three.wait_whole()
    same_everywhere(three)
    assert survivor.get("k") == "kept"


# one member alone


@pytest.fixture
def single(clusters, bucket):
    cluster = clusters(bucket=bucket, replicas=1)
    cluster.start()
    cluster.wait_whole()
    return cluster


@pytest.mark.parametrize("how", ["damaged", "emptied"])
def test_a_single_member_is_restored_from_the_store(single, how):
    (pod,) = single.pods
    hashed = backed_up(single)
    pod.crash()
    if how == "damaged":
        damage(pod)
    else:
        pod.new_volume()
    pod.forget_logs()
    pod.start()
    single.wait_whole()
    assert pod.hash_kv() == hashed
    assert len(pod.quarantines()) == (how == "damaged")
    assert "restore from the store" in pod.log("backup-restore")


def test_a_single_member_without_a_store_starts_empty_and_its_damaged_data_is_kept(clusters):
    cluster = clusters(provider="", replicas=1)
    cluster.start()
    cluster.wait_whole()
    (pod,) = cluster.pods
    pod.put("k", "lost")
    pod.crash()
    damage(pod)
    pod.start()
    cluster.wait_whole()
    assert pod.get("k") == ""
    assert len(pod.quarantines()) == 1


def test_a_damaged_single_member_waits_for_its_store_and_a_healthy_one_does_not(single):
    (pod,) = single.pods
    hashed = backed_up(single)
    pod.delete()
    single.close_store()
    pod.forget_logs()
    pod.start()
    single.wait_whole()
    assert "start on the data that is there" in pod.log("backup-restore")
    pod.crash()
    damage(pod)
    pod.forget_logs()
    pod.start()
    single.wait_told(pod, "backup-restore", "the store cannot be read")
    assert not pod.quarantines()
    single.open_store()
    single.wait_whole()
    assert pod.hash_kv() == hashed
    assert len(pod.quarantines()) == 1


# growth


def test_one_member_becomes_three(single):
    first = single.pods[0]
    hashed = backed_up(single)
    new = single.scale(3)
    single.start(*new)
    single.wait_ready(*new)
    first.delete()  # rolled last, for the ConfigMap's checksum
    first.start()
    single.wait_whole()
    same_everywhere(single)
    assert hashed == first.hash_kv()
    for pod in new:
        assert "is new to the cluster" in pod.log("backup-restore")


def test_three_new_members_over_a_backup_come_up_one_after_the_other(single, clusters, tmp_path):
    """Druid's 3.8: there, each waits for the others for ever."""
    hashed = backed_up(single)
    single.pods[0].delete()
    single.pods[0].new_volume()
    single.scale(3)
    single.new_leases()
    single.start()
    single.wait_whole()
    same_everywhere(single)
    assert single.pods[0].hash_kv() == hashed
    assert "restore from the store" in single.pods[0].log("backup-restore")


# TLS


def test_clients_by_tls_and_peers_that_change_to_it_while_they_run(clusters, bucket):
    cluster = clusters(bucket=bucket, client_tls=True)
    cluster.start()
    cluster.wait_whole()
    cluster.pods[0].put("k", "kept")
    cluster.wait(lambda: cluster.tls_annotations() == ["false"] * 3, "all leases say how they are reached")
    cluster.etcd.peer_tls = True
    cluster.write_config()
    # As the StatefulSet is rolled: for the ready pod alone, which is asked at once and not after 15 seconds.
    for pod in reversed(cluster.pods):
        pod.delete()
        pod.start()
        cluster.wait_ready()
    cluster.wait(lambda: cluster.tls_annotations() == ["true"] * 3, "all peers are reached by TLS")
    cluster.wait_whole()
    assert cluster.pods[2].get("k") == "kept"
    assert [pod.restarts for pod in cluster.pods] == [0, 0, 0], "each was moved before its etcd began"
