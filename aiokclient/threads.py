"""Threads of the library's own, which the application's code cannot occupy.

The event loop's default executor belongs to the application: `asyncio.to_thread`, name lookups and
web frameworks fill it, and work that waits there waits for them. Two pools are kept here instead,
shared by all clients of the process:

- `run` is for computation: compressing, decoding, merging metadata. There are as many threads as
  the machine has processors, at least two.
- `run_blocking` is for calls that wait for something else: name resolution, certificate files,
  token servers. A call that hangs there delays no computation.

The application's own functions (assignors, for example) run in the event loop's default executor.
A caller that has a deadline bounds the wait for the returned future: waiting for a free thread
counts against the deadline as well.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["run", "run_blocking"]

T = TypeVar("T")

BLOCKING_THREADS = 32


class _Pool:
    """A thread pool that is created at first use, and created again in a forked process."""

    def __init__(self, name: str, threads: int) -> None:
        self._name = name
        self._threads = threads
        self._executor: ThreadPoolExecutor | None = None

    def submit(self, function: Callable[..., T], *args: object) -> asyncio.Future[T]:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self._threads, thread_name_prefix=self._name)
        return asyncio.get_running_loop().run_in_executor(self._executor, function, *args)

    def forget(self) -> None:
        """Drop the executor, whose threads do not exist in a forked process."""
        self._executor = None


_computing = _Pool("aiokclient-compute", max(2, os.cpu_count() or 2))
_blocking = _Pool("aiokclient-blocking", BLOCKING_THREADS)


def run(function: Callable[..., T], *args: object) -> asyncio.Future[T]:
    """Call a function that computes in a thread of the library; return the future of its result.

    Synchronous. Cancelling the future does not stop a call that has begun.
    """
    return _computing.submit(function, *args)


def run_blocking(function: Callable[..., T], *args: object) -> asyncio.Future[T]:
    """Call a function that waits in a thread of the library; return the future of its result.

    Synchronous. Cancelling the future does not stop a call that has begun.
    """
    return _blocking.submit(function, *args)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_computing.forget)
    os.register_at_fork(after_in_child=_blocking.forget)
