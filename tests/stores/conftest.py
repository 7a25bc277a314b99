"""Stores under test; the servers come from the conftest above."""

import pytest

pytest.register_assert_rewrite("tests.stores.conformance")
