"""Orders, operations and the status of extension objects: Gardener's tables, row by row."""

import json
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from rootcellar.errors import DeniedError
from rootcellar.kube.cache import Change
from rootcellar.kube.kinds import Key, Meta
from rootcellar.kube.writes import pruned
from rootcellar.operator.backupbucket.types import BackupBucket, BackupBucketSpec
from rootcellar.operator.shared.extension import Condition, LastOperation, SecretReference
from rootcellar.operator.shared.gardener import OPERATION, TIMESTAMP, OperationType, State
from rootcellar.operator.shared.operation import is_ours, operation_of, orders
from rootcellar.operator.shared.status import Finding, conditions, failed, moment, processing, succeeded

NOW = datetime(2026, 3, 4, 5, 6, 7, 890_000, tzinfo=UTC)
SECOND = NOW.replace(microsecond=0)


def last(type_, state):
    return LastOperation(description="", last_update_time=NOW, progress=1, state=state, type=type_)


def meta(asked=None, *, deleted=False, **fields):
    annotations = {OPERATION: asked} if asked else {}
    return Meta(
        annotations=annotations, deletion_timestamp="2026-01-01T00:00:00Z" if deleted else None, **fields
    )


@pytest.mark.parametrize(
    ("asked", "deleted", "before", "operation"),
    [
        ("migrate", True, None, "Migrate"),
        ("migrate", False, ("Create", "Error"), "Migrate"),
        ("restore", True, None, "Delete"),
        ("reconcile", True, ("Create", "Processing"), "Delete"),
        ("restore", False, None, "Restore"),
        ("restore", False, ("Create", "Error"), "Restore"),
        (None, False, None, "Create"),
        ("reconcile", False, None, "Create"),
        (None, False, ("Create", "Processing"), "Create"),
        ("reconcile", False, ("Create", "Error"), "Create"),
        (None, False, ("Create", "Succeeded"), "Reconcile"),
        (None, False, ("Migrate", "Error"), "Migrate"),
        (None, False, ("Migrate", "Succeeded"), "Reconcile"),
        (None, False, ("Restore", "Processing"), "Restore"),
        (None, False, ("Restore", "Succeeded"), "Reconcile"),
        (None, False, ("Reconcile", "Error"), "Reconcile"),
        ("wait-for-state", False, ("Reconcile", "Succeeded"), "Reconcile"),
    ],
)
def test_the_operation_is_the_one_gardener_would_name(asked, deleted, before, operation):
    assert operation_of(meta(asked, deleted=deleted), last(*before) if before else None) == operation


def raw(*, asked=None, deleted=False, before=None, generation=1, type_="S3", class_=None, note=None):
    """A BackupBucket as the API server sends it."""
    found = {
        "metadata": {"name": "b", "generation": generation, "annotations": {}},
        "spec": {"type": type_, "region": "r", **({"class": class_} if class_ else {})},
        "status": {},
    }
    if asked:
        found["metadata"]["annotations"][OPERATION] = asked
    if note:
        found["metadata"]["annotations"]["note"] = note
    if deleted:
        found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if before:
        found["status"]["lastOperation"] = msgspec.to_builtins(last(*before))
    return json.dumps(found).encode()


def change(old, new):
    return Change(Key("", "b"), old, new)


DONE = ("Reconcile", "Succeeded")


@pytest.mark.parametrize(
    ("old", "new", "by_order", "by_generation"),
    [
        # found at the start
        (None, {}, True, True),
        (None, {"before": DONE}, False, True),
        (None, {"before": ("Reconcile", "Error")}, True, True),
        (None, {"before": ("Create", "Processing")}, True, True),
        (None, {"before": DONE, "asked": "reconcile"}, True, True),
        (None, {"before": DONE, "asked": "restore"}, True, True),
        (None, {"before": DONE, "asked": "migrate"}, True, True),
        (None, {"before": DONE, "asked": "wait-for-state"}, False, True),
        (None, {"before": DONE, "deleted": True}, True, True),
        # changed
        ({"before": DONE}, {"before": DONE, "asked": "reconcile"}, True, False),
        ({"before": DONE}, {"before": DONE, "asked": "restore"}, True, False),
        ({"before": DONE}, {"before": DONE, "asked": "migrate"}, True, False),
        ({"before": DONE}, {"before": DONE, "asked": "wait-for-state"}, False, False),
        ({"before": DONE}, {"before": DONE, "generation": 2}, False, True),
        ({"before": DONE}, {"before": DONE, "note": "x"}, False, False),
        ({"before": DONE}, {"before": ("Reconcile", "Error")}, False, False),
        ({"before": DONE}, {"before": DONE, "deleted": True, "generation": 2}, True, True),
        ({"before": DONE, "deleted": True}, {"before": DONE, "deleted": True, "note": "x"}, True, False),
        (
            {"before": DONE, "deleted": True},
            {"before": ("Delete", "Error"), "deleted": True},
            False,
            False,
        ),
        # gone
        ({"before": DONE}, None, False, False),
    ],
)
def test_a_change_is_an_order_or_not(old, new, by_order, by_generation):
    found = change(raw(**old) if old is not None else None, raw(**new) if new is not None else None)
    assert orders({"S3"}, (), ignore_annotation=False)(found) is by_order
    assert orders({"S3"}, (), ignore_annotation=True)(found) is by_generation


@pytest.mark.parametrize(
    ("classes", "class_", "ours"),
    [
        ((), None, True),
        ((), "shoot", True),
        ((), "garden", False),
        (("",), None, True),
        (("",), "shoot", True),
        (("garden",), None, False),
        (("garden",), "garden", True),
        (("garden", "shoot"), None, True),
        (("seed",), "shoot", False),
    ],
)
def test_an_object_is_for_those_of_its_class_and_type(classes, class_, ours):
    spec = BackupBucketSpec(type="S3", region="r", secret_ref=SecretReference(), class_=class_)
    assert is_ours(spec, {"aws", "S3"}, classes) is ours
    assert not is_ours(spec, {"aws"}, classes)
    for ignore in (True, False):
        accepts = orders({"S3"}, classes, ignore_annotation=ignore)
        assert accepts(change(None, raw(class_=class_))) is ours
        assert not accepts(change(None, raw(class_=class_, type_="gcp")))


@pytest.mark.parametrize(
    ("asked", "at"),
    [
        (None, SECOND),
        ("nonsense", SECOND),
        ("9999-99-99", SECOND),
        ("2026-03-04T05:06:07.999999999Z", SECOND),
        ("2026-03-04T05:06:00Z", SECOND),
        ("2026-03-04T06:06:09.5+01:00", SECOND + timedelta(seconds=2)),
        ("2026-03-04T05:11:00Z", SECOND + timedelta(seconds=293)),
        ("2026-03-04T05:12:00Z", SECOND),
        ("2099-01-01T00:00:00Z", SECOND),
    ],
)
def test_an_answer_is_never_older_than_its_order(asked, at):
    assert moment(Meta(annotations={TIMESTAMP: asked} if asked else {}), NOW) == at


def patched(status, patch):
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    after = dict(status) if isinstance(status, dict) else {}
    for name, value in patch.items():
        if value is None:
            after.pop(name, None)
        else:
            after[name] = patched(after.get(name), value)
    return after


def test_a_life_in_patches_leaves_nothing_behind():
    status = {"providerStatus": {"theirs": 1}, "observedGeneration": 1}
    status = patched(status, processing(OperationType.CREATE, "backupbucket", SECOND))
    assert status["lastOperation"] == {
        "description": "Reconciling the backupbucket",
        "lastUpdateTime": "2026-03-04T05:06:07Z",
        "progress": 1,
        "state": "Processing",
        "type": "Create",
    }
    assert (status["observedGeneration"], "lastError" in status) == (1, False)

    error = DeniedError("the store refuses", hint="look at the secret")
    status = patched(
        status,
        failed(OperationType.CREATE, "backupbucket", 2, SECOND, error=error, codes=["ERR_X"], step="create"),
    )
    text = "Error reconciling backupbucket: the store refuses (look at the secret)"
    assert status["lastError"] == {
        "description": text,
        "taskID": "create",
        "codes": ["ERR_X"],
        "lastUpdateTime": "2026-03-04T05:06:07Z",
    }
    assert [status["lastOperation"][name] for name in ("description", "progress", "state")] == [
        text,
        50,
        "Error",
    ]
    assert status["observedGeneration"] == 2

    status = patched(status, failed(OperationType.CREATE, "backupbucket", 2, SECOND, error=OSError("away")))
    assert status["lastError"].keys() == {"description", "lastUpdateTime"}

    status = patched(status, succeeded(OperationType.CREATE, "backupbucket", 3, SECOND))
    assert status["lastOperation"]["description"] == "Successfully reconciled backupbucket"
    assert (status["lastOperation"]["state"], status["lastOperation"]["progress"]) == ("Succeeded", 100)
    assert "lastError" not in status
    assert (status["observedGeneration"], status["providerStatus"]) == (3, {"theirs": 1})

    bucket = {"metadata": {}, "spec": {"type": "S3", "region": "", "secretRef": {}}, "status": status}
    assert msgspec.convert(bucket, BackupBucket).status.last_operation.state == State.SUCCEEDED
    same = succeeded(OperationType.CREATE, "backupbucket", 3, SECOND)
    assert pruned(same, status) == {}, "the same again is no write"


@pytest.mark.parametrize(
    ("operation", "texts"),
    [
        ("Delete", ("Deleting the BackupEntry", "Successfully deleted BackupEntry", "Error deleting")),
        ("Restore", ("Restoring the BackupEntry", "Successfully restored BackupEntry", "Error restoring")),
        ("Migrate", ("Migrating the BackupEntry", "Successfully migrated BackupEntry", "Error migrating")),
    ],
)
def test_the_words_are_those_that_operators_search_for(operation, texts):
    operation = OperationType(operation)
    begun = processing(operation, "BackupEntry", SECOND)["lastOperation"]
    done = succeeded(operation, "BackupEntry", 1, SECOND)["lastOperation"]
    error = failed(operation, "BackupEntry", 1, SECOND, error=OSError("x"))["lastOperation"]
    assert (begun["description"], done["description"]) == texts[:2]
    assert error["description"] == f"{texts[2]} BackupEntry: x"


def condition(type_, status="True", reason="Fine", message="m", at=SECOND):
    return Condition(
        type=type_,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=at,
        last_update_time=at,
    )


def test_conditions_are_written_on_a_flip_and_leave_those_of_others():
    earlier = SECOND - timedelta(hours=1)
    seen = (condition("Theirs", at=earlier), condition("BucketReachable", at=earlier))
    fine = Finding("BucketReachable", "True", "Fine", "at 05:06 with 17 objects")
    assert conditions(seen, [fine], SECOND) == {}, "a message alone is not worth a write"

    (theirs, ours) = conditions(seen, [fine._replace(reason="Slow")], SECOND)["conditions"]
    assert theirs == msgspec.to_builtins(seen[0])
    assert (ours["reason"], ours["lastTransitionTime"], ours["lastUpdateTime"]) == (
        "Slow",
        "2026-03-04T04:06:07Z",
        "2026-03-04T05:06:07Z",
    )

    down = fine._replace(status="False", reason="Denied", codes=("ERR_X",))
    (_, ours) = conditions(seen, [down], SECOND)["conditions"]
    assert (ours["status"], ours["codes"], ours["lastTransitionTime"]) == (
        "False",
        ("ERR_X",),
        "2026-03-04T05:06:07Z",
    )
    assert conditions(seen, [], SECOND, gone=["Other"]) == {}
    (theirs,) = conditions(seen, [], SECOND, gone=["BucketReachable"])["conditions"]
    assert theirs["type"] == "Theirs"
    assert [each["type"] for each in conditions((), [fine], SECOND)["conditions"]] == ["BucketReachable"]
