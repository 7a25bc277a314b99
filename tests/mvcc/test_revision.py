from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootcellar.errors import RecordError
from rootcellar.mvcc.revision import RowKey, decode_revision_value, decode_row_key, encode_row_key

numbers = st.integers(0, (1 << 63) - 1)
row_keys = st.builds(RowKey, numbers, numbers, st.booleans())


def test_a_row_key_is_what_etcd_writes():
    assert encode_row_key(5) == bytes.fromhex("0000000000000005 5f 0000000000000000")
    assert encode_row_key(0x102, 3, tombstone=True) == bytes.fromhex(
        "0000000000000102 5f 0000000000000003 74"
    )


@given(row_keys)
def test_a_row_key_comes_back(key):
    assert decode_row_key(encode_row_key(key.main, key.sub, tombstone=key.is_tombstone)) == key


@given(row_keys, row_keys)
def test_bytes_are_in_the_order_of_revisions(one, other):
    encoded = [encode_row_key(key.main, key.sub, tombstone=key.is_tombstone) for key in (one, other)]
    assert (encoded[0] < encoded[1]) == (one < other)


@given(st.one_of(st.binary(max_size=20), st.binary(min_size=17, max_size=18)))
def test_anything_else_is_refused(data):
    try:
        key = decode_row_key(data)
    except RecordError:
        return
    assert encode_row_key(key.main, key.sub, tombstone=key.is_tombstone) == data


@pytest.mark.parametrize(
    ("key", "why"),
    [
        (b"", "neither a put nor a tombstone"),
        (encode_row_key(1)[:-1], "neither"),
        (encode_row_key(1) + b"x", "neither"),
        (encode_row_key(1) + b"tt", "neither"),
        (encode_row_key(1).replace(b"_", b"-"), "is no revision"),
        (b"\xff" + encode_row_key(1)[1:], "is no revision"),
        (encode_row_key(1)[:9] + b"\xff" * 8, "is no revision"),
        (b"x" * 10_000, "neither"),
    ],
)
def test_what_etcd_would_panic_on_is_refused_with_the_reason(key, why):
    with pytest.raises(RecordError, match=why) as caught:
        decode_row_key(key)
    assert len(caught.value.message) < 200


def test_a_compaction_is_the_main_revision_of_its_value():
    assert decode_revision_value(encode_row_key(77)) == 77
    with pytest.raises(RecordError):
        decode_revision_value(b"77")
