"""The delivery of records to one reading task at a time, without loss and without duplicates.

Parts of fetch responses wait in the `FetchBuffer`. The unpacker turns them into chunks, which wait
in `_chunks`. A position moves when records are delivered, without an await between the delivery and
the move. So an earlier cancellation loses nothing: the chunks stay.

An iteration takes records from the list iterator of the first chunk, without calling `Reader`. That
chunk is called *exposed*. Its list iterator shows how far the iteration went, which is examined
when it matters (`update_position`). When anything changes that concerns the exposed chunk (a seek,
a pause, a revocation, or `stop`), the chunk is taken back, so that the iteration must call `Reader`
for its next record.

`in_progress.py` says what counts as delivered, in progress and processed.
"""

from __future__ import annotations

import asyncio
import math
import weakref
from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from aiokclient.clock import get_loop_clock
from aiokclient.consumer.arguments import MAX_BYTES
from aiokclient.consumer.delivery.read_lock import Cursor
from aiokclient.consumer.delivery.stall_watch import StallWatch
from aiokclient.consumer.delivery.unpack import Chunk, Unpacker
from aiokclient.consumer.fetching.buffer import PartitionFetch
from aiokclient.consumer.meters import ReadMeters
from aiokclient.consumer.records import Records
from aiokclient.consumer.state.partition import PartitionState, Phase
from aiokclient.consumer.state.subscription import SubscriptionState
from aiokclient.decoding.batches import Damage
from aiokclient.decoding.deserialize import RawRecord
from aiokclient.scopes import new_scope
from aiokclient.types import TopicPartition

if TYPE_CHECKING:
    from aiokclient.consumer.engine import ConsumerEngine, Lookups
    from aiokclient.scopes import CancelScope

TOGETHER = 16
"""The factor that decides when partitions at their ends are withheld.

They are withheld together as soon as their number times this factor reaches the number of open
partitions.
"""


class EndOffsets:
    """The end offsets of one iteration. Each partition that reaches its end offset is withheld.

    The iteration also ends when its iterator is garbage collected or another request is made. A
    partition that is revoked and assigned again during the iteration keeps its end offset. If its
    log is replaced by another one, as in another cluster, the end offset is looked up again.

    Withholding a partition is expensive, because other objects then examine every partition. So if
    there are thousands of partitions, several are withheld together. `_examine_partitions` is
    expensive, too, so between changes only partitions that have moved are examined.
    """

    def __init__(self, subscription: SubscriptionState) -> None:
        self._subscription = subscription
        self._ends: Mapping[TopicPartition, int] = {}
        self._offsets: dict[PartitionState, int] = {}
        self._open: set[PartitionState] = set()
        """The partitions that had not reached their ends when they were last examined."""
        self._to_hold: list[PartitionState] = []
        self._current = False
        self._cursor: weakref.ref[Any] | None = None
        self.are_set = False
        """Whether an iteration has end offsets, whose iterator may be garbage by now."""
        self._lookup: CancelScope | None = None
        self._replacements = 0
        """The number of times that logs of partitions were replaced by others."""
        self._valid_after = 0
        """The value of `_replacements` for which the end offsets are valid. When it has increased,
        they must be looked up again.
        """

    async def find_ends(self, lookups: Lookups) -> Mapping[TopicPartition, int] | None:
        """Return the present end offsets, or None if `end_lookup` ends their lookup.

        End offsets that were already known are not replaced. If logs are replaced during the
        lookup, it begins again.
        """
        while True:
            before, found = self._replacements, None
            with new_scope() as self._lookup:
                found = await lookups.find_final_offsets()
            if found is None:
                return None
            if before == self._replacements:
                return {**found, **self._ends}

    def on_logs_replaced(self, tps: Iterable[TopicPartition] | None) -> None:
        """Look up the end offsets of these partitions, or of all for None, again.

        Known end offsets are those of the former logs, which were replaced.
        """
        gone = self._ends if tps is None else dict.fromkeys(tps)
        self._ends = {tp: end for tp, end in self._ends.items() if tp not in gone}
        self._replacements += 1

    def are_outdated(self, cursor: Cursor | None) -> bool:
        """Return whether end offsets of this iteration must be looked up again."""
        return self._valid_after != self._replacements and self.belong_to(cursor)

    def end_lookup(self) -> None:
        """End the lookup that is in progress, if there is one."""
        if self._lookup is not None:
            self._lookup.cancel()

    def begin_iteration(
        self, cursor: Cursor, ends: Mapping[TopicPartition, int]
    ) -> Mapping[PartitionState, int]:
        """Set the end offsets for an iteration; return those of the assigned partitions.

        End offsets of partitions that are assigned later are added to the same mapping.
        """
        self._cursor, self.are_set = weakref.ref(cursor), True
        self._ends, self._offsets = ends, {}
        self._valid_after = self._replacements
        self._add_assigned()
        self._open = {state for state, end in self._offsets.items() if state.position < end}
        self._to_hold = [state for state in self._offsets if state not in self._open]
        self.hold_partitions()
        return self._offsets

    def on_move(self, state: PartitionState) -> None:
        """Withhold the partition if it is at its end, immediately or later together with others."""
        end = self._offsets.get(state)
        if end is not None and state.position >= end:
            self._open.discard(state)
            self._to_hold.append(state)
            if len(self._to_hold) * TOGETHER >= len(self._open):
                self.hold_partitions()

    def find_end(self, state: PartitionState) -> float:
        """Return the end offset of a partition, or infinity."""
        return self._offsets.get(state, math.inf)

    def hold_partitions(self) -> None:
        """Withhold the partitions that are at their ends and are not withheld yet."""
        states, self._to_hold = self._to_hold, []
        if states:
            self._subscription.withhold_at_end(states, True)

    def on_change(self) -> None:
        """Make `are_reached` examine the partitions again, because something has changed."""
        self._current = False

    def belong_to_other(self, cursor: Cursor | None) -> bool:
        """Return whether there are end offsets of an iteration other than `cursor`."""
        return self.are_set and not self.belong_to(cursor)

    def belong_to(self, cursor: Cursor | None) -> bool:
        """Return whether there are end offsets of this iteration."""
        return cursor is not None and self._cursor is not None and self._cursor() is cursor

    def are_reached(self) -> bool:
        """Return whether all partitions are at their ends or no longer assigned."""
        if not self._current or not self._open:
            self._examine_partitions()
        return not self._open and self._subscription.are_partitions_known()

    def _add_assigned(self) -> None:
        """Add the partitions that are assigned now, with their end offsets."""
        partitions = self._subscription.partitions
        self._offsets.update(
            (partitions[tp], end) for tp, end in self._ends.items() if tp in partitions
        )

    def _examine_partitions(self) -> None:
        partitions = self._subscription.partitions
        self._current = True
        self._add_assigned()
        self._open = {
            state
            for state, end in self._offsets.items()
            if partitions.get(state.tp) is state
            and not (state.is_located and state.position >= end)
        }
        self._to_hold = [state for state in self._to_hold if state not in self._open]
        # A seek may have moved withheld partitions below their end offsets.
        back = [state for state in self._open if state.is_at_end]
        if back:
            self._subscription.withhold_at_end(back, False)

    def are_reached_at(
        self, offsets: Mapping[PartitionState, int], only: PartitionState | None = None
    ) -> bool:
        """Return whether these positions have reached all end offsets.

        With `only`, only this partition counts.
        """
        partitions = self._subscription.partitions
        return all(
            offsets.get(state, state.position) >= end
            for state, end in self._offsets.items()
            if partitions.get(state.tp) is state and only in (None, state)
        )

    def clear(self) -> None:
        """Remove the end offsets, and stop withholding partitions."""
        held = [state for state in self._offsets if state.is_at_end]
        self._cursor, self.are_set, self._ends, self._offsets = None, False, {}, {}
        self._open, self._to_hold = set(), []
        self._subscription.withhold_at_end(held, False)


YIELD_INTERVAL_S: Final = 0.010
"""Seconds after which a request yields to the event loop."""


class Reader:
    """The delivery of one consumer's records to the application."""

    def __init__(self, engine: ConsumerEngine, unpacker: Unpacker, stalls: StallWatch) -> None:
        self._engine = engine
        self._group = engine.group
        self.subscription = subscription = engine.subscription
        self._buffer = engine.buffer
        self._unpacker = unpacker
        self._preparations = engine.preparations
        self._arrived = engine.arrived
        self._reports = engine.reports
        self.in_progress = engine.in_progress
        self.read_lock = engine.read_lock
        self.meters = ReadMeters(subscription.own_metrics)
        self._stalls = stalls
        self.waiting_since: float | None = None
        """The first wait since records were delivered, or None if nothing has waited since."""
        self._time = get_loop_clock()
        self._chunks: deque[Chunk] = deque()
        self._exposed: Chunk | None = None
        self._failed = self._woken = False
        self._idle = subscription.own_metrics.counter("idle.seconds")
        self._yielded = 0.0
        self._looked = 0.0
        """The time at which a request last checked whether to yield."""
        self._fresh = False
        self._cut_short = False
        """Whether unpacking was interrupted in order to yield to the event loop."""
        self.ends = EndOffsets(subscription)
        self.stopped = False
        subscription.add_change_listener(self.on_change)

    # -- calls by other parts of the consumer

    def revalidate_exposed(self) -> None:
        """Take back the exposed chunk if it must not be delivered any more."""
        exposed = self._exposed
        if exposed is not None and not exposed.is_valid:
            self._take_back_exposed()

    def seek_buffered(self, state: PartitionState, offset: int, epoch: int) -> bool:
        """Move a position to an offset that is buffered; return False if it is not buffered.

        To be called after `update_position`.
        """
        parts = self._buffer.find_parts(state, offset) if state.phase is Phase.FETCHING else []
        if not parts:
            return False
        if self._exposed is not None and self._exposed.state is state:
            self._take_back_exposed()
        self._chunks = deque(chunk for chunk in self._chunks if chunk.state is not state)
        state.move_in_buffer(offset, epoch)
        self._buffer.rewind(parts)
        return True

    def on_change(self) -> None:
        """Drop chunks that must not be delivered any more, and wake a waiting request.

        Called after partitions, positions, or pauses have changed.
        """
        void = [chunk for chunk in self._chunks if not chunk.is_valid]
        if void:
            self._chunks = deque(chunk for chunk in self._chunks if chunk.is_valid)
            self._buffer.rewind(chunk.fetch for chunk in void)
        self._buffer.sort_parts()
        states = self.subscription.partitions.values()
        self._failed = any(state.must_raise for state in states)
        self.ends.on_change()
        self._arrived.set()

    def stop(self) -> None:
        """Make the next request end all reading. To be called in the loop's thread."""
        self.mark_stopped()
        self.wake_request()

    def mark_stopped(self) -> None:
        """Do the part of `stop` that is safe in any thread. It does not wake a waiting request."""
        self.stopped = True
        self.read_lock.interrupt_iteration()

    def wake_request(self) -> None:
        """Wake a waiting request, because the consumer may have failed."""
        self._woken = True
        self.read_lock.interrupt_iteration()
        self.ends.end_lookup()
        self._arrived.set()

    def on_iteration_end(self, cursor: Cursor) -> None:
        """Handle the end of an iteration."""
        self.read_lock.on_iteration_end(cursor)
        if self.ends.belong_to(cursor):
            self._clear_end_offsets()

    # -- positions

    def update_position(self) -> None:
        """Move the position after the records that the iteration took from the exposed chunk."""
        if self._exposed is not None:
            self._count_exposed(self._exposed, in_progress=True)

    def _count_exposed(self, chunk: Chunk, *, in_progress: bool) -> None:
        """Do what `update_position` does. Without `in_progress`, a request has ended processing."""
        if count := chunk.count_delivered():
            self.meters.count_delivered(chunk.state.tp.topic, count)
            last = chunk.records[chunk.delivered - 1].offset if in_progress else None
            self._move_position(chunk, last)

    def _move_position(
        self, chunk: Chunk, processed: int | None = None, *, out: bool = True
    ) -> None:
        """Move the position after the delivered (or, if not `out`, skipped) records of a chunk."""
        state, records, delivered = chunk.state, chunk.records, chunk.delivered
        if chunk.generation != state.generation:
            return
        offset = records[delivered].offset if delivered < len(records) else chunk.next_offset
        state.move_position(offset, chunk.epoch)
        if out:
            self.in_progress.on_delivered(state, processed, first=chunk.delivered <= 1)
        else:
            self.in_progress.on_skipped(state)

    def _take_back_exposed(self) -> None:
        self.update_position()
        chunk, self._exposed = self._exposed, None
        if chunk is not None and chunk.delivered < len(chunk.records):
            # The iteration must not take the rest without a request.
            self.read_lock.interrupt_iteration()

    def _on_request(
        self, cursor: Cursor | None, *, tracking: bool = False, keeps: bool = False
    ) -> bool:
        """Begin a request: records that were in progress now count as processed.

        With `keeps`, they remain in progress. The end offsets of an earlier iteration are removed.
        Returns whether the request must call `_yield_to_loop` first.
        """
        if self._group is not None:
            self._group.on_records_requested()
        if self._exposed is not None:
            # The lock has interrupted any other iteration, and this one makes the request.
            self._count_exposed(self._exposed, in_progress=keeps)
            self._exposed = None
        self.in_progress.on_request(tracking=tracking, keeps=keeps)
        if self.ends.are_set and self.ends.belong_to_other(cursor):
            self._clear_end_offsets()
        self._cut_short = False
        self._looked = now = self._time()
        return self._fresh or now - self._yielded >= YIELD_INTERVAL_S

    async def yield_if_due(self) -> None:
        """Yield to the event loop if the last time was YIELD_INTERVAL_S ago."""
        self._looked = now = self._time()
        if self._fresh or now - self._yielded >= YIELD_INTERVAL_S:
            await self._yield_to_loop()

    async def _yield_to_loop(self) -> None:
        """Yield to the event loop. Cancellations and timeouts take effect here."""
        self._cut_short = False
        try:
            await asyncio.sleep(0)
        finally:
            # This also runs after a cancellation. Otherwise every following request would yield
            # here, and could be cancelled here again.
            self._yielded, self._fresh = self._time(), False

    async def _wait_for_records(self, until: float) -> None:
        self.ends.hold_partitions()
        if self.waiting_since is None:
            self.waiting_since = self._time()
            self._stalls.begin_watch(self.waiting_since)
        await self._arrived.wait(until)
        self.ends.on_change()
        began = max(self._looked, self._yielded)
        self._yielded, self._fresh = self._time(), False
        self._idle.value += self._yielded - began

    # -- chunks

    def _find_first_chunk(self) -> Chunk | None:
        """Return the first chunk with a record left, and remove all chunks before it.

        Return None if there is none yet. Also return None, and set `_cut_short`, if skipping
        records took too long; the caller must then yield to the loop and try again. Raises the
        errors of records and partitions.
        """
        changed = True
        while True:
            if changed:
                self.subscription.apply_changes()
            if self._failed or self._woken or self._reports.errors:
                self._raise_failure()
            if not self._chunks and not self._unpack_chunk():
                return None
            chunk = self._chunks[0]
            if chunk.delivered < len(chunk.records):
                return chunk
            # Most chunks that are read change nothing, and applying changes takes some time.
            changed = self.ends.are_set or chunk.damage is not None or chunk.error is not None
            self._remove_chunk(chunk)
            if self._time() - self._yielded >= YIELD_INTERVAL_S:
                self._cut_short = True
                return None

    def _unpack_chunk(self, apart: Container[PartitionState] = ()) -> bool:
        chunk = self._unpacker.unpack_next(apart)
        if chunk is not None:
            self._chunks.append(chunk)
            self.meters.count_unpacked(chunk.state.tp.topic, chunk.share)
        return chunk is not None

    def _remove_chunk(self, chunk: Chunk) -> None:
        """Remove a chunk that has no records left. Raise its error, or handle its damage."""
        self._chunks.remove(chunk)  # Nearly always the first one.
        if chunk.damage is not None:
            self._on_damage(chunk.state, chunk.damage)
            return
        if not chunk.delivered:  # Otherwise, its last record has moved the position.
            self._move_position(chunk, out=chunk.error is not None)
            if chunk.raw is not None and chunk.raw.preparation is not None:
                self._preparations.withhold_partition(chunk.raw.preparation)
        fetch = chunk.fetch
        if chunk.next_offset >= fetch.next_offset and fetch.is_read:
            self._buffer.remove(fetch)
            self._fresh = True
        if self.ends.are_set:
            self.ends.on_move(chunk.state)
        if chunk.error is not None:
            raise chunk.error

    def _on_damage(self, state: PartitionState, damage: Damage) -> None:
        """Fetch a damaged batch again once. If it is still damaged, fail the partition.

        After that, only a seek by the application can move past the batch. A batch that could not
        be fetched is fetched again and again, because it may be deleted.
        """
        if damage.unfetched:
            state.set_obstruction(damage.cause)
        elif damage.over_limit:
            state.fail(damage.make_error(state.tp, self._unpacker.limit_bytes))
        elif state.fetch.damaged_at != damage.offset:
            self.meters.damaged.add()
            # The response may be damaged, and not the log of the broker.
            state.fetch_again(damage.offset)
        else:
            self.meters.damaged.add()
            state.fail(damage.make_error(state.tp, self._unpacker.limit_bytes))
        self.subscription.report_change()

    def _raise_failure(self) -> None:
        if self._woken and (failure := self._engine.get_failure(raised=True)) is not None:
            raise failure
        if self._reports.errors:
            raise self._reports.take_error()
        if self._failed:
            for state in self.subscription.partitions.values():
                if state.error is not None and state.must_raise:
                    # Each request raises this object, and each raise would extend its traceback.
                    raise state.error.with_traceback(None)

    # -- lists

    async def read_records(
        self,
        max_records: int,
        timeout: float,
        *,
        max_bytes: int = MAX_BYTES,
        max_wait: float = 0.0,
        by_partition: bool = False,
        limits: Mapping[TopicPartition, int] | None = None,
        cursor: Cursor | None = None,
    ) -> Records[Any, Any]:
        """Return up to `max_records` records, `max_wait` seconds after the first one at the latest.

        `max_bytes` limits their size as fetched, except that a larger first record is returned
        alone. `limits` has the most records of some partitions; after a limit of 0, the next record
        of that partition is returned alone. The list is empty if `timeout` seconds pass without a
        record, if the consumer is stopped, and when an iteration has reached the end offsets. A
        cancellation loses no record.
        """
        limited = limits or ()
        with self.read_lock.enter(cursor):
            is_due = self._on_request(cursor)
            deadline = self._looked + timeout
            until: float | None = None
            if is_due:
                await self._yield_to_loop()
            while not (self.stopped or (self.ends.are_set and await self._is_finished(cursor))):
                count, more = self._gather_chunks(max_records, max_bytes, by_partition, limited)
                more = more and not self._has_all_to_end(cursor, by_partition)
                now = self._time()
                if not count:
                    until = None  # The records were dropped while this waited.
                elif until is None:
                    until = min(now + max_wait, deadline)
                if until is not None and (not more or now >= until):
                    return self._deliver_records(max_records, max_bytes, by_partition, limits)
                if now >= deadline:
                    break
                if self._cut_short or now - self._yielded >= YIELD_INTERVAL_S:
                    await self._yield_to_loop()
                else:
                    await self._wait_for_records(deadline if until is None else until)
            return Records()

    def _gather_chunks(
        self,
        max_records: int,
        max_bytes: int,
        by_partition: bool,
        limited: Container[TopicPartition],
    ) -> tuple[int, bool]:
        """Unpack until `max_records` records, or `max_bytes` bytes of records, are ready.

        Those of a limited partition are not waited for.

        Return the number of ready records, and whether more may be added to them. If unpacking
        takes too long, set `_cut_short` and return, so that the event loop can run.
        """
        first = self._find_first_chunk()
        if first is None:
            return 0, True
        started = self._time()
        while True:
            count = size = 0
            for chunk in self._chunks:
                if chunk.error is not None or chunk.damage is not None:
                    return count, False
                if by_partition and chunk.state is not first.state:
                    return count, False
                count += len(chunk.records) - chunk.delivered
                size += chunk.share
                if chunk.state.tp in limited:
                    return count, False
            if count >= max_records or size >= max_bytes:
                return count, False
            if self._time() - started >= YIELD_INTERVAL_S / 2:
                self._cut_short = True
                return count, True
            if not self._unpack_chunk():
                return count, True

    def _deliver_records(
        self,
        max_records: int,
        max_bytes: int,
        by_partition: bool,
        limits: Mapping[TopicPartition, int] | None,
    ) -> Records[Any, Any]:
        records: Records[Any, Any] = Records()
        rooms = dict(limits or {})
        self.waiting_since = None
        first = self._chunks[0].state
        space = max_bytes
        while self._chunks and len(records) < max_records:
            chunk = self._chunks[0]
            if chunk.error is not None or chunk.damage is not None:
                break
            if by_partition and chunk.state is not first:
                break
            most, room = max_records - len(records), rooms.get(chunk.state.tp)
            if room is not None:
                if room == 0 and records:
                    break
                most = min(most, max(room, 1))
            taken, size = chunk.take_records(most, space, first=not records)
            left = len(chunk.records) - chunk.delivered
            if left and not taken:
                break
            records += taken
            self.meters.count_delivered(chunk.state.tp.topic, len(taken))
            space -= size
            self._move_position(chunk)
            if not left:
                self._remove_chunk(chunk)
            if room is not None:
                rooms[chunk.state.tp] = room - len(taken)
            if left or room == 0:
                break
        return records

    # -- one by one

    async def expose_next(
        self,
        cursor: Cursor,
        max_outstanding: int | None = None,
    ) -> tuple[Iterator[RawRecord], float] | None:
        """Return an iterator over the next records for an iteration, or None at its end.

        Also return the seconds for which the iteration may take records from it. With
        `max_outstanding`, which `tracked` passes, the call waits until fewer records are
        outstanding.
        """
        with self.read_lock.enter(cursor):
            if self._on_request(cursor, tracking=max_outstanding is not None):
                await self._yield_to_loop()
            while not (self.stopped or (self.ends.are_set and await self._is_finished(cursor))):
                chunk = self._find_first_chunk()
                if chunk is not None and (
                    max_outstanding is None or self.in_progress.has_room(max_outstanding)
                ):
                    self._exposed = chunk
                    self.waiting_since = None
                    # An earlier request may have ended early without yielding.
                    until = self._yielded + YIELD_INTERVAL_S
                    # Without a group, no partition can be assigned to another consumer.
                    if self._group is not None and self.subscription.is_shared(chunk.state.tp):
                        until = min(until, self.subscription.get_confirmed_until())
                    return chunk.expose_records(), max(until - self._time(), 0.0)
                if self._cut_short:
                    await self._yield_to_loop()
                else:
                    await self._wait_for_records(math.inf)
        self.on_iteration_end(cursor)
        return None

    def get_exposed_state(self) -> PartitionState | None:
        """Return the partition of the exposed records."""
        return None if self._exposed is None else self._exposed.state

    def mark_processed(self) -> None:
        """Count all delivered records as processed. The iteration continues."""
        self.update_position()
        self.in_progress.mark_processed()
        if self.in_progress.end_waiting_for_room():
            self._arrived.set()

    def mark_done(self, record: RawRecord) -> None:
        """Mark a record of `tracked` as processed."""
        # A tuple is equal to the TopicPartition, and takes less time to create.
        tp: Any = (record.topic, record.partition)
        state = self.subscription.partitions.get(tp)
        if state is None or not self.in_progress.mark_done(state, record):
            return
        if self.in_progress.full and self.in_progress.end_waiting_for_room():
            self._arrived.set()

    # -- for workers; see `intake.py`

    def read_raw(self, raw: bool) -> None:
        """Deliver keys and values as bytes from now on, or deserialize them again.

        The deserializers are not called for bytes, so that no record waits for them, and the worker
        has the original bytes. `deserialize_later` deserializes one of these records.
        """
        self._preparations.end_all()
        self._preparations.forget_failure()
        self._drop_chunks()
        self._unpacker.read_raw(raw)

    async def deserialize_later(self, record: RawRecord, timeout: float) -> RawRecord | None:
        """Deserialize a record that was delivered as bytes, and prepare it before.

        The result is a new record, or None if `on_record_error` returns SKIP. `done` must be called
        with the record that was delivered. Any task may call this, also while another one reads.

        `prepare` is awaited once, for at most `timeout` seconds: the backoff is that of the caller.
        If it fails, the consumer is DEGRADED until it succeeds for some record. Raises
        SchemaRegistryUnavailableError if the schema registry cannot be reached; RecordError if the
        record cannot be deserialized, or its schema does not exist; and any other KafkaError of
        `prepare`, such as one about credentials. A cancellation changes nothing.
        """
        given = self._unpacker.get_deserializers()
        unprepared = None
        if given.can_wait:
            unprepared = given.find_unprepared(record)
            if unprepared is not None and unprepared.error is None:
                unprepared = await self._preparations.prepare_record(record, timeout)
        if unprepared is not None:
            return given.refuse_record(record, unprepared)
        return given.deserialize_bytes(record)

    # -- whole parts, for tables

    async def begin_request(
        self, cursor: Cursor, *, keeps: bool = False, prepares: bool = False
    ) -> None:
        """Begin a request that reads fetched parts directly.

        With `keeps`, records in progress do not count as processed. `prepares` says whether records
        may have to be prepared for it. To be called within `read_lock.enter(cursor)`.
        """
        is_due = self._on_request(cursor, keeps=keeps)
        if not prepares:
            self._preparations.end_all()
        self._drop_chunks()
        if is_due:
            await self._yield_to_loop()

    async def wait_for_part(self, cursor: Cursor) -> PartitionFetch | None:
        """Wait for the next part that is not fully read.

        Returns None once the consumer is stopped, and when the iteration has reached its end
        offsets. Raises the same errors as `read_records`.
        """
        while not await self._is_finished(cursor):
            self.ends.hold_partitions()
            self.subscription.apply_changes()
            self._raise_failure()
            fetch = self._buffer.get_next()
            if fetch is not None:
                self.waiting_since = None
                return fetch
            await self._wait_for_records(math.inf)
        return None

    def move_with_part(self, fetch: PartitionFetch, epoch: int, *, out: bool) -> None:
        """Move the position to the offset of a part.

        The records before it were delivered if `out`, otherwise skipped.
        """
        state = fetch.state
        state.move_position(fetch.offset, epoch)
        if out:
            self.in_progress.on_delivered(state, None)
        else:
            self.in_progress.on_skipped(state)
        self.ends.on_move(state)

    def return_records(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Move positions back to these offsets, because the records did not reach the caller."""
        partitions = self.subscription.partitions
        for tp, offset in offsets.items():
            if tp in partitions:
                self.subscription.seek(tp, offset)

    def finish_part(self, fetch: PartitionFetch) -> None:
        """Remove a part of which every batch was read, or handle its damage."""
        if fetch.damage is not None:
            self._on_damage(fetch.state, fetch.damage)
        else:
            self._buffer.remove(fetch)
            self._fresh = True

    # -- to the end

    async def limit_to_end(self, cursor: Cursor) -> None:
        """Make the iteration end at the present end offsets, unless `stop` was called."""
        with self.read_lock.enter(cursor):
            self._on_request(cursor)
            self._clear_end_offsets()
            if not self.stopped:
                await self._find_end_offsets(cursor)

    async def _find_end_offsets(self, cursor: Cursor) -> None:
        found = await self.ends.find_ends(self._engine.lookups)
        if found is None:
            return
        self._clear_end_offsets()
        self._drop_chunks()
        self._unpacker.set_limits(self.ends.begin_iteration(cursor, found))

    async def _renew_end_offsets(self, cursor: Cursor | None) -> None:
        """Look up end offsets again, because logs were replaced."""
        assert cursor is not None
        self.subscription.apply_changes()
        self._raise_failure()
        await self._find_end_offsets(cursor)

    def _clear_end_offsets(self) -> None:
        if self._unpacker.lift_limits():
            self._drop_chunks()
            # The unpacker has skipped the records after the limits.
            self._buffer.rewind(list(self._buffer))
        self.ends.clear()

    async def _is_finished(self, cursor: Cursor | None) -> bool:
        """Return whether the consumer was stopped, or the iteration has reached its end offsets.

        End offsets that are outdated are looked up again first.
        """
        while not self.stopped and self.ends.are_outdated(cursor):
            await self._renew_end_offsets(cursor)
        return self.stopped or (self.ends.belong_to(cursor) and self.ends.are_reached())

    def _has_all_to_end(self, cursor: Cursor | None, by_partition: bool) -> bool:
        """Return whether the chunks have all records that are left for the iteration.

        With `by_partition`, only the partition of the first chunk counts.
        """
        if not self._chunks or not self.ends.belong_to(cursor):
            return False
        ahead = {chunk.state: chunk.next_offset for chunk in self._chunks}
        return self.ends.are_reached_at(ahead, self._chunks[0].state if by_partition else None)

    def _drop_chunks(self) -> None:
        self._take_back_exposed()
        chunks, self._chunks = self._chunks, deque()
        half_unpacked = [f for f in self._buffer if f.raw is not None or f.job is not None]
        self._buffer.rewind([*(chunk.fetch for chunk in chunks), *half_unpacked])
