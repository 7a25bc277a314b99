"""Stores under test; the servers come from the conftest above."""

import pytest

pytest.register_assert_rewrite("tests.stores.conformance")


@pytest.fixture
def container(swift):
    """An empty container of Swift."""
    return swift.new_container()
