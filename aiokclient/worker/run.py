"""One run of a worker: it reads records, calls the handler, and decides what follows.

    take_records ──▶ lanes ──▶ handler ──▶ done ────────────────▶ the commit may pass the record
         ▲             ▲          │ error
         │ room        │          ▼
         └─────────────┴── again, retry topic, dead letter, skip, or the end of the run

The lanes (`lanes.py`) say which record may be handled next, and `retry.py` what follows an error.
The consumer knows which records are outstanding, and commits the lowest one that is not done. It is
told by `Intake.finish_record` and `Intake.return_records`, and by nothing else.

`calls.py` calls the handler, `health.py` describes a run to probes, and `outbox.py` writes.

A run ends by `begin_drain`: nothing more is read, and records whose handler has not begun are
returned to the consumer. Then `finish` waits for the handlers, cancels those that are late, and
commits.

`give_up_records` is where a failed record goes to a retry topic or to the dead letters.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from aiokclient.background import SLICE_S, WakeTimer, new_task
from aiokclient.clock import get_loop_clock
from aiokclient.consumer.delivery.intake import Intake, Taken
from aiokclient.errors import HandlerStuckError, IllegalStateError, KafkaError, RecordError
from aiokclient.log.client_log import ClientLog
from aiokclient.log.limited_log import LimitedLog
from aiokclient.types import ConsumerRecord
from aiokclient.worker.calls import EAGER, HandlerCalls
from aiokclient.worker.dead_letters import dead_letter_of, is_too_large, retry_record
from aiokclient.worker.health import WorkerHealth, describe_health
from aiokclient.worker.lanes import BatchLanes, FailingRuns, Run
from aiokclient.worker.metrics import WorkerMetrics, name_handler
from aiokclient.worker.options import Handler, WorkerOptions
from aiokclient.worker.retry import (
    BatchError,
    Failure,
    Outcome,
    Verdict,
    choose_outcome,
    describe_end,
)
from aiokclient.worker.retry_topics import WorkerTopics, make_lanes

if TYPE_CHECKING:
    from aiokclient.consumer import Consumer
    from aiokclient.consumer.state.partition import PartitionState
    from aiokclient.share.share_consumer import ShareConsumer
    from aiokclient.worker.outbox import Outbox
    from aiokclient.worker.worker import Worker

WRITTEN: Final = (Outcome.TOPIC, Outcome.DEAD_LETTER)
"""The outcomes of records that the worker writes to another topic."""
UNWINDING_S: Final = 1.0
"""The last seconds of a drain, which handlers that were cancelled have to end. Of a short drain it
is a tenth."""
SHORTEST_UNWINDING_S: Final = 0.25
LOOK_S: Final = 1.0
"""Seconds between two looks at records that have waited for long."""


class HandlerRun:
    """One run of a worker, from its start to its end. A subclass reads records and settles them.

    It has `calls`, and these methods: `_read`, `_stop_reading`, `return_run`, `_return_rest`,
    `_settle_rest`, and `_leave_consumer`.
    """

    calls: HandlerCalls

    def __init__(
        self,
        worker: Worker,
        consumer: Consumer[Any, Any] | ShareConsumer[Any, Any],
        handler: Handler,
        options: WorkerOptions,
        outbox: Outbox,
    ) -> None:
        self._worker = worker
        self.consumer: Any = consumer
        cluster = consumer._running.cluster
        self._handler = handler
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._time = get_loop_clock()
        self._clock = cluster.clock
        self._log = ClientLog.of("aiokclient.worker", consumer._config)
        self._limited_log = LimitedLog(self._log, self._clock)
        self.outbox = outbox
        self._topics = WorkerTopics(consumer, options.retry, options.dead_letter)
        self.metrics = WorkerMetrics(cluster.metrics, worker, name_handler(handler.call))
        self.writing: dict[Run, asyncio.Task[None]] = {}
        """The runs whose records are written to a retry topic or the dead letters."""
        self._stop_requested: asyncio.Future[None] = self._loop.create_future()
        self._idle: asyncio.Future[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._dispatching = False
        self.is_draining = False
        self.deadline = 0.0
        """The time, on the loop's clock, by which the run must end; valid while draining."""
        self._earliest_end = 0.0
        """The time up to which handlers that were cancelled may end, whatever a drain says."""
        self.error: BaseException | None = None
        """The error with which the run ends, or None."""

    async def open(self) -> None:
        """Start what the run needs, and begin to read."""
        # Without a client to share, a producer has connections of its own: only where it is likely
        # to be used, it is made before the first send.
        shares = self.consumer._client is not None
        await self.outbox.open(sends=self._handler.takes_worker or shares)
        await self._topics.open()
        self._join_consumer()
        self._reading = new_task(self._loop, self._read(), name=f"{self._worker.name} reading")

    async def wait_until_stopped(self) -> None:
        """Wait until the run is to end. A cancellation leaves the run as it is."""
        await asyncio.wait([self._stop_requested])

    def begin_drain(self, timeout: float) -> None:
        """Begin to end the run within `timeout` seconds. Synchronous, and idempotent.

        A second call can only shorten the time that is left.
        """
        deadline = max(self._time() + timeout, self._earliest_end)
        self.deadline = min(self.deadline, deadline) if self.is_draining else deadline
        if self.is_draining:
            self._wake_finish()
            return
        self.is_draining = True
        self._stop_reading()
        if not self._stop_requested.done():
            self._stop_requested.set_result(None)

    def fail(self, error: BaseException) -> None:
        """End the run with this error, unless it already ends with another one. Synchronous."""
        if self.error is None:
            self.error = error
        self.begin_drain(self._options.drain_timeout_s)

    async def finish(self) -> None:
        """End the run: wait for handlers, cancel those that are late, and settle what is done."""
        if self._reading is not None:
            self._reading.cancel()  # It has begun after `begin_drain` if that came during `open`.
            await asyncio.wait([self._reading])
        # The last part of the time is for handlers that are cancelled, and for what is done.
        await self._wait_until_idle(min(UNWINDING_S, self._options.drain_timeout_s / 10))
        for run in [*self.calls.began, *self.writing]:
            self.calls.cancel_call(run)
        self._earliest_end = self._time() + SHORTEST_UNWINDING_S
        self.deadline = max(self.deadline, self._earliest_end)
        await self._wait_until_idle(0.0)
        for run in list(self.calls.began):
            self.calls.mark_stuck(run)
        self._return_rest()
        try:
            await self._settle_rest(max(self.deadline - self._time(), UNWINDING_S))
        except KafkaError as error:
            text = "What was handled before the end of the worker could not be committed: %s"
            self._log.warning(text, error, extra={"event": "commit_failed"})
        finally:
            await self._close()

    async def _close(self) -> None:
        self.metrics.remove_values()
        self._leave_consumer()
        self._topics.close()
        self.calls.close()
        # All that a done record has sent is acknowledged.
        await self.outbox.close(max(self.deadline - self._time(), SHORTEST_UNWINDING_S))

    async def _wait_until_idle(self, before_s: float) -> None:
        """Wait until no handler runs and nothing is written, or until `before_s` are left."""
        while self.calls or self.writing:
            left_s = self.deadline - before_s - self._time()
            if left_s <= 0:
                return
            self._idle = self._loop.create_future()
            await asyncio.wait([self._idle], timeout=left_s)

    def _wake_finish(self) -> None:
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def take_outcome(self) -> BaseException | None:
        """Return the error with which the run has ended, or None."""
        if not self.calls.stuck:
            return self.error
        stuck = HandlerStuckError("\n".join(self.calls.stuck.values()))
        stuck.__cause__ = self.error
        return stuck

    async def _read(self) -> None:
        try:
            await self._read_records()
        except asyncio.CancelledError:
            if not self.is_draining:
                self.fail(IllegalStateError("The task by which a worker reads was cancelled."))
        except Exception as error:
            self.fail(error)
        else:
            self.begin_drain(self._options.drain_timeout_s)

    def on_interrupt(self, run: Run) -> None:
        """Handle a KeyboardInterrupt or SystemExit, which goes on to the event loop."""
        self.calls.end_call(run)
        self.return_run(run)
        self.begin_drain(0.0)

    def get_time(self) -> float:
        """Return the time on the loop's clock."""
        return self._time()

    # -- for subclasses

    def _join_consumer(self) -> None:
        """Let the consumer deliver records to this run. Synchronous."""
        raise NotImplementedError

    def _leave_consumer(self) -> None:
        """Let the consumer deliver records to the application again. Synchronous."""
        raise NotImplementedError

    async def _read_records(self) -> None:
        """Read records, and call the handler for them, until the consumer is stopped."""
        raise NotImplementedError

    def _stop_reading(self) -> None:
        """Read nothing more, and return the records whose handler has not begun."""
        raise NotImplementedError

    def return_run(self, run: Run) -> None:
        """Return the records of a run, which are delivered again."""
        raise NotImplementedError

    def _return_rest(self) -> None:
        """Return the records of all runs that have not ended."""
        raise NotImplementedError

    async def _settle_rest(self, timeout_s: float) -> None:
        """Wait until the brokers know what is done. Raises a KafkaError after the time."""
        raise NotImplementedError


class WorkerRun(HandlerRun):
    """One run of a worker over a consumer, which commits what is done."""

    def __init__(
        self,
        worker: Worker,
        consumer: Consumer[Any, Any],
        handler: Handler,
        options: WorkerOptions,
        outbox: Outbox,
    ) -> None:
        super().__init__(worker, consumer, handler, options, outbox)
        self._engine = engine = consumer._running
        self._deserializers = consumer._deserializers
        self.interval_s = consumer._config.max_poll_interval_ms / 1000
        self.lanes = make_lanes(options, self._topics, self._clock)
        self.calls = HandlerCalls(self, worker, consumer, handler, options, self._log, self.metrics)
        self.intake = Intake(
            engine,
            self,
            self.calls.began,
            options.max_ahead,
            as_lists=options.batch is not None,
        )
        self._in_progress = engine.in_progress
        self._is_dispatch_planned = False
        self._jumps: dict[PartitionState, int] = {}
        self._releases: dict[PartitionState, asyncio.TimerHandle] = {}
        """For partitions that are to be revoked, the timers that cancel their handlers."""
        self.paused: dict[PartitionState, None] = {}
        """The partitions that take no more records, because a record has waited for too long."""
        self.failing = FailingRuns()
        self._failing_runs = self.failing.runs
        self._timer = WakeTimer(self._loop, self._on_timer)
        self._look: asyncio.TimerHandle | None = None
        self._told_lanes = False

    # -- the run

    def _join_consumer(self) -> None:
        self.intake.open(self._on_change)
        self._on_change()
        self._plan_look()

    def _leave_consumer(self) -> None:
        self.intake.close(self._on_change)

    def _stop_reading(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        for partition in self.lanes.list_partitions():
            self._drop_partition(partition)

    def _return_rest(self) -> None:
        for run in [*self.calls.began, *self.writing]:
            self.return_run(run)
        self._timer.cancel()
        if self._look is not None:
            self._look.cancel()
        for timer in self._releases.values():
            timer.cancel()

    async def _settle_rest(self, timeout_s: float) -> None:
        await self.intake.commit_processed(timeout_s)

    # -- reading

    async def _read_records(self) -> None:
        while (taken := await self.intake.take_records()) is not None:
            self._accept_records(taken)
            if not self._is_dispatch_planned:
                self._dispatch_runs()

    def count_room(self, partition: PartitionState) -> int:
        """Return how many more records of a partition may be taken."""
        if self.is_draining or partition in self.paused:
            return 0
        return self.lanes.count_room(partition)

    def is_full(self) -> bool:
        """Return whether no record of any partition may be taken."""
        return self.lanes.is_full()

    def _accept_records(self, taken: Taken) -> None:
        now = self._time()
        for partition, records in taken:
            self._jumps.setdefault(partition, partition.jumps)
            self.lanes.add_records(partition, records, now)

    def _dispatch_runs(self) -> None:
        """Call the handler for as many records as possible. Synchronous."""
        if self._dispatching:
            return  # A handler that waits for nothing has ended within the call below.
        self._dispatching = True
        lanes = self.lanes
        try:
            now = self._time()
            until = now + SLICE_S
            while self._begin_ready(now, until):
                if self.is_draining or lanes.running >= self._options.concurrency:
                    break
                taken = self.intake.collect_records(lanes.take_freed())
                if not taken:
                    if self.intake.was_cut_short():
                        self._plan_dispatch()
                    break
                self._accept_records(taken)
                now = self._time()
                lanes.release_due(now)
        except Exception as error:
            self.fail(error)
        finally:
            self._dispatching = False
            due = lanes.find_next_due()
            if due is not None:
                self._timer.wake_at(due)

    def _begin_ready(self, now: float, until: float) -> bool:
        """Call the handler for the records that are ready, up to a time.

        Return False if the time is over. Then the others follow in the next iteration of the loop.
        """
        lanes, begin_call = self.lanes, self.calls.begin_call
        while (run := lanes.take_next(now)) is not None:
            begin_call(run, now)
            if EAGER and (now := self._time()) >= until:
                self._plan_dispatch()
                return False
        return True

    def _plan_dispatch(self) -> None:
        """Dispatch in the next iteration of the loop, once for all runs that end in this one."""
        if not self._is_dispatch_planned:
            self._is_dispatch_planned = True
            self._loop.call_soon(self._on_dispatch_due)

    def _on_dispatch_due(self) -> None:
        # Not in `_dispatch_runs`: if another caller forgot what is planned, there would soon be
        # many plans, each with a slice of its own in every iteration of the loop.
        self._is_dispatch_planned = False
        self._dispatch_runs()

    def _on_timer(self, due: float) -> None:
        self.lanes.release_due(max(self._time(), due))
        self._dispatch_runs()

    # -- the end of a call

    def on_success(self, run: Run, now: float) -> None:
        """Handle the end of a call without an exception."""
        if run.is_cancelled or run.is_timed_out:
            # The handler has ignored its cancellation. Whether it did its work is unknown.
            self.on_failure(run, asyncio.CancelledError())
            return
        self.calls.end_call(run)
        if run.entries is not None or self._failing_runs or self.paused or self.is_draining:
            self._finish_run(run)
            return
        # This is `_finish_run` for almost all records, with as few calls as possible.
        self._in_progress.mark_done(run.partition, run.record)
        self.lanes.finish_run(run)
        if self._dispatching or self._is_dispatch_planned:
            return
        following = self.lanes.take_next(now)
        if following is None:
            self._plan_dispatch()
            return
        self._dispatching = True
        try:
            self.calls.begin_call(following, now)
            # Otherwise the call has taken the only free place.
            if EAGER and (later := self._time()) < now + SLICE_S:
                self._begin_ready(later, now + SLICE_S)
            elif EAGER:
                self._plan_dispatch()
        except Exception as error:
            self.fail(error)
        finally:
            self._dispatching = False

    def _finish_run(self, run: Run) -> None:
        """Count all records of a run as done."""
        for partition, entry in run.list_entries():
            self.intake.finish_record(partition, entry)
        self.lanes.finish_run(run)
        self._on_run_end(run)

    def return_run(self, run: Run) -> None:
        """Return the records of a run to the consumer, which delivers them again."""
        for partition, entry in run.list_entries():
            self.intake.return_records(partition, [entry])

    def _give_back(self, run: Run) -> None:
        """End a run whose records are not done."""
        self.return_run(run)
        self.lanes.finish_run(run)
        self._on_run_end(run)

    def _on_run_end(self, run: Run) -> None:
        if self._failing_runs:
            self.failing.remove_run(run)
        if self.paused:
            self._update_paused()
        self._continue_after_run()

    def _continue_after_run(self) -> None:
        if self.is_draining:
            if not self.calls and not self.writing:
                self._wake_finish()
        elif not self._dispatching:
            self._plan_dispatch()

    # -- failures

    def on_failure(self, run: Run, error: BaseException) -> None:
        """Handle the exception of a call."""
        self.calls.end_call(run)
        if run.is_cancelled:
            self._give_back(run)
            return
        if run.is_timed_out:
            text = f"The handler took longer than {self._options.timeout_s:g} s."
            error = TimeoutError(text)
        self.metrics.on_failure(error)
        if run.entries is not None:
            run.divide_lists()
        if isinstance(error, BatchError) and run.entries is not None:
            errors = error.find_errors([record for _, record in run.entries])
            if error.errors and not errors:  # It names records of another list.
                errors = {record: error for _, record in run.entries}
            self._end_records(run, [entry for entry in run.entries if entry[1] not in errors])
            if not errors:
                self._finish_run(run)
                return
        else:
            errors = {record: error for _, record in run.list_records()}
        self._decide_failure(run, errors)

    def _end_records(self, run: Run, done: Sequence[tuple[Any, Any]]) -> None:
        """Count some records of a batch as done, but not all; the run has the others from now on.

        Does nothing if that leaves none.
        """
        ended = {id(record) for _, record in done}
        left = [entry for entry in run.list_records() if id(entry[1]) not in ended]
        if done and left:
            assert isinstance(self.lanes, BatchLanes)
            for partition, record in done:
                self.intake.finish_record(partition, record)
            self.lanes.finish_records(done)
            self.lanes.keep_records(run, left)

    def _decide_failure(self, run: Run, errors: Mapping[Any, BaseException]) -> None:
        """Do what follows a failed call: for each record what its error says."""
        retry = self._options.retry
        if outages := [each for each in errors.values() if retry.is_outage(each)]:
            # What is unavailable for one record of a batch is so for all.
            errors = dict.fromkeys(errors, outages[0])
            run.count_outage(errors, self._time())
        else:
            run.count_failure(errors, self._time())
        verdicts = {
            record: self._choose_outcome(run, record, error) for record, error in errors.items()
        }
        for record, verdict in verdicts.items():
            self._log_failure(run, record, errors[record], verdict)
            if verdict.outcome is Outcome.STOP:
                self.fail(errors[record])
        if any(verdict.outcome is Outcome.STOP for verdict in verdicts.values()):
            self._give_back(run)
        elif any(verdict.outcome in WRITTEN for verdict in verdicts.values()):
            self.lanes.free_place(run)
            task = new_task(self._loop, self._write_run(run, verdicts))
            self.writing[run] = task
            run.set_task(task)
            self._continue_after_run()
        else:
            self._continue_failed_run(run, verdicts)

    def _choose_outcome(
        self, run: Run, record: ConsumerRecord[Any, Any], error: BaseException
    ) -> Verdict:
        options = self._options
        return choose_outcome(
            error,
            self.count_attempts(run, record),
            run.outages - 1,
            options.retry,
            self._clock.rng,
            has_dead_letters=options.dead_letter is not None,
            skips=options.skips,
        )

    def count_attempts(self, run: Run, record: ConsumerRecord[Any, Any]) -> int:
        """Return the number of runs of a record, over retry topics, too."""
        return run.attempts + self._topics.count_attempts(record)

    def _continue_failed_run(self, run: Run, verdicts: Mapping[Any, Verdict]) -> None:
        """Call the handler again for the records that are retried; all others are done."""
        again = [each for each in verdicts.values() if each.outcome is Outcome.AGAIN]
        if not again:
            self._finish_run(run)
            return
        self.metrics.on_retry(len(again))
        entries = run.list_records()
        self._end_records(run, [e for e in entries if verdicts[e[1]].outcome is not Outcome.AGAIN])
        self._repeat_run(run, max(each.delay_s for each in again))

    def _repeat_run(self, run: Run, delay_s: float) -> None:
        """Let a run wait for its next call, unless its records must not be handled any more."""
        leaves = any(
            self.intake.must_stop(partition) or not self.intake.is_assigned(partition)
            for partition, _ in run.list_entries()
        )
        if self.is_draining or leaves:
            self._give_back(run)
            return
        self.failing.add_run(run)
        self.lanes.hold_run(run, self._time() + delay_s)
        self._continue_after_run()
        due = self.lanes.find_next_due()
        if due is not None:
            self._timer.wake_at(due)

    def _log_failure(self, run: Run, record: Any, error: BaseException, verdict: Verdict) -> None:
        place = f"{record.topic}-{record.partition} offset {record.offset}"
        event = {"event": "worker_record_failed", "topic": record.topic}
        if verdict.outcome is Outcome.AGAIN:
            self._limited_log.write(
                logging.WARNING,
                (record.topic, record.partition, type(error)),
                "The handler of %s failed, and runs again in %.1f s: %r",
                place,
                verdict.delay_s,
                error,
                extra=event,
            )
            return
        what = {
            Outcome.TOPIC: f"is sent to {verdict.topic}",
            Outcome.DEAD_LETTER: "is sent to the dead letters",
            Outcome.SKIP: "is skipped",
            Outcome.STOP: "ends the worker",
        }[verdict.outcome]
        number = self.count_attempts(run, record)
        if verdict.outcome is Outcome.STOP and not isinstance(error, RecordError):
            error.add_note(f"The handler of {place} failed in run {number}.")
        self._log.warning(
            "%s",
            describe_end(place, number, error, what),
            extra=event,
            exc_info=None if isinstance(error, KafkaError) else error,
        )

    async def _write_run(self, run: Run, verdicts: Mapping[Any, Verdict]) -> None:
        """Send the records of a failed run to where they go, and count them as done."""
        failure: BaseException | None = None
        try:
            for partition, record in run.list_records():
                if verdicts[record].outcome in WRITTEN:
                    given_up = self._make_failure(run, record)
                    await self.give_up_record(record, given_up, verdicts[record])
                    self.metrics.on_given_up(verdicts[record].outcome)
                    self.intake.finish_record(partition, record)
        except BaseException as error:
            failure = error
        # Not within the block above, because the next handler may be called here.
        self._end_write(run)
        if failure is None:
            self._continue_failed_run(run, verdicts)
            return
        if not isinstance(failure, asyncio.CancelledError):
            self.fail(failure)
        elif not run.is_cancelled and not self.is_draining:
            self.fail(IllegalStateError("A write of a worker was cancelled from outside."))
        self._give_back(run)
        del failure  # Otherwise its traceback and this frame would refer to each other.

    def _end_write(self, run: Run) -> None:
        del self.writing[run]
        self.lanes.take_place(run)

    def _make_failure(self, run: Run, record: ConsumerRecord[Any, Any]) -> Failure:
        group_id = self.consumer._config.group_id
        attempts = self.count_attempts(run, record)
        return Failure(run.find_error(record), attempts, self._clock.time_ms(), group_id)

    async def give_up_record(
        self, record: ConsumerRecord[Any, Any], failure: Failure, verdict: Verdict
    ) -> None:
        """Send a failed record to its retry topic or to the dead letters.

        Returns when it is acknowledged. Raises the error of the write after `delivery_timeout_ms`.
        `record` has its key and value as bytes.
        """
        letters = self._options.dead_letter
        if verdict.outcome is Outcome.TOPIC:
            try:
                await self._write_retry(record, failure, verdict)
                return
            except KafkaError as error:
                # With its headers, it may be larger than its topic allows.
                if letters is None or not is_too_large(error):
                    raise
        assert letters is not None
        async with self.outbox.begin_write(letters.topic) as write:
            count = await write.count_partitions()
            await write.send_letter(dead_letter_of(record, failure, letters, count))

    async def _write_retry(
        self, record: ConsumerRecord[Any, Any], failure: Failure, verdict: Verdict
    ) -> None:
        due_ms = failure.failed_at_ms + round(verdict.delay_s * 1000)
        async with self.outbox.begin_write(verdict.topic) as write:
            count = await write.count_partitions()
            await write.send_letter(retry_record(record, failure, verdict.topic, due_ms, count))

    # -- partitions

    def _on_change(self) -> None:
        """Drop what must not be handled any more, after a change of partitions or positions."""
        try:
            self._examine_partitions()
        except Exception as error:
            self.fail(error)

    def _examine_partitions(self) -> None:
        for partition in self.lanes.list_partitions():
            if not self.intake.is_assigned(partition):
                self.lanes.drop_partition(partition)
                self._end_release(partition)
                for run in self._list_running(partition):
                    self.calls.cancel_call(run)
            elif self.intake.must_stop(partition):
                self._drop_partition(partition)
                if partition not in self._releases and self.lanes.list_runs(partition):
                    wait_s = min(self.interval_s - 1.0, self._options.drain_timeout_s)
                    self._releases[partition] = self._loop.call_later(
                        max(wait_s, 0.0), self._on_late_release, partition
                    )
            else:
                self._end_release(partition)
                if partition.jumps != self._jumps.get(partition, partition.jumps):
                    self.lanes.drop_partition(partition)
            self._jumps[partition] = partition.jumps
        for partition in [each for each in self._jumps if not self.intake.is_assigned(each)]:
            del self._jumps[partition]
        self.failing.forget_dropped()
        self._update_paused()
        self._tell_lanes()

    def _drop_partition(self, partition: PartitionState) -> None:
        """Return the records of a partition whose handler has not begun to the consumer."""
        entries = self.lanes.drop_partition(partition)
        if entries:
            self.intake.return_records(partition, entries)

    def _list_running(self, partition: PartitionState) -> list[Run]:
        return [run for run in self.lanes.list_runs(partition) if run.is_running]

    def _end_release(self, partition: PartitionState) -> None:
        timer = self._releases.pop(partition, None)
        if timer is not None:
            timer.cancel()

    def _on_late_release(self, partition: PartitionState) -> None:
        """Cancel the handlers of a partition that is to be revoked and still has some."""
        self._releases.pop(partition, None)
        if self.intake.is_assigned(partition) and self.intake.must_stop(partition):
            for run in self._list_running(partition):
                self.calls.cancel_call(run)

    def _tell_lanes(self) -> None:
        if self._told_lanes or self._options.order != "partition":
            return
        count = len(self.intake.list_partitions())
        if count and count < self._options.concurrency:
            self._told_lanes = True
            self._log.info(
                "%d partitions are assigned, so that at most %d of %d handlers run at once: each "
                'partition is a lane. order="key" or order=None allows more.',
                count,
                count,
                self._options.concurrency,
                extra={"event": "worker_few_lanes"},
            )

    # -- records that wait for long

    def _plan_look(self) -> None:
        self._look = self._loop.call_later(LOOK_S, self._look_at_failing)

    def _look_at_failing(self) -> None:
        """Pause the partitions whose records have failed for half of the poll interval."""
        try:
            self._update_paused()
        except Exception as error:
            self.fail(error)
        self._plan_look()

    def _update_paused(self) -> None:
        late = self._time() - self.interval_s / 2
        paused = dict.fromkeys(self.failing.list_partitions(late))
        former, self.paused = self.paused, paused
        for partition in paused:
            if partition not in former and self.intake.is_assigned(partition):
                self.intake.hold_partition(partition)
                self._log.warning(
                    "%s is paused, because a record of it has failed for %.0f s and is retried.",
                    partition.tp,
                    self.interval_s / 2,
                    extra={"event": "worker_partition_paused", "topic": partition.tp.topic},
                )
        if any(partition not in paused for partition in former):
            self.intake.wake_request()

    # -- health

    def describe_health(self, name: str) -> WorkerHealth:
        """Return the health of this run."""
        return describe_health(self, name)
