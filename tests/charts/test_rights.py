"""The rights that the chart grants are enough for the controllers, and for standing for election."""

import io
import json
import threading
from dataclasses import replace

import pytest

from rootcellar.kube.election import Terms
from rootcellar.kube.kinds import LEASES, untyped
from rootcellar.kube.manager import Manager
from rootcellar.kube.rbac import OWN, places, rules
from rootcellar.logs import make_log
from rootcellar.operator.backupbucket.controller import add_bucket_controller
from rootcellar.operator.backupbucket.run import BucketSettings
from rootcellar.operator.backupbucket.types import BACKUP_BUCKETS
from rootcellar.operator.backupentry.controller import add_entry_controller
from rootcellar.operator.backupentry.run import EntrySettings
from rootcellar.operator.backupentry.types import BACKUP_ENTRIES
from rootcellar.operator.contracts import CONTRACTS
from rootcellar.operator.shared.gardener import GENERATED_IN
from rootcellar.operator.shared.rights import GENERATED, operator_rights
from testbed.chart import CHART
from testbed.kubernetes import wait_for_rights
from tests.kube.things import wait_until
from tests.operator.conftest import Kubectl, keys_of, served

__all__ = ["served"]  # a fixture
ACCOUNTS = untyped("", "v1", "serviceaccounts")
EVENTS = untyped("events.k8s.io", "v1", "events")


@pytest.fixture
def place(served, helm_there):
    """A namespace with the chart, in which secrets may be generated."""
    name = served.new_namespace()
    values = f"generatedSecretNamespaces={{{name}}},ignoreOperationAnnotation=true"
    helm_there.must("install", name, CHART, "--namespace", name, "--set", values)
    granted = [each for contract in CONTRACTS for each in contract.rights]
    granted += operator_rights(f"{name}-rootcellar")
    for where in places(granted):
        place = name if where in {OWN, GENERATED} else ""
        wait_for_rights(served.client, name, f"{name}-rootcellar", rules(granted, where), place)
    yield name
    helm_there.must("uninstall", name, "--namespace", name)


@pytest.fixture
def operator(served, place, tmp_path):
    """A manager with both controllers, as nobody but the chart's service account; the lines of its log."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = served.client.create_below(ACCOUNTS, f"{place}-rootcellar", "token", body, place)
    access = replace(served.access, certificate=None, key=None, token=token["status"]["token"])
    written = io.StringIO()
    log = make_log("json", written)
    manager = Manager(access, identity="me", log=log, terms=Terms(place, f"{place}-rootcellar", "me"))
    common = {"types": {"S3", "local"}, "classes": {place}, "directory": tmp_path, "tokens": tmp_path}
    add_bucket_controller(manager, BucketSettings(**common, owner="o"), log=log, ignore_annotation=True)
    entries = EntrySettings(**common, host_path="/buckets")
    add_entry_controller(manager, entries, log=log, ignore_annotation=True)
    thread = threading.Thread(target=manager.run)
    thread.start()
    yield lambda: [json.loads(line) for line in written.getvalue().splitlines()]
    manager.stop()
    thread.join(60)
    assert not thread.is_alive()


def state(kubectl, name):
    return kubectl.get(name).get("status", {}).get("lastOperation", {}).get("state")


def test_buckets_and_entries_live_and_die_by_the_charts_rights_alone(served, operator, place, bucket):
    buckets, entries = (Kubectl(served, kind, place) for kind in (BACKUP_BUCKETS, BACKUP_ENTRIES))
    shoot = f"shoot--{place}--a"
    buckets.new_namespace(shoot)
    buckets.secret("keys", keys_of(bucket))
    spec = {"class": place, "region": "r", "secretRef": {"name": "keys", "namespace": place}}
    buckets.create(bucket.name, {**spec, "type": "S3"})
    buckets.create(f"local-{place}", {**spec, "type": "local"}, **{GENERATED_IN: place})
    entries.create(f"{shoot}--1", {**spec, "type": "S3", "bucketName": bucket.name})
    for each, name in ((buckets, bucket.name), (buckets, f"local-{place}"), (entries, f"{shoot}--1")):
        wait_until(lambda each=each, name=name: state(each, name) == "Succeeded", f"{name} is ready")
    assert buckets.read_secret(f"generated-bucket-local-{place}")
    assert buckets.read_secret("etcd-backup", shoot)
    assert served.client.get(LEASES, f"{place}-rootcellar", place).spec.holder_identity == "me"

    entries.delete(f"{shoot}--1")
    wait_until(lambda: entries.is_gone(f"{shoot}--1"), "the entry is gone")
    for name in (bucket.name, f"local-{place}"):
        buckets.delete(name)
        wait_until(lambda name=name: buckets.is_gone(name), f"{name} is gone")
    assert "kube-denied" not in json.dumps(operator())
