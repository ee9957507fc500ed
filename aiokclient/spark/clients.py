"""Clients that the threads of a Spark worker share, in one event loop for each process.

The loop runs in a daemon thread, which starts with the first call. Clients are pooled by their
options: tasks that run in the same process, one after the other or at the same time, use the same
connections. A client without users is closed after 30 seconds, or as soon as it loses a connection.
Otherwise, it would log warnings about unreachable brokers that no task needs. A forked process gets
a loop and clients of its own. A process that exits waits at most a second for the clients to close.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import queue
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, TypeVar, cast

from aiokclient import Client, State
from aiokclient.errors import ApiTimeoutError, BootstrapError, KafkaError
from aiokclient.events import Disconnected
from aiokclient.spark.option_names import as_in_spark
from aiokclient.spark.option_reader import Properties

R = TypeVar("R")
T = TypeVar("T")

IDLE_S = 30.0
"""Seconds without a user after which a client is closed."""
EXIT_S = 1.0
"""Seconds that an exiting process has for closing its clients."""
AHEAD = 4
"""The largest number of items that `stream` has ready for its caller."""
UNUSABLE = (State.FAILED, State.CLOSED)


def submit(properties: Properties, function: Callable[[Client], Awaitable[R]]) -> Future[R]:
    """Run `await function(client)` in the loop of this process, and return its future.

    The client has the options `properties`, and counts as used until the coroutine ends. Cancelling
    the future cancels the coroutine.
    """
    thread = _current()

    async def use() -> R:
        async with thread.lease_client(properties) as client:
            return await function(client)

    return asyncio.run_coroutine_threadsafe(use(), thread.loop)


def run(
    properties: Properties,
    function: Callable[[Client], Awaitable[R]],
    *,
    timeout: float | None = None,
) -> R:
    """Return the result of `await function(client)`, which runs in the loop of this process.

    `timeout` is in seconds, and TimeoutError is raised after it. Without one, the deadlines of the
    client's calls apply. The cause of an error is removed, and its text is added to the error.
    """
    future = submit(properties, function)
    try:
        return result(future, timeout)
    finally:
        future.cancel()


def stream(properties: Properties, function: Callable[[Client], AsyncIterator[T]]) -> Iterator[T]:
    """Yield the items of `function(client)`, which runs in the loop of this process.

    The loop has at most `AHEAD` items ready. At the beginning, it makes each item only when the
    caller asks for it, because a caller with a limit needs only the first ones. Closing the
    iterator cancels the function. Errors are raised as by `run`.
    """
    ready: queue.SimpleQueue[Any] = queue.SimpleQueue()
    asked, allowed = asyncio.Semaphore(0), 0
    end = object()

    async def fill(client: Client) -> None:
        items = function(client)
        try:
            await asked.acquire()
            async for item in items:
                ready.put(item)
                # The item must not stay in memory while the next one is awaited.
                del item
                await asked.acquire()
        finally:
            close = getattr(items, "aclose", None)
            if close is not None:
                await close()

    loop = _current().loop
    future = submit(properties, fill)
    future.add_done_callback(lambda _: ready.put(end))
    try:
        count = 0
        while True:
            loop.call_soon_threadsafe(asked.release)
            if allowed < min(AHEAD, count // 8):
                allowed += 1
                loop.call_soon_threadsafe(asked.release)
            item = ready.get()
            if item is end:
                break
            count += 1
            yield cast(T, item)
            # The item must not stay in memory while the next one is awaited.
            del item
        result(future, None)
    finally:
        future.cancel()


def connect(properties: Properties, seconds: float) -> None:
    """Raise BootstrapError if no broker can be reached within `seconds`.

    The client of this check is not pooled, because `seconds` limits each of its calls.
    """
    limit = round(seconds * 1000)
    with contextlib.suppress(KeyError):
        limit = min(limit, int(dict(properties)["default.api.timeout.ms"]))
    options = {**dict(properties), "default.api.timeout.ms": str(limit)}

    async def check() -> None:
        async with Client.from_properties(options):
            pass

    result(asyncio.run_coroutine_threadsafe(check(), _current().loop))


def result(future: Future[R], timeout: float | None = None) -> R:
    """Return the result of a future of `submit`, and raise its error as `run` does."""
    try:
        return future.result(timeout)
    except Exception as error:
        failure = error
    # Spark shows a traceback as text. The frames of the loop and a chain of causes would hide what
    # went wrong.
    cause = failure.__cause__
    if isinstance(failure, ApiTimeoutError) and isinstance(cause, KafkaError | None):
        # The hint refers to the cause, which is removed below.
        failure.hint = f"The last error was {type(cause).__name__}: {cause}" if cause else ""
    elif (
        cause is not None
        and str(cause) not in str(failure)
        and not isinstance(failure, BootstrapError)  # Its text has what came of each address.
    ):
        failure.add_note(as_in_spark(f"The cause is {type(cause).__name__}: {cause}"))
    failure.__cause__ = None
    if isinstance(failure, KafkaError):
        failure.message, failure.hint = as_in_spark(failure.message), as_in_spark(failure.hint)
    raise failure.with_traceback(None) from None


class _PooledClient:
    """A client and its users. It belongs to the loop."""

    def __init__(self, properties: Properties) -> None:
        self._client = Client.from_properties(dict(properties))
        self._starting: asyncio.Task[Any] | None = None
        self.users = 0
        self._timer: asyncio.TimerHandle | None = None
        self._watch: asyncio.Task[None] | None = None

    @property
    def is_usable(self) -> bool:
        if self._starting is not None and self._starting.done() and not self._is_started:
            return False
        return self._client.state not in UNUSABLE

    @property
    def _is_started(self) -> bool:
        task = self._starting
        return task is not None and not task.cancelled() and task.exception() is None

    async def start(self) -> Client:
        """Return the client once it has started. Several tasks may call this at the same time."""
        if self._starting is None:
            self._starting = asyncio.create_task(self._client.start())
        # If one of the tasks is cancelled, the others still wait for the start.
        await asyncio.shield(self._starting)
        return self._client

    def schedule_drop(self, drop: Callable[[], None]) -> None:
        """Call `drop` when the client loses a connection, or has been idle for `IDLE_S`."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(IDLE_S, drop)
        self._watch = loop.create_task(self._drop_when_disconnected(drop))

    async def _drop_when_disconnected(self, drop: Callable[[], None]) -> None:
        async with contextlib.aclosing(self._client.events()) as events:
            async for event in events:
                # Without a cause, the client has closed the connection itself.
                if isinstance(event, Disconnected) and event.cause is not None:
                    self._watch = None
                    drop()
                    return

    def cancel_drop(self) -> None:
        """Cancel what `schedule_drop` has scheduled, because the client has a user again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    async def close(self) -> None:
        self.cancel_drop()
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
        with contextlib.suppress(Exception):
            await self._client.close()


class _ClientThread:
    """The thread of the loop, and the pool of its clients."""

    def __init__(self) -> None:
        self.loop: Final = asyncio.new_event_loop()
        self._pool: dict[Properties, _PooledClient] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run_loop, name="aiokclient-spark", daemon=True)
        self._thread.start()

    @contextlib.asynccontextmanager
    async def lease_client(self, properties: Properties) -> AsyncIterator[Client]:
        """Yield a client that stays open until the body of the `async with` statement ends."""
        pooled = self._pool.get(properties)
        if pooled is None or not pooled.is_usable:
            pooled = self._pool[properties] = _PooledClient(properties)
        pooled.users += 1
        pooled.cancel_drop()
        try:
            yield await pooled.start()
        finally:
            pooled.users -= 1
            if not pooled.users:
                self._release_client(properties, pooled)

    def _release_client(self, properties: Properties, pooled: _PooledClient) -> None:
        if pooled.is_usable and self._pool.get(properties) is pooled:
            pooled.schedule_drop(partial(self._drop_client, properties, pooled))
        else:
            self._drop_client(properties, pooled)

    def _drop_client(self, properties: Properties, pooled: _PooledClient) -> None:
        if self._pool.get(properties) is pooled:
            del self._pool[properties]
        task = self.loop.create_task(pooled.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def stop(self) -> None:
        """Close the clients and end the thread, within `EXIT_S`."""

        async def close() -> None:
            try:
                for properties, pooled in list(self._pool.items()):
                    self._drop_client(properties, pooled)
                if self._closing:
                    await asyncio.wait(self._closing)
            finally:
                self.loop.stop()

        future = asyncio.run_coroutine_threadsafe(close(), self.loop)
        self._thread.join(EXIT_S)
        future.cancel()


class _ThisProcess:
    """The loop thread of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: _ClientThread | None = None
        self._of_parents: list[_ClientThread] = []

    def get_thread(self) -> _ClientThread:
        with self._lock:
            if self._thread is None:
                self._thread = _ClientThread()
            return self._thread

    def forget_thread(self) -> None:
        """Forget the thread in a forked process, in which it does not run.

        Its objects are kept: if the loop were freed, that would change the selector, which it
        shares with the loop in the parent process.
        """
        self._lock = threading.Lock()
        if self._thread is not None:
            self._of_parents.append(self._thread)
            self._thread = None

    def stop_thread(self) -> None:
        """End the thread before the process exits."""
        if self._thread is not None:
            self._thread.stop()


_process = _ThisProcess()
_current = _process.get_thread
atexit.register(_process.stop_thread)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_process.forget_thread)
