"""Who may reach an Azure container: keys, SAS, tokens, and what a URL and its credentials say."""

import base64
import hashlib
import hmac
import json
from datetime import UTC, datetime, timedelta

import pytest

from rootcellar.errors import (
    ConfigError,
    DeniedError,
    NotFoundError,
    ThrottledError,
    TransientError,
    UsageError,
)
from rootcellar.stores import AMBIENT, Backoff, DirectoryCredentials, FileCredentials, open_store
from rootcellar.stores.azure import identity
from rootcellar.stores.azure.options import PUBLIC
from rootcellar.stores.azure.signing import VERSION
from rootcellar.stores.wire import Request, Wire
from testbed.azurite import ACCOUNT, KEY, Container
from testbed.ports import free_port
from tests.stores.clouds import Rerouted, Values, azure_store
from tests.stores.fake_clouds import FakeService, FakeTokens, as_json
from tests.stores.places import keys_of
from tests.stores.proxy import Proxy
from tests.stores.scripts import run_script


@pytest.fixture(scope="module")
def container(azurite):
    return azurite.new_container()


def a_sas(**more):
    """An account SAS, signed as "Create an account SAS" of Azure's documentation has it."""
    ends = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    told = {
        "sp": "rwdlac",
        "ss": "b",
        "srt": "sco",
        "st": "",
        "se": ends,
        "sip": "",
        "spr": "https,http",
        **more,
    }
    parts = [told[name] for name in ("sp", "ss", "srt", "st", "se", "sip", "spr")]
    signed = "\n".join([ACCOUNT, *parts, VERSION, "", ""])
    key = base64.b64decode(KEY)
    signature = base64.b64encode(hmac.digest(key, signed.encode(), hashlib.sha256)).decode()
    quoted = signature.replace("+", "%2B").replace("/", "%2F").replace("=", "%3D")
    shown = "&".join(f"{name}={value}" for name, value in told.items() if value)
    return f"sv={VERSION}&{shown}&sig={quoted}"


def a_token():
    """What Azurite takes: it looks at the claims and not at the signature."""
    now = int(datetime.now(UTC).timestamp())
    tenant = "https://sts.windows.net/ab1f708d-50f6-404c-a006-d71b2ac7a606/"
    claims = {"aud": "https://storage.azure.com", "iss": tenant, "iat": now, "nbf": now, "exp": now + 3600}
    parts = ({"alg": "RS256", "typ": "JWT"}, claims)
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*encoded, "c2lnbmF0dXJl"])


# keys and SAS


def test_a_wrong_key_is_denied_with_a_hint(container):
    wrong = base64.b64encode(b"wrong-storage-key").decode()
    store = azure_store(container, keys=Values({"storageKey": wrong}))
    for attempt in (lambda: list(store.list()), lambda: store.put("a", [b"x"]), lambda: list(store.get("a"))):
        with pytest.raises(DeniedError, match="access denied") as caught:
            attempt()
        assert "storage key" in caught.value.hint
        assert wrong not in str(caught.value)


def test_a_key_that_is_no_key_is_told_before_anything_is_sent(container):
    with pytest.raises(ConfigError, match="no base64"):
        azure_store(container, keys=Values({"storageKey": "not a key"})).stat("a")


def test_a_rotated_key_is_used_without_a_restart(container):
    keys = Values({"storageKey": container.key})
    store = azure_store(container, "rotated", keys=keys)
    store.put("a", [b"x"])
    keys.rotate(storageKey=base64.b64encode(b"another").decode())
    with pytest.raises(DeniedError):
        store.stat("a")
    keys.rotate()  # in the middle of a swap the files are gone: the last whole ones hold
    with pytest.raises(DeniedError):
        store.stat("a")
    keys.rotate(storageKey=container.key)
    assert store.stat("a").size == 1


def test_a_sas_lets_in_and_is_never_told(container):
    store = azure_store(container, "sas", keys=Values({"sasToken": f"?{a_sas()}"}))
    store.put("a b", [b"x" * (6 << 20)])
    assert keys_of(store.list()) == ["a b"]
    assert b"".join(store.get("a b", start=1, end=3)) == b"xx"
    nobody = azure_store(
        Container(container.name, f"http://127.0.0.1:{free_port()}/{ACCOUNT}", None),
        keys=Values({"sasToken": a_sas()}),
    )
    with pytest.raises(TransientError) as caught:
        nobody.stat("a")
    assert "sig=" not in str(caught.value)


class OddHeaders(FakeService):
    """As a proxy may have it: a line that is no header, and one with a secret behind it."""

    def answer(self, method, path, query, headers, body):
        del method, path, query, headers, body
        return 200, {"Connection": "close", "X Odd ": "a proxy's", "X-Auth-Token": "the-token"}, b"body"


def test_no_address_and_no_header_of_an_odd_answer_is_logged(caplog):
    with OddHeaders() as fake:
        request = Request("GET", f"{fake.endpoint}/c/a?sv=1&sig=the-signature", "get", "azure://a/c/a")
        assert Wire().send(request).status == 200
    assert "the-signature" not in caplog.text
    assert "the-token" not in caplog.text


def test_a_sas_for_reading_only_does_not_write(container):
    store = azure_store(container, "sas", keys=Values({"sasToken": a_sas(sp="rl")}))
    with pytest.raises(DeniedError, match="access denied"):
        store.put("b", [b"x"])


def test_a_missing_container_is_not_found_with_a_hint(container):
    store = azure_store(Container("no-such-container", container.endpoint, None))
    for attempt in (lambda: list(store.list()), lambda: store.put("a", [b"x"]), lambda: store.delete("a")):
        with pytest.raises(NotFoundError, match="no such container") as caught:
            attempt()
        assert "create it" in caught.value.hint


# identities


@pytest.fixture
def federated(tmp_path, monkeypatch):
    token = tmp_path / "federated"
    token.write_text("from the kubelet\n")
    monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", str(token))
    monkeypatch.setenv("AZURE_CLIENT_ID", "client")
    monkeypatch.setenv("AZURE_TENANT_ID", "tenant")
    return token


def with_identity(monkeypatch, fake):
    """AzureStore asks its identity services over `fake`."""
    wire = Rerouted({identity.LOGIN: f"{fake.endpoint}/login/", identity.METADATA: f"{fake.endpoint}/imds"})
    real = identity.IdentitySigner
    monkeypatch.setattr("rootcellar.stores.azure.client.IdentitySigner", lambda: real(wire))


def given(token, seconds=3600):
    return as_json(200, {"access_token": token, "expires_in": seconds, "token_type": "Bearer"})


def test_a_federated_token_is_exchanged_once_and_opens_the_store(azurite_tls, federated, monkeypatch):
    with FakeTokens(given(a_token())) as fake:
        with_identity(monkeypatch, fake)
        store = azure_store(azurite_tls.new_container(), keys=AMBIENT)
        store.put("a", [b"x"])
        assert keys_of(store.list()) == ["a"]
        ((path, form),) = fake.forms()
    assert path == "/login/tenant/oauth2/v2.0/token"
    assert form == {
        "grant_type": "client_credentials",
        "client_id": "client",
        "scope": "https://storage.azure.com/.default",
        "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        "client_assertion": "from the kubelet",
    }


def test_a_token_near_its_end_is_replaced_with_the_newest_assertion(azurite_tls, federated, monkeypatch):
    with FakeTokens(given(a_token(), 299), given(a_token())) as fake:
        with_identity(monkeypatch, fake)
        store = azure_store(azurite_tls.new_container(), keys=AMBIENT)
        store.put("a", [b"x"])
        federated.write_text("a newer one")
        assert store.stat("a").size == 1
        assert store.stat("a").size == 1
        assert [form["client_assertion"] for _, form in fake.forms()] == ["from the kubelet", "a newer one"]


def test_a_managed_identity_is_asked_where_no_federated_token_is(azurite_tls, monkeypatch):
    monkeypatch.setenv("AZURE_CLIENT_ID", "mine")
    with FakeTokens(given(a_token())) as fake:
        with_identity(monkeypatch, fake)
        store = azure_store(azurite_tls.new_container(), keys=AMBIENT)
        store.put("a", [b"x"])
        ((method, path, query, headers, _),) = fake.asked
    assert (method, path, headers["Metadata"]) == ("GET", "/imds", "true")
    assert query == {
        "api-version": "2018-02-01",
        "resource": "https://storage.azure.com/",
        "client_id": "mine",
    }


def test_a_refused_identity_is_denied_with_its_reason(azurite_tls, federated, monkeypatch):
    said = {"error": "invalid_client", "error_description": "AADSTS70021: no matching\r\nfederated identity"}
    with FakeTokens(as_json(401, said)) as fake:
        with_identity(monkeypatch, fake)
        store = azure_store(azurite_tls.new_container(), keys=AMBIENT)
        with pytest.raises(DeniedError, match="AADSTS70021: no matching federated identity") as caught:
            store.stat("a")
    assert "federated credential" in caught.value.hint


def test_an_identity_service_that_is_busy_is_asked_again(azurite_tls, federated, monkeypatch):
    with FakeTokens(as_json(503, {}), as_json(200, []), given(a_token())) as fake:
        with_identity(monkeypatch, fake)
        azure_store(azurite_tls.new_container(), keys=AMBIENT).put("a", [b"x"])
        assert len(fake.asked) == 3


@pytest.mark.parametrize("status", [404, 410])
def test_a_metadata_service_without_a_token_yet_is_asked_again(azurite_tls, monkeypatch, status):
    container = azurite_tls.new_container()
    with FakeTokens(as_json(status, {"error": "not yet"}), given(a_token())) as fake:
        with_identity(monkeypatch, fake)
        azure_store(container, keys=AMBIENT).put("a", [b"x"])
        assert len(fake.asked) == 2
    with FakeTokens(as_json(status, {"error": "not yet"})) as fake:
        with_identity(monkeypatch, fake)
        with pytest.raises(ThrottledError, match=f"answers with status {status}") as caught:
            azure_store(container, keys=AMBIENT).stat("a")
    assert "give the machine or pod an identity" in caught.value.hint


def test_a_token_serves_to_its_end_where_the_identity_service_is_away(azurite_tls, monkeypatch):
    with FakeTokens(given(a_token(), 250), as_json(503, {})) as fake:
        with_identity(monkeypatch, fake)
        store = azure_store(azurite_tls.new_container(), keys=AMBIENT)
        store.put("a", [b"x"])
        assert store.stat("a").size == 1
        assert len(fake.asked) == 2


def test_a_token_is_not_sent_without_encryption(container, federated, monkeypatch):
    with FakeTokens(given(a_token())) as fake:
        with_identity(monkeypatch, fake)
        with pytest.raises(ConfigError, match="without encryption"):
            azure_store(container, keys=AMBIENT).stat("a")
        assert fake.asked == []


@pytest.mark.parametrize("name", ["AZURE_CLIENT_ID", "AZURE_TENANT_ID"])
def test_half_a_workload_identity_is_told(azurite_tls, federated, monkeypatch, name):
    monkeypatch.delenv(name)
    with pytest.raises(ConfigError, match=f"{name} is not set"):
        azure_store(azurite_tls.new_container(), keys=AMBIENT).stat("a")


def test_a_certificate_nobody_vouches_for_is_refused(azurite_tls):
    with pytest.raises(NotFoundError):
        azure_store(azurite_tls.new_container()).stat("a")
    store = azure_store(azurite_tls.new_container(), ca_file=None)
    with pytest.raises(Exception, match="certificate is not trusted") as caught:
        store.stat("a")
    assert not caught.value.retryable


# URLs and layouts


@pytest.fixture
def secret(tmp_path):
    (tmp_path / "storageAccount").write_text(f"{ACCOUNT}\n")
    (tmp_path / "storageKey").write_text(f"{KEY}\n")
    (tmp_path / "bucketName").write_text("ignored")
    return tmp_path


def test_a_url_and_the_references_files_open_a_store(container, secret):
    for account in (ACCOUNT, ""):
        url = f"azure://{account}/{container.name}/by url?endpoint={container.endpoint}"
        store = open_store(url, credentials=DirectoryCredentials(secret))
        store.put(f"v2/{account}", [b"x"]) if account else store.put("v2/none", [b"x"])
        assert store.url == f"azure://{ACCOUNT}/{container.name}/by%20url?endpoint={container.endpoint}"
    assert keys_of(store.list()) == ["v2/none", f"v2/{ACCOUNT}"]


def test_the_references_one_file_opens_a_store(container, tmp_path):
    (tmp_path / "azure.json").write_text(json.dumps({"storageAccount": ACCOUNT, "storageKey": KEY}))
    for source in (FileCredentials(tmp_path / "azure.json"), DirectoryCredentials(tmp_path)):
        store = open_store(f"azure:///{container.name}/x?endpoint={container.endpoint}", credentials=source)
        assert list(store.list()) == []


@pytest.mark.parametrize("values", [{}, {"domain": "blob.core.chinacloudapi.cn"}])
def test_the_domain_of_the_credentials_is_asked_through_the_machines_proxy(azurite, monkeypatch, values):
    keys = Values({"storageKey": KEY, **values})
    with Proxy(azurite.port) as proxy:
        monkeypatch.setenv("https_proxy", proxy.endpoint)
        store = open_store("azure://backups/container", credentials=keys, backoff=Backoff(attempts=1))
        with pytest.raises(TransientError):
            store.stat("a")
        asked = f"CONNECT backups.{values.get('domain', PUBLIC)}:443"
        assert asked.encode() in proxy.seen


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("azure://UPPER/container", "no storage account"),
        ("azure:///container", "no storage account"),
        ("azure://backups", "no container"),
        ("azure://backups/Container", "no container"),
        ("azure://backups/container?region=eu", "no option 'region'"),
        ("azure://backups/container?sig=abc", "holds a credential"),
        ("azure://backups/container?sasToken=abc", "holds a credential"),
        ("azure://backups/container?endpoint=ftp://x", "no address"),
        ("azure://backups/container?part-size=5000MiB", "not allowed"),
    ],
)
def test_a_url_that_cannot_be_meant_is_refused(url, message):
    with pytest.raises(UsageError, match=message):
        open_store(url)


@pytest.mark.parametrize("domain", ["blob example", "blob.example.org:99999"])
def test_a_domain_that_can_be_none_is_refused(domain):
    with pytest.raises(UsageError, match=r"is no domain|the domain is no address"):
        open_store("azure://backups/container", credentials=Values({"storageKey": KEY, "domain": domain}))


def test_credentials_of_another_account_are_refused(secret):
    with pytest.raises(ConfigError, match="of the account testbed, not of backups"):
        open_store("azure://backups/container", credentials=DirectoryCredentials(secret))


# memory

SCRIPT = """
    import sys
    from pathlib import Path
    from rootcellar.stores import AMBIENT, Backoff, DirectoryCredentials, open_store

    def peak():
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

    url, credentials, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
    store = open_store(url, credentials=DirectoryCredentials(Path(credentials)) if credentials else AMBIENT)
    store.put("small", [b"x"])
    list(store.get("small"))
    before = peak()
    block = bytes(range(256)) * 4096
    store.put("large", (block for _ in range(size >> 20)))
    uploaded = peak()
    total = sum(len(chunk) for chunk in store.get("large"))
    print(total, before, uploaded - before, peak() - uploaded)
"""


def test_100_megabytes_pass_in_bounded_memory(container, secret):
    url = f"azure://{ACCOUNT}/{container.name}/memory?endpoint={container.endpoint}"
    done = run_script(SCRIPT, url, secret, 100 << 20)
    assert done.returncode == 0, done.stderr
    total, before, up, down = map(int, done.stdout.split())
    assert total == 100 << 20
    assert before < 60 << 10
    assert up < 60 << 10, "four parts of 8 MiB in flight and one being filled, in KiB"
    assert down < 10 << 10
