"""The structural schema of a CRD (OpenAPI v3 as apiextensions.k8s.io/v1 takes it), made from msgspec types.

A type is declared once: it decodes objects, and it is what the API server holds them against.  What is read
off it:

* `str`, `int`, `float`, `bool`, `bytes`, `datetime`, literals, enums, tuples and lists, sets (of which the
  API server keeps each member once), `dict[str, X]`, structs; `int | str` is int-or-string.
* `dict[str, Any]` is an object whose fields nobody prunes, `Any` any value at all.
* Bounds, lengths and patterns of `msgspec.Meta`; its description, else a struct's docstring.  What OpenAPI
  has and Python has not is in `extra_json_schema`, or for a struct in its class variable `SCHEMA`: `cel`,
  `keyed`, `ATOMIC`, `INT32`, `INT64`.
* `X | None = None` is a field that may be left out; null is no value.  Another default is published, so that
  the API server fills it in, but for the empty ones: an absent list is an empty list to every reader.
* The values of a literal or an enum are a set, and are published in the order of the alphabet.

Metadata (`rootcellar.kube.kinds.Meta`) is the API server's own and has no schema.  The rules are those of
https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import inspect

from rootcellar.kube import kinds

Schema = dict[str, Any]

ATOMIC: Final[Schema] = {"x-kubernetes-map-type": "atomic"}
"""For a struct that server-side apply owns as a whole."""
INT32: Final[Schema] = {"format": "int32"}
INT64: Final[Schema] = {"format": "int64"}

_PRESERVE: Final[Schema] = {"x-kubernetes-preserve-unknown-fields": True}
_RULES = "x-kubernetes-validations"
_PLAIN: Final[dict[type, Schema]] = {
    inspect.BoolType: {"type": "boolean"},
    inspect.DateTimeType: {"type": "string", "format": "date-time"},
    inspect.BytesType: {"type": "string", "format": "byte"},
    inspect.AnyType: _PRESERVE,
    inspect.RawType: _PRESERVE,
}
_EMPTY: Final[tuple[Any, ...]] = (None, "", [], {})
_BOUNDS = {"ge": "minimum", "le": "maximum", "multiple_of": "multipleOf"}


def cel(*rules: tuple[str, str]) -> Schema:
    """Rules in CEL, each with the message for whom breaks it."""
    return {_RULES: [{"rule": rule, "message": message} for rule, message in rules]}


def keyed(*keys: str) -> Schema:
    """For a list that is a map: server-side apply merges its items by these fields."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


def schema(described: Any) -> Schema:
    """The schema of a type.  Raises TypeError, with the path to it, for what no structural schema can say."""
    return _Walk().of(inspect.type_info(described), getattr(described, "__name__", "the type"))


class _Walk:
    """One pass over a type; `_within` are the structs that it is in, because a schema cannot recur."""

    def __init__(self) -> None:
        self._within: list[type] = []

    def of(self, info: inspect.Type, path: str) -> Schema:
        match info:
            case inspect.Metadata(type=inner, extra_json_schema=extra):
                return _merged(self.of(inner, path), extra or {})
            case inspect.StructType(cls=cls):
                return {"type": "object"} if cls is kinds.Meta else self._struct(info, path)
            case inspect.UnionType(types=types):
                return self._union(types, path)
            case inspect.DictType():
                return self._map(info, path)
            case inspect.ListType() | inspect.VarTupleType() | inspect.SetType() | inspect.FrozenSetType():
                return self._list(info, path)
        return _scalar(info, path)

    def _struct(self, info: inspect.StructType, path: str) -> Schema:
        if info.cls in self._within:
            raise TypeError(f"{path}: {info.cls.__name__} contains itself, which no schema can say")
        self._within.append(info.cls)
        properties = {
            field.encode_name: self._field(field, f"{path}.{field.encode_name}") for field in info.fields
        }
        self._within.pop()
        found: Schema = {"type": "object", "properties": properties}
        if required := sorted(field.encode_name for field in info.fields if field.required):
            found["required"] = required
        if info.cls.__doc__:
            found["description"] = _flowing(info.cls.__doc__)
        return _merged(found, getattr(info.cls, "SCHEMA", {}))

    def _field(self, field: inspect.Field, path: str) -> Schema:
        optional, info = _without_none(field.type)
        if optional and (field.required or field.default is not None):
            raise TypeError(f"{path}: `| None` means that it may be left out, so its default is None")
        found = self.of(info, path)
        value = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        if isinstance(value, msgspec.Struct):
            if value != type(value)():
                raise TypeError(f"{path}: a struct's default is the one that its own fields have")
            if _has_default(found):  # else an object that is there and empty serves nobody
                found["default"] = {}
        elif value is not msgspec.NODEFAULT and (default := _builtin(value)) not in _EMPTY:
            found["default"] = default
        return found

    def _union(self, types: tuple[inspect.Type, ...], path: str) -> Schema:
        plain = {type(_bare(each)): _bare(each) for each in types}
        if set(plain) != {inspect.IntType, inspect.StrType}:
            raise TypeError(f"{path}: of unions a schema can say int | str alone")
        found: Schema = {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
        }
        text = plain[inspect.StrType]
        return found | {name: value for name, value in _text(text).items() if name != "type"}

    def _map(self, info: inspect.DictType, path: str) -> Schema:
        if not isinstance(_bare(info.key_type), inspect.StrType):
            raise TypeError(f"{path}: the keys of a map are texts")
        found: Schema = {"type": "object", **_lengths(info, "Properties")}
        if isinstance(info.value_type, inspect.AnyType):
            return found | _PRESERVE
        return found | {"additionalProperties": self.of(info.value_type, f"{path}[]")}

    def _list(
        self,
        info: inspect.ListType | inspect.VarTupleType | inspect.SetType | inspect.FrozenSetType,
        path: str,
    ) -> Schema:
        found: Schema = {"type": "array", "items": self.of(info.item_type, f"{path}[]")}
        if isinstance(info, inspect.SetType | inspect.FrozenSetType):
            found["x-kubernetes-list-type"] = "set"
        return found | _lengths(info, "Items")


def _scalar(info: inspect.Type, path: str) -> Schema:
    match info:
        case inspect.StrType():
            return _text(info)
        case inspect.IntType():
            return {"type": "integer", **_bounds(info)}
        case inspect.FloatType():
            return {"type": "number", **_bounds(info)}
        case inspect.LiteralType(values=values):
            return _enum(values, path)
        case inspect.EnumType(cls=cls):
            return _enum(tuple(member.value for member in cls), path)
    try:
        return dict(_PLAIN[type(info)])
    except KeyError:
        raise TypeError(f"{path}: no schema can say {type(info).__name__}") from None


def _enum(values: tuple[Any, ...], path: str) -> Schema:
    for kind, name in ((str, "string"), (int, "integer")):
        if all(isinstance(value, kind) for value in values):
            return {"type": name, "enum": sorted(values)}
    raise TypeError(f"{path}: the values of an enum are all texts or all numbers")


def _text(info: inspect.Type) -> Schema:
    pattern = getattr(info, "pattern", None)
    return {"type": "string", **_lengths(info, "Length"), **({"pattern": pattern} if pattern else {})}


def _bounds(info: inspect.IntType | inspect.FloatType) -> Schema:
    found: Schema = {name: getattr(info, of) for of, name in _BOUNDS.items() if getattr(info, of) is not None}
    for of, name, flag in (("gt", "minimum", "exclusiveMinimum"), ("lt", "maximum", "exclusiveMaximum")):
        if (value := getattr(info, of)) is not None:
            found |= {name: value, flag: True}
    return found


def _lengths(info: Any, of: str) -> Schema:
    ends = {"min": info.min_length, "max": info.max_length}
    return {f"{end}{of}": value for end, value in ends.items() if value is not None}


def _bare(info: inspect.Type) -> inspect.Type:
    return _bare(info.type) if isinstance(info, inspect.Metadata) else info


def _without_none(info: inspect.Type) -> tuple[bool, inspect.Type]:
    """Whether None is allowed, and the type without it; what is said of the union is said of what is left."""
    match info:
        case inspect.Metadata(type=inner, extra_json_schema=extra, extra=more):
            optional, rest = _without_none(inner)
            return optional, inspect.Metadata(rest, extra_json_schema=extra, extra=more)
        case inspect.UnionType(types=types):
            rest_types = tuple(each for each in types if not isinstance(each, inspect.NoneType))
            rest = rest_types[0] if len(rest_types) == 1 else inspect.UnionType(rest_types)
            return len(rest_types) < len(types), rest
    return False, info


def _builtin(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def _has_default(found: Schema) -> bool:
    return any("default" in each for each in found.get("properties", {}).values())


def _merged(found: Schema, extra: Schema) -> Schema:
    rules = [*found.get(_RULES, ()), *extra.get(_RULES, ())]
    return found | extra | ({_RULES: rules} if rules else {})


def _flowing(docstring: str) -> str:
    """A docstring without the line breaks of its source; paragraphs stay."""
    return "\n".join(" ".join(each.split()) for each in docstring.strip().split("\n\n"))
