"""What the chart renders, without a cluster."""

import json

import pytest
import yaml

import rootcellar
from rootcellar.cli import operator_flags
from rootcellar.cli.arguments import Arguments, sort
from rootcellar.cli.table_beside import OPERATOR
from rootcellar.kube.rbac import rules
from rootcellar.operator.contracts import CONTRACTS
from rootcellar.operator.contracts import NAMES as CONTROLLERS
from rootcellar.operator.shared import rights
from testbed import chart

CHART = chart.CHART
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
NAME = "rc-rootcellar"
SEED = {"version": "v1.150.0", "seed": {"name": "s", "provider": "aws"}, "garden": {"clusterIdentity": "g"}}
RUNTIME = {"runtimeCluster": {"enabled": True, "priorityClassName": "gardener-garden-system-200"}}


def deployment(objects, name=NAME):
    return objects["Deployment", name]


def pod(objects, name=NAME):
    return deployment(objects, name)["spec"]["template"]


def args(objects, name=NAME):
    return pod(objects, name)["spec"]["containers"][0]["args"]


def test_what_is_made_from_types_and_rights_is_not_stale():
    assert chart.stale() == []


def test_the_chart_is_of_this_version_and_lints(helm):
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert about["version"] == about["appVersion"] == rootcellar.__version__
    done = helm("lint", "--strict", CHART)
    assert done.returncode == 0, done.stdout


def test_every_value_has_a_type_and_a_description_and_every_described_one_a_value():
    def compare(schema, values, path):
        assert set(schema["properties"]) - {"global"} == set(values), path
        for name, below in schema["properties"].items():
            assert below["description"].endswith("."), f"{path}.{name}"
            assert "type" in below or "enum" in below, f"{path}.{name}"
            if "properties" in below:
                assert below["additionalProperties"] is False, f"{path}.{name}"
                compare(below, values[name], f"{path}.{name}")

    compare(SCHEMA, VALUES, "values")


def test_every_contract_is_served_unless_some_are_named(helm):
    assert f"--controllers={','.join(CONTROLLERS)}" in args(helm.render())
    assert "--controllers=backupentry" in args(helm.render({"controllers": ["backupentry"]}))


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"controllers": ["everything"]}, f'no controller "everything": known are {", ".join(CONTROLLERS)}'),
        ({"controllers": ["operator"]}, 'no controller "operator"'),
        ({"types": ["local"]}, "localBuckets.volume has to say where"),
        ({"classes": ["shoots"]}, "must be one of 'shoot', 'seed', 'garden'"),
        ({"replica": 3}, "additional properties 'replica' not allowed"),
        ({"image": {"digest": "sha256:abc"}}, "does not match pattern"),
        ({"port": 80}, "minimum: got 80, want 1,024"),
        ({"leaderElection": False}, "two pods would work on the same objects"),
    ],
)
def test_values_that_cannot_be_meant_are_refused(helm, values, told):
    done = helm.template(values)
    assert done.returncode != 0
    assert told in done.stderr


def test_the_operator_is_told_what_the_values_say(helm):
    assert args(helm.render()) == [
        "operator",
        "--controllers=backupbucket,backupentry",
        "--classes=shoot",
        "--namespace=cellar",
        "--lease-name=rc-rootcellar",
        "--listen=:8080",
        "--workers=5",
        "--leader-election",
    ]
    other = {
        "controllers": ["backupentry"],
        "types": ["aws", "S3"],
        "classes": ["shoot", "seed"],
        "ignoreOperationAnnotation": True,
        "takeOver": True,
        "leaderElection": False,
        "replicas": 1,
        "workers": 9,
        "port": 9000,
    }
    objects = helm.render(other)
    assert args(objects) == [
        "operator",
        "--controllers=backupentry",
        "--types=aws,S3",
        "--classes=shoot,seed",
        "--namespace=cellar",
        "--lease-name=rc-rootcellar",
        "--listen=:9000",
        "--workers=9",
        "--no-leader-election",
        "--ignore-operation-annotation",
        "--take-over",
    ]
    assert deployment(objects)["spec"]["strategy"] == {"type": "Recreate"}
    assert pod(objects)["spec"]["containers"][0]["ports"][0]["containerPort"] == 9000


def test_the_verb_takes_every_argument_that_the_chart_can_give(helm):
    every = {
        "types": ["aws"],
        "ignoreOperationAnnotation": True,
        "takeOver": True,
        "gardener": SEED,
    }
    for values in ({}, every, {"leaderElection": False, "replicas": 1}):
        given = Arguments(sort(args(helm.render(values)), [OPERATOR], ()), {}, {}.get)
        for option in operator_flags.ALL:
            given.get(option)
        assert given.need(operator_flags.LISTEN) == ("", 8080)
        assert given.has(operator_flags.TAKE_OVER) is given.has(operator_flags.HEARTBEAT) is (values is every)


@pytest.mark.parametrize(
    "source",
    [{"persistentVolumeClaim": {"claimName": "backups"}}, {"hostPath": {"path": "/var/backups"}}],
    ids=["claim", "path"],
)
def test_local_buckets_lie_in_the_volume_that_the_values_name_where_the_operator_looks(helm, source):
    objects = helm.render({"types": ["local"], "localBuckets": {"volume": source}})
    spec = pod(objects)["spec"]
    (volume,) = (each for each in spec["volumes"] if each["name"] == "local-buckets")
    assert volume == {"name": "local-buckets", **source}
    (mount,) = (each for each in spec["containers"][0]["volumeMounts"] if each["name"] == "local-buckets")
    given = Arguments(sort(args(objects), [OPERATOR], ()), {}, {}.get)
    assert str(given.need(operator_flags.DIRECTORY)) == mount["mountPath"]
    assert mount["mountPath"] == given.need(operator_flags.HOST_PATH), "as an etcd is told"
    assert "readOnly" not in mount


def test_without_a_volume_for_local_buckets_none_is_mounted(helm):
    assert [each["name"] for each in pod(helm.render())["spec"]["volumes"]] == ["tmp"]


def test_an_image_is_named_by_its_digest_before_its_tag(helm):
    def image(**values):
        return pod(helm.render({"image": values}))["spec"]["containers"][0]["image"]

    assert image() == f"rootcellar:{rootcellar.__version__}"
    assert image(repository="r.example.com/x", tag="t") == "r.example.com/x:t"
    assert image(tag="t", digest=f"sha256:{'0' * 64}") == f"rootcellar@sha256:{'0' * 64}"


def granted(objects, kind):
    """The rules of all roles of a kind, by namespace."""
    found = {}
    for (its, _), each in sorted(objects.items()):
        if its == kind:
            found.setdefault(each["metadata"].get("namespace"), []).extend(each["rules"])
    return found


def test_a_controller_that_is_off_brings_no_rights(helm):
    objects = helm.render({"controllers": ["backupentry"], "generatedSecretNamespaces": ["garden"]})
    entry = CONTRACTS[1]
    assert granted(objects, "ClusterRole") == {
        None: [*rules(entry.rights, "cluster"), *rules(rights.operator_rights(NAME), "cluster")]
    }
    assert granted(objects, "Role") == {"cellar": rules(rights.operator_rights(NAME), "own")}


def test_all_secrets_are_read_only_where_the_annotation_that_asks_is_ignored(helm):
    def watching(values):
        found = granted(helm.render(values), "ClusterRole")[None]
        return [each for each in found if "secrets" in each["resources"] and "watch" in each["verbs"]]

    assert watching({}) == []
    assert len(watching({"ignoreOperationAnnotation": True})) == len(CONTRACTS)


def test_secrets_are_generated_only_where_the_values_allow_it(helm):
    bucket = CONTRACTS[0]
    assert list(granted(helm.render(), "Role")) == ["cellar"]
    objects = helm.render({"generatedSecretNamespaces": ["garden", "other"]})
    wanted = rules(bucket.rights, rights.GENERATED)
    assert granted(objects, "Role") == {
        "cellar": rules(rights.operator_rights(NAME), "own"),
        "garden": wanted,
        "other": wanted,
    }


def test_each_role_is_bound_to_the_service_account_and_to_nobody_else(helm):
    objects = helm.render({"generatedSecretNamespaces": ["garden"], "serviceAccount": {"name": "me"}})
    roles = {each for each in objects if each[0].endswith("Role")}
    bindings = {each: it for each, it in objects.items() if each[0].endswith("RoleBinding")}
    assert {(kind.removesuffix("Binding"), name) for kind, name in bindings} == roles
    for (kind, name), each in bindings.items():
        role = each["roleRef"]
        assert (f"{role['kind']}Binding", role["name"]) == (kind, name.rpartition("/")[2])
        assert each["subjects"] == [{"kind": "ServiceAccount", "name": "me", "namespace": "cellar"}]


def test_in_a_seed_the_pods_have_gardeners_labels_and_its_priority(helm):
    objects = helm.render({"gardener": SEED})
    labels = pod(objects)["metadata"]["labels"]
    opened = {name.partition("/")[2] for name in labels if name.startswith("networking.gardener.cloud/")}
    assert opened == {"to-dns", "to-runtime-apiserver", "to-public-networks", "to-private-networks"}
    assert pod(objects)["spec"]["priorityClassName"] == "gardener-system-900"
    assert not {"PriorityClass", "NetworkPolicy"} & {kind for kind, _ in objects}
    assert set(granted(objects, "Role")) == {"garden", "cellar"}
    assert deployment(objects)["metadata"]["labels"]["high-availability-config.resources.gardener.cloud/type"]
    annotations = objects["Service", NAME]["metadata"]["annotations"]
    ports = annotations["networking.resources.gardener.cloud/from-all-seed-scrape-targets-allowed-ports"]
    assert json.loads(ports) == [{"port": 8080, "protocol": "TCP"}]


def test_in_the_runtime_cluster_the_class_is_garden_and_no_name_is_that_of_a_seeds(helm):
    runtime, seed = helm.render({"gardener": RUNTIME}), helm.render({"gardener": SEED})
    assert "--classes=garden" in args(runtime, f"{NAME}-runtime")
    spec = pod(runtime, f"{NAME}-runtime")["spec"]
    assert spec["priorityClassName"] == "gardener-garden-system-200"
    assert not set(runtime) & set(seed)


def test_what_is_optional_is_there_when_it_is_asked_for(helm):
    kinds = {kind for kind, _ in helm.render()}
    assert {"NetworkPolicy", "PodDisruptionBudget", "PriorityClass", "ServiceAccount"} <= kinds
    assert "ServiceMonitor" not in kinds
    none = {
        "networkPolicy": {"enabled": False},
        "podDisruptionBudget": {"enabled": False},
        "priorityClass": {"create": False},
        "serviceAccount": {"create": False},
        "serviceMonitor": {"enabled": True, "labels": {"prometheus": "main"}},
    }
    objects = helm.render(none)
    kinds = {kind for kind, _ in objects}
    assert not {"NetworkPolicy", "PodDisruptionBudget", "PriorityClass", "ServiceAccount"} & kinds
    assert objects["ServiceMonitor", NAME]["metadata"]["labels"]["prometheus"] == "main"
    assert pod(objects)["spec"]["serviceAccountName"] == "default"
    assert "priorityClassName" not in pod(objects)["spec"]
