"""Record batches as they are read: the header at once, the records on request."""

from __future__ import annotations

import struct
from typing import Any, TypeAlias

from aiokclient.errors import CorruptRecordError, KafkaError
from aiokclient.record._pure.decode import Head, Make, R, decode
from aiokclient.record.compression import DEFAULT_LIMIT, Compression, ContentLimitError, decompress
from aiokclient.record.crc import Buffer, crc32c
from aiokclient.record.header import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    TRANSACTIONAL,
)
from aiokclient.types import ConsumerRecord, Headers, TimestampType, TopicPartition

Row: TypeAlias = "tuple[int, int, bytes | None, bytes | None, Headers]"
"""A record without its topic and partition: offset, timestamp, key, value, headers."""

_LARGEST_OFFSET = (1 << 63) - 1
_SEQUENCES = 1 << 31
_INT16 = struct.Struct(">h")


class RecordBatch:
    """A view of one v2 batch in a buffer: the header is read at once, the records on demand.

    `buffer` has exactly the bytes of the batch. Offsets and timestamps are computed from those in
    the header: a broker sets the base offset there and does not change the records.
    """

    __slots__ = (
        "_attributes",
        "_intact",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "buffer",
        "content_size",
        "count",
        "crc",
        "last_offset",
        "leader_epoch",
        "magic",
        "max_timestamp",
        "producer_epoch",
        "producer_id",
        "size",
    )

    base_offset: int
    last_offset: int
    count: int
    """The number of records, or -1 if it is known only after reading (see `LegacyBatch`)."""
    size: int
    """The size in bytes, including the header."""
    content_size: int
    """The size of the uncompressed records in bytes, or 0 until they are read."""
    magic: int
    """The format: 2, or 0 or 1 for a `LegacyBatch`."""
    crc: int
    leader_epoch: int
    """The epoch of the leader that appended the batch, or -1."""
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    """The sequence of the first record; -1, like producer id and epoch, if the batch has none."""

    def __init__(self, buffer: Buffer) -> None:
        """Read the header of the batch. Raises CorruptRecordError if `buffer` is not a batch."""
        self.buffer = memoryview(buffer)
        self.size = len(self.buffer)
        self.content_size = 0
        if self.size < HEADER_SIZE:
            raise CorruptRecordError(
                f"A record batch of format v2 has at least {HEADER_SIZE} bytes, not {self.size}."
            )
        (
            self.base_offset,
            length,
            self.leader_epoch,
            self.magic,
            self.crc,
            self._attributes,
            last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.count,
        ) = HEADER.unpack_from(self.buffer)
        self.last_offset = self.base_offset + last_offset_delta
        self._intact: bool | None = None
        if self.magic != 2 or length + LOG_OVERHEAD != self.size:
            raise self._make_corrupt_error("Its length or its format version is wrong.")
        # The checksum does not cover the base offset, because the leader sets it without computing
        # the checksum again.
        if not 0 <= self.base_offset <= self.last_offset < _LARGEST_OFFSET or self.count < 0:
            raise self._make_corrupt_error("Its offsets or its number of records are impossible.")

    @property
    def next_offset(self) -> int:
        """The offset after the batch, from which reading continues."""
        return self.last_offset + 1

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, or -1. Sequences wrap from 2147483647 to 0."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset - self.base_offset) % _SEQUENCES

    @property
    def compression(self) -> Compression:
        """The codec. Raises CorruptRecordError if its number is unknown."""
        codec = self._attributes & CODEC_MASK
        if codec >= len(Compression):
            raise self._make_corrupt_error(f"There is no compression codec {codec}.")
        return Compression(codec)

    @property
    def is_compressed(self) -> bool:
        """Whether the records are compressed."""
        return bool(self._attributes & CODEC_MASK)

    @property
    def timestamp_type(self) -> TimestampType:
        """The source of the timestamps. With LOG_APPEND_TIME all records have `max_timestamp`."""
        if self._attributes & LOG_APPEND_TIME:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Whether the records belong to a transaction."""
        return bool(self._attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether this is a control batch, such as the end of a transaction."""
        return bool(self._attributes & CONTROL)

    @property
    def valid(self) -> bool:
        """The same as `check_crc()`."""
        return self.check_crc()

    def check_crc(self) -> bool:
        """Return whether the checksum in the header matches the bytes. The result is kept."""
        if self._intact is None:
            self._intact = self._compute_crc() == self.crc
        return self._intact

    def validate(self) -> None:
        """Make the checks that a broker makes for a batch from a producer.

        Raises CorruptRecordError if the checksum is wrong, a record cannot be read, or the offsets
        have gaps. Batches of a compacted log may have gaps, so this is not for consumers.
        """
        if self.count != self.last_offset - self.base_offset + 1:
            raise self._make_corrupt_error(
                f"Its {self.count} records do not fill its range of offsets."
            )
        self._read(_nothing)

    def records(
        self,
        topic: str,
        partition: int,
        start_offset: int = 0,
        *,
        copy: bool = True,
        check_crcs: bool = True,
        limit: int = DEFAULT_LIMIT,
        kind: type[ConsumerRecord[Any, Any]] = ConsumerRecord,
    ) -> list[ConsumerRecord[bytes, bytes]]:
        """Return the records from `start_offset` on, including those of a control batch.

        Keys and values are bytes. With `copy=False` they are read-only memoryviews, which keep the
        whole response or the decompressed bytes in memory. Raises CorruptRecordError if the
        checksum is wrong (unless `check_crcs` is False), or if the records cannot be decoded or
        have more than `limit` bytes without compression.

        `kind` is their class: ConsumerRecord, or a subclass with slots, whose slots stay empty.
        """
        return self._read(kind, topic, partition, start_offset, copy, check_crcs, limit)

    def part_records(
        self,
        topic: str,
        partition: int,
        content: Buffer,
        count: int,
        expected: int,
        start_offset: int,
        copy: bool,
    ) -> list[ConsumerRecord[bytes, bytes]]:
        """Return the `count` records in `content`, which is a part of this batch's records.

        `expected` is the smallest offset delta that the first of them may have. Keys, values and
        errors are as in `records`.
        """
        head = self._make_head(topic, partition, start_offset)
        head = head._replace(record_count=count, expected=expected)
        return self._part(content, head, ConsumerRecord, copy)

    def part_rows(self, content: Buffer, count: int, expected: int, start_offset: int) -> list[Row]:
        """Return the records of `part_records` as tuples, in the format of `rows`."""
        head = self._make_head("", 0, start_offset)
        return self._part(content, head._replace(record_count=count, expected=expected), _row, True)

    def _part(self, content: Buffer, head: Head, make: Make[R], copy: bool) -> list[R]:
        data = bytes(content)
        try:
            return decode(data, data if copy else memoryview(data), head, make)
        except KafkaError as error:
            topic_partition = TopicPartition(head.topic, head.partition) if head.topic else None
            raise self._make_corrupt_error(error.message, topic_partition) from error

    def rows(
        self, start_offset: int = 0, *, check_crcs: bool = True, limit: int = DEFAULT_LIMIT
    ) -> list[Row]:
        """Return the records as tuples (offset, timestamp, key, value, headers); see `records`."""
        return self._read(_row, "", 0, start_offset, True, check_crcs, limit)

    def control_type(self) -> int:
        """Return the type of the first record of a control batch; see `ControlType`.

        Raises CorruptRecordError if this is not a control batch, or if the record cannot be read.
        The caller must have checked the checksum.
        """
        rows = self.rows(check_crcs=False) if self.is_control else []
        keys = [key for _, _, key, _, _ in rows]
        if not keys or keys[0] is None or len(keys[0]) < 4:
            raise self._make_corrupt_error("It is not a control batch.")
        return int(_INT16.unpack_from(keys[0], 2)[0])

    def _read(
        self,
        make: Make[R],
        topic: str = "",
        partition: int = 0,
        start_offset: int = 0,
        copy: bool = True,
        check_crcs: bool = True,
        limit: int = DEFAULT_LIMIT,
    ) -> list[R]:
        topic_partition = TopicPartition(topic, partition) if topic else None
        if check_crcs and not self.check_crc():
            raise self._make_corrupt_error("Its checksum is wrong.", topic_partition)
        try:
            return self._decode(make, topic, partition, start_offset, copy, check_crcs, limit)
        except ContentLimitError:
            raise
        except KafkaError as error:
            raise self._make_corrupt_error(error.message, topic_partition) from error

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
        content = self.buffer[HEADER_SIZE:]
        codec = self._attributes & CODEC_MASK
        data = bytes(decompress(codec, content, limit) if codec else content)
        self.content_size = len(data)
        head = self._make_head(topic, partition, start_offset)
        source: bytes | memoryview = data
        if not copy:
            source = memoryview(data) if self.is_compressed else content.toreadonly()
        return decode(data, source, head, make)

    def _make_head(self, topic: str, partition: int, start_offset: int) -> Head:
        return Head(
            self.base_offset,
            self.last_offset,
            self.count,
            self.base_timestamp,
            self.max_timestamp if self._attributes & LOG_APPEND_TIME else None,
            self.leader_epoch if self.leader_epoch >= 0 else None,
            topic,
            partition,
            start_offset,
        )

    def _compute_crc(self) -> int:
        return crc32c(self.buffer[ATTRIBUTES_AT:])

    def _make_corrupt_error(
        self, reason: str, topic_partition: TopicPartition | None = None
    ) -> CorruptRecordError:
        return CorruptRecordError(
            f"The record batch at offset {self.base_offset} cannot be read. {reason}",
            topic_partition=topic_partition,
        )


def _row(
    topic: str,
    partition: int,
    offset: int,
    timestamp: int,
    timestamp_type: TimestampType,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
    leader_epoch: int | None,
) -> Row:
    return offset, timestamp, key, value, headers


def _nothing(*_: object) -> None:
    return None
