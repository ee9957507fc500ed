"""The iterator of `consumer.tracked()`, for concurrent handlers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from aiokclient.consumer.delivery.reader import Reader
from aiokclient.consumer.state.partition import PartitionState
from aiokclient.errors.local import refuse_loop
from aiokclient.types import ConsumerRecord

__all__ = ["TrackedRecords"]

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
                return self._track(record)
        records = await self._reader.advance(self, self._has_room)
        if records is None:
            raise StopAsyncIteration
        self._records = records
        self._state = self._reader.exposed_state()
        assert self._state is not None
        self._reader.in_progress.tracks(self._state)
        self._room = self._limit - self._reader.in_progress.outstanding()
        self._until = self._time() + self._reader.stretch()
        return self._track(next(records))

    def _track(self, record: Any) -> ConsumerRecord[K, V]:
        assert self._state is not None
        self._room -= 1
        self._state.track(record, self._time())
        tracked: ConsumerRecord[K, V] = record
        return tracked

    def _has_room(self) -> bool:
        return self._reader.in_progress.has_room(self._limit)
