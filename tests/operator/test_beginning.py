"""What an operator looks at before it begins: kinds, rights, peers; and how it shows that it lives."""

from __future__ import annotations

import io
import json
import threading
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from rootcellar.errors import (
    ConfigError,
    FencedError,
    KubeDeniedError,
    KubeNotFoundError,
    KubeUnavailableError,
)
from rootcellar.kube.client import KubeClient
from rootcellar.kube.crd import Definition
from rootcellar.kube.kinds import LEASES, Kind, Lease, LeaseSpec, Meta, untyped
from rootcellar.kube.rbac import CLUSTER, OWN, rules
from rootcellar.logs import make_log
from rootcellar.operator.backupbucket.types import BackupBucket
from rootcellar.operator.contracts import CONTRACTS
from rootcellar.operator.heartbeat import HOLDER, Heartbeat
from rootcellar.operator.peers import Peer, PeerWatch, living, peers
from rootcellar.operator.preflight import require_kinds
from rootcellar.operator.process import cluster_id, look
from rootcellar.operator.settings import OperatorSettings
from rootcellar.operator.shared import rights
from rootcellar.operator.shared.rights import HEARTBEAT
from testbed import crds
from testbed.kubernetes import wait_for_rights
from tests.kube.things import wait_until

RBAC = "rbac.authorization.k8s.io"
ACCOUNTS = untyped("", "v1", "serviceaccounts")
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def settings(directory, namespace, **more):
    chosen = {"controllers": ("backupbucket", "backupentry"), "types": ("aws", "S3"), "classes": ("shoot",)}
    chosen |= {"identity": "me", "namespace": namespace, "directory": directory, "host_path": "/b", **more}
    return OperatorSettings(**chosen)


@pytest.fixture(scope="module")
def served(own_control_plane):
    """An API server that nobody else uses: who looks for a peer sees those of all tests."""
    for contract in CONTRACTS:
        crds.install(own_control_plane.client, contract.definition)
    return own_control_plane


@pytest.fixture
def account(served):
    """Makes an account with the declared rights of some contracts, but for those to one resource; who it is
    to the API server, and its namespace.
    """
    client = served.client
    made = []

    def make(*contracts, without=""):
        namespace = served.new_namespace()
        client.create(ACCOUNTS, {"metadata": {"name": "it"}}, namespace)
        wanted = [right for each in contracts for right in each.rights] + list(rights.operator_rights())
        wanted = [right for right in wanted if right.resource != without]
        subject = {"kind": "ServiceAccount", "name": "it", "namespace": namespace}
        for kind, where, place in (("ClusterRole", CLUSTER, ""), ("Role", OWN, namespace)):
            meta = {"name": namespace}
            role = untyped(RBAC, "v1", f"{kind.lower()}s", is_namespaced=bool(place))
            client.create(role, {"metadata": meta, "rules": rules(wanted, where)}, place)
            binding = untyped(RBAC, "v1", f"{kind.lower()}bindings", is_namespaced=bool(place))
            to = {"apiGroup": RBAC, "kind": kind, "name": namespace}
            client.create(binding, {"metadata": meta, "roleRef": to, "subjects": [subject]}, place)
            made.append((role, namespace, place))
            made.append((binding, namespace, place))
        for where, place in ((CLUSTER, ""), (OWN, namespace)):
            wait_for_rights(client, namespace, "it", rules(wanted, where), place)
        token = client.create_below(ACCOUNTS, "it", "token", {"spec": {}}, namespace)["status"]["token"]
        return replace(served.access, certificate=None, key=None, token=token), namespace

    yield make
    for kind, name, place in made:
        client.delete(kind, name, place)


@pytest.mark.parametrize("chosen", [CONTRACTS, CONTRACTS[:1], CONTRACTS[1:]], ids=["both", "bucket", "entry"])
def test_with_the_declared_rights_alone_it_may_begin(served, account, tmp_path, chosen):
    access, namespace = account(*chosen)
    names = tuple(each.name for each in chosen)
    with KubeClient(access) as client:
        found = look(client, settings(tmp_path, namespace, controllers=names))
    assert found == cluster_id(served.client)


def test_each_right_that_is_missing_is_told_with_its_reason(account, tmp_path):
    access, namespace = account(*CONTRACTS, without="backupentries/status")
    with KubeClient(access) as client, pytest.raises(KubeDeniedError) as refused:
        look(client, settings(tmp_path, namespace))
    assert refused.value.message == (
        "this service account may not patch backupentries/status (to tell how they are)"
    )
    assert "helm upgrade" in refused.value.hint


def test_to_see_secrets_change_takes_rights_only_where_the_annotation_is_ignored(account, tmp_path):
    access, namespace = account(*CONTRACTS)
    with KubeClient(access) as client, pytest.raises(KubeDeniedError) as refused:
        look(client, settings(tmp_path, namespace, ignore_annotation=True))
    assert "list, watch secrets" in refused.value.message


def test_without_a_right_to_the_lease_that_it_was_told_it_does_not_begin(account, tmp_path):
    access, namespace = account(*CONTRACTS)
    with KubeClient(access) as client, pytest.raises(KubeDeniedError) as refused:
        look(client, settings(tmp_path, namespace, lease="another"))
    assert f"get another, patch another leases in {namespace}" in refused.value.message


def test_a_kind_that_the_api_server_does_not_know_is_told_at_once(served):
    nowhere = Kind("nowhere.rootcellar.dev", "v1", "backupbuckets", BackupBucket, is_namespaced=False)
    contract = replace(CONTRACTS[0], definition=Definition(nowhere, "BackupBucket"))
    with pytest.raises(ConfigError) as refused:
        require_kinds(served.client, [contract])
    assert "does not know backupbuckets.nowhere.rootcellar.dev" in refused.value.message
    assert "kubectl apply" in refused.value.hint


def lease(name, holder, renewed, namespace="extension-x"):
    return Lease(
        metadata=Meta(name=name, namespace=namespace),
        spec=LeaseSpec(holder_identity=holder, renew_time=renewed),
    )


def ago(**span):
    return (NOW - timedelta(**span)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@pytest.mark.parametrize(
    ("found", "lives"),
    [
        (lease("provider-aws-leader-election", "pod_1", ago(seconds=10)), True),
        (lease("provider-aws-leader-election", "pod_1", ago(minutes=3)), False),
        (lease("provider-aws-leader-election", "pod_1", ago(minutes=-9)), True),
        (lease("provider-aws-leader-election", "pod_1", "never"), True),
        (lease("provider-aws-leader-election", "", ago(seconds=1)), False),
        (lease("provider-aws-leader-election", "pod_1", ago(seconds=1), "mine"), False),
        (lease("provider-gcp-leader-election", "pod_1", ago(seconds=1)), False),
        (lease(HEARTBEAT, "provider-aws", ago(seconds=31)), True),
        (lease(HEARTBEAT, "rootcellar", ago(seconds=1)), False),
    ],
)
def test_a_peer_is_who_renewed_a_lease_of_an_extension_for_our_types_elsewhere(found, lives):
    wanted = (Peer("provider-aws", "extension-x"),) if lives else ()
    assert living([found], ["provider-aws"], "mine", NOW) == wanted


@contextmanager
def peer(client, namespace, extension="provider-aws"):
    """A Lease as an extension renews it."""
    spec = {"holderIdentity": "pod_1", "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")}
    name = f"{extension}-leader-election"
    client.create(LEASES, {"metadata": {"name": name}, "spec": spec}, namespace)
    try:
        yield
    finally:
        client.delete(LEASES, name, namespace)


@pytest.mark.parametrize(
    ("extension", "type_", "others"), [("provider-aws", "aws", "S3"), ("backup-s3", "S3", "aws")]
)
def test_beside_a_living_peer_it_does_not_begin_unless_it_is_told_to_take_over(
    served, tmp_path, extension, type_, others
):
    theirs, ours = served.new_namespace(), served.new_namespace()
    with peer(served.client, theirs, extension):
        with pytest.raises(FencedError) as refused:
            look(served.client, settings(tmp_path, ours, types=(type_, others)))
        assert refused.value.message == (
            f"another controller for the same objects is alive: {extension} in {theirs}"
        )
        assert "--take-over" in refused.value.hint
        assert look(served.client, settings(tmp_path, ours, types=(type_, others), takes_over=True))
        assert look(served.client, settings(tmp_path, ours, types=("gcp", others)))
    assert look(served.client, settings(tmp_path, ours))


def test_a_peer_that_comes_later_has_it_stop(served):
    theirs, written, stopped = served.new_namespace(), io.StringIO(), threading.Event()
    looks = []

    def found():
        looks.append(peers(served.client, ["aws"], "mine"))
        return looks[-1]

    def watch():
        with PeerWatch(found, stopped.set, make_log("json", written), every=0.05):
            wait_until(lambda: len(looks) > 1, "two looks")
            assert not stopped.is_set()
            with peer(served.client, theirs):
                assert stopped.wait(60)

    with pytest.raises(FencedError, match=f"provider-aws in {theirs}"):
        watch()
    assert [json.loads(line)["event"] for line in written.getvalue().splitlines()] == ["peer-came"]


def test_the_heartbeat_is_renewed_while_it_may_write_and_only_then(served):
    namespace, leads, written = served.new_namespace(), threading.Event(), io.StringIO()

    def renewed():
        try:
            return served.client.get(LEASES, HEARTBEAT, namespace).spec.renew_time
        except KubeNotFoundError:
            return None

    asked = []

    def may_write():
        asked.append(leads.is_set())
        return asked[-1]

    with Heartbeat(served.client, namespace, may_write, make_log("json", written), every=0.05):
        wait_until(lambda: asked, "it asks whether it may write")
        assert renewed() is None
        leads.set()
        wait_until(renewed, "it is there")
        first = renewed()
        wait_until(lambda: renewed() != first, "it is renewed")
    assert served.client.get(LEASES, HEARTBEAT, namespace).spec.holder_identity == HOLDER
    assert written.getvalue() == ""


def test_a_heartbeat_that_fails_is_told_once_and_tried_again(served):
    asked, written = [], io.StringIO()

    def may_write():
        asked.append(True)
        return True

    with Heartbeat(served.client, "nowhere", may_write, make_log("json", written), every=0.05):
        wait_until(lambda: len(asked) > 2, "it is tried again")
    (told,) = [json.loads(line) for line in written.getvalue().splitlines()]
    assert (told["event"], told["lease"], told["code"]) == ("heartbeat-failed", HEARTBEAT, "kube-not-found")


def test_a_look_for_peers_that_fails_stops_nobody():
    written, stopped, looks = io.StringIO(), threading.Event(), []

    def found():
        looks.append(True)
        if len(looks) == 1:
            raise KubeUnavailableError("away")
        return ()

    with PeerWatch(found, stopped.set, make_log("json", written), every=0.01):
        wait_until(lambda: len(looks) > 2, "it looks again")
    assert not stopped.is_set()
    assert [json.loads(line)["event"] for line in written.getvalue().splitlines()] == ["peers-unknown"]
