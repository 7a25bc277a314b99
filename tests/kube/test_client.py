"""Objects read and written through a real API server, and each way in which it says no."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import suppress

import msgspec
import pytest

from rootcellar.errors import (
    KubeConflictError,
    KubeDeniedError,
    KubeError,
    KubeExistsError,
    KubeGoneError,
    KubeNotFoundError,
    KubeUnavailableError,
)
from rootcellar.kube.access import Access
from rootcellar.kube.client import KubeClient
from rootcellar.kube.discovery import in_cluster
from rootcellar.kube.kinds import LEASES, Key, untyped
from rootcellar.kube.refusal import refusal
from tests.agent.agents import wait_until

CONFIG_MAPS = untyped("", "v1", "configmaps")


@pytest.fixture
def admin(control_plane):
    return control_plane.client


@pytest.fixture
def pod(control_plane, account):
    """A client as a pod with the service account has it."""
    with KubeClient(in_cluster(control_plane.environ(), mounted=account.directory)) as client:
        yield client


def lease(name, holder="nobody", **meta):
    return {"metadata": {"name": name, **meta}, "spec": {"holderIdentity": holder}}


def test_an_object_is_created_read_changed_and_deleted(admin, namespace):
    made = admin.create(LEASES, lease("life", annotations={"keep": "1", "drop": "2"}), namespace)
    assert admin.get(LEASES, "life", namespace) == made
    patch = {"metadata": {"annotations": {"drop": None}}, "spec": {"holderIdentity": "somebody"}}
    changed = admin.merge_patch(LEASES, "life", patch, namespace)
    assert changed.spec.holder_identity == "somebody"
    assert changed.metadata.annotations == {"keep": "1"}
    assert changed.metadata.resource_version != made.metadata.resource_version
    admin.delete(LEASES, "life", namespace)
    with pytest.raises(KubeNotFoundError) as caught:
        admin.get(LEASES, "life", namespace)
    assert caught.value.message.endswith('leases.coordination.k8s.io "life" not found (404)')
    with pytest.raises(KubeNotFoundError):
        admin.delete(LEASES, "life", namespace)


def test_a_patch_that_names_a_version_loses_against_whoever_wrote_since(admin, namespace):
    read = admin.create(LEASES, lease("contended"), namespace).metadata.resource_version
    admin.merge_patch(LEASES, "contended", {"spec": {"holderIdentity": "first"}}, namespace)
    late = {"spec": {"holderIdentity": "second"}}
    with pytest.raises(KubeConflictError) as caught:
        admin.merge_patch(LEASES, "contended", late, namespace, resource_version=read)
    assert caught.value.retryable
    assert admin.get(LEASES, "contended", namespace).spec.holder_identity == "first"
    assert late == {"spec": {"holderIdentity": "second"}}


def test_a_second_object_of_a_name_is_told_apart_from_a_conflict(admin, namespace):
    admin.create(LEASES, lease("single"), namespace)
    with pytest.raises(KubeExistsError) as caught:
        admin.create(LEASES, lease("single"), namespace)
    assert not caught.value.retryable


def test_only_the_very_object_that_was_seen_is_deleted(admin, namespace):
    seen = admin.create(LEASES, lease("replaced"), namespace).metadata.uid
    admin.delete(LEASES, "replaced", namespace, uid=seen)
    other = admin.create(LEASES, lease("replaced"), namespace).metadata.uid
    with pytest.raises(KubeConflictError):
        admin.delete(LEASES, "replaced", namespace, uid=seen)
    assert admin.get(LEASES, "replaced", namespace).metadata.uid == other


def test_a_list_goes_through_all_pages_and_selects(admin, namespace):
    for number in range(7):
        labels = {"parity": "odd" if number % 2 else "even"}
        admin.create(LEASES, lease(f"n{number}", labels=labels), namespace)
    found = [each.metadata.name for each in admin.list(LEASES, namespace, page=2)]
    assert found == [f"n{number}" for number in range(7)]
    odd = admin.list(LEASES, namespace, labels="parity=odd", page=2)
    assert [each.metadata.name for each in odd] == ["n1", "n3", "n5"]
    one = admin.list(LEASES, namespace, fields="metadata.name=n4")
    assert [each.metadata.name for each in one] == ["n4"]
    everywhere = {(each.metadata.namespace, each.metadata.name) for each in admin.list(LEASES)}
    assert {(namespace, f"n{number}") for number in range(7)} <= everywhere


def test_an_untyped_kind_has_all_that_the_server_sends(admin, namespace):
    made = admin.create(CONFIG_MAPS, {"metadata": {"name": "plain"}, "data": {"a": "b"}}, namespace)
    assert made["data"] == {"a": "b"}
    assert made["metadata"]["managedFields"]


def managers(admin, name, namespace):
    found = msgspec.json.decode(admin.get_raw(CONFIG_MAPS, name, namespace))
    return {each["manager"]: each["operation"] for each in found["metadata"]["managedFields"]}


def config_map(name, **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def test_what_is_applied_is_created_and_what_is_no_longer_named_is_given_up(admin, namespace):
    one = config_map("applied", a="1", b="2")
    made = admin.apply(CONFIG_MAPS, "applied", one, namespace, field_manager="ours")
    assert made["data"] == {"a": "1", "b": "2"}
    admin.merge_patch(CONFIG_MAPS, "applied", {"data": {"c": "3"}}, namespace, field_manager="theirs")
    two = msgspec.json.encode(config_map("applied", a="0"))
    assert admin.apply(CONFIG_MAPS, "applied", two, namespace, field_manager="ours")["data"] == {
        "a": "0",
        "c": "3",
    }
    assert managers(admin, "applied", namespace) == {"ours": "Apply", "theirs": "Update"}


def test_a_field_of_another_manager_is_taken_only_by_force(admin, namespace):
    admin.create(CONFIG_MAPS, config_map("owned", a="theirs"), namespace, field_manager="theirs")
    ours = config_map("owned", a="ours")
    with pytest.raises(KubeConflictError) as caught:
        admin.apply(CONFIG_MAPS, "owned", ours, namespace, field_manager="ours", force=False)
    assert 'conflict with "theirs"' in caught.value.message
    assert admin.get(CONFIG_MAPS, "owned", namespace)["data"] == {"a": "theirs"}
    assert admin.apply(CONFIG_MAPS, "owned", ours, namespace, field_manager="ours")["data"] == {"a": "ours"}


def test_a_page_has_objects_as_they_came_and_the_moment_that_all_pages_are_of(admin, namespace):
    for number in range(3):
        admin.create(LEASES, lease(f"n{number}"), namespace)
    first = admin.list_page(LEASES, namespace, page=2)
    assert [msgspec.json.decode(each)["metadata"]["name"] for each in first.items] == ["n0", "n1"]
    admin.create(LEASES, lease("n9"), namespace)
    second = admin.list_page(LEASES, namespace, page=2, more=first.more)
    assert [msgspec.json.decode(each)["metadata"]["name"] for each in second.items] == ["n2"]
    assert (second.more, second.resource_version) == ("", first.resource_version)
    assert len(admin.list_page(LEASES, namespace, page=0).items) == 4


def test_metadata_has_what_decides_over_an_objects_end(admin, namespace):
    owner = admin.create(LEASES, lease("owner"), namespace).metadata
    reference = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "name": "owner", "uid": owner.uid}
    meta = {"finalizers": ["rootcellar.dev/test"], "ownerReferences": [{**reference, "controller": True}]}
    admin.create(LEASES, lease("held", **meta), namespace)
    admin.delete(LEASES, "held", namespace)
    held = admin.get(LEASES, "held", namespace).metadata
    assert held.key == Key(namespace, "held")
    assert held.finalizers == ("rootcellar.dev/test",)
    assert held.deletion_timestamp >= held.creation_timestamp
    (found,) = held.owner_references
    assert (found.kind, found.name, found.uid, found.controller) == ("Lease", "owner", owner.uid, True)
    admin.merge_patch(LEASES, "held", {"metadata": {"finalizers": None}}, namespace)
    with pytest.raises(KubeNotFoundError):
        admin.get(LEASES, "held", namespace)


def test_what_the_schema_forbids_is_an_error_that_names_the_field(admin, namespace):
    with pytest.raises(KubeError) as caught:
        admin.create(LEASES, {**lease("wrong"), "spec": {"leaseDurationSeconds": -1}}, namespace)
    assert type(caught.value) is KubeError
    assert "spec.leaseDurationSeconds" in caught.value.message
    assert not caught.value.retryable


def test_forbidden_says_who_may_not_do_what_and_what_to_do(pod, account):
    with pytest.raises(KubeDeniedError) as caught:
        pod.create(LEASES, lease("mine"), account.namespace)
    user = f"system:serviceaccount:{account.namespace}:{account.name}"
    assert f'User "{user}" cannot create resource "leases"' in caught.value.message
    assert "RoleBinding" in caught.value.hint
    assert not caught.value.retryable


def test_a_right_that_is_granted_later_counts_without_a_new_client(pod, account):
    with pytest.raises(KubeDeniedError):
        pod.create(LEASES, lease("mine"), account.namespace)
    account.set_rules([{"apiGroups": ["*"], "resources": ["leases"], "verbs": ["create"]}])

    def created():
        with suppress(KubeDeniedError):
            return pod.create(LEASES, lease("mine"), account.namespace)

    # The authorizer hears of a role by its watch, a moment later.
    assert wait_until(created, "the right counts").metadata.name == "mine"


def test_a_rotated_token_is_read_anew(pod, account, admin):
    admin.create(LEASES, lease("read"), account.namespace)
    assert pod.get(LEASES, "read", account.namespace).spec.holder_identity == "nobody"
    account.revoke()

    def refused():
        try:
            pod.get(LEASES, "read", account.namespace)
        except KubeDeniedError as error:
            return error

    # The API server remembers a good token for ten seconds.
    error = wait_until(refused, "the token of a deleted account is refused")
    assert "(401)" in error.message
    assert "token" in error.hint
    account.rotate()
    assert pod.get(LEASES, "read", account.namespace).spec.holder_identity == "nobody"


def test_a_client_outlives_a_restart_of_the_api_server(own_control_plane):
    admin, namespace = own_control_plane.client, own_control_plane.new_namespace()
    admin.create(LEASES, lease("kept"), namespace)
    own_control_plane.api_server.kill()
    try:
        with pytest.raises(KubeUnavailableError) as caught:
            admin.get(LEASES, "kept", namespace)
        assert caught.value.retryable
        assert own_control_plane.url in caught.value.message
    finally:
        own_control_plane.api_server.start()
    assert admin.get(LEASES, "kept", namespace).spec.holder_identity == "nobody"


def test_a_server_that_says_nothing_is_not_waited_for_longer_than_told():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = KubeClient(Access(f"http://127.0.0.1:{silent.getsockname()[1]}"), timeout=0.2)
        with pytest.raises(KubeUnavailableError) as caught:
            client.get(LEASES, "any", "default")
    assert "does not answer" in caught.value.message


def test_a_server_of_another_authority_is_not_trusted(control_plane, authority):
    with KubeClient(Access(control_plane.url, ca=authority.ca)) as client, pytest.raises(KubeError) as caught:
        client.version()
    assert "is not trusted" in caught.value.message
    assert "ca.crt" in caught.value.hint
    assert not caught.value.retryable


def test_an_authority_that_is_exchanged_counts_for_the_next_request(control_plane, authority, tmp_path):
    ca = tmp_path / "ca.crt"
    ca.write_bytes(authority.ca.read_bytes())
    with KubeClient(Access(control_plane.url, ca=ca)) as client:
        with pytest.raises(KubeError):
            client.version()
        ca.write_bytes(control_plane.ca)
        assert client.version().startswith("v1.")


def test_what_is_no_answer_of_an_api_server_is_said_to_be_none(authority):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.server.certificate, authority.server.key)
    body = b"<html>sign in</html>"
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body)
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_answer_once, args=(server, context, answer))
        thread.start()
        client = KubeClient(Access(f"https://localhost:{server.getsockname()[1]}", ca=authority.ca))
        with pytest.raises(KubeError) as caught:
            client.get(LEASES, "any", "default")
        thread.join()
    assert "cannot be read" in caught.value.message
    assert "proxy" in caught.value.hint


def _answer_once(server, context, answer):
    connection, _ = server.accept()
    with context.wrap_socket(connection, server_side=True) as secure:
        while b"\r\n\r\n" not in secure.recv(65536):
            pass
        secure.sendall(answer)


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (400, "BadRequest", KubeError),
        (401, "Unauthorized", KubeDeniedError),
        (403, "Forbidden", KubeDeniedError),
        (404, "NotFound", KubeNotFoundError),
        (409, "AlreadyExists", KubeExistsError),
        (409, "Conflict", KubeConflictError),
        (410, "Expired", KubeGoneError),
        (422, "Invalid", KubeError),
        (429, "TooManyRequests", KubeUnavailableError),
        (500, "InternalError", KubeUnavailableError),
        (504, "Timeout", KubeUnavailableError),
    ],
)
def test_each_refusal_has_its_class(status, reason, kind):
    body = b'{"kind":"Status","message":"told so.","reason":"%s"}' % reason.encode()
    error = refusal("get", "/api/v1/nodes", status, body)
    assert type(error) is kind
    assert error.message == f"get /api/v1/nodes: told so ({status})"
    assert error.operation == "get"


def test_a_refusal_without_a_status_object_shows_what_came():
    error = refusal("get", "/api/v1/nodes", 502, b"Bad\nGateway")
    assert type(error) is KubeUnavailableError
    assert error.message == "get /api/v1/nodes: Bad Gateway (502)"


def test_a_namespace_of_what_has_none_is_a_mistake():
    nodes = untyped("", "v1", "nodes", is_namespaced=False)
    assert nodes.path(name="a b") == "/api/v1/nodes/a%20b"
    with pytest.raises(ValueError, match="nodes are in no namespace"):
        nodes.path("default")
