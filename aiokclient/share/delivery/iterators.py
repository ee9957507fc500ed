"""The iterators over a share consumer: by single records, by lists, and for many handlers.

Each has a strong reference to its consumer (`owner`), because nothing else may refer to it.
Iterators over single records take them from an `Exposure` without calling the reader, which finds
out later how many were taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Self, TypeVar

from aiokclient.background import RecordCursor, virtual_loop
from aiokclient.clock import get_loop_clock
from aiokclient.errors.local import refuse_loop
from aiokclient.share.delivery.parts import TrackedExposure
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

    __slots__ = (
        "_exposure",
        "_limit",
        "_owner",
        "_reader",
        "_room",
        "_settlements",
        "_time",
    )

    def __init__(
        self, owner: object, reader: ShareReader, settlements: Settlements, limit: int
    ) -> None:
        self._owner = owner
        self._reader = reader
        self._settlements = settlements
        self._limit = limit
        self._exposure: TrackedExposure | None = None
        self._room = 0
        """The number of records that may be taken from the exposure."""
        self._time = get_loop_clock()

    if not TYPE_CHECKING:
        __iter__ = refuse_loop

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ShareRecord[K, V]:
        # No RecordCursor: it keeps the last record alive, and records must be dropped at once.
        exposure = self._exposure
        if exposure is None or self._room <= 0 or not exposure.left:
            return await self._advance()
        if self._time() >= exposure.until:
            return await self._advance()
        self._room -= 1
        return exposure.left.pop()

    async def _advance(self) -> ShareRecord[K, V]:
        reader = self._reader
        while True:
            # Untracked records from before would take places that nothing gives back.
            reader.accept_delivered(self._exposure)
            held = self._settlements.count_held()
            if reader.stopped and not held:
                raise StopAsyncIteration
            if reader.stopped or held >= self._limit:
                await reader.wait_for_room()
                continue
            exposure = await reader.expose_tracked(self._exposure, self._limit)
            if exposure is not None:
                self._exposure = exposure
                self._room = self._limit - held - 1
                return exposure.left.pop()
