"""The iterators over a share consumer: by single records, by lists, and for many handlers.

Each has a strong reference to its consumer (`owner`), because nothing else may refer to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Self, TypeVar

from aiokclient.background import RecordCursor, virtual_loop
from aiokclient.errors.local import refuse_loop
from aiokclient.share.delivery.record import ShareRecord

if TYPE_CHECKING:
    from aiokclient.share.delivery.reader import ShareReader
    from aiokclient.share.settlements import Settlements

K = TypeVar("K")
V = TypeVar("V")


class ShareIterator(RecordCursor[ShareRecord[K, V]], Generic[K, V]):
    """The iterator of `async for record in consumer`.

    Requesting the next record accepts the one before, unless it was released or rejected.
    """

    __slots__ = ("_owner", "_reader")

    def __init__(self, owner: object, reader: ShareReader) -> None:
        super().__init__(virtual_loop())
        self._owner = owner
        self._reader = reader

    if not TYPE_CHECKING:
        __iter__ = refuse_loop

    async def _advance(self) -> ShareRecord[K, V]:
        record: ShareRecord[K, V] | None = await self._reader.expose_records(self)
        if record is None:
            raise StopAsyncIteration
        return record


class ShareBatches(Generic[K, V]):
    """The iterator of `consumer.batches()`, over lists that are never empty."""

    __slots__ = ("_max_records", "_max_wait", "_owner", "_reader")

    def __init__(
        self, owner: object, reader: ShareReader, max_records: int, max_wait: float
    ) -> None:
        self._owner = owner
        self._reader = reader
        self._max_records = max_records
        self._max_wait = max_wait

    if not TYPE_CHECKING:
        __iter__ = refuse_loop

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[ShareRecord[K, V]]:
        records = await self._reader.read_records(self._max_records, max_wait=self._max_wait)
        if not records:
            raise StopAsyncIteration
        return records


class TrackedShareRecords(Generic[K, V]):
    """The iterator of `consumer.tracked()`: each record is settled on its own.

    At most `limit` delivered records are not settled at a time.
    """

    __slots__ = ("_limit", "_owner", "_reader", "_settlements")

    def __init__(
        self, owner: object, reader: ShareReader, settlements: Settlements, limit: int
    ) -> None:
        self._owner = owner
        self._reader = reader
        self._settlements = settlements
        self._limit = limit

    if not TYPE_CHECKING:
        __iter__ = refuse_loop

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ShareRecord[K, V]:
        # Untracked records from before would take places that nothing gives back.
        self._reader.accept_delivered()
        while True:
            held = self._settlements.count_held()
            if self._reader.stopped and not held:
                raise StopAsyncIteration
            if self._reader.stopped or held >= self._limit:
                await self._reader.wait_for_room()
                continue
            records = await self._reader.read_records(1, tracked=True, places=self._limit)
            if records:
                record: ShareRecord[K, V] = records[0]
                return record
