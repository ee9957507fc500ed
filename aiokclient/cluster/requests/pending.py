"""The handle of a request that was sent without waiting for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

from aiokclient.errors import WrongLoopError

__all__ = ["PendingResponse"]

T_co = TypeVar("T_co", covariant=True)


class PendingResponse(Generic[T_co]):
    """A handle of a response that has not arrived yet.

    It can be awaited any number of times, in any number of tasks. Awaiting it returns the response
    or raises the error of the request. Cancelling a task that awaits it does not cancel the
    request. `result()` and `exception()` raise `asyncio.InvalidStateError` before it is done.
    """

    __slots__ = ("_future",)

    def __init__(self, future: asyncio.Future[Any]) -> None:
        self._future = future

    def __await__(self) -> Generator[Any, None, T_co]:
        return self._wait().__await__()

    async def _wait(self) -> T_co:
        if not self._future.done():
            if asyncio.get_running_loop() is not self._future.get_loop():
                raise WrongLoopError(
                    "This response belongs to a client that was started in another event loop. "
                    "Await it there, or use asyncio.run_coroutine_threadsafe with that loop."
                )
            await asyncio.wait([self._future])
        return self.result()

    def done(self) -> bool:
        """Return whether the response has arrived or the request has failed."""
        return self._future.done()

    def result(self) -> T_co:
        """Return the response, or raise the error of the request."""
        response: T_co = self._future.result()
        return response

    def exception(self) -> BaseException | None:
        """Return the error of the request, or None if it has succeeded."""
        return self._future.exception()

    def add_done_callback(self, callback: Callable[[PendingResponse[T_co]], object]) -> None:
        """Call `callback(self)` in the event loop after the response or an error has arrived."""
        if not callable(callback):
            raise TypeError(
                f"add_done_callback() takes a function of one response, not {callback!r}."
            )
        self._future.add_done_callback(_Call(self, callback))

    def remove_done_callback(self, callback: Callable[[PendingResponse[T_co]], object]) -> int:
        """Remove all occurrences of a callback, and return their number."""
        return self._future.remove_done_callback(_Call(self, callback))

    def cancelled(self) -> bool:
        """Return False: a request cannot be cancelled."""
        return False


class _Call(Generic[T_co]):
    """A callback of the application, which gets the handle instead of the future.

    Two callbacks with the same handle and function are equal, so that the future can remove them.
    """

    __slots__ = ("callback", "response")

    def __init__(
        self, response: PendingResponse[T_co], callback: Callable[[PendingResponse[T_co]], object]
    ) -> None:
        self.response = response
        self.callback = callback

    def __call__(self, _: asyncio.Future[Any]) -> None:
        self.callback(self.response)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Call):
            return NotImplemented
        return self.response is other.response and bool(self.callback == other.callback)

    __hash__ = None  # type: ignore[assignment]
