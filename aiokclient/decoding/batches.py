"""Reading the records of batches, in the event loop or in a thread.

`is_light` decides between the event loop and a thread. Using a thread costs about 50 microseconds,
so it is worthwhile only for batches that would block the loop for milliseconds. The time for a
batch depends on its size, codec, and number of records, and on its decompressed size, which is not
known in advance. So the loop decompresses up to a limit, and a thread decodes batches that exceed
it.

A thread reads a very large batch in parts: `load` reads the first one, and `load_part` the next.
`Damage` describes a batch that cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from aiokclient._native import chosen
from aiokclient.errors import (
    CorruptBatchError,
    CorruptRecordError,
    DecompressionLimitError,
    KafkaError,
)
from aiokclient.log.kept_errors import bare
from aiokclient.record.batch import HEADER_SIZE, Compression, ContentLimitError, RecordBatch
from aiokclient.record.compression import MANY_BLOCKS, has_many_blocks
from aiokclient.types import TopicPartition
from aiokclient.types.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokclient.decoding.deserialize import RawRecord
    from aiokclient.errors.local import UnreadableBatchError
    from aiokclient.record.stream import RecordStream

CONTENT: Final = 4 * 1024 * 1024
"""The largest decompressed size in bytes of batches that the event loop decodes at a time."""

RECORDS: Final = chosen(native=65_536, pure=4096)
"""The largest number of records that the event loop decodes at a time."""


def is_light(batches: Iterable[RecordBatch]) -> bool:
    """Return whether the event loop can decode these batches without blocking for long.

    Raises CorruptRecordError for an unknown codec.
    """
    cost = 0.0
    for batch in batches:
        codec = batch.compression if batch.is_compressed else Compression.NONE
        cost += max(batch.size / codec.traits.decode_inline, batch.count / RECORDS)
        if cost >= 1 or (codec and batch.size > MANY_BLOCKS and _has_many_blocks(batch, codec)):
            return False
    return True


def _has_many_blocks(batch: RecordBatch, codec: Compression) -> bool:
    content = batch.buffer[HEADER_SIZE:] if batch.magic > 1 else batch.buffer
    try:
        return has_many_blocks(codec, content)
    except CorruptRecordError:
        return False  # The error is raised when the batch is read.


WHOLE: Final = 16 * 1024 * 1024
"""The largest decompressed size in bytes of a batch that is read as a whole, not in parts."""
WHOLE_RECORDS: Final = 200_000
"""The largest number of records in a batch that is read as a whole."""
PART: Final = 4 * 1024 * 1024
"""The size in bytes of each part of a larger batch."""


class Loaded(NamedTuple):
    """Records that a thread has read from a batch, their bytes, and the rest of the batch."""

    records: list[RawRecord]
    size: int
    rest: RecordStream | None


class Damage(NamedTuple):
    """Records that could not be read, and why."""

    offset: int
    last_offset: int
    cause: KafkaError
    over_limit: bool = False
    """Whether the batch is larger than `max_decompressed_batch_bytes`."""
    unfetched: bool = False
    """Whether the batch could not be fetched; `cause` is then the error to raise."""

    @classmethod
    def of(cls, batch: RecordBatch, cause: KafkaError) -> Damage:
        """Return the damage of a batch whose records cannot be read."""
        over_limit = isinstance(cause, ContentLimitError)
        return cls(max(batch.base_offset, 0), batch.last_offset, bare(cause), over_limit)

    def make_error(self, topic_partition: TopicPartition, limit_bytes: int) -> UnreadableBatchError:
        """Return the error for the application. `limit_bytes` is `max_decompressed_batch_bytes`."""
        subject: Any = {
            "topic_partition": topic_partition,
            "offset": self.offset,
            "last_offset": self.last_offset,
        }
        if self.over_limit:
            return DecompressionLimitError(f"The limit is {limit_bytes} bytes.", **subject)
        error = CorruptBatchError(str(self.cause), **subject)
        error.__cause__ = self.cause
        return error


def check_marker(batch: RecordBatch, *, check_crcs: bool) -> None:
    """Raise CorruptRecordError for a control batch whose checksum is wrong.

    A marker decides which other records are visible.
    """
    if batch.is_control and check_crcs and not batch.check_crc():
        raise CorruptRecordError("The checksum of a control batch does not match.")


def load(
    batch: RecordBatch, tp: TopicPartition, offset: int, copy: bool, check_crcs: bool, limit: int
) -> Loaded:
    """Read the records of a batch, or the first part of a large one. Called in a thread."""
    divisible = batch.magic > 1
    if not divisible or (batch.size <= WHOLE and batch.count <= WHOLE_RECORDS):
        most = min(WHOLE, limit) if divisible else limit
        try:
            records = batch.records(*tp, offset, copy=copy, check_crcs=check_crcs, limit=most)
        except ContentLimitError:
            if most == limit:
                raise
        else:
            return Loaded(records, batch.content_size, None)
    # Few topics have such batches, so the module is not imported with the consumer.
    from aiokclient.record.stream import RecordStream

    return load_part(RecordStream(batch, check_crcs=check_crcs, limit=limit), tp, offset, copy)


def load_part(stream: RecordStream, tp: TopicPartition, offset: int, copy: bool) -> Loaded:
    """Read the next part of a batch. Called in a thread."""
    records, size = stream.records(*tp, offset, PART, copy=copy)
    return Loaded(records, size, None if stream.done else stream)


def size_of(record: RawRecord) -> int:
    """Return the bytes of the key, value and headers of a record."""
    size = len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += len(name) + len(value or b"")
    return size
