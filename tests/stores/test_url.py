import http.server
import json
import os
import subprocess
import sys
import threading
import urllib.parse

import pytest

from rootcellar.errors import ConfigError, DeniedError, StoreError, TransientError, UsageError
from rootcellar.stores import (
    Backoff,
    DirectoryCredentials,
    EnvironmentCredentials,
    FileCredentials,
    FileStore,
    RetryingStore,
    open_store,
)
from rootcellar.stores.credentials import variable
from rootcellar.stores.following import FollowingStore
from rootcellar.stores.s3.options import MIB, Encryption
from rootcellar.stores.s3.store import S3Store
from testbed.ports import free_port
from testbed.tls import Authority
from tests.stores.places import QUICK, keys_of


def options_of(store):
    """What an opened S3 store was told; the decorators are around it."""
    assert isinstance(store, RetryingStore)
    assert isinstance(store.inner, FollowingStore)
    assert isinstance(store.inner.inner, S3Store)
    return store.inner.inner._options  # noqa: SLF001 - no other way to see what is not a request yet


@pytest.fixture(scope="module")
def shared(seaweed):
    return seaweed.new_bucket()


def layout(directory, **values):
    """A directory with one file per name."""
    directory.mkdir(exist_ok=True)
    for name, value in values.items():
        (directory / name).write_text(value)
    return DirectoryCredentials(directory)


def keys(bucket):
    return {"accessKeyID": bucket.access_key, "secretAccessKey": bucket.secret_key}


# URLs


def test_a_plain_path_is_a_file_store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    open_store("backups/a b").put("key", [b"x"])
    assert (tmp_path / "backups" / "a b" / "key").read_bytes() == b"x"
    assert isinstance(open_store("backups").inner, FileStore)


@pytest.mark.parametrize("url", ["file://{}/a%20b%3F", "file://localhost{}/a%20b%3F"])
def test_a_file_url_is_a_file_store(tmp_path, url):
    store = open_store(url.format(tmp_path))
    store.put("key", [b"x"])
    assert (tmp_path / "a b?" / "key").read_bytes() == b"x"
    assert store.url == f"file://{tmp_path}/a%20b%3F"
    assert keys_of(open_store(store.url).list()) == ["key"]


def test_a_directory_may_have_a_name_that_is_no_text(tmp_path):
    named = os.fsdecode(os.fsencode(tmp_path) + b"/\xff%")
    open_store(named).put("key", [b"x"])
    assert open_store(named).url == f"file://{tmp_path}/%FF%25"
    assert keys_of(open_store(open_store(named).url).list()) == ["key"]
    assert keys_of(open_store(f"file://{tmp_path}/\udcff%25").list()) == ["key"]


def test_an_s3_url_says_all_there_is_to_say(tmp_path):
    ca = tmp_path / "ca.pem"
    ca.write_text("")
    query = (
        "endpoint=https://s3.example.org:9000&region=eu-west-1&addressing=virtual"
        f"&ca={ca}&checksum=when_supported&sse=aws:kms&kms-key=key-7&part-size=16MiB&insecure=false"
    )
    found = options_of(open_store(f"s3://bucket/some/pre%20fix/?{query}"))
    assert (found.bucket, found.prefix) == ("bucket", "some/pre fix")
    assert (found.endpoint, found.region) == ("https://s3.example.org:9000", "eu-west-1")
    assert (found.addressing, found.ca_file, found.insecure) == ("virtual", str(ca), False)
    assert (found.request_checksums, found.response_checksums) == ("when_supported", "when_supported")
    assert found.encryption == Encryption("aws:kms", "key-7")
    assert found.part_size == 16 * MIB


def test_an_s3_url_may_be_short():
    found = options_of(open_store("s3://bucket"))
    assert (found.bucket, found.prefix, found.endpoint, found.addressing) == ("bucket", "", None, "auto")
    assert found.request_checksums == "when_supported"
    assert found.part_size == 8 * MIB
    custom = options_of(open_store("s3://bucket?endpoint=http://127.0.0.1:1"))
    assert custom.request_checksums == "when_required"


def test_a_store_says_its_url_as_it_can_be_opened_again():
    for url in (
        "s3://bucket/",
        "s3://bucket/a/b%20c",
        "s3://bucket/a?endpoint=https://s3.example.org&region=eu-west-1",
    ):
        assert open_store(url).url == url


REFUSED = [
    ("", "is no store"),
    ("@main", "is no store"),
    ("b2://bucket/prefix", "no store of kind b2"),
    ("http://example.org/bucket", "no store of kind http"),
    ("s3://", "is no bucket"),
    ("s3:///prefix", "is no bucket"),
    ("s3://bucket/a//b", "is no prefix"),
    ("s3://bucket/a#b", "has a # in it"),
    ("s3://bucket?colour=red", "no option 'colour'"),
    ("s3://bucket?region=a&region=b", "given twice"),
    ("s3://bucket?addressing=both", "unknown addressing"),
    ("s3://bucket?checksum=never", "unknown checksum mode"),
    ("s3://bucket?insecure=yes", "neither true nor false"),
    ("s3://bucket?part-size=1MiB", "is not allowed"),
    ("s3://bucket?part-size=8MB", "is no size"),
    ("s3://bucket?sse=rot13", "unknown encryption"),
    ("s3://bucket?sse=AES256&kms-key=k", "takes no kms-key"),
    ("s3://bucket?endpoint=s3.example.org", "the endpoint is no address"),
    *(
        (f"{store}=http://{host}", f"{what} is no address")
        for store, what in (
            ("s3://bucket?endpoint", "the endpoint"),
            ("azure://account/container?endpoint", "the endpoint"),
            ("gs://bucket?endpoint", "the endpoint"),
            ("swift://container?auth", "auth"),
        )
        for host in ("[::1", "[half]:9000", "host:99999", "host:port", "two words", "%22host%22")
    ),
    ("s3://bucket?part-size=" + "9" * 5000, "is no size"),
    ("s3://bucket/\udcff", "is no text in UTF-8"),
    ("s3://[bucket", "cannot be read"),
    ("file:///path%00", "holds a null byte"),
    ("file://host/path", "has no host"),
    ("file:///path?region=a", "has no options"),
]


@pytest.mark.parametrize(("url", "words"), REFUSED)
def test_a_url_that_cannot_be_meant_is_refused(url, words):
    with pytest.raises(UsageError, match=words.replace("?", r"\?")):
        open_store(url)


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIA123:hush@bucket/prefix",
        "s3://hush@bucket",
        "s3://bucket?access_key=hush",
        "s3://bucket?accessKeyID=hush",
        "s3://bucket?secret=hush",
        "s3://bucket?session-token=hush",
        "s3://bucket?password=hush",
        "s3://bucket?X-Amz-Signature=hush",
        "s3://bucket?endpoint=https://me:hush@s3.example.org",
        "file://me:hush@host/path",
    ],
)
def test_a_credential_in_a_url_is_refused_and_not_repeated(url):
    with pytest.raises(UsageError, match="holds a credential") as caught:
        open_store(url)
    assert "hush" not in f"{caught.value} {caught.value.hint}"
    assert "give credentials apart" in caught.value.hint


# credentials


@pytest.mark.parametrize("kind", ["directory", "json", "json in a directory", "environment"])
def test_each_source_of_credentials_opens_the_store(shared, tmp_path, monkeypatch, kind):
    said = {**keys(shared), "region": "us-east-1", "endpoint": shared.endpoint}
    if kind == "directory":
        credentials = layout(tmp_path / "secret", **{name: f" {value}\n" for name, value in said.items()})
    elif kind == "json":
        (tmp_path / "secret.json").write_text(json.dumps({**said, "s3ForcePathStyle": True}))
        credentials = FileCredentials(tmp_path / "secret.json")
    elif kind == "json in a directory":
        layout(tmp_path / "secret", accessKeyID="of another layout")
        (tmp_path / "secret" / "credentials.json").write_text(json.dumps(said))
        credentials = DirectoryCredentials(tmp_path / "secret")
    else:
        for name, value in said.items():
            monkeypatch.setenv(f"MAIN_{variable(name)}", value)
        credentials = EnvironmentCredentials("MAIN_")
    store = open_store(f"s3://{shared.name}/{kind.replace(' ', '-')}", credentials=credentials)
    store.put("key", [b"x"])
    assert keys_of(store.list()) == ["key"]
    assert shared.secret_key not in repr(store)
    assert shared.secret_key not in store.url


def test_ambient_credentials_are_those_of_the_environment(shared, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", shared.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", shared.secret_key)
    store = open_store(f"s3://{shared.name}/ambient?endpoint={shared.endpoint}")
    store.put("key", [b"x"])
    assert keys_of(store.list()) == ["key"]


def test_a_profile_that_is_not_there_is_told(monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(StoreError, match="nobody") as caught:
        open_store("s3://bucket").put("key", [b"x"])
    assert not caught.value.retryable


def test_the_layout_of_a_secret_says_more_than_keys(tmp_path):
    credentials = layout(
        tmp_path / "secret",
        accessKeyID="AKIA",
        secretAccessKey="hush",
        region="eu-west-1",
        endpoint="https://s3.example.org",
        s3ForcePathStyle="true",
        insecureSkipVerify="true",
        trustedCaCert="-----BEGIN CERTIFICATE-----",
        sseCustomerKey="k" * 32,
        sseCustomerAlgorithm="AES256",
        requestChecksumCalculation="when_supported",
        responseChecksumValidation="when_required",
        bucketName="ignored",
    )
    found = options_of(open_store("s3://bucket/prefix", credentials=credentials))
    assert (found.bucket, found.region, found.endpoint) == ("bucket", "eu-west-1", "https://s3.example.org")
    assert (found.addressing, found.insecure) == ("path", True)
    assert found.ca_pem == "-----BEGIN CERTIFICATE-----"
    assert found.encryption == Encryption("AES256", customer_key=b"k" * 32)
    assert (found.request_checksums, found.response_checksums) == ("when_supported", "when_required")
    assert "hush" not in repr(found)
    assert "kkkk" not in repr(found)


def test_a_url_is_believed_before_a_layout(tmp_path):
    credentials = layout(
        tmp_path / "secret",
        accessKeyID="AKIA",
        secretAccessKey="hush",
        region="eu-west-1",
        endpoint="https://s3.example.org",
        responseChecksumValidation="when_supported",
    )
    url = "s3://b?endpoint=http://127.0.0.1:1&region=here&checksum=when_required&insecure=true"
    found = options_of(open_store(url, credentials=credentials))
    assert (found.endpoint, found.region, found.insecure) == ("http://127.0.0.1:1", "here", True)
    assert (found.request_checksums, found.response_checksums) == ("when_required", "when_required")


@pytest.mark.parametrize(
    ("values", "addressing"),
    [
        ({}, "auto"),
        ({"endpoint": "https://s3.example.org"}, "virtual"),
        ({"endpoint": "https://10.0.0.1:9000"}, "path"),
        ({"endpoint": "https://s3.example.org", "s3ForcePathStyle": "true"}, "path"),
        ({"endpoint": "https://10.0.0.1:9000", "s3ForcePathStyle": "false"}, "virtual"),
        ({"endpoint": "https://s3.example.org", "s3ForcePathStyle": "1"}, "path"),
        ({"endpoint": "https://10.0.0.1:9000", "s3ForcePathStyle": "F"}, "virtual"),
        ({"endpoint": "https://10.0.0.1:9000", "s3ForcePathStyle": ""}, "path"),
    ],
)
def test_a_layout_without_a_style_means_what_its_first_reader_meant(tmp_path, values, addressing):
    credentials = layout(tmp_path / "secret", accessKeyID="AKIA", secretAccessKey="hush", **values)
    assert options_of(open_store("s3://bucket", credentials=credentials)).addressing == addressing


@pytest.mark.parametrize(
    "text", ["k" * 32, "a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s=", "a2tr" * 10 + "a2s=\n"]
)
def test_a_customer_key_is_plain_or_base64(tmp_path, text):
    credentials = layout(tmp_path / "secret", accessKeyID="A", secretAccessKey="S", sseCustomerKey=text)
    found = options_of(open_store("s3://bucket", credentials=credentials))
    assert found.encryption == Encryption("AES256", customer_key=b"k" * 32)


BROKEN_LAYOUTS = [
    ({"accessKeyID": "A"}, "lack secretAccessKey"),
    ({"secretAccessKey": "S"}, "lack accessKeyID"),
    ({"roleARN": "arn"}, "lack tokenPath"),
    ({"token": "t"}, "lack roleARN"),
    (
        {"accessKeyID": "A", "secretAccessKey": "S", "insecureSkipVerify": "yes"},
        "insecureSkipVerify is 'yes'",
    ),
    ({"accessKeyID": "A", "secretAccessKey": "S", "sseCustomerKey": "short"}, "not 32 bytes long"),
    (
        {"accessKeyID": "A", "secretAccessKey": "S", "endpoint": "s3.example.org"},
        "the endpoint is no address",
    ),
    ({"accessKeyID": "A", "secretAccessKey": "S", "endpoint": "http://[::1"}, "the endpoint is no address"),
    ({"unknown": "x"}, "no credentials in"),
    ({"credentials.json": "{"}, "is no JSON"),
    ({"credentials.json": "[]"}, "holds no JSON object"),
    ({"credentials.json": "{}"}, "no credentials in"),
    ({"credentials.json": '{"type": "authorized_user"}'}, "of type authorized_user are not taken"),
]


@pytest.mark.parametrize(("values", "words"), BROKEN_LAYOUTS)
def test_credentials_that_are_incomplete_are_refused_at_once(tmp_path, values, words):
    with pytest.raises(ConfigError, match=words):
        open_store("s3://bucket", credentials=layout(tmp_path / "secret", **values))


@pytest.mark.parametrize("endpoint", ["http://[::1", "host:99999"])
def test_an_endpoint_of_oss_that_can_be_none_is_the_credentials_fault(tmp_path, endpoint):
    said = layout(tmp_path / "secret", accessKeyID="A", accessKeySecret="S", storageEndpoint=endpoint)
    with pytest.raises(ConfigError, match="the credentials: the endpoint is no address"):
        open_store("oss://bucket", credentials=said)


def test_a_host_that_botocore_does_not_take_is_told_at_once(tmp_path):
    said = layout(tmp_path / "secret", accessKeyID="A", secretAccessKey="S")
    store = open_store("s3://bucket?endpoint=http://minio_1:9000", credentials=said)
    with pytest.raises(ConfigError, match="invalid endpoint: http://minio_1:9000"):
        store.stat("key")


@pytest.mark.parametrize("name", ["accessKeyID", "sessionToken"])
def test_a_key_that_no_header_can_hold_is_refused_and_not_shown(tmp_path, name):
    said = {"accessKeyID": "A", "secretAccessKey": "S", "sessionToken": "T", name: "hush\nmore"}
    store = open_store("s3://b?endpoint=http://127.0.0.1:1", credentials=layout(tmp_path / "secret", **said))
    with pytest.raises(ConfigError, match=f"{name} holds a line end") as caught:
        store.stat("key")
    assert "hush" not in str(caught.value)


def test_credentials_that_are_missing_are_refused_at_once(tmp_path):
    for credentials in (
        DirectoryCredentials(tmp_path / "none"),
        FileCredentials(tmp_path / "none.json"),
        EnvironmentCredentials("NOBODY_SETS_THIS_"),
    ):
        with pytest.raises(ConfigError):
            open_store("s3://bucket", credentials=credentials)


def test_a_missing_authority_is_refused_at_once(tmp_path):
    with pytest.raises(ConfigError, match="cannot read the certificate authority"):
        open_store(f"s3://bucket?ca={tmp_path}/none.pem")


def test_rotated_credentials_are_used_without_a_restart(shared, tmp_path):
    secret = tmp_path / "secret"
    credentials = layout(secret, **{**keys(shared), "secretAccessKey": "an-old-one-0123456789"})
    store = open_store(
        f"s3://{shared.name}/rotated?endpoint={shared.endpoint}", credentials=credentials, backoff=QUICK
    )
    with pytest.raises(DeniedError):
        list(store.list())
    (secret / ".#secretAccessKey").symlink_to("me@host.123:1")  # an editor's lock
    layout(secret, **keys(shared))
    os.utime(secret / "secretAccessKey", ns=(1, 1))  # a clock of coarse ticks may not show the change
    assert list(store.list()) == []
    (secret / "accessKeyID").rename(secret / "elsewhere")  # as in the middle of a swap
    assert list(store.list()) == []
    (secret / "secretAccessKey").rename(secret / "nowhere")
    (secret / "region").write_text("us-east-1")
    assert list(store.list()) == []
    (secret / "elsewhere").rename(secret / "accessKeyID")
    layout(secret, secretAccessKey="revoked-0123456789")
    with pytest.raises(DeniedError):
        list(store.list())


def exchange(secret, **values):
    """As `layout`, with a time that no clock of coarse ticks hides."""
    layout(secret, **values)
    last = max((path.stat().st_mtime_ns for path in secret.iterdir()), default=0)
    for name in values:
        os.utime(secret / name, ns=(last + 1, last + 1))


def test_all_that_a_secret_says_is_followed_without_a_restart(bucket_tls, tmp_path):
    secret = tmp_path / "secret"
    told = {
        **keys(bucket_tls),
        "endpoint": f"https://127.0.0.1:{free_port()}",
        "s3ForcePathStyle": "true",
        "trustedCaCert": Authority(tmp_path / "former").ca.read_text(),
    }
    store = open_store(
        f"s3://{bucket_tls.name}/followed", credentials=layout(secret, **told), backoff=Backoff(attempts=1)
    )
    with pytest.raises(TransientError, match="no connection"):
        store.put("key", [b"x"])
    exchange(secret, endpoint=bucket_tls.endpoint)
    with pytest.raises(StoreError, match="certificate is not trusted"):
        store.put("key", [b"x"])
    exchange(secret, trustedCaCert=bucket_tls.ca.read_text())
    store.put("key", [b"plain"])
    exchange(secret, sseCustomerKey="k" * 32)
    store.put("sealed", [b"x"])
    exchange(secret, sseCustomerKey="o" * 32)
    with pytest.raises(StoreError):
        list(store.get("sealed"))
    (secret / "sseCustomerKey").unlink()
    assert b"".join(store.get("key")) == b"plain"


@pytest.mark.parametrize(
    ("url", "name", "former", "later", "unmeant", "seen"),
    [
        ("s3://b?endpoint=https://e", "region", "a-1", "b-1", None, "region"),
        ("azure:///container", "domain", "a.example", "b.example", "no domain", "domain"),
        ("gs://bucket", "storageAPIEndpoint", "https://a", "https://b", "no address", "endpoint"),
        ("oss://bucket", "storageEndpoint", "https://a", "https://b", "https://b/?no", "endpoint"),
    ],
)
def test_what_can_be_meant_is_followed_and_nothing_else(url, name, former, later, unmeant, seen, tmp_path):
    secret = tmp_path / "secret"
    told = {
        "accessKeyID": "id",
        "secretAccessKey": "secret",
        "storageAccount": "account",
        "storageKey": "a2V5",
    }
    following = open_store(url, credentials=layout(secret, **told, **{name: former})).inner
    first = following.inner
    exchange(secret, secretAccessKey="another", storageKey="b3RoZXI=")
    assert following.inner is first, "keys rotate within"
    if unmeant is not None:
        exchange(secret, **{name: unmeant})
        assert following.inner is first
    exchange(secret, **{name: later})
    assert getattr(following.inner._options, seen) == later  # noqa: SLF001 - what it was opened with
    assert getattr(first._options, seen) == former  # noqa: SLF001 - as above


def test_a_store_goes_from_a_role_to_keys_and_never_to_none(shared, tmp_path):
    secret = tmp_path / "secret"
    told = {"roleARN": "arn:aws:iam::123456789012:role/backup", "token": "from the kubelet"}
    url = f"s3://{shared.name}/entry?endpoint={shared.endpoint}"
    following = open_store(url, credentials=layout(secret, **told)).inner
    first = following.inner
    exchange(secret, roleARN="arn:aws:iam::123456789012:role/another")
    second = following.inner
    assert second is not first
    for path in secret.iterdir():
        path.unlink()
    exchange(secret, region="eu-west-1")
    assert following.inner is second
    exchange(secret, **keys(shared))
    assert list(following.list()) == []


# roles


class FakeSts(http.server.BaseHTTPRequestHandler):
    """The one call of AWS's token service: a token for keys.  There is no emulator for it."""

    def do_POST(self):
        length = int(self.headers["Content-Length"])
        asked = urllib.parse.parse_qs(self.rfile.read(length).decode())
        self.server.asked.append({name: values[0] for name, values in asked.items()})
        access_key, secret_key = self.server.keys
        body = (
            '<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
            "<AssumeRoleWithWebIdentityResult><Credentials>"
            f"<AccessKeyId>{access_key}</AccessKeyId><SecretAccessKey>{secret_key}</SecretAccessKey>"
            "<SessionToken></SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration>"
            "</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
        ).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def serve():
    """Starts an HTTP server of a handler on loopback."""
    started = []

    def start(handler, **attributes):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        for name, value in attributes.items():
            setattr(server, name, value)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        started.append((server, thread))
        return server

    yield start
    for server, thread in started:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_role_is_assumed_with_the_token_of_the_layout(shared, tmp_path, monkeypatch, serve):
    sts = serve(FakeSts, asked=[], keys=(shared.access_key, shared.secret_key))
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{sts.server_port}")
    credentials = layout(
        tmp_path / "secret", roleARN="arn:aws:iam::1:role/r", token="a-token", region="us-east-1"
    )
    store = open_store(f"s3://{shared.name}/role?endpoint={shared.endpoint}", credentials=credentials)
    store.put("key", [b"x"])
    assert keys_of(store.list()) == ["key"]
    (asked,) = sts.asked
    assert asked["Action"] == "AssumeRoleWithWebIdentity"
    assert asked["RoleArn"] == "arn:aws:iam::1:role/r"
    assert asked["WebIdentityToken"] == "a-token"


def test_a_role_without_its_token_is_the_credentials_fault(tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{free_port()}")
    path = tmp_path / "credentials.json"
    path.write_text(json.dumps({"roleARN": "arn:aws:iam::1:role/r", "tokenPath": f"{tmp_path}/gone"}))
    store = open_store("s3://bucket?region=us-east-1", credentials=FileCredentials(path))
    with pytest.raises(ConfigError, match=f"cannot read the token in {tmp_path}/gone"):
        store.stat("key")


# addressing


class Recording(http.server.BaseHTTPRequestHandler):
    """An HTTP proxy that remembers what it is asked for, and answers that nobody may do that."""

    def do_GET(self):
        self.server.asked.append(self.path)
        self.send_response(403)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.mark.parametrize(
    ("addressing", "start"),
    [
        ("&addressing=virtual", "http://bucket.s3.example.org/?list-type=2"),
        ("&addressing=path", "http://s3.example.org/bucket?list-type=2"),
        ("&addressing=auto", "http://s3.example.org/bucket?list-type=2"),
        ("", "http://s3.example.org/bucket?list-type=2"),
    ],
)
def test_the_bucket_is_in_the_host_or_in_the_path(tmp_path, monkeypatch, serve, addressing, start):
    proxy = serve(Recording, asked=[])
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.server_port}")
    credentials = layout(tmp_path / "secret", accessKeyID="AKIA", secretAccessKey="hush")
    store = open_store(
        f"s3://bucket/prefix?endpoint=http://s3.example.org{addressing}", credentials=credentials
    )
    with pytest.raises(StoreError):
        list(store.list())
    (asked,) = proxy.asked
    assert asked.startswith(start)


# what is loaded when


def test_botocore_is_loaded_when_an_s3_store_is_opened_and_not_before():
    script = (
        "import sys; import rootcellar.stores as s\n"
        "s.open_store('x'); assert 'botocore' not in sys.modules\n"
        "s.open_store('s3://b'); assert 'botocore' in sys.modules"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment, timeout=60)


def test_a_machine_without_botocore_is_told_what_to_install():
    script = (
        "import sys; sys.modules['botocore'] = None; import rootcellar.stores as s\n"
        "from rootcellar.errors import RootcellarError\n"
        "try: s.open_store('s3://b')\nexcept RootcellarError as error: print(error, error.hint)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        env=environment,
        timeout=60,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "botocore is not installed pip install 'rootcellar[s3]'\n"
