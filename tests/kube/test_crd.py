import os
import time
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import pytest
import yaml
from msgspec import Meta, Struct

from rootcellar.errors import KubeError
from rootcellar.kube import kinds
from rootcellar.kube.crd import AGE, Column, Definition, manifest, text
from rootcellar.kube.schema import INT32, cel, keyed, schema
from testbed.crds import CRDS, conditions, install


class Window(Struct, frozen=True, rename="camel", kw_only=True):
    """When."""

    begin: Annotated[str, Meta(pattern="^[0-2][0-9]:[0-5][0-9]$")] = "02:00"
    minutes: Annotated[int, Meta(ge=1, le=60, extra_json_schema=INT32)] = 30


class Store(Struct, frozen=True, rename="camel", kw_only=True):
    """Where."""

    name: str
    tags: frozenset[str] = frozenset()


class JarSpec(Struct, frozen=True, rename="camel", kw_only=True):
    """What is wanted."""

    SCHEMA: ClassVar[dict[str, Any]] = cel(
        ("!has(self.lid) || self.size != 'small'", "a small jar has no lid")
    )

    size: Literal["small", "large"] = "small"
    kind_: (
        Annotated[str, Meta(max_length=20, extra_json_schema=cel(("self == oldSelf", "Value is immutable")))]
        | None
    ) = msgspec.field(name="kind", default=None)
    window: Window = Window()
    lid: dict[str, Any] | None = None
    stores: Annotated[tuple[Store, ...], Meta(max_length=9, extra_json_schema=keyed("name"))] = ()
    room: int | Annotated[str, Meta(pattern="^[0-9]+%$")] = "10%"


class JarStatus(Struct, frozen=True, rename="camel", kw_only=True):
    filled: bool = False


class Jar(Struct, frozen=True, kw_only=True):
    """A jar."""

    metadata: kinds.Meta = kinds.Meta()
    spec: JarSpec
    status: JarStatus = JarStatus()


def definition(group="test.rootcellar.dev", **more):
    kind = kinds.Kind(group, "v1", "jars", Jar)
    return Definition(
        kind,
        "Jar",
        short_names=("jr",),
        categories=("cellar",),
        columns=(Column("Size", ".spec.size", "how large it is", priority=1), AGE),
        labels={"a": "b"},
        **more,
    )


def test_a_definition_says_its_names_columns_and_subresources():
    made = manifest(definition(scale={"specReplicasPath": ".spec.r", "statusReplicasPath": ".status.r"}))
    assert made["metadata"] == {"name": "jars.test.rootcellar.dev", "labels": {"a": "b"}}
    assert made["spec"]["scope"] == "Namespaced"
    assert made["spec"]["names"] == {
        "kind": "Jar",
        "listKind": "JarList",
        "plural": "jars",
        "singular": "jar",
        "shortNames": ["jr"],
        "categories": ["cellar"],
    }
    (version,) = made["spec"]["versions"]
    assert (version["name"], version["served"], version["storage"]) == ("v1", True, True)
    assert version["subresources"]["status"] == {}
    assert version["subresources"]["scale"]["specReplicasPath"] == ".spec.r"
    assert version["additionalPrinterColumns"][0] == {
        "name": "Size",
        "jsonPath": ".spec.size",
        "type": "string",
        "description": "how large it is",
        "priority": 1,
    }


def test_the_root_has_the_own_fields_of_every_object_and_no_default_for_its_status():
    root = manifest(definition())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert sorted(root["properties"]) == ["apiVersion", "kind", "metadata", "spec", "status"]
    assert root["properties"]["metadata"] == {"type": "object"}
    assert root["required"] == ["spec"]
    assert "default" in schema(Jar)["properties"]["status"]
    assert "default" not in root["properties"]["status"]


def test_the_yaml_of_a_definition_is_the_same_each_time_and_reads_back_as_it():
    assert text(manifest(definition())) == text(manifest(definition()))
    assert yaml.safe_load(text(manifest(definition()))) == manifest(definition())
    assert max(map(len, text(manifest(definition())).splitlines())) <= 110


@pytest.fixture(scope="module")
def jars(control_plane):
    """Jars in an API server."""
    mine = definition(f"t{os.getpid()}-{time.time_ns() % 10**9}.rootcellar.dev")
    install(control_plane.client, mine)
    yield mine
    control_plane.client.delete(CRDS, mine.full_name)


@pytest.fixture
def namespace(control_plane):
    return control_plane.new_namespace()


def create(control_plane, jars, namespace, **spec):
    raw = kinds.untyped(jars.kind.group, "v1", "jars")
    body = {
        "apiVersion": f"{jars.kind.group}/v1",
        "kind": "Jar",
        "metadata": {"generateName": "j-"},
        "spec": spec,
    }
    return control_plane.client.create(raw, body, namespace)


def test_the_api_server_takes_the_schema_for_a_structural_one(control_plane, jars):
    said = conditions(control_plane.client, jars)
    assert "NonStructuralSchema" not in said
    assert said["NamesAccepted"]["status"] == said["Established"]["status"] == "True"
    kept = control_plane.client.get(CRDS, jars.full_name)["spec"]["versions"][0]["schema"]
    assert kept == manifest(jars)["spec"]["versions"][0]["schema"]


def test_the_api_server_fills_in_defaults_of_all_depths_and_the_type_reads_them(
    control_plane, jars, namespace
):
    made = create(control_plane, jars, namespace)
    assert made["spec"] == {"size": "small", "window": {"begin": "02:00", "minutes": 30}, "room": "10%"}
    assert "status" not in made
    read = control_plane.client.get(jars.kind, made["metadata"]["name"], namespace)
    assert read.spec == JarSpec()


def test_the_api_server_keeps_what_may_be_anything_and_prunes_what_nobody_knows(
    control_plane, jars, namespace
):
    made = create(control_plane, jars, namespace, size="large", lid={"of": {"tin": [1]}}, unknown=1, room=3)
    assert made["spec"]["lid"] == {"of": {"tin": [1]}}
    assert made["spec"]["room"] == 3
    assert "unknown" not in made["spec"]


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"size": "huge"}, 'spec.size: Unsupported value: "huge": supported values: "large", "small"'),
        ({"window": {"minutes": 61}}, "spec.window.minutes in body should be less than or equal to 60"),
        ({"window": {"minutes": 0}}, "spec.window.minutes in body should be greater than or equal to 1"),
        ({"window": {"begin": "7pm"}}, "spec.window.begin in body should match"),
        ({"window": {"minutes": 1.5}}, "spec.window.minutes"),
        ({"lid": {}}, "a small jar has no lid"),
        ({"kind": "x" * 21}, "spec.kind: Too long"),
        ({"room": "much"}, "spec.room in body should match"),
        ({"stores": [{}]}, "spec.stores[0].name: Required value"),
        ({"stores": [{"name": "a"}, {"name": "a"}]}, "spec.stores[1]: Duplicate value"),
        ({"stores": [{"name": "a", "tags": ["t", "t"]}]}, "spec.stores[0].tags[1]: Duplicate value"),
        ({"size": None, "kind": 5}, 'spec.kind in body must be of type string: "integer"'),
    ],
)
def test_the_api_server_refuses_what_the_type_does_not_allow(control_plane, jars, namespace, spec, told):
    with pytest.raises(KubeError) as refused:
        create(control_plane, jars, namespace, **spec)
    assert told in refused.value.message
    assert "(422)" in refused.value.message


def test_the_api_server_holds_an_update_against_the_rules_on_what_was(control_plane, jars, namespace):
    name = create(control_plane, jars, namespace, kind="glass")["metadata"]["name"]
    with pytest.raises(KubeError) as refused:
        control_plane.client.merge_patch(jars.kind, name, {"spec": {"kind": "clay"}}, namespace)
    assert "Value is immutable" in refused.value.message
    assert control_plane.client.get(jars.kind, name, namespace).spec.kind_ == "glass"


def test_the_status_is_written_below_status_alone(control_plane, jars, namespace):
    name = create(control_plane, jars, namespace)["metadata"]["name"]
    patch = {"status": {"filled": True}}
    assert not control_plane.client.merge_patch(jars.kind, name, patch, namespace).status.filled
    below = control_plane.client.merge_patch(jars.kind, name, patch, namespace, subresource="status")
    assert below.status.filled
