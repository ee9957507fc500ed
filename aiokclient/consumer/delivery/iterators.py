"""The iterators over a consumer: by single records, by lists, and by Arrow record batches.

Each iterator has a strong reference to its consumer (`owner`), because in `async for record in
await Consumer(...)` nothing else refers to the consumer.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from aiokclient.consumer.delivery.arrow_tables import ArrowTables
from aiokclient.consumer.delivery.cursor import RecordCursor, clock_of
from aiokclient.consumer.delivery.end_offsets import EndOffsetsLookup
from aiokclient.consumer.delivery.reader import Reader
from aiokclient.consumer.delivery.table_converter import LARGEST
from aiokclient.consumer.records import Records
from aiokclient.errors.local import refuse_loop
from aiokclient.types import ConsumerRecord, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ArrowBatches", "RecordBatches", "RecordIterator"]

K = TypeVar("K")
V = TypeVar("V")


class RecordIterator(RecordCursor[ConsumerRecord[K, V]], Generic[K, V]):
    """The iterator of `async for record in consumer`.

    It waits only when nothing is buffered, and yields to the event loop every 10 ms. A record
    counts as processed when the next one is requested. With `ends` the iteration stops at the
    offsets that this function returns.
    """

    __slots__ = ("_ends", "_limited", "_owner", "_reader")

    def __init__(self, owner: object, reader: Reader, ends: EndOffsetsLookup | None = None) -> None:
        super().__init__(clock_of(asyncio.get_running_loop()))
        self._owner = owner
        self._reader = reader
        self._ends = ends
        self._limited = ends is None

    if not TYPE_CHECKING:
        __iter__ = refuse_loop

    async def _advance(self) -> ConsumerRecord[K, V]:
        if not self._limited and self._ends is not None:
            await self._reader.limit(self, self._ends)
            self._limited = True
        records = await self._reader.advance(self, ends=self._ends)
        if records is None:
            raise StopAsyncIteration
        self.expose(records, self._reader.stretch())
        return next(records)


class RecordBatches(Generic[K, V]):
    """The iterator of `consumer.batches()`, over lists that are never empty."""

    __slots__ = (
        "__weakref__",
        "_by_partition",
        "_ends",
        "_limited",
        "_max_bytes",
        "_max_records",
        "_max_wait",
        "_owner",
        "_reader",
    )

    def __init__(
        self,
        owner: object,
        reader: Reader,
        max_records: int,
        max_wait: float,
        by_partition: bool,
        ends: EndOffsetsLookup | None,
        max_bytes: int,
    ) -> None:
        self._owner = owner
        self._reader = reader
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._max_wait = max_wait
        self._by_partition = by_partition
        self._ends = ends
        self._limited = ends is None

    if not TYPE_CHECKING:
        __iter__ = refuse_loop

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Records[K, V]:
        if not self._limited and self._ends is not None:
            await self._reader.limit(self, self._ends)
            self._limited = True
        records = await self._reader.read(
            self._max_records,
            math.inf,
            max_bytes=self._max_bytes,
            max_wait=self._max_wait,
            by_partition=self._by_partition,
            cursor=self,
            ends=self._ends,
        )
        if not records:
            self._reader.leave(self)
            raise StopAsyncIteration
        return records

    def interrupt(self) -> None:
        """Do nothing: each request calls `Reader` anyway."""


class ArrowBatches:
    """The iterator of `consumer.arrow_batches()`, over `pyarrow.RecordBatch`es."""

    __slots__ = ("__weakref__", "_ends", "_limited", "_owner", "_reader", "_tables")

    def __init__(
        self,
        owner: object,
        reader: Reader,
        *,
        max_bytes: int,
        limit: int,
        check_crcs: bool,
        ends: EndOffsetsLookup | None = None,
    ) -> None:
        from aiokclient.record.arrow import arrow_schema

        arrow_schema()  # Raises ImportError without pyarrow, before any thread needs it.
        self._owner = owner
        self._reader = reader
        self._ends = ends
        self._limited = ends is None
        self._tables = ArrowTables(reader, max_bytes=max_bytes, limit=limit, check_crcs=check_crcs)

    if not TYPE_CHECKING:
        __iter__ = refuse_loop

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> pa.RecordBatch:
        table = await self._next()
        if table is None:
            raise StopAsyncIteration
        return table

    async def _next(self, *, keeps: bool = False) -> Any:
        if not self._limited and self._ends is not None:
            await self._reader.limit(self, self._ends)
            self._limited = True
        return await self._tables.next(self, self._ends, keeps=keeps)

    async def read_all(self, max_bytes: int | None) -> Any:
        """Return a pyarrow.Table of all the batches, or of as many as fit into `max_bytes`.

        After an error or a cancellation, the records are delivered again.
        """
        import pyarrow as pa

        from aiokclient.record.arrow import arrow_schema

        batches: list[Any] = []
        left = math.inf if max_bytes is None else max_bytes
        try:
            while left > 0:
                if left < math.inf:
                    self._tables.limit(min(int(left), LARGEST))
                batch = await self._next(keeps=bool(batches))
                if batch is None:
                    break
                batches.append(batch)
                left -= sum(batch.column(name).nbytes for name in ("key", "value", "headers"))
        except BaseException:
            self._reader.return_records(_first_offsets(batches))
            raise
        self._reader.leave(self)
        return pa.Table.from_batches(batches, schema=arrow_schema())

    def interrupt(self) -> None:
        """Do nothing: each request calls `Reader` anyway."""


def _first_offsets(batches: Iterable[Any]) -> dict[TopicPartition, int]:
    """Return the first offset of each partition in Arrow record batches."""
    offsets: dict[TopicPartition, int] = {}
    for batch in batches:
        topic, partition, offset = (
            batch.column(name)[0].as_py() for name in ("topic", "partition", "offset")
        )
        offsets.setdefault(TopicPartition(topic, partition), offset)
    return offsets
