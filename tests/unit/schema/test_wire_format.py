"""Tests of the bytes that say with which schema something was written."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokclient.errors import SerializationError
from aiokclient.schema import wire_format as wire


@pytest.mark.parametrize(
    ("indexes", "encoded"),
    [
        ((0,), b"\x00"),
        ((1,), b"\x02\x02"),
        ((0, 0), b"\x04\x00\x00"),
        ((0, 0, 0), b"\x06\x00\x00\x00"),
        ((2, 1), b"\x04\x04\x02"),
        ((64,), b"\x02\x80\x01"),
    ],
)
def test_indexes_are_zigzag_varints_after_their_number(
    indexes: tuple[int, ...], encoded: bytes
) -> None:
    assert wire.encode_indexes(indexes) == encoded
    assert wire.decode_indexes(b"?" + encoded + b"rest", 1) == (indexes, 1 + len(encoded))


@given(st.lists(st.integers(0, 2**20), min_size=1, max_size=8).map(tuple))
def test_indexes_are_read_as_they_were_written(indexes: tuple[int, ...]) -> None:
    encoded = wire.encode_indexes(indexes)
    assert wire.decode_indexes(encoded, 0) == (indexes, len(encoded))


def test_first_message_may_be_written_with_its_number() -> None:
    assert wire.decode_indexes(b"\x02\x00", 0) == ((0,), 2)


@pytest.mark.parametrize("data", [b"", b"\x02", b"\x01\x01", b"\x80", b"\xff" * 9, b"\x02\x01"])
def test_wrong_indexes_raise_serialization_error(data: bytes) -> None:
    with pytest.raises(SerializationError, match="ind"):
        wire.decode_indexes(data, 0)


@given(st.integers(0, 2**31 - 1))
def test_id_is_read_from_its_prefix(schema_id: int) -> None:
    assert wire.decode_key(wire.encode_id(schema_id)) == schema_id


def test_guid_is_read_from_a_header_with_indexes() -> None:
    guid = UUID("01234567-89ab-cdef-0123-456789abcdef")
    content = wire.encode_guid(guid)
    assert content.hex() == "010123456789abcdef0123456789abcdef"
    assert wire.decode_key(wire.key_of_header(content + b"\x02\x02")) == guid


def test_header_that_begins_with_zero_is_an_id() -> None:
    assert wire.decode_key(wire.key_of_header(wire.encode_id(7) + b"\x00")) == 7


@pytest.mark.parametrize("key", [b"", b"\x00", b"\x00\x00\x00\x01", b"{}   ", b"\x00\x80\0\0\0"])
def test_other_bytes_have_no_id(key: bytes) -> None:
    assert wire.decode_key(key) is None
