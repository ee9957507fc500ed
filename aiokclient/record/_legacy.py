"""The formats v0 and v1, in which a message is one record or contains a compressed set of them.

A message has a checksum (CRC-32 of all that follows), the magic, attributes, in v1 a timestamp, and
then key and value with 32-bit lengths. The value of a compressed message is a message set. In v0
the inner offsets are absolute. In v1 they count from 0, and the outer message, the wrapper, has the
offset of the last inner message.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from aiokclient.errors import CorruptRecordError
from aiokclient.record._pure.batch import RecordBatch
from aiokclient.record.compression import Compression, decompress
from aiokclient.record.crc import Buffer
from aiokclient.record.header import CODEC_MASK, LOG_APPEND_TIME, LOG_OVERHEAD
from aiokclient.types import TimestampType
from aiokclient.types.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokclient.record._pure.decode import Make, R

_HEADER_V0 = struct.Struct(">qiIbb")
_HEADER_V1 = struct.Struct(">qiIbbq")
_CRC_FROM = 16
_INT32 = struct.Struct(">i")

SMALLEST = 14
"""The smallest size of a message in bytes: checksum, magic, attributes, null key, null value."""


class _Message(NamedTuple):
    offset: int
    crc: int
    magic: int
    attributes: int
    timestamp: int
    key: memoryview | None
    value: memoryview | None


class LegacyBatch(RecordBatch):
    """A v0 or v1 message of the outer message set, with the attributes of a batch.

    If it is compressed, its first offset is known only after its records were read. Until then,
    `base_offset` is the offset of the last record, and `count` is -1. The message has no producer
    id, epoch, or sequence.
    """

    __slots__ = ("_message",)

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = memoryview(buffer)
        self.size = len(self.buffer)
        self._intact = None
        self.content_size = self.size
        self._message = message = _parse(self.buffer)
        if message.offset < 0:
            raise CorruptRecordError(f"A message has the negative offset {message.offset}.")
        self.base_offset = self.last_offset = message.offset
        self.magic, self.crc = message.magic, message.crc
        self._attributes = message.attributes & (CODEC_MASK | LOG_APPEND_TIME * message.magic)
        self.base_timestamp = self.max_timestamp = message.timestamp
        self.leader_epoch = self.producer_id = self.producer_epoch = self.base_sequence = -1
        self.count = -1 if self._attributes & CODEC_MASK else 1

    def validate(self) -> None:
        """Raise CorruptRecordError if the checksum is wrong or a record cannot be read."""
        self._read(lambda *_: None)

    def _compute_crc(self) -> int:
        # Only format v2 uses CRC-32C (KIP-98).
        return zlib.crc32(self.buffer[_CRC_FROM:])

    def _decode(
        self,
        make: Make[R],
        topic: str,
        partition: int,
        start_offset: int,
        copy: bool,
        check_crcs: bool,
        limit: int,
    ) -> list[R]:
        kind = self.timestamp_type
        appended = self.max_timestamp if kind is TimestampType.LOG_APPEND_TIME else None
        records: list[R] = []
        expected = 0
        for message in self._read_messages(check_crcs, limit):
            offset, magic, timestamp = message.offset, message.magic, message.timestamp
            if offset < expected:
                raise CorruptRecordError(f"A message has offset {offset}, which is out of order.")
            expected = offset + 1
            if appended is not None and magic:
                timestamp = appended
            key, value = _content(message.key, copy), _content(message.value, copy)
            if offset >= start_offset:
                records.append(
                    make(topic, partition, offset, timestamp, kind, key, value, (), None)
                )
        return records

    def _read_messages(self, check_crcs: bool, limit: int) -> list[_Message]:
        codec = self._attributes & CODEC_MASK
        if not codec:
            return [self._message]
        compressed = self._message.value
        if compressed is None or codec > Compression.LZ4:
            raise CorruptRecordError(
                "A compressed message is null, or has a codec that its format does not allow."
            )
        if codec == Compression.LZ4 and self.magic == 0:
            # The import is here, because such messages are rare.
            from aiokclient.record.codecs.lz4 import mend

            compressed = memoryview(mend(compressed))
        content = decompress(codec, compressed, limit)
        self.content_size = len(content)
        messages = list(_set(content, check_crcs))
        if not messages:
            raise CorruptRecordError("A compressed message contains no messages.")
        # The offsets of inner messages are absolute in v0, and relative in v1 (KIP-31).
        if self.magic == 0:
            return messages
        # Some old clients left the wrapper's offset at 0. Then the inner offsets are used as is.
        base = self.last_offset - messages[-1].offset if self.last_offset else 0
        if base < 0:
            raise CorruptRecordError("The last inner message has a higher offset than its wrapper.")
        return [message._replace(offset=base + message.offset) for message in messages]


def _set(content: Buffer, check_crcs: bool) -> Iterator[_Message]:
    view = memoryview(content)
    position = 0
    while position < len(view):
        if position + LOG_OVERHEAD > len(view):
            raise CorruptRecordError("A message is incomplete.")
        end = position + LOG_OVERHEAD + _INT32.unpack_from(view, position + 8)[0]
        if not position + LOG_OVERHEAD + SMALLEST <= end <= len(view):
            raise CorruptRecordError("A message has an impossible length.")
        message = _parse(view[position:end])
        if message.attributes & CODEC_MASK:
            raise CorruptRecordError("A message inside a compressed message is compressed too.")
        if check_crcs and zlib.crc32(view[position + _CRC_FROM : end]) != message.crc:
            raise CorruptRecordError(
                f"The checksum of the inner message at offset {message.offset} is wrong."
            )
        yield message
        position = end


def _parse(view: memoryview) -> _Message:
    try:
        offset, length, crc, magic, attributes = _HEADER_V0.unpack_from(view)
        timestamp, position = -1, _HEADER_V0.size
        if magic == 1:
            timestamp, position = _HEADER_V1.unpack_from(view)[-1], _HEADER_V1.size
        key, position = _sized(view, position)
        value, position = _sized(view, position)
    except struct.error:
        raise CorruptRecordError("A message is incomplete.") from None
    if magic not in (0, 1) or position != len(view) or length + LOG_OVERHEAD != len(view):
        raise CorruptRecordError(
            "The lengths of a message contradict each other, or its format is unknown."
        )
    return _Message(offset, crc, magic, attributes, timestamp, key, value)


def _sized(view: memoryview, position: int) -> tuple[memoryview | None, int]:
    (length,) = _INT32.unpack_from(view, position)
    start = position + 4
    if length < 0:
        return None, start
    return view[start : start + length], start + length


def _content(view: memoryview | None, copy: bool) -> bytes | memoryview | None:
    return bytes(view) if copy and view is not None else view
