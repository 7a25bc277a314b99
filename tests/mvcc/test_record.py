from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rootcellar.errors import RecordError
from rootcellar.etcd._proto.kv_pb2 import KeyValue as Message
from rootcellar.mvcc.record import KeyValue, decode, decode_key, encode, uvarint
from rootcellar.mvcc.varint import put_field_bytes, put_field_uint, put_uvarint

numbers = st.one_of(
    st.integers(0, 1 << 15),
    st.sampled_from(
        [n + step for bits in (7, 14, 21, 28, 42, 56) for n in [1 << bits] for step in (-1, 0, 1)]
    ),
    st.integers(-(1 << 63), (1 << 63) - 1),
)
bytes_ = st.one_of(st.binary(max_size=200), st.sampled_from([b"x" * 127, b"x" * 128, b"x" * 16_384]))
records = st.builds(KeyValue, bytes_, numbers, numbers, numbers, bytes_, numbers)


def as_message(record):
    key, create, mod, version, value, lease = record
    return Message(
        key=key, create_revision=create, mod_revision=mod, version=version, value=value, lease=lease
    )


@given(records)
@example(KeyValue(b"k1", 2, 5, 2, b"v1b"))
@example(KeyValue(b"", 0, 0, 0, b"", 0))
@example(KeyValue(b"k", 1, 1, 1, b"", -1))
def test_the_bytes_are_those_of_protobuf(record):
    assert encode(record) == as_message(record).SerializeToString(deterministic=True)


def test_the_bytes_are_those_that_etcd_stored():
    stored = bytes.fromhex("0a026b31 1002 1805 2002 2a03763162")
    assert encode(KeyValue(b"k1", 2, 5, 2, b"v1b")) == stored
    assert decode(stored) == KeyValue(b"k1", 2, 5, 2, b"v1b")


@given(records)
def test_a_record_comes_back(record):
    assert decode(encode(record)) == record
    assert decode_key(encode(record)) == record.key


@given(records, st.binary(max_size=9))
def test_fields_of_a_later_etcd_are_passed_over(record, unknown):
    data = encode(record) + put_field_bytes(9, unknown) + put_field_uint(12, 7)
    assert decode(data) == record


@given(st.binary(max_size=80))
def test_any_bytes_are_a_record_or_an_error(data):
    for reading in (decode, decode_key):
        try:
            reading(data)
        except RecordError as error:
            assert error.message  # noqa: PT017  whether it raises is up to the bytes


@pytest.mark.parametrize(
    "data",
    [
        put_field_uint(1, 7),
        put_field_bytes(2, b"x"),
        put_field_uint(5, 7),
        b"\x0a\x05ab",
        b"\x0a",
        b"\x10\xff",
        b"\x0b",
        b"\x00\x01",
    ],
)
def test_what_keeps_etcd_from_starting_is_refused(data):
    with pytest.raises(RecordError):
        decode(data)


@given(st.integers(0, (1 << 64) - 1))
@example((1 << 14) - 1)
@example(1 << 14)
@example((1 << 28) - 1)
@example(1 << 28)
@example((1 << 42) - 1)
@example(1 << 42)
def test_the_quick_varint_is_the_plain_one(number):
    assert uvarint(number) == put_uvarint(number)
