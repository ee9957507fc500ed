"""The batches in the fetched bytes of a partition that follow an offset. Sans-IO."""

from __future__ import annotations

from aiokclient.errors import CorruptRecordError
from aiokclient.record.batch import RecordBatch, walk

__all__ = ["following_batches"]


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
