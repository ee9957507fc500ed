"""Thread pools of the library, which code of the application does not use.

The event loop's default executor is used by the application: `asyncio.to_thread`, name lookups and
web frameworks may occupy all its threads, and work of the library would have to wait for them. So
the library has two thread pools of its own, which all clients of the process share:

- `run` is for computation: compressing, decoding, merging metadata. There are as many threads as
  the machine has processors, at least two.
- `run_blocking` is for calls that block: name resolution, reading certificate files, token servers.
  A call that hangs there does not delay computations.

The application's own functions (assignors, for example) run in the event loop's default executor.
A caller with a deadline limits the time for which it waits for the returned future. This time
includes the wait for a free thread. A `Job` shows whether a thread has started the call.

The threads are daemons, so that a hanging call delays neither the end of `asyncio.run` nor the exit
of the interpreter. A forked process starts with new pools, because threads do not survive a fork.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

BLOCKING_THREADS = 32
"""Number of threads for blocking calls. Idle threads cost only memory."""


class _ThreadCall(Future[Any]):
    """A call of a function, and its outcome."""

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__()
        self._function: Callable[[], Any] | None = function

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        def tell(future: Future[Any]) -> None:
            try:
                fn(future)
            except RuntimeError:
                # The event loop was closed in the meantime: nothing waits for the outcome.
                pass

        super().add_done_callback(tell)

    def perform(self) -> None:
        function, self._function = self._function, None
        if function is None or not self.set_running_or_notify_cancel():
            return
        try:
            result = function()
        except BaseException as error:
            self.set_exception(error)
        else:
            self.set_result(result)


class DaemonThreads(Executor):
    """An executor of daemon threads, each created when there is no idle one."""

    def __init__(self, name: str, size: int) -> None:
        self._name = name
        self._size = size
        self.forget_threads()

    def forget_threads(self) -> None:
        """Discard all threads in a forked process, where they do not exist."""
        self._lock = threading.Lock()
        self._calls: SimpleQueue[_ThreadCall | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._threads = 0
        self.calls = 0
        """Number of calls since the process began."""

    @property
    def waiting(self) -> int:
        """Number of calls that no thread has begun."""
        return self._calls.qsize()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        self.calls += 1
        call = _ThreadCall(lambda: fn(*args, **kwargs))
        self._calls.put(call)
        if not self._idle.acquire(blocking=False):
            self._add_thread()
        return call

    def close(self) -> None:
        """End the threads, each after its present call. Calls that have not begun are not made."""
        with self._lock:
            for _ in range(self._threads):
                self._calls.put(None)

    def _add_thread(self) -> None:
        with self._lock:
            if self._threads >= self._size:
                return
            name = f"{self._name}_{self._threads}"
            # Not a ThreadPoolExecutor, whose threads the interpreter joins at its exit: a call that
            # hangs would keep the process alive.
            threading.Thread(target=self._run_calls, name=name, daemon=True).start()
            self._threads += 1

    def _run_calls(self) -> None:
        while True:
            call = self._calls.get()
            if call is None:
                return
            call.perform()
            del call  # An idle thread keeps nothing alive.
            self._idle.release()


class Job(Generic[T]):
    """A function to be called in a thread, with a flag that shows whether the call has started."""

    __slots__ = ("_args", "_function", "begun")

    def __init__(self, function: Callable[..., T], *args: object) -> None:
        self._function = function
        self._args = args
        self.begun = False

    def __call__(self) -> T:
        self.begun = True
        return self._function(*self._args)


_computing = DaemonThreads("aiokclient-compute", max(2, os.cpu_count() or 2))
_blocking = DaemonThreads("aiokclient-blocking", BLOCKING_THREADS)


def work() -> dict[str, tuple[int, int]]:
    """Return, for each pool, the number of all calls, and of those that wait for a thread."""
    pools = {"compute": _computing, "blocking": _blocking}
    return {name: (pool.calls, pool.waiting) for name, pool in pools.items()}


def run(function: Callable[..., T], *args: object) -> asyncio.Future[T]:
    """Call a computing function in a thread of the library. Return the future of its result.

    Synchronous. Cancelling the future does not stop a call that has started.
    """
    return asyncio.get_running_loop().run_in_executor(_computing, function, *args)


def run_blocking(function: Callable[..., T], *args: object) -> asyncio.Future[T]:
    """Call a blocking function in a thread of the library. Return the future of its result.

    Synchronous. Cancelling the future does not stop a call that has started.
    """
    return asyncio.get_running_loop().run_in_executor(_blocking, function, *args)


if hasattr(os, "register_at_fork"):
    # A forked process has only the thread that forked. The others would seem to be idle there, and
    # never take a call.
    os.register_at_fork(after_in_child=_computing.forget_threads)
    os.register_at_fork(after_in_child=_blocking.forget_threads)
