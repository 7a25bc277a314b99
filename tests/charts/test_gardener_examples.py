"""The registration with Gardener names what the chart then serves."""

from pathlib import Path

import pytest
import yaml

import rootcellar
from rootcellar.operator.contracts import CONTRACTS

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "gardener"
SEED = {"version": "v1.150.0", "seed": {"name": "s"}, "gardenlet": {"featureGates": {}}}
RUNTIME = {"runtimeCluster": {"enabled": True, "priorityClassName": "gardener-garden-system-200"}}


def documents(name):
    return {each["kind"]: each for each in yaml.safe_load_all((EXAMPLES / name).read_text())}


def of_extension():
    spec = documents("extension.yaml")["Extension"]["spec"]
    deployment = spec["deployment"]["extension"]
    return (
        spec["resources"],
        deployment["helm"],
        [
            (deployment["values"], SEED),
            (deployment["runtimeClusterValues"], RUNTIME),
        ],
    )


def of_registration():
    found = documents("controller-registration.yaml")
    registered, deployed = found["ControllerRegistration"], found["ControllerDeployment"]
    refs = registered["spec"]["deployment"]["deploymentRefs"]
    assert refs == [{"name": deployed["metadata"]["name"]}]
    return registered["spec"]["resources"], deployed["helm"], [(deployed["helm"]["values"], SEED)]


@pytest.mark.parametrize("example", [of_extension, of_registration])
def test_the_types_that_are_registered_are_those_that_the_operator_is_told(helm, example):
    resources, where, installations = example()
    assert where["ociRepository"]["ref"].endswith(f"/rootcellar:{rootcellar.__version__}")
    for values, gardener in installations:
        objects = helm.render(values | {"gardener": gardener}, namespace="extension-rootcellar-x")
        (deployment,) = (each for (kind, _), each in objects.items() if kind == "Deployment")
        args = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
        told = dict(arg[2:].split("=", 1) for arg in args if "=" in arg)
        assert told["controllers"].split(",") == [contract.name for contract in CONTRACTS]
        assert resources == [
            {"kind": contract.definition.name, "type": each}
            for contract in CONTRACTS
            for each in told["types"].split(",")
        ]
