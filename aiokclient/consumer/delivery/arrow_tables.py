"""The conversion of the fetched parts of a `Reader` to Arrow tables.

A table has records of one partition: as many of the remaining records of a fetched part as fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aiokclient.consumer.delivery.read_lock import Cursor
from aiokclient.consumer.delivery.reader import Reader
from aiokclient.consumer.delivery.table_converter import Converted, TableConverter
from aiokclient.consumer.fetching.buffer import PartitionFetch

__all__ = ["ArrowTables"]


class ArrowTables:
    """The converter of the fetched parts of a `Reader` to Arrow tables."""

    def __init__(self, reader: Reader, *, max_bytes: int, limit: int, check_crcs: bool) -> None:
        self._reader = reader
        self._converter = TableConverter(max_bytes=max_bytes, limit=limit, check_crcs=check_crcs)

    async def next(self, cursor: Cursor) -> Any:
        """Return the next table; None when the consumer was stopped."""
        reader = self._reader
        with reader.read_lock.enter(cursor):
            await reader.begin(cursor)
            while (fetch := await reader.part()) is not None:
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
