"""A watch for an application that blocks the event loop, so that no heartbeat is sent."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from aiokclient.log import ClientLog

if TYPE_CHECKING:
    from aiokclient.metrics import Metrics

__all__ = ["LoopWatch"]

TICK_S = 0.5
LATE_S = 1.0
"""Seconds of delay from which on the event loop counts as blocked."""
told: WeakKeyDictionary[asyncio.AbstractEventLoop, float] = WeakKeyDictionary()
"""The time of the last log line for each loop: only one of several members in a loop warns."""


class LoopWatch:
    """A timer that logs its late ticks until it is cancelled."""

    def __init__(self, metrics: Metrics, group_id: str, client_id: str = "aiokclient") -> None:
        self._held = metrics.histogram("group.loop.blocked.seconds", unit="s")
        self._log = ClientLog("aiokclient.group", client_id, group_id)

    async def run(self) -> None:
        """Log each late tick, with its delay: the loop was blocked for at least that time."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + TICK_S
            await asyncio.sleep(TICK_S)
            late = loop.time() - due
            if late >= LATE_S:
                self._held.observe(late)
                first = told.get(loop, -math.inf) < due
                told[loop] = loop.time()
                self._log.log(
                    logging.WARNING if first else logging.DEBUG,
                    "the event loop stood still for %.1f s: something in the program does not "
                    "await; the group got no heartbeat meanwhile",
                    late,
                    extra={"event": "loop_blocked", "seconds": late},
                )
