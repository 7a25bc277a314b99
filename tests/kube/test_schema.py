from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import pytest
from msgspec import Meta, Struct

from rootcellar.kube import kinds
from rootcellar.kube.schema import ATOMIC, INT32, INT64, cel, keyed, schema

Port = Annotated[int, Meta(ge=1, le=65535)]


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Limits(Struct, frozen=True, rename="camel"):
    """What it may take,
    at most.
    """

    per_second: Annotated[int, Meta(gt=0, extra_json_schema=INT32)] = 5


class Part(Struct, frozen=True, rename="camel", kw_only=True):
    SCHEMA: ClassVar[dict[str, Any]] = ATOMIC | cel(("has(self.name)", "name it"))

    name: str


def field(annotation, default=msgspec.NODEFAULT):
    """The schema of one field, and whether it is required."""
    named = ("one", annotation) if default is msgspec.NODEFAULT else ("one", annotation, default)
    found = schema(msgspec.defstruct("Held", [named], frozen=True))
    return found["properties"]["one"], found.get("required") == ["one"]


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (str, {"type": "string"}),
        (bool, {"type": "boolean"}),
        (float, {"type": "number"}),
        (bytes, {"type": "string", "format": "byte"}),
        (datetime, {"type": "string", "format": "date-time"}),
        (Port, {"type": "integer", "minimum": 1, "maximum": 65535}),
        (
            Annotated[int, Meta(lt=9, extra_json_schema=INT64)],
            {"type": "integer", "format": "int64", "maximum": 9, "exclusiveMaximum": True},
        ),
        (
            Annotated[str, Meta(pattern="^a", min_length=1, max_length=9)],
            {"type": "string", "pattern": "^a", "minLength": 1, "maxLength": 9},
        ),
        (Literal["gzip", "none", "azure"], {"type": "string", "enum": ["azure", "gzip", "none"]}),
        (Colour, {"type": "string", "enum": ["blue", "red"]}),
        (Literal[3, 1], {"type": "integer", "enum": [1, 3]}),
        (tuple[str, ...], {"type": "array", "items": {"type": "string"}}),
        (
            Annotated[list[Port], Meta(min_length=1, max_length=3)],
            {
                "type": "array",
                "minItems": 1,
                "maxItems": 3,
                "items": {"type": "integer", "minimum": 1, "maximum": 65535},
            },
        ),
        (frozenset[str], {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (dict[str, Any], {"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
        (Any, {"x-kubernetes-preserve-unknown-fields": True}),
        (msgspec.Raw, {"x-kubernetes-preserve-unknown-fields": True}),
        (
            int | Annotated[str, Meta(pattern="^[0-9]+%$")],
            {
                "anyOf": [{"type": "integer"}, {"type": "string"}],
                "x-kubernetes-int-or-string": True,
                "pattern": "^[0-9]+%$",
            },
        ),
        (
            Part,
            {
                "type": "object",
                "properties": {"name": {"type": "string"}},
                "required": ["name"],
                "x-kubernetes-map-type": "atomic",
                "x-kubernetes-validations": [{"rule": "has(self.name)", "message": "name it"}],
            },
        ),
        (kinds.Meta, {"type": "object"}),
    ],
)
def test_a_type_becomes_the_schema_that_says_the_same(annotation, expected):
    assert field(annotation) == (expected, True)
    assert field(annotation | None if annotation is not Any else Any, None) == (expected, False)


def test_the_fields_own_description_counts_before_its_types_docstring():
    assert field(Limits)[0]["description"] == "What it may take, at most."
    assert field(Annotated[Limits, Meta(description="These.")])[0]["description"] == "These."


@pytest.mark.parametrize(
    ("annotation", "default", "published"),
    [
        (int, 5, 5),
        (int, 0, 0),
        (bool, False, False),
        (Colour, Colour.RED, "red"),
        (tuple[str, ...], ("a",), ["a"]),
        (Limits, Limits(), {}),
    ],
)
def test_a_default_is_published(annotation, default, published):
    found, required = field(annotation, default)
    assert found["default"] == published
    assert type(found["default"]) is type(published)
    assert not required


@pytest.mark.parametrize(
    ("annotation", "default"),
    [(str, ""), (tuple[str, ...], ()), (dict[str, str], {}), (str | None, None), (kinds.Meta, kinds.Meta())],
)
def test_an_empty_default_is_not_published(annotation, default):
    found, required = field(annotation, default)
    assert "default" not in found
    assert not required


def test_rules_of_a_type_and_of_its_field_come_together():
    ruled = Annotated[Part, Meta(extra_json_schema=cel(("self == oldSelf", "it stays")) | keyed("name"))]
    found = field(ruled)[0]
    assert [each["rule"] for each in found["x-kubernetes-validations"]] == [
        "has(self.name)",
        "self == oldSelf",
    ]
    assert found["x-kubernetes-list-map-keys"] == ["name"]


class Node(Struct, frozen=True):
    children: "tuple[Node, ...]" = ()


@pytest.mark.parametrize(
    ("annotation", "default", "told"),
    [
        (str | None, msgspec.NODEFAULT, "Held.one: `| None` means that it may be left out"),
        (str | None, "x", "Held.one: `| None` means that it may be left out"),
        (Node, msgspec.NODEFAULT, "Held.one.children[]: Node contains itself"),
        (int | list[str], msgspec.NODEFAULT, "Held.one: of unions a schema can say int | str alone"),
        (dict[int, str], msgspec.NODEFAULT, "Held.one: the keys of a map are texts"),
        (Literal["a", 1], msgspec.NODEFAULT, "Held.one: the values of an enum are all texts or all numbers"),
        (tuple[str, int], msgspec.NODEFAULT, "Held.one: no schema can say TupleType"),
        (Limits, Limits(9), "Held.one: a struct's default is the one that its own fields have"),
    ],
)
def test_what_no_structural_schema_can_say_is_told_with_its_path(annotation, default, told):
    with pytest.raises(TypeError) as refused:
        field(annotation, default)
    assert told in str(refused.value)
