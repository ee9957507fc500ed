"""One run of a worker over a share consumer: the handlers of a queue, whose records have locks.

    read_records ──▶ ready ──▶ handler ──▶ accept
         ▲             ▲          │ error
         │ room        │          ▼
         └─────────────┴── again, dead letter, reject, or the end of the run

The consumer holds each record and renews its lock until the record is settled: while it is ready,
while its handler runs, and during the backoff of a retry in place. A record is in exactly one of
the collections `_ready`, `calls.began`, `_waiting` (for its backoff), and `writing`, from its
delivery until it is settled or its lock is lost:

    end                                                        settlement
    the handler returned, and its sends are acknowledged       accept
    the dead letter is acknowledged                            accept
    `Reject` without dead letters, or `on_giving_up="skip"`    reject
    given up, so that the run ends with the exception          release
    not begun, or cancelled, when the run ends                 release
    the handler has settled it, or its lock was lost           none

There are no lanes, because a share group keeps no order.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any

from aiokclient.background import new_task
from aiokclient.errors import CorruptBatchError, IllegalStateError, KafkaError, RecordError
from aiokclient.share.delivery.record import ShareRecord
from aiokclient.share.locks import AcknowledgeType
from aiokclient.types import ConsumerRecord
from aiokclient.worker.calls import NOT_YET, HandlerCalls
from aiokclient.worker.dead_letters import dead_letter_of
from aiokclient.worker.health import WorkerHealth, describe_share_health
from aiokclient.worker.lanes import Run
from aiokclient.worker.retry import Failure, Outcome, Reject, Verdict, choose_outcome, describe_end
from aiokclient.worker.run import HandlerRun

if TYPE_CHECKING:
    from aiokclient.share.locks import Reason
    from aiokclient.share.share_consumer import ShareConsumer
    from aiokclient.worker.options import Handler, WorkerOptions
    from aiokclient.worker.outbox import Outbox
    from aiokclient.worker.worker import Worker


class ShareCalls(HandlerCalls):
    """The calls of a handler of share records, which it gets deserialized and with their locks."""

    _reader: Any

    def begin_call(self, run: Run, now: float) -> None:
        run.is_running = True
        super().begin_call(run, now)

    def end_call(self, run: Run) -> None:
        run.is_running = False
        super().end_call(run)

    def _deserialize_now(self, run: Run) -> Any:
        made = super()._deserialize_now(run)
        return made if made is NOT_YET else self._reader.lock_deserialized(run.record, made)

    async def _deserialize_records(self, run: Run, unreadable: dict[Any, BaseException]) -> Any:
        made = await super()._deserialize_records(run, unreadable)
        return self._reader.lock_deserialized(run.record, made)


class LockScope:
    """The tie of a lock to its run, as that of `processing`: it is told when the lock is lost."""

    __slots__ = ("_owner", "_run")

    def __init__(self, owner: ShareRun, run: Run) -> None:
        self._owner = owner
        self._run = run

    def on_lost(self, reason: Reason) -> None:
        """End the run of the record, because its lock was lost. Synchronous."""
        self._owner.on_lost(self._run, reason)


class ShareRun(HandlerRun):
    """One run of a worker over a share consumer, which settles each record on its own."""

    def __init__(
        self,
        worker: Worker,
        consumer: ShareConsumer[Any, Any],
        handler: Handler,
        options: WorkerOptions,
        outbox: Outbox,
    ) -> None:
        super().__init__(worker, consumer, handler, options, outbox)
        engine = consumer._running
        self._reader, self._settlements = engine.reader, engine.settlements
        self.calls = ShareCalls(self, worker, consumer, handler, options, self._log, self.metrics)
        self.held: dict[Run, None] = {}
        """The runs whose records are held, in the order of their delivery."""
        self._ready: deque[Run] = deque()
        self._waiting: dict[Run, asyncio.TimerHandle] = {}

    # -- the run

    def _join_consumer(self) -> None:
        self._reader.read_raw(True)

    def _leave_consumer(self) -> None:
        self._reader.read_raw(False)

    def _stop_reading(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        for run in [*self._ready, *self._waiting]:
            self.return_run(run)

    def _return_rest(self) -> None:
        for run in list(self.held):
            self.return_run(run)

    async def _settle_rest(self, timeout_s: float) -> None:
        await self._settlements.wait_until_drained(timeout_s)

    # -- reading

    async def _read_records(self) -> None:
        # A handler that is called here may begin the drain.
        while not (self._reader.stopped or self.is_draining):
            room = self._count_room()
            if room <= 0:
                await self._reader.wait_for_room()
                continue
            try:
                records = await self._reader.read_records(
                    room, tracked=True, places=self._settlements.count_held() + room
                )
            except CorruptBatchError as error:
                text = "A batch of records is passed over: %s"
                self._log.warning(text, error, extra={"event": "worker_batch_passed_over"})
                continue
            self._accept_records(records)

    def _count_room(self) -> int:
        """Return how many more records may be held."""
        places = self._options.concurrency - len(self.calls) - len(self._ready)
        return min(places, self._options.max_ahead - len(self.held))

    def _accept_records(self, records: list[ShareRecord[Any, Any]]) -> None:
        now = self._time()
        for record in records:
            run = Run(None, record, now)
            self.held[run] = None
            self._settlements.add_scope(record, LockScope(self, run))
            self._ready.append(run)
        self._dispatch_runs()

    def _dispatch_runs(self) -> None:
        """Call the handler for as many records as possible. Synchronous."""
        if self._dispatching:
            return  # A handler that waits for nothing has ended within the call below.
        self._dispatching = True
        try:
            while self._ready and len(self.calls) < self._options.concurrency:
                self.calls.begin_call(self._ready.popleft(), self._time())
        except Exception as error:
            self.fail(error)
        finally:
            self._dispatching = False
        self._reader.on_settled()  # There may be room, although nothing was settled.

    # -- the end of a call

    def on_success(self, run: Run, now: float) -> None:
        """Handle the end of a call without an exception."""
        if run.is_cancelled or run.is_timed_out:
            # The handler has ignored its cancellation. Whether it did its work is unknown.
            self.on_failure(run, asyncio.CancelledError())
            return
        self.calls.end_call(run)
        self._end_run(run, AcknowledgeType.ACCEPT)

    def return_run(self, run: Run) -> None:
        # Only here, because it takes long, and the records of most runs are not returned.
        if run in self._ready:
            self._ready.remove(run)
        self._end_run(run, AcknowledgeType.RELEASE)

    def on_lost(self, run: Run, reason: Reason) -> None:
        """Cancel the handler of a record whose lock was lost, and report the loss. Synchronous."""
        if run not in self.held:
            return
        record = run.record
        error = self._settlements.take_lost_error(record, reason)
        self._settlements.report_lost(record, error)
        if run in self.calls.began or run in self.writing:
            self.calls.cancel_call(run)
        else:
            self.return_run(run)

    def _end_run(self, run: Run, kind: AcknowledgeType) -> None:
        """Settle the record of a run, unless it is settled or lost. Synchronous, and idempotent."""
        if run in self.held:
            del self.held[run]
            if (timer := self._waiting.pop(run, None)) is not None:
                timer.cancel()
            self._settlements.remove_scope(run.record)
            self._settlements.end_handling(run.record, kind)
        self._continue_after_run()

    def _continue_after_run(self) -> None:
        if not self.is_draining:
            self._dispatch_runs()
        elif not self.calls and not self.writing:
            self._wake_finish()

    # -- failures

    def on_failure(self, run: Run, error: BaseException) -> None:
        """Handle the exception of a call."""
        self.calls.end_call(run)
        if run.is_cancelled:
            self._end_run(run, AcknowledgeType.RELEASE)
            return
        if run.is_timed_out:
            error = TimeoutError(f"The handler took longer than {self._options.timeout_s:g} s.")
        self.metrics.on_failure(error)
        retry, now = self._options.retry, self._time()
        if retry.is_outage(error):
            run.count_outage({run.record: error}, now)
        else:
            run.count_failure({run.record: error}, now)
        if not self._settlements.is_held(run.record):
            self._log_end(run, error, "was settled by the handler")
            self._end_run(run, AcknowledgeType.RELEASE)
            return
        self._follow_verdict(run, error, self._choose_outcome(run, error))

    def _choose_outcome(self, run: Run, error: BaseException) -> Verdict:
        options = self._options
        return choose_outcome(
            error,
            self.count_attempts(run, run.record),
            run.outages - 1,
            options.retry,
            self._clock.rng,
            has_dead_letters=options.dead_letter is not None,
            # A rejection is a decision of the handler, and Kafka has one for it.
            skips=options.skips or isinstance(error, Reject),
        )

    def count_attempts(self, run: Run, record: ConsumerRecord[Any, Any]) -> int:
        """Return the number of runs of a record, with one for each earlier delivery."""
        assert isinstance(record, ShareRecord)
        return run.attempts + record.delivery_count - 1

    def _follow_verdict(self, run: Run, error: BaseException, verdict: Verdict) -> None:
        if verdict.outcome is Outcome.AGAIN:
            self._hold_run(run, error, verdict.delay_s)
        elif verdict.outcome is Outcome.DEAD_LETTER:
            self._log_end(run, error, "is sent to the dead letters")
            task = new_task(self._loop, self._write_letter(run, error))
            self.writing[run] = task
            run.set_task(task)
            self._continue_after_run()
        elif verdict.outcome is Outcome.SKIP:
            self._log_end(run, error, "is rejected")
            self._end_run(run, AcknowledgeType.REJECT)
        else:
            number = self.count_attempts(run, run.record)
            if not isinstance(error, RecordError):
                error.add_note(f"The handler of {run.place} failed in run {number}.")
            self._log_end(run, error, "ends the worker")
            self.fail(error)
            self._end_run(run, AcknowledgeType.RELEASE)

    def _hold_run(self, run: Run, error: BaseException, delay_s: float) -> None:
        """Let a record wait for its next run. Its lock is renewed meanwhile."""
        if self.is_draining:
            self._end_run(run, AcknowledgeType.RELEASE)
            return
        record = run.record
        self._limited_log.write(
            logging.WARNING,
            (record.topic, record.partition, type(error)),
            "The handler of %s failed, and runs again in %.1f s: %r",
            run.place,
            delay_s,
            error,
            extra={"event": "worker_record_failed", "topic": record.topic},
        )
        self.metrics.on_retry(1)
        self._waiting[run] = self._loop.call_later(delay_s, self._repeat_run, run)
        self._continue_after_run()

    def _repeat_run(self, run: Run) -> None:
        del self._waiting[run]
        self._ready.append(run)
        self._dispatch_runs()

    def _log_end(self, run: Run, error: BaseException, what: str) -> None:
        self._log.warning(
            "%s",
            describe_end(run.place, self.count_attempts(run, run.record), error, what),
            extra={"event": "worker_record_failed", "topic": run.record.topic},
            exc_info=None if isinstance(error, KafkaError) else error,
        )

    async def _write_letter(self, run: Run, error: BaseException) -> None:
        """Write the dead letter of a record, and accept the record when it is acknowledged."""
        failure: BaseException | None = None
        try:
            letters, record = self._options.dead_letter, run.record
            assert letters is not None
            attempts, group_id = self.count_attempts(run, record), self.consumer._config.group_id
            reason = Failure(error, attempts, self._clock.time_ms(), group_id)
            async with self.outbox.begin_write(letters.topic) as write:
                count = await write.count_partitions()
                await write.send_letter(dead_letter_of(record, reason, letters, count))
            self.metrics.on_given_up(Outcome.DEAD_LETTER)
        except BaseException as raised:
            failure = raised
        del self.writing[run]
        if failure is None:
            self._end_run(run, AcknowledgeType.ACCEPT)
            return
        if not isinstance(failure, asyncio.CancelledError):
            self.fail(failure)
        elif not run.is_cancelled and not self.is_draining:
            self.fail(IllegalStateError("A write of a worker was cancelled from outside."))
        self._end_run(run, AcknowledgeType.RELEASE)
        del failure  # Otherwise its traceback and this frame would refer to each other.

    # -- health

    @property
    def retries_waiting(self) -> int:
        """The number of records that wait for their next run."""
        return len(self._waiting)

    @property
    def ready_waiting(self) -> int:
        """The number of records that wait for a place in `concurrency`."""
        return len(self._ready)

    def describe_health(self, name: str) -> WorkerHealth:
        """Return the health of this run."""
        return describe_share_health(self, name)
