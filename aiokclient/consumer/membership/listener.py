"""Calls of the application's listener, and which tasks belong to such a call.

During a call of the listener, reading is refused, and commits do not wait for the group, because
the group waits for the listener. The same applies to tasks that the listener starts
(`asyncio.gather`, a TaskGroup). So the mark of a call is a context variable, which these tasks
inherit. A task that outlives the listener call that started it is an ordinary task from then on.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from aiokclient.cluster.lifecycle.public_calls import own_cancellation
from aiokclient.types import TopicPartition


class _ListenerCall:
    """One call of a listener. `running` is true until the call has returned."""

    __slots__ = ("of", "running", "task")

    def __init__(self, of: ListenerCalls) -> None:
        self.of = of
        self.running = True
        self.task = asyncio.current_task()

    def end_call(self) -> None:
        """Record that the call has returned, so that its tasks are ordinary tasks from now on."""
        self.running = False


_calls: ContextVar[tuple[_ListenerCall, ...]] = ContextVar("aiokclient_listener_calls", default=())


class ListenerCalls:
    """The calls of one consumer's listener."""

    def __init__(self) -> None:
        self.running_count = 0
        """The number of calls that have not returned."""

    @contextmanager
    def enter_call(self) -> Iterator[None]:
        """Mark the current context, and the tasks started in it, as inside a listener call."""
        call = _ListenerCall(self)
        token = _calls.set((*_calls.get(), call))
        self.running_count += 1
        try:
            yield
        finally:
            call.end_call()
            self.running_count -= 1
            _calls.reset(token)

    def is_inside(self) -> bool:
        """Return whether the caller belongs to a call of the listener that has not returned."""
        calls = _calls.get()
        return bool(calls) and any(call.running and call.of is self for call in calls)

    def was_inside(self) -> bool:
        """Return whether the caller was started in a call of the listener, returned or not."""
        return any(call.of is self for call in _calls.get())

    def is_calling(self) -> bool:
        """Return whether the current task itself calls the listener."""
        calls = _calls.get()
        if not calls:
            return False
        task = asyncio.current_task()
        return any(call.running and call.of is self and call.task is task for call in calls)


async def tell(listener: Any, method: str, partitions: Sequence[TopicPartition]) -> None:
    """Call `listener.method(partitions)`, and await the result if it is awaitable.

    Do nothing if the listener has no such method. Exceptions of the method are raised here.
    """
    call = getattr(listener, method, None)
    if call is not None:
        with own_cancellation(f"{method}()"):
            answer = call(partitions)
            if inspect.isawaitable(answer):
                await answer
