"""A check of the caller: only tasks and callbacks of its event loop may call an object."""

from __future__ import annotations

import asyncio
import threading

from aiokclient.errors import UsageError, WrongLoopError, WrongThreadError

__all__ = ["wrong_caller"]


def wrong_caller(name: str, loop: asyncio.AbstractEventLoop | None, thread: int) -> UsageError:
    """Return what to raise in a caller that is outside of the loop; it names the alternative."""
    if threading.get_ident() != thread:
        return WrongThreadError(
            f"this {name} belongs to the thread of its event loop; from another thread use "
            "asyncio.run_coroutine_threadsafe, or send_threadsafe of a producer"
        )
    if loop is not None and loop.is_closed():
        return WrongLoopError(
            f"the event loop that this {name} was started in is closed; make a new one"
        )
    if asyncio._get_running_loop() is None:
        return WrongLoopError(
            f"no event loop is running here; use this {name} in coroutines of the loop that "
            "it was started in"
        )
    return WrongLoopError(
        f"this {name} was started in another event loop; make one for each loop, or use "
        "asyncio.run_coroutine_threadsafe with the loop that it was started in"
    )
