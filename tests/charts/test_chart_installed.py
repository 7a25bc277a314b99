"""The chart, installed into a real API server.  No node is there: what a pod does is told elsewhere."""

import itertools
import json
from contextlib import suppress

import pytest
import yaml

from rootcellar.errors import KubeError, KubeExistsError
from rootcellar.kube.kinds import untyped
from rootcellar.kube.rbac import CLUSTER, OWN
from rootcellar.operator.contracts import CONTRACTS, NAMES
from rootcellar.operator.shared import rights
from testbed.chart import CHART
from testbed.crds import CRDS, install
from testbed.kubernetes import is_allowed
from testbed.server import unique
from tests.agent.agents import wait_until

NAME = unique("rc")
"""Another one in each worker: what is in no namespace is called after it."""
FULL = f"{NAME}-rootcellar"
DEPLOYMENTS = untyped("apps", "v1", "deployments")
PODS = untyped("", "v1", "pods")
NAMESPACES = untyped("", "v1", "namespaces", is_namespaced=False)
THEIRS = f"{NAME}.example.com/of"


@pytest.fixture(scope="module")
def crds(control_plane):
    """The CRDs as another one brought them, with a mark of theirs."""
    for contract in CONTRACTS:
        install(control_plane.client, contract.definition)
        mark = {"metadata": {"annotations": {THEIRS: "somebody else"}}}
        control_plane.client.merge_patch(CRDS, contract.definition.full_name, mark)
    yield
    for contract in CONTRACTS:
        unmark = {"metadata": {"annotations": {THEIRS: None}}}
        control_plane.client.merge_patch(CRDS, contract.definition.full_name, unmark)


@pytest.fixture(scope="module")
def elsewhere(control_plane):
    """A namespace in which secrets may be generated."""
    return control_plane.new_namespace()


@pytest.fixture(scope="module")
def home(control_plane, helm_there, crds, elsewhere):
    """The namespace that the chart is installed in; it takes restricted pods alone."""
    name = control_plane.new_namespace()
    restricted = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    control_plane.client.merge_patch(NAMESPACES, name, restricted)
    chosen = f"generatedSecretNamespaces={{{elsewhere}}},ignoreOperationAnnotation=true"
    helm_there.must("install", NAME, CHART, "-n", name, "--set", chosen)
    yield name
    helm_there.must("uninstall", NAME, "-n", name)


def allowed(control_plane, home, verb, group, resource, namespace="", name=""):
    """Whether the API server would let the operator's service account do it."""
    return is_allowed(control_plane.client, home, FULL, verb, group, resource, namespace, name)


def every_right(home, elsewhere):
    """What is declared: verb, group, resource, namespace and name."""
    places = {CLUSTER: "", OWN: home, rights.GENERATED: elsewhere, rights.WATCHED: ""}
    declared = [each for contract in CONTRACTS for each in contract.rights]
    for right in (*rights.operator_rights(FULL), *declared):
        for verb, name in itertools.product(right.verbs, right.names or ("",)):
            yield verb, right.group, right.resource, places[right.where], name


def test_the_crds_are_where_helm_installs_what_is_missing(helm):
    shown = helm.must("show", "crds", CHART)
    for contract in CONTRACTS:
        assert f"name: {contract.definition.full_name}\n" in shown


def test_whoever_installs_it_is_told_what_is_served(helm_there, crds):
    shown = helm_there.must("install", "new", CHART, "-n", "default", "--dry-run=client")
    assert f"\nnew-rootcellar serves {', '.join(NAMES)} for the classes shoot.\n" in shown


def test_the_operator_may_do_what_each_controller_says_that_it_touches(control_plane, home, elsewhere):
    for asked in every_right(home, elsewhere):
        # The authorizer hears of roles by its watches, a moment later.
        wait_until(lambda asked=asked: allowed(control_plane, home, *asked), f"the right to {asked}")


@pytest.mark.parametrize(
    ("verb", "group", "resource", "name"),
    [
        ("delete", "", "secrets", "bucket-x"),
        ("deletecollection", "", "secrets", ""),
        ("update", "", "secrets", "etcd-backup"),
        ("delete", "", "namespaces", "x"),
        ("create", "", "pods", ""),
        ("create", "", "serviceaccounts/token", "x"),
        ("patch", "coordination.k8s.io", "leases", "its own"),
        ("delete", "extensions.gardener.cloud", "backupbuckets", "x"),
        ("delete", "extensions.gardener.cloud", "backupentries", "x"),
        ("create", "extensions.gardener.cloud", "backupentries", ""),
        (
            "patch",
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            "backupbuckets.extensions.gardener.cloud",
        ),
        ("bind", "rbac.authorization.k8s.io", "clusterroles", "cluster-admin"),
    ],
)
def test_the_operator_may_not_do_elsewhere_what_nobody_declared(
    control_plane, home, verb, group, resource, name
):
    name = FULL if name == "its own" else name
    assert not allowed(control_plane, home, verb, group, resource, "default", name)


def test_a_secret_is_deleted_only_where_secrets_are_generated_or_by_its_name(control_plane, home, elsewhere):
    def may(namespace, name):
        return allowed(control_plane, home, "delete", "", "secrets", namespace, name)

    for where, name in (
        (elsewhere, "generated-bucket-x"),
        (home, "etcd-backup"),
        (home, "source-etcd-backup"),
    ):
        wait_until(lambda where=where, name=name: may(where, name), f"the right to {name}")
    assert not may(home, "generated-bucket-x")


def test_a_pod_of_the_deployment_is_admitted_where_only_restricted_ones_are(control_plane, home):
    spec = control_plane.client.get(DEPLOYMENTS, FULL, home)["spec"]["template"]
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "one", "labels": {"alone": "yes"}},
        "spec": spec["spec"],
    }
    pod = control_plane.client.create(PODS, body, home)
    control_plane.client.delete(PODS, "one", home)
    assert pod["spec"]["priority"] == 900000000
    loose = json.loads(json.dumps(body))
    loose["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    with pytest.raises(KubeError) as refused:
        control_plane.client.create(PODS, loose, home)
    assert 'violates PodSecurity "restricted:latest": allowPrivilegeEscalation' in refused.value.message


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"gardener": {"version": "v1.150.0", "seed": {"name": "s"}}},
        {"gardener": {"runtimeCluster": {"enabled": True, "priorityClassName": "system-cluster-critical"}}},
        {
            "networkPolicy": {"metricsFrom": [{"podSelector": {"matchLabels": {"a": "b"}}}]},
            "env": [{"name": "HTTPS_PROXY", "value": "http://proxy.example.com"}],
            "affinity": {"nodeAffinity": {}},
            "tolerations": [{"operator": "Exists"}],
            "nodeSelector": {"a": "b"},
            "image": {"pullSecrets": ["s"]},
        },
    ],
    ids=["as-it-comes", "seed", "runtime-cluster", "with-more"],
)
def test_the_api_server_knows_every_field_that_is_rendered(control_plane, helm, kubectl, home, values):
    with suppress(KubeExistsError):
        control_plane.client.create(NAMESPACES, {"metadata": {"name": "garden"}})
    objects = helm.documents(values, namespace=home)
    rendered = yaml.safe_dump_all(objects)
    done = kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", text=rendered)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(objects)


def test_an_upgrade_takes_away_the_rights_of_what_is_off_and_leaves_crds_as_they_are(
    control_plane, helm_there, home, elsewhere
):
    def as_they_are():
        """But for the marks that other workers' tests make meanwhile."""
        found = [control_plane.client.get(CRDS, each.definition.full_name) for each in CONTRACTS]
        assert {each["metadata"]["annotations"][THEIRS] for each in found} == {"somebody else"}
        return [(each["metadata"]["uid"], each["metadata"]["generation"], each["spec"]) for each in found]

    def may(contract):
        kind = contract.definition.kind
        return allowed(control_plane, home, "patch", kind.group, f"{kind.plural}/status", "", "x")

    bucket, entry = CONTRACTS
    before = as_they_are()
    for contract in CONTRACTS:
        wait_until(lambda contract=contract: may(contract), f"the rights of {contract.name}")
    control_plane.client.merge_patch(DEPLOYMENTS, FULL, {"spec": {"replicas": 0}}, home)
    helm_there.must(
        "upgrade", NAME, CHART, "-n", home, "--reuse-values", "--set", "controllers={backupentry}"
    )
    wait_until(lambda: not may(bucket), "the API server knows of the fewer rights")
    assert may(entry)
    assert as_they_are() == before
    assert control_plane.client.get(DEPLOYMENTS, FULL, home)["spec"]["replicas"] == 2, "as the docs say"
