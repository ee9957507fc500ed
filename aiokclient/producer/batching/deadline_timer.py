"""The timer for the deadlines of batches.

There is one timer for all batches. Each time it expires, it is set to the next deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiokclient.background import Callbacks
from aiokclient.clock import Clock

__all__ = ["DeadlineTimer"]


class DeadlineTimer:
    """A timer that calls `expire(now)`.

    `expire` fails late batches. It returns the time at which it must be called next, or None.
    `interval_s` is the longest time from the start of a batch to the first call for it.
    """

    def __init__(
        self,
        interval_s: float,
        clock: Clock,
        callbacks: Callbacks,
        expire: Callable[[float], float | None],
    ) -> None:
        self._interval_s = interval_s
        self._clock = clock
        self._callbacks = callbacks
        self._expire = expire
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        """The time to which `_timer` is set. uvloop's handles for short delays have no `when()`."""

    def arm(self, now: float | None = None) -> None:
        """Set the timer, because a batch now waits or may have an earlier deadline.

        `now` is the time on the loop's clock, if the caller has just read it.
        """
        when = (self._clock.monotonic() if now is None else now) + self._interval_s
        if self._timer is None:
            self._set(when)
        elif self._due > when:
            self._timer.cancel()
            self._set(when)

    def stop(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, when: float) -> None:
        self._due = when
        self._timer = self._callbacks.at(when, self._ring)

    def _ring(self) -> None:
        self._timer = None
        when = self._expire(self._clock.monotonic())
        if when is not None:
            self._set(when)
