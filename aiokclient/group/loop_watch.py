"""A watch for an application that blocks the event loop, so that no heartbeat is sent."""

from __future__ import annotations

import asyncio
import logging
import math
import sys
import threading
import time
from pathlib import PurePath
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from aiokclient.log.client_log import ClientLog
from aiokclient.log.texts import bounded, printable

if TYPE_CHECKING:
    from types import FrameType

    from aiokclient.metrics import Metrics

TICK_S = 0.5
LATE_S = 1.0
"""Seconds of delay from which on the event loop counts as blocked."""
READ_AFTER_S = TICK_S + LATE_S / 2
"""Seconds after the last tick at which the stack is read for the first time."""
READ_LATEST_S = 60.0
"""Longest pause between two readings of the stack of a loop that stands still."""
JOIN_S = 0.1
"""Longest time for which the loop waits for the end of the thread, which usually ends at once."""
INNERMOST = 6
OUTERMOST = 3
"""Numbers of frames in the text. What the loop called is the last one; the others are left out."""
LONGEST_FRAME = 150
CALLERS = {"asyncio": {"_run", "_run_once", "run_forever", "run"}, "uvloop": {"run", "wrapper"}}
"""The functions of event loops that call the code of the application, by their package."""
told: WeakKeyDictionary[asyncio.AbstractEventLoop, float] = WeakKeyDictionary()
"""The time of the last log line for each loop: only one of several members in a loop warns."""


class StackReader:
    """A thread that reads the stack of an event loop's thread while the loop stands still.

    All watches of a loop share it. It keeps texts only: a frame would keep the objects of the
    application alive. While the loop runs, the thread wakes about once a second, to compare two
    numbers.
    """

    def __init__(self) -> None:
        self._users = 0
        self._read_thread = threading.get_ident()
        self._ticked_at = time.monotonic()
        self._read_at = -math.inf
        self._stack: tuple[str, ...] = ()
        self._end = threading.Event()
        self._thread: threading.Thread | None = threading.Thread(
            target=self._watch_loop, name="aiokclient-stack-reader", daemon=True
        )
        try:
            self._thread.start()
        except RuntimeError:  # The platform or the process's limits allow no other thread.
            self._thread = None

    @classmethod
    def acquire(cls, loop: asyncio.AbstractEventLoop) -> StackReader:
        """Return the reader of a loop, in the thread of the loop. Its users call `release`."""
        reader = readers.get(loop)
        if reader is None:
            reader = readers[loop] = cls()
        reader._users += 1
        return reader

    def release(self, loop: asyncio.AbstractEventLoop) -> None:
        """Stop the thread if this was the last user of the reader."""
        self._users -= 1
        if self._users:
            return
        if readers.get(loop) is self:
            del readers[loop]
        self._end.set()
        # A loop that was never closed may be collected in any thread, even in this one.
        if self._thread is not None and threading.get_ident() == self._read_thread:
            self._thread.join(JOIN_S)

    def mark_running(self) -> None:
        """Record that the loop runs."""
        self._ticked_at = time.monotonic()

    def find_stack_since(self, began: float) -> tuple[str, ...]:
        """Return the last stack that was read after a moment, innermost frame first."""
        return self._stack if self._read_at > began else ()

    def _watch_loop(self) -> None:
        wait_s = READ_AFTER_S
        while not self._end.wait(wait_s):
            stood_s = time.monotonic() - self._ticked_at
            wait_s = READ_AFTER_S - stood_s
            if wait_s <= 0:
                self._read_stack()
                # Each pause is as long as what went before it. So the last reading is from the
                # second half of the time, and a loop that was left for good costs nothing.
                wait_s = min(stood_s, READ_LATEST_S)

    def _read_stack(self) -> None:
        frame = sys._current_frames().get(self._read_thread)
        self._stack, self._read_at = described(frame), time.monotonic()


readers: WeakKeyDictionary[asyncio.AbstractEventLoop, StackReader] = WeakKeyDictionary()
"""The reader of each loop that is watched."""


class LoopWatch:
    """A timer that logs its late ticks until it is cancelled."""

    def __init__(self, metrics: Metrics, group_id: str, client_id: str = "aiokclient") -> None:
        self._held = metrics.histogram("group.loop.blocked.seconds", unit="s")
        self._log = ClientLog("aiokclient.group", client_id, group_id)

    async def run(self) -> None:
        """Log each late tick, with its delay: the loop was blocked for at least that time."""
        loop = asyncio.get_running_loop()
        reader = StackReader.acquire(loop)
        try:
            while True:
                reader.mark_running()
                due, began = loop.time() + TICK_S, time.monotonic()
                await asyncio.sleep(TICK_S)
                late = loop.time() - due
                if late >= LATE_S:
                    self._held.observe(late)
                    first = told.get(loop, -math.inf) < due
                    told[loop] = loop.time()
                    self._log_late(late, reader.find_stack_since(began), first)
        finally:
            reader.release(loop)

    def _log_late(self, late: float, stack: tuple[str, ...], first: bool) -> None:
        """Log for how long the loop stood still, and where, if the thread could read that."""
        where = f". It stood in (innermost frame first): {', '.join(stack)}" if stack else ""
        self._log.log(
            logging.WARNING if first else logging.DEBUG,
            "the event loop stood still for %.1f s: something in the program does not "
            "await; the group got no heartbeat meanwhile%s",
            late,
            where,
            extra={"event": "loop_blocked", "seconds": late, "stack": list(stack)},
        )


def described(frame: FrameType | None) -> tuple[str, ...]:
    """Return the frames that the event loop has called, as texts, innermost first.

    There are none if the loop waits for events: then not the program was slow, but the process
    was suspended.
    """
    texts: list[str] = []
    while frame is not None:
        path, name = PurePath(frame.f_code.co_filename), frame.f_code.co_name
        if name in CALLERS.get(path.parent.name, ()):
            if name == "_run_once":
                return ()
            break
        where = "/".join(path.parts[-3:])
        texts.append(bounded(printable(f"{where}:{frame.f_lineno} {name}"), LONGEST_FRAME))
        frame = frame.f_back
    if len(texts) > INNERMOST + OUTERMOST:
        texts[INNERMOST:-OUTERMOST] = ["..."]
    return tuple(texts)
