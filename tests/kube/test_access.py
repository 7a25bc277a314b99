"""Which API server is spoken to, and as whom."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
import yaml

from rootcellar.errors import ConfigError
from rootcellar.kube import kubeconfig
from rootcellar.kube.access import Access
from rootcellar.kube.client import KubeClient
from rootcellar.kube.discovery import find, in_cluster


def config(path, *, cluster=None, user=None, context=None, **more):
    """A kubeconfig whose context, cluster and user are called "it"."""
    values = {
        "current-context": "it",
        "clusters": [{"name": "it", "cluster": cluster or {"server": "https://it:6443/"}}],
        "users": [{"name": "it", "user": user or {}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it", **(context or {})}}],
        **more,
    }
    path.write_text(yaml.safe_dump(values))
    return path


def refused(path, *more):
    with pytest.raises(ConfigError) as caught:
        kubeconfig.read([path, *more])
    return caught.value.message


@pytest.fixture
def mounted(tmp_path):
    directory = tmp_path / "mounted"
    directory.mkdir()
    (directory / "token").write_text("t1\n")
    (directory / "namespace").write_text("shoot--a--b")
    return directory


def test_the_administrators_kubeconfig_reaches_the_control_plane(control_plane, tmp_path):
    path = control_plane.kubeconfig(tmp_path / "admin")
    with KubeClient(kubeconfig.read([path])) as client:
        assert client.version() == control_plane.client.version()


def test_a_certificate_inside_the_file_serves_as_one_beside_it_does(control_plane, tmp_path):
    path = control_plane.kubeconfig(tmp_path / "admin")
    values = yaml.safe_load(path.read_text())
    user = values["users"][0]["user"]
    for name in ("client-certificate", "client-key"):
        if name in user:
            user[f"{name}-data"] = base64.b64encode(Path(user.pop(name)).read_bytes()).decode()
    path.write_text(yaml.safe_dump(values))
    access = kubeconfig.read([path])
    assert isinstance(access.key, bytes)
    with KubeClient(access) as client:
        assert client.version() == control_plane.client.version()


def test_a_pod_speaks_to_its_api_server_by_its_token_in_its_namespace(mounted):
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    access = in_cluster(environ, mounted=mounted)
    assert access.url == "https://[fd00::1]:6443"
    assert access.namespace == "shoot--a--b"
    assert access.authorization() == {"Authorization": "Bearer t1"}
    (mounted / "token").write_text("t2\n")
    assert access.authorization() == {"Authorization": "Bearer t2"}


def test_a_pod_without_a_mounted_token_is_told_what_to_set(tmp_path):
    with pytest.raises(ConfigError) as caught:
        in_cluster({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, mounted=tmp_path)
    assert caught.value.message == f"there is no {tmp_path / 'token'}"
    assert "automountServiceAccountToken" in caught.value.hint


def test_a_kubeconfig_that_is_named_comes_before_the_pods_own_and_that_before_the_home(mounted, tmp_path):
    home = tmp_path / "home"
    (home / ".kube").mkdir(parents=True)
    config(home / ".kube" / "config", cluster={"server": "https://home"})
    named = config(tmp_path / "named", cluster={"server": "https://named"})
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    everything = {"HOME": str(home), **pod, "KUBECONFIG": str(named)}
    assert find(everything, mounted=mounted).url == "https://named"
    assert find({"HOME": str(home), **pod}, mounted=mounted).url == "https://10.0.0.1:443"
    assert find({"HOME": str(home)}, mounted=mounted).url == "https://home"
    with pytest.raises(ConfigError) as caught:
        find({"HOME": str(tmp_path)}, mounted=mounted)
    assert "KUBECONFIG" in caught.value.hint


def test_paths_are_relative_to_the_file_and_what_is_inside_it_counts_first(tmp_path):
    inside = base64.b64encode(b"inside").decode()
    path = config(
        tmp_path / "config",
        cluster={"server": "https://it", "certificate-authority": "ca.pem", "tls-server-name": "kubernetes"},
        user={
            "client-certificate": "a.pem",
            "client-key": "a.key",
            "client-key-data": inside,
            "tokenFile": "t",
            "token": "x",
        },
        context={"namespace": "garden"},
    )
    assert kubeconfig.read([path]) == Access(
        "https://it",
        namespace="garden",
        ca=tmp_path / "ca.pem",
        certificate=tmp_path / "a.pem",
        key=b"inside",
        token=tmp_path / "t",
        server_name="kubernetes",
    )


def test_of_several_files_the_first_that_has_an_entry_counts(tmp_path):
    first = config(
        tmp_path / "first", users=[], clusters=[{"name": "it", "cluster": {"server": "https://a"}}]
    )
    second = config(tmp_path / "second", cluster={"server": "https://b"}, user={"token": "t"})
    access = kubeconfig.read([tmp_path / "missing", first, second])
    assert (access.url, access.token) == ("https://a", "t")


def test_each_thing_that_a_kubeconfig_lacks_is_named(tmp_path):
    path = tmp_path / "config"
    assert refused(path) == f"there is no kubeconfig {path}"
    path.write_text("[")
    assert refused(path).startswith(f"the kubeconfig {path} cannot be read: ")
    path.write_text("text")
    assert refused(path) == f"the kubeconfig {path} holds no mapping"
    assert refused(config(path, **{"current-context": ""})) == f"{path} has no current-context"
    assert refused(config(path, contexts=None)) == f"{path} has no context 'it'"
    assert refused(config(path, clusters=[{"name": "other"}])) == f"{path} has no cluster 'it'"
    assert refused(config(path, cluster={"proxy-url": "x"})) == f"{path}: cluster 'it' has no server"
    wrong = config(path, user={"client-key-data": "%"})
    assert refused(wrong) == f"{path}: user 'it' has a client-key-data that is no base64"
    assert refused(config(path, user={"token": 5})) == f"{path}: user 'it' has a token that is no text"
    made = refused(config(path, user={"exec": {"command": "aws"}}))
    assert "made by a program (exec): it is not run" in made


def test_a_certificate_that_is_none_is_named_before_anything_is_sent(tmp_path):
    (tmp_path / "ca.crt").write_text("no PEM")
    with pytest.raises(ConfigError) as caught:
        KubeClient(Access("https://localhost:1", ca=tmp_path / "ca.crt")).version()
    assert "a certificate for https://localhost:1 cannot be used" in caught.value.message
    with pytest.raises(ConfigError) as caught:
        KubeClient(Access("https://localhost:1", ca=tmp_path / "gone")).version()
    assert str(tmp_path / "gone") in caught.value.message
