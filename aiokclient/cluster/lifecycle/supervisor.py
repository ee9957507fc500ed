"""The owner of every background task and callback of one client.

The tasks belong to no other task, so that one task can open a client and another one can close it.
They are asyncio tasks, each with its own cancel scope. They are not in an anyio task group,
because callbacks of the event loop call `spawn`, and anyio cannot be used there. They run in the
context in which the supervisor was started, not in that of the call that spawns them.

An error of a background task or a callback is a bug or a fatal error. It is kept as `failure`,
passed to the failure listeners, and logged. The other tasks run until the client is closed.
A background task that is cancelled, except by its supervisor, counts as a failure, too.

A forked process has copies of the objects of its parent. If it used a client, both processes would
have the same producer id and membership, and the brokers would take the records of one process for
repetitions of the other's records. So in the forked process, every supervisor fails, and ends its
tasks.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import weakref
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from aiokclient import threads
from aiokclient.background import TaskOwner, loop_ends, new_task
from aiokclient.errors import ClosedError, IllegalStateError
from aiokclient.log.client_log import ClientLog
from aiokclient.scopes import new_scope

if TYPE_CHECKING:
    from aiokclient.scopes import CancelScope

P = ParamSpec("P")
T = TypeVar("T")

STOP_S = 2.0
"""Seconds that cancelled tasks may take to end before they are abandoned, and logged by name."""


CANCELLED = (
    "The background task {name!r} of this client was cancelled from outside. Nothing can go on "
    "without it. Close the client and make a new one, and cancel only tasks of the application."
)


ENDED = (
    "The event loop has ended, and this client was not closed before. Whether records without an "
    "outcome were written is unknown. Close the client before, with `async with` or `close()`."
)


FORKED = (
    "This process is a fork of the one in which this client was started. Only that one can use the "
    "client. Make a new client in each process, after the fork."
)


class Callbacks:
    """Callbacks in one event loop. If one of them raises, the supervisor fails.

    An event loop only logs the exception of a callback and continues. A client that relies on the
    callback would then wait forever. So everything that the library schedules with `call_soon`,
    `call_at`, `call_later` and `add_done_callback` goes through this class. No callback calls
    anyio, because outside of a task anyio does not know which event loop is running.
    """

    __slots__ = ("_loop", "_supervisor")

    def __init__(self, loop: asyncio.AbstractEventLoop, supervisor: Supervisor) -> None:
        self._loop = loop
        self._supervisor = supervisor

    def call_now(self, function: Callable[..., object], *args: Any) -> None:
        """Call the function immediately. An exception is reported, not raised."""
        try:
            function(*args)
        except Exception as error:
            called = getattr(function, "func", function)  # A partial has no `__qualname__`.
            self._supervisor.fail(error, getattr(called, "__qualname__", repr(called)))

    def run_within_call(self, function: Callable[..., object], *args: Any) -> None:
        """Call the function immediately, within a call of the application.

        An exception is reported at the loop's next iteration. By then the call of the application
        has returned, so that the failure reaches what it has added, too.
        """
        try:
            function(*args)
        except Exception as error:
            called = getattr(function, "__qualname__", repr(function))
            self.call_soon(self._supervisor.fail, error, called)

    def guard_function(self, function: Callable[P, object]) -> Callable[P, None]:
        """Return a function that calls the given one, and reports exceptions instead of raising."""
        return cast("Callable[P, None]", partial(self.call_now, function))

    def report_error(self, error: Exception, name: str) -> None:
        """Report the exception of a callback that was called without `call_now`."""
        self._supervisor.fail(error, name)

    def call_soon(self, function: Callable[..., object], *args: Any) -> None:
        """Call the function at the loop's next iteration."""
        self._loop.call_soon(self.call_now, function, *args)

    def call_at(
        self, when: float, function: Callable[..., object], *args: Any
    ) -> asyncio.TimerHandle:
        """Call the function at a time on the loop's clock."""
        return self._loop.call_at(when, self.call_now, function, *args)

    def call_later(
        self, delay_s: float, function: Callable[..., object], *args: Any
    ) -> asyncio.TimerHandle:
        """Call the function after a number of seconds."""
        return self._loop.call_later(delay_s, self.call_now, function, *args)

    def call_in_thread(
        self, function: Callable[..., T], *args: Any, then: Callable[[asyncio.Future[T]], None]
    ) -> asyncio.Future[T]:
        """Call the function in a thread of the library, then `then(future)` in the loop."""
        future = threads.run(function, *args)
        future.add_done_callback(self.guard_function(then))
        return future


class Supervisor(TaskOwner):
    """The owner of the tasks that `spawn` creates between `start` and `stop`."""

    def __init__(self, name: str, log: ClientLog | None = None) -> None:
        self.failure: BaseException | None = None
        self.forked = False
        """Whether this is the copy of a supervisor in a forked process."""
        self._name = name
        self._log = ClientLog("aiokclient", name) if log is None else log
        self._loop: asyncio.AbstractEventLoop | None = None
        self._context = contextvars.Context()
        self._stopping = False
        self._closing = False
        self._loop_ends = False
        """Whether a task was cancelled because the event loop ends."""
        self._failure_listeners: list[Callable[[BaseException], None]] = []
        self._tasks: dict[asyncio.Task[None], str] = {}
        self._scopes: dict[asyncio.Task[None], CancelScope] = {}

    @property
    def running(self) -> bool:
        """Whether the supervisor was started and not stopped."""
        return self._loop is not None

    @property
    def callbacks(self) -> Callbacks:
        """The scheduler of callbacks, whose errors count as errors of background tasks."""
        if self._loop is None:
            raise ClosedError(f"{self._name} is not running.")
        return Callbacks(self._loop, self)

    async def start(self) -> None:
        """Start to accept tasks, in the running event loop and the current context."""
        self.failure, self._stopping, self._closing, self._loop_ends = None, False, False, False
        self._context = contextvars.copy_context()
        self._loop = asyncio.get_running_loop()
        _started.add(self)

    def begin_close(self) -> None:
        """Expect that tasks end with ClosedError from now on, before `stop`. Synchronous."""
        self._closing = True

    async def stop(self) -> None:
        """Cancel all tasks and wait until they have ended, at most STOP_S.

        Idempotent. If this call is cancelled, the tasks remain cancelled.
        """
        self._stopping = True
        # A scope cancels again at each await (level cancellation), so that no `except
        # CancelledError` of a task can keep it alive.
        for scope in list(self._scopes.values()):  # The oldest task is cancelled first.
            scope.cancel()
        try:
            waited = [task for task in self._tasks if task is not asyncio.current_task()]
            pending = (await asyncio.wait(waited, timeout=STOP_S))[1] if waited else set()
        finally:
            self._loop = None
            _started.discard(self)
        if pending:
            names = ", ".join(self._tasks[task] for task in waited if task in pending)
            self._log.error(
                "%s: some tasks did not end when they were cancelled: %s",
                self._name,
                names,
                extra={"event": "task_hangs"},
            )

    def spawn(
        self, function: Callable[..., Coroutine[Any, Any, None]], *args: Any, name: str
    ) -> None:
        """Run `function(*args)` in a new task, from the next iteration of the event loop on.

        Synchronous, and allowed in callbacks of the loop. Raises ClosedError after `stop`.
        """
        if self._loop is None:
            raise ClosedError(f"{self._name} is not running.")
        task = new_task(
            self._loop,
            self._run(function, args, name),
            name=f"{self._name}: {name}",
            context=self._context.copy(),
        )
        self._tasks[task] = name
        task.add_done_callback(self._on_task_end)

    def add_failure_listener(self, callback: Callable[[BaseException], None]) -> Callable[[], None]:
        """Have `callback(error)` called once, in the loop, when the first background task dies.

        Returns a function that removes the callback.
        """
        if self.failure is not None:
            callback(self.failure)
        self._failure_listeners.append(callback)
        return lambda: (
            self._failure_listeners.remove(callback)
            if callback in self._failure_listeners
            else None
        )

    async def _run(
        self, function: Callable[..., Coroutine[Any, Any, None]], args: tuple[Any, ...], name: str
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        with new_scope() as scope:
            self._scopes[task] = scope
            if self._stopping:
                scope.cancel()
            try:
                await function(*args)
            except asyncio.CancelledError:
                # Check this now. Later, a task that closes this client may have created tasks that
                # are not cancelled.
                if not self._stopping and not self._loop_ends:
                    self._loop_ends = loop_ends(task.get_loop())
                raise
            except Exception as error:
                if error is not self.failure:  # The known failure has ended this task, too.
                    self.fail(error, name)
            finally:
                del self._scopes[task]

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        name = self._tasks.pop(task)
        if not task.cancelled():
            # Retrieve a KeyboardInterrupt or SystemExit, which the event loop has raised.
            task.exception()
        elif self._stopping or self.failure is not None:
            pass
        elif self._loop_ends or loop_ends(task.get_loop()):
            self._record_failure(ClosedError(ENDED))
            self._log.warning(
                "%s was not closed before its event loop ended",
                self._name,
                extra={"event": "loop_ended"},
            )
        else:
            self.fail(IllegalStateError(CANCELLED.format(name=name)), name)

    def fail(self, error: Exception, name: str) -> None:
        """Record the error of a background task or a callback as the failure. Synchronous."""
        if self.forked or (self._closing and isinstance(error, ClosedError)):
            return  # The task has used what the close, or the fork, has ended.
        # First, because a filter or handler of the application may raise in the log.
        self._record_failure(error)
        self._log.error(
            "%s: the task %r died",
            self._name,
            name,
            exc_info=error,
            extra={"event": "task_died", "task": name},
        )

    def adopt_failure(self, failure: BaseException) -> None:
        """Adopt the failure of a supervisor on whose tasks these tasks depend. Synchronous.

        The other supervisor has logged the failure. Tasks that end with it are not logged again.
        """
        if self.failure is None:
            self.failure = failure

    def raise_failure(self) -> None:
        """Raise the error of the first background task that died, if one has. Synchronous.

        Loops that retry call this, so that they do not wait for a dead task until their deadline.
        """
        if self.failure is not None:
            raise self.failure.with_traceback(None)

    def _record_failure(self, error: Exception) -> None:
        if self.failure is None:
            self.failure = error
            for callback in list(self._failure_listeners):
                callback(error)

    def end_in_fork(self) -> None:
        """Fail with ClosedError, and cancel all tasks. Synchronous; called in a forked process."""
        self.forked = self._stopping = True
        # The process may have forked in another thread than that of the event loop. Then no loop
        # can run these tasks, and in debug mode, their loop raises RuntimeError, which changes
        # nothing.
        with contextlib.suppress(RuntimeError):
            self._record_failure(ClosedError(FORKED))
            for task in self._tasks:
                task.cancel()


_started: weakref.WeakSet[Supervisor] = weakref.WeakSet()
"""The supervisors that were started and not stopped."""


def _end_in_fork() -> None:
    for supervisor in list(_started):
        supervisor.end_in_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_end_in_fork)
