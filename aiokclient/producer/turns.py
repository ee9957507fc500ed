"""The event loop as the producer uses it: what one of its callbacks raises fails the producer.

While all is well the producer has no task: answers, timers and turns of the loop do all its work.
A loop would only log what such a callback raises and go on, and the batches that it had in hand
would wait until they expire. It can only be a bug, so it is treated as the death of a background
task is: the producer fails, and with it all that has no outcome.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, ParamSpec

__all__ = ["Turns"]

P = ParamSpec("P")


class Turns:
    """Calls things back in the loop of one producer; `failed(error, name)` when one raises."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, failed: Callable[[Exception, str], None]
    ) -> None:
        self._loop = loop
        self._failed = failed

    def run(self, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Call it here and now; it does not raise."""
        try:
            function(*args, **kwargs)
        except Exception as error:
            called = getattr(function, "func", function)  # of a partial
            self._failed(error, getattr(called, "__qualname__", repr(called)))

    def guard(self, function: Callable[P, object]) -> Callable[P, None]:
        """The function for others to call back."""

        def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
            self.run(function, *args, **kwargs)

        return guarded

    def bound(self, function: Callable[..., object], *args: Any) -> Callable[..., None]:
        """The same with its first arguments given."""
        return partial(self.run, function, *args)

    def soon(self, function: Callable[..., object], *args: Any) -> None:
        """At the next turn of the loop."""
        self._loop.call_soon(self.run, function, *args)

    def at(self, when: float, function: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        """At a time on the loop's clock."""
        return self._loop.call_at(when, self.run, function, *args)

    def later(
        self, delay_s: float, function: Callable[..., object], *args: Any
    ) -> asyncio.TimerHandle:
        """After so many seconds."""
        return self._loop.call_later(delay_s, self.run, function, *args)

    def in_thread(
        self, function: Callable[..., Any], *args: Any, then: Callable[[asyncio.Future[Any]], None]
    ) -> None:
        """Call it in a thread; `then` gets the future with what it gave or raised."""
        self._loop.run_in_executor(None, function, *args).add_done_callback(self.guard(then))
