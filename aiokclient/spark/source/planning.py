"""Splitting ranges of offsets into the partitions that Spark reads. Sans-IO.

Without an option, each Kafka partition is one Spark partition, as with Spark's connector.
`maxRecordsPerPartition` splits partitions that have more offsets. If there are still fewer than
`minPartitions` Spark partitions, the largest are split further. Their size is in bytes if that is
known, because a partition of few large records takes as long as one of many small records.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from aiokclient import TopicPartition


@dataclass(frozen=True, slots=True)
class RangePartition:
    """The offsets of a partition from `start` (inclusive) to `end` (exclusive)."""

    topic: str
    topic_id: str | None
    partition: int
    start: int
    end: int

    @property
    def tp(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        """The number of offsets."""
        return max(self.end - self.start, 0)

    def split_range(self, count: int) -> list[RangePartition]:
        """Return `count` ranges of about the same size, in order."""
        ends = [self.start + self.size * number // count for number in range(count + 1)]
        return [replace(self, start=start, end=end) for start, end in pairwise(ends)]


def split(
    ranges: Iterable[RangePartition],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
    bytes_per_offset: Mapping[TopicPartition, float] | None = None,
) -> list[RangePartition]:
    """Return the ranges that Spark reads, without empty ones, in order.

    `bytes_per_offset` has the mean size of the records of each partition. Without it, all records
    count as equally large.
    """
    wanted = [one for one in ranges if one.size]
    counts = [-(-one.size // max_records) if max_records else 1 for one in wanted]
    known = bytes_per_offset or {}
    # A partition whose size is unknown gets the mean of the others.
    mean = sum(known.values()) / len(known) if known else 1.0
    weights = [one.size * max(known.get(one.tp, mean), 1e-9) for one in wanted]
    _add(counts, weights, [one.size for one in wanted], (min_partitions or 0) - sum(counts))
    pairs = zip(wanted, counts, strict=True)
    return [part for one, count in pairs for part in one.split_range(count)]


def _add(counts: list[int], weights: list[float], sizes: list[int], missing: int) -> None:
    """Add `missing` parts, each to the range whose parts are the largest."""
    largest = [
        (-weights[index] / count, index)
        for index, count in enumerate(counts)
        if count < sizes[index]
    ]
    heapq.heapify(largest)
    while missing > 0 and largest:
        _, index = heapq.heappop(largest)
        counts[index] += 1
        missing -= 1
        if counts[index] < sizes[index]:
            heapq.heappush(largest, (-weights[index] / counts[index], index))
