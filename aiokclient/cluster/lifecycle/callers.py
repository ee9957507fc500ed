"""Calls of the application: those from a wrong event loop, and those to its functions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from aiokclient.errors import (
    IllegalStateError,
    KafkaError,
    UsageError,
    WrongLoopError,
    WrongThreadError,
)

__all__ = ["own_cancellation", "running_loop", "wrong_caller"]


def running_loop(name: str) -> asyncio.AbstractEventLoop:
    """Return the running event loop. Raise WrongLoopError, which names asyncio, without one."""
    loop = asyncio._get_running_loop()
    if loop is None:
        raise WrongLoopError(
            f"No asyncio event loop is running, and this {name} needs one. The library is for "
            "asyncio, and does not run under trio. Run the program by asyncio.run()."
        )
    return loop


def wrong_caller(name: str, loop: asyncio.AbstractEventLoop | None, thread: int) -> UsageError:
    """Return the error for a call from outside the event loop. Its text names the alternative."""
    if threading.get_ident() != thread:
        return WrongThreadError(
            f"This {name} belongs to the thread of its event loop. From another thread use "
            "asyncio.run_coroutine_threadsafe, or send_threadsafe of a producer."
        )
    if loop is not None and loop.is_closed():
        return WrongLoopError(
            f"The event loop that this {name} was started in is closed. Make a new one."
        )
    if asyncio._get_running_loop() is None:
        return WrongLoopError(
            f"No event loop is running here. Use this {name} in coroutines of the loop that "
            "it was started in."
        )
    return WrongLoopError(
        f"This {name} was started in another event loop. Make one for each loop, or use "
        "asyncio.run_coroutine_threadsafe with the loop that it was started in."
    )


@contextmanager
def own_cancellation(function: str, kind: type[KafkaError] = IllegalStateError) -> Iterator[None]:
    """Run a block that calls a function of the application in a task of the library.

    A CancelledError that the function raises although this task was not cancelled, for example
    because it has awaited a cancelled future, becomes an error of the given kind. It would
    otherwise end the task as if the task had been cancelled.
    """
    task = asyncio.current_task()
    before = 0 if task is None else task.cancelling()
    try:
        yield
    except asyncio.CancelledError as error:
        if task is not None and task.cancelling() > before:
            raise
        raise kind(
            f"{function} raised CancelledError, but it was not cancelled. It may have awaited a "
            "future that was cancelled."
        ) from error
