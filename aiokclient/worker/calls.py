"""The calls of a worker's handler.

Each call is a task of its own. A task is cancelled when its record takes longer than the timeout,
when its partition is lost or is not released in time, and at the end of the run. Whatever the
handler does after that is no success. A handler that goes on for `STUCK_S` after its cancellation
is *stuck*: its lane stays closed, and the run raises HandlerStuckError at its end.

A synchronous handler is called in a thread, which nothing can cancel. Its task waits for the thread
all the same, so that it is stuck after `STUCK_S`, too.
"""

from __future__ import annotations

import asyncio
import math
import sys
import threading
from collections.abc import Sequence
from contextvars import ContextVar, copy_context
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final

from aiokclient.background import ended
from aiokclient.clock import get_loop_clock
from aiokclient.errors import KafkaError, RecordError
from aiokclient.metrics import UNCOUNTED
from aiokclient.threads import DaemonThreads
from aiokclient.worker.outbox import ignore_failures
from aiokclient.worker.retry import BatchError, UnpreparedError, join_errors
from aiokclient.worker.stacks import format_task

if TYPE_CHECKING:
    from aiokclient.consumer import Consumer
    from aiokclient.log.client_log import ClientLog
    from aiokclient.share.share_consumer import ShareConsumer
    from aiokclient.worker.lanes import Run
    from aiokclient.worker.metrics import WorkerMetrics
    from aiokclient.worker.options import Handler, WorkerOptions
    from aiokclient.worker.run import WorkerRun
    from aiokclient.worker.share_run import ShareRun
    from aiokclient.worker.worker import Worker

NOT_YET: Final = object()
"""The answer that a record must be prepared before it is deserialized, or that it is a list."""
PREPARING_S: Final = 5.0
"""Seconds for which a call waits for a schema registry. After it, the record waits in its lane."""
STUCK_S: Final = 5.0
"""Seconds that a cancelled handler may take to end, unless the run ends earlier."""
EAGER: Final = sys.version_info >= (3, 12)
"""Whether the task of a call begins within `begin_call`.

A handler that waits for nothing then costs no iteration of the event loop.
"""

current_run: ContextVar[tuple[WorkerRun | ShareRun, Run] | None] = ContextVar(
    "aiokclient_worker_run", default=None
)
"""The run of the handler that is called in this context, also in tasks that it has started."""


class HandlerCalls:
    """The calls of the handler that have begun and not ended, in one run of a worker."""

    def __init__(
        self,
        owner: WorkerRun | ShareRun,
        worker: Worker,
        consumer: Consumer[Any, Any] | ShareConsumer[Any, Any],
        handler: Handler,
        options: WorkerOptions,
        log: ClientLog,
        metrics: WorkerMetrics,
    ) -> None:
        self._owner = owner
        self._metrics = metrics
        self._worker = worker
        self._handler = handler
        self._consumer = consumer
        self._deserializers = consumer._deserializers
        self._reader = consumer._running.reader
        self._timeout_s = options.timeout_s
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._time = get_loop_clock()
        # Lists to which each call appends; see `Spread.uncounted`.
        self._count = metrics.runs
        self._waits = metrics.in_lane.uncounted
        self._durations = metrics.in_handler.uncounted
        deserializers = consumer._deserializers
        self._name = f"{worker.name} handler"
        self._is_raw = not (deserializers or deserializers.views)
        """Whether the handler gets records as they were fetched."""
        self.began: dict[Run, float] = {}
        """The runs whose call has not ended, with the time at which it began."""
        self._prepared_at: dict[Run, float] = {}
        """The time at which the records of a run were deserialized, if they may have to wait for a
        schema registry; infinite until then.
        """
        self.stuck: dict[Run, str] = {}
        """The runs whose handlers do not end, with a text that says where."""
        self._threads: DaemonThreads | None = None
        if handler.is_blocking:
            self._threads = DaemonThreads(f"{worker.name}-handler", options.concurrency)

    def __len__(self) -> int:
        return len(self.began)

    def close(self) -> None:
        """End the threads that make no call at present."""
        if self._threads is not None:
            self._threads.close()

    def begin_call(self, run: Run, now: float) -> None:
        """Call the handler for a run. It may have ended when this returns. Synchronous."""
        run.begin_call(now)
        self._waits.append(now - run.taken_at)
        self.began[run] = now
        task: asyncio.Task[None]
        if EAGER:
            task = asyncio.Task(  # type: ignore[call-arg]
                self._perform(run), loop=self._loop, name=self._name, eager_start=True
            )
            if task.done():
                return
        else:
            # A name, because asyncio would make one for each task.
            task = asyncio.Task(self._perform(run), loop=self._loop, name=self._name)
        run.set_task(task)
        if run.is_cancelled:
            task.cancel()
        if self._timeout_s is not None:
            timer = self._loop.call_at(now + self._timeout_s, self._on_timeout, run, now)
            run.set_timer(timer)

    async def _perform(self, run: Run) -> None:
        """Call the handler of a run, and wait for what it has sent."""
        current_run.set((self._owner, run))
        traced = self._consumer._begin_run(run, self._owner)
        failure: BaseException | None = None
        unreadable: dict[Any, BaseException] | None = None
        try:
            if self._is_raw:
                given = run.record if run.entries is None else run.copy_records()
            else:
                given = self._deserialize_now(run)
                if given is NOT_YET:
                    self._prepared_at[run] = math.inf
                    unreadable = {}
                    given = await self._deserialize_records(run, unreadable)
                    self._prepared_at[run] = self._loop.time()
            if given is not None:
                handler = self._handler
                if handler.is_blocking:
                    arguments = (given, self._worker) if handler.takes_worker else (given,)
                    result = await self._call_in_thread(run, arguments)
                    if isawaitable(result):
                        await result
                elif handler.takes_worker:
                    await handler.call(given, self._worker)
                else:
                    await handler.call(given)
                if run.sends is not None:
                    await self._wait_for_sends(run)
        except (KeyboardInterrupt, SystemExit):
            self._owner.on_interrupt(run)
            raise
        except BaseException as error:
            failure = error
        if run.sends is not None and isinstance(failure, BatchError):
            # The other records are done, so that what was sent for them must be acknowledged.
            failure = await self._wait_for_sends_of(run, failure)
        if unreadable:
            failure = join_errors(run.list_records(), failure, unreadable)
        if traced is not None:
            traced.end_run(failure)
        now = self._time()
        durations = self._durations
        durations.append(now - run.began)
        self._count.value += 1
        if len(durations) >= UNCOUNTED:
            self._metrics.count_calls()
        # Not within the blocks above: the next handler may be called here, and its exceptions must
        # not have this one as their context.
        if failure is None:
            self._owner.on_success(run, now)
        else:
            if run.sends is not None:
                ignore_failures(run.sends)
            self._owner.on_failure(run, failure)
            del failure  # Otherwise its traceback and this frame would refer to each other.

    def _deserialize_now(self, run: Run) -> Any:
        """Return the record for the handler, None to skip it, or NOT_YET if it cannot be told now.

        Raises RecordError.
        """
        if run.entries is not None or self._deserializers.can_wait:
            return NOT_YET
        return self._deserializers.deserialize_bytes(run.record)

    async def _deserialize_records(self, run: Run, unreadable: dict[Any, BaseException]) -> Any:
        """Return the record or the list for the handler; None if all of it is skipped.

        Records of a list that cannot be deserialized are added to `unreadable`. Raises
        UnpreparedError while a schema registry cannot be reached, which is no fault of a record,
        and RecordError for a single record.
        """
        found = []
        for _, raw in run.list_records():
            try:
                if self._deserializers.can_wait:
                    record = await self._reader.deserialize_later(raw, PREPARING_S)
                else:
                    record = self._deserializers.deserialize_bytes(raw)
            except RecordError as error:
                if run.entries is None:
                    raise
                unreadable[raw] = error
            except KafkaError as error:
                raise UnpreparedError(f"Records cannot be deserialized now: {error}") from error
            else:
                if record is not None:
                    found.append(record)
        if run.entries is not None:
            return found or None
        return found[0] if found else None

    async def _call_in_thread(self, run: Run, arguments: Sequence[Any]) -> Any:
        """Call a synchronous handler in a thread. A call that has begun cannot be cancelled."""
        assert self._threads is not None
        call = self._threads.submit(
            copy_context().run, self._call_here, run, self._handler.call, arguments
        )
        future = asyncio.wrap_future(call)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if call.cancel() or future.done():
                raise
            await ended(future)
            raise
        finally:
            run.set_thread(None)

    def _call_here(self, run: Run, function: Any, arguments: Sequence[Any]) -> Any:
        run.set_thread(threading.get_ident())
        return function(*arguments)

    async def _wait_for_sends(self, run: Run) -> None:
        """Wait until what the handler has sent is acknowledged. Raises the first error."""
        assert run.sends is not None
        for sent in run.sends:
            # What was sent from a thread is a future of threads.
            await (sent if isawaitable(sent) else asyncio.wrap_future(sent))

    async def _wait_for_sends_of(self, run: Run, failure: BatchError) -> BaseException:
        """Wait for what a batch has sent that failed in part; return the error of the call."""
        try:
            await self._wait_for_sends(run)
        except BaseException as error:
            return error
        return failure

    def end_call(self, run: Run) -> None:
        """Record that a call has ended."""
        del self.began[run]
        if run.timer is not None:
            run.set_timer(None)
        # The task's context refers to the run. Without this, garbage collection would have to find
        # each run, which takes as long as all other work for it.
        if run.task is not None:
            run.set_task(None)
        if self.stuck:
            self.stuck.pop(run, None)
        if self._prepared_at:
            self._prepared_at.pop(run, None)

    def cancel_call(self, run: Run) -> None:
        """Cancel the task of a run, which may also write. Its records are not done."""
        run.mark_cancelled()
        if run.task is not None:
            run.task.cancel()
        if run in self.began:
            self._loop.call_later(STUCK_S, self._on_late_end, run, run.began)

    def _on_timeout(self, run: Run, began: float) -> None:
        if self.began.get(run) != began or run.is_cancelled:
            return
        assert self._timeout_s is not None
        now = self._loop.time()
        # The time of a schema registry is not that of the handler.
        due = min(self._prepared_at.get(run, began), now) + self._timeout_s
        if due > now:
            run.set_timer(self._loop.call_at(due, self._on_timeout, run, began))
            return
        run.mark_timed_out()
        run.task.cancel()
        self._loop.call_later(STUCK_S, self._on_late_end, run, began)

    def _on_late_end(self, run: Run, began: float) -> None:
        """Handle a call that goes on although it was cancelled STUCK_S ago."""
        if self.began.get(run) != began:
            return
        self.mark_stuck(run)
        if run.is_cancelled:
            self._owner.return_run(run)

    def mark_stuck(self, run: Run) -> None:
        """Record, and log, that the handler of a run does not end."""
        if run in self.stuck:
            return
        stack = format_task(run.task, run.thread_id)
        self.stuck[run] = f"the handler of {run.place} goes on although it was cancelled:\n{stack}"
        self._log.error(
            "The handler of %s goes on although it was cancelled. Its lane stays closed:\n%s",
            run.place,
            stack,
            extra={"event": "worker_handler_stuck", "topic": run.record.topic},
        )
