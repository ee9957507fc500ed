"""The delivery of acquired records to one reading task at a time.

Parts of answers wait in the order of their arrival. A batch is decoded when the reading task
reaches it. The offsets of a batch that were acquired and have no record (compaction, control
records) are settled as gaps. A record is delivered only if at least half of its lock is left,
otherwise it is released.

Requesting records accepts those that were delivered before, unless they were settled or are
tracked. An iteration takes records from a list without calling the reader, which finds out how far
it went (`settle_passed`) when the iteration needs more, and before each request to a leader.
"""

from __future__ import annotations

import contextlib
import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter, length_hint
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from aiokclient.cluster.lifecycle.ownership import Anchor
from aiokclient.errors import (
    ConcurrentReadError,
    CorruptBatchError,
    CorruptRecordError,
    KafkaError,
    RecordError,
)
from aiokclient.record.batch import RecordBatch, walk
from aiokclient.share.delivery.record import ShareRecord, lock_records
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
    from aiokclient.background import RecordCursor
    from aiokclient.decoding.deserialize import Deserializers
    from aiokclient.protocol.messages.share_fetch import PartitionData
    from aiokclient.share.engine import ShareEngine
    from aiokclient.share.membership import ShareMembership
    from aiokclient.share.partition import SharePartition

RawRecord: TypeAlias = "ConsumerRecord[Any, Any]"

EXPOSED_S: Final = 0.01
"""The seconds for which an iteration takes records without calling the reader."""

WAITED_WITHIN: Final = 0.8
"""The part of the time for which records may wait that `max_wait` may take."""

TOGETHER: Final = 500
"""The largest number of records that are deserialized at a time."""


class Slice:
    """Decoded records of one acquisition, of which those from `index` on are not delivered."""

    __slots__ = ("acquisition", "index", "is_ready", "records")

    def __init__(
        self, acquisition: Acquisition, records: Sequence[RawRecord], *, is_ready: bool = False
    ) -> None:
        self.acquisition = acquisition
        self.records = records
        self.index = 0
        self.is_ready = is_ready
        """Whether the records are deserialized, and have their locks."""


class FetchedPart:
    """What an answer has of one partition: record batches, and the acquired offsets in them."""

    __slots__ = ("acquired", "batches", "partition", "slices")

    def __init__(
        self, partition: SharePartition, batches: list[RecordBatch], acquired: list[Acquisition]
    ) -> None:
        self.partition = partition
        self.acquired = acquired
        self.batches = deque(batches)
        """The batches that are not decoded."""
        self.slices: deque[Slice] = deque()

    def find_acquired(self, first: int, last: int) -> Iterator[Run]:
        """Yield the acquired offsets from `first` to `last`."""
        for acquisition in self.acquired:
            start = max(first - acquisition.first, 0)
            stop = min(last - acquisition.first + 1, len(acquisition.states))
            if start < stop:
                yield Run(acquisition, start, stop)


class ShareReader:
    """The delivery of the records of one consumer."""

    def __init__(self, engine: ShareEngine, deserializers: Deserializers) -> None:
        self._engine = engine
        self._clock = engine.cluster.clock
        self._config = engine.config
        self._membership: ShareMembership = engine.membership
        self._deserializers = Anchor(deserializers)
        self._parts: deque[FetchedPart] = deque()
        self._errors: deque[KafkaError] = deque()
        """Errors that requests raise, one each."""
        self._delivered: list[Run] = []
        """What the next request accepts."""
        self._exposed: list[ShareRecord[Any, Any]] = []
        self._iterator: Iterator[ShareRecord[Any, Any]] | None = None
        self._cursor: RecordCursor[Any] | None = None
        self._passed = 0
        """The number of exposed records that are known to be delivered."""
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
        records = memoryview(data.records or b"")
        try:
            batches = walk(records)
        except CorruptRecordError as error:
            self._refuse_batch(
                partition, [Run(each, 0, len(each.states)) for each in acquired], error
            )
            return
        part = FetchedPart(partition, batches, acquired)
        # Offsets outside of all batches: compaction has removed their records, unless the answer
        # ends within a batch.
        is_whole = sum(batch.size for batch in batches) == len(records) > 0
        kind = AcknowledgeType.GAP if is_whole else AcknowledgeType.RELEASE
        position = min((each.first for each in acquired), default=0)
        for batch in batches:
            self._settle_runs(part, part.find_acquired(position, batch.base_offset - 1), kind)
            position = max(position, batch.next_offset)
            self._engine.note_batch(batch.count)
        self._settle_runs(part, part.find_acquired(position, 1 << 63), kind)
        self._parts.append(part)
        self.arrived.set()

    def _settle_runs(self, part: FetchedPart, runs: Iterable[Run], kind: AcknowledgeType) -> None:
        for run in runs:
            part.partition.settle_run(run, kind)

    def release_waiting(self, acquisition: Acquisition) -> None:
        """Release the records of an acquisition that were not delivered. Synchronous."""
        self.settle_passed()
        if self._exposed and self._exposed[0]._acquisition is acquisition:
            self._take_back()
        released = acquisition.count_state(LockState.WAITING)
        for run in list(acquisition.find_runs(LockState.WAITING)):
            acquisition.partition.settle_run(run, AcknowledgeType.RELEASE)
        self._engine.meters.on_undelivered(released)

    def release_all(self) -> None:
        """Release everything that is not settled, for a close. Synchronous."""
        self.settle_passed()
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
        """Accept the records that an iteration has passed. Synchronous."""
        if self._iterator is None:
            return
        count = len(self._exposed) - length_hint(self._iterator)
        if count == self._passed:
            return
        acquisition = self._exposed[0]._acquisition
        assert acquisition is not None
        last = self._exposed[count - 1].offset - acquisition.first
        first = self._exposed[max(self._passed - 1, 0)].offset - acquisition.first
        if last > first:
            acquisition.partition.settle_run(Run(acquisition, first, last), AcknowledgeType.ACCEPT)
            self._engine.meters.on_settled(AcknowledgeType.ACCEPT, last - first, None)
        acquisition.apply_event(LockEvent.DELIVER, last, last + 1)
        acquisition.delivered_at = self._clock.monotonic()
        self._engine.meters.on_delivered(acquisition, count - self._passed)
        self._engine.demand.on_delivery(count - self._passed)
        self._passed = count
        self._engine.watch.changed.set()

    def _take_back(self) -> None:
        """Let the iteration call the reader for its next record."""
        if self._iterator is None:
            return
        self.settle_passed()
        if self._passed:
            acquisition = self._exposed[0]._acquisition
            assert acquisition is not None
            index = self._exposed[self._passed - 1].offset - acquisition.first
            self._delivered.append(Run(acquisition, index, index + 1))
        if self._cursor is not None:
            self._cursor.expose(iter(()), 0.0)
        if self._passed < len(self._exposed):
            acquisition = self._exposed[0]._acquisition
            assert acquisition is not None
            part = FetchedPart(acquisition.partition, [], [acquisition])
            part.slices.append(Slice(acquisition, self._exposed[self._passed :], is_ready=True))
            self._parts.appendleft(part)
        self._exposed, self._iterator, self._cursor, self._passed = [], None, None, 0

    def accept_delivered(self) -> None:
        """Accept what was delivered and not settled, except tracked records. Synchronous."""
        self._take_back()
        for run in self._delivered:
            run.acquisition.partition.settle_run(run, AcknowledgeType.ACCEPT)
            self._engine.meters.on_settled(AcknowledgeType.ACCEPT, run.length, None)
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
        wanted: int = 0,
    ) -> list[ShareRecord[Any, Any]]:
        """Return up to `limit` records, [] if there is none by the time `until`.

        They are returned as soon as there is one, or, with `max_wait`, when there are `limit` or
        that many seconds after there was one. With `tracked`, the records are not accepted by the
        next request. `wanted` is the number of records that the application has room for, by
        default `limit`. A cancellation loses no record: none is taken before the last await.
        """
        with self._begin_read(wanted or limit):
            while not self.stopped:
                if self._parts and max_wait:
                    await self._wait_for_more(limit, max_wait)
                records = self._take_list(limit, tracked)
                if records:
                    return records
                if not await self._wait_for_records(until):
                    break
            return []

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
            acquisition, found = taken
            self._hold_records(acquisition, found, tracked)
            records += found
        return records

    async def wait_for_room(self) -> None:
        """Wait until a record is settled or lost, or until the reader is stopped."""
        failure = self._engine.get_failure(raised=True)
        if failure is not None:
            raise failure
        await self.room.wait()

    async def expose_records(self, cursor: RecordCursor[Any]) -> Any:
        """Expose the next records to an iteration, and return the first; None at its end."""
        with self._begin_read(1):
            while not self.stopped:
                taken = self._take_records(TOGETHER, deliver=False)
                if taken is not None:
                    acquisition, records = taken
                    acquisition.keep_records(records)
                    self._exposed, self._cursor = records, cursor
                    self._iterator = iter(records)
                    cursor.expose(self._iterator, EXPOSED_S)
                    return next(self._iterator)
                await self._wait_for_records(math.inf)
            return None

    @contextlib.contextmanager
    def _begin_read(self, wanted: int) -> Iterator[None]:
        if self._is_reading:
            raise ConcurrentReadError()
        self._is_reading = True
        try:
            self.accept_delivered()
            self._engine.demand.on_request(wanted)
            self._engine.meters.on_request()
            yield
        finally:
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
            drop = self._engine.settlements.drop_record
            for record in records:
                acquisition.watch_record(record, partial(drop, acquisition, record.offset))
        else:
            acquisition.keep_records(records)
            first = records[0].offset - acquisition.first
            last = records[-1].offset - acquisition.first
            self._delivered.append(Run(acquisition, first, last + 1))
        acquisition.delivered_at = self._clock.monotonic()
        self._engine.meters.on_delivered(acquisition, len(records))
        self._engine.demand.on_delivery(len(records))
        self._engine.watch.changed.set()

    # -- decoding

    def _take_records(
        self, limit: int, *, deliver: bool = True
    ) -> tuple[Acquisition, list[ShareRecord[Any, Any]]] | None:
        """Take up to `limit` records of one acquisition; None if there is nothing to deliver."""
        while self._parts:
            part = self._parts[0]
            if not part.slices:
                if part.batches:
                    self._decode_batch(part)
                else:
                    self._parts.popleft()
                continue
            found = part.slices[0]
            acquisition = found.acquisition
            left_s = acquisition.deadline - self._clock.monotonic()
            if left_s < acquisition.lock_s * LEFT_AT_DELIVERY:
                self.release_waiting(acquisition)
                part.slices.popleft()
                continue
            if self._errors:
                return None
            records = self._prepare_records(found, limit, deliver=deliver)
            if found.index >= len(found.records):
                part.slices.popleft()
            if records:
                return acquisition, records
        return None

    def _prepare_records(
        self, found: Slice, limit: int, *, deliver: bool
    ) -> list[ShareRecord[Any, Any]]:
        """Return the next records of a slice, with their locks; the error of one ends them."""
        acquisition = found.acquisition
        records = found.records[found.index : found.index + limit]
        start = records[0].offset - acquisition.first
        stop = records[-1].offset - acquisition.first + 1
        if acquisition.states.count(LockState.WAITING, start, stop) < len(records):
            # Some were released because they had waited too long, or their locks were lost.
            first, states = acquisition.first, acquisition.states
            waiting = [each for each in records if states[each.offset - first] == LockState.WAITING]
        else:
            waiting = list(records)
        deserializers = self._deserializers.get()
        found.index += len(records)
        if found.is_ready:
            made = cast("list[ShareRecord[Any, Any]]", waiting)
        else:
            if deserializers:
                waiting = self._deserialize_records(deserializers, found, waiting)
            made = lock_records(waiting, ShareRecord, acquisition)
        if deliver and made:
            first = made[0].offset - acquisition.first
            last = made[-1].offset - acquisition.first
            acquisition.apply_event(LockEvent.DELIVER, first, last + 1)
        return made

    def _deserialize_records(
        self, deserializers: Deserializers, found: Slice, records: list[RawRecord]
    ) -> list[RawRecord]:
        """Return the deserialized records; settle those that are not to be delivered.

        They end before a record with an error, which the next request raises.
        """
        acquisition = found.acquisition
        made: list[RawRecord] = []
        for raw in records:
            kind: AcknowledgeType | None = None
            try:
                record = deserializers.deserialize_record(raw)
            except RecordError as error:
                if made:
                    # The records before it come first.
                    found.index = bisect_left(found.records, raw.offset, key=attrgetter("offset"))
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
                found.index = bisect_left(found.records, raw.offset + 1, key=attrgetter("offset"))
                break
        return made

    def _decode_batch(self, part: FetchedPart) -> None:
        """Decode the next batch of a part into slices."""
        batch = part.batches.popleft()
        runs = [
            run
            for run in part.find_acquired(batch.base_offset, batch.last_offset)
            if LockState.WAITING in run.acquisition.states[run.start : run.stop]
        ]
        if not runs:
            return
        try:
            if batch.is_control:
                records = []
            else:
                records = batch.records(
                    *part.partition.tp,
                    copy=True,
                    check_crcs=self._config.check_crcs,
                    limit=self._config.max_decompressed_batch_bytes,
                )
        except CorruptRecordError as error:
            self._refuse_batch(part.partition, runs, error)
            return
        offsets = [record.offset for record in records]
        for run in runs:
            first = run.acquisition.first
            start = bisect_left(offsets, first + run.start)
            stop = bisect_left(offsets, first + run.stop)
            found = records[start:stop]
            if len(found) < run.length:
                self._settle_gaps(part, run, offsets[start:stop])
            if found:
                part.slices.append(Slice(run.acquisition, found))

    def _settle_gaps(self, part: FetchedPart, run: Run, offsets: list[int]) -> None:
        present = set(offsets)
        first = run.acquisition.first
        for index in range(run.start, run.stop):
            if first + index not in present:
                gap = Run(run.acquisition, index, index + 1)
                part.partition.settle_run(gap, AcknowledgeType.GAP)

    def _refuse_batch(
        self, partition: SharePartition, runs: Sequence[Run], cause: CorruptRecordError
    ) -> None:
        """Raise the error of a damaged batch by a request, and settle its acquired offsets.

        It is released once, because the damage may be that of the transfer, and then rejected.
        """
        for run in runs:
            again = run.acquisition.delivery_count > 1
            kind = AcknowledgeType.REJECT if again else AcknowledgeType.RELEASE
            partition.settle_run(run, kind)
        first = runs[0].acquisition.first + runs[0].start
        last = runs[-1].acquisition.first + runs[-1].stop - 1
        error = CorruptBatchError(
            str(cause), topic_partition=partition.tp, offset=first, last_offset=last
        )
        error.__cause__ = cause
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
        cursor = self._cursor
        if cursor is not None:
            cursor.interrupt()
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
