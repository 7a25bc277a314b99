import pytest

from rootcellar.errors import ConfigError, EtcdUnavailableError
from rootcellar.etcd.client import EtcdClient
from rootcellar.etcd.connection import TlsFiles
from rootcellar.etcd.process import EtcdProcess
from testbed.tls import Authority


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    """Another authority, which nobody here trusts."""
    return Authority(tmp_path_factory.mktemp("stranger"))


def files(authority, pair=None, **others):
    return TlsFiles(authority.ca, *((pair.certificate, pair.key) if pair else ()), **others)


@pytest.fixture(scope="module")
def secured(binary, authority, tmp_path_factory):
    """A member that speaks TLS and wants a client certificate."""
    flags = [
        f"--cert-file={authority.server.certificate}",
        f"--key-file={authority.server.key}",
        f"--trusted-ca-file={authority.ca}",
        "--client-cert-auth",
        "--unsafe-no-fsync",
    ]
    directory = tmp_path_factory.mktemp("etcd") / "data"
    with EtcdProcess(binary, directory, scheme="https", flags=flags) as member:
        with EtcdClient([member.client_url], tls=files(authority, authority.client())) as client:
            member.wait_ready(client)
        yield member


def hint_of(endpoint, tls):
    with EtcdClient([endpoint], tls=tls) as client, pytest.raises(EtcdUnavailableError) as caught:
        client.header()
    assert endpoint in caught.value.message
    return caught.value.hint


def test_a_client_certificate_opens_the_door(secured, authority):
    with EtcdClient([secured.client_url], tls=files(authority, authority.client())) as client:
        revision = client.put(b"a", b"1").revision
        assert client.header().revision == revision
        with client.snapshot() as stream:
            assert sum(map(len, stream)) == stream.size + 32


def test_an_endpoint_without_scheme_is_tls_when_files_are_given(secured, authority):
    bare = secured.client_url.removeprefix("https://")
    with EtcdClient([bare], tls=files(authority, authority.client())) as client:
        assert client.header().revision > 0


def test_the_wrong_authority_is_told(secured, stranger, authority):
    assert "check the CA file" in hint_of(secured.client_url, files(stranger, authority.client()))


def test_a_missing_client_certificate_is_told(secured, authority):
    assert "give cert and key" in hint_of(secured.client_url, files(authority))


def test_a_client_certificate_of_another_authority_is_told(secured, authority, stranger):
    assert "give cert and key" in hint_of(secured.client_url, files(authority, stranger.client()))


def test_plaintext_to_a_tls_endpoint_is_told(secured):
    assert "try https://" in hint_of(secured.client_url.replace("https", "http"), None)


def test_tls_to_a_plaintext_endpoint_is_told(alone, authority):
    endpoint = alone.client_url.replace("http", "https")
    assert "try http://" in hint_of(endpoint, files(authority, authority.client()))


def test_another_host_name_can_be_demanded_of_the_certificate(secured, authority):
    named = files(authority, authority.client(), server_name="localhost")
    with EtcdClient([secured.client_url], tls=named) as client:
        assert client.header().revision > 0
    wrong = files(authority, authority.client(), server_name="etcd.example.org")
    assert "does not name this host" in hint_of(secured.client_url, wrong)


def test_tls_files_for_a_plaintext_endpoint_are_a_contradiction(authority):
    with pytest.raises(ConfigError, match="is plaintext") as caught:
        EtcdClient(["http://127.0.0.1:2379"], tls=TlsFiles(authority.ca))
    assert "https://" in caught.value.hint


def test_a_certificate_without_its_key_is_refused(authority):
    with pytest.raises(ConfigError, match="needs its key"):
        EtcdClient(["https://127.0.0.1:1"], tls=TlsFiles(authority.ca, cert=authority.client().certificate))


def test_an_unreadable_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"absent\.pem"):
        EtcdClient(["https://127.0.0.1:1"], tls=TlsFiles(tmp_path / "absent.pem"))


@pytest.mark.parametrize("which", ["ca", "cert", "key"])
@pytest.mark.parametrize(("share", "message"), [(0, "is empty"), (0.5, "holds no PEM")])
def test_a_file_that_is_not_there_as_a_whole_is_refused(authority, tmp_path, which, share, message):
    """An empty one had gRPC end the whole process with SIGABRT."""
    pair = authority.client()
    paths = {"ca": authority.ca, "cert": pair.certificate, "key": pair.key}
    raw = paths[which].read_bytes()
    paths[which] = tmp_path / "part.pem"
    paths[which].write_bytes(raw[: int(len(raw) * share)])
    with pytest.raises(ConfigError, match=rf"part\.pem {message}"):
        EtcdClient(["https://127.0.0.1:1"], tls=TlsFiles(**paths))


def test_an_open_client_takes_changed_files_once_they_are_whole(secured, stranger, authority, tmp_path):
    """A pod's certificates are exchanged under it, and whoever holds a client cannot know."""
    ca, pair = tmp_path / "ca.pem", authority.client()
    ca.write_bytes(stranger.ca.read_bytes())
    with EtcdClient([secured.client_url], tls=TlsFiles(ca, pair.certificate, pair.key)) as client:
        with pytest.raises(EtcdUnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
            client.header()
        ca.write_bytes(b"")
        with pytest.raises(EtcdUnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
            client.header()
        ca.write_bytes(authority.ca.read_bytes())
        revision = client.put(b"a", b"1").revision
        ca.unlink()
        assert client.header().revision == revision  # by what it has read
