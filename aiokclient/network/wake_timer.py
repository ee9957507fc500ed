"""One timer for many deadlines, which is rarely set again."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

__all__ = ["WakeTimer"]


class WakeTimer:
    """A timer that calls `wake(due)` once, at the earliest of the times given to `wake_at`.

    All times are on the loop's clock. `due` is the time at which the call was due.
    """

    __slots__ = ("_due", "_loop", "_timer", "_wake")

    def __init__(self, loop: asyncio.AbstractEventLoop, wake: Callable[[float], None]) -> None:
        self._loop = loop
        self._wake: Callable[[float], None] | None = wake
        self._timer: asyncio.TimerHandle | None = None
        self._due = math.inf
        """The time of `_timer`. The handles of uvloop do not provide it for short delays."""

    def wake_at(self, when: float) -> None:
        """Call `wake` at this time, or earlier if that was requested before."""
        if when >= self._due:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._due = when
        self._timer = self._loop.call_at(when, self._on_expired)

    def cancel(self) -> None:
        """Never call `wake` again, whatever is requested later, and release it."""
        if self._timer is not None:
            self._timer.cancel()
        self._due = -math.inf
        self._wake = None

    def _on_expired(self) -> None:
        due, self._due = self._due, math.inf
        self._timer = None
        if self._wake is not None:
            self._wake(due)
