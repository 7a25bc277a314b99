"""What a look at an entry's prefix finds: conditions, and metrics."""

from datetime import UTC, datetime, timedelta

import pytest

from rootcellar.backup.catalogue import documents, keys, names
from rootcellar.backup.catalogue.records import Check, Finding, Link, Proof, Result
from rootcellar.operator.backupentry.survey import FRESH, PROVEN, Survey, findings, survey
from rootcellar.stores import FileStore
from tests.kube.things import wait_until
from tests.operator.entry_scene import Scene

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


def ago(**time):
    return NOW - timedelta(**time)


def proof(result, *, check=Check.REPLAYED, at=NOW):
    return Proof(
        objects=(Link(key="v2/x", sha256="0" * 64),),
        revision=7,
        findings=(Finding(check=check, result=result, detail=""),),
        started_at=at,
        finished_at=at,
        by="a test",
    )


PASSED, FAILED = proof(Result.PASSED), proof(Result.FAILED)


@pytest.mark.parametrize(
    ("seen", "status", "reason"),
    [
        (Survey(), "Unknown", "NoSnapshots"),
        (Survey(beat=NOW), "Unknown", "NoSnapshots"),
        (Survey(newest=ago(days=9), beat=ago(minutes=29)), "True", "AgentAlive"),
        (Survey(newest=ago(minutes=1), beat=ago(hours=9)), "True", "AgentAlive"),
        (Survey(newest=ago(hours=1), beat=ago(minutes=31)), "False", "AgentSilent"),
        (Survey(newest=ago(hours=25)), "True", "Taken"),
        (Survey(newest=ago(hours=27)), "False", "SnapshotsOld"),
    ],
)
def test_snapshots_are_fresh_while_somebody_takes_them(seen, status, reason):
    found = {each.type: each for each in findings(seen, NOW)}[FRESH]
    assert (found.status, found.reason) == (status, reason)


@pytest.mark.parametrize(
    ("proofs", "status", "reason"),
    [
        ((), "Unknown", "NeverProven"),
        ((proof(Result.PASSED, check=Check.HASH),), "Unknown", "NeverProven"),
        ((PASSED,), "True", "Restored"),
        ((proof(Result.PASSED, check=Check.BOOTED),), "True", "Restored"),
        ((proof(Result.PASSED, check=Check.HASH), PASSED), "True", "Restored"),
        ((FAILED, PASSED), "False", "ProofFailed"),
        ((PASSED, FAILED), "True", "Restored"),
        ((proof(Result.PASSED, at=ago(days=8)),), "False", "ProofOld"),
    ],
)
def test_only_what_was_restored_lately_is_proven(proofs, status, reason):
    found = {each.type: each for each in findings(Survey(proofs=proofs), NOW)}[PROVEN]
    assert (found.status, found.reason) == (status, reason)


def test_one_listing_finds_them_all_and_nothing_stops_it(tmp_path):
    store = FileStore(tmp_path)
    full = names.full(7, int(ago(hours=2).timestamp()))
    store.put(f"etcd-main/{full.key}", [b"12345"])
    store.put(f"etcd-main/{names.delta(8, 9, int(ago(hours=1).timestamp())).key}", [b"123"])
    store.put("etcd-main/v2/no-snapshot-at-all", [b""])
    store.put(f"etcd-main/{keys.heartbeat(ago(minutes=5), 1)}", [b"{}"])
    store.put(f"etcd-main/{keys.HEARTBEATS}²_1.json", [b"{}"])
    documents.put_once(store, f"etcd-main/{keys.proof(full, NOW, 'a')}", PASSED)
    store.put(f"etcd-main/{keys.proof(full, NOW, 'b')}", [b"damaged"])
    found = survey(store, now=NOW)
    assert (found.newest, found.beat) == (ago(hours=1), ago(minutes=5))
    assert found.proofs == (PASSED,)
    assert found.objects == 7
    assert found.size > 8
    assert survey(FileStore(tmp_path / "nowhere"), now=NOW) == Survey()
    assert survey(FileStore(tmp_path.parent), f"{tmp_path.name}/", now=NOW) == found
    assert survey(FileStore(tmp_path.parent), f"{tmp_path.name}-b/", now=NOW) == Survey()


@pytest.mark.parametrize(
    "second", [int((NOW + timedelta(minutes=6)).timestamp()), 1_700_000_000_000_000, 2**63 - 1]
)
def test_what_names_a_time_to_come_neither_stops_a_look_nor_is_fresh(tmp_path, second):
    store = FileStore(tmp_path)
    store.put(f"etcd-main/{names.full(7, int(ago(days=2).timestamp())).key}", [b"x"])
    store.put(f"etcd-main/{names.full(8, second).key}", [b"x"])
    later = NOW + timedelta(minutes=6)
    store.put(f"etcd-main/{keys.heartbeat(later, 1)}", [b"{}"])
    store.put(f"etcd-main/{keys.HEARTBEATS}9999999999999_1.json", [b"{}"])
    old = names.full(7, int(ago(days=2).timestamp()))
    documents.put_once(store, f"etcd-main/{keys.proof(old, later, 'a')}", proof(Result.PASSED, at=later))
    found = survey(store, now=NOW)
    assert found == Survey(objects=5, size=found.size, newest=ago(days=2))
    assert {each.type: each.reason for each in findings(found, NOW)}[FRESH] == "SnapshotsOld"


def test_proofs_in_passing_hide_no_restore_and_few_are_read(tmp_path):
    store = FileStore(tmp_path)
    for number in range(50):
        taken = ago(minutes=50 - number)
        name = names.delta(8 + number, 8 + number, int(taken.timestamp()))
        passing = proof(Result.PASSED, check=Check.HASH, at=taken)
        documents.put_once(store, f"etcd-main/{keys.proof(name, taken, 'a')}", passing)
    old = names.full(7, int(ago(days=1).timestamp()))
    documents.put_once(store, f"etcd-main/{keys.proof(old, ago(hours=2), 'b')}", PASSED)
    documents.put_once(store, f"etcd-main/{keys.proof(old, ago(hours=3), 'c')}", FAILED)
    found = survey(store, now=NOW)
    assert found.proofs[-1] == PASSED
    assert len(found.proofs) == 4
    assert {each.type: each.reason for each in findings(found, NOW)}[PROVEN] == "Restored"


def test_a_look_writes_a_condition_when_it_flips_and_metrics_always(served, bucket, tmp_path):
    scene = Scene(served, bucket, tmp_path)
    store = scene.store(f"{scene.name}/etcd-main")

    def condition(type_):
        found = scene.get(scene.name).get("status", {}).get("conditions", [])
        return {each["type"]: each["reason"] for each in found}.get(type_)

    with scene.operator(looks=timedelta(seconds=0.2)) as operator:
        scene.create(scene.name, scene.spec())
        scene.stands(scene.name, "Create", "Succeeded")
        wait_until(lambda: condition(FRESH) == "NoSnapshots", "the first look")
        now = datetime.now(UTC)
        name = names.full(7, int(now.timestamp()))
        store.put(name.key, [b"12345"])
        wait_until(lambda: condition(FRESH) == "Taken", "the snapshot is seen")
        documents.put_once(store, keys.proof(name, now, "a"), proof(Result.PASSED, at=now))
        wait_until(lambda: condition(PROVEN) == "Restored", "the proof is seen")

        before = scene.get(scene.name)
        label = f'{{entry="{scene.name}"}}'

        def says(metric, value):
            return (
                f"rootcellar_entry_{metric}{label} {value}" in operator.manager.metrics.exposition().decode()
            )

        store.put(keys.pin(now, "b"), [b"{}"])
        wait_until(lambda: says("objects", "3.0"), "another look")
        exposition = operator.manager.metrics.exposition().decode()
        (line,) = [each for each in exposition.splitlines() if f"snapshot_timestamp_seconds{label}" in each]
        assert float(line.split()[-1]) == int(now.timestamp())
        assert scene.get(scene.name) == before, "a look that finds nothing new writes nothing"
        last = before["status"]["lastOperation"]
        assert (last["type"], last["state"]) == ("Create", "Succeeded"), "a look is no operation"

        scene.delete(scene.name)
        wait_until(lambda: scene.is_gone(scene.name), "it is gone")
        wait_until(lambda: not says("objects", "3.0"), "it is forgotten")
