"""The header of a v2 batch (61 bytes), and how a broker rewrites it.

The checksum covers everything from the attributes on. The fields before the checksum (base offset,
length, leader epoch, magic) are not covered: if they change, the checksum stays valid.
"""

from __future__ import annotations

import struct

from aiokclient.errors import CorruptRecordError
from aiokclient.record.crc import Buffer, crc32c

HEADER = struct.Struct(">qiibIhiqqqhii")
"""Base offset, length, leader epoch, magic, crc, attributes, last offset delta, base timestamp,
max timestamp, producer id, producer epoch, base sequence, record count."""

HEADER_SIZE = HEADER.size
LOG_OVERHEAD = 12
"""The size in bytes of base offset and length. The length field counts only the bytes after it."""

MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
_MAX_TIMESTAMP_AT = 35

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20

_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_INT16 = struct.Struct(">h")
CRC = struct.Struct(">I")


def seal_crc(batch: bytearray) -> None:
    """Compute the checksum of a complete v2 batch and write it into its header."""
    with memoryview(batch) as view:
        CRC.pack_into(batch, CRC_AT, crc32c(view[ATTRIBUTES_AT:]))


def with_offset(batch: Buffer, base_offset: int, leader_epoch: int) -> bytes:
    """Return a copy of a v2 batch at another offset. Its checksum stays valid."""
    copy = _copy(batch)
    _INT64.pack_into(copy, 0, base_offset)
    _INT32.pack_into(copy, LOG_OVERHEAD, leader_epoch)
    return bytes(copy)


def with_append_time(batch: Buffer, timestamp: int) -> bytes:
    """Return a copy of a v2 batch whose records have the broker's time, in milliseconds.

    Only the attributes and the max timestamp change, not the records.
    """
    copy = _copy(batch)
    (attributes,) = _INT16.unpack_from(copy, ATTRIBUTES_AT)
    _INT16.pack_into(copy, ATTRIBUTES_AT, attributes | LOG_APPEND_TIME)
    _INT64.pack_into(copy, _MAX_TIMESTAMP_AT, timestamp)
    seal_crc(copy)
    return bytes(copy)


def _copy(batch: Buffer) -> bytearray:
    copy = bytearray(batch)
    if len(copy) < HEADER_SIZE or copy[MAGIC_AT] != 2:
        raise CorruptRecordError("The bytes are not a complete record batch of format v2.")
    return copy
