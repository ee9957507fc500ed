"""The limits of a batch of a stream. Sans-IO.

The rules are those of Spark's Kafka connector. `maxOffsetsPerTrigger` is divided among the
partitions, in proportion to the number of new offsets in each. A batch waits until there are
`minOffsetsPerTrigger` new offsets, or until `maxTriggerDelay` has passed since the last batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

P = TypeVar("P")


def available(starts: Mapping[P, int], ends: Mapping[P, int]) -> int:
    """Return the number of offsets from the starts to the ends."""
    return sum(max(0, end - starts[partition]) for partition, end in ends.items())


def prorate(limit: int, starts: Mapping[P, int], ends: Mapping[P, int]) -> dict[P, int]:
    """Return the ends of a batch of about `limit` offsets.

    Each partition gets its share of the limit, and at least one offset if it has any. The batch can
    therefore exceed a limit that is lower than the number of partitions.
    """
    total = available(starts, ends)
    if total <= limit:
        return dict(ends)
    reduced = {}
    for partition, end in ends.items():
        start = starts[partition]
        share = max(1, limit * (end - start) // total)
        reduced[partition] = min(end, start + share) if end > start else end
    return reduced


class TriggerDelay:
    """The decision whether a batch waits for more records.

    The first batch does not wait, as in the connector. Times are seconds on one monotonic clock.
    """

    def __init__(self, minimum: int, max_delay_s: float) -> None:
        self._minimum = minimum
        self._max_delay_s = max_delay_s
        self._last: float | None = None

    def has_to_wait(self, count: int, now: float) -> bool:
        """Return whether a batch of `count` offsets has to wait. If not, begin the next delay."""
        if (
            self._last is not None
            and count < self._minimum
            and now - self._last < self._max_delay_s
        ):
            return True
        self._last = now
        return False
