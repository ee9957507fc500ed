"""How the tasks of a consumer wake each other: one flag, any number of waiting tasks.

It consists of futures only, as tasks wait for it between fetches and between records.
"""

from __future__ import annotations

import asyncio
import math

__all__ = ["Wakeup"]


class Wakeup:
    """A flag that the next wait clears again.

    It stays set while no task waits, so that a task which looks, finds nothing, and then waits
    misses nothing. To be used in the loop's own thread.
    """

    __slots__ = ("_flag", "_waiters")

    def __init__(self) -> None:
        self._flag = False
        self._waiters: list[asyncio.Future[None]] = []

    def set(self) -> None:
        """Wake all tasks that wait now or, if none does, the next one."""
        if not self._waiters:
            self._flag = True
            return
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, until: float = math.inf) -> bool:
        """Wait until it is set; return False if the loop's clock passes `until` first.

        A cancellation leaves the flag as it is.
        """
        if self._flag:
            self._flag = False
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
                # It was woken and cancelled in the same step: the flag is for the next task.
                self._flag = True
        return woken


def _expire(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
