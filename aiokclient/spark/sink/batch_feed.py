"""The transfer of record batches to a coroutine, from the thread in which Spark yields them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa

R = TypeVar("R")

AHEAD = 2
"""The maximum number of batches that the coroutine has not processed yet."""
END = object()


class BatchFeed:
    """A bounded queue of record batches. One thread fills it, one coroutine iterates over it."""

    def __init__(self) -> None:
        self._room = threading.Semaphore(AHEAD)
        self._reader: Future[asyncio.AbstractEventLoop | None] = Future()
        self._queue: asyncio.Queue[Any] = asyncio.Queue()

    def feed_reader(
        self, batches: Iterable[pa.RecordBatch], reader: Callable[[], Future[R]]
    ) -> Future[R]:
        """Start the coroutine, pass it all batches, and return its future.

        Returns early if the coroutine fails. An error of the iterator cancels the coroutine and is
        raised.
        """
        future = reader()
        future.add_done_callback(self._on_reader_end)
        try:
            loop = self._reader.result()
            for batch in batches:
                self._room.acquire()
                if future.done() or loop is None:
                    break
                # Spark's thread calls this, and asyncio.Queue is not thread-safe.
                loop.call_soon_threadsafe(self._queue.put_nowait, batch)
            if loop is not None and not future.done():
                loop.call_soon_threadsafe(self._queue.put_nowait, END)
        except BaseException:
            future.cancel()
            raise
        return future

    async def read_batches(self) -> AsyncIterator[pa.RecordBatch]:
        """Yield the batches, in the order in which Spark yields them."""
        self._reader.set_result(asyncio.get_running_loop())
        while (batch := await self._queue.get()) is not END:
            yield batch
            # The batch must not stay in memory while the next one is awaited.
            del batch
            self._room.release()

    def _on_reader_end(self, _: Future[Any]) -> None:
        if not self._reader.done():
            self._reader.set_result(None)
        self._room.release()
