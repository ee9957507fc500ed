"""The log of one partition: record batches as bytes, by offset.

A log is a list of segments, a segment a list of whole batches as they came over the wire,
with the base offset of each for the search. Appending costs one copy of a batch, reading
none; no record is looked at. Whole segments leave at the front when the log is larger than
its retention.

Beside the batches a log keeps what Kafka's does: where each leader epoch began
(`EpochCache`), and what each producer wrote last and which transactions are open or were
aborted (`ProducerStates`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from aiokclient.record.batch import RecordBatch, walk
from aiokclient.record.compression import DEFAULT_LIMIT
from aiokclient.record.stream import RecordStream
from aiokclient.testing.broker.producers import ProducerStates

UNDEFINED = -1
_PIECE = 1 << 20
"""Bytes of a batch's content that are decoded at a time."""


class Segment:
    """Neighbouring batches of a log, in the order of their offsets."""

    __slots__ = ("base_offset", "bases", "batches", "max_timestamps", "size")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.bases: list[int] = []
        self.batches: list[bytes] = []
        self.max_timestamps: list[int] = []
        self.size = 0

    def append(self, base_offset: int, batch: bytes, max_timestamp: int) -> None:
        self.bases.append(base_offset)
        self.batches.append(batch)
        self.max_timestamps.append(max_timestamp)
        self.size += len(batch)

    def truncate(self, position: int) -> None:
        del self.bases[position:], self.batches[position:], self.max_timestamps[position:]
        self.size = sum(map(len, self.batches))


class EpochCache:
    """The offset at which each leader epoch began (KIP-101)."""

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []

    def assign(self, epoch: int, start: int) -> None:
        """Note that `epoch` begins at `start`; entries that it leaves empty go."""
        self.truncate(start)
        self._epochs.append(epoch)
        self._starts.append(start)

    def truncate(self, end: int) -> None:
        keep = bisect_left(self._starts, end)
        del self._epochs[keep:], self._starts[keep:]

    def advance(self, start: int) -> None:
        """Forget epochs whose records lie wholly before `start`."""
        gone = bisect_right(self._starts, start) - 1
        if gone >= 0:
            del self._epochs[:gone], self._starts[:gone]
            self._starts[0] = start

    def end_of(self, epoch: int, log_end: int) -> tuple[int, int]:
        """The largest epoch not after `epoch`, and where it ends; (-1, -1) if unknown."""
        if epoch == UNDEFINED or not self._epochs or epoch > self._epochs[-1]:
            return UNDEFINED, UNDEFINED
        if epoch == self._epochs[-1]:
            return epoch, log_end
        above = bisect_right(self._epochs, epoch)
        floor = self._epochs[above - 1] if above else epoch
        return floor, self._starts[above]

    def at(self, offset: int) -> int:
        """The epoch in which `offset` was written; -1 if unknown."""
        index = bisect_right(self._starts, offset) - 1
        return self._epochs[index] if index >= 0 else UNDEFINED


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int


class PartitionLog:
    """The batches of a partition from `start_offset` to `end_offset` (exclusive)."""

    def __init__(self) -> None:
        self.start_offset = 0
        self.end_offset = 0
        self.size = 0
        self.epochs = EpochCache()
        self.producers = ProducerStates()
        self._segments = [Segment(0)]

    def append(self, data: bytes, batch: RecordBatch, *, segment_bytes: int) -> None:
        """Add a batch whose bytes already say that it begins at `end_offset`.

        `batch` is any view of it that has its header, for instance the one it was received in.
        """
        segment = self._segments[-1]
        if segment.size and segment.size + len(data) > segment_bytes:
            segment = Segment(self.end_offset)
            self._segments.append(segment)
        segment.append(self.end_offset, data, batch.max_timestamp)
        self.producers.appended(batch, self.end_offset)
        self.end_offset += batch.last_offset - batch.base_offset + 1
        self.size += len(data)

    def retain(self, size: int, limit: int) -> bool:
        """Drop the oldest segments while more than `size` bytes are kept; True if any went.

        Nothing at or after `limit` goes, nor does the segment being written.
        """
        before = self.start_offset
        while len(self._segments) > 1 and self.size - self._segments[0].size >= size:
            if self._segments[1].base_offset > limit:
                break
            self.size -= self._segments.pop(0).size
            self.start_offset = max(self.start_offset, self._segments[0].base_offset)
        if self.start_offset != before:
            self._started()
        return self.start_offset != before

    def delete_before(self, offset: int) -> None:
        """Advance the start of the log; segments that lie wholly before it go."""
        self.start_offset = max(self.start_offset, offset)
        if offset >= self.end_offset:
            # Nothing is left, so that the segment being written goes as well.
            self._segments = [Segment(self.end_offset)]
            self.size = 0
        while len(self._segments) > 1 and self._segments[1].base_offset <= offset:
            self.size -= self._segments.pop(0).size
        self._started()

    def _started(self) -> None:
        self.epochs.advance(self.start_offset)
        self.producers.start_at(self.start_offset)

    def truncate(self, end: int) -> None:
        """Remove all batches that hold an offset at or after `end`.

        The log then ends at the first offset of the first batch removed, which is before
        `end` where that lies inside a batch. What producers wrote is worked out anew from
        the batches that stay.
        """
        if end >= self.end_offset:
            return
        while len(self._segments) > 1 and self._segments[-1].base_offset >= end:
            self._segments.pop()
        segment = self._segments[-1]
        position = 0
        self.end_offset = segment.base_offset
        for base, batch in zip(segment.bases, segment.batches, strict=True):
            if _next_offset(base, batch) > end:
                break
            position += 1
            self.end_offset = _next_offset(base, batch)
        segment.truncate(position)
        self.size = sum(each.size for each in self._segments)
        self.epochs.truncate(self.end_offset)
        self.producers = ProducerStates()
        for kept in self.batches():
            self.producers.appended(kept, kept.base_offset)
        self.producers.start_at(self.start_offset)

    def batches(self, start: int = 0) -> Iterator[RecordBatch]:
        """All batches, from the one that holds `start` on."""
        for segment, position in self._positions(start):
            yield from walk(segment.batches[position])

    def _positions(self, start: int) -> Iterator[tuple[Segment, int]]:
        first = bisect_right(self._segments, start, key=lambda segment: segment.base_offset) - 1
        for index in range(max(first, 0), len(self._segments)):
            segment = self._segments[index]
            position = bisect_right(segment.bases, start) - 1 if index == first else 0
            for each in range(max(position, 0), len(segment.bases)):
                yield segment, each

    def read(
        self, start: int, upper: int, max_bytes: int, *, whole_first: bool
    ) -> tuple[Sequence[bytes | memoryview], int, int]:
        """Bytes of the batches from the one that holds `start` to those before `upper`.

        Gives the pieces, their size, and the offset after the last batch in them. As in
        Kafka the last batch may be cut off at `max_bytes`; with `whole_first` the first one
        is complete whatever its size, else nothing comes back if it does not fit.
        """
        pieces: list[bytes | memoryview] = []
        size, end = 0, start
        if start >= upper:
            return pieces, size, end
        for segment, position in self._positions(start):
            base, batch = segment.bases[position], segment.batches[position]
            if base >= upper:
                break
            end = _next_offset(base, batch)
            if size + len(batch) > max_bytes and not (whole_first and not pieces):
                if pieces and max_bytes > size:
                    pieces.append(memoryview(batch)[: max_bytes - size])
                    size = max_bytes
                break
            pieces.append(batch)
            size += len(batch)
        return pieces, size, end

    def bytes_from(self, start: int, upper: int, enough: int) -> int:
        """How many bytes `read` would find, counted no further than `enough`."""
        size = 0
        if start >= upper:
            return size
        for segment, position in self._positions(start):
            if segment.bases[position] >= upper or size >= enough:
                break
            size += len(segment.batches[position])
        return size

    def find_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record whose timestamp is `timestamp` or later."""
        for segment, position in self._positions(self.start_offset):
            if segment.max_timestamps[position] >= timestamp:
                found = self._in_batch(segment.batches[position], timestamp)
                if found is not None:
                    return found
        return None

    def find_max_timestamp(self) -> TimestampOffset | None:
        """The first of the records with the greatest timestamp."""
        best: tuple[int, bytes] | None = None
        for segment, position in self._positions(self.start_offset):
            timestamp = segment.max_timestamps[position]
            if best is None or timestamp > best[0]:
                best = timestamp, segment.batches[position]
        return None if best is None else self._in_batch(best[1], best[0])

    def _in_batch(self, data: bytes, timestamp: int) -> TimestampOffset | None:
        (batch,) = walk(data)
        stream = RecordStream(batch, check_crcs=False, limit=DEFAULT_LIMIT)
        while True:
            records, _ = stream.records("", 0, self.start_offset, _PIECE, copy=True)
            if not records:
                return None
            for record in records:
                if record.timestamp >= timestamp:
                    return TimestampOffset(record.timestamp, record.offset)


def _next_offset(base: int, batch: bytes) -> int:
    """Base offset plus the batch's last offset delta plus one."""
    return base + int.from_bytes(batch[23:27], "big") + 1
