"""The deliveries with which records were sent, for records that have moved to another batch.

`on_delivery_error` receives a delivery that equals the one that `send` returned. The delivery from
`send` has the batch to which the record was first appended, but the failure belongs to the batch
to which the record was moved last. Without `on_delivery_error`, nothing is stored.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from aiokclient.producer.delivery.delivery import DeliveryBatch

__all__ = ["Origins"]


class Moved(NamedTuple):
    """Records that have moved to a batch, where they begin at index `first`.

    They were first appended to the batch `source`, from index `start` on.
    """

    first: int
    size: int
    source: DeliveryBatch
    start: int


class Origins:
    """The first batch and index of each record that has moved, by the batch in which it is now."""

    def __init__(self) -> None:
        self._moves: dict[DeliveryBatch, list[Moved]] = {}

    def __len__(self) -> int:
        return len(self._moves)

    def follow(self, batch: DeliveryBatch) -> None:
        """Store where the records of a batch came from, after all of them have moved."""
        for start, end, target, first in batch.forwards:
            for index in range(start, end):
                self._add(target, first + index - start, *self.of(batch, index))
        self.forget(batch)

    def _add(self, target: DeliveryBatch, first: int, source: DeliveryBatch, start: int) -> None:
        moves = self._moves.setdefault(target, [])
        if moves:
            last = moves[-1]
            size = last.size
            if last.source is source and (last.first + size, last.start + size) == (first, start):
                moves[-1] = last._replace(size=size + 1)
                return
        moves.append(Moved(first, 1, source, start))

    def of(self, batch: DeliveryBatch, index: int) -> tuple[DeliveryBatch, int]:
        """Return the batch to which a record was appended first, and its index there."""
        moves = self._moves.get(batch)
        if moves:
            moved = moves[bisect_right(moves, index, key=_first) - 1]
            if moved.first <= index < moved.first + moved.size:
                return moved.source, moved.start + index - moved.first
        return batch, index

    def forget(self, batch: DeliveryBatch) -> None:
        """Remove a batch that has an outcome, or whose records have all moved."""
        self._moves.pop(batch, None)


def _first(moved: Moved) -> int:
    return moved.first
