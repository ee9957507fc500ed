"""The delivery of records to a worker, which takes from each partition only what has room there.

A worker has lanes with few records each. A partition whose lanes are full is passed over, so that
it delays no other: its chunk stays, and the records of other partitions are delivered. But what it
has fetched also occupies the buffer, and then the fetches of its broker stop. So when nothing else
can be delivered for `HOLD_S`, or the chunks that wait are too large, the partition is withheld
(`Withheld.FULL`), as if it were paused: its records are set aside, and are unpacked again when
there is room. To withhold it immediately would unpack the same batches again for each record.

Records are delivered as bytes, because a worker deserializes a record right before its handler
runs. They are outstanding, as those of `tracked`, until the worker calls `finish_record` or
`return_records`. For a handler of batches, the records that are taken together are one
`DeliveredList`, which the worker divides when its records end apart.

A worker may call `collect_records` while its request waits, from a callback: both run in the event
loop without an await.
"""

from __future__ import annotations

import asyncio
import math
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from aiokclient.consumer.delivery.unpack import Chunk
from aiokclient.consumer.state.partition import DeliveredList, PartitionState, Withheld
from aiokclient.decoding.deserialize import RawRecord
from aiokclient.types import TopicPartition

if TYPE_CHECKING:
    from aiokclient.consumer.engine import ConsumerEngine

HOLD_S: Final = 0.1
"""Seconds for which full partitions keep what they have fetched while nothing is delivered."""
HELD_BYTES: Final = 32 * 1024 * 1024
"""The most bytes in chunks of full partitions."""
COLLECT_S: Final = 0.005
"""Seconds for which one call of `collect_records` may unpack."""
STOPPED_FOR: Final = Withheld.REVOKING | Withheld.REWINDING | Withheld.UNCONFIRMED
"""The reasons for which records of a partition that were delivered must not begin to be handled."""

Taken: TypeAlias = list[tuple[PartitionState, Sequence[RawRecord]]]
"""Records that were delivered, with their partitions, in order within each partition."""


class Rooms(Protocol):
    """The interface of a worker's lanes that `Intake` uses."""

    def count_room(self, partition: PartitionState) -> int:
        """Return how many more records of a partition the lanes can take."""
        ...

    def is_full(self) -> bool:
        """Return whether no partition has room."""
        ...


class WorkerRecords(Protocol):
    """The records of one call of a worker's handler, as tracing sees them."""

    record: RawRecord
    """The record; the first one of a list."""

    def list_records(self) -> Sequence[tuple[Any, RawRecord]]:
        """Return the records, each with its partition."""
        ...


class EarlierRuns(Protocol):
    """The run of a worker, as tracing sees it."""

    def count_attempts(self, run: Any, record: RawRecord) -> int:
        """Return how often a record was handled before, over retry topics, too."""
        ...


class TracedRun(Protocol):
    """A call of a worker's handler that is being traced."""

    def end_run(self, error: BaseException | None) -> None:
        """End the trace of the call, with the exception of the handler if there was one."""
        ...


class Intake:
    """The delivery of one consumer's records to a worker."""

    def __init__(
        self,
        engine: ConsumerEngine,
        rooms: Rooms,
        runs: Mapping[Any, float],
        max_ahead: int,
        *,
        as_lists: bool,
    ) -> None:
        self._engine = engine
        self._reader = engine.reader
        self._subscription = engine.subscription
        self._in_progress = engine.in_progress
        self._rooms = rooms
        self._runs = runs
        self._max_ahead = max_ahead
        self._as_lists = as_lists
        """Whether records are delivered as a `DeliveredList`."""
        self._time = asyncio.get_running_loop().time
        self._blocked: dict[PartitionState, Chunk] = {}
        """The partitions without room, as of the last `collect_records`, and their first chunks."""
        self._searched: deque[Chunk] | None = None
        """The chunks of `Reader`, if there was room for no record of them, nor of the buffer. The
        reading task searches again when records have arrived."""
        self._full: dict[PartitionState, None] = {}
        """The partitions that are withheld."""
        self._starved_since: float | None = None
        """The time since which nothing was delivered although partitions are full; or None."""

    def interrupt(self) -> None:
        """Do nothing: each request calls `Reader` anyway."""

    def open(self, on_change: Callable[[], None]) -> None:
        """Begin to read. `on_change` is called soon after each change of partitions."""
        self._reader.read_raw(True)
        self._in_progress.follow_runs(self._runs)
        if self._engine.group is not None:
            self._engine.group.auto_commit.commit_released(True)
        self._subscription.add_change_listener(on_change)

    def close(self, on_change: Callable[[], None]) -> None:
        """End reading, so that the application can read again. All records must be returned."""
        self._subscription.remove_change_listener(on_change)
        self._in_progress.follow_runs(None)
        if self._engine.group is not None:
            self._engine.group.auto_commit.commit_released(False)
        self._withhold_partitions(list(self._full), on=False)
        self._reader.read_raw(False)
        self._reader.on_iteration_end(self)

    # -- reading

    async def take_records(self) -> Taken | None:
        """Return the next records that have room; None when the consumer was stopped.

        Raises the errors of `read_records`. A cancellation loses no record.
        """
        reader = self._reader
        with reader.read_lock.enter(self):
            if reader._on_request(self, tracking=True):
                await reader._yield_to_loop()
            while not reader.stopped:
                if taken := self.collect_records():
                    return taken
                if reader._cut_short:
                    await reader._yield_to_loop()
                else:
                    await reader._wait_for_records(self._find_wait_end())
        return None

    def wake_request(self) -> None:
        """Make the waiting request look for records again. Synchronous."""
        self._engine.arrived.set()

    def collect_records(self, freed: Mapping[PartitionState, Any] | None = None) -> Taken:
        """Return the buffered records that have room. Synchronous.

        `freed` has the partitions that have got room since the last call by this caller; None if
        all may have. With many partitions, to look at all of them costs more than a run.

        If unpacking takes too long, it sets `Reader._cut_short` and returns early.
        """
        reader = self._reader
        reader._cut_short = False
        if self._full:
            self._admit_partitions()
        self._subscription.apply_changes()
        if reader._failed or reader._woken or reader._reports.errors:
            reader._raise_failure()
        began = self._time()
        taken: Taken = []
        was_searched = self._searched is reader._chunks and not self._full
        if was_searched and freed is not None and self._take_from_freed(freed, taken, began):
            return taken
        while True:
            blocked: dict[PartitionState, Chunk] = {}
            for chunk in list(reader._chunks):
                if chunk.state not in blocked:
                    self._take_from(chunk, taken, blocked, began)
                    if taken and self._rooms.is_full():
                        break
            self._blocked = blocked
            if taken:
                break
            if self._is_relief_due(began):
                self._withhold_partitions(list(blocked), on=True)
                self._subscription.apply_changes()
            elif not reader._unpack_chunk(blocked):
                break
            if self._time() - began >= COLLECT_S:
                reader._cut_short = True
                break
        self._searched = None if taken or reader._cut_short else reader._chunks
        if taken:
            self._on_taken()
        elif not self._blocked:
            self._starved_since = None
        elif self._starved_since is None:
            self._starved_since = self._time()
        return taken

    def was_cut_short(self) -> bool:
        """Return whether the last `collect_records` returned early."""
        return self._reader._cut_short

    def _take_from_freed(self, freed: Iterable[PartitionState], taken: Taken, now: float) -> bool:
        """Take the next records of these partitions; return whether all is taken that has room.

        If not, a chunk of one of them must be searched for.
        """
        if not freed:
            return True
        blocked = self._blocked
        chunks = [blocked.pop(state, None) for state in freed]
        found = [chunk for chunk in chunks if chunk is not None]
        if len(found) < len(chunks):
            return False
        for chunk in found:
            self._take_from(chunk, taken, blocked, now)
        if taken:
            self._on_taken()
        return bool(taken)

    def _on_taken(self) -> None:
        self._starved_since = None
        self._reader.waiting_since = None

    def _take_from(
        self, chunk: Chunk, taken: Taken, blocked: dict[PartitionState, Chunk], now: float
    ) -> None:
        """Take the records of a chunk that have room; remove the chunk when none is left."""
        reader, state = self._reader, chunk.state
        left = len(chunk.records) - chunk.delivered
        if left:
            room = min(self._rooms.count_room(state), left)
            if room > 0:
                records = self._bound_records(state, chunk, room)
                if records:
                    taken.append((state, self._deliver_records(chunk, records, now)))
                    left -= len(records)
            if left:
                blocked[state] = chunk
                return
        reader._remove_chunk(chunk)

    def _bound_records(self, state: PartitionState, chunk: Chunk, room: int) -> Sequence[RawRecord]:
        """Return the next records of a chunk: at most `room`, within `max_ahead` offsets."""
        records = chunk.records[chunk.delivered : chunk.delivered + room]
        # The log of a compacted partition has gaps that are larger than any `max_ahead`.
        lowest = state.consumed if state.outstanding else records[0].offset
        end = lowest + self._max_ahead
        if records[-1].offset >= end:
            return records[: bisect_left(records, end, key=attrgetter("offset"))]
        return records

    def _deliver_records(
        self, chunk: Chunk, records: Sequence[RawRecord], now: float
    ) -> Sequence[RawRecord]:
        """Make records outstanding, and return them."""
        reader, state = self._reader, chunk.state
        self._in_progress.track_partition(state)
        if self._as_lists:
            records = DeliveredList(records)
            state.track_record(records, now)
        else:
            state.track_records(records, now)
        chunk.mark_delivered(len(records))
        reader.meters.count_delivered(state.tp.topic, len(records))
        reader._move_position(chunk)
        return records

    # -- full partitions

    def _is_relief_due(self, now: float) -> bool:
        """Return whether full partitions must give up what they have fetched."""
        if not self._blocked or len(self._subscription.partitions) == 1:
            return False
        if self._starved_since is not None and now >= self._starved_since + HOLD_S:
            return True
        return sum(chunk.share for chunk in self._reader._chunks) > HELD_BYTES

    def _find_wait_end(self) -> float:
        if self._starved_since is None or len(self._subscription.partitions) == 1:
            return math.inf
        return self._starved_since + HOLD_S

    def _admit_partitions(self) -> None:
        """Deliver again from the partitions that have room now."""
        partitions = self._subscription.partitions
        gone = [each for each in self._full if partitions.get(each.tp) is not each]
        for state in gone:
            del self._full[state]
        admitted = [
            state
            for state in self._full
            if state.position < state.consumed + self._max_ahead
            and self._rooms.count_room(state) > 0
        ]
        self._withhold_partitions(admitted, on=False)

    def _withhold_partitions(self, states: Sequence[PartitionState], *, on: bool) -> None:
        if states:
            self._subscription.withhold(states, Withheld.FULL, on)
            for state in states:
                if on:
                    self._full[state] = None
                else:
                    del self._full[state]
            if on:
                self._starved_since = None

    def hold_partition(self, state: PartitionState) -> None:
        """Withhold a partition until there is room for its records. Synchronous."""
        if state not in self._full:
            self._withhold_partitions([state], on=True)

    # -- the end of a record

    def finish_record(self, state: PartitionState, entry: Any) -> None:
        """Count a record or a list as processed. It has no effect after a jump of the position."""
        self._in_progress.mark_done(state, entry)

    def return_records(self, state: PartitionState, entries: Iterable[Any]) -> None:
        """Deliver these again, here or wherever the partition is assigned. Synchronous."""
        self._reader.update_position()
        state.return_records(entries)
        self._in_progress.on_returned()
        self._subscription.report_change()

    # -- partitions

    def knows_its_partitions(self) -> bool:
        """Return whether the partitions to read are known."""
        return self._engine.source.knows_its_partitions()

    def is_assigned(self, state: PartitionState) -> bool:
        """Return whether a partition is still assigned."""
        return self._subscription.partitions.get(state.tp) is state

    def must_stop(self, state: PartitionState) -> bool:
        """Return whether records of a partition must not begin to be handled."""
        return bool(state.withheld & STOPPED_FOR)

    def list_partitions(self) -> list[PartitionState]:
        """Return the assigned partitions."""
        return list(self._subscription.partitions.values())

    def count_lag(self) -> dict[TopicPartition, int]:
        """Return the number of offsets after the lowest record not done, for each partition.

        Partitions whose end is not known yet are missing.
        """
        committed_only = self._engine.offsets.committed_only
        lags = {}
        for state in self.list_partitions():
            fetch = state.fetch
            end = fetch.last_stable if committed_only else fetch.high_watermark
            if end >= 0 and state.is_located:
                lags[state.tp] = max(end - state.consumed, 0)
        return lags

    @property
    def committed_at_ms(self) -> int | None:
        """The time of the last commit of processed records, in ms since the epoch."""
        group = self._engine.group
        return None if group is None else group.auto_commit.committed_at_ms

    async def commit_processed(self, timeout: float) -> None:
        """Commit the processed records of all partitions, within `timeout` seconds.

        Does nothing without a group. Raises ApiTimeoutError after the timeout. A partition whose
        commit is refused has another owner, who begins at the last commit.
        """
        group = self._engine.group
        if group is None:
            return
        refused = await group.auto_commit.commit_processed(self.list_partitions(), timeout)
        for tp, error in refused.items():
            self._engine.log.info(
                "The commit of %s at the end of a worker was refused: %s",
                tp,
                error,
                extra={"event": "commit_failed", "topic": tp.topic},
            )
