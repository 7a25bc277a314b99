"""OSS through its S3 interface: options, credentials, and the contract on a fake in front of SeaweedFS."""

import dataclasses
import itertools
from datetime import timedelta

import pytest

from rootcellar.errors import AlreadyExistsError, ConfigError
from rootcellar.stores import Create, DirectoryCredentials, ReplaceIf, open_store, oss
from rootcellar.stores.s3.store import S3Store
from tests.stores import places
from tests.stores.conformance import Conformance, content
from tests.stores.fake_oss import FakeOss
from tests.stores.places import SMALL_PART, keys_of

_roots = itertools.count(1)


@pytest.fixture
def secret(tmp_path):
    def write(**values):
        for name, value in values.items():
            (tmp_path / name).write_text(value)
        return DirectoryCredentials(tmp_path)

    return write


class TestOssStoreOnAFake(Conformance):
    """It creates, and never replaces, by a condition."""

    @pytest.fixture(scope="class")
    @classmethod
    def fake(cls, seaweed):
        with FakeOss(seaweed) as fake:
            yield fake

    @pytest.fixture(scope="class")
    @classmethod
    def shared(cls, seaweed):
        return seaweed.new_bucket()

    @pytest.fixture
    def place(self, shared, fake):
        root = f"place-{next(_roots)}"
        direct = places.s3_place(shared, places.bare, conditional=True)

        def open_at(prefix):
            return places.retrying(
                places.s3_store(
                    shared,
                    f"{root}/{prefix}",
                    endpoint=fake.endpoint,
                    create_header=oss.FORBID_OVERWRITE,
                    scheme="oss",
                )
            )

        return dataclasses.replace(direct, open=open_at)

    @pytest.fixture
    def many(self, seaweed_with_many, fake):
        return places.s3_store(seaweed_with_many, endpoint=fake.endpoint, scheme="oss")

    def test_the_probe_tells_the_truth_and_leaves_nothing(self, place, store):
        found = store.probe()
        assert (found.conditional_create, found.conditional_multipart) == (True, True)
        assert not found.conditional_replace
        assert keys_of(store.list()) == []
        assert place.kept() == []

    def test_of_many_replacers_one_wins(self, store):
        """OSS has no condition for that: the fallback narrows the race and does not close it."""
        old = store.put("key", [b"old"])
        won = self._race(8, lambda n: store.put("key", [content(9, n)], condition=ReplaceIf(old.etag)))
        assert b"".join(store.get("key")) in [content(9, winner) for winner in won]
        with pytest.raises(AlreadyExistsError):
            store.put("key", [b"late"], condition=ReplaceIf(old.etag))

    def test_rounds_of_replacing_never_lose_one(self, store):
        assert not store.probe().conditional_replace

    @pytest.mark.parametrize("size", [5, SMALL_PART + 5])
    def test_a_create_is_refused_by_the_store_and_in_its_own_words(self, store, fake, size):
        store.probe()
        before = fake.created
        store.put("key", [content(size)], condition=Create())
        assert fake.created == before + 1
        with pytest.raises(AlreadyExistsError):
            store.put("key", [content(size)], condition=Create())


def test_a_bucket_that_ignores_the_header_is_found_out(seaweed, bucket):
    with FakeOss(seaweed) as fake:
        fake.honours = False
        store = places.s3_store(
            bucket, endpoint=fake.endpoint, create_header=oss.FORBID_OVERWRITE, scheme="oss"
        )
        assert not store.probe().conditional_create


def test_what_it_does_not_list_is_not_removed(seaweed, bucket):
    with FakeOss(seaweed) as fake:
        fake.lists_uploads = False
        assert (
            places.s3_store(bucket, endpoint=fake.endpoint, scheme="oss").abort_leftovers(timedelta(0)) == 0
        )


def test_a_url_and_the_reference_s_layout_open_it(seaweed, bucket, secret):
    with FakeOss(seaweed) as fake:
        credentials = secret(
            storageEndpoint=fake.endpoint,
            accessKeyID=bucket.access_key,
            accessKeySecret=f"{bucket.secret_key}\n",
        )
        store = open_store(f"oss://{bucket.name}/etcd", credentials=credentials)
        store.put("key", [b"body"], condition=Create())
        assert fake.created > 0
    assert b"".join(places.s3_store(bucket, "etcd").get("key")) == b"body"
    assert store.url.startswith(f"oss://{bucket.name}/etcd?endpoint=http://127.0.0.1:")


def options_of(url, credentials):
    provider = open_store(url, credentials=credentials).inner.inner
    assert isinstance(provider, S3Store)
    return provider._options  # noqa: SLF001 - what it was opened with


@pytest.mark.parametrize(
    ("said", "endpoint", "region"),
    [
        ("oss-eu-central-1.aliyuncs.com", "https://s3.oss-eu-central-1.aliyuncs.com", "eu-central-1"),
        (
            "https://oss-cn-hangzhou-internal.aliyuncs.com",
            "https://s3.oss-cn-hangzhou-internal.aliyuncs.com",
            "cn-hangzhou",
        ),
        ("http://s3.oss-cn-beijing.aliyuncs.com", "http://s3.oss-cn-beijing.aliyuncs.com", "cn-beijing"),
        ("https://oss.example.org", "https://oss.example.org", "us-east-1"),
    ],
)
@pytest.mark.parametrize("where", ["credentials", "url"])
def test_buckets_are_hosts_of_the_s3_interface(secret, said, endpoint, region, where):
    credentials = secret(accessKeyID="id", accessKeySecret="secret")
    if where == "credentials":
        secret(storageEndpoint=said)
    options = options_of(f"oss://b/p{'' if where == 'credentials' else f'?endpoint={said}'}", credentials)
    assert (options.endpoint, options.region, options.addressing) == (endpoint, region, "virtual")
    assert options.request_checksums == "when_required"
    assert options.create_header == "x-oss-forbid-overwrite"


def test_a_region_names_its_endpoint(secret):
    options = options_of("oss://b?region=ap-south-1", secret(accessKeyID="id", accessKeySecret="secret"))
    assert (options.endpoint, options.region) == ("https://s3.oss-ap-south-1.aliyuncs.com", "ap-south-1")


def test_alibaba_s_own_variables_are_the_ambient_way_and_amazon_s_are_not(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "amazon")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "amazon")
    with pytest.raises(ConfigError, match="lack accessKeyID or accessKeySecret"):
        open_store("oss://b?region=ap-south-1")
    monkeypatch.setenv("OSS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("OSS_ACCESS_KEY_SECRET", "secret")
    assert open_store("oss://b?region=ap-south-1").url.startswith("oss://b/?")


def test_an_oss_nobody_knows_where_is_refused(secret):
    """It would be Amazon's."""
    with pytest.raises(ConfigError, match="nothing says where this OSS is"):
        open_store("oss://b", credentials=secret(accessKeyID="id", accessKeySecret="secret"))
