"""The log of one partition: record batches as bytes, by offset.

A log is a list of segments. A segment is a list of whole batches as they were received, with a list
of their base offsets, which is searched. Appending copies a batch once, reading does not copy, and
records are not decoded. When the log is larger than its retention, whole segments are removed at
its start.

In addition to the batches, a log stores what a log of Kafka stores: the first offset of each epoch
(`EpochCache`), the last batches of each producer, and open and aborted transactions
(`ProducerStates`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from aiokclient.record.batch import RecordBatch, walk
from aiokclient.record.compression import DEFAULT_LIMIT
from aiokclient.record.stream import RecordStream
from aiokclient.testing.broker.topics.compaction import CompactionTimes, compact_batches
from aiokclient.testing.broker.topics.producers import ProducerStates

UNDEFINED = -1
_PIECE = 1 << 20
"""Bytes of a batch's content that are decoded at a time."""


class Segment:
    """A segment of a log: consecutive batches, in the order of their offsets."""

    __slots__ = ("base_offset", "bases", "batches", "max_timestamps", "size")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.bases: list[int] = []
        self.batches: list[bytes] = []
        self.max_timestamps: list[int] = []
        self.size = 0

    def append_batch(self, base_offset: int, batch: bytes, max_timestamp: int) -> None:
        self.bases.append(base_offset)
        self.batches.append(batch)
        self.max_timestamps.append(max_timestamp)
        self.size += len(batch)

    def truncate(self, position: int) -> None:
        del self.bases[position:], self.batches[position:], self.max_timestamps[position:]
        self.size = sum(map(len, self.batches))


class EpochCache:
    """The first offset of each leader epoch (KIP-101)."""

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []

    def assign_epoch(self, epoch: int, start: int) -> None:
        """Record that `epoch` begins at `start`, and remove epochs that are empty as a result."""
        self.truncate_at(start)
        self._epochs.append(epoch)
        self._starts.append(start)

    def truncate_at(self, end: int) -> None:
        keep = bisect_left(self._starts, end)
        del self._epochs[keep:], self._starts[keep:]

    def remove_before(self, start: int) -> None:
        """Remove epochs whose records are all before `start`."""
        gone = bisect_right(self._starts, start) - 1
        if gone >= 0:
            del self._epochs[:gone], self._starts[:gone]
            self._starts[0] = start

    def find_end(self, epoch: int, log_end: int) -> tuple[int, int]:
        """Return the largest known epoch that is not larger than `epoch`, and its end offset.

        If `epoch` is older than all known epochs, return `epoch` and the start of the oldest one.
        Return (-1, -1) if `epoch` is -1 or newer than all known epochs, or if none is known.
        """
        if epoch == UNDEFINED or not self._epochs or epoch > self._epochs[-1]:
            return UNDEFINED, UNDEFINED
        if epoch == self._epochs[-1]:
            return epoch, log_end
        above = bisect_right(self._epochs, epoch)
        floor = self._epochs[above - 1] if above else epoch
        return floor, self._starts[above]

    def find_epoch(self, offset: int) -> int:
        """Return the epoch in which `offset` was written, or -1 if it is unknown."""
        index = bisect_right(self._starts, offset) - 1
        return self._epochs[index] if index >= 0 else UNDEFINED


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int


class PartitionLog:
    """The batches of a partition from `start_offset` up to, but not including, `end_offset`."""

    def __init__(self) -> None:
        self.start_offset = 0
        self.end_offset = 0
        self.size = 0
        self.epochs = EpochCache()
        self.producers = ProducerStates()
        self._segments = [Segment(0)]

    def append_batch(self, data: bytes, batch: RecordBatch, *, segment_bytes: int) -> None:
        """Append a batch whose bytes already have `end_offset` as the base offset.

        `batch` is any view of the batch that includes the header, such as the one of the request.
        """
        segment = self._segments[-1]
        if segment.size and segment.size + len(data) > segment_bytes:
            segment = Segment(self.end_offset)
            self._segments.append(segment)
        segment.append_batch(self.end_offset, data, batch.max_timestamp)
        self.producers.on_append(batch, self.end_offset)
        self.end_offset += batch.last_offset - batch.base_offset + 1
        self.size += len(data)

    def remove_oldest(self, size: int, limit: int) -> bool:
        """Remove the oldest segments while the log is larger than `size` bytes.

        Nothing at or after `limit` is removed, and neither is the active segment. Returns whether
        anything was removed.
        """
        before = self.start_offset
        while len(self._segments) > 1 and self.size - self._segments[0].size >= size:
            if self._segments[1].base_offset > limit:
                break
            self.size -= self._segments.pop(0).size
            self.start_offset = max(self.start_offset, self._segments[0].base_offset)
        if self.start_offset != before:
            self._on_start_advanced()
        return self.start_offset != before

    def delete_before(self, offset: int) -> None:
        """Advance the log start offset, and remove segments that are completely before it."""
        self.start_offset = max(self.start_offset, offset)
        if offset >= self.end_offset:
            # The log is empty, so the active segment is removed as well.
            self._segments = [Segment(self.end_offset)]
            self.size = 0
        while len(self._segments) > 1 and self._segments[1].base_offset <= offset:
            self.size -= self._segments.pop(0).size
        self._on_start_advanced()

    def _on_start_advanced(self) -> None:
        self.epochs.remove_before(self.start_offset)
        self.producers.remove_aborted_before(self.start_offset)

    def truncate(self, end: int) -> None:
        """Remove all batches that contain an offset at or after `end`.

        The log then ends at the first offset of the first batch that was removed, which is before
        `end` if `end` is inside a batch. The states of producers are computed again from the
        remaining batches.
        """
        if end >= self.end_offset:
            return
        while len(self._segments) > 1 and self._segments[-1].base_offset >= end:
            self._segments.pop()
        segment = self._segments[-1]
        position = 0
        self.end_offset = segment.base_offset
        for base, batch in zip(segment.bases, segment.batches, strict=True):
            if _find_next_offset(base, batch) > end:
                break
            position += 1
            self.end_offset = _find_next_offset(base, batch)
        segment.truncate(position)
        self.size = sum(each.size for each in self._segments)
        self.epochs.truncate_at(self.end_offset)
        self.producers = ProducerStates()
        for kept in self.read_batches():
            self.producers.on_append(kept, kept.base_offset)
        self.producers.remove_aborted_before(self.start_offset)

    def compact(self, limit: int, times: CompactionTimes) -> None:
        """Remove what compaction removes before `limit`. Offsets and epochs stay."""
        compacted = compact_batches(list(self.read_batches()), limit, self.producers, times)
        segment = Segment(self._segments[0].base_offset)
        for data in compacted.batches:
            batch = RecordBatch(data)
            # An empty batch has no record that a search for a time could find.
            latest = batch.max_timestamp if batch.count else UNDEFINED
            segment.append_batch(batch.base_offset, data, latest)
        self._segments = [segment]
        self.size = segment.size
        self.producers.forget_aborted(compacted.gone)

    def read_batches(self, start: int = 0) -> Iterator[RecordBatch]:
        """Return all batches, beginning with the one that contains `start`."""
        for segment, position in self._find_positions(start):
            yield from walk(segment.batches[position])

    def _find_positions(self, start: int) -> Iterator[tuple[Segment, int]]:
        first = bisect_right(self._segments, start, key=lambda segment: segment.base_offset) - 1
        for index in range(max(first, 0), len(self._segments)):
            segment = self._segments[index]
            position = bisect_right(segment.bases, start) - 1 if index == first else 0
            if position >= 0 and index == first:
                # After compaction, the offset may be in a gap after this batch.
                found = segment.bases[position], segment.batches[position]
                position += _find_next_offset(*found) <= start
            for each in range(max(position, 0), len(segment.bases)):
                yield segment, each

    def read_range(
        self, start: int, upper: int, max_bytes: int, *, whole_first: bool
    ) -> tuple[Sequence[bytes | memoryview], int, int]:
        """Return batches, from the one that contains `start` to the last one before `upper`.

        The result has the pieces of bytes, their size, and the offset after the last batch. As in
        Kafka, the last batch may be cut off at `max_bytes`. If the first batch is larger than this,
        it is returned as a whole if `whole_first` is true, and not at all otherwise.
        """
        pieces: list[bytes | memoryview] = []
        size, end = 0, start
        if start >= upper:
            return pieces, size, end
        for segment, position in self._find_positions(start):
            base, batch = segment.bases[position], segment.batches[position]
            if base >= upper:
                break
            end = _find_next_offset(base, batch)
            if size + len(batch) > max_bytes and not (whole_first and not pieces):
                if pieces and max_bytes > size:
                    pieces.append(memoryview(batch)[: max_bytes - size])
                    size = max_bytes
                break
            pieces.append(batch)
            size += len(batch)
        return pieces, size, end

    def count_bytes(self, start: int, upper: int, enough: int) -> int:
        """Return the size of the batches from `start` to `upper`. Stop counting at `enough`."""
        size = 0
        if start >= upper:
            return size
        for segment, position in self._find_positions(start):
            if segment.bases[position] >= upper or size >= enough:
                break
            size += len(segment.batches[position])
        return size

    def find_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """Return the first record whose timestamp is `timestamp` or later."""
        for segment, position in self._find_positions(self.start_offset):
            if segment.max_timestamps[position] >= timestamp:
                found = self._find_in_batch(segment.batches[position], timestamp)
                if found is not None:
                    return found
        return None

    def find_max_timestamp(self) -> TimestampOffset | None:
        """Return the first of the records with the greatest timestamp."""
        best: tuple[int, bytes] | None = None
        for segment, position in self._find_positions(self.start_offset):
            timestamp = segment.max_timestamps[position]
            if best is None or timestamp > best[0]:
                best = timestamp, segment.batches[position]
        return None if best is None else self._find_in_batch(best[1], best[0])

    def _find_in_batch(self, data: bytes, timestamp: int) -> TimestampOffset | None:
        (batch,) = walk(data)
        stream = RecordStream(batch, check_crcs=False, limit=DEFAULT_LIMIT)
        while True:
            records, _ = stream.records("", 0, self.start_offset, _PIECE, copy=True)
            if not records:
                return None
            for record in records:
                if record.timestamp >= timestamp:
                    return TimestampOffset(record.timestamp, record.offset)


def _find_next_offset(base: int, batch: bytes) -> int:
    """Return the offset after the last one of a batch with this base offset."""
    return base + int.from_bytes(batch[23:27], "big") + 1
