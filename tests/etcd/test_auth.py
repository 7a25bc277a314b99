import pytest

from rootcellar.errors import EtcdDeniedError
from rootcellar.etcd.client import ALL_KEYS, EtcdClient
from rootcellar.etcd.connection import TlsFiles
from rootcellar.etcd.process import EtcdProcess

READER = {"user": "reader", "password": "r"}
ROOT = {"user": "root", "password": "p"}


@pytest.fixture
def guarded(alone, client):
    """A member with authentication on: root, `reader` of all keys, `tenant` of the keys below t/."""
    client.put(b"a", b"1", lease=client.lease_grant(1000, lease=5))
    client.role_add("root")
    client.role_add("read-all", ALL_KEYS)
    client.role_add("tenant", (b"t/", b"t0"), write=True)
    client.user_add("root", "p", roles=["root"])
    client.user_add("reader", "r", roles=["read-all"])
    client.user_add("tenant", "t", roles=["tenant"])
    client.auth_enable()
    return alone


def as_user(member, user=None, password=None):
    return EtcdClient([member.client_url], user=user, password=password)


def test_a_reader_of_all_keys_may_do_what_a_delta_needs(guarded):
    with as_user(guarded, **READER) as client:
        newest = client.header().revision
        assert client.lease_ttl(5).granted == 1000
        with client.watch(2) as watch:
            assert watch.get(20).last == newest


def test_a_full_needs_root(guarded):
    with as_user(guarded, **READER) as client:
        with pytest.raises(EtcdDeniedError, match="permission denied") as caught:
            client.snapshot()
        assert caught.value.hint == "the user needs the role root"
    with as_user(guarded, **ROOT) as client, client.snapshot() as stream:
        assert sum(map(len, stream)) == stream.size + 32


def test_a_live_hash_needs_root(guarded):
    with as_user(guarded, **READER) as client:
        with pytest.raises(EtcdDeniedError, match="permission denied") as caught:
            client.hash_kv()
        assert caught.value.hint == "the user needs the role root"


def test_the_auth_revision_is_for_root_until_etcd_3_7(guarded, binary):
    with as_user(guarded, **ROOT) as client:
        status = client.auth_status()
        if binary.version < (3, 5):
            assert status is None
        else:
            assert status.enabled
            before = status.revision
            client.role_add("another")
            assert client.auth_status().revision == before + 1
    with as_user(guarded, **READER) as client:
        if (3, 5) <= binary.version < (3, 7):
            with pytest.raises(EtcdDeniedError) as caught:
                client.auth_status()
            assert "role root" in caught.value.hint
        elif binary.version >= (3, 7):
            assert client.auth_status().revision == before + 1


def test_a_user_of_some_keys_is_told_what_a_watch_of_all_needs(guarded):
    with as_user(guarded, user="tenant", password="t") as client:
        client.put(b"t/a", b"1")
        with pytest.raises(EtcdDeniedError) as caught:
            client.header()
        assert "permission to read these keys" in caught.value.hint
        with client.watch(2) as watch, pytest.raises(EtcdDeniedError, match="permission denied") as caught:
            watch.get(20)
        assert "permission to read all keys" in caught.value.hint
        with client.watch(2, b"t/", b"t0") as watch:
            assert [event.kv.key for event in watch.get(20).events] == [b"t/a"]


def test_a_wrong_password_is_told(guarded):
    with (
        as_user(guarded, user="reader", password="wrong") as client,
        pytest.raises(EtcdDeniedError) as caught,
    ):
        client.header()
    assert caught.value.hint == "check the user and password"


def test_no_user_at_all_is_told(guarded):
    with as_user(guarded) as client:
        with pytest.raises(EtcdDeniedError) as caught:
            client.header()
        assert "give a user and password" in caught.value.hint
        with client.watch(2) as watch, pytest.raises(EtcdDeniedError):
            watch.get(20)


def test_a_token_that_a_restart_forgot_is_fetched_anew(guarded):
    with as_user(guarded, **ROOT) as client:
        before = client.put(b"a", b"2").revision
        with client.watch(before + 1) as watch:
            guarded.kill()
            guarded.start()
            guarded.wait_ready(client)
            assert client.put(b"a", b"3").revision == before + 1
            assert watch.get(20).last == before + 1
        guarded.kill()
        guarded.start()
        with as_user(guarded, **ROOT) as other:
            guarded.wait_ready(other)
        with client.watch(before + 1) as watch:
            assert watch.get(20).last == before + 1
        guarded.kill()
        guarded.start()
        with as_user(guarded, **ROOT) as other:
            guarded.wait_ready(other)
        with client.snapshot() as stream:
            assert sum(map(len, stream)) == stream.size + 32


def test_a_token_older_than_the_roles_is_fetched_anew(guarded):
    with as_user(guarded, **ROOT) as client, as_user(guarded, **ROOT) as admin:
        client.put(b"a", b"2")
        admin.role_add("new")
        client.put(b"a", b"3")
        assert client.header().revision == admin.header().revision


def test_a_user_does_no_harm_where_authentication_is_off_and_helps_once_it_is_on(alone, client):
    with as_user(alone, **ROOT) as cautious:
        cautious.put(b"a", b"1")
        client.role_add("root")
        client.user_add("root", "p", roles=["root"])
        client.auth_enable()
        cautious.put(b"a", b"2")


def test_a_certificate_can_be_the_user(binary, authority, tmp_path):
    flags = [
        f"--cert-file={authority.server.certificate}",
        f"--key-file={authority.server.key}",
        f"--trusted-ca-file={authority.ca}",
        "--client-cert-auth",
        "--unsafe-no-fsync",
    ]

    def named(name):
        pair = authority.client(name)
        return EtcdClient([member.client_url], tls=TlsFiles(authority.ca, pair.certificate, pair.key))

    with EtcdProcess(binary, tmp_path / "data", scheme="https", flags=flags) as member:
        with named("root") as client:
            member.wait_ready(client)
            client.role_add("root")
            client.user_add("root", "p", roles=["root"])
            client.auth_enable()
            assert client.header().revision == 1
            with client.snapshot() as stream:
                assert sum(map(len, stream)) == stream.size + 32
        with named("nobody") as client, pytest.raises(EtcdDeniedError):
            client.header()
