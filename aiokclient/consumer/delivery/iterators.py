"""The iterators over a consumer: by single records, by lists, and by Arrow record batches.

`RecordCursor`, which has a native twin, delivers records without a call of `Reader` as long as some
are exposed. `TrackedRecords` does the same for concurrent handlers. Each iterator has a strong
reference to its consumer (`owner`), because in `async for record in await Consumer(...)` nothing
else refers to the consumer.

`ArrowBatches` converts fetched parts to tables. A table has records of one partition: as many of
the remaining records of a fetched part as fit.
"""

from __future__ import annotations

import asyncio
import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from aiokclient.background import RecordCursor, virtual_loop
from aiokclient.consumer.delivery.reader import Reader
from aiokclient.consumer.delivery.table_converter import LARGEST, Converted, TableConverter
from aiokclient.consumer.fetching.buffer import PartitionFetch
from aiokclient.consumer.records import Records
from aiokclient.consumer.state.partition import PartitionState
from aiokclient.errors.local import refuse_loop
from aiokclient.record.batch import RecordBatch
from aiokclient.types import ConsumerRecord, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from aiokclient.consumer.delivery.value_columns import DecodedTable, ValueColumns

K = TypeVar("K")
V = TypeVar("V")


class TrackedRecords(Generic[K, V]):
    """An iterator over records, for each of which the application must call `done`.

    At most `limit` of them are outstanding at a time. Like `RecordCursor` it takes exposed records
    without a call of `Reader`, but it stores each of them as outstanding.
    """

    __slots__ = (
        "__weakref__",
        "_limit",
        "_owner",
        "_reader",
        "_records",
        "_room",
        "_state",
        "_time",
        "_until",
    )

    def __init__(self, owner: object, reader: Reader, limit: int) -> None:
        self._owner = owner
        self._reader = reader
        self._limit = limit
        self._records: Iterator[Any] = iter(())
        self._state: PartitionState | None = None
        self._room = 0
        self._time = asyncio.get_running_loop().time
        self._until = -math.inf

    if not TYPE_CHECKING:
        __iter__ = refuse_loop

    def __aiter__(self) -> Self:
        return self

    def interrupt(self) -> None:
        """Make the iteration call `Reader` for its next record. Safe in any thread."""
        self._until = -math.inf

    async def __anext__(self) -> ConsumerRecord[K, V]:
        if self._room > 0 and self._time() < self._until:
            for record in self._records:
                return self._track_record(record)
        exposed = await self._reader.expose_next(self, self._limit)
        if exposed is None:
            raise StopAsyncIteration
        self._records, seconds = exposed
        self._state = self._reader.get_exposed_state()
        assert self._state is not None
        self._reader.in_progress.track_partition(self._state)
        self._room = self._limit - self._reader.in_progress.count_outstanding()
        self._until = self._time() + seconds
        return self._track_record(next(self._records))

    def _track_record(self, record: Any) -> ConsumerRecord[K, V]:
        assert self._state is not None
        self._room -= 1
        self._state.track_record(record, self._time())
        tracked: ConsumerRecord[K, V] = record
        return tracked


class RecordIterator(RecordCursor[ConsumerRecord[K, V]], Generic[K, V]):
    """The iterator of `async for record in consumer`.

    It waits only when nothing is buffered, and yields to the event loop every 10 ms. A record
    counts as processed when the next one is requested. With `until_end` the iteration stops at
    the end offsets as of its beginning.
    """

    __slots__ = ("_limited", "_owner", "_reader")

    def __init__(self, owner: object, reader: Reader, *, until_end: bool = False) -> None:
        super().__init__(virtual_loop())
        self._owner = owner
        self._reader = reader
        self._limited = not until_end

    if not TYPE_CHECKING:
        __iter__ = refuse_loop

    async def _advance(self) -> ConsumerRecord[K, V]:
        if not self._limited:
            await self._reader.limit_to_end(self)
            self._limited = True
        exposed = await self._reader.expose_next(self)
        if exposed is None:
            raise StopAsyncIteration
        records, seconds = exposed
        self.expose(records, seconds)
        return next(records)


class RecordBatches(Generic[K, V]):
    """The iterator of `consumer.batches()`, over lists that are never empty."""

    __slots__ = (
        "__weakref__",
        "_by_partition",
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
        until_end: bool,
        max_bytes: int,
    ) -> None:
        self._owner = owner
        self._reader = reader
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._max_wait = max_wait
        self._by_partition = by_partition
        self._limited = not until_end

    if not TYPE_CHECKING:
        __iter__ = refuse_loop

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Records[K, V]:
        if not self._limited:
            await self._reader.limit_to_end(self)
            self._limited = True
        records = await self._reader.read_records(
            self._max_records,
            math.inf,
            max_bytes=self._max_bytes,
            max_wait=self._max_wait,
            by_partition=self._by_partition,
            cursor=self,
        )
        if not records:
            self._reader.on_iteration_end(self)
            raise StopAsyncIteration
        return records

    def interrupt(self) -> None:
        """Do nothing: each request calls `Reader` anyway."""


class ArrowBatches:
    """The iterator of `consumer.arrow_batches()`, over `pyarrow.RecordBatch`es."""

    __slots__ = ("__weakref__", "_converter", "_limited", "_owner", "_reader", "_values")

    def __init__(
        self,
        owner: object,
        reader: Reader,
        *,
        max_bytes: int,
        limit: int,
        check_crcs: bool,
        until_end: bool = False,
        values: ValueColumns | None = None,
    ) -> None:
        from aiokclient.record.arrow import arrow_schema

        arrow_schema()  # Raises ImportError without pyarrow, before any thread needs it.
        self._owner = owner
        self._reader = reader
        self._limited = not until_end
        self._converter = TableConverter(max_bytes=max_bytes, limit=limit, check_crcs=check_crcs)
        self._values = values
        """The decoder of the values, or None to leave them as bytes."""

    if not TYPE_CHECKING:
        __iter__ = refuse_loop

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> pa.RecordBatch:
        table = await self._read_table()
        if table is None:
            raise StopAsyncIteration
        return table

    async def _read_table(self, *, keeps: bool = False) -> Any:
        """Return the next table; None when the consumer was stopped, or at the end offsets.

        With `keeps`, the records of earlier tables remain in progress.
        """
        reader = self._reader
        if not self._limited:
            await reader.limit_to_end(self)
            self._limited = True
        with reader.read_lock.enter(self):
            await reader.begin_request(self, keeps=keeps, prepares=self._values is not None)
            while (fetch := await reader.wait_for_part(self)) is not None:
                part, jumps = fetch.find_next_batches(self._converter.max_bytes), fetch.state.jumps
                batches = [fetch.batches[index] for index in part]
                try:
                    found = await self._converter.convert_next(
                        fetch.state.tp, batches, fetch.offset, fetch.stream
                    )
                    decoded = None
                    if self._values is not None and found.table is not None:
                        decoded = await self._values.decode_values(found.table)
                        found = found._replace(table=decoded.table)
                except BaseException:
                    fetch.rewind()  # Read again the records that were not delivered.
                    raise
                # The part may have become invalid during the conversion, or the session has ended.
                reader.subscription.apply_changes()
                if fetch.is_valid and fetch.state.is_readable and fetch.state.jumps == jumps:
                    end = reader.ends.find_end(fetch.state)
                    if decoded is not None and decoded.end is not None and decoded.end < end:
                        found = self._take_decoded(fetch, batches, found, decoded)
                    elif found.offset > end:
                        found = self._take_before_end(fetch, batches, found, int(end))
                    else:
                        self._take_records(fetch, part, found)
                    if found.table is not None:
                        size = sum(fetch.batches[index].size for index in part[: found.used])
                        reader.meters.count_table(fetch.state.tp.topic, found.table, size)
                        return found.table
                else:
                    fetch.rewind()
                await reader.yield_if_due()
        reader.on_iteration_end(self)
        return None

    def _take_before_end(
        self, fetch: PartitionFetch, batches: Sequence[RecordBatch], found: Converted, end: int
    ) -> Converted:
        """Take the records before `end`, and move the position there. Return what was taken."""
        table = found.table
        if table is not None:
            offsets = table.column("offset").to_pylist()
            count = bisect_left(offsets, end)
            table = table.slice(0, count) if count else None
        before = [batch for batch in batches if batch.base_offset < end]
        fetch.continue_at(end)
        epoch = before[-1].leader_epoch if before else found.epoch
        self._reader.move_with_part(fetch, epoch, out=table is not None)
        fetch.rewind()
        return found._replace(table=table, used=len(before))

    def _take_decoded(
        self,
        fetch: PartitionFetch,
        batches: Sequence[RecordBatch],
        found: Converted,
        decoded: DecodedTable,
    ) -> Converted:
        """Take the records before one that is not prepared or cannot be deserialized.

        The next table begins with that record. If it is the first one, the partition waits until it
        is prepared. Raise its error if there is one, and move the position after it.
        """
        assert decoded.end is not None
        assert self._values is not None
        if decoded.error is not None:
            fetch.continue_at(decoded.end + 1)
            self._reader.move_with_part(fetch, batches[0].leader_epoch, out=True)
            fetch.rewind()
            raise decoded.error
        if decoded.unprepared:
            self._values.withhold_partition(fetch.state, decoded.unprepared)
            fetch.rewind()
            return found
        return self._take_before_end(fetch, batches, found, decoded.end)

    def _take_records(self, fetch: PartitionFetch, part: Sequence[int], found: Converted) -> None:
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
        fetch.advance_to(index, found.rest)
        if offset > fetch.offset:
            fetch.continue_at(offset)
            self._reader.move_with_part(fetch, epoch, out=out)
        if found.damage is not None:
            fetch.end_before_damage(found.damage)
        if fetch.index >= len(fetch.batches):
            self._reader.finish_part(fetch)

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
                    self._converter.max_bytes = min(int(left), LARGEST)
                batch = await self._read_table(keeps=bool(batches))
                if batch is None:
                    break
                batches.append(batch)
                left -= sum(batch.column(name).nbytes for name in ("key", "value", "headers"))
        except BaseException:
            self._reader.return_records(_first_offsets(batches))
            raise
        self._reader.on_iteration_end(self)
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
