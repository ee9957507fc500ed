"""An operation that its caller waits for, but that a cancellation of the caller does not stop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import anyio

from aiokclient.background import ended
from aiokclient.errors import ClosedError, KafkaError

__all__ = ["Operation"]


class Operation:
    """A commit or an abort in progress, which runs in a background task."""

    __slots__ = ("_done", "_scope", "_waiters")

    def __init__(self) -> None:
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._scope: anyio.CancelScope | None = None
        self._waiters: dict[asyncio.Future[None], None] = {}
        """A future for each caller of `result`: with `asyncio.wait`, the caller would continue one
        iteration of the event loop later."""

    @property
    def over(self) -> bool:
        """Whether the operation has ended."""
        return self._done.done()

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run the operation in the current task.

        Its errors are raised by `result`. A bug is raised here, too, which fails the producer.
        """
        try:
            with anyio.CancelScope() as self._scope:
                if not self.over:
                    await work()
        except KafkaError as error:
            self._end(error)
        except Exception as error:
            self._end(error)
            raise
        except BaseException:
            self._end(ClosedError("The producer was closed."))
            raise
        else:
            self._end(None)
        finally:
            self._scope = None

    def cancel(self, error: KafkaError) -> None:
        """Stop the operation where it is. Its caller gets `error`."""
        self._end(error)
        if self._scope is not None:
            self._scope.cancel()

    def _end(self, error: Exception | None) -> None:
        if self._done.done():
            return
        if error is None:
            self._done.set_result(None)
        else:
            self._done.set_exception(error)
            self._done.exception()  # Mark it as retrieved: the caller may have stopped waiting.
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds. Return whether the operation has ended."""
        if not self._done.done():
            await asyncio.wait([self._done], timeout=timeout)
        return self._done.done()

    async def result(self, shielded_s: float) -> None:
        """Wait for the end, and raise the error of the operation.

        If the caller is cancelled, the wait continues for at most `shielded_s` seconds. Then the
        cancellation is raised.
        """
        try:
            await self._over()
        except asyncio.CancelledError:
            await ended(self._done, at_most=shielded_s)
            raise
        self._done.result()

    async def _over(self) -> None:
        """Wait for the end. A cancellation leaves no waiter."""
        if self._done.done():
            return
        waiter: asyncio.Future[None] = self._done.get_loop().create_future()
        self._waiters[waiter] = None
        try:
            await waiter
        finally:
            del self._waiters[waiter]
