"""Stores under test; the servers come from the conftest above."""

import pytest

from testbed.swift import Swift

pytest.register_assert_rewrite("tests.stores.conformance")


@pytest.fixture(scope="session")
def swift(tmp_path_factory):
    """OpenStack Swift: an object store without conditions, versions and locks."""
    server = Swift(tmp_path_factory.mktemp("swift"))
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture
def container(swift):
    """An empty container of it."""
    return swift.new_container()


def pytest_collection_modifyitems(items):
    for item in items:
        if "swift" in item.fixturenames:
            item.add_marker("servers")
