"""The public worker, `Worker`."""

from __future__ import annotations

import asyncio
import concurrent.futures
import signal
import threading
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from aiokclient.background import ended, new_task
from aiokclient.errors import IllegalStateError
from aiokclient.log.client_log import ClientLog
from aiokclient.share.share_consumer import ShareConsumer
from aiokclient.types import Headers, ProducerRecord, State, TopicPartition, public_in, seconds
from aiokclient.worker.calls import current_run
from aiokclient.worker.health import WorkerHealth
from aiokclient.worker.lanes import Order
from aiokclient.worker.options import Handler, check_options
from aiokclient.worker.outbox import Outbox
from aiokclient.worker.retry import Batch, Retry
from aiokclient.worker.run import WorkerRun
from aiokclient.worker.share_run import ShareRun
from aiokclient.worker.signals import signal_watch
from aiokclient.worker.transactions import TransactionalRun

if TYPE_CHECKING:
    from aiokclient.consumer import Consumer
    from aiokclient.producer import Delivery, Producer
    from aiokclient.share.delivery.record import ShareHandle
    from aiokclient.types import Handle, RecordMetadata
    from aiokclient.worker.dead_letters import DeadLetter

K = TypeVar("K")
V = TypeVar("V")


@public_in("aiokclient.worker")
class Worker:
    """Calls a handler for each record of a consumer, at least once, with many calls at a time.

        async def handle(record): ...

        worker = Worker(Consumer("orders", group_id="billing"), handle, concurrency=50)
        await worker.run()

    A record is done when its handler has returned and what it has sent by `worker.send` is
    acknowledged, or when its retry record or dead letter is. The commit of a partition is its
    lowest record that is not done. After a cancellation, a timeout, or an exception, a record is
    not done. When a worker was killed, the records that were not committed are handled again.

    `handle(record)` is a coroutine function, or a function, which runs in a thread. If it has a
    second required parameter, it gets the worker, too. With `batch`, it gets a list of records.

    - `concurrency` is the largest number of calls at a time in this process.
    - `order`: "partition", the default, handles one record of a partition at a time, in order;
      "key" one of a key (records without a key in any order); None in any order. A record that is
      retried in place holds back the later ones of its partition, or of its key.
    - `retry` says which exceptions are retried, how often, and where. See `Retry`.
    - `dead_letter` is the topic for records that are given up: its name, or a `DeadLetter`. Without
      it, giving up ends the worker with the handler's exception, or, with `on_giving_up="skip"`,
      skips the record and logs it.
    - `timeout` in seconds cancels a call, which counts as a failure (TimeoutError). A call in a
      thread cannot be cancelled, so that its lane stays closed until it returns.
    - `batch` is a `Batch`. An exception of the handler fails all records of a list, and
      `BatchError` only those that it names.
    - `max_ahead` is the largest number of offsets by which a record that a handler gets may be
      above the lowest record of its partition that is not done.
    - `producer` is the producer of `send`. Without it, one is made on the consumer's client when
      it is needed.
    - `drain_timeout` is the longest time, in seconds, for which a stop waits for handlers.
    - `signals`: None handles SIGTERM and SIGINT in the main thread where they have their default
      action; False handles none; a sequence of signals handles these. The first signal drains, the
      second cancels.
    - `name` stands in logs and metrics; by default it is the group.

    Over a `ShareConsumer`, `order` is None, and there are no batches, retry topics, and
    transactions. A record is accepted when it is done, and is held, with its lock renewed, while it
    waits for a retry. Its earlier deliveries count as runs. `Reject` and `on_giving_up="skip"`
    reject a record without `dead_letter`, so that it goes to the dead letter topic of the group if
    there is one. `max_ahead` is the largest number of held records. A handler whose lock is lost is
    cancelled, and the loss is reported to `on_acknowledge_error`.

    Raises ValueError or TypeError for an argument that is not allowed, and ConfigError for a
    backoff that the group would take for a program that hangs, and for retry topics in transactions
    with a consumer that is not `isolation_level="read_committed"`.
    """

    def __init__(
        self,
        consumer: Consumer[K, V] | ShareConsumer[K, V],
        handle: Handle[K, V, Worker] | ShareHandle[K, V, Worker],
        *,
        concurrency: int = 50,
        order: Order | Literal["default"] = "default",
        retry: Retry | None = None,
        dead_letter: DeadLetter | str | None = None,
        timeout: float | None = None,
        batch: Batch | None = None,
        max_ahead: int = 10_000,
        on_giving_up: str = "stop",
        producer: Producer[Any, Any] | None = None,
        drain_timeout: float = 20.0,
        signals: Sequence[signal.Signals] | bool | None = None,
        name: str | None = None,
    ) -> None:
        self._options = check_options(
            consumer,
            concurrency=concurrency,
            order=order,
            retry=retry,
            dead_letter=dead_letter,
            timeout=timeout,
            batch=batch,
            max_ahead=max_ahead,
            on_giving_up=on_giving_up,
            producer=producer,
            drain_timeout=drain_timeout,
            signals=signals,
        )
        self._handler = Handler.of(handle)
        self._consumer = consumer
        self.name: str = name or consumer._config.group_id or "worker"
        """The name that was given, or the group of the consumer."""
        self._run: WorkerRun | ShareRun | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._outcome: asyncio.Future[None] | None = None
        """The end of the present call of `run`, or None if there is none."""
        self._drain_within_s: float | None = None
        """The time that `stop` or `drain` gave before a run could begin to drain, or None."""
        self._failure: BaseException | None = None
        self._signalled = False
        self._starting: asyncio.Timeout | None = None
        """The scope of a step of the start, which a stop ends; None if there is none."""

    def __repr__(self) -> str:
        return f"<Worker {self.name}>"

    # -- the run

    async def run(self) -> None:
        """Handle records until the worker is stopped, or fails.

        A consumer or producer that is not started is started, and is closed at the end. Returns
        after `stop`, `drain`, a signal, or `consumer.stop()`. Raises the exception of the first
        record that is given up without a dead letter, the errors of reading, the error of a dead
        letter that could not be written within `delivery_timeout_ms`, and HandlerStuckError if a
        handler goes on although it was cancelled. IllegalStateError means that it already runs.

        A cancellation cancels the handlers; when they have ended, for at most a few seconds, and
        what is done is committed, the cancellation is raised. What was not done is handled again by
        the next run.
        """
        if self._outcome is not None:
            raise IllegalStateError(f"The worker {self.name} already runs.")
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._outcome, self._failure = self._loop.create_future(), None
        self._signalled = False
        owns_consumer = self._consumer.state is State.NEW
        remove_listener = self._consumer._add_end_listener(self._end_step)
        try:
            if not owns_consumer or await self._start_step(self._consumer.start()):
                await self._run_once()
        except BaseException as error:
            self._failure = error
            raise
        finally:
            remove_listener()
            self._drain_within_s = None
            outcome, self._outcome = self._outcome, None
            try:
                if owns_consumer:
                    await self._consumer.close()
            finally:
                outcome.set_result(None)

    async def _run_once(self) -> None:
        outbox = Outbox(self._consumer, self._options.producer)
        run = self._run = self._make_run(outbox)
        assert self._loop is not None
        finishing: asyncio.Task[None] | None = None
        name = f"{self.name} finishing"
        try:
            signal_watch.add_worker(self, self._options.signals)
            is_open = await self._start_step(run.open())
            if self._drain_within_s is not None:
                run.begin_drain(self._drain_within_s)
            elif not is_open:  # The consumer was stopped, or has ended.
                failure = self._consumer._get_failure(raised=True)
                if failure is not None:
                    run.fail(failure)
                run.begin_drain(self._options.drain_timeout_s)
            await run.wait_until_stopped()
            finishing = new_task(self._loop, run.finish(), name=name)
            # Not `ended`: a cancellation must not wait until a drain is over.
            await asyncio.wait([finishing])
        except BaseException:
            run.begin_drain(0.0)
            raise
        finally:
            if finishing is None:
                finishing = new_task(self._loop, run.finish(), name=name)
            await ended(finishing)
            signal_watch.remove_worker(self)
            self._run = None
        finishing.result()
        error = run.take_outcome()
        if error is not None:
            raise error

    def _make_run(self, outbox: Outbox) -> WorkerRun | ShareRun:
        consumer, handler, options = self._consumer, self._handler, self._options
        if isinstance(consumer, ShareConsumer):
            return ShareRun(self, consumer, handler, options, outbox)
        kind = TransactionalRun if options.is_transactional else WorkerRun
        return kind(self, consumer, handler, options, outbox)

    async def _start_step(self, step: Awaitable[object]) -> bool:
        """Await a step of the start; return False if a stop, or the consumer's end, has ended it.

        Without brokers, a step takes `default_api_timeout_ms`, and so would the stop.
        """
        assert self._loop is not None
        is_stopped = self._drain_within_s is not None or self._consumer._stopped
        scope = asyncio.timeout_at(self._loop.time() if is_stopped else None)
        try:
            async with scope:
                self._starting = None if is_stopped else scope
                await step
        except TimeoutError:
            if not scope.expired():
                raise
            return False
        finally:
            self._starting = None
        return True

    def _end_step(self) -> None:
        """End the step of the start that is in progress, if there is one. Synchronous."""
        scope, self._starting = self._starting, None  # It can be rescheduled only once.
        if scope is not None:
            assert self._loop is not None
            scope.reschedule(self._loop.time())

    def stop(self) -> None:
        """End the run: read nothing more, and wait for the handlers for `drain_timeout` seconds.

        Synchronous. It may be called at any time, from any thread. `run` then returns. If the
        worker does not run, its next run ends at once.
        """
        self._request_drain(self._options.drain_timeout_s)

    async def drain(self, timeout: float | None = None) -> None:
        """Do what `stop` does, and wait until `run` has ended.

        `timeout` in seconds replaces `drain_timeout`. Handlers that are not done by then are
        cancelled, and their records are handled again by the next run. Errors of the run are raised
        by `run`, not here. Raises IllegalStateError in a handler, which would wait for itself. A
        cancellation ends the wait only.
        """
        within_s = self._options.drain_timeout_s if timeout is None else seconds(timeout)
        entry = current_run.get()
        if entry is not None and entry[0] is self._run:
            raise IllegalStateError("A handler must not wait for its own end. Call stop().")
        outcome = self._outcome
        self._request_drain(within_s)
        if outcome is not None:
            await asyncio.wait([outcome])

    def _request_drain(self, within_s: float) -> None:
        if self._outcome is not None and threading.get_ident() != self._thread:
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self._begin_drain, within_s)
        else:
            self._begin_drain(within_s)

    def _begin_drain(self, within_s: float) -> None:
        self._drain_within_s = within_s
        self._end_step()
        if self._run is not None:
            self._run.begin_drain(within_s)

    def on_signal(self, number: signal.Signals) -> None:
        """Drain on the first signal, and cancel the handlers on the second. Synchronous."""
        again, self._signalled = self._signalled, True
        log = ClientLog.of("aiokclient.worker", self._consumer._config)
        log.warning(
            "The worker %s was signalled by %s and %s.",
            self.name,
            number.name,
            "cancels its handlers" if again else "drains",
            extra={"event": "worker_signalled"},
        )
        self._begin_drain(0.0 if again else self._options.drain_timeout_s)

    # -- in a handler

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> Delivery | asyncio.Future[RecordMetadata] | concurrent.futures.Future[RecordMetadata]:
        """Send a record; the record that is handled is done only when this is acknowledged.

        Synchronous. It is like `Producer.send`, and the delivery need not be awaited. If it fails,
        the call of the handler has failed. The worker prepares serializers for each topic, as
        `Producer.prepare` does. In a handler that runs in a thread, the result is like that of
        `Producer.send_threadsafe`. Raises IllegalStateError outside of a handler.
        """
        entry = current_run.get()
        if entry is None or entry[0] is not self._run or not entry[1].is_running:
            raise IllegalStateError(
                "worker.send() is for handlers, whose record waits for the acknowledgement. Use a "
                "Producer elsewhere."
            )
        record = ProducerRecord(topic, value, key, partition, timestamp, headers)
        delivery = entry[0].outbox.send_record(record)
        entry[1].add_send(delivery)
        return delivery

    # -- health

    def health(self) -> WorkerHealth:
        """Return whether the worker lives and is ready, and its progress. Synchronous."""
        if self._run is not None:
            return self._run.describe_health(self.name)
        failure = self._failure
        if failure is not None:
            reasons: tuple[str, ...] = (f"the worker has ended: {failure!r}",)
        elif self._outcome is not None:
            reasons = ("the worker starts or ends",)
        else:
            reasons = ("the worker does not run",)
        lag: dict[TopicPartition, int] = {}
        return WorkerHealth(self.name, failure is None, False, reasons, lag, None, 0, 0, 0, None)
