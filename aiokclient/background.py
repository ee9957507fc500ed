"""Background work in an event loop: tasks that start later, wake each other, and end.

`RecordCursor` is an iteration that gives other tasks their turn in time.

Many modules are used only after the start of a client. Their import would block the event loop for
about 20 ms when the first client of a process starts. So its start awaits `load_late`, which
imports them in a thread. If the program uses anyio, so are those that newer versions of it import
when they are first used.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any, Final, Generic, Self, TypeVar

from aiokclient import threads
from aiokclient._native import twin
from aiokclient.scopes import is_anyio_used, new_scope

T = TypeVar("T")


SLICE_S: Final = 0.010
"""Seconds of work between two yields to the event loop, which the library never holds for 50 ms."""

LATE_CLIENT: Final = ("aiokclient.cluster.client", "aiokclient.cluster.lifecycle.health")
"""The modules of this library that the start of every client imports, so that its import is fast.
"""
LATE_REPORTER: Final = ("aiokclient.telemetry.reporter",)
"""The modules that the start of a client that pushes metrics imports as well."""
LATE_PRODUCER: Final = (*LATE_CLIENT, "aiokclient.producer.engine")
LATE_CONSUMER: Final = (
    *LATE_CLIENT,
    "aiokclient.consumer.engine",
    "aiokclient.consumer.delivery.iterators",
)
LATE_ADMIN: Final = (
    *LATE_CLIENT,
    "aiokclient.admin.requests",
    "aiokclient.admin.topics",
)
"""Other subjects of admin calls are imported by their first call."""
LATE_MODULES: Final = tuple(
    dict.fromkeys((*LATE_PRODUCER, *LATE_CONSUMER, *LATE_ADMIN, *LATE_REPORTER))
)

_imported: Final[set[str]] = set()


def import_late(modules: Iterable[str] = LATE_MODULES) -> None:
    """Import late modules, and those that anyio would import when they are used. Synchronous."""
    for name in modules:
        import_module(name)
        _imported.add(name)
    if is_anyio_used():  # One of the modules may have imported it.
        anyio = import_module("anyio")
        for name in ("CancelScope", "create_task_group", "move_on_after", "sleep"):
            getattr(anyio, name)
        with suppress(ImportError):  # The module is private: a newer anyio may lack it.
            import_module("anyio._backends._asyncio")
        _imported.add("anyio")


async def load_late(*modules: str) -> None:
    """Import late modules and those of anyio in a thread, unless this process has done so."""
    needed = (*modules, "anyio") if is_anyio_used() else modules
    if not _imported.issuperset(needed):
        await threads.run_blocking(import_late, modules)


class LibraryTask(asyncio.Task[T]):
    """A task that was created by the library, not by the application."""


def new_task(
    loop: asyncio.AbstractEventLoop,
    coroutine: Coroutine[Any, Any, T],
    *,
    name: str | None = None,
    context: contextvars.Context | None = None,
) -> asyncio.Task[T]:
    """Create a task that begins at the loop's next iteration.

    It does not begin earlier with `asyncio.eager_task_factory`, either. With that factory,
    `loop.create_task` would run the coroutine before the caller has stored the task.
    """
    # Not `loop.create_task`, which calls the loop's task factory. With the eager one, the coroutine
    # would run before the caller has stored the task.
    return LibraryTask(coroutine, loop=loop, name=name, context=context)


def loop_ends(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether all tasks of the application are cancelled, as at the end of `asyncio.run`.

    Tasks of the library are ignored, because tasks that close a client may just have started.
    """
    tasks = asyncio.all_tasks(loop)
    return all(task.cancelling() for task in tasks if not isinstance(task, LibraryTask))


class TaskOwner:
    """The owner of background tasks."""

    def spawn(
        self, function: Callable[..., Coroutine[Any, Any, None]], *args: Any, name: str
    ) -> None:
        """Run `function(*args)` in a new task, which outlives the caller. Synchronous."""
        raise NotImplementedError


@twin("ground")
class TimerState:
    """The time of a `WakeTimer`, which each request looks at."""

    __slots__ = ("due",)

    due: float


class WakeTimer(TimerState):
    """A timer that calls `wake(due)` once, at the earliest of the times given to `wake_at`.

    All times are on the loop's clock. `due` is the time at which the call was due.
    """

    __slots__ = ("_loop", "_timer", "_wake")

    def __init__(self, loop: asyncio.AbstractEventLoop, wake: Callable[[float], None]) -> None:
        self._loop = loop
        self._wake: Callable[[float], None] | None = wake
        self._timer: asyncio.TimerHandle | None = None
        self.due = math.inf
        """The time of `_timer`. The handles of uvloop do not provide it for short delays."""

    def wake_at(self, when: float) -> None:
        """Call `wake` at this time, or earlier if that was requested before."""
        if when >= self.due:
            return
        if self._timer is not None:
            self._timer.cancel()
        self.due = when
        self._timer = self._loop.call_at(when, self._on_expired)

    def cancel(self) -> None:
        """Never call `wake` again, whatever is requested later, and release it."""
        if self._timer is not None:
            self._timer.cancel()
        self.due = -math.inf
        self._wake = None

    def _on_expired(self) -> None:
        due, self.due = self.due, math.inf
        self._timer = None
        if self._wake is not None:
            self._wake(due)


class Wakeup:
    """A flag by which tasks wake each other, and which the next wait clears again.

    It uses only futures, because it must be fast: tasks wait for it between fetches and records.
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


async def ended(task: asyncio.Future[Any], at_most: float = math.inf) -> None:
    """Wait until a task or future has ended, even if the caller is cancelled in the meantime.

    If the task waits for the caller, it never ends. So the wait takes at most `at_most` seconds.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + at_most
    with new_scope(shield=True):
        while not task.done() and loop.time() < until:
            try:
                left_s = None if until == math.inf else until - loop.time()
                await asyncio.wait([task], timeout=left_s)
            except asyncio.CancelledError:
                # The caller raises the first cancellation after the task has ended.
                continue
    if task.done() and not task.cancelled():
        task.exception()


@twin("consumer")
class RecordCursor(Generic[T]):
    """An asynchronous iterator over records that a subclass's `_advance` provides.

    `_advance` passes the next records to `expose` and returns the first of them, or raises
    StopAsyncIteration. It is called when no record is left, when the time that `expose` allowed is
    over (an iteration that never waits would let nothing else run), and after `interrupt`. Only
    this iteration takes records from the iterator that was passed to `expose`. Therefore that
    iterator shows how far the iteration went.

    With `loop`, the time is that of this loop. None means the real time, which is read coarsely if
    that is cheaper.
    """

    __slots__ = ("__weakref__", "_records", "_time", "_until")

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._records: Iterator[T] = iter(())
        self._time = (loop or asyncio.get_running_loop()).time
        self._until = -math.inf

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        if self._time() < self._until:
            for record in self._records:
                return record
        return await self._advance()

    def interrupt(self) -> None:
        """Make the iteration call `_advance` for its next record. Safe in any thread."""
        self._until = -math.inf

    def expose(self, records: Iterator[T], seconds: float) -> None:
        """Deliver these records, for at most `seconds`, before `_advance` is called again."""
        self._records = records
        self._until = self._time() + seconds

    async def _advance(self) -> T:
        """Return the next record. Subclasses override this method.

        It is called when no record is exposed, or when it is time to yield to the event loop.
        """
        raise StopAsyncIteration


def virtual_loop() -> asyncio.AbstractEventLoop | None:
    """Return the running loop, or None if its time is the real one."""
    loop = asyncio.get_running_loop()
    kind = type(loop)
    if kind.__module__.startswith("uvloop") or kind.time is asyncio.BaseEventLoop.time:
        return None
    return loop
