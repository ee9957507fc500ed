"""The lag of the event loop: how late a timer is, because something else blocked the loop."""

from __future__ import annotations

import asyncio

from aiokclient.metrics import SECONDS, Histogram
from aiokclient.telemetry.points import HistogramValue

__all__ = ["LoopLag"]

TICK_S = 0.25
HELD_S = 0.05
"""A lag of at least this many seconds counts as caused by the program, not by the library."""
UNREAD = 14_400
"""Number of ticks without a collection after which the timer ends."""


class LoopLag:
    """A timer that measures how late the event loop calls it.

    It starts at the first collection of metrics. It holds no reference to a client, so that it
    keeps no client alive.
    """

    def __init__(self) -> None:
        self._histogram = Histogram([bound * 1000 for bound in SECONDS])
        self.held_s = 0.0
        """A lower bound of the seconds for which the program's code has blocked the loop."""
        self._timer: asyncio.TimerHandle | None = None
        self._unread = 0

    @property
    def value(self) -> HistogramValue:
        """The lags, in milliseconds."""
        return HistogramValue(*self._histogram.buckets, self._histogram.total)

    def begin(self) -> None:
        """Measure from now on."""
        self._unread = 0
        if self._timer is None:
            self._tick_later(asyncio.get_running_loop())

    def end(self) -> None:
        """Stop measuring. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick_later(self, loop: asyncio.AbstractEventLoop) -> None:
        due = loop.time() + TICK_S
        self._timer = loop.call_at(due, self._tick, loop, due)

    def _tick(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        lag = max(loop.time() - due, 0.0)
        self._histogram.observe(lag * 1000)
        if lag >= HELD_S:
            self.held_s += lag
        self._unread += 1
        if self._unread < UNREAD:
            self._tick_later(loop)
        else:
            self._timer = None
