"""Which API server is spoken to, and as whom."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from rootcellar.errors import ConfigError, KubeUnavailableError
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


@pytest.mark.parametrize("scheme", ["", "HTTPS://"])
def test_a_server_without_a_scheme_or_with_one_in_capitals_is_spoken_to_by_tls(
    control_plane, tmp_path, scheme
):
    path = control_plane.kubeconfig(tmp_path / "admin")
    values = yaml.safe_load(path.read_text())
    cluster = values["clusters"][0]["cluster"]
    cluster["server"] = cluster["server"].replace("https://", scheme)
    path.write_text(yaml.safe_dump(values))
    access = kubeconfig.read([path])
    assert access.url == control_plane.access.url
    with KubeClient(access) as client:
        assert client.version() == control_plane.client.version()
    with KubeClient(replace(control_plane.access, url=f"HTTPS{access.url[5:]}")) as client:
        assert client.version() == control_plane.client.version()


AUTHORITY = {"certificate-authority": "ca.pem"}
NO_SCHEME = "has a server that begins neither with https:// nor with http://"


@pytest.mark.parametrize(
    ("cluster", "user", "url"),
    [
        ({"server": "it:6443", **AUTHORITY}, {}, "https://it:6443"),
        ({"server": "it:6443"}, {"client-certificate": "c", "client-key": "k"}, "https://it:6443"),
        ({"server": "it:6443", "insecure-skip-tls-verify": True}, {}, "https://it:6443"),
        ({"server": "it:6443"}, {}, None),
        ({"server": "it:6443/prefix", **AUTHORITY}, {}, None),
        ({"server": "https:/it:6443", **AUTHORITY}, {}, None),
        ({"server": "https"}, {}, None),
        ({"server": "ftp://it", **AUTHORITY}, {}, None),
        ({"server": "HTTPS://it:6443/prefix/"}, {}, "https://it:6443/prefix"),
    ],
)
def test_a_host_alone_is_spoken_to_by_tls_or_not_at_all(tmp_path, cluster, user, url):
    path = config(tmp_path / "config", cluster=cluster, user={**user, "token": "t"})
    if url is None:
        assert refused(path) == f"{path}: cluster 'it' {NO_SCHEME}"
    else:
        assert (kubeconfig.read([path]).url, kubeconfig.read([path]).token) == (url, "t")


@pytest.mark.parametrize("user", [{"token": "t"}, {"tokenFile": "t"}])
def test_a_token_of_a_kubeconfig_is_told_to_nobody_in_the_clear(tmp_path, user):
    path = config(tmp_path / "config", cluster={"server": "HTTP://localhost:8001"}, user=user)
    assert kubeconfig.read([path]) == Access("http://localhost:8001")


def test_the_name_of_a_certificate_counts_for_nothing_in_the_clear(tmp_path):
    cluster = {"server": "http://127.0.0.1:1", "tls-server-name": "it"}
    with pytest.raises(KubeUnavailableError) as caught:
        KubeClient(kubeconfig.read([config(tmp_path / "config", cluster=cluster)])).version()
    assert "Connection refused" in caught.value.message


@pytest.mark.parametrize(
    "url",
    [
        "https://[::1",
        "https://it:abc",
        "https://it:64433333",
        "https://",
        "https:///it",
        "https://a b",
        "https://a..b",
        "ftp://it",
        "it:6443",
    ],
)
def test_a_url_that_is_none_is_named_before_anything_is_sent(url):
    with pytest.raises(ConfigError) as caught:
        KubeClient(Access(url))
    assert caught.value.message == f"{url!r} cannot be the URL of an API server"
    assert caught.value.hint.startswith("https://HOST:PORT and no user")


@pytest.mark.parametrize("port", ["6443", "abc"])
def test_a_url_with_a_password_is_refused_and_not_shown(port):
    with pytest.raises(ConfigError) as caught:
        KubeClient(Access(f"https://me:secret@it:{port}"))
    assert caught.value.message == f"'it:{port}' cannot be the URL of an API server"


def test_a_token_that_cannot_be_sent_is_told_and_not_shown(tmp_path):
    file = tmp_path / "token"
    file.write_bytes(b"\xff\xfe")
    for token, where in (
        ("a\nb", "for http://it"),
        ("\u20ac", "for http://it"),
        (file, f"of the file {file}"),
    ):
        with pytest.raises(ConfigError) as caught:
            KubeClient(Access("http://it", token=token)).version()
        assert (
            caught.value.message
            == f"the token {where} cannot be sent: it is more than one line, or not ASCII"
        )
    file.write_bytes(b"  right \n")
    assert Access("http://it", token=file).authorization() == {"Authorization": "Bearer right"}


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
    assert refused(config(path, users=5)) == f"{path} has users that are no list"
    for inline in ("%", "\u00e9"):
        wrong = config(path, user={"client-key-data": inline})
        assert refused(wrong) == f"{path}: user 'it' has a client-key-data that is no base64"
    assert refused(config(path, user={"token": 5})) == f"{path}: user 'it' has a token that is no text"
    assert refused(config(path, user={"tokenFile": "a\0b"})).endswith(
        "user 'it' has a tokenFile that is no text"
    )
    named = {"server": "https://it", "tls-server-name": ".it"}
    assert refused(config(path, cluster=named)) == f"{path}: cluster 'it' has a tls-server-name that is none"


def test_what_a_kubeconfig_asks_for_and_we_do_not_do_is_refused(tmp_path):
    path = tmp_path / "config"
    for user, why in (
        ({"exec": {"command": "aws"}}, "has credentials made by a program (exec): it is not run"),
        (
            {"auth-provider": {"name": "gcp"}},
            "has credentials made by a program (auth-provider): it is not run",
        ),
        ({"username": "me"}, "has a password (username): it is not sent"),
        ({"password": "secret"}, "has a password (password): it is not sent"),
        ({"as": "another"}, "acts as another one (as): that is not done"),
        ({"as-uid": "1"}, "acts as another one (as-uid): that is not done"),
        ({"as-groups": ["few"]}, "acts as another one (as-groups): that is not done"),
        ({"as-user-extra": {"a": ["b"]}}, "acts as another one (as-user-extra): that is not done"),
    ):
        assert refused(config(path, user={"token": "t", **user})) == f"{path}: user 'it' {why}"
    for alone in ("client-certificate", "client-key"):
        why = "has one of client-certificate and client-key without the other"
        assert refused(config(path, user={alone: "a.pem"})) == f"{path}: user 'it' {why}"
    proxied = config(path, cluster={"server": "https://it", "proxy-url": "http://proxy:3128"})
    assert refused(proxied) == f"{path}: cluster 'it' is behind a proxy (proxy-url): none is used"


def test_a_certificate_that_is_none_is_named_before_anything_is_sent(tmp_path):
    (tmp_path / "ca.crt").write_text("no PEM")
    with pytest.raises(ConfigError) as caught:
        KubeClient(Access("https://localhost:1", ca=tmp_path / "ca.crt")).version()
    assert "a certificate for https://localhost:1 cannot be used" in caught.value.message
    with pytest.raises(ConfigError) as caught:
        KubeClient(Access("https://localhost:1", ca=tmp_path / "gone")).version()
    assert str(tmp_path / "gone") in caught.value.message
