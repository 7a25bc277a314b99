"""What only S3 has: versions, locks, encryption, TLS, accounts, servers that die, leftovers of others."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from rootcellar.errors import (
    DeniedError,
    NotFoundError,
    StoreError,
    TransientError,
    UsageError,
)
from rootcellar.stores import AMBIENT, Backoff, RetryingStore
from rootcellar.stores.s3.options import MIB, Encryption
from testbed.ports import free_port
from testbed.s3 import Bucket, SeaweedFS
from tests.stores.conformance import SourceError, content, exploding
from tests.stores.places import SMALL_PART, Keys, keys_of, s3_store
from tests.stores.scripts import race_to_create, run_script

_prefixes = itertools.count(1)

WHILE_IT_STARTS = Backoff(attempts=10_000, base=0.05, cap=0.5)
"""Its deadline ends it, not a number of tries: those are soon over where nobody listens yet."""


@pytest.fixture(scope="module")
def shared(seaweed):
    return seaweed.new_bucket()


@pytest.fixture(scope="module")
def shared_locked(seaweed):
    return seaweed.new_bucket(object_lock=True)


@pytest.fixture(scope="module")
def shared_tls(seaweed_tls):
    return seaweed_tls.new_bucket()


@pytest.fixture(scope="module")
def shared_plain(rclone_s3):
    return rclone_s3.new_bucket()


@pytest.fixture
def prefix():
    return f"test-{next(_prefixes)}"


@pytest.fixture
def store(shared, prefix):
    return s3_store(shared, prefix)


@pytest.fixture
def locked(shared_locked, prefix):
    return s3_store(shared_locked, prefix)


# encryption


def test_an_object_under_our_own_key_is_read_with_that_key_only(shared_tls, prefix):
    def opened(key):
        return s3_store(shared_tls, prefix, encryption=Encryption(customer_key=key))

    body = content(SMALL_PART + 100)
    mine = opened(b"k" * 32)
    mine.put("small", [b"0123456789"])
    mine.put("large", [body])
    assert b"".join(mine.get("small", start=2, end=5)) == b"234"
    assert b"".join(mine.get("large", start=SMALL_PART - 5)) == body[SMALL_PART - 5 :]
    assert mine.stat("large").size == len(body)
    assert mine.probe().conditional_create
    for other in (opened(b"o" * 32), s3_store(shared_tls, prefix)):
        with pytest.raises(StoreError):
            list(other.get("small"))


# TLS


def test_a_certificate_is_trusted_through_the_given_authority(shared_tls, prefix):
    with_file = s3_store(shared_tls, prefix)
    with_file.put("key", [content(SMALL_PART + 5)])
    with_text = s3_store(shared_tls, prefix, ca_file=None, ca_pem=shared_tls.ca.read_text())
    assert with_text.stat("key").size == SMALL_PART + 5
    assert keys_of(with_text.list()) == ["key"]


def test_a_certificate_nobody_vouches_for_is_refused(shared_tls, prefix):
    with pytest.raises(StoreError, match="certificate is not trusted") as caught:
        s3_store(shared_tls, prefix, ca_file=None).stat("key")
    assert not caught.value.retryable
    assert "ca=" in caught.value.hint


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")  # urllib3 warns, as it should
def test_any_certificate_is_taken_when_told_so(shared_tls, prefix):
    store = s3_store(shared_tls, prefix, ca_file=None, insecure=True)
    store.put("key", [b"x"])
    assert keys_of(store.list()) == ["key"]


# accounts and buckets


def each_verb(store):
    return [
        lambda: list(store.list()),
        lambda: store.stat("key"),
        lambda: list(store.get("key")),
        lambda: store.put("key", [b"x"]),
        lambda: store.put("key", iter([content(SMALL_PART + 1)])),
        lambda: store.delete("key"),
        lambda: store.delete_many(["key"]),
        lambda: store.abort_leftovers(timedelta(0)),
    ]


@pytest.mark.parametrize("kind", ["shared", "shared_plain"])
def test_a_wrong_secret_is_denied(kind, prefix, request):
    bucket = request.getfixturevalue(kind)
    for attempt in each_verb(s3_store(bucket, prefix, keys=Keys(bucket, "wrong-secret-key-0123456789"))):
        with pytest.raises(DeniedError) as caught:
            attempt()
        assert "wrong-secret" not in str(caught.value)


def test_an_unknown_account_is_denied_with_a_hint(shared, prefix):
    stranger = Bucket(shared.name, shared.endpoint, None, access_key="AKIASTRANGER0000")
    with pytest.raises(DeniedError, match="does not know the access key") as caught:
        list(s3_store(stranger, prefix).list())
    assert "look at the access key" in caught.value.hint


def test_no_credentials_at_all_are_denied(shared, prefix, monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with pytest.raises(DeniedError, match="no credentials"):
        list(s3_store(shared, prefix, keys=AMBIENT).list())


def test_a_missing_bucket_is_not_found_with_a_hint(rclone_s3, prefix):
    store = s3_store(Bucket("no-such-bucket", rclone_s3.endpoint, None), prefix)
    with pytest.raises(NotFoundError, match="no such bucket") as caught:
        list(store.list())
    assert "create it" in caught.value.hint
    for attempt in (lambda: store.put("key", [b"x"]), lambda: list(store.get("key"))):
        with pytest.raises(NotFoundError, match="no such bucket"):
            attempt()


def test_an_endpoint_where_nobody_listens_is_transient(prefix):
    store = s3_store(Bucket("b", f"http://127.0.0.1:{free_port()}", None), prefix)
    for attempt in each_verb(store):
        with pytest.raises(TransientError, match="no connection"):
            attempt()


# servers that die


@pytest.fixture
def mortal(tmp_path):
    """A server of our own, to be killed."""
    server = SeaweedFS(tmp_path / "mortal")
    try:
        server.start()
        yield server
    finally:
        server.kill()


def test_a_server_killed_during_an_upload(mortal):
    bucket = mortal.new_bucket()
    store = s3_store(bucket, "main", backoff=Backoff(attempts=3, base=0.01))
    store.put("old", [b"old"])

    def chunks():
        yield content(2 * SMALL_PART)
        mortal.kill()
        yield content(2 * SMALL_PART)

    with pytest.raises(TransientError, match="no connection") as caught:
        store.put("key", chunks())
    assert any("left behind" in note for note in caught.value.__notes__)
    mortal.start()
    after = RetryingStore(s3_store(bucket, "main"))
    assert keys_of(after.list()) == ["old"]
    assert after.abort_leftovers(timedelta(days=1)) == 0
    assert after.abort_leftovers(timedelta(0)) == 1
    assert after.abort_leftovers(timedelta(0)) == 0


def test_a_server_killed_and_started_during_an_upload_is_no_loss(mortal):
    bucket = mortal.new_bucket()
    store = s3_store(bucket, "main", backoff=WHILE_IT_STARTS)
    body = content(4 * SMALL_PART)
    with ThreadPoolExecutor(1) as threads:

        def chunks():
            yield body[: 2 * SMALL_PART + 7]
            mortal.kill()
            threads.submit(mortal.start)
            yield body[2 * SMALL_PART + 7 :]

        store.put("key", chunks())
    assert b"".join(store.get("key")) == body


def test_a_server_killed_during_a_download(mortal):
    bucket = mortal.new_bucket()
    body = content(40_000_000)
    s3_store(bucket).put("key", [body])
    store = s3_store(bucket, backoff=WHILE_IT_STARTS)
    chunks = store.get("key")
    read = [next(chunks)]
    mortal.kill()
    with ThreadPoolExecutor(1) as threads:
        threads.submit(mortal.start)
        read.extend(chunks)
    assert b"".join(read) == body


def test_a_server_that_stays_dead_ends_the_download(mortal):
    bucket = mortal.new_bucket()
    store = s3_store(bucket)
    store.put("key", [content(40_000_000)])
    chunks = store.get("key")
    next(chunks)
    mortal.kill()
    with pytest.raises(TransientError):
        list(chunks)


# memory, processes


SCRIPT = """
    import sys
    from rootcellar.stores import AMBIENT, DirectoryCredentials, open_store
    from pathlib import Path

    def peak():
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

    url, credentials, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
    store = open_store(url, credentials=DirectoryCredentials(Path(credentials)))
    store.put("small", [b"x"])
    list(store.get("small"))
    before = peak()
    block = bytes(range(256)) * 4096
    store.put("large", (block for _ in range(size >> 20)))
    uploaded = peak()
    total = sum(len(chunk) for chunk in store.get("large"))
    print(total, uploaded - before, peak() - uploaded)
"""


@pytest.fixture
def secret_directory(tmp_path, shared):
    directory = tmp_path / "credentials"
    directory.mkdir()
    (directory / "accessKeyID").write_text(shared.access_key)
    (directory / "secretAccessKey").write_text(f"{shared.secret_key}\n")
    return directory


def test_100_megabytes_pass_in_bounded_memory(shared, prefix, secret_directory):
    url = f"s3://{shared.name}/{prefix}?endpoint={shared.endpoint}"
    done = run_script(SCRIPT, url, secret_directory, 100 * MIB)
    assert done.returncode == 0, done.stderr
    total, up, down = map(int, done.stdout.split())
    assert total == 100 * MIB
    assert up < 60 << 10, "four parts of 8 MiB in flight and one being filled, in KiB"
    assert down < 10 << 10


def test_100_megabytes_pass_through_a_file_store_in_bounded_memory(tmp_path, secret_directory):
    done = run_script(SCRIPT, tmp_path / "store", secret_directory, 100 * MIB)
    assert done.returncode == 0, done.stderr
    total, up, down = map(int, done.stdout.split())
    assert total == 100 * MIB
    assert max(up, down) < 8 << 10


def test_many_processes_create_and_one_wins(shared, prefix, secret_directory):
    url = f"s3://{shared.name}/{prefix}?endpoint={shared.endpoint}"
    won = race_to_create(url, secret_directory, 3, 20)
    assert sorted(int(number) for numbers in won for number in numbers) == list(range(20))
    store = s3_store(shared, prefix)
    for racer, numbers in enumerate(won):
        assert {b"".join(store.get(f"v2/{number}")) for number in numbers} <= {str(racer).encode()}


# what others left in the bucket


def test_only_uploads_under_the_prefix_are_aborted(shared, prefix):
    client = shared.client()
    for key in (f"{prefix}/mine", f"{prefix}2/other", f"{prefix}/odd +%41&ä"):
        client.create_multipart_upload(Bucket=shared.name, Key=key)
    assert s3_store(shared, prefix).abort_leftovers(timedelta(0)) == 2
    left = client.list_multipart_uploads(Bucket=shared.name, Prefix=prefix)["Uploads"]
    assert [upload["Key"] for upload in left] == [f"{prefix}2/other"]
    assert s3_store(shared, f"{prefix}2").abort_leftovers(timedelta(0)) == 1


def test_an_upload_that_is_under_way_is_left_alone(store):
    aborted = []

    def chunks():
        yield content(2 * SMALL_PART)
        aborted.append(store.abort_leftovers(timedelta(hours=1)))
        yield b"more"

    store.put("key", chunks())
    assert aborted == [0]
    assert store.stat("key").size == 2 * SMALL_PART + 4


def test_folders_made_by_a_console_are_not_listed(shared, prefix, store):
    client = shared.client()
    for key in (f"{prefix}/", f"{prefix}/folder/"):
        client.put_object(Bucket=shared.name, Key=key, Body=b"")
    store.put("folder/key", [b"x"])
    assert keys_of(store.list()) == ["folder/key"]


def test_keys_that_we_would_not_write_are_seen_and_removed(shared, prefix, store):
    odd = ["a\x01b", "a\nb", ".hidden", "x/.y", "nbsp\xa0"]
    for key in odd:
        shared.client().put_object(Bucket=shared.name, Key=f"{prefix}/{key}", Body=b"x")
    assert sorted(keys_of(store.list())) == sorted(odd)
    assert store.delete_many(odd) == {}
    assert keys_of(store.list()) == []


def test_a_put_whose_source_fails_late_leaves_no_upload(shared, prefix, store):
    with pytest.raises(SourceError):
        store.put("key", exploding(*[content(SMALL_PART)] * 6))
    found = shared.client().list_multipart_uploads(Bucket=shared.name, Prefix=prefix)
    assert found.get("Uploads", []) == []


def test_an_empty_key_is_refused(store):
    for attempt in (store.stat, lambda key: list(store.get(key)), store.delete):
        with pytest.raises(UsageError, match="empty key"):
            attempt("")
