"""Building batches: records are encoded directly into the bytes to send, after the header.

A record has its length, attributes, timestamp delta, offset delta, key, value and headers. Except
for the attributes, every number is a zigzag varint, of at most 5 bytes for 32 bits and 10 for 64
bits. The size of a record is known before it is written, so the size limit is exact, and a refused
record leaves the batch unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from aiokclient.memory import BufferPool
from aiokclient.record._pure.decode import Head, decode, wrap64
from aiokclient.record.compression import Compression, compress, decompress
from aiokclient.record.crc import crc32c
from aiokclient.record.header import (
    ATTRIBUTES_AT,
    CRC,
    CRC_AT,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    TRANSACTIONAL,
)
from aiokclient.types import Headers, TimestampType

SMALL = 8192
"""`VARINTS` has all numbers below this limit, whose varints have one or two bytes."""

_FIRST = [bytes((byte,)) for byte in range(256)]
VARINTS: tuple[bytes, ...] = (
    *_FIRST[:128:2],
    *[first + second for second in _FIRST[1 : SMALL >> 6] for first in _FIRST[128::2]],
)
"""The varints of small numbers, by number. Most lengths and deltas are small and not negative."""

_INT64_END = 1 << 63

_NULL = b"\x01"
_NONE = b"\x00"
"""The encoded number of headers of a record without headers."""
_NO_ATTRIBUTES = b"\x00"


class RecordBatchBuilder:
    """A v2 batch under construction: call `append`, then `close`, then `seal` for each request.

    `limit` is the largest size of the uncompressed batch in bytes, including its 61-byte header.
    Only the first record may exceed it. `likely` is the expected size, for which memory may be
    allocated in advance. Native builders take it from the pool `memory`, to which it returns when
    no view of the batch is left. Only one thread at a time may use a builder.
    """

    __slots__ = (
        "_base_timestamp",
        "_buffer",
        "_level",
        "_limit",
        "_prefix",
        "_sealed",
        "_sealed_with",
        "_timestamp",
        "closed",
        "compression",
        "count",
        "max_timestamp",
        "size",
    )

    def __init__(
        self,
        *,
        compression: Compression = Compression.NONE,
        level: int | None = None,
        limit: int,
        likely: int = 0,
        memory: BufferPool | None = None,
    ) -> None:
        self.compression = compression
        """The requested codec. After `close`, it is NONE if compression saved no bytes."""
        self.count = 0
        self.size = HEADER_SIZE
        """The size of the uncompressed batch in bytes, including its header."""
        self.max_timestamp = -1
        self.closed = False
        self._level = level
        self._limit = limit
        self._buffer = bytearray(HEADER_SIZE)
        self._base_timestamp = 0
        self._timestamp: int | None = None
        self._prefix = b""
        self._sealed: memoryview | None = None
        self._sealed_with: tuple[int, int, int, bool, int] | None = None

    def append(
        self, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> int:
        """Add a record and return its index in the batch, or -1 if it does not fit.

        Raises TypeError for a key or value that is neither bytes nor None. Raises ValueError for a
        timestamp that does not fit into 64 bits, or after `close`. The batch is unchanged then.
        """
        index = self.count
        plain = key is None or type(key) is bytes
        if not plain or type(value) is not bytes or headers or not index:
            return self._append_record(timestamp, key, value, headers)
        prefix = self._prefix if timestamp == self._timestamp else self._encode_time(timestamp)
        try:
            offset = VARINTS[index] if index < SMALL else write_varint(index)
            key_length = _NULL if key is None else VARINTS[len(key)]
            body = b"".join(
                (prefix, offset, key_length, key or b"", VARINTS[len(value)], value, _NONE)
            )
            length = VARINTS[len(body)]
        except IndexError:  # VARINTS does not have this length.
            return self._append_record(timestamp, key, value, headers)
        size = self.size + len(length) + len(body)
        if size > self._limit:
            return self._refuse()
        buffer = self._buffer
        buffer += length
        buffer += body
        self.size = size
        self.count = index + 1
        if prefix is not self._prefix:
            self._store_time(timestamp, prefix)
        return index

    def append_values(self, timestamp: int, values: Sequence[bytes | None], start: int) -> int:
        """Add values without keys from `values[start:]` while they fit, and return their number."""
        if start >= len(values) or self.append(timestamp, None, values[start]) < 0:
            return 0
        prefix, index, size, limit = self._prefix, self.count, self.size, self._limit
        overhead = len(prefix) + 2  # The null key and the number of headers.
        first, last_length = index, -2
        pieces: list[bytes] = []
        for value in islice(values, start + 1, None):
            length = -1 if value is None else len(value)
            if length != last_length:
                last_length = length
                before_value = _NULL + write_varint(length)
                fixed = overhead + max(length, 0) + len(before_value) - 1
            offset = VARINTS[index] if index < SMALL else write_varint(index)
            body = fixed + len(offset)
            record_length = VARINTS[body] if body < SMALL else write_varint(body)
            body += len(record_length)
            if size + body > limit:
                break
            pieces += (record_length, prefix, offset, before_value, value or b"", _NONE)
            size += body
            index += 1
        self._buffer += b"".join(pieces)
        self.size, self.count = size, index
        return index - first + 1

    def _append_record(
        self, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers
    ) -> int:
        index = self.count
        if not index:
            self._base_timestamp = timestamp
        prefix = self._encode_time(timestamp)
        parts = [prefix, write_varint(index), *_field(key), *_field(value)]
        parts.append(write_varint(len(headers)))
        for name, content in headers:
            parts += (*_field(name.encode()), *_field(content))
        body = b"".join(parts)
        length = write_varint(len(body))
        size = self.size + len(length) + len(body)
        if size > self._limit and (index or self.closed):
            return self._refuse()
        self._buffer += length
        self._buffer += body
        self.size = size
        self.count = index + 1
        self._store_time(timestamp, prefix)
        return index

    def _refuse(self) -> int:
        if self.closed:
            raise ValueError("Nothing can be added to a batch that is closed.")
        return -1

    def _encode_time(self, timestamp: int) -> bytes:
        """Return the encoded attributes and timestamp of a record."""
        if not -_INT64_END <= timestamp < _INT64_END:
            raise ValueError(f"The timestamp {timestamp} does not fit into 64 bits.")
        delta = timestamp - self._base_timestamp
        if abs(delta) >= _INT64_END:
            delta = wrap64(delta)
        return _NO_ATTRIBUTES + write_varint(delta)

    def _store_time(self, timestamp: int, prefix: bytes) -> None:
        """Store the encoded timestamp, because the next record may have the same one."""
        self._timestamp, self._prefix = timestamp, prefix
        if timestamp > self.max_timestamp or self.count == 1:
            self.max_timestamp = timestamp

    def close(self) -> None:
        """End the batch and compress it. Nothing can be appended afterwards. May be called again.

        This may run in a thread, because the codecs release the GIL. If compression does not make
        the records smaller, they stay uncompressed, so that `encoded_size` never exceeds `size`.
        """
        if self.closed:
            return
        self.closed = True
        self._limit = 0  # The next `append` then takes the slow path, which raises.
        if self.compression is Compression.NONE:
            return
        with memoryview(self._buffer) as view, view[HEADER_SIZE:] as records:
            compressed = compress(self.compression, records, self._level)
        if len(compressed) < self.size - HEADER_SIZE:
            self._buffer = bytearray(HEADER_SIZE)
            self._buffer += compressed
        else:
            self.compression = Compression.NONE

    @property
    def compressed(self) -> bool:
        """Whether the batch is closed, and its records were compressed because that saved bytes."""
        return self.closed and self.compression is not Compression.NONE

    @property
    def encoded_size(self) -> int:
        """The size of the closed batch in bytes; before `close`, that of the uncompressed batch."""
        return len(self._buffer)

    def seal(
        self,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        leader_epoch: int = -1,
    ) -> memoryview:
        """Close the batch and return its bytes as a read-only view, with base offset 0.

        A call with the same arguments returns the same bytes. A call with other arguments returns a
        copy, because a transport may still be sending the earlier bytes.
        """
        if not self.count:
            raise ValueError("An empty batch cannot be sealed.")
        self.close()
        values = (producer_id, producer_epoch, base_sequence, transactional, leader_epoch)
        if self._sealed is None or values != self._sealed_with:
            if self._sealed is not None:
                self._buffer = bytearray(self._buffer)
            self._write_header(*values)
            self._sealed = memoryview(self._buffer).toreadonly()
            self._sealed_with = values
        return self._sealed

    def _write_header(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        transactional: bool,
        leader_epoch: int,
    ) -> None:
        attributes = self.compression | (TRANSACTIONAL if transactional else 0)
        HEADER.pack_into(
            self._buffer,
            0,
            0,
            len(self._buffer) - LOG_OVERHEAD,
            leader_epoch,
            2,
            0,
            attributes,
            self.count - 1,
            self._base_timestamp,
            self.max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            self.count,
        )
        with memoryview(self._buffer) as view:
            CRC.pack_into(self._buffer, CRC_AT, crc32c(view[ATTRIBUTES_AT:]))

    def records(self) -> Iterator[tuple[int, bytes | None, bytes | None, Headers]]:
        """Return the appended records as tuples (timestamp, key, value, headers).

        It is used for batches that are split, or whose records move to another partition.
        """
        data = memoryview(self._buffer)[HEADER_SIZE:]
        if self.compressed:
            data = memoryview(decompress(self.compression, data, self.size))
        head = Head(0, self.count - 1, self.count, self._base_timestamp, None, None)
        records = bytes(data)
        return iter(decode(records, records, head, _parts))


def new_builder(
    compression: Compression, level: int | None, limit: int, likely: int, memory: BufferPool | None
) -> RecordBatchBuilder:
    """Return a builder. Compiled modules call this without packing the arguments."""
    return RecordBatchBuilder(
        compression=compression, level=level, limit=limit, likely=likely, memory=memory
    )


def write_varint(number: int) -> bytes:
    """Encode a signed integer of at most 64 bits. 32-bit fields have the same encoding."""
    if 0 <= number < SMALL:
        return VARINTS[number]
    zigzag = number << 1 if number >= 0 else ~(number << 1)
    out = bytearray()
    while zigzag > 127:
        out.append(zigzag & 127 | 128)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def _field(content: Any) -> tuple[Any, ...]:
    if content is None:
        return (_NULL,)
    # If the items of a buffer have several bytes, len() is not the length in bytes.
    if isinstance(content, bytes | bytearray) or (
        isinstance(content, memoryview) and content.nbytes == len(content) and content.c_contiguous
    ):
        return write_varint(len(content)), content
    raise TypeError(f"{type(content).__name__} is not bytes.")


def _parts(
    topic: str,
    partition: int,
    offset: int,
    timestamp: int,
    timestamp_type: TimestampType,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
    leader_epoch: int | None,
) -> tuple[int, bytes | None, bytes | None, Headers]:
    return timestamp, key, value, headers
