"""The delivery of acquired records to one reading task at a time.

Parts of answers wait in the order of their arrival. A batch is decoded when the reading task
reaches it. The offsets of a batch that were acquired and have no record (compaction, control
records) are settled as gaps. A record is delivered only if at least half of its lock is left,
otherwise it is released.

Requesting records accepts those that were delivered before, unless they were settled or are
tracked. An iteration takes records from an exposure without calling the reader, which finds out how
far it went (`settle_passed`) when the iteration needs more, before each request to a leader, and
before the loss of a lock. Until then, the states of these records are those of records that wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from aiokclient.clock import get_loop_clock
from aiokclient.cluster.lifecycle.ownership import Anchor
from aiokclient.decoding.batches import (
    CONTENT,
    Damage,
    Loaded,
    check_marker,
    is_light,
    load,
    load_part,
)
from aiokclient.decoding.preparation import Preparation, PreparationPace
from aiokclient.errors import (
    ConcurrentReadError,
    CorruptRecordError,
    KafkaError,
    RecordError,
)
from aiokclient.policy import Backoff
from aiokclient.record.batch import ContentLimitError, RecordBatch, walk
from aiokclient.share.delivery.parts import (
    Exposure,
    FetchedPart,
    LoopExposure,
    RawRecord,
    Slice,
    TrackedExposure,
)
from aiokclient.share.delivery.record import ShareRecord, lock_records, set_locks
from aiokclient.share.locks import (
    DELIVERED_WITHIN,
    LEFT_AT_DELIVERY,
    AcknowledgeType,
    Acquisition,
    LockEvent,
    LockState,
    Run,
)
from aiokclient.types import REJECT, RELEASE, ConsumerRecord

if TYPE_CHECKING:
    from aiokclient.decoding.deserialize import Deserializers
    from aiokclient.protocol.messages.share_fetch import PartitionData
    from aiokclient.share.delivery.iterators import ShareIterator
    from aiokclient.share.engine import ShareEngine
    from aiokclient.share.membership import ShareMembership
    from aiokclient.share.partition import SharePartition

WAITED_WITHIN: Final = 0.8
"""The part of the time for which records may wait that `max_wait` may take."""

REFUSED: Final = (
    "No action is needed: its records are released once, and rejected when they come again. Check "
    "the disk of the partition's leader, or max_decompressed_batch_bytes."
)
"""The hint of the errors of batches that cannot be read."""

PREPARED: Final = 500
"""The largest number of records that are prepared at a time."""

TOGETHER: Final = 500
"""The largest number of records that are deserialized at a time."""


class ShareReader:
    """The delivery of the records of one consumer."""

    def __init__(self, engine: ShareEngine, deserializers: Deserializers) -> None:
        self._engine = engine
        self._clock = engine.cluster.clock
        self._time = get_loop_clock()
        self._config = engine.config
        self._membership: ShareMembership = engine.membership
        self._deserializers = Anchor(deserializers)
        self._copies = not deserializers.views
        is_final = not (deserializers or deserializers.views)
        # They are not created twice, except those that a thread decodes.
        self._kind: type[RawRecord] = ShareRecord if is_final else ConsumerRecord
        """The class of the records that the event loop decodes."""
        self._is_raw = False
        """Whether records are delivered as they were fetched, for a worker."""
        self._pace = PreparationPace(Backoff.of(engine.config), engine.cluster.clock)
        self._parts: deque[FetchedPart] = deque()
        self._errors: deque[KafkaError] = deque()
        """Errors that requests raise, one each."""
        self._delivered: list[Run] = []
        """The records that the next request accepts."""
        self._exposure: Exposure | None = None
        """The records that an iteration takes at present."""
        self._is_reading = False
        self.stopped = False
        self.arrived = engine.new_wakeup()
        """A flag that is set when a request may have something to return."""
        self.room = engine.new_wakeup()
        """A flag that is set when a record was settled or lost."""

    # -- what leaders have fetched

    def add_part(
        self, partition: SharePartition, data: PartitionData, deadline: float, lock_s: float
    ) -> None:
        """Keep what an answer has of a partition. Synchronous."""
        acquired = [
            Acquisition(partition, *each, deadline, lock_s)
            for each in (
                (ranged.first_offset, ranged.last_offset, ranged.delivery_count)
                for ranged in data.acquired_records
            )
        ]
        for acquisition in acquired:
            partition.add_acquisition(acquisition)
            self._engine.meters.on_acquired(acquisition)
            self._engine.watch.expect(acquisition.find_release_time())
        records = memoryview(data.records or b"")
        try:
            batches = walk(records)
        except CorruptRecordError as error:
            runs = [Run(each, 0, len(each.states)) for each in acquired]
            damage = Damage(acquired[0].first, runs[-1].list_offsets()[-1], error)
            self._refuse_batch(partition, runs, damage)
            return
        part = FetchedPart(partition, batches, acquired)
        position = min((each.first for each in acquired), default=0)
        for batch in batches:
            # Compaction has removed the batches in between.
            gaps = part.find_acquired(position, batch.base_offset - 1)
            self._settle_runs(part, gaps, AcknowledgeType.GAP)
            position = max(position, batch.next_offset)
            self._engine.note_batch(batch.count)
        # Compaction never removes the end of a log, so records after the last batch are missing.
        self._settle_runs(part, part.find_acquired(position, 1 << 63), AcknowledgeType.RELEASE)
        self._parts.append(part)
        self.arrived.set()

    def _settle_runs(self, part: FetchedPart, runs: Iterable[Run], kind: AcknowledgeType) -> None:
        for run in runs:
            part.partition.settle_run(run, kind)

    def release_waiting(self, acquisition: Acquisition) -> None:
        """Release the records of an acquisition that were not delivered. Synchronous."""
        self.on_lost(acquisition)
        released = acquisition.count_state(LockState.WAITING)
        for run in list(acquisition.find_runs(LockState.WAITING)):
            acquisition.partition.settle_run(run, AcknowledgeType.RELEASE)
        self._engine.meters.on_undelivered(released)

    def on_lost(self, acquisition: Acquisition) -> None:
        """Take back what an iteration has not reached of an acquisition of which locks are lost.

        Synchronous. The next request passes over the lost records.
        """
        if self._exposure is not None and self._exposure.acquisition is acquisition:
            self._take_back()

    def release_all(self) -> None:
        """Release everything that is not settled, for a close. Synchronous."""
        self._take_back()
        self._delivered.clear()
        self._parts.clear()
        for leader in self._engine.list_leaders():
            for acquisition in leader.list_acquisitions():
                self.release_waiting(acquisition)
                for run in list(acquisition.find_runs(LockState.HELD)):
                    acquisition.partition.settle_run(run, AcknowledgeType.RELEASE)
            leader.wake.set()

    # -- what was delivered

    def settle_passed(self) -> None:
        """Record what an iteration has taken. A loop has accepted all but the last. Synchronous."""
        exposure = self._exposure
        if exposure is None:
            return
        count, passed = exposure.count_passed(), exposure.passed
        if count == passed:
            return
        acquisition = exposure.acquisition
        first, last = exposure.find_index(max(passed - 1, 0)), exposure.find_index(count - 1)
        if not exposure.is_tracked and last > first:
            acquisition.partition.settle_run(Run(acquisition, first, last), AcknowledgeType.ACCEPT)
            self._engine.meters.on_settled(AcknowledgeType.ACCEPT, last - first)
        acquisition.apply_event(LockEvent.DELIVER, first, last + 1)
        exposure.mark_passed(count)
        self._note_delivery(acquisition, count - passed)

    def _note_delivery(self, acquisition: Acquisition, count: int) -> None:
        acquisition.delivered_at = now = self._time()
        self._engine.meters.on_delivered(acquisition, count)
        self._engine.demand.on_delivery(count, now)
        self._engine.leader_watch.delivered.set()

    def _take_back(self) -> None:
        """Let the iteration call the reader for its next record."""
        exposure = self._exposure
        if exposure is None:
            return
        self.settle_passed()
        acquisition = exposure.acquisition
        if exposure.passed and not exposure.is_tracked:
            index = exposure.find_index(exposure.passed - 1)
            self._delivered.append(Run(acquisition, index, index + 1))
        rest = exposure.take_rest()
        if rest:
            part = FetchedPart(acquisition.partition, [], [acquisition])
            part.slices.append(Slice(acquisition, rest, is_ready=True, is_kept=exposure.is_kept))
            self._parts.appendleft(part)
        self._exposure = None

    def accept_delivered(self, kept: Exposure | None = None) -> None:
        """Accept what was delivered and not settled, except tracked records. Synchronous.

        The iteration of another exposure than `kept` calls the reader for its next record.
        """
        if self._exposure is not kept:
            self._take_back()
        for run in self._delivered:
            run.acquisition.partition.settle_run(run, AcknowledgeType.ACCEPT)
            self._engine.meters.on_settled(AcknowledgeType.ACCEPT, run.length)
        if self._delivered:
            self._delivered.clear()
            self._engine.wake_leaders()

    def on_settled(self) -> None:
        """Wake those who wait for records to be settled. Synchronous."""
        self.room.set()

    # -- requests for records

    async def read_records(
        self,
        limit: int,
        until: float = math.inf,
        *,
        max_wait: float = 0.0,
        tracked: bool = False,
        places: int | None = None,
    ) -> list[ShareRecord[Any, Any]]:
        """Return up to `limit` records, [] if there is none by the time `until`.

        They are returned as soon as there is one, or, with `max_wait`, when there are `limit` or
        that many seconds after there was one. With `tracked`, the records are not accepted by the
        next request, and `places` is the number that may be held at a time. A cancellation loses no
        record: none is taken before the last await.
        """
        self._enter_read()
        try:
            self._begin_read(limit, places)
            while not self.stopped:
                if self._parts and max_wait:
                    await self._wait_for_more(limit, max_wait)
                records = self._take_list(limit, tracked)
                if records:
                    return records
                if not await self._wait_for_records(until):
                    break
            return []
        finally:
            self._end_read()

    async def _wait_for_more(self, limit: int, max_wait: float) -> None:
        """Wait for `limit` records, at most as long as records may wait in the consumer."""
        until = self._clock.monotonic() + max_wait
        for acquisition in self._parts[0].acquired:
            kept_s = acquisition.lock_s * (1 - DELIVERED_WITHIN * WAITED_WITHIN)
            until = min(until, acquisition.deadline - kept_s)
        while self._count_waiting() < limit and not self.stopped and not self._errors:
            self._engine.wake_leaders()
            if not await self.arrived.wait(until):
                break

    def _count_waiting(self) -> int:
        return sum(leader.count_waiting() for leader in self._engine.list_leaders())

    def _take_list(self, limit: int, tracked: bool) -> list[ShareRecord[Any, Any]]:
        records: list[ShareRecord[Any, Any]] = []
        while len(records) < limit:
            taken = self._take_records(limit - len(records))
            if taken is None:
                break
            taken_from, found = taken
            self._hold_records(taken_from.acquisition, found, tracked)
            records += found
        return records

    async def wait_for_room(self) -> None:
        """Wait until a record is settled or lost, or until the reader is stopped."""
        failure = self._engine.get_failure(raised=True)
        if failure is not None:
            raise failure
        self._engine.demand.on_full()
        await self.room.wait()

    async def expose_records(self, cursor: ShareIterator[Any, Any]) -> Any:
        """Expose the next records to a loop, and return the first; None at its end."""
        self._enter_read()
        try:
            self._begin_read(1)
            while not self.stopped:
                taken = self._take_records(TOGETHER, deliver=False)
                if taken is not None:
                    found, records = taken
                    self._exposure = exposure = LoopExposure(
                        found.acquisition, records, cursor, is_kept=found.is_kept
                    )
                    record = exposure.take_first()
                    self._engine.leader_watch.delivered.set()
                    return record
                await self._wait_for_records(math.inf)
            return None
        finally:
            self._end_read()

    async def expose_tracked(
        self, former: TrackedExposure | None, places: int
    ) -> TrackedExposure | None:
        """Return the records for an iteration of `tracked`; None if the reader is stopped.

        They are those that it had before as long as there are some. `places` is the number of
        records that may be held at a time.
        """
        self._enter_read()
        try:
            self._begin_read(1, places, former)
            if former is not None and former is self._exposure:
                if former.left and self._time() < former.until:
                    return former
                self._take_back()
            while not self.stopped:
                taken = self._take_records(TOGETHER, deliver=False)
                if taken is not None:
                    found, records = taken
                    self._watch_drops(found.acquisition, records)
                    self._exposure = exposure = TrackedExposure(
                        found.acquisition, records, is_kept=found.is_kept
                    )
                    self._engine.leader_watch.delivered.set()
                    return exposure
                await self._wait_for_records(math.inf)
            return None
        finally:
            self._end_read()

    def _enter_read(self) -> None:
        if self._is_reading:
            raise ConcurrentReadError()
        self._is_reading = True

    def _begin_read(
        self, wanted: int, places: int | None = None, kept: Exposure | None = None
    ) -> None:
        self.accept_delivered(kept)
        self._engine.demand.on_request(wanted, places)
        self._engine.meters.on_request()

    def _end_read(self) -> None:
        self._is_reading = False
        self._engine.demand.on_request_end()
        self._engine.meters.on_request_end()

    async def _wait_for_records(self, until: float) -> bool:
        failure = self._engine.get_failure(raised=True)
        if failure is not None:
            raise failure
        if self._errors:
            raise self._errors.popleft()
        error = self._membership.find_read_error()
        if error is not None:
            raise error
        self._engine.wake_leaders()
        return await self.arrived.wait(until)

    def _hold_records(
        self, acquisition: Acquisition, records: list[ShareRecord[Any, Any]], tracked: bool
    ) -> None:
        if tracked:
            self._watch_drops(acquisition, records)
        else:
            acquisition.keep_records(records)
            first = records[0].offset - acquisition.first
            last = records[-1].offset - acquisition.first
            self._delivered.append(Run(acquisition, first, last + 1))
        self._note_delivery(acquisition, len(records))

    def _watch_drops(
        self, acquisition: Acquisition, records: Sequence[ShareRecord[Any, Any]]
    ) -> None:
        acquisition.watch_records(records, partial(self._engine.settlements.note_drop, acquisition))

    # -- decoding

    def _take_records(
        self, limit: int, *, deliver: bool = True
    ) -> tuple[Slice, list[ShareRecord[Any, Any]]] | None:
        """Take up to `limit` records of one slice; None if there is nothing to deliver.

        Parts for which a thread, or the preparation of a deserializer, has something to do are
        passed over.
        """
        for part in list(self._parts):
            while not self._errors and self._advance_part(part):
                found = part.slices[0]
                records = self._make_records(found, limit, deliver=deliver)
                if found.index >= len(found.records):
                    part.slices.popleft()
                if records:
                    return found, records
                if found.is_waiting:
                    break
            if not part.slices and not part.batches and part.job is None:
                self._parts.remove(part)
        return None

    def _advance_part(self, part: FetchedPart) -> bool:
        """Return whether the part has decoded records that can be delivered now."""
        while True:
            while part.slices:
                found = part.slices[0]
                if found.is_waiting:
                    return False
                acquisition = found.acquisition
                left_s = acquisition.deadline - self._clock.monotonic()
                if found.is_kept or left_s >= acquisition.lock_s * LEFT_AT_DELIVERY:
                    return True
                self.release_waiting(acquisition)
                part.slices.popleft()
            if not self._decode_next(part):
                return False

    def _make_records(
        self, found: Slice, limit: int, *, deliver: bool
    ) -> list[ShareRecord[Any, Any]]:
        """Return the next records of a slice, with their locks; the error of one ends them."""
        acquisition = found.acquisition
        records = found.records[found.index : found.index + limit]
        first, states = acquisition.first, acquisition.states
        start, stop = records[0].offset - first, records[-1].offset - first + 1
        if states.count(LockState.WAITING, start, stop) == len(records):
            waiting = cast("list[RawRecord]", records)
        else:
            # Some are kept, were released because they had waited too long, or were lost.
            waiting = [each for each in records if states[each.offset - first] <= LockState.HELD]
        deserializers = self._deserializers.get()
        found.index += len(records)
        if found.is_ready:
            made = cast("list[ShareRecord[Any, Any]]", waiting)
        else:
            if deserializers and not self._is_raw:
                waiting = self._deserialize_records(deserializers, found, waiting)
            made = lock_records(waiting, ShareRecord, acquisition)
        if deliver and made:
            start, stop = made[0].offset - first, made[-1].offset - first + 1
            acquisition.apply_event(LockEvent.DELIVER, start, stop)
        return made

    def _deserialize_records(
        self, deserializers: Deserializers, found: Slice, records: list[RawRecord]
    ) -> list[RawRecord]:
        """Return the deserialized records; settle those that are not to be delivered.

        They end before a record with an error, which the next request raises, and before one that
        is not prepared.
        """
        acquisition = found.acquisition
        made: list[RawRecord] = []
        for number, raw in enumerate(records):
            kind: AcknowledgeType | None = None
            unprepared = deserializers.find_unprepared(raw) if deserializers.can_wait else None
            if unprepared is not None and (ended := found.preparation) and ended.first is raw:
                unprepared = ended.refusal
            elif unprepared is not None and unprepared.error is None:
                found.move_to(raw.offset)
                if not made:
                    self._begin_preparation(found, records[number : number + PREPARED])
                break
            try:
                if unprepared is None:
                    record = deserializers.deserialize_record(raw)
                else:
                    record = deserializers.refuse_record(raw, unprepared)
            except RecordError as error:
                if made:
                    found.move_to(raw.offset)  # The records before it come first.
                    break
                self._errors.append(error)
                kind = AcknowledgeType.RELEASE
            else:
                kind = _find_choice(record)
                if record is not None and kind is None:
                    made.append(record)
            if kind is not None:
                index = raw.offset - acquisition.first
                acquisition.partition.settle_run(Run(acquisition, index, index + 1), kind)
            if self._errors:
                found.move_to(raw.offset + 1)
                break
        return made

    def read_raw(self, raw: bool) -> None:
        """Deliver records as they were fetched from now on, or deserialized again. Synchronous."""
        self._is_raw = raw
        given = self._deserializers.get()
        self._copies = raw or given is None or not given.views

    def lock_deserialized(
        self, raw: ShareRecord[Any, Any], made: RawRecord | None
    ) -> ShareRecord[Any, Any] | None:
        """Return a record that was deserialized after its delivery, with its lock.

        None means that the handler is not to be called. Then the record is settled already if
        `on_record_error` has said so.
        """
        kind = _find_choice(made)
        if made is not None and kind is None:
            assert raw._acquisition is not None
            return lock_records([made], ShareRecord, raw._acquisition)[0]
        if kind is not None and self._engine.settlements.is_held(raw):
            self._engine.settlements.settle(raw, kind)
        return None

    async def deserialize_later(
        self, record: ShareRecord[Any, Any], timeout: float
    ) -> RawRecord | None:
        """Deserialize a record that was delivered as bytes, and prepare it before.

        `prepare` is awaited once, for at most `timeout` seconds: the backoff is that of the caller.
        Raises SchemaRegistryUnavailableError, or another KafkaError of `prepare`, if the record
        cannot be prepared now, and RecordError if it never can. A cancellation changes nothing.
        """
        given = self._deserializers.get()
        assert given is not None
        unprepared = given.find_unprepared(record)
        if unprepared is not None and unprepared.error is None:
            preparation = Preparation(self._pace, [record], timeout, self._deserializers)
            outcome = await preparation.attempt_once()
            if not preparation.has_ended:
                raise preparation.make_error(outcome)
            unprepared = preparation.refusal
        if unprepared is not None:
            return given.refuse_record(record, unprepared)
        return given.deserialize_bytes(record)

    # -- preparation of deserializers

    def _begin_preparation(self, found: Slice, records: Sequence[RawRecord]) -> None:
        """Prepare these records in the background, and keep their locks meanwhile.

        A registry may be away for longer than records may wait. If they were released, each new
        delivery would count, up to the limit after which a record is archived.
        """
        patience_s = self._config.default_api_timeout_ms / 1000
        found.preparation = Preparation(self._pace, records, patience_s, self._deserializers)
        found.is_kept = True
        acquisition = found.acquisition
        start = found.records[found.index].offset - acquisition.first
        stop = found.records[-1].offset - acquisition.first + 1
        acquisition.apply_event(LockEvent.DELIVER, start, stop)
        acquisition.delivered_at = self._clock.monotonic()
        self._engine.watch.changed.set()
        self._engine.leader_watch.delivered.set()
        name = f"preparation for {acquisition.partition.tp}"
        self._engine.supervisor.spawn(self._prepare_records, found, name=name)

    async def _prepare_records(self, found: Slice) -> None:
        """Attempt until the first record of the preparation is prepared, refused, or lost."""
        preparation = found.preparation
        assert preparation is not None
        while not preparation.has_ended:
            outcome = await preparation.attempt_once()
            if preparation.has_ended or not found.count_kept():
                break
            error = preparation.find_error(outcome)
            if error is not None:
                self._errors.append(error)
                self.arrived.set()
            await asyncio.sleep(preparation.take_pause_s())
        preparation.has_ended = True
        self.arrived.set()

    def count_kept(self) -> int:
        """Return the number of records that are kept for the preparation of their deserializers."""
        exposed = 0 if self._exposure is None else self._exposure.count_kept()
        return exposed + sum(found.count_kept() for part in self._parts for found in part.slices)

    def list_troubles(self) -> list[str]:
        """Return why records cannot be deserialized, as texts. Synchronous."""
        made = [found.preparation for part in self._parts for found in part.slices]
        texts = [each.describe_trouble() for each in made if each is not None]
        return [text for text in texts if text is not None]

    # -- batches

    def _decode_next(self, part: FetchedPart) -> bool:
        """Decode the next batch of a part, or the next part of a large batch, into slices.

        Return False if there is none, or while a thread decodes it.
        """
        if not part.batches:
            return False
        batch = part.batches[0]
        runs = [
            run
            for run in part.find_acquired(max(batch.base_offset, part.position), batch.last_offset)
            if LockState.WAITING in run.acquisition.states[run.start : run.stop]
        ]
        if not runs:
            part.end_batch()
            return True
        try:
            loaded = self._load_batch(part, batch)
        except CorruptRecordError as error:
            self._refuse_batch(part.partition, runs, Damage.of(batch, error))
            part.end_batch()
            return True
        if loaded is None:
            return False
        last = batch.last_offset if loaded.rest is None else loaded.records[-1].offset
        self._cut_slices(part, loaded.records, last)
        if loaded.rest is None:
            part.end_batch()
        else:
            part.position, part.rest = last + 1, loaded.rest
        return True

    def _load_batch(self, part: FetchedPart, batch: RecordBatch) -> Loaded | None:
        """Return records of a batch, in parts if it is large; None while a thread reads it.

        Raises CorruptRecordError.
        """
        check, limit, job = (
            self._config.check_crcs,
            self._config.max_decompressed_batch_bytes,
            part.job,
        )
        tp = part.partition.tp
        if batch.is_control:
            check_marker(batch, check_crcs=check)
            return Loaded([], 0, None)
        if job is None and part.rest is None and is_light((batch,)):
            with contextlib.suppress(ContentLimitError):
                most = min(CONTENT, limit)
                records = batch.records(
                    *tp, copy=self._copies, check_crcs=check, limit=most, kind=self._kind
                )
                return Loaded(records, batch.content_size, None)
        if job is None:
            if part.rest is not None:
                work = partial(load_part, part.rest, tp, part.position, self._copies)
            else:
                work = partial(load, batch, tp, part.position, self._copies, check, limit)
            callbacks = self._engine.supervisor.callbacks
            part.job = callbacks.call_in_thread(work, then=self._on_job_done)
            return None
        if not job.done():
            return None
        part.job = None
        return job.result()

    def _on_job_done(self, job: asyncio.Future[Loaded]) -> None:
        if not job.cancelled():
            job.exception()  # It is raised when the batch is reached.
        self.arrived.set()

    def _cut_slices(self, part: FetchedPart, records: list[RawRecord], last: int) -> None:
        """Add slices of the acquired records up to offset `last`, and settle what has no record."""
        offsets: Sequence[int] = range(0)
        if records:
            offsets = range(records[0].offset, records[-1].offset + 1)
            if len(offsets) != len(records):
                offsets = [record.offset for record in records]
        batch = part.batches[0]
        for run in part.find_acquired(max(batch.base_offset, part.position), last):
            first = run.acquisition.first
            start = bisect_left(offsets, first + run.start)
            stop = bisect_left(offsets, first + run.stop)
            found = records[start:stop]
            if len(found) < run.length:
                self._settle_gaps(part, run, offsets[start:stop])
            if not found:
                continue
            is_ready = isinstance(found[0], ShareRecord)
            if is_ready:
                set_locks(cast("list[ShareRecord[Any, Any]]", found), ShareRecord, run.acquisition)
            part.slices.append(Slice(run.acquisition, found, is_ready=is_ready))

    def _settle_gaps(self, part: FetchedPart, run: Run, offsets: Sequence[int]) -> None:
        present = set(offsets)
        first = run.acquisition.first
        for index in range(run.start, run.stop):
            if first + index not in present:
                gap = Run(run.acquisition, index, index + 1)
                part.partition.settle_run(gap, AcknowledgeType.GAP)

    def _refuse_batch(self, partition: SharePartition, runs: Sequence[Run], damage: Damage) -> None:
        """Raise the error of a damaged batch by a request, and settle its acquired offsets.

        It is released once, because the damage may be that of the transfer, and then rejected.
        """
        for run in runs:
            again = run.acquisition.delivery_count > 1
            kind = AcknowledgeType.REJECT if again else AcknowledgeType.RELEASE
            partition.settle_run(run, kind)
        limit = self._config.max_decompressed_batch_bytes
        error = damage.make_error(partition.tp, limit)
        error.hint = REFUSED
        self._errors.append(error)
        self.arrived.set()

    # -- the end

    def stop(self) -> None:
        """Deliver nothing more: iterations end, and requests return nothing. Synchronous."""
        self.mark_stopped()
        self._engine.wake_leaders()

    def mark_stopped(self) -> None:
        """Deliver nothing more. Safe in any thread."""
        self.stopped = True
        exposure = self._exposure
        if exposure is not None:
            exposure.interrupt()
        self.arrived.set()
        self.room.set()


def _find_choice(record: RawRecord | None) -> AcknowledgeType | None:
    """Return how `on_record_error` wants a record to be settled, None if it is to be delivered."""
    if record is None:
        return AcknowledgeType.ACCEPT  # SKIP
    if record.key is RELEASE or record.value is RELEASE:
        return AcknowledgeType.RELEASE
    if record.key is REJECT or record.value is REJECT:
        return AcknowledgeType.REJECT
    return None
