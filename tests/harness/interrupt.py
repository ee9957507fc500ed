"""Cancellation of a call by asyncio or anyio, at its n-th suspension or after a time."""

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, NamedTuple

import anyio

TWICE = "asyncio, twice"


class Interrupted(NamedTuple):
    """The result of a call: its suspensions, whether it was cancelled, and its error, if any."""

    suspensions: int
    cancelled: bool
    error: Exception | None


@types.coroutine
def watched(
    call: Coroutine[Any, Any, Any], suspended: Callable[[], None]
) -> Generator[Any, Any, Any]:
    """Run `call`, and call `suspended` at each of its suspensions."""
    step: Callable[..., Any] = call.send
    value: Any = None
    while True:
        try:
            waits_for = step(value)
        except StopIteration as end:
            return end.value
        suspended()
        try:
            value = yield waits_for
            step = call.send
        except BaseException as error:
            step, value = call.throw, error


async def interrupt(
    call: Coroutine[Any, Any, Any],
    *,
    way: str,
    suspension: int | None = None,
    moment: float | None = None,
) -> Interrupted:
    """Run the call and cancel it after a number of suspensions, or of seconds from its start.

    With ``way`` "asyncio", the call's task is cancelled once. With "asyncio, twice", it is
    cancelled again at the next suspension. With "anyio", its cancel scope is cancelled, which also
    cancels every later await in the scope. Returns when the call has ended, in any way.
    """
    loop, count = asyncio.get_running_loop(), 0
    scope = anyio.CancelScope()

    def suspended() -> None:
        nonlocal count
        count += 1
        if count == suspension or (way == TWICE and suspension and count == suspension + 1):
            # `cancel` is set below, but an eager task already runs before that.
            loop.call_soon(lambda: cancel())

    async def run() -> None:
        with scope:
            await watched(call, suspended)

    task = loop.create_task(run())
    cancel: Callable[[], object] = scope.cancel if way == "anyio" else task.cancel
    timer = None if moment is None else loop.call_later(moment, cancel)
    await asyncio.wait([task])
    if timer is not None:
        timer.cancel()
    if task.cancelled() or scope.cancelled_caught:
        return Interrupted(count, True, None)
    error = task.exception()
    if error is not None and not isinstance(error, Exception):
        raise error
    return Interrupted(count, False, error)
