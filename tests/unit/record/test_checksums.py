"""Tests of checksums, hashes, and varints against known values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokclient.errors import CorruptRecordError
from aiokclient.record import crc
from aiokclient.record._pure.builder import write_varint
from aiokclient.record._pure.decode import read_varint, read_varlong, wrap64
from aiokclient.record.murmur2 import murmur2, to_positive

# These values are from RFC 3720, B.4.
CHECKSUMS = {
    bytes(32): 0x8A9136AA,
    b"\xff" * 32: 0x62A8AB43,
    bytes(range(32)): 0x46DD794E,
    bytes(reversed(range(32))): 0x113FDB5C,
    b"123456789": 0xE3069283,
    b"": 0,
}

# These values are from org.apache.kafka.common.utils.UtilsTest.
HASHES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("crc32c", [crc.crc32c, crc._crc32c])
def test_checksums_equal_the_known_values(crc32c: object) -> None:
    assert callable(crc32c)
    for data, expected in CHECKSUMS.items():
        assert crc32c(data) == expected
        assert crc32c(memoryview(data)[5:], crc32c(data[:5])) == expected


@given(st.binary(max_size=100), st.integers(0, 100))
def test_the_table_gives_the_same_checksum_as_the_package(data: bytes, cut: int) -> None:
    assert crc._crc32c(data) == crc.crc32c(data)
    assert crc._crc32c(data[cut:], crc._crc32c(data[:cut])) == crc.crc32c(data)


@pytest.mark.parametrize(("data", "expected"), HASHES.items())
def test_hashes_equal_the_known_values(data: bytes, expected: int) -> None:
    assert murmur2(data) == murmur2(memoryview(data)) == murmur2(bytearray(data)) == expected
    assert 0 <= to_positive(expected) < 1 << 31


VARINTS = {
    0: "00",
    -1: "01",
    1: "02",
    63: "7e",
    -64: "7f",
    64: "8001",
    -65: "8101",
    8191: "fe7f",
    8192: "808001",
    (1 << 31) - 1: "feffffff0f",
    -(1 << 31): "ffffffff0f",
}
VARLONGS = {(1 << 63) - 1: "feffffffffffffffff01", -(1 << 63): "ffffffffffffffffff01"}


@pytest.mark.parametrize(("number", "encoded"), {**VARINTS, **VARLONGS}.items())
def test_varints_are_encoded_and_decoded(number: int, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert write_varint(number) == data
    assert read_varlong(b"." + data + b".", 1) == (number, len(data) + 1)
    assert read_varlong(data, 0) == (number, len(data))
    if number in VARINTS:
        assert read_varint(data, 0) == (number, len(data))
    for end in range(len(data)):
        with pytest.raises(IndexError):
            read_varlong(data[:end], 0)


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_varlongs_are_encoded_and_decoded(number: int) -> None:
    data = write_varint(number)
    assert read_varlong(data, 0) == (number, len(data))
    assert wrap64(number) == wrap64(number + (1 << 64)) == number


@pytest.mark.fault(32)
def test_endless_varints_are_refused() -> None:
    with pytest.raises(CorruptRecordError):
        read_varint(b"\xff" * 5 + b"\x00", 0)
    with pytest.raises(CorruptRecordError):
        read_varlong(b"\xff" * 10 + b"\x00", 0)
    # Bits beyond the integer's width are dropped, as by Java's shifts.
    assert read_varint(b"\xfe\xff\xff\xff\x7f", 0) == ((1 << 31) - 1, 5)
