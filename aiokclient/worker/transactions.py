"""A run of a worker in transactions, exactly once: the producer has a transactional id.

Records are read in lists. The handlers of one list, what they send, the retry records, the dead
letters, and the offsets of the list are one transaction, as in `transform`, whose recovery from
errors is used here. The lanes only order the work within a list.

A record that fails aborts the transaction of its list. All of the list is read again, and what
failed is *pending*: it is read alone, in a transaction of its own, when its next run is due, or
when it is to be given up. Offsets are committed in order. So the records before a pending one are
read in lists that end before it, and the ones after it come later. Its partition is paused until it
is due; other partitions go on. A record of a retry topic that is not due is pending, too.

`BatchPlan` knows the pending records, and how many records of each partition may be read before the
first of them. A list that has one together with others is not handled, but read again.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Container, Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from aiokclient.background import SLICE_S, new_task
from aiokclient.consumer.arguments import MAX_BYTES
from aiokclient.consumer.state.partition import DeliveredList
from aiokclient.errors import IllegalStateError, KafkaError, RecordError
from aiokclient.patterns.transform_stream import TransformStream
from aiokclient.types import ConsumerRecord, ProducerRecord, TopicPartition
from aiokclient.worker.dead_letters import (
    RawRecord,
    adapt_letter,
    dead_letter_of,
    is_too_large,
    retry_record,
)
from aiokclient.worker.health import WorkerHealth, describe_transactional_health
from aiokclient.worker.retry import BatchError, Failure, Outcome, Verdict, choose_outcome
from aiokclient.worker.run import SHORTEST_UNWINDING_S, UNWINDING_S, WorkerRun

if TYPE_CHECKING:
    from aiokclient.consumer import Consumer, Records
    from aiokclient.consumer.delivery.iterators import RecordBatches
    from aiokclient.patterns.transform_stream import TransformBatch
    from aiokclient.producer import Producer
    from aiokclient.worker.lanes import Run
    from aiokclient.worker.retry_topics import WorkerTopics

MOST_RECORDS: Final = 500
"""The records of one transaction, at most, unless batches are larger."""
ENDING_S: Final = 2 * SHORTEST_UNWINDING_S
"""The last seconds of a drain, in which what is in flight may end without its result being waited
for."""
GIVEN_UP: Final = (Outcome.TOPIC, Outcome.DEAD_LETTER, Outcome.SKIP)


class Pending:
    """A record that is handled alone, and what is known of its failures."""

    __slots__ = ("attempts", "due_ms", "error", "failed_at_ms", "letter", "outages", "verdict")

    def __init__(self, due_ms: int = 0) -> None:
        self.due_ms = due_ms
        self.attempts = self.outages = 0
        self.error: BaseException | None = None
        self.failed_at_ms = 0
        self.verdict: Verdict | None = None
        """The decision that gives it up; None if it is to run."""
        self.letter: ProducerRecord | None = None
        """The record to write for it, if the first one was refused."""

    def note_failure(self, error: BaseException, now_ms: int, *, is_outage: bool) -> None:
        """Count a run that failed."""
        self.error, self.failed_at_ms = error, now_ms
        if is_outage:
            self.outages += 1
        else:
            self.attempts += 1
            self.outages = 0

    def decide(self, verdict: Verdict, due_ms: int) -> None:
        """Store what follows: another run that is due then, or how to give it up."""
        self.verdict = verdict if verdict.outcome in GIVEN_UP else None
        self.due_ms = due_ms

    def replace_letter(self, letter: ProducerRecord) -> None:
        """Store what to write instead of what was refused."""
        self.letter = letter


class BatchPlan:
    """The pending records, and which lists may be handled. Pure.

    Times are in milliseconds since the epoch.
    """

    def __init__(self) -> None:
        self._pending: dict[TopicPartition, dict[int, Pending]] = {}
        self._ahead: dict[TopicPartition, int] = {}
        """The number of records before the first pending one, where it is known."""

    def __len__(self) -> int:
        return sum(map(len, self._pending.values()))

    def list_pending(self) -> Iterable[tuple[TopicPartition, int, Pending]]:
        """Return all pending records, with partition and offset."""
        return [
            (tp, offset, each)
            for tp, entries in self._pending.items()
            for offset, each in entries.items()
        ]

    def find_pending(self, record: RawRecord) -> Pending | None:
        """Return a record's entry, or None."""
        tp = TopicPartition(record.topic, record.partition)
        return self._pending.get(tp, {}).get(record.offset)

    def add_pending(self, record: RawRecord, due_ms: int = 0) -> Pending:
        """Return the entry of a record, which is made if there is none."""
        tp = TopicPartition(record.topic, record.partition)
        entries = self._pending.setdefault(tp, {})
        if record.offset not in entries:
            entries[record.offset] = Pending(due_ms)
            self._ahead.pop(tp, None)
        return entries[record.offset]

    def find_limits(self, paused: Container[TopicPartition]) -> dict[TopicPartition, int]:
        """Return how many records may be read of partitions up to their first pending record.

        With 0, that record may be read, alone. Other partitions have no limit.
        """
        return {tp: count for tp, count in self._ahead.items() if tp not in paused}

    def expect_list(self, records: Iterable[RawRecord]) -> None:
        """Note that the records of an aborted list are read again, from the first one on."""
        counts: dict[TopicPartition, int] = {}
        limited: set[TopicPartition] = set()
        for record in records:
            tp = TopicPartition(record.topic, record.partition)
            if tp not in limited and record.offset in self._pending.get(tp, ()):
                limited.add(tp)
                self._ahead[tp] = counts.get(tp, 0)
            counts[tp] = counts.get(tp, 0) + 1

    def list_waiting(self, now_ms: int) -> dict[TopicPartition, int]:
        """Return the partitions whose next record is not due, with its due time."""
        waiting = {}
        for tp, count in self._ahead.items():
            due_ms = self._pending[tp][min(self._pending[tp])].due_ms
            if count == 0 and due_ms > now_ms:
                waiting[tp] = due_ms
        return waiting

    def may_handle(self, records: Sequence[RawRecord], now_ms: int, topics: WorkerTopics) -> bool:
        """Return whether a list may be handled. Otherwise it must be read again."""
        if not self._pending and not topics.has_retry_topics():
            return True
        counts: dict[TopicPartition, int] = {}
        conflicts: set[TopicPartition] = set()
        for record in records:
            tp = TopicPartition(record.topic, record.partition)
            index = counts.get(tp, 0)
            counts[tp] = index + 1
            if tp in conflicts:
                continue
            if index == 0:
                self._forget_before(tp, record.offset)
            due_ms = topics.find_due_ms(record)
            pending = self.find_pending(record)
            if pending is None and due_ms > now_ms:
                pending = self.add_pending(record, due_ms)
            if pending is not None and (len(records) > 1 or pending.due_ms > now_ms):
                conflicts.add(tp)
                self._ahead[tp] = index
        return not conflicts

    def on_committed(self, records: Iterable[RawRecord]) -> None:
        """Forget the records of a list whose transaction was committed."""
        if not self._pending:
            return
        for record in records:
            tp = TopicPartition(record.topic, record.partition)
            if tp in self._ahead:
                self._ahead[tp] -= 1
                if self._ahead[tp] < 0:
                    del self._ahead[tp]
            self._remove(tp, record.offset)

    def _forget_before(self, tp: TopicPartition, offset: int) -> None:
        """Forget records that another member has handled, or that are gone."""
        for each in [each for each in self._pending.get(tp, ()) if each < offset]:
            self._ahead.pop(tp, None)
            self._remove(tp, each)

    def _remove(self, tp: TopicPartition, offset: int) -> None:
        entries = self._pending.get(tp)
        if entries is not None and entries.pop(offset, None) is not None and not entries:
            del self._pending[tp]
            self._ahead.pop(tp, None)


class WorkerStream(TransformStream[Any, Any]):
    """The transactions of a run, whose records the run reads."""

    def __init__(
        self, run: TransactionalRun, consumer: Consumer[Any, Any], producer: Producer[Any, Any]
    ) -> None:
        super().__init__(consumer, producer, MOST_RECORDS, 0.0)
        self._run = run
        self._cursor: RecordBatches[Any, Any] | None = None
        self._records: Sequence[RawRecord] = ()
        """The records of the last transaction, until its end."""

    async def next_batch(self) -> TransformBatch[Any, Any]:
        """Commit the last transaction, and return the records of the next one.

        Raises StopAsyncIteration at the end of the run.
        """
        if self._cursor is None:
            self._cursor = self._open_batches()
        return await self._next_batch(self._cursor)

    async def _read_records(self, batches: RecordBatches[Any, Any]) -> Records[Any, Any]:
        records = await self._run.read_records(batches)
        self._records = records
        return records

    async def _commit_last_batch(self) -> None:
        had_transaction = self._transaction is not None
        await super()._commit_last_batch()
        if had_transaction:
            records, self._records = self._records, ()
            self._run.on_committed(records)

    async def abort_batch(self) -> None:
        """Abort the transaction, so that its records are read again."""
        self._records = ()
        try:
            await self._abort_transaction()
        except KafkaError as error:
            await self._recover_from(error)

    def end_soon(self, limit_s: float) -> None:
        """Let a cancellation end the stream within `limit_s` seconds, whatever is in flight.

        A transaction that has not ended by then is ended by the producer in the background, or, if
        that is closed, by the coordinator at its timeout. Synchronous.
        """
        self._abort_limit_s = limit_s
        if self._transaction is not None:
            self._transaction.release_callers()

    async def commit_batch(self) -> None:
        """Commit the last transaction. If it fails, its records are handled by the next run."""
        try:
            await self._commit_last_batch()
        except KafkaError as error:
            await self._recover_from(error)


class _Place:
    """A partition, for the lanes. The transaction has the offsets, so that nothing is tracked."""

    __slots__ = ("tp",)

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp

    def divide_list(self, whole: DeliveredList, parts: Iterable[Any]) -> None:
        """Do nothing: a transaction ends for all of its records together."""


class TransactionalRun(WorkerRun):
    """One run of a worker whose records and results are committed in transactions."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        producer = self._options.producer
        assert producer is not None
        self._producer: Producer[Any, Any] = producer
        self._stream = WorkerStream(self, self.consumer, producer)
        self.plan = BatchPlan()
        self._is_waiting = False
        """Whether it waits for records, so that a drain may cancel it."""
        self._waiting: dict[TopicPartition, asyncio.TimerHandle] = {}
        """The paused partitions, with the timers that resume them."""
        self._settled: asyncio.Future[None] | None = None
        """The end of the handlers of the present list."""
        self._failed: list[tuple[Run, BaseException]] = []
        self._unreadable: list[RawRecord] = []
        """Records that could not be deserialized, to be given up in this transaction."""
        self._was_cancelled = False
        self.committed_at_ms: int | None = None

    # -- the run

    async def open(self) -> None:
        await self.outbox.open(sends=True)
        await self._topics.open()
        self._engine.reader.read_raw(True)
        self._reading = new_task(
            self._loop, self._read_lists(), name=f"{self._worker.name} reading"
        )

    def _stop_reading(self) -> None:
        if self._reading is not None and self._is_waiting:
            self._reading.cancel()

    async def finish(self) -> None:
        """End the run: finish the present transaction in time, or abort it."""
        if self._reading is not None:
            await self._wait_for_reading(min(UNWINDING_S, self._options.drain_timeout_s / 10))
            for run in list(self.calls.began):
                self.calls.cancel_call(run)
            # The very last part is for the transaction and for the producer.
            ending_s = min(ENDING_S, self._options.drain_timeout_s / 20)
            self._earliest_end = self._time() + SHORTEST_UNWINDING_S + ending_s
            self.deadline = max(self.deadline, self._earliest_end)
            await self._wait_for_reading(ending_s)
            for run in list(self.calls.began):
                self.calls.mark_stuck(run)
            # The time is over, so that neither a commit nor an abort is waited for much longer.
            self._stream.end_soon(SHORTEST_UNWINDING_S)
            self._reading.cancel()
            await asyncio.wait([self._reading])
        self._timer.cancel()
        await self._close()

    def _leave_consumer(self) -> None:
        for tp in list(self._waiting):
            self._resume_partition(tp)
        self._engine.reader.read_raw(False)

    async def _wait_for_reading(self, before_s: float) -> None:
        reading = self._reading
        assert reading is not None
        while not reading.done() and (left_s := self.deadline - before_s - self._time()) > 0:
            self._idle = self._loop.create_future()
            await asyncio.wait(
                [reading, self._idle], timeout=left_s, return_when=asyncio.FIRST_COMPLETED
            )

    async def _read_lists(self) -> None:
        try:
            async with self._stream as stream:
                while not self.is_draining:
                    try:
                        batch = await stream.next_batch()
                    except StopAsyncIteration:
                        break
                    await self._handle_list(batch.records)
                await stream.commit_batch()
        except asyncio.CancelledError:
            if not self.is_draining:
                self.fail(IllegalStateError("The task by which a worker reads was cancelled."))
        except Exception as error:
            self.fail(error)
        else:
            self.begin_drain(self._options.drain_timeout_s)

    # -- reading

    async def read_records(self, cursor: RecordBatches[Any, Any]) -> Records[Any, Any]:
        """Return the next list that may be handled. Raises StopAsyncIteration at the end."""
        reader, batch = self._engine.reader, self._options.batch
        most = MOST_RECORDS if batch is None else max(MOST_RECORDS, batch.max_records)
        while not self.is_draining:
            self._pause_partitions()
            limits = self.plan.find_limits(self._waiting)
            self._is_waiting = True
            try:
                records = await reader.read_records(
                    most,
                    math.inf,
                    max_bytes=MAX_BYTES,
                    max_wait=0.0 if batch is None else batch.max_wait,
                    limits=limits,
                    cursor=cursor,
                )
            finally:
                self._is_waiting = False
            if not records:
                break
            if self.plan.may_handle(records, self._clock.time_ms(), self._topics):
                return records
            # They are read again, with the limits that the plan has now.
            await self.consumer._for_transaction().rewind_and_wait(0.0)
        reader.on_iteration_end(cursor)
        raise StopAsyncIteration

    def _pause_partitions(self) -> None:
        """Pause the partitions whose next record is not due, until it is."""
        now_ms = self._clock.time_ms()
        for tp, due_ms in self.plan.list_waiting(now_ms).items():
            if tp not in self._waiting and tp in self.consumer.assignment():
                self.consumer.pause([tp])
                delay_s = (due_ms - now_ms) / 1000
                self._waiting[tp] = self._loop.call_later(delay_s, self._resume_partition, tp)

    def _resume_partition(self, tp: TopicPartition) -> None:
        self._waiting.pop(tp).cancel()
        # Not `state`, which is that of before while the consumer is being closed.
        if self.consumer._usable and tp in self.consumer.assignment():
            self.consumer.resume([tp])

    def on_committed(self, records: Iterable[RawRecord]) -> None:
        """Handle the commit of the transaction of these records."""
        self.plan.on_committed(records)
        self.committed_at_ms = self._clock.time_ms()

    # -- one list

    async def _handle_list(self, records: Sequence[RawRecord]) -> None:
        """Handle the records of a transaction. If one fails, abort the transaction."""
        pending = self.plan.find_pending(records[0])
        if pending is not None and pending.verdict is not None:
            await self._give_up(records[0], pending)
            return
        self._failed, self._unreadable, self._was_cancelled = [], [], False
        await self._call_handlers(records)
        if self._has_failed_transaction():
            return  # It is aborted, and repeated, before the next list.
        if self._failed or self._was_cancelled:
            await self._stream.abort_batch()
            for run, error in self._failed:
                self._decide_failures(run, error)
            self.plan.expect_list(records)
            return
        for record in self._unreadable:
            await self._give_up(record, self.plan.add_pending(record))

    def _has_failed_transaction(self) -> bool:
        transaction = self._producer.last_transaction
        return transaction is not None and transaction.failure is not None

    async def _call_handlers(self, records: Sequence[RawRecord]) -> None:
        places: dict[tuple[str, int], _Place] = {}
        now = self._time()
        kind = list if self._options.batch is None else DeliveredList
        for tp, group in groupby(records, attrgetter("topic", "partition")):
            place = places.setdefault(tp, _Place(TopicPartition(*tp)))
            self.lanes.add_records(place, kind(group), now)
        self.lanes.release_due(math.inf)
        self._settled = self._loop.create_future()
        self._dispatch_runs()
        try:
            await self._settled
        finally:
            for place in self.lanes.list_partitions():
                self.lanes.drop_partition(place)

    def _dispatch_runs(self) -> None:
        if self._dispatching or self._settled is None or self._settled.done():
            return
        self._dispatching = True
        now = self._time()
        until = now + SLICE_S
        try:
            while not (self._failed or self._was_cancelled):
                run = self.lanes.take_next(now)
                if run is None:
                    break
                self.calls.begin_call(run, now)
                now = self._time()
                if now >= until:
                    self._plan_dispatch()
                    return
        finally:
            self._dispatching = False
        if not self.calls:
            self._settled.set_result(None)

    def on_success(self, run: Run, now: float) -> None:
        if run.is_cancelled or run.is_timed_out:
            self.on_failure(run, asyncio.CancelledError())
            return
        self.calls.end_call(run)
        self.lanes.finish_run(run)
        if not self._is_dispatch_planned:
            self._dispatch_runs()

    def on_failure(self, run: Run, error: BaseException) -> None:
        self.calls.end_call(run)
        self.lanes.finish_run(run)
        is_success = run.entries is not None and isinstance(error, BatchError) and not error.errors
        if run.is_cancelled:
            self._was_cancelled = True
        elif not is_success:
            if run.is_timed_out:
                error = TimeoutError(f"The handler took longer than {self._options.timeout_s:g} s.")
            self._note_failure(run, error)
        if not self._is_dispatch_planned:
            self._dispatch_runs()

    def return_run(self, run: Run) -> None:
        # An abort returns the records of the whole transaction.
        self._was_cancelled = True

    # -- failures

    def _note_failure(self, run: Run, error: BaseException) -> None:
        """Keep a failure. What was never handled is given up without an abort."""
        self.metrics.on_failure(error)
        if isinstance(error, RecordError) and run.entries is None:
            pending = self.plan.add_pending(run.record)
            pending.note_failure(error, self._clock.time_ms(), is_outage=False)
            verdict = self._choose(run.record, pending)
            if verdict.outcome in GIVEN_UP:
                pending.decide(verdict, 0)
                self._log_failure(run, run.record, error, verdict)
                self._unreadable.append(run.record)
                return
        self._failed.append((run, error))

    def _decide_failures(self, run: Run, error: BaseException) -> None:
        """Decide what follows for each failed record of a run, after the abort."""
        retry = self._options.retry
        for record, own in _list_failed(run, error):
            pending, now_ms = self.plan.add_pending(record), self._clock.time_ms()
            if pending.error is not own:
                pending.note_failure(own, now_ms, is_outage=retry.is_outage(own))
            verdict = self._choose(record, pending)
            self._log_failure(run, record, own, verdict)
            if verdict.outcome is Outcome.STOP:
                self.fail(own)
                return
            is_repeated = verdict.outcome is Outcome.AGAIN
            if is_repeated:
                self.metrics.on_retry(1)
            delay_s = verdict.delay_s if is_repeated else 0.0
            pending.decide(verdict, now_ms + round(delay_s * 1000))

    def count_attempts(self, run: Run, record: RawRecord) -> int:
        pending = self.plan.find_pending(record)
        earlier = self._topics.count_attempts(record)
        return earlier if pending is None else pending.attempts + earlier

    def _choose(self, record: RawRecord, pending: Pending) -> Verdict:
        options = self._options
        assert pending.error is not None
        return choose_outcome(
            pending.error,
            pending.attempts + self._topics.count_attempts(record),
            pending.outages - 1,
            options.retry,
            self._clock.rng,
            has_dead_letters=options.dead_letter is not None,
            skips=options.skips,
        )

    async def _give_up(self, record: RawRecord, pending: Pending) -> None:
        """Send a record to its retry topic or to the dead letters, in the open transaction."""
        verdict, error = pending.verdict, pending.error
        assert verdict is not None and error is not None  # noqa: PT018
        if verdict.outcome is Outcome.SKIP:
            return
        letters = self._options.dead_letter
        attempts = pending.attempts + self._topics.count_attempts(record)
        group_id = self.consumer._config.group_id
        failure = Failure(error, attempts, pending.failed_at_ms, group_id)
        topic = verdict.topic or (letters.topic if letters else "")
        letter = pending.letter
        if letter is None:
            count = len(await self._producer.partitions_for(topic))
            if verdict.outcome is Outcome.TOPIC or letters is None:
                due_ms = failure.failed_at_ms + round(verdict.delay_s * 1000)
                letter = retry_record(record, failure, topic, due_ms, count)
            else:
                letter = dead_letter_of(record, failure, letters, count)
        refused = await self._send_bytes(letter)
        if refused is None:
            self.metrics.on_given_up(verdict.outcome)
            return
        adapted = adapt_letter(letter, refused)
        if adapted is not None:
            pending.replace_letter(adapted)
        elif is_too_large(refused) and verdict.outcome is Outcome.TOPIC and letters is not None:
            pending.decide(Verdict(Outcome.DEAD_LETTER), 0)
        elif not self._has_failed_transaction():
            raise refused
        if not self._has_failed_transaction():
            await self._stream.abort_batch()

    async def _send_bytes(self, letter: ProducerRecord) -> KafkaError | None:
        """Send a record without serializers. Return the error by which it was refused, or None."""
        producer = self._producer
        topic, value, key, partition, timestamp, headers = letter
        try:
            found = producer._find_topic(topic)
            await producer._append_record(found, key, value, partition, timestamp, headers)
        except KafkaError as error:
            cause = error.__cause__
            return cause if isinstance(cause, KafkaError) else error
        return None

    # -- health

    def describe_health(self, name: str) -> WorkerHealth:
        return describe_transactional_health(self, name)


def _list_failed(run: Run, error: BaseException) -> list[tuple[RawRecord, BaseException]]:
    """Return the records of a run that have failed, with their errors."""
    records = [record for _, record in run.list_records()]
    if run.entries is None or not isinstance(error, BatchError | RecordError):
        return [(record, error) for record in records]
    if isinstance(error, BatchError):
        # One that names only records of another list fails all.
        return list(error.find_errors(records).items()) or [(each, error) for each in records]
    place = (*(error.topic_partition or ("", -1)), error.offset)
    return [(each, error) for each in records if _place_of(each) == place]


def _place_of(record: ConsumerRecord[Any, Any]) -> tuple[str, int, int]:
    return record.topic, record.partition, record.offset
