"""Who may reach a Google bucket: keys, exchanged tokens, metadata servers, and what URLs and layouts say."""

import base64
import json
import os
import time

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from rootcellar.errors import ConfigError, DeniedError, NotFoundError, UsageError
from rootcellar.stores import AMBIENT, Backoff, DirectoryCredentials, FileCredentials, open_store
from rootcellar.stores.gcs import identity
from testbed.gcs import GcsBucket
from tests.stores.clouds import Rerouted, gcs_store
from tests.stores.fake_clouds import FakeTokens, as_json
from tests.stores.places import keys_of
from tests.stores.proxy import Proxy
from tests.stores.scripts import run_script
from tests.stores.test_azure_access import SCRIPT

GOOGLE = {
    "https://oauth2.googleapis.com": "oauth2",
    "https://sts.googleapis.com": "sts",
    "https://iamcredentials.googleapis.com": "iam",
    "http://metadata.google.internal": "metadata",
}
ACTING = (
    "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/b@p.iam.test:generateAccessToken"
)


def rerouted(fake):
    return Rerouted({real: f"{fake.endpoint}/{name}" for real, name in GOOGLE.items()})


def given(token, seconds=3600):
    return as_json(200, {"access_token": token, "expires_in": seconds})


def texts(tokens, times):
    return [tokens.current().text for _ in range(times)]


@pytest.fixture(scope="module")
def key():
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.fixture
def account(tmp_path, key):
    """A service account's file."""
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    told = {
        "type": "service_account",
        "project_id": "p",
        "private_key_id": "k1",
        "private_key": pem.decode(),
        "client_email": "backup@p.iam.test",
        "token_uri": "https://oauth2.googleapis.com/token",
    }
    path = tmp_path / "serviceaccount.json"
    path.write_text(json.dumps(told))
    return path


@pytest.fixture
def external(tmp_path):
    """The reference's layout of a workload identity: credentialsConfig, token, projectID."""
    told = {
        "type": "external_account",
        "audience": "//iam.googleapis.com/projects/1/pools/x",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": "https://sts.googleapis.com/v1/token",
        "service_account_impersonation_url": ACTING,
        "credential_source": {"file": "/somewhere/else/token"},
    }
    (tmp_path / "credentialsConfig").write_text(json.dumps(told))
    (tmp_path / "token").write_text("from the kubelet\n")
    (tmp_path / "projectID").write_text("p")
    return tmp_path


def altered(path, **more):
    before = path.stat().st_mtime_ns
    path.write_text(json.dumps({**json.loads(path.read_text()), **more}))
    os.utime(path, ns=(before + 1, before + 1))  # a clock of coarse ticks may not show the change


# identities


def test_a_service_account_signs_what_it_asks_for(account, key):
    with FakeTokens(given("t1")) as fake:
        tokens = identity.tokens(FileCredentials(account), rerouted(fake))
        assert texts(tokens, 2) == ["t1", "t1"]
        ((path, form),) = fake.forms()
    assert path == "/oauth2/token"
    assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    signed, _, signature = form["assertion"].rpartition(".")
    raw = base64.urlsafe_b64decode(signature + "==")
    key.public_key().verify(raw, signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    header, claims = (json.loads(base64.urlsafe_b64decode(part + "==")) for part in signed.split("."))
    assert header == {"alg": "RS256", "typ": "JWT", "kid": "k1"}
    assert (claims["iss"], claims["scope"]) == ("backup@p.iam.test", identity.SCOPE)
    assert claims["aud"] == "https://oauth2.googleapis.com/token"
    assert claims["exp"] - claims["iat"] == 3600
    assert abs(claims["iat"] - time.time()) < 60


def test_a_rotated_file_and_an_ending_token_are_asked_for_anew(account):
    with FakeTokens(given("t1"), given("t2", 299), given("t3")) as fake:
        tokens = identity.tokens(FileCredentials(account), rerouted(fake))
        assert texts(tokens, 1) == ["t1"]
        altered(account, private_key_id="k2")
        assert texts(tokens, 3) == ["t2", "t3", "t3"]


def test_a_token_serves_while_its_file_is_being_swapped(account):
    with FakeTokens(given("t1"), given("t2")) as fake:
        tokens = identity.tokens(FileCredentials(account), rerouted(fake))
        assert texts(tokens, 1) == ["t1"]
        whole = account.read_text()
        account.unlink()
        assert texts(tokens, 2) == ["t1", "t1"]
        account.write_text(whole.replace('"k1"', '"k2"'))
        assert texts(tokens, 2) == ["t2", "t2"]


def test_an_external_account_exchanges_its_token_and_acts_as_another(external):
    impersonated = as_json(200, {"accessToken": "acting", "expireTime": "2036-01-01T00:00:00Z"})
    with FakeTokens(given("federated"), impersonated) as fake:
        tokens = identity.tokens(DirectoryCredentials(external), rerouted(fake))
        assert texts(tokens, 2) == ["acting", "acting"]
        exchange, acting = fake.asked
        form = fake.forms()[0][1]
    assert exchange[1] == "/sts/v1/token"
    assert form == {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "audience": "//iam.googleapis.com/projects/1/pools/x",
        "scope": "https://www.googleapis.com/auth/cloud-platform",
        "requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "subject_token": "from the kubelet",
    }
    assert acting[3]["Authorization"] == "Bearer federated"
    assert json.loads(acting[4])["scope"] == [identity.SCOPE]


def test_a_machine_without_credentials_asks_its_metadata_server():
    with FakeTokens(given("t1")) as fake:
        assert identity.tokens(AMBIENT, rerouted(fake)).current().text == "t1"
        ((method, path, _, headers, _),) = fake.asked
    assert (method, headers["Metadata-Flavor"]) == ("GET", "Google")
    assert path == "/metadata/computeMetadata/v1/instance/service-accounts/default/token"


def test_the_environment_may_name_a_file(account, monkeypatch):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(account))
    with FakeTokens(given("t1")) as fake:
        assert identity.tokens(AMBIENT, rerouted(fake)).current().text == "t1"
        assert fake.asked[0][1] == "/oauth2/token"


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("token_uri", "https://oauth2.googleapis.com.example.org/token"),
        ("token_uri", "http://oauth2.googleapis.com/token"),
    ],
)
def test_a_key_is_used_at_googles_address_only(account, name, address):
    altered(account, **{name: address})
    with FakeTokens(given("t1")) as fake:
        with pytest.raises(ConfigError, match=f"{name} of the Google credentials is not Google's"):
            identity.tokens(FileCredentials(account), rerouted(fake)).current()
        assert fake.asked == []


@pytest.mark.parametrize(
    ("name", "address", "asked"),
    [
        ("token_url", "https://sts.example.org/v1/token", 0),
        ("service_account_impersonation_url", ACTING.replace("googleapis.com", "example.org"), 1),
    ],
)
def test_a_token_is_exchanged_at_googles_addresses_only(external, name, address, asked):
    altered(external / "credentialsConfig", **{name: address})
    with FakeTokens(given("t1")) as fake:
        with pytest.raises(ConfigError, match=f"{name} of the Google credentials is not Google's"):
            identity.tokens(DirectoryCredentials(external), rerouted(fake)).current()
        assert len(fake.asked) == asked


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"private_key": "no key"}, "private_key of the Google credentials cannot be read"),
        ({"client_email": None}, None),
    ],
)
def test_a_broken_key_file_is_told(account, more, message):
    told = {name: value for name, value in {**json.loads(account.read_text()), **more}.items() if value}
    account.write_text(json.dumps(told))
    with pytest.raises(ConfigError, match=message or "lack client_email"):
        identity.tokens(FileCredentials(account)).current()


def test_a_missing_token_is_told(external):
    (external / "token").unlink()
    with pytest.raises(ConfigError, match="no token to exchange"):
        identity.tokens(DirectoryCredentials(external)).current()


def test_a_refused_key_is_denied_with_its_reason(account):
    said = {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}
    with (
        FakeTokens(as_json(400, said)) as fake,
        pytest.raises(DeniedError, match="Invalid JWT Signature") as caught,
    ):
        identity.tokens(FileCredentials(account), rerouted(fake)).current()
    assert "service account's key" in caught.value.hint


# URLs and layouts


def test_a_url_opens_a_store_and_an_emulator_is_sent_no_credential(fake_gcs, account):
    bucket = fake_gcs.new_bucket()
    with Proxy(fake_gcs.port) as proxy:
        url = f"gs://{bucket.name}/by url?endpoint={proxy.endpoint}&part-size=256KiB"
        store = open_store(url, credentials=FileCredentials(account))
        store.put("v2/a", [b"x" * 600_000])
        assert keys_of(store.list()) == ["v2/a"]
        assert b"uthorization" not in proxy.seen
        assert proxy.seen.count(b"Content-Range: ") == 3
        assert store.url == f"gs://{bucket.name}/by%20url?endpoint={proxy.endpoint}"


@pytest.mark.parametrize("said", ["https://storage.eu.test", "https://storage.eu.test/storage/v1/"])
def test_the_endpoint_beside_the_credentials_is_asked_through_the_machines_proxy(
    fake_gcs, account, monkeypatch, said
):
    (account.parent / "storageAPIEndpoint").write_text(f"{said}\n")
    with Proxy(fake_gcs.port) as proxy, FakeTokens(given("t1")) as fake:
        monkeypatch.setattr(
            "rootcellar.stores.gcs.client.tokens", lambda found: identity.tokens(found, rerouted(fake))
        )
        monkeypatch.setenv("https_proxy", proxy.endpoint)
        credentials = DirectoryCredentials(account.parent)
        store = open_store("gs://bucket/p", credentials=credentials, backoff=Backoff(attempts=1))
        with pytest.raises(Exception, match="no connection"):
            store.stat("a")
        assert b"CONNECT storage.eu.test:443" in proxy.seen


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("gs://UPPER/prefix", "no bucket"),
        ("gs:///prefix", "no bucket"),
        ("gs://bucket/a//b", "no prefix"),
        ("gs://bucket?region=eu", "no option 'region'"),
        ("gs://bucket?token=abc", "holds a credential"),
        ("gs://bucket?endpoint=storage.test", "no address"),
        ("gs://bucket?part-size=300000", "not allowed"),
    ],
)
def test_a_url_that_cannot_be_meant_is_refused(url, message):
    with pytest.raises(UsageError, match=message):
        open_store(url)


def test_a_missing_bucket_is_not_found(fake_gcs):
    store = gcs_store(GcsBucket("no-such-bucket", fake_gcs.endpoint))
    with pytest.raises(NotFoundError):
        store.put("a", [b"x"])


def test_100_megabytes_pass_in_bounded_memory(fake_gcs):
    bucket = fake_gcs.new_bucket()
    done = run_script(SCRIPT, f"gs://{bucket.name}/memory?endpoint={bucket.endpoint}", "", 100 << 20)
    assert done.returncode == 0, done.stderr
    total, before, up, down = map(int, done.stdout.split())
    assert total == 100 << 20
    assert before < 60 << 10
    assert up < 60 << 10, "two parts of 8 MiB and copies of one, in KiB"
    assert down < 10 << 10
