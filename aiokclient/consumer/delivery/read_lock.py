"""The read lock: one reader at a time."""

from __future__ import annotations

import asyncio
import math
import weakref
from collections.abc import Callable, Collection
from typing import Any, Protocol

from aiokclient.clock import get_loop_clock
from aiokclient.cluster.requests.read_order import read_order
from aiokclient.consumer.membership.listener import ListenerCalls
from aiokclient.errors import ConcurrentReadError, IllegalStateError
from aiokclient.metrics import Reading

CANCELLED_S = 3.0
"""Seconds for which `trouble` ignores a cancelled reader, because a new reader often follows."""


class Cursor(Protocol):
    """The interface of an iteration over a consumer that `Reader` uses."""

    def interrupt(self) -> None:
        """Make the iteration call `Reader` for its next record. Safe in any thread."""
        ...


class ReadLock:
    """The lock that permits one request at a time and knows the present iteration.

    While a task runs the body of its loop, there is no request, but no other task may read:
    otherwise the record in progress would count as processed. A loop that was left, or whose task
    has ended, does not prevent other tasks from reading, because the lock has only a weak reference
    to its iterator.
    """

    def __init__(self, listener_calls: ListenerCalls) -> None:
        self._time = time = get_loop_clock()
        self._listener_calls = listener_calls
        self._busy = False
        self._holder: Callable[[], Any] | None = None
        self._read_by: Callable[[], asyncio.Task[Any] | None] = _nobody
        self._is_cancelled = False
        self._death: str | None = None
        """A description of the end of the last reading task, if it has failed or was cancelled."""
        self._order = read_order()
        self._last_transaction = 0
        """The number of the transaction that had begun last when a request began or ended."""
        self._began = self._left_at = time()
        self._requests = 0
        self._longest = self._taken = -math.inf
        """The longest time between the ends of two requests: `_longest` since the last
        `take_reading`, and `_taken` as that call returned it.
        """
        self.away_since: float | None = self._left_at
        """The time at which the last request ended; None during a request."""

    def enter(self, cursor: Cursor | None) -> ReadLock:
        """Begin a request, and return the context manager that ends it. Enter it immediately.

        `cursor` is the caller's iteration, or None for a single call. Raises ConcurrentReadError
        while another task reads, and IllegalStateError in a listener.
        """
        task = asyncio.current_task()
        if self._listener_calls.running_count and self._listener_calls.is_inside():
            raise IllegalStateError("A listener must not read. It may seek and commit.")
        holder = None if self._holder is None else self._holder()
        if self._busy or (
            holder is not None and holder is not cursor and self._is_read_by_other(task)
        ):
            raise ConcurrentReadError()
        self._busy = True
        if holder is not cursor:
            self._interrupt_former(cursor)
        if task is not self._read_by():
            self.forget_task()
            if task is not None:
                task.add_done_callback(self._on_task_end)
                self._read_by = weakref.ref(task)
        self._last_transaction = self._order.transactions
        self.away_since = None
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        # `contextlib.contextmanager` would make each request half a microsecond longer.
        # An exception ends the loop that made the request. Its iterator may exist for some time
        # after that, because the traceback of the exception refers to it.
        if kind is not None and self._holder is not None:
            self._holder = _left
        self._busy = False
        self._last_transaction = self._order.transactions
        self.away_since = now = self._time()
        between = now - self._left_at
        self._left_at = now
        self._requests += 1
        # `max()` would be slower, and `get()` calls this for each record.
        if between > self._longest:
            self._longest = between

    def take_reading(self, *, again: bool | None) -> Reading:
        """Return the times between the ends of two requests; see `Spread.take_reading`."""
        if again is None:
            return Reading(self._requests, self._left_at - self._began, self._longest)
        longest = max(self._longest, self._taken) if again else self._longest
        self._taken, self._longest = longest, -math.inf
        return Reading(self._requests, self._left_at - self._began, longest)

    def _interrupt_former(self, cursor: Cursor | None) -> None:
        """Interrupt the iteration before this one, because it may still have records."""
        self.interrupt_iteration()
        self._holder = None if cursor is None else weakref.ref(cursor)

    def _is_read_by_other(self, task: asyncio.Task[Any] | None) -> bool:
        """Return whether another task read last and has not ended."""
        reader = self._read_by()
        return reader is not None and reader is not task and not reader.done()

    def forget_task(self) -> None:
        """Forget the task that read last."""
        task, self._read_by, self._death = self._read_by(), _nobody, None
        if task is not None:
            task.remove_done_callback(self._on_task_end)

    def _on_task_end(self, task: asyncio.Task[Any]) -> None:
        # exception() is not used, because asyncio would no longer log the exception as never
        # retrieved. Only its text is kept, because its traceback may refer to the consumer.
        error = None if task.cancelled() else getattr(task, "_exception", None)
        if task.cancelled():
            how = "was cancelled"
        elif error is not None:
            how = f"has failed with {error!r}"
        else:
            return
        self._death = f"The task {task.get_name()!r}, which read from this consumer, {how}"
        self._is_cancelled = task.cancelled()

    @property
    def trouble(self) -> str | None:
        """A text that says how the last reading task ended, until another task reads."""
        since = self.away_since
        if self._death is None or since is None:
            return None
        away_s = self._time() - since
        if self._is_cancelled and away_s < CANCELLED_S:
            return None
        return f"{self._death}. Nothing has requested records for {away_s:.0f} s."

    def observe_transactions(self) -> None:
        """Make `has_read_in` exact also for iterations."""
        self._order.add_reader(self)

    def has_read_in(self, transaction: int) -> bool:
        """Return whether a request has begun or ended since this transaction began."""
        return self._last_transaction >= transaction

    def has_waiting_request(self) -> bool:
        """Return whether a request is waiting."""
        return self._busy

    def is_reader(self) -> bool:
        """Return whether the current task read last, so that records in progress are its own."""
        return asyncio.current_task() is self._read_by()

    def can_request_more(self, leaving: Collection[asyncio.Task[Any] | None]) -> bool:
        """Return whether the task that read last can still request more records.

        It will not if it has ended, has left its loop, or is in `leaving`.
        """
        task = self._read_by()
        if self._busy or task is None or task.done() or task in leaving:
            return False
        return self._holder is None or self._holder() is not None

    def on_iteration_end(self, cursor: Cursor) -> None:
        """Handle the end of an iteration."""
        if self._holder is not None and self._holder() is cursor:
            self._holder = None

    def interrupt_iteration(self) -> None:
        """Interrupt the present iteration, if there is one."""
        holder = self._holder() if self._holder is not None else None
        if holder is not None:
            holder.interrupt()


def _nobody() -> None:
    """Return None, as a dead weak reference does. Used while there is no last reading task."""


def _left() -> None:
    """Return None, as a dead weak reference does. Used after an iteration's loop was left."""
