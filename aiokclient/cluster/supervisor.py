"""The owner of every background task of one client.

One task holds an anyio task group, so that a client can be opened in one task and closed in
another. A background task that dies is a bug or a fatal error: it is logged, kept as `failure`,
and handed to whoever asked to know; the others run on until the client is closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import anyio.abc

from aiokclient.errors import ClosedError

__all__ = ["Supervisor"]

STOP_S = 2.0
"""How long tasks that were cancelled may take to end before they are given up, and named."""

logger = logging.getLogger("aiokclient")


class Supervisor:
    """Between `start` and `stop` it runs what `spawn` gives it."""

    def __init__(self, name: str) -> None:
        self.failure: BaseException | None = None
        self._name = name
        self._group: anyio.abc.TaskGroup | None = None
        self._task: asyncio.Task[None] | None = None
        self._callbacks: list[Callable[[BaseException], None]] = []
        self._running: dict[anyio.CancelScope, str] = {}

    @property
    def running(self) -> bool:
        return self._group is not None

    async def start(self) -> None:
        """Starts the supervising task. Cancelling it stops it again."""
        self.failure = None
        started = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._supervise(started), name=f"{self._name} supervisor")
        try:
            await started
        except BaseException:
            self._task.cancel()
            raise

    async def stop(self) -> None:
        """Cancels all tasks and waits until they have ended, at most STOP_S.

        Idempotent. Cancelling it leaves the tasks cancelled.
        """
        # One by one, in the order of their start: the group would take any order.
        for scope in self._running:
            scope.cancel()
        if self._group is not None:
            self._group.cancel_scope.cancel()
        if self._task is None:
            return
        _, pending = await asyncio.wait([self._task], timeout=STOP_S)
        if pending:
            names = ", ".join(self._running.values())
            logger.error("%s: tasks that do not end when cancelled: %s", self._name, names)

    def spawn(
        self, function: Callable[..., Coroutine[Any, Any, None]], *args: Any, name: str
    ) -> None:
        """Runs `function(*args)` in a task of its own. Plain. Raises ClosedError after `stop`."""
        if self._group is None:
            raise ClosedError(f"{self._name} is not running")
        self._group.start_soon(self._guard, function, args, name, name=f"{self._name}: {name}")

    def on_failure(self, callback: Callable[[BaseException], None]) -> Callable[[], None]:
        """`callback(error)` is called once, in the loop, when the first background task dies.

        Returns a function that takes the callback back.
        """
        if self.failure is not None:
            callback(self.failure)
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback) if callback in self._callbacks else None

    async def _supervise(self, started: asyncio.Future[None]) -> None:
        try:
            async with anyio.create_task_group() as group:
                self._group = group
                if not started.done():
                    started.set_result(None)
                await anyio.sleep_forever()
        finally:
            self._group = None

    async def _guard(
        self, function: Callable[..., Coroutine[Any, Any, None]], args: tuple[Any, ...], name: str
    ) -> None:
        with anyio.CancelScope() as scope:
            self._running[scope] = name
            try:
                await function(*args)
            except Exception as error:
                self.fail(error, name)
            finally:
                del self._running[scope]

    def fail(self, error: Exception, name: str) -> None:
        """A background task, or a callback that stands for one, has died of `error`. Plain."""
        logger.error("%s: the task %r died", self._name, name, exc_info=error)
        if self.failure is None:
            self.failure = error
            for callback in list(self._callbacks):
                callback(error)
