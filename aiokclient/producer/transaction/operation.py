"""An operation that its caller waits for, but that a cancellation of the caller does not stop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import anyio

from aiokclient.background import ended
from aiokclient.errors import ClosedError, KafkaError

__all__ = ["Operation"]


class Operation:
    """A commit or an abort in progress, which a background task or callbacks carry out."""

    __slots__ = ("_done", "_scope", "_waiters", "abandoned")

    def __init__(self) -> None:
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._scope: anyio.CancelScope | None = None
        self.abandoned = False
        """Whether a caller of `result` was cancelled and stopped waiting before the end."""
        self._waiters: dict[asyncio.Future[None], None] = {}
        """A future for each caller of `result`. With `asyncio.wait` instead, the caller would
        continue one iteration of the event loop later."""

    @property
    def over(self) -> bool:
        """Whether the operation has ended."""
        return self._done.done()

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run the operation, or the rest of it, in the current task.

        Its errors are raised by `result`. A bug is raised here, too, which fails the producer.
        """
        try:
            with anyio.CancelScope() as self._scope:
                if not self.over:
                    await work()
        except KafkaError as error:
            self.end(error)
        except Exception as error:
            self.end(error)
            raise
        except BaseException:
            self.end(ClosedError("The producer was closed."))
            raise
        else:
            self.end(None)
        finally:
            self._scope = None

    def cancel(self, error: KafkaError) -> None:
        """Stop the operation where it is. Its caller gets `error`."""
        self.end(error)
        if self._scope is not None:
            self._scope.cancel()

    def end(self, error: Exception | None) -> None:
        """End the operation. An error is raised by `result`. Only the first call counts."""
        if self._done.done():
            return
        if error is None:
            self._done.set_result(None)
        else:
            self._done.set_exception(error)
            self._done.exception()  # Marks the error as retrieved: maybe no caller waits any more.
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def require_running(self) -> None:
        """Raise the error with which the operation was cancelled, if it was.

        A cancelled task may still run up to its next suspension.
        """
        if self._done.done():
            self._done.result()

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
        if not self._done.done():
            waiter: asyncio.Future[None] = self._done.get_loop().create_future()
            self._waiters[waiter] = None
            try:
                await waiter
            except asyncio.CancelledError:
                try:
                    await ended(self._done, at_most=shielded_s)
                finally:
                    self.abandoned = not self.over
                raise
            finally:
                del self._waiters[waiter]
        self._done.result()
