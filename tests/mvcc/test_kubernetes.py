import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootcellar.mvcc import kubernetes
from rootcellar.mvcc.kubernetes import Encoding, KubernetesObject
from rootcellar.mvcc.varint import put_field_bytes, put_field_uint

# What an API server stores for a Pod, put together by hand after its .proto files.
POD_META = (
    put_field_bytes(1, b"nginx")
    + put_field_bytes(2, b"")
    + put_field_bytes(3, b"default")
    + put_field_bytes(5, b"f2a3c0de-0000-4000-8000-000000000001")
    + put_field_bytes(6, b"")
    + put_field_uint(7, 0)
    + put_field_bytes(8, put_field_uint(1, 1_732_000_000) + put_field_uint(2, 0))
    + put_field_bytes(11, put_field_bytes(1, b"app") + put_field_bytes(2, b"web"))
    + put_field_bytes(11, put_field_bytes(1, b"empty") + put_field_bytes(2, b""))
)
POD = (
    b"k8s\0"
    + put_field_bytes(1, put_field_bytes(1, b"v1") + put_field_bytes(2, b"Pod"))
    + put_field_bytes(2, put_field_bytes(1, POD_META) + put_field_bytes(2, b"\x0a\x00"))
    + put_field_bytes(3, b"")
    + put_field_bytes(4, b"")
)
CUSTOM = {
    "apiVersion": "druid.gardener.cloud/v1alpha1",
    "kind": "Etcd",
    "metadata": {"name": "etcd-main", "namespace": "shoot--a", "uid": "u", "labels": {"role": "main"}},
    "spec": {"replicas": 3},
}


def test_a_protobuf_object_is_named():
    found = kubernetes.recognise(POD)
    assert found == KubernetesObject(
        encoding=Encoding.PROTOBUF,
        api_version="v1",
        kind="Pod",
        namespace="default",
        name="nginx",
        uid="f2a3c0de-0000-4000-8000-000000000001",
        labels={"app": "web", "empty": ""},
    )
    assert str(found) == "v1 Pod default/nginx"


def test_a_custom_resource_in_json_is_named():
    found = kubernetes.recognise(json.dumps(CUSTOM).encode())
    assert str(found) == "druid.gardener.cloud/v1alpha1 Etcd shoot--a/etcd-main"
    assert (found.uid, found.labels) == ("u", {"role": "main"})


def test_an_object_without_a_namespace_is_named_alone():
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": None}}
    assert str(kubernetes.recognise(json.dumps(node).encode())) == "v1 Node n1"


@pytest.mark.parametrize(
    ("value", "provider", "key_name", "said"),
    [
        (b"k8s:enc:aescbc:v1:key1:\x8e\x00", "aescbc", "key1", "encrypted by aescbc with key key1"),
        (b"k8s:enc:kms:v2:vault:\x0a\x01", "kms", "vault", "encrypted by kms with key vault"),
        (b"k8s:enc:secretbox:v1::x", "secretbox", "", "encrypted by secretbox"),
        (b"k8s:enc:", "", "", "encrypted by an unknown provider"),
    ],
)
def test_an_encrypted_value_says_who_holds_the_key(value, provider, key_name, said):
    found = kubernetes.recognise(value)
    assert (found.encoding, found.provider, found.key_name) == (Encoding.ENCRYPTED, provider, key_name)
    assert str(found) == said


def test_cbor_is_recognised():
    assert str(kubernetes.recognise(b"\xd9\xd9\xf7\xa1")) == "cbor"


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"plain",
        b"{",
        b"{}",
        b'{"apiVersion":"v1","kind":"Pod"}',
        b'{"apiVersion":"v1","kind":7,"metadata":{}}',
        b'{"apiVersion":"","kind":"Pod","metadata":{}}',
        b'{"a":' * 100_000,
        b'{"apiVersion":"\xff","kind":"Pod","metadata":{}}',
        b'{"apiVersion":"v1","kind":"\\ud800","metadata":{}}',
    ],
)
def test_what_kubernetes_did_not_write_is_nothing(value):
    assert kubernetes.recognise(value) is None


@pytest.mark.parametrize("cut", range(4, len(POD)))
def test_a_cut_object_gives_what_could_be_read(cut):
    found = kubernetes.recognise(POD[:cut])
    assert found.encoding is Encoding.PROTOBUF
    assert found.kind in ("", "Pod")
    assert found.name in ("", "nginx")


@given(st.one_of(st.binary(), st.binary().map(lambda tail: b"k8s\0" + tail)))
def test_garbage_never_raises(value):
    kubernetes.recognise(value)


@given(st.integers(0, len(POD) - 1), st.integers(0, 255))
def test_a_flipped_byte_never_raises_and_stays_printable_as_json(at, byte):
    found = kubernetes.recognise(POD[:at] + bytes([byte]) + POD[at + 1 :])
    assert found is None or msgspec.json.encode(found)
