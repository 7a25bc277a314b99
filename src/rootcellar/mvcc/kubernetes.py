r"""What a value that Kubernetes stored is about, without its schemas: enough to name the object.

The API server stores built-in kinds as `k8s\0` and a protobuf `runtime.Unknown`, custom resources as JSON
(or CBOR), and anything encrypted at rest as `k8s:enc:PROVIDER:VERSION:KEY:` and ciphertext, whose key is in
no backup.  Every built-in kind has its ObjectMeta in field 1, so a walk over the first fields suffices.
Bytes that only look like Kubernetes' give what could be read of them, or None: this never raises.

Source: k8s.io/apimachinery pkg/runtime/generated.proto and pkg/apis/meta/v1/generated.proto; prefixes of
k8s.io/apiserver pkg/server/options/encryptionconfig.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import msgspec

from rootcellar.errors import RecordError
from rootcellar.mvcc.varint import LENGTH, Field, fields

if TYPE_CHECKING:
    from collections.abc import Iterator

PROTOBUF_MAGIC = b"k8s\0"
ENCRYPTED_MAGIC = b"k8s:enc:"
CBOR_MAGIC = b"\xd9\xd9\xf7"

_ENCRYPTED = re.compile(rb"k8s:enc:([^:]{1,32}):(v\d{1,3}):([^:]{0,256}):")
_NAME_LIMIT = 1024
"""Longer than any name, uid or label that Kubernetes allows; a damaged length must not fill a screen."""


class Encoding(StrEnum):
    """How a value is stored."""

    PROTOBUF = "protobuf"
    JSON = "json"
    CBOR = "cbor"
    ENCRYPTED = "encrypted"


class KubernetesObject(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """What could be read.  `provider` and `key_name` are an encrypted value's, and all there is of it."""

    encoding: Encoding
    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    provider: str = ""
    key_name: str = ""

    def __str__(self) -> str:
        if self.encoding is Encoding.ENCRYPTED:
            key = f" with key {self.key_name}" if self.key_name else ""
            return f"encrypted by {self.provider or 'an unknown provider'}{key}"
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return " ".join(part for part in (self.api_version, self.kind, where) if part) or self.encoding.value


def recognise(value: bytes) -> KubernetesObject | None:
    """The object in a value, or None for what Kubernetes did not write."""
    if value.startswith(PROTOBUF_MAGIC):
        return _protobuf(memoryview(value)[len(PROTOBUF_MAGIC) :])
    if value.startswith(ENCRYPTED_MAGIC):
        return _encrypted(value)
    if value.startswith(b"{"):
        return _json(value)
    if value.startswith(CBOR_MAGIC):
        return KubernetesObject(encoding=Encoding.CBOR)
    return None


def _encrypted(value: bytes) -> KubernetesObject:
    found = _ENCRYPTED.match(value)
    if found is None:
        return KubernetesObject(encoding=Encoding.ENCRYPTED)
    provider, _, key_name = (part.decode("utf-8", "replace") for part in found.groups())
    return KubernetesObject(encoding=Encoding.ENCRYPTED, provider=provider, key_name=key_name)


class _Meta(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None


class _Object(msgspec.Struct, rename="camel"):
    api_version: Annotated[str, msgspec.Meta(min_length=1, max_length=_NAME_LIMIT)]
    kind: Annotated[str, msgspec.Meta(min_length=1, max_length=_NAME_LIMIT)]
    metadata: _Meta


_OBJECT = msgspec.json.Decoder(_Object)


def _json(value: bytes) -> KubernetesObject | None:
    try:
        found = _OBJECT.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return KubernetesObject(
        encoding=Encoding.JSON,
        api_version=found.api_version,
        kind=found.kind,
        namespace=found.metadata.namespace,
        name=found.metadata.name,
        uid=found.metadata.uid,
        labels=found.metadata.labels or {},
    )


def _protobuf(unknown: memoryview) -> KubernetesObject:
    """runtime.Unknown: 1 TypeMeta {1 apiVersion, 2 kind}, 2 the object; its field 1 is the ObjectMeta."""
    type_meta, meta, labels = {}, {}, {}
    for field in _readable(unknown):
        if field.number == 1:
            type_meta = _texts(field)
        elif field.number == 2:
            first = next((inner for inner in _inside(field) if inner.number == 1), None)
            if first is not None:
                meta, labels = _texts(first), _labels(first)
    return KubernetesObject(
        encoding=Encoding.PROTOBUF,
        api_version=type_meta.get(1, ""),
        kind=type_meta.get(2, ""),
        namespace=meta.get(3, ""),
        name=meta.get(1, ""),
        uid=meta.get(5, ""),
        labels=labels,
    )


def _labels(meta: Field) -> dict[str, str]:
    """Field 11 of an ObjectMeta: a map, that is repeated {1 key, 2 value}."""
    pairs = [_texts(field) for field in _inside(meta) if field.number == 11]
    return {pair[1]: pair.get(2, "") for pair in pairs if 1 in pair}


def _texts(message: Field) -> dict[int, str]:
    """The fields of a message that are text, by number."""
    found = {}
    for field in _inside(message):
        if field.wire_type != LENGTH or isinstance(field.value, int) or len(field.value) > _NAME_LIMIT:
            continue
        try:
            found[field.number] = bytes(field.value).decode()
        except UnicodeDecodeError:
            continue
    return found


def _inside(message: Field) -> Iterator[Field]:
    if message.wire_type == LENGTH and not isinstance(message.value, int):
        yield from _readable(message.value)


def _readable(message: bytes | memoryview) -> Iterator[Field]:
    """The fields up to the first that cannot be read."""
    try:
        yield from fields(message)
    except RecordError:
        return
