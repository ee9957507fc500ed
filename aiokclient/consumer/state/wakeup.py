"""A flag by which the tasks of a consumer wake each other.

It uses only futures, because it must be fast: tasks wait for it between fetches and records.
"""

from __future__ import annotations

import asyncio
import math


class Wakeup:
    """A flag that the next wait clears again.

    It stays set while no task waits. So a task that finds nothing to do and then waits does not
    miss a change in between. To be used only in the thread of the event loop.
    """

    __slots__ = ("_waiters", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        """Whether the next wait returns at once."""
        self._waiters: list[asyncio.Future[None]] = []

    def set(self) -> None:
        """Wake all waiting tasks or, if there are none, the next one that waits."""
        if not self._waiters:
            self.is_set = True
            return
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, until: float = math.inf) -> bool:
        """Wait until the flag is set; return False if the loop's clock passes `until` first.

        A cancellation leaves the flag as it is.
        """
        if self.is_set:
            self.is_set = False
            return True
        loop = asyncio.get_running_loop()
        if until <= loop.time():
            return False
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters.append(waiter)
        timer = None if until == math.inf else loop.call_at(until, _expire, waiter)
        woken = False
        try:
            await waiter
            woken = waiter not in self._waiters
        finally:
            if timer is not None:
                timer.cancel()
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            elif not woken:
                # The task was woken and cancelled in the same step, so the next task gets the flag.
                self.is_set = True
        return woken


def _expire(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
