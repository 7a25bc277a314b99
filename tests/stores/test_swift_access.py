"""How a Swift store gets its tokens: from a fake keystone that hands out tokens of a real Swift, and from
that Swift's own v1 authentication.
"""

import json

import pytest

from rootcellar.errors import ConfigError, DeniedError, StoreError, ThrottledError
from rootcellar.stores import DirectoryCredentials, FileCredentials, open_store
from tests.stores.fake_keystone import APPLICATION, PASSWORD, FakeKeystone
from tests.stores.places import QUICK
from tests.stores.swift_place import swift_store

# What TempAuth takes for a token of its own and cannot read; it answers with 401.
REVOKED = "AUTH_zftkrevoked"


@pytest.fixture
def keystone(container):
    with FakeKeystone(container) as fake:
        yield fake


@pytest.fixture
def secret(tmp_path, keystone):
    """A directory as a mounted Secret has it."""

    def write(**values):
        for name, value in values.items():
            (tmp_path / name).write_text(value)
        return DirectoryCredentials(tmp_path)

    write(authURL=f"{keystone.auth}\n", domainName="garden", tenantName="shoots", region="north")
    return write


@pytest.fixture
def by_password(secret):
    return secret(username="backup", password="pass-word\n")


def test_a_password_opens_the_project_of_the_reference_s_layout(container, keystone, by_password):
    store = open_store(f"swift://{container.name}/etcd", credentials=by_password, backoff=QUICK)
    store.put("key", [b"body"])
    assert container.names() == ["etcd/key"]
    assert keystone.asked == [("/identity/v3/auth/tokens", PASSWORD)]
    assert store.url == f"swift://{container.name}/etcd"


def test_an_application_credential_needs_no_project(container, keystone, secret):
    credentials = secret(
        applicationCredentialID="app-id",
        applicationCredentialName="n",
        applicationCredentialSecret="app-secret",
    )
    open_store(f"swift://{container.name}", credentials=credentials).put("key", [b"body"])
    assert [asked for _, asked in keystone.asked] == [APPLICATION]


def test_one_json_file_says_the_same(container, keystone, tmp_path):
    values = {"authURL": keystone.auth.removesuffix("/v3"), "domainName": "garden", "tenantName": "shoots"}
    path = tmp_path / "credentials.json"
    path.write_text(json.dumps({**values, "username": "backup", "password": "pass-word", "region": "north"}))
    open_store(f"swift://{container.name}", credentials=FileCredentials(path)).put("key", [b"body"])
    assert container.names() == ["key"]


def test_the_variables_of_openstack_are_the_ambient_way(container, keystone, monkeypatch):
    for name, value in {
        "OS_AUTH_URL": keystone.auth,
        "OS_USER_DOMAIN_NAME": "garden",
        "OS_PROJECT_NAME": "shoots",
        "OS_USERNAME": "backup",
        "OS_PASSWORD": "pass-word",
    }.items():
        monkeypatch.setenv(name, value)
    open_store(f"swift://{container.name}").put("key", [b"body"])
    assert container.names() == ["key"]


def test_a_token_that_swift_refuses_is_replaced_once(container, keystone, by_password):
    keystone.tokens = [REVOKED]
    store = swift_store(container, auth=None, credentials=by_password)
    store.put("key", iter([b"body"]))
    assert container.names() == ["key"]
    assert len(keystone.asked) == 2
    keystone.tokens = [REVOKED, REVOKED]
    store = swift_store(container, auth=None, credentials=by_password)
    with pytest.raises(DeniedError, match="access denied"):
        store.stat("key")
    assert len(keystone.asked) == 4


def test_a_token_serves_until_shortly_before_its_end(container, keystone, by_password):
    store = swift_store(container, auth=None, credentials=by_password)
    store.put("a", [b"x"])
    store.put("b", [b"x"])
    assert len(keystone.asked) == 1
    keystone.lasts = "2001-01-01T00:00:00Z"
    store = swift_store(container, auth=None, credentials=by_password)
    store.put("c", [b"x"])
    store.put("d", [b"x"])
    assert len(keystone.asked) == 3


def test_a_rotated_secret_is_used_without_a_restart(container, keystone, secret, by_password):
    store = swift_store(container, auth=None, credentials=by_password)
    store.put("a", [b"x"])
    rotated = json.loads(json.dumps(PASSWORD).replace("pass-word", "new-word"))
    keystone.known = [rotated]
    secret(password="new-word")
    store.put("b", [b"x"])
    assert [asked for _, asked in keystone.asked] == [PASSWORD, rotated]


def test_a_wrong_password_is_denied(container, keystone, secret):
    store = swift_store(container, auth=None, credentials=secret(username="backup", password="wrong"))
    with pytest.raises(DeniedError, match="access denied"):
        list(store.list())
    assert "wrong" not in store.url


def test_an_identity_service_that_is_busy_is_worth_another_try(container, keystone, by_password):
    keystone.status = 503
    with pytest.raises(ThrottledError, match="overloaded"):
        swift_store(container, auth=None, credentials=by_password).stat("key")


def test_an_address_without_keystone_is_told(container, keystone, by_password):
    store = swift_store(
        container, auth=f"{container.auth.removesuffix('/auth/v1.0')}/v3", credentials=by_password
    )
    with pytest.raises(StoreError, match=r"no identity service there|status 4"):
        store.stat("key")


@pytest.mark.parametrize(
    ("regions", "words"),
    [((), "no object store in region north"), (("south", "west"), "no object store in region north")],
)
def test_a_region_that_is_not_there_is_told(container, keystone, by_password, regions, words):
    keystone.regions = list(regions)
    with pytest.raises(ConfigError, match=words) as caught:
        swift_store(container, auth=None, credentials=by_password).stat("key")
    assert ", ".join(regions) in caught.value.hint


def test_of_several_regions_one_has_to_be_named(container, keystone, by_password, tmp_path):
    keystone.regions = ["north", "south"]
    (tmp_path / "region").unlink()
    with pytest.raises(ConfigError, match="no object store for this project"):
        swift_store(container, auth=None, credentials=by_password).stat("key")
    swift_store(container, auth=None, region="south", credentials=by_password).put("key", [b"x"])
    assert container.names() == ["key"]


@pytest.mark.parametrize("lacking", ["username", "password", "tenantName"])
def test_what_the_credentials_lack_is_named(container, secret, by_password, tmp_path, lacking):
    (tmp_path / lacking).unlink()
    with pytest.raises(ConfigError, match=f"the credentials lack {lacking}"):
        swift_store(container, auth=None, credentials=by_password).stat("key")


def test_a_user_of_swift_s_own_authentication_may_be_written_in_two_parts(container, secret):
    account, user = container.user.split(":")
    credentials = secret(
        authURL=container.auth, tenantName=account, username=user, password=container.password
    )
    open_store(f"swift://{container.name}", credentials=credentials).put("key", [b"body"])
    assert container.names() == ["key"]


def test_a_password_of_swift_s_own_authentication_may_have_any_letters(container, secret):
    credentials = secret(
        authURL=container.auth, username="testbed:grower", password=f"{container.password}-grün-€"
    )
    open_store(f"swift://{container.name}", credentials=credentials).put("key", [b"body"])
    assert container.names() == ["key"]


@pytest.mark.parametrize("name", ["tenantName", "username", "password"])
@pytest.mark.parametrize("end", ["\n", "\r\n ", "\x00"])
def test_what_no_header_can_hold_is_refused_and_not_shown(container, secret, name, end):
    said = {"tenantName": "testbed", "username": "backup", "password": container.password}
    credentials = secret(authURL=container.auth, **{**said, name: f"hush{end}more"})
    with pytest.raises(ConfigError, match=f"{name} holds a line end") as caught:
        open_store(f"swift://{container.name}", credentials=credentials).stat("key")
    assert "hush" not in str(caught.value)


def test_nothing_that_says_where_tokens_are_is_told(container):
    with pytest.raises(ConfigError, match="nothing says where tokens are had"):
        swift_store(container, auth=None).stat("key")
