"""The meaning of a response to the fetch of a range. Sans-IO.

`EVENTS` has the error codes that concern the position. The policy decides about all other codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from types import MappingProxyType
from typing import Final

from aiokclient.consumer.fetching.aborted import visible
from aiokclient.consumer.fetching.following import following_batches
from aiokclient.errors import CorruptRecordError
from aiokclient.protocol.messages.fetch import FetchResponse, PartitionData
from aiokclient.record.batch import RecordBatch

__all__ = ["EVENTS", "FetchedPart", "PartEvent", "fetched", "partition_data"]


class PartEvent(Enum):
    """The effect of a response on the position in a range."""

    DATA = auto()
    """There are batches from the position on."""
    DAMAGED = auto()
    """No batch can be recognized at the position."""
    NOTHING = auto()
    """The response has no batches."""
    OUT_OF_RANGE = auto()
    """The broker does not have the position."""
    UNREAD = auto()
    """The broker did not read the partition, because a quota is exceeded."""


EVENTS: Final = MappingProxyType({0: PartEvent.DATA, 1: PartEvent.OUT_OF_RANGE})
"""The events for error codes that concern the position. All other codes are errors."""


@dataclass(frozen=True, slots=True)
class FetchedPart:
    """A response for the position `offset`.

    `batches` has the batches with records for the reader. `next_offset` is the offset after all
    fetched batches.
    """

    event: PartEvent
    offset: int
    next_offset: int
    batches: Sequence[RecordBatch] = ()
    size: int = 0
    """Bytes of the fetched batches."""
    high_watermark: int = -1
    last_stable_offset: int = -1
    damage: CorruptRecordError | None = None


def partition_data(response: FetchResponse, partition: int) -> PartitionData | None:
    """Return the partition of a response; None if the broker did not read it."""
    for topic in response.responses:
        for data in topic.partitions:
            if data.partition_index == partition:
                return data
    return None


def fetched(data: PartitionData | None, offset: int, end: int) -> FetchedPart:
    """Return the result of a fetch at the position `offset` of a range that ends before `end`."""
    if data is None:
        return FetchedPart(PartEvent.UNREAD, offset, offset)
    high, stable = data.high_watermark, data.last_stable_offset
    if EVENTS[data.error_code] is PartEvent.OUT_OF_RANGE:
        return FetchedPart(PartEvent.OUT_OF_RANGE, offset, offset)
    records = memoryview(data.records or b"")
    if not records:
        return FetchedPart(PartEvent.NOTHING, offset, offset, (), 0, high, stable)
    batches, error = following_batches(records, offset)
    if error is not None:
        return FetchedPart(PartEvent.DAMAGED, offset, offset, damage=error)
    aborted = [(t.producer_id, t.first_offset) for t in data.aborted_transactions or ()]
    shown = visible(batches, aborted)
    kept = [
        batch
        for batch, shows in zip(batches, shown, strict=True)
        if shows and batch.base_offset < end
    ]
    size = sum(batch.size for batch in batches)
    return FetchedPart(PartEvent.DATA, offset, batches[-1].next_offset, kept, size, high, stable)
