"""Measures of a run: tasks, sockets, threads, memory, blocked loops, and logs.

`Usage` is compared between two moments at which nothing fails and no member joins or leaves.
"""

import asyncio
import ctypes
import gc
import linecache
import logging
import os
import stat
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from stolen_time import StolenTime

from .entries import Entry, Held, Logged, Trouble

TOLERANCE = 0.05
SEEN_S = 0.010
"""A callback is noted if it holds the loop for more than this number of seconds."""
DESCRIPTORS, STATISTICS = Path("/dev/fd"), Path("/proc/self/statm")


class Usage(NamedTuple):
    """The resources that a process uses at one moment."""

    tasks: int
    sockets: int
    threads: int
    memory: int
    """The resident memory in bytes."""

    def __str__(self) -> str:
        memory = f"{self.memory / 1e6:.1f} MB"
        return f"{self.tasks} tasks, {self.sockets} sockets, {self.threads} threads, {memory}"

    def differences(self, before: "Usage", *, with_memory: bool) -> list[str]:
        """Return the resources that differ by over 5% from `before`.

        A decrease of memory is no difference.
        """
        found = []
        for name in self._fields:
            old, new = getattr(before, name), getattr(self, name)
            allowed = TOLERANCE * old
            grew, shrank = new - old > allowed, old - new > allowed
            if (grew or shrank) if name != "memory" else (with_memory and grew):
                found.append(f"{name}: {old} before, {new} now")
        return found


def usage() -> Usage:
    """Return what this process uses now."""
    tasks = len(asyncio.all_tasks())
    return Usage(tasks, open_sockets(), threading.active_count(), resident_bytes())


def open_sockets() -> int:
    count = 0
    for name in os.listdir(DESCRIPTORS):
        try:
            count += stat.S_ISSOCK(os.fstat(int(name)).st_mode)
        except (OSError, ValueError):
            continue  # The descriptor of the folder itself is closed by now.
    return count


def resident_bytes() -> int:
    if STATISTICS.exists():  # On Linux.
        pages = int(STATISTICS.read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    command = ["ps", "-o", "rss=", "-p", str(os.getpid())]
    return 1024 * int(subprocess.run(command, capture_output=True, check=True).stdout)


def return_free_memory() -> None:
    """Return unused memory to the system, if the C library can do that.

    After a burst of connections, the C library keeps large free blocks for later, which is not a
    leak. Python keeps the source lines of logged tracebacks, so they are dropped, too.
    """
    linecache.clearcache()
    gc.collect()
    try:
        trim = ctypes.CDLL("libc.so.6").malloc_trim
    except (OSError, AttributeError):
        return
    trim(0)


class Watch:
    """Everything that a run notices besides the results of calls."""

    def __init__(self, note: Callable[[Entry], None]) -> None:
        self._note = note
        self.log_events: Counter[str] = Counter()
        self.busiest: dict[str, float] = {}

    @contextmanager
    def watching(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Note unhandled errors, logs, and callbacks that hold the loop, within the block."""
        handles: Any = asyncio.Handle
        run, here = handles._run, threading.get_ident()
        collector, stolen = _Collector(), StolenTime()

        def measured(handle: Any) -> None:
            callback = handle._callback  # A handle cancelled while it runs drops its callback.
            stolen.begin()
            began, collecting = time.thread_time(), collector.took_s
            try:
                run(handle)
            finally:
                took = time.thread_time() - began - (collector.took_s - collecting)
                if took > SEEN_S and threading.get_ident() == here:
                    self._note(Held(_named(callback), took - stolen.seconds()))

        logger, logs = logging.getLogger("aiokclient"), _Logs(self._note, self.log_events)
        wire = logging.getLogger("aiokclient.wire")
        levels, unraisable = (logger.level, wire.level), sys.unraisablehook
        gc.callbacks.append(collector)
        logger.addHandler(logs)
        logger.setLevel(logging.DEBUG)
        wire.setLevel(logging.INFO)  # DEBUG logs each request.
        loop.set_exception_handler(lambda _, context: self._unseen("the event loop", context))
        sys.unraisablehook = lambda found: self._unseen("an object", found)
        handles._run = measured
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                yield
                gc.collect()  # Tasks and futures report unretrieved errors when they are freed.
        finally:
            handles._run = run
            sys.unraisablehook = unraisable
            loop.set_exception_handler(None)
            gc.callbacks.remove(collector)
            logger.removeHandler(logs)
            for each, level in zip((logger, wire), levels, strict=True):
                each.setLevel(level)

    def _unseen(self, where: str, found: Any) -> None:
        self._note(Trouble("H", f"An error was not retrieved, which {where} reports: {found}"))

    def rate(self, client: str, what: str, per_second: float, limit: float) -> None:
        """Keep the highest rate of `what`. A rate above `limit` per second breaks E."""
        self.busiest[what] = max(per_second, self.busiest.get(what, 0.0))
        if per_second > limit:
            text = f"{client}: {per_second:.0f} {what} in a second. A busy loop is likely."
            self._note(Trouble("E", text))


class _Collector:
    """The CPU time of the garbage collector in this thread.

    It depends on all objects of the process, so it is subtracted from the time of a callback.

    Collections in other threads are not counted, even if their finalizers let this thread run.
    """

    def __init__(self) -> None:
        self.took_s = 0.0
        self._thread = threading.get_ident()

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if threading.get_ident() == self._thread:
            self.took_s += time.thread_time() * (1 if phase == "stop" else -1)


class _Logs(logging.Handler):
    def __init__(self, note: Callable[[Entry], None], events: "Counter[str]") -> None:
        super().__init__()
        self._note, self._events = note, events
        self._formatter = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        text = self._formatter.format(record)
        event = record.__dict__.get("event", "")
        self._events[f"{record.levelname} {event}"] += 1
        self._note(Logged(text))
        if event in ("task_died", "task_hangs") or record.levelno >= logging.ERROR:
            self._note(Trouble("H", f"An error was logged: {text}"))


def _named(callback: Any) -> str:
    """Return the name of a callback, or of the task that it continues."""
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        return f"the task {task.get_name()}, {getattr(task.get_coro(), '__qualname__', '')}"
    called = getattr(callback, "func", callback)
    return str(getattr(called, "__qualname__", repr(called)))
