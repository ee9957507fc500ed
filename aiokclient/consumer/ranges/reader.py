"""The iterator over the record batches of a range."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from typing import TYPE_CHECKING, Any

from aiokclient.cluster.client import ClusterClient
from aiokclient.consumer.delivery.table_converter import TableConverter
from aiokclient.consumer.ranges.fetches import RangeConnections, RangeFetches
from aiokclient.consumer.ranges.request import RangeRequest
from aiokclient.record.batch import DEFAULT_LIMIT

if TYPE_CHECKING:
    import pyarrow as pa


async def read(
    cluster: ClusterClient,
    connections: RangeConnections,
    request: RangeRequest,
    check: Callable[[], None],
) -> AsyncGenerator[pa.RecordBatch, None]:
    """Yield the record batches of a range. `check` raises an error if the client is not open.

    The connections are returned for reuse when the iteration ends, by an error or otherwise.
    """
    if request.start == request.end:
        return
    owner = connections.take_owner()
    fetches = RangeFetches(cluster, owner, request)
    tp, offset = request.tp, request.start
    converter = TableConverter(
        max_bytes=fetches.largest_fetch,
        limit=DEFAULT_LIMIT,
        columns=request.columns,
        end_offset=request.end,
    )
    idle = False
    try:
        while True:
            check()
            idle = False
            part = await fetches.read_next()
            idle = fetches.is_idle
            if part is None:
                return
            left, stream = part.batches, None
            while left:
                found = await converter.convert_next(tp, left, offset, stream)
                if found.table is not None:
                    for table in _cut(found.table, request.batch_rows):
                        yield table
                if found.damage is not None:
                    damage = found.damage
                    where = max(damage.offset, offset)
                    fetches.fetch_again(damage.cause, where, damage.last_offset, damage.over_limit)
                    break
                left, stream, offset = left[found.used :], found.rest, found.offset
                if offset >= request.end:
                    break
    finally:
        del check  # The traceback of an error must not keep the client alive.
        idle = idle and fetches.is_idle
        fetches.close()
        connections.return_owner(owner, cluster, idle=idle)


def _cut(table: Any, rows: int) -> Iterator[Any]:
    """Yield a table in slices of at most this number of rows, which share its memory."""
    if 0 < table.num_rows <= rows:
        yield table
        return
    for first in range(0, table.num_rows, rows):
        yield table.slice(first, rows)
