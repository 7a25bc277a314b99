"""Buckets under management; the servers come from the conftests above."""

import pytest

pytest.register_assert_rewrite("tests.stores.admin.contract")
