"""The builder of batches that a program fills by itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from aiokclient import ProducerRecord

HEADER_BYTES = 61
"""The size of the header of a record batch."""

Serializer = Callable[[Any], bytes | None]


class AppendedRecord(NamedTuple):
    """The place of a record in a batch. It is true, as `append` gives None for a full batch."""

    offset: int
    size: int
    """The bytes of the record, before compression."""
    timestamp: int
    """Milliseconds since the epoch."""
    crc: int | None = None


class Serialized(bytes):
    """The bytes of a key or value that the serializer has already made."""


def unless_serialized(serializer: Serializer | None) -> Callable[[Any], bytes] | None:
    """Return a serializer for the native producer, which leaves `Serialized` as it is."""
    if serializer is None:
        return None

    def serialize(part: Any) -> bytes:
        # For None, a serializer may return None (`serialize_none`).
        return part if type(part) is Serialized else serializer(part)  # type: ignore[return-value]

    return serialize


class BatchBuilder:
    """The records of one batch, for `send_batch`. `create_batch` makes it."""

    def __init__(
        self,
        batch_size: int,
        compression_type: int,
        *,
        is_transactional: int = 0,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
    ) -> None:
        self._limit = batch_size
        self._size = HEADER_BYTES
        self._closed = False
        self._serializers = key_serializer, value_serializer
        self._first_timestamp = 0
        self._records: list[ProducerRecord] = []

    def append(
        self,
        *,
        timestamp: int | None,
        key: Any,
        value: Any,
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> AppendedRecord | None:
        """Add a record. Return None, and close the batch, if it does not fit.

        `timestamp` is in milliseconds since the epoch; None is the current time. An empty batch
        takes a record of any size.
        """
        if self._closed:
            return None
        of_key, of_value = self._serializers
        raw_key = _serialize(of_key, key)
        raw_value = _serialize(of_value, value)
        stamp = int(time.time() * 1000) if timestamp is None else int(timestamp)
        index = len(self._records)
        if not index:
            self._first_timestamp = stamp
        size = record_size(index, stamp - self._first_timestamp, raw_key, raw_value, headers or ())
        if index and self._size + size > self._limit:
            self.close()
            return None
        self._size += size
        self._records.append(
            ProducerRecord("", raw_value, raw_key, None, stamp, list(headers or ()))
        )
        return AppendedRecord(index, size, stamp)

    def close(self) -> None:
        """Take no further records. What was appended can still be sent."""
        self._closed = True

    def size(self) -> int:
        """Return the size of the batch in bytes, before compression."""
        return self._size

    def record_count(self) -> int:
        """Return the number of records."""
        return len(self._records)

    def closed(self) -> bool:
        """Return whether the batch takes no further records."""
        return self._closed

    def take_records(self, topic: str, partition: int) -> list[ProducerRecord]:
        """Close the batch, and return its records for this partition."""
        self.close()
        return [each._replace(topic=topic, partition=partition) for each in self._records]


def record_size(
    index: int,
    timestamp_delta: int,
    key: bytes | bytearray | memoryview | None,
    value: bytes | bytearray | memoryview | None,
    headers: Sequence[tuple[str, bytes]],
) -> int:
    """Return the bytes that a record takes in a batch."""
    size = 1 + _varint_size(timestamp_delta) + _varint_size(index)
    size += _part_size(key) + _part_size(value) + _varint_size(len(headers))
    for name, data in headers:
        size += _part_size(name.encode()) + _part_size(data)
    return size + _varint_size(size)


def _serialize(serializer: Serializer | None, part: Any) -> bytes | None:
    raw = part if serializer is None else serializer(part)
    if not isinstance(raw, bytes | bytearray | memoryview | None):
        raise TypeError(f"A key or value is {type(raw).__name__}, not bytes.")
    return None if raw is None else Serialized(raw)


def _part_size(part: bytes | bytearray | memoryview | None) -> int:
    if part is None:
        return 1
    return len(part) + _varint_size(len(part))


def _varint_size(number: int) -> int:
    """Return the bytes of a number in Kafka's signed format of variable length."""
    bits = (number * 2 if number >= 0 else -number * 2 - 1).bit_length()
    return max((bits + 6) // 7, 1)
