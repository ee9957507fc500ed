"""Requests that several callers share, and bounded caches of their results.

The first caller of a key starts a task, and everybody who asks for the same key waits for it. The
cancellation of a caller ends its wait, not the task, because others may wait, too, and because a
registry may carry out what was sent anyway. The task ends by the timeout of the request. `close`
cancels all tasks and waits for their end.
"""

from __future__ import annotations

import asyncio
import copy
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar, cast

from aiokclient.background import TaskOwner, new_task
from aiokclient.errors import ClosedError, KafkaError

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
T = TypeVar("T")


class BoundedCache(Generic[K, V]):
    """The values that were used last, at most `size` of them."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[K, V] = OrderedDict()

    def find(self, key: K) -> V | None:
        """Return the value of a key, or None."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def keep(self, key: K, value: V) -> None:
        """Keep a value. If there are too many, drop the one not used for the longest time."""
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._size:
            self._values.popitem(last=False)

    def drop(self, is_stale: Callable[[K], bool]) -> None:
        """Drop the values of all keys for which the function returns True."""
        for key in [key for key in self._values if is_stale(key)]:
            del self._values[key]

    def __len__(self) -> int:
        return len(self._values)


class Flights(TaskOwner):
    """The tasks of one client of a registry."""

    def __init__(self) -> None:
        self._shared: dict[Hashable, asyncio.Task[Any]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_closed = False

    async def join(
        self, key: Hashable, function: Callable[..., Coroutine[Any, Any, T]], *args: Any
    ) -> T:
        """Return the result of `function(*args)`, which runs once for all callers of the key.

        Each caller gets a copy of an error. Raises ClosedError if the client is closed meanwhile.
        """
        task = self._shared.get(key)
        if task is None:
            task = self._start(function(*args), "schema registry request")
            self._shared[key] = task
            task.add_done_callback(lambda _: self._shared.pop(key, None))
        await asyncio.wait([task])
        if task.cancelled():
            raise ClosedError("The client of the schema registry was closed during the call.")
        error = task.exception()
        if error is None:
            return cast("T", task.result())
        if isinstance(error, KafkaError):
            raise copied(error)
        raise error

    def spawn(
        self, function: Callable[..., Coroutine[Any, Any, None]], *args: Any, name: str
    ) -> None:
        self._start(function(*args), name)

    def _start(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        if self._is_closed:
            coroutine.close()
            raise ClosedError("The client of the schema registry is closed.")
        task = new_task(asyncio.get_running_loop(), coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._on_ended)
        return task

    def _on_ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # Mark it as retrieved: all callers may have been cancelled.

    async def close(self) -> None:
        """Cancel all tasks, and wait until they have ended."""
        self._is_closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def copied(error: KafkaError) -> KafkaError:
    """Return an error of its own for one caller. Each raise adds to the traceback of its error."""
    twin = copy.copy(error)
    twin.__cause__, twin.__suppress_context__ = error.__cause__, True
    return twin
