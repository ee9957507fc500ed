"""The event loop of an embedded cluster. It runs in a thread of its own, or is the caller's.

In both cases, the controls are synchronous functions that any thread may call. `call_in_loop` runs
such a function in the cluster's loop. In the thread of that loop, it calls the function directly.
In other threads, it posts the function to the loop, and waits for the result.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from aiokclient.errors import IllegalStateError, KafkaTimeoutError

T = TypeVar("T")

_PATIENCE_S = 60.0
_AGAIN_S = 0.05
_TURNS = 6
_TOO_LATE = "The predicate did not become true within {} s."


class Runner:
    """The owner of the cluster's thread, if there is one, and of the tasks that controls start."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._thread_id = 0
        self._stop: asyncio.Event | None = None
        self._stopping = threading.Lock()
        self._given_up = False
        self._tasks: dict[asyncio.Task[None], None] = {}

    @property
    def is_running(self) -> bool:
        return self._loop is not None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop in which the cluster runs.

        Raises IllegalStateError while the cluster is not running.
        """
        if self._loop is None:
            raise IllegalStateError(
                "The embedded cluster is not running. Use it in a `with` or an `async with` "
                "block, or call start()."
            )
        return self._loop

    # -- starting and stopping ----------------------------------------------------------------

    def attach(self) -> None:
        """Use the event loop that is running in this thread."""
        self._use_current_loop()

    async def detach(self) -> None:
        """End the tasks of controls, and then leave the loop that `attach` has set."""
        await self._leave_loop()

    def start_thread(
        self, setup: Callable[[], Awaitable[None]], teardown: Callable[[], None]
    ) -> None:
        """Start a thread with an event loop, run `setup` in it, and raise the exception of `setup`.

        If `setup` fails, `teardown` is run to clean up.
        """
        ready: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run_thread(setup, teardown, ready)),
            name="aiokclient-embedded-cluster",
            daemon=True,
        )
        self._thread.start()
        try:
            ready.result()
        except BaseException:
            if not ready.done() or ready.exception() is None:
                self._abandon_start(teardown)  # Interrupted, for example by Ctrl-C.
            self._thread.join(_PATIENCE_S)
            self._thread = None
            raise

    def _abandon_start(self, teardown: Callable[[], None]) -> None:
        """Let the thread run `teardown` and end, as soon as its setup has ended."""
        self._given_up = True
        loop, stop = self._loop, self._stop
        if loop is None or stop is None:
            return  # The thread checks `_given_up` after its setup.
        try:
            loop.call_soon_threadsafe(teardown)
            loop.call_soon_threadsafe(stop.set)
        except RuntimeError:
            pass  # The loop has ended.

    def stop_thread(self, teardown: Callable[[], None]) -> None:
        """Run `teardown` in the loop and end the thread. Does nothing if there is no thread.

        Raises IllegalStateError in that thread itself.
        """
        if self._thread is not None and self.is_inside:
            raise IllegalStateError(
                "The embedded cluster cannot be closed from its own thread. Close it from the "
                "thread that started it."
            )
        with self._stopping:
            thread, stop = self._thread, self._stop
            if thread is None or stop is None:
                return
            self.call_in_loop(teardown)
            self.loop.call_soon_threadsafe(stop.set)
            thread.join()
            self._thread = None

    async def _run_thread(
        self,
        setup: Callable[[], Awaitable[None]],
        teardown: Callable[[], None],
        ready: concurrent.futures.Future[None],
    ) -> None:
        self._use_current_loop()
        self._stop = asyncio.Event()
        try:
            await setup()
        except BaseException as error:
            teardown()
            await self._leave_loop()
            ready.set_exception(error)
            return
        ready.set_result(None)
        if self._given_up:
            teardown()
        else:
            await self._stop.wait()
        await self._leave_loop()

    def _use_current_loop(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()

    async def _leave_loop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # Transports that were aborted are closed in the next iterations of the loop.
        await _wait_some_turns()
        self._loop = None
        self._thread_id = 0  # The system may give the next thread the same identifier.

    # -- controls --------------------------------------------------------------------------

    @property
    def is_inside(self) -> bool:
        """Whether the caller is in the thread of the cluster's loop."""
        return threading.get_ident() == self._thread_id

    def call_in_loop(self, function: Callable[[], T]) -> T:
        """Run `function` in the loop; return its result, or raise its exception."""
        loop = self.loop
        if self.is_inside:
            return function()
        result: concurrent.futures.Future[T] = concurrent.futures.Future()

        def run() -> None:
            try:
                result.set_result(function())
            except BaseException as error:
                result.set_exception(error)

        loop.call_soon_threadsafe(run)
        return _wait_for_result(result)

    def post_to_loop(self, function: Callable[[], None]) -> None:
        """Run `function` in the loop, and wait for it. Do nothing if the cluster is not running."""
        if self._loop is not None:
            self.call_in_loop(function)

    def run_coroutine(self, function: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a coroutine function in the loop.

        From another thread, this waits until the coroutine has ended. The loop's own thread cannot
        wait without awaiting, so there the coroutine starts in the next iteration of the loop.
        """
        loop = self.loop
        if not self.is_inside:
            _wait_for_result(asyncio.run_coroutine_threadsafe(function(), loop))
            return
        task = loop.create_task(function())
        self._tasks[task] = None
        task.add_done_callback(self._on_task_done)

    def catch_up(self) -> None:
        """Wait until the cluster's loop has processed all data that it has received so far.

        In the loop's own thread, this does nothing.
        """
        if not self.is_inside:
            self.run_coroutine(_wait_some_turns)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            self.loop.call_exception_handler(
                {
                    "message": "a control of the embedded cluster failed",
                    "exception": task.exception(),
                }
            )

    # -- waiting ---------------------------------------------------------------------------

    def wait_for(self, predicate: Callable[[], T], timeout: float, watch: Watch) -> T:
        """Block until `predicate()` returns a true value, and return that value."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise IllegalStateError(
                "wait_for() would block the event loop of this thread. "
                "Instead, use `await cluster.until()`."
            )
        event = threading.Event()
        self.call_in_loop(lambda: watch.add_callback(event.set))
        try:
            deadline = time.monotonic() + timeout
            while not (value := predicate()):
                left = deadline - time.monotonic()
                if left <= 0:
                    raise KafkaTimeoutError(_TOO_LATE.format(timeout))
                event.wait(min(_AGAIN_S, left))
                event.clear()
            return value
        finally:
            self.post_to_loop(lambda: watch.remove_callback(event.set))

    async def until(self, predicate: Callable[[], T], timeout: float, watch: Watch) -> T:
        """Wait in any event loop until `predicate()` returns a true value, and return the value."""
        here, event = asyncio.get_running_loop(), asyncio.Event()

        def on_change() -> None:
            if here is self._loop:
                event.set()
            else:
                here.call_soon_threadsafe(event.set)

        self.call_in_loop(lambda: watch.add_callback(on_change))
        try:
            deadline = here.time() + timeout
            while not (value := predicate()):
                left = deadline - here.time()
                if left <= 0:
                    raise KafkaTimeoutError(_TOO_LATE.format(timeout))
                waker = here.call_later(min(_AGAIN_S, left), event.set)
                try:
                    await event.wait()
                finally:
                    waker.cancel()
                event.clear()
            return value
        finally:
            self.post_to_loop(lambda: watch.remove_callback(on_change))


class Watch:
    """Callbacks for all changes of the cluster's state."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[], None]] = []

    def add_callback(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def remove_callback(self, callback: Callable[[], None]) -> None:
        self._callbacks.remove(callback)

    def call_callbacks(self) -> None:
        if self._callbacks:
            for callback in list(self._callbacks):
                callback()


async def _wait_some_turns() -> None:
    """Wait for as many loop iterations as a connection takes to be read or closed."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)


def _wait_for_result(future: concurrent.futures.Future[T]) -> T:
    try:
        return future.result(_PATIENCE_S)
    except concurrent.futures.TimeoutError:
        if future.done():
            raise
        raise KafkaTimeoutError(
            f"The event loop of the embedded cluster did not respond for {_PATIENCE_S:.0f} s."
        ) from None
