"""The iteration over records that a consumer exposes: `RecordCursor`, with a native twin."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from typing import Generic, Self, TypeVar

from aiokclient._native import twin

T = TypeVar("T")


@twin("consumer")
class RecordCursor(Generic[T]):
    """An asynchronous iterator over records that a subclass's `_advance` provides.

    `_advance` passes the next records to `expose` and returns the first of them, or raises
    StopAsyncIteration. It is called when no record is left, when the time that `expose` allowed is
    over (an iteration that never waits would let nothing else run), and after `interrupt`. Only
    this iteration takes records from the iterator that was passed to `expose`. Therefore that
    iterator shows how far the iteration went.

    With `loop`, the time is that of this loop. None means the real time, which is read coarsely if
    that is cheaper.
    """

    __slots__ = ("__weakref__", "_records", "_time", "_until")

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._records: Iterator[T] = iter(())
        self._time = (loop or asyncio.get_running_loop()).time
        self._until = -math.inf

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        if self._time() < self._until:
            for record in self._records:
                return record
        return await self._advance()

    def interrupt(self) -> None:
        """Make the iteration call `_advance` for its next record. Safe in any thread."""
        self._until = -math.inf

    def expose(self, records: Iterator[T], seconds: float) -> None:
        """Deliver these records, for at most `seconds`, before `_advance` is called again."""
        self._records = records
        self._until = self._time() + seconds

    async def _advance(self) -> T:
        """Return the next record. Subclasses override this method.

        It is called when no record is exposed, or when it is time to yield to the event loop.
        """
        raise StopAsyncIteration


def virtual_loop() -> asyncio.AbstractEventLoop | None:
    """Return the running loop, or None if its time is the real one."""
    loop = asyncio.get_running_loop()
    kind = type(loop)
    if kind.__module__.startswith("uvloop") or kind.time is asyncio.BaseEventLoop.time:
        return None
    return loop
