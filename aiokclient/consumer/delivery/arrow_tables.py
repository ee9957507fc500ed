"""The conversion of the fetched parts of a `Reader` to Arrow tables.

A table has records of one partition: as many of the remaining records of a fetched part as fit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from aiokclient.consumer.delivery.end_offsets import EndOffsetsLookup
from aiokclient.consumer.delivery.read_lock import Cursor
from aiokclient.consumer.delivery.reader import Reader
from aiokclient.consumer.delivery.table_converter import Converted, TableConverter
from aiokclient.consumer.fetching.buffer import PartitionFetch
from aiokclient.record.batch import RecordBatch

__all__ = ["ArrowTables"]


class ArrowTables:
    """The converter of the fetched parts of a `Reader` to Arrow tables."""

    def __init__(self, reader: Reader, *, max_bytes: int, limit: int, check_crcs: bool) -> None:
        self._reader = reader
        self._converter = TableConverter(max_bytes=max_bytes, limit=limit, check_crcs=check_crcs)

    def limit(self, max_bytes: int) -> None:
        """Limit the keys, values, and headers of the next tables to this many bytes."""
        self._converter.max_bytes = max_bytes

    async def next(
        self, cursor: Cursor, ends: EndOffsetsLookup | None = None, *, keeps: bool = False
    ) -> Any:
        """Return the next table; None when the consumer was stopped, or at the end offsets.

        `ends` looks up the end offsets again if necessary. With `keeps`, the records of earlier
        tables remain in progress.
        """
        reader = self._reader
        with reader.read_lock.enter(cursor):
            await reader.begin(cursor, keeps=keeps)
            while (fetch := await reader.part(cursor, ends)) is not None:
                part, jumps = fetch.rest(self._converter.max_bytes), fetch.state.jumps
                batches = [fetch.batches[index] for index in part]
                try:
                    found = await self._converter.next(
                        fetch.state.tp, batches, fetch.offset, fetch.stream
                    )
                except BaseException:
                    fetch.rewind()  # Read again the records that were not delivered.
                    raise
                # The part may have become invalid during the conversion, or the session has ended.
                reader.look()
                if fetch.alive and fetch.state.flowing and fetch.state.jumps == jumps:
                    end = reader.end_of(fetch.state)
                    if found.offset > end:
                        found = self._take_until(fetch, batches, found, int(end))
                    else:
                        self._take(fetch, part, found)
                    if found.table is not None:
                        size = sum(fetch.batches[index].size for index in part[: found.used])
                        reader.meters.table(fetch.state.tp.topic, found.table, size)
                        return found.table
                else:
                    fetch.rewind()
                await reader.yield_to_loop()
        reader.leave(cursor)
        return None

    def _take_until(
        self, fetch: PartitionFetch, batches: Sequence[RecordBatch], found: Converted, end: int
    ) -> Converted:
        """Take the records before `end`, and move the position there. Return what was taken."""
        table = found.table
        if table is not None:
            offsets = table.column("offset").to_pylist()
            count = bisect_left(offsets, end)
            table = table.slice(0, count) if count else None
        before = [batch for batch in batches if batch.base_offset < end]
        fetch.part_read(end)
        epoch = before[-1].leader_epoch if before else found.epoch
        self._reader.advanced(fetch, epoch, out=table is not None)
        fetch.rewind()
        return found._replace(table=table, used=len(before))

    def _take(self, fetch: PartitionFetch, part: Sequence[int], found: Converted) -> None:
        """Move the position to the offset after the converted or skipped records."""
        out = found.table is not None
        offset, epoch = found.offset, found.epoch
        if found.used < len(part):
            index = part[found.used]
        elif part and sum(fetch.batches[index].size for index in part) > self._converter.max_bytes:
            index = part[-1] + 1  # More batches may follow.
        else:
            index = len(fetch.batches)
        if index == len(fetch.batches) and fetch.batches:
            last = fetch.batches[-1]
            offset, epoch = last.next_offset, last.leader_epoch
        fetch.advance(index, found.rest)
        if offset > fetch.offset:
            fetch.part_read(offset)
            self._reader.advanced(fetch, epoch, out=out)
        if found.damage is not None:
            fetch.damaged(found.damage)
        if fetch.index >= len(fetch.batches):
            self._reader.finished(fetch)
