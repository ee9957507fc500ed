"""Cancel scopes and task groups: those of anyio, or simpler ones in a program without anyio.

A task inside of a cancel scope of anyio is cancelled again at each await, and a shield against that
must be one of anyio's. So in a program that uses anyio, this module returns anyio's scopes.
Their import takes as long as that of asyncio. A program that has not imported anyio has no such
tasks, and gets scopes that need asyncio alone. A program that only lists topics, for example, needs
neither anyio, nor its sockets and its TLS. Producers and consumers import anyio, because code of
applications runs in their scopes, and some HTTP libraries import anyio there.

The scopes of one task are all of one kind, that of its outermost scope. A program may import anyio
while a task is inside of a scope.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Self, TypeAlias

if TYPE_CHECKING:
    from types import TracebackType

    import anyio
    import anyio.abc

    CancelScope: TypeAlias = "AnyioScope | anyio.CancelScope | AsyncioScope"
    TaskGroup: TypeAlias = "AnyioGroup | AsyncioGroup"

_innermost: dict[asyncio.Task[Any], AsyncioScope] = {}
"""The innermost scope of each task that is inside of an `AsyncioScope`."""


def is_anyio_used() -> bool:
    """Return whether the program has imported anyio, so that tasks may be inside of its scopes."""
    return "anyio" in sys.modules


def new_scope(*, deadline: float = math.inf, shield: bool = False) -> CancelScope:
    """Return a scope for the current task: a context manager whose body can be cancelled.

    `deadline` is on the loop's clock. A shield keeps the cancellation of scopes around it from its
    body, but not that of the task.
    """
    if _needs_anyio():
        return AnyioScope(deadline, shield)
    return AsyncioScope(deadline, shield)


def new_scope_of(seconds: float) -> CancelScope:
    """Return a scope for the current task, which is cancelled after a number of seconds."""
    return new_scope(deadline=asyncio.get_running_loop().time() + seconds)


def new_group() -> TaskGroup:
    """Return a task group for the current task, with a `cancel_scope`.

    Errors of its tasks cancel the others, and are raised as an ExceptionGroup.
    """
    return AnyioGroup() if _needs_anyio() else AsyncioGroup()


def is_cancelled() -> bool:
    """Return whether the current task is being cancelled.

    If it is not, a CancelledError comes from a cancelled future that the application's code awaits.
    """
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _count_cancellations() -> int:
    """Return the number of cancellations of the current task that were not taken back."""
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


def _needs_anyio() -> bool:
    return asyncio.current_task() not in _innermost and is_anyio_used()


class AnyioScope:
    """A cancel scope of anyio that does not lose the cancellation of its task.

    Up to anyio 4.13, the end of a cancelled scope swallows the CancelledError even if the task
    itself was cancelled in the same iteration of the loop, and the task goes on. A count of
    cancellations that has grown shows that. Scopes before anyio 4.7, which do not take back their
    own cancellations, are not supported.
    """

    __slots__ = ("_cancellations_before", "_scope", "cancelled_caught")

    def __init__(self, deadline: float = math.inf, shield: bool = False) -> None:
        import anyio

        self._scope = anyio.CancelScope(deadline=deadline, shield=shield)
        self._cancellations_before = 0
        self.cancelled_caught = False
        """Whether the scope was cancelled, and its end has caught the CancelledError."""

    @property
    def deadline(self) -> float:
        """The time on the loop's clock at which the scope is cancelled."""
        return self._scope.deadline

    @deadline.setter
    def deadline(self, deadline: float) -> None:
        self._scope.deadline = deadline

    def cancel(self) -> None:
        """Cancel the body, now or as soon as it begins. Synchronous, idempotent."""
        self._scope.cancel()

    def __enter__(self) -> Self:
        self._cancellations_before = _count_cancellations()
        self._scope.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        is_own = bool(self._scope.__exit__(kind, error, traceback))
        self.cancelled_caught = is_own and _count_cancellations() <= self._cancellations_before
        return self.cancelled_caught


class AnyioGroup:
    """A task group of anyio that does not lose the cancellation of its task; see `AnyioScope`."""

    __slots__ = ("_cancellations_before", "_tasks", "cancel_scope")

    def __init__(self) -> None:
        import anyio

        self._tasks = anyio.create_task_group()
        self.cancel_scope = self._tasks.cancel_scope
        self._cancellations_before = 0

    def start_soon(self, function: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> None:
        """Start `function(*args)` in a task of the group. Synchronous."""
        self._tasks.start_soon(function, *args)

    async def __aenter__(self) -> Self:
        self._cancellations_before = _count_cancellations()
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        is_own = bool(await self._tasks.__aexit__(kind, error, traceback))
        if is_own and _count_cancellations() > self._cancellations_before:
            if error is None:  # It came while the tasks were awaited.
                raise asyncio.CancelledError
            return False
        return is_own


class AsyncioScope:
    """A cancel scope that needs asyncio alone.

    A cancelled scope cancels its task again in each iteration of the loop until its body ends, so
    that no `except CancelledError` can keep the task alive. A cancellation by the scope ends at its
    end. If the task itself was cancelled as well, CancelledError leaves the scope.
    """

    __slots__ = (
        "_cancellations",
        "_cancellations_before",
        "_deadline",
        "_is_cancelled",
        "_is_shield",
        "_outer",
        "_task",
        "_timer",
        "cancelled_caught",
    )

    def __init__(self, deadline: float = math.inf, shield: bool = False) -> None:
        self._deadline = deadline
        self._is_shield = shield
        self._is_cancelled = False
        self._task: asyncio.Task[Any] | None = None
        self._outer: AsyncioScope | None = None
        self._timer: asyncio.Handle | None = None
        self._cancellations = 0
        """The cancellations of the task by this scope."""
        self._cancellations_before = 0
        self.cancelled_caught = False
        """Whether the scope was cancelled, and its end has caught the CancelledError."""

    @property
    def deadline(self) -> float:
        """The time on the loop's clock at which the scope is cancelled."""
        return self._deadline

    @deadline.setter
    def deadline(self, deadline: float) -> None:
        self._deadline = deadline
        if self._task is not None and not self._is_cancelled:
            self._set_timer()

    def cancel(self) -> None:
        """Cancel the body, now or as soon as it begins. Synchronous, idempotent."""
        if not self._is_cancelled:
            self._is_cancelled = True
            self._stop_timer()
            if self._task is not None:
                self._cancel_task()

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        assert self._task is None
        self._task, self._outer = task, _innermost.get(task)
        _innermost[task] = self
        self._cancellations_before = task.cancelling()
        if self._is_cancelled:
            self._cancel_task()
        else:
            self._set_timer()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        task, outer = self._task, self._outer
        assert task is not None
        assert _innermost[task] is self
        self._stop_timer()
        self._task = self._outer = None
        if outer is None:
            del _innermost[task]
        else:
            _innermost[task] = outer
        if not self._is_cancelled:
            return False
        if outer is not None and not self._is_shield and outer._is_reached():
            outer._cancellations += self._cancellations
            return False
        for _ in range(self._cancellations):
            task.uncancel()
        # Otherwise the task itself was cancelled, possibly in the same iteration of the loop.
        is_own = task.cancelling() <= self._cancellations_before
        self.cancelled_caught = is_own and isinstance(error, asyncio.CancelledError)
        return self.cancelled_caught

    def _is_reached(self) -> bool:
        """Return whether this scope is cancelled, or one around it without a shield in between."""
        scope: AsyncioScope | None = self
        while scope is not None and not scope._is_cancelled:
            scope = None if scope._is_shield else scope._outer
        return scope is not None

    def _set_timer(self) -> None:
        self._stop_timer()
        if self._deadline == math.inf:
            return
        loop = asyncio.get_running_loop()
        if loop.time() >= self._deadline:
            self.cancel()
        else:
            self._timer = loop.call_at(self._deadline, self.cancel)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _cancel_task(self) -> None:
        """Cancel the task, and again in each iteration of the loop until the body has ended."""
        task = self._task
        assert task is not None
        if task is not asyncio.current_task() and self._can_cancel(task):
            self._cancellations += 1
            task.cancel()
        self._timer = task.get_loop().call_soon(self._cancel_task)

    def _can_cancel(self, task: asyncio.Task[Any]) -> bool:
        inner = _innermost[task]
        while inner is not self:
            # A cancelled scope within this one cancels the task itself.
            if inner._is_shield or inner._is_cancelled:
                return False
            assert inner._outer is not None
            inner = inner._outer
        # Private attributes of all tasks. A task whose result is there, but which has not resumed
        # yet, would lose the result. It is cancelled at its next await.
        waiter = getattr(task, "_fut_waiter", None)
        return not getattr(task, "_must_cancel", False) and (waiter is None or not waiter.done())


class AsyncioGroup:
    """A task group that needs asyncio alone. A cancellation of its scope cancels its tasks."""

    def __init__(self) -> None:
        self.cancel_scope = AsyncioScope()
        self._tasks = asyncio.TaskGroup()

    def start_soon(self, function: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> None:
        """Start `function(*args)` in a task of the group. Synchronous."""
        self._tasks.create_task(function(*args))

    async def __aenter__(self) -> Self:
        self.cancel_scope.__enter__()
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        try:
            await self._tasks.__aexit__(kind, error, traceback)
        except BaseException as raised:
            if self.cancel_scope.__exit__(type(raised), raised, raised.__traceback__):
                return True
            raise
        return self.cancel_scope.__exit__(kind, error, traceback)
