"""Stores under test; the servers come from the conftest above."""

import pytest

from tests.stores import places

pytest.register_assert_rewrite("tests.stores.conformance")


@pytest.fixture
def container(swift):
    """An empty container of Swift."""
    return swift.new_container()


@pytest.fixture(scope="session")
def seaweed_with_many(seaweed):
    """A bucket with the objects of `conformance.MANY`: to be read, by several classes."""
    from tests.stores.conformance import MANY, put_all  # noqa: PLC0415  not before its asserts are rewritten

    bucket = seaweed.new_bucket()
    put_all(places.s3_store(bucket), MANY)
    return bucket
