"""Varints and the walk over protobuf fields: strict, and never beyond the bytes that are there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootcellar.errors import RecordError
from rootcellar.mvcc.varint import (
    FIXED32,
    FIXED64,
    LENGTH,
    VARINT,
    Field,
    fields,
    get_uvarint,
    put_field_bytes,
    put_field_uint,
    put_uvarint,
    to_int64,
)

uint64s = st.integers(0, 2**64 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)


@given(uint64s, st.binary(), st.binary())
def test_a_number_comes_back_from_between_other_bytes(number, before, after):
    encoded = put_uvarint(number)

    assert get_uvarint(before + encoded + after, len(before)) == (number, len(before) + len(encoded))


@given(int64s)
def test_a_negative_number_takes_ten_bytes_and_comes_back_signed(number):
    encoded = put_uvarint(number)

    assert to_int64(get_uvarint(encoded, 0)[0]) == number
    assert number >= 0 or len(encoded) == 10


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),
        (2**64 - 1, "ff" * 9 + "01"),
        (-1, "ff" * 9 + "01"),
    ],
)
def test_numbers_have_the_bytes_that_protobuf_gives_them(number, encoded):
    assert put_uvarint(number).hex() == encoded


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1])
def test_a_number_beyond_64_bits_is_refused(number):
    with pytest.raises(RecordError, match="does not fit in 64 bits"):
        put_uvarint(number)


@given(uint64s)
def test_a_varint_cut_anywhere_is_told_to_be_cut(number):
    encoded = put_uvarint(number)

    for length in range(len(encoded)):
        with pytest.raises(RecordError, match="is cut short"):
            get_uvarint(encoded[:length], 0)


def test_more_bytes_than_a_number_needs_are_legal_up_to_ten():
    assert get_uvarint(b"\x81" + b"\x80" * 8 + b"\x00", 0) == (1, 10)
    with pytest.raises(RecordError, match="longer than 10 bytes"):
        get_uvarint(b"\x81" + b"\x80" * 9 + b"\x00", 0)


def test_ten_bytes_that_hold_more_than_64_bits_are_refused():
    with pytest.raises(RecordError, match="does not fit in 64 bits"):
        get_uvarint(b"\xff" * 9 + b"\x02", 0)


@given(st.lists(st.tuples(st.integers(1, 2**29 - 1), uint64s | st.binary())))
def test_fields_come_back_in_the_order_they_were_put(put):
    message = b"".join(
        put_field_uint(number, value) if isinstance(value, int) else put_field_bytes(number, value)
        for number, value in put
    )

    found = list(fields(message))

    assert [(field.number, field.value) for field in found] == put
    assert all(field.wire_type == (VARINT if isinstance(field.value, int) else LENGTH) for field in found)


def test_fixed_fields_are_read_little_endian():
    message = bytes.fromhex("0d 01000000 11 0200000000000000")

    assert list(fields(message)) == [Field(1, FIXED32, 1), Field(2, FIXED64, 2)]


def test_values_of_a_view_are_views_until_asked_for():
    (field,) = fields(memoryview(put_field_bytes(3, b"abc")))

    assert isinstance(field.value, memoryview)
    assert field.bytes() == b"abc"


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        ("00", "field number 0"),
        ("0b", "unknown wire type 3"),
        ("0c", "unknown wire type 4"),
        ("0f", "unknown wire type 7"),
        ("0a05616263", "needs 5 bytes, 3 are left"),
        ("0aff ff ff ff ff ff ff ff 7f", "needs 9223372036854775807 bytes, 0 are left"),
        ("0d010000", "needs 4 bytes, 3 are left"),
        ("1101", "needs 8 bytes, 1 are left"),
        ("08", "is cut short"),
        ("80808080 8001", "field number 4294967296"),
    ],
)
def test_a_message_that_no_etcd_writes_is_refused(message, complaint):
    with pytest.raises(RecordError, match=complaint):
        list(fields(bytes.fromhex(message)))


@given(st.binary(max_size=64))
def test_any_bytes_are_fields_or_a_record_error(data):
    try:
        found = list(fields(data))
    except RecordError:
        return
    assert sum(len(field.value) for field in found if field.wire_type == LENGTH) <= len(data)


def test_a_field_is_not_read_as_what_it_is_not():
    number, text = fields(put_field_uint(1, -1) + put_field_bytes(2, b"x"))

    assert (number.int64(), number.uint64(), text.bytes()) == (-1, 2**64 - 1, b"x")
    with pytest.raises(RecordError, match="field 1 has wire type 0 where bytes belong"):
        number.bytes()
    with pytest.raises(RecordError, match="field 2 has wire type 2 where a varint belongs"):
        text.uint64()
