"""When a BackupBucket is looked at, when it is changed, and when its status is written."""

from datetime import UTC, datetime, timedelta

import pytest

from rootcellar.operator.backupbucket.run import DRY_RUN
from tests.kube.things import wait_until
from tests.operator.buckets import Scene
from tests.operator.conftest import keys_of
from tests.stores.proxy import Answer, Proxy, refusal

SOON = timedelta(milliseconds=200)


@pytest.fixture
def scene(served, bucket, tmp_path):
    return Scene(served, bucket, tmp_path)


def rules(scene):
    try:
        return scene.s3.get_bucket_lifecycle_configuration(Bucket=scene.name)["Rules"]
    except scene.s3.exceptions.ClientError:
        return None


def turns(operator):
    return sum(each["event"] == "reconciled" for each in operator.logged)


def further(operator, count=2):
    """Wait for so many reconciles more."""
    goal = turns(operator) + count
    wait_until(lambda: turns(operator) >= goal, f"{count} reconciles")


def is_ready(found):
    """What gardenlet waits for (reference: gardener, pkg/utils/kubernetes/health, CheckExtensionObject)."""
    meta, status = found["metadata"], found.get("status", {})
    last = status.get("lastOperation", {})
    asked = meta.get("annotations", {}).get("gardener.cloud/timestamp")
    return (
        "lastError" not in status
        and status.get("observedGeneration") == meta["generation"]
        and "gardener.cloud/operation" not in meta.get("annotations", {})
        and last.get("state") == "Succeeded"
        and (asked is None or last["lastUpdateTime"] >= f"{asked[:19]}Z")
    )


@pytest.mark.parametrize("ahead", [timedelta(0), timedelta(seconds=30)], ids=["same clock", "clock behind"])
def test_gardenlet_s_order_is_answered_as_it_waits_for_it(scene, ahead):
    """Also where the clock of who gave the order is ahead of ours."""
    with scene.operator():
        scene.made()
        now = (datetime.now(UTC) + ahead).isoformat().replace("+00:00", "123Z")
        annotations = {"gardener.cloud/operation": "reconcile", "gardener.cloud/timestamp": now}
        patch = {"metadata": {"annotations": annotations}, "spec": {"providerConfig": {"any": "thing"}}}
        scene.client.merge_patch(scene.any, scene.name, patch)
        wait_until(lambda: is_ready(scene.get(scene.name)), "it is ready")
        assert scene.get(scene.name)["status"]["observedGeneration"] == 2


def test_a_check_mends_drift_and_writes_nothing(scene):
    with scene.operator(again=SOON) as operator:
        scene.made()
        before, hardened = scene.get(scene.name), rules(scene)
        assert hardened
        scene.s3.delete_bucket_lifecycle(Bucket=scene.name)
        wait_until(lambda: rules(scene) == hardened, "the rule is put back")
        further(operator)
        assert scene.get(scene.name)["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


def test_a_dry_run_that_was_taken_back_is_followed_by_checks(scene):
    with scene.operator(again=SOON) as operator:
        scene.made()
        hardened = rules(scene)
        scene.annotate(scene.name, **{DRY_RUN: "true"})
        wait_until(lambda: scene.conditions().get("Planned") == ("True", "DryRun"), "the plan")
        scene.s3.delete_bucket_lifecycle(Bucket=scene.name)
        further(operator)
        assert rules(scene) is None
        scene.annotate(scene.name, **{DRY_RUN: None})
        wait_until(lambda: rules(scene) == hardened, "the rule is put back")
        wait_until(lambda: "Planned" not in scene.conditions(), "nothing is planned any more")


def test_a_check_does_not_carry_out_what_nobody_has_ordered_yet(scene):
    with scene.operator(again=SOON) as operator:
        scene.made()
        scene.change(scene.name, secretRef={"name": "missing", "namespace": scene.namespace})
        before = scene.get(scene.name)
        further(operator)
        assert scene.get(scene.name) == before
        scene.secret("missing", scene.keys)
        scene.ask(scene.name, "reconcile")
        found = scene.stands(scene.name, "Reconcile", "Succeeded")
        assert found["status"]["observedGeneration"] == 2


def test_a_process_that_begins_looks_at_what_is_well_without_a_write(scene):
    with scene.operator():
        scene.made()
    before, hardened = scene.get(scene.name), rules(scene)
    scene.s3.delete_bucket_lifecycle(Bucket=scene.name)
    with scene.operator() as operator:
        wait_until(lambda: rules(scene) == hardened, "the rule is put back")
        operator.rest()
        assert scene.get(scene.name) == before


def test_a_store_that_is_away_is_told_and_all_is_well_when_it_is_back(scene):
    port = int(scene.there.endpoint.rpartition(":")[2])
    with Proxy(port) as proxy:
        scene.secret("backup", keys_of(scene.there, endpoint=proxy.endpoint))
        with scene.operator() as operator:
            scene.made()
            proxy.upstream = 9  # nobody is there
            scene.ask(scene.name, "reconcile")
            found = scene.stands(scene.name, "Reconcile", "Error")
            assert found["status"]["lastError"]["codes"] == ["ERR_RETRYABLE_INFRA_DEPENDENCIES"]
            assert scene.conditions()["BucketReachable"] == ("False", "Away")
            proxy.upstream = port
            found = scene.stands(scene.name, "Reconcile", "Succeeded")
            assert "lastError" not in found["status"]
            assert scene.conditions()["BucketReachable"] == ("True", "Marked")
            operator.rest()


def test_somebody_else_s_bucket_is_an_error_and_is_left_alone(scene):
    with Proxy(int(scene.there.endpoint.rpartition(":")[2])) as proxy:
        proxy.on(f"PUT /{scene.name}".encode(), refusal(409, "BucketAlreadyExists"), times=1000)
        scene.secret("backup", keys_of(scene.there, endpoint=proxy.endpoint))
        with scene.operator():
            scene.create(scene.name, scene.spec())
            found = scene.stands(scene.name, "Create", "Error")
            assert "somebody else has a bucket of this name" in found["status"]["lastError"]["description"]
            assert found["status"]["lastError"]["codes"] == ["ERR_CONFIGURATION_PROBLEM"]
            assert scene.conditions()["BucketReachable"] == ("False", "SomebodyElses")
            scene.deleted()


def test_an_open_bucket_of_somebody_else_with_our_name_is_not_taken(scene):
    """He would be given every backup.  Who may list his buckets does not find it among them."""
    scene.s3.put_object(Bucket=scene.there.name, Key="theirs", Body=b"x")
    none = b"<ListAllMyBucketsResult><Buckets></Buckets></ListAllMyBucketsResult>"
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nContent-Length: %d\r\n\r\n"
    with Proxy(int(scene.there.endpoint.rpartition(":")[2])) as proxy:
        proxy.on(b"GET / HTTP", Answer(head % len(none) + none), times=1000)
        scene.secret("backup", keys_of(scene.there, endpoint=proxy.endpoint))
        with scene.operator():
            scene.create(scene.there.name, scene.spec())
            found = scene.stands(scene.there.name, "Create", "Error")
            assert "the bucket is another account's" in found["status"]["lastError"]["description"]
            assert found["status"]["lastError"]["codes"] == ["ERR_CONFIGURATION_PROBLEM"]
            conditions = {each["type"]: each["reason"] for each in found["status"]["conditions"]}
            assert conditions["BucketReachable"] == "SomebodyElses"
            scene.delete(scene.there.name)
            wait_until(lambda: scene.is_gone(scene.there.name), "it is gone")
    listed = scene.s3.list_objects_v2(Bucket=scene.there.name)["Contents"]
    assert [each["Key"] for each in listed] == ["theirs"], "no mark, no backup"


def test_a_bucket_that_is_made_and_cannot_be_marked_at_once_is_ours_all_the_same(scene):
    """A process that lives knows what it has made: only a killed one leaves a bucket that nobody deletes."""
    with Proxy(int(scene.there.endpoint.rpartition(":")[2])) as proxy:
        proxy.on(f"PUT /{scene.name}/_rootcellar".encode(), refusal(503, "SlowDown"), times=1000)
        scene.secret("backup", keys_of(scene.there, endpoint=proxy.endpoint))
        with scene.operator():
            scene.create(scene.name, scene.spec())
            found = scene.stands(scene.name, "Create", "Error")
            assert found["status"]["lastError"]["taskID"] == "mark"
            assert scene.name in scene.buckets()
            proxy.clear()
            scene.stands(scene.name, "Create", "Succeeded")
            scene.deleted()
    assert scene.name not in scene.buckets()


def test_a_spec_that_changes_during_an_operation_is_not_told_as_carried_out(scene):
    with Proxy(int(scene.there.endpoint.rpartition(":")[2])) as proxy:
        changes = [{"name": "missing", "namespace": scene.namespace}]

        def change_at_the_end(request):
            if b"delimiter=" in request and changes:  # what lies there is listed when the rest is done
                scene.change(scene.name, secretRef=changes.pop())

        scene.secret("backup", keys_of(scene.there, endpoint=proxy.endpoint))
        with scene.operator() as operator:
            scene.made()
            proxy.always(change_at_the_end)
            scene.ask(scene.name, "reconcile")
            wait_until(lambda: not changes, "it has changed")
            found = scene.stands(scene.name, "Reconcile", "Succeeded")
            assert (found["metadata"]["generation"], found["status"]["observedGeneration"]) == (2, 1)
            operator.rest()


def test_a_missing_secret_leaves_it_processing_and_a_condition_says_why(scene):
    with scene.operator():
        spec = scene.spec(secretRef={"name": "late", "namespace": scene.namespace})
        scene.create(scene.name, spec)
        wait_until(lambda: scene.conditions().get("CredentialsFound") == ("False", "SecretMissing"), "why")
        found = scene.stands(scene.name, "Create", "Processing")
        assert {"lastError", "observedGeneration"}.isdisjoint(found["status"])
        scene.secret("late", scene.keys)
        found = scene.stands(scene.name, "Create", "Succeeded")
        assert "CredentialsFound" not in scene.conditions()


def test_new_credentials_are_used_from_the_next_order_on(scene):
    with scene.operator():
        scene.made()
        scene.secret("backup", {**scene.keys, "secretAccessKey": "revoked"})
        scene.ask(scene.name, "reconcile")
        found = scene.stands(scene.name, "Reconcile", "Error")
        assert found["status"]["lastError"]["codes"] == ["ERR_INFRA_UNAUTHORIZED"]
        assert scene.conditions()["BucketReachable"] == ("False", "Denied")
        scene.secret("backup", scene.keys)
        scene.stands(scene.name, "Reconcile", "Succeeded")


def test_without_regard_to_annotations_specs_and_secrets_count(scene):
    """Gardener's own integration test of this mode, in its order."""
    with scene.operator(ignore_annotation=True) as operator:
        scene.create(scene.name, scene.spec())
        wait_until(lambda: _generation(scene) == 1, "it is ready")
        operator.rest()
        before = scene.get(scene.name)
        done = turns(operator)
        scene.annotate(scene.name, note="x", **{"gardener.cloud/operation": "reconcile"})
        scene.annotate(scene.name, **{"gardener.cloud/operation": None})
        other = f"{scene.name}-2"
        scene.create(other, scene.spec())
        wait_until(lambda: scene.get(other).get("status", {}).get("observedGeneration") == 1, "another")
        operator.rest()
        assert scene.get(scene.name)["status"] == before["status"], "annotations are no orders"

        scene.change(scene.name, secretRef={"name": "new", "namespace": scene.namespace})
        wait_until(lambda: scene.conditions().get("CredentialsFound") == ("False", "SecretMissing"), "tried")
        scene.secret("new", {**scene.keys, "secretAccessKey": "wrong"})
        found = scene.stands(scene.name, "Reconcile", "Error")
        assert found["status"]["observedGeneration"] == 2
        scene.secret("new", scene.keys)
        scene.stands(scene.name, "Reconcile", "Succeeded")
        operator.rest()
        done = turns(operator)
        scene.secret("new", {**scene.keys, "note": "rotated"})
        wait_until(lambda: turns(operator) > done, "the change of the secret is seen")
        scene.stands(scene.name, "Reconcile", "Succeeded")

        scene.annotate(scene.name, **{DRY_RUN: "true"})
        wait_until(lambda: scene.conditions().get("Planned") == ("True", "DryRun"), "the plan")
        scene.annotate(scene.name, **{DRY_RUN: None})
        wait_until(lambda: "Planned" not in scene.conditions(), "it is taken up again")
        scene.deleted()


def _generation(scene):
    found = scene.get(scene.name).get("status", {})
    is_done = found.get("lastOperation", {}).get("state") == "Succeeded"
    return found.get("observedGeneration") if is_done else None
