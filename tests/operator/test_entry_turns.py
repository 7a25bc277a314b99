"""Single turns of the reconciler of BackupEntries, with a clock of the test's: grace, slices, conflicts."""

import io
from datetime import UTC, datetime, timedelta

import pytest

from rootcellar.errors import ConfigError, KubeConflictError, KubeNotFoundError
from rootcellar.kube.kinds import Key
from rootcellar.kube.manager import Manager
from rootcellar.kube.steps import Done, Requeue, tracing
from rootcellar.logs import make_log
from rootcellar.operator.backupentry.metrics import EntryMetrics
from rootcellar.operator.backupentry.parting import FORCED, EntryParting
from rootcellar.operator.backupentry.reconcile import EntryReconciler
from rootcellar.operator.backupentry.run import EntrySettings
from rootcellar.operator.shared.buckets import Buckets
from rootcellar.operator.shared.removal import Removals
from rootcellar.operator.shared.secrets import (
    IDENTITY_NAME,
    IDENTITY_NAMESPACE,
    IDENTITY_PROVIDER,
    PURPOSE,
    TOKEN_RENEWED,
    TOKEN_REQUESTOR,
)
from rootcellar.operator.shared.subject import Ground
from tests.operator.conftest import SECRETS, data_of
from tests.operator.entry_scene import Scene


class Local:
    """A bucket that is a directory."""

    def __init__(self, directory):
        self.name, self.path = "bucket", directory / "bucket"
        self.path.mkdir()

    def write(self, prefix, count):
        folder = self.path / prefix
        folder.mkdir(parents=True)
        for number in range(count):
            (folder / f"{number:06}").write_bytes(b"")

    def count(self, prefix):
        return sum(1 for each in (self.path / prefix).rglob("*") if each.is_file())


class Turns(Scene):
    """Reconciles by hand.  `now` is the clock, which each reading moves on by `tick`."""

    def __init__(self, control_plane, directory):
        super().__init__(control_plane, Local(directory), directory, type_="local", keys={})
        self.now, self.tick = datetime.now(UTC), timedelta(0)
        self.grace = timedelta(0)
        self.restart()

    def read(self):
        self.now += self.tick
        return self.now

    def restart(self, client=None):
        """As a new process would begin."""
        manager = Manager(self.control_plane.access, identity="turns", log=make_log("json", io.StringIO()))
        ground = Ground(
            client or manager.client,
            manager.writer("turns"),
            manager.events("rootcellar.dev/turns"),
            make_log("json", io.StringIO()),
            self.read,
        )
        settings = EntrySettings(
            types={"local", "aws"},
            classes={self.class_},
            directory=self.directory,
            tokens=self.directory,
            host_path="/buckets",
            grace=self.grace,
        )
        parting = EntryParting(
            ground,
            settings,
            others=lambda _secret: (),
            removals=Removals(manager.may_write),
            metrics=EntryMetrics(manager.metrics.registry),
        )
        self.reconciler = EntryReconciler(ground, settings, parting, Buckets())

    def turn(self):
        with tracing():
            return self.reconciler.reconcile(Key("", self.name))

    def last(self):
        return self.get(self.name)["status"]["lastOperation"]


@pytest.fixture
def turns(served, tmp_path):
    return Turns(served, tmp_path)


def test_a_grace_is_told_as_a_date_and_waited_for(turns):
    turns.bucket.write(turns.name, 2)
    turns.grace = timedelta(hours=1)
    turns.restart()
    turns.create(turns.name, turns.spec())
    assert turns.turn() == Done()
    turns.delete(turns.name)
    deleted = datetime.fromisoformat(turns.get(turns.name)["metadata"]["deletionTimestamp"])
    turns.now = deleted + timedelta(minutes=10)
    assert turns.turn() == Requeue(50 * 60)
    last = turns.last()
    due = f"{deleted + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"
    assert (last["type"], last["state"], last["progress"]) == ("Delete", "Pending", 0)
    assert last["description"] == f"Deletion of backup entry is scheduled for {due}"

    before = turns.get(turns.name)
    turns.now += timedelta(minutes=10)
    assert turns.turn() == Requeue(40 * 60)
    assert turns.get(turns.name) == before, "nothing new is told, so nothing is written"
    assert turns.bucket.count(turns.name) == 2

    turns.now = deleted + timedelta(hours=1)
    assert turns.turn() == Done()
    assert turns.is_gone(turns.name)
    assert turns.bucket.count(turns.name) == 0


def test_a_forced_deletion_waits_for_no_grace(turns):
    turns.grace = timedelta(days=7)
    turns.restart()
    turns.create(turns.name, turns.spec())
    turns.turn()
    turns.delete(turns.name)
    assert isinstance(turns.turn(), Requeue)
    turns.annotate(turns.name, **{FORCED: "true"})
    assert turns.turn() == Done()
    assert turns.is_gone(turns.name)


def test_thousands_of_objects_go_in_slices_over_a_restart_with_progress(turns):
    turns.bucket.write(turns.name, 3500)
    turns.bucket.write(f"{turns.name}--b", 3)
    turns.create(turns.name, turns.spec())
    turns.turn()
    turns.delete(turns.name)
    turns.tick = timedelta(seconds=15)  # a slice is 60: it has passed after a batch or two
    told = []
    for number in range(100):
        if turns.turn() == Done():
            break
        last = turns.last()
        assert (last["type"], last["state"]) == ("Delete", "Processing")
        told.append((last["progress"], last["description"]))
        assert turns.bucket.count(turns.name) > 0
        if number == 1:
            left = turns.bucket.count(turns.name)
            assert left < 3500
            turns.restart()
    assert len(told) > 2
    assert len({progress for progress, _ in told}) > 1
    assert f"Deleting the objects of {turns.name}/" in told[-1][1]
    assert turns.is_gone(turns.name)
    assert (turns.bucket.count(turns.name), turns.bucket.count(f"{turns.name}--b")) == (0, 3)


class Meddling:
    """The API server, at which somebody else writes a secret each time right after it was read."""

    def __init__(self, client, secret, times, write):
        self._client, self._secret, self._times, self._write = client, secret, times, write
        self.writes = 0

    def __getattr__(self, name):
        return getattr(self._client, name)

    def get_raw(self, kind, name, namespace=""):
        found = self._client.get_raw(kind, name, namespace)
        if name == self._secret and self.writes < self._times:
            self.writes += 1
            self._write(f"token-{self.writes}")
        return found


def test_a_token_that_is_renewed_meanwhile_is_never_lost(turns):
    labels = {PURPOSE: TOKEN_REQUESTOR, IDENTITY_PROVIDER: "aws"}
    annotations = {IDENTITY_NAME: "wi", IDENTITY_NAMESPACE: "garden"}
    turns.secret("entry", {"config": "roleARN: arn:aws:iam::1:role/backup"})
    patch = {"metadata": {"labels": labels, "annotations": annotations}}
    turns.client.merge_patch(SECRETS, "entry", patch, turns.namespace)
    turns.secret("etcd-backup", {"token": "token-0", "foreign": "x"}, turns.shoot)

    def renew(token):
        turns.secret(
            "etcd-backup",
            {**data_of(turns.read_secret("etcd-backup", turns.shoot)), "token": token},
            turns.shoot,
        )
        mark = {"metadata": {"annotations": {TOKEN_RENEWED: token}}}
        turns.client.merge_patch(SECRETS, "etcd-backup", mark, turns.shoot)

    turns.restart(Meddling(turns.client, "etcd-backup", 2, renew))
    # The entry's own secret has no token, so nothing is asked of Amazon: the bucket is told as unreadable.
    turns.create(turns.name, turns.spec(type="aws"))
    for _ in range(2):
        with pytest.raises(KubeConflictError):
            turns.turn()
        assert "lastError" not in turns.get(turns.name)["status"], "it is tried again at once"
    assert turns.turn() == Done()
    assert turns.last()["state"] == "Succeeded"
    secret = turns.read_secret("etcd-backup", turns.shoot)
    assert data_of(secret) == {
        "bucketName": "bucket",
        "config": "roleARN: arn:aws:iam::1:role/backup",
        "region": "eu-1",
        "roleARN": "arn:aws:iam::1:role/backup",
        "token": "token-2",
    }
    assert secret["metadata"]["annotations"] == {
        "backup.gardener.cloud/created-by": turns.name,
        **annotations,
        TOKEN_RENEWED: "token-2",
    }
    assert secret["metadata"]["labels"] == labels


def test_an_order_that_comes_during_a_turn_is_the_next_one_s(turns):
    def order(_text):
        asked = {"metadata": {"annotations": {"gardener.cloud/operation": "reconcile"}}}
        turns.client.merge_patch(turns.any, turns.name, {**asked, "spec": {"region": "eu-2"}})

    turns.create(turns.name, turns.spec())
    assert turns.turn() == Done()
    turns.ask(turns.name, "reconcile")
    turns.restart(Meddling(turns.client, "entry", 1, order))
    assert turns.turn() == Done()
    found = turns.get(turns.name)
    assert (found["metadata"]["generation"], found["status"]["observedGeneration"]) == (2, 1)
    assert found["metadata"]["annotations"] == {"gardener.cloud/operation": "reconcile"}
    assert turns.turn() == Done()
    found = turns.get(turns.name)
    assert found["status"]["observedGeneration"] == 2
    assert "annotations" not in found["metadata"]


def test_an_identity_that_lacks_its_name_is_told_in_gardener_s_words(turns):
    turns.secret("entry", {"config": "roleARN: x"})
    patch = {"metadata": {"labels": {PURPOSE: TOKEN_REQUESTOR, IDENTITY_PROVIDER: "aws"}}}
    turns.client.merge_patch(SECRETS, "entry", patch, turns.namespace)
    turns.create(turns.name, turns.spec(type="aws"))
    with pytest.raises(ConfigError, match="name is missing"):
        turns.turn()
    status = turns.get(turns.name)["status"]
    assert (status["lastOperation"]["type"], status["lastOperation"]["state"]) == ("Create", "Error")
    assert status["lastError"]["description"].startswith(
        "Error reconciling BackupEntry: "
        "BackupEntry is set to use workload identity but WorkloadIdentity's name is missing"
    )
    assert status["lastError"]["codes"] == ["ERR_CONFIGURATION_PROBLEM"]


def test_a_secret_that_is_written_during_the_deletion_is_read_again(turns):
    turns.bucket.write(turns.name, 2)
    turns.create(turns.name, turns.spec())
    turns.turn()
    turns.delete(turns.name)

    def stamp(text):
        mark = {"metadata": {"annotations": {"gardener.cloud/timestamp": text}}}
        turns.client.merge_patch(SECRETS, "entry", mark, turns.namespace)

    # Read for its credentials, and again for its finalizer: the first write is harmless, the second is not.
    turns.restart(Meddling(turns.client, "entry", 2, stamp))
    with pytest.raises(KubeConflictError):
        turns.turn()
    assert turns.finalizers()
    assert "lastError" not in turns.get(turns.name)["status"]
    assert turns.turn() == Done()
    assert turns.is_gone(turns.name)
    assert turns.finalizers() == []
    assert turns.read_secret("entry")["metadata"]["annotations"] == {"gardener.cloud/timestamp": "token-2"}


def test_a_restore_that_fails_is_a_restore_until_it_succeeds(turns):
    turns.secret("entry", {"config": "roleARN: x"})
    patch = {"metadata": {"labels": {PURPOSE: TOKEN_REQUESTOR, IDENTITY_PROVIDER: "aws"}}}
    turns.client.merge_patch(SECRETS, "entry", patch, turns.namespace)
    turns.create(turns.name, turns.spec(type="aws"), **{"gardener.cloud/operation": "restore"})
    for _ in range(2):
        with pytest.raises(ConfigError, match="name is missing"):
            turns.turn()
        assert (turns.last()["type"], turns.last()["state"]) == ("Restore", "Error")
        assert turns.get(turns.name)["metadata"]["annotations"] == {"gardener.cloud/operation": "restore"}
    patch = {"metadata": {"annotations": {IDENTITY_NAME: "wi", IDENTITY_NAMESPACE: "garden"}}}
    turns.client.merge_patch(SECRETS, "entry", patch, turns.namespace)
    assert turns.turn() == Done()
    assert (turns.last()["type"], turns.last()["state"]) == ("Restore", "Succeeded")
    entry = turns.get(turns.name)
    assert "lastError" not in entry["status"]
    assert "annotations" not in entry["metadata"]


def test_a_missing_secret_is_one_that_another_reference_replaces(turns):
    turns.create(turns.name, turns.spec(secretRef={"name": "nowhere", "namespace": turns.namespace}))
    with pytest.raises(KubeNotFoundError):
        turns.turn()
    status = turns.get(turns.name)["status"]
    assert (status["lastOperation"]["type"], status["lastOperation"]["state"]) == ("Create", "Processing")
    assert "observedGeneration" not in status
    turns.change(turns.name, secretRef={"name": "entry", "namespace": turns.namespace})
    assert turns.turn() == Done()
    entry = turns.get(turns.name)
    assert entry["status"]["observedGeneration"] == entry["metadata"]["generation"] == 2
    assert (turns.last()["type"], turns.last()["state"]) == ("Create", "Succeeded")


def test_a_turn_that_nobody_asked_for_writes_nothing(turns):
    turns.create(turns.name, turns.spec(), **{"gardener.cloud/operation": "reconcile"})
    assert turns.turn() == Done()
    before = turns.get(turns.name)
    assert turns.turn() == Done()
    assert turns.get(turns.name) == before
    assert before["status"]["lastOperation"]["type"] == "Create"
