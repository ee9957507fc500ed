"""Errors for calls from the wrong event loop or thread."""

from __future__ import annotations

import asyncio
import threading

from aiokclient.errors import UsageError, WrongLoopError, WrongThreadError

__all__ = ["wrong_caller"]


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
