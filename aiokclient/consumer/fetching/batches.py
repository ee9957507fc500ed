"""The batches in the fetched bytes of a partition. Sans-IO.

`following_batches` finds the batches that follow an offset, and `visible` says which of them have
records for the application. Control batches never have any. With `read_committed` the response also
lists the aborted transactions in the batches, by producer id and first offset. From that offset on,
the producer's transactional batches are skipped, until the marker that ends the transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from aiokclient.errors import CorruptRecordError
from aiokclient.record.batch import RecordBatch, walk

__all__ = ["Markable", "following_batches", "visible"]

ABORT_MARKER = 0


class Markable(Protocol):
    """The properties of a batch that are used here. All but `control_type` are in its header."""

    @property
    def last_offset(self) -> int: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def is_control(self) -> bool: ...
    @property
    def is_transactional(self) -> bool: ...

    def control_type(self) -> int:
        """Return the type of a control batch: 0 for an abort, 1 for a commit."""
        ...


def visible(batches: Sequence[Markable], aborted: Iterable[tuple[int, int]] = ()) -> list[bool]:
    """Return for each batch whether its records are to be delivered.

    `aborted` are (producer id, first offset) in any order: brokers have sent them out of order.
    """
    # The list is popped from its end, so the earliest transaction comes last.
    beginning = sorted(aborted, key=lambda transaction: -transaction[1])
    open_aborted: set[int] = set()
    shown: list[bool] = []
    for batch in batches:
        while beginning and beginning[-1][1] <= batch.last_offset:
            open_aborted.add(beginning.pop()[0])
        if batch.is_control:
            if batch.producer_id in open_aborted and _aborts(batch):
                open_aborted.discard(batch.producer_id)
            shown.append(False)
        else:
            shown.append(not (batch.is_transactional and batch.producer_id in open_aborted))
    return shown


def _aborts(marker: Markable) -> bool:
    try:
        return marker.control_type() == ABORT_MARKER
    except CorruptRecordError:
        return False  # `Reader` reports the damage when it comes to this marker.


def following_batches(
    records: memoryview, offset: int
) -> tuple[list[RecordBatch], CorruptRecordError | None]:
    """Return the batches from `offset` on, up to the first that is damaged or does not follow.

    If no batch follows, return an empty list and the error that says why.
    """
    try:
        found = walk(records)
    except CorruptRecordError as error:
        return [], error
    batches: list[RecordBatch] = []
    following = offset
    for batch in found:
        if batch.next_offset <= offset and not batches:
            continue  # Skip a batch that ends before the offset. Brokers may begin with one.
        if batch.next_offset <= following or (batches and batch.base_offset < following):
            break
        batches.append(batch)
        following = batch.next_offset
    if batches:
        return batches, None
    return [], CorruptRecordError(
        f"The response has {len(records)} bytes, but no batch that follows offset {offset}."
    )
