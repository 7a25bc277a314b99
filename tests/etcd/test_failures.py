"""What gRPC says, told as what it means."""

from __future__ import annotations

import grpc
import pytest

from rootcellar.errors import EtcdUnavailableError
from rootcellar.etcd import calls, failures


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses"),
        # Seen from an etcd 3.6 that was killed while it answered.
        (grpc.StatusCode.CANCELLED, "Stream removed (RST_STREAM (Received RST_STREAM with error code 8))"),
        # Seen from an etcd 3.4 that had lost its leader.
        (grpc.StatusCode.UNKNOWN, "context deadline exceeded"),
    ],
)
def test_a_member_that_goes_away_is_unavailable_and_worth_another_try(status, text):
    error = failures.describe(calls.PUT, "http://127.0.0.1:2379", status, text)

    assert isinstance(error, EtcdUnavailableError)
    assert error.retryable
