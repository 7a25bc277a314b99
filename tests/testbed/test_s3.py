import ssl
import urllib.error
import urllib.request
from dataclasses import replace

import botocore.exceptions
import pytest


def test_seaweed_keeps_what_is_put(bucket):
    bucket.client().put_object(Bucket=bucket.name, Key="a/b", Body=b"hello")
    assert bucket.client().get_object(Bucket=bucket.name, Key="a/b")["Body"].read() == b"hello"


def test_every_test_has_a_bucket_of_its_own(seaweed):
    one, other = seaweed.new_bucket(), seaweed.new_bucket()
    one.client().put_object(Bucket=one.name, Key="a", Body=b"")
    assert other.client().list_objects_v2(Bucket=other.name)["KeyCount"] == 0


def test_seaweed_honours_a_condition(bucket):
    bucket.client().put_object(Bucket=bucket.name, Key="a", Body=b"first", IfNoneMatch="*")
    with pytest.raises(botocore.exceptions.ClientError, match="PreconditionFailed"):
        bucket.client().put_object(Bucket=bucket.name, Key="a", Body=b"second", IfNoneMatch="*")


def test_rclone_overwrites_in_spite_of_a_condition(plain_bucket):
    client = plain_bucket.client()
    client.put_object(Bucket=plain_bucket.name, Key="a", Body=b"first")
    client.put_object(Bucket=plain_bucket.name, Key="a", Body=b"second", IfNoneMatch="*")
    assert client.get_object(Bucket=plain_bucket.name, Key="a")["Body"].read() == b"second"


def test_a_locked_version_cannot_be_deleted(locked_bucket):
    client = locked_bucket.client()
    put = client.put_object(Bucket=locked_bucket.name, Key="a", Body=b"kept", ObjectLockLegalHoldStatus="ON")
    with pytest.raises(botocore.exceptions.ClientError, match="AccessDenied"):
        client.delete_object(Bucket=locked_bucket.name, Key="a", VersionId=put["VersionId"])


@pytest.mark.parametrize("kind", ["bucket", "plain_bucket"])
def test_a_wrong_secret_is_refused(kind, request):
    stranger = replace(request.getfixturevalue(kind), secret_key="wrong")
    with pytest.raises(botocore.exceptions.ClientError, match="SignatureDoesNotMatch"):
        stranger.client().list_objects_v2(Bucket=stranger.name)


def test_tls_is_trusted_by_those_who_know_the_authority(bucket_tls):
    bucket_tls.client().put_object(Bucket=bucket_tls.name, Key="a", Body=b"hello")
    assert bucket_tls.client().list_objects_v2(Bucket=bucket_tls.name)["KeyCount"] == 1
    with pytest.raises(urllib.error.URLError) as caught:
        urllib.request.urlopen(bucket_tls.endpoint, context=ssl.create_default_context())
    assert isinstance(caught.value.reason, ssl.SSLCertVerificationError)
