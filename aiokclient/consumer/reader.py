"""Handing out records: one reader at a time, nothing lost, nothing twice.

Theory of operation. Fetched parts wait in the `FetchBuffer`; the unpacker turns them into chunks,
which wait in `_chunks`. Positions move only when records are handed out, in one go without an
await, so a cancellation before that loses nothing: the chunks stay.

An iteration is lean: it has the list iterator of the first chunk (the chunk is *exposed*) and
takes records from it without telling anybody. How far it went is read off that iterator when
somebody wants to know (`settle`). When anything changes that concerns the exposed chunk (a seek, a
pause, a revocation, stop), it is taken away: the iteration comes back here for its next record.

What was handed out last is *in hand*; it counts as processed when the next is asked for.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

import anyio

from aiokclient import threads
from aiokclient.consumer.deserialize import RawRecord
from aiokclient.consumer.effort import CONTENT, is_light
from aiokclient.consumer.ends import Ends, EndsLookup
from aiokclient.consumer.fetch_buffer import Damage, FetchBuffer, PartitionFetch
from aiokclient.consumer.in_hand import InHand
from aiokclient.consumer.meters import ReadMeters
from aiokclient.consumer.positions import PartitionState, Phase
from aiokclient.consumer.records import Records
from aiokclient.consumer.signal import Signal
from aiokclient.consumer.subscription import SubscriptionState
from aiokclient.consumer.turnstile import Cursor, Turnstile
from aiokclient.consumer.unpack import Chunk, Unpacker
from aiokclient.errors import CorruptBatchError, CorruptRecordError, KafkaError
from aiokclient.metrics import Metrics
from aiokclient.record.batch import DEFAULT_LIMIT, RecordBatch
from aiokclient.types import TopicPartition

__all__ = ["GIVE_WAY_S", "Reader"]

GIVE_WAY_S: Final = 0.010
"""The loop gets its turn at least this often."""

T = TypeVar("T")
Convert: TypeAlias = Callable[[TopicPartition, Sequence[RecordBatch], int, int], T | None]


class Reader:
    """The one place from which records go to the program."""

    def __init__(
        self,
        subscription: SubscriptionState,
        buffer: FetchBuffer,
        unpacker: Unpacker,
        arrived: Signal,
        metrics: Metrics,
        died: Callable[[], BaseException | None],
    ) -> None:
        self._subscription = subscription
        self._buffer = buffer
        self._unpacker = unpacker
        self._arrived = arrived
        self._died = died
        self._meters = ReadMeters(metrics)
        self._time = asyncio.get_running_loop().time
        self._chunks: deque[Chunk] = deque()
        self._exposed: Chunk | None = None
        self.in_hand = InHand(self._time)
        self.reports: dict[tuple[object, ...], Exception] = {}
        """Errors to be raised at the next requests."""
        self._failed = False
        self.turnstile = Turnstile(self._time)
        self._yielded = 0.0
        self._fresh = False
        self._ends = Ends(subscription)
        self._lookup = anyio.CancelScope()
        self.stopped = False
        subscription.settle = self.settle
        subscription.touched = self._touched
        subscription.seek_buffered = self._seek_buffered
        subscription.listen(self.changed)

    # -- from elsewhere

    def _touched(self) -> None:
        exposed = self._exposed
        if exposed is not None and not exposed.valid:
            self._take_back()

    def _seek_buffered(self, state: PartitionState, offset: int, epoch: int) -> bool:
        """Move a position to an offset that is buffered; False if it is not. After `settle`."""
        parts = self._buffer.holding(state, offset) if state.phase is Phase.FETCHING else []
        if not parts:
            return False
        if self._exposed is not None and self._exposed.state is state:
            self._take_back()
        self._chunks = deque(chunk for chunk in self._chunks if chunk.state is not state)
        state.move_within(offset, epoch)
        self._buffer.rewind(parts)
        return True

    def changed(self) -> None:
        """Something about partitions, positions or pauses is different."""
        void = [chunk for chunk in self._chunks if not chunk.valid]
        if void:
            self._chunks = deque(chunk for chunk in self._chunks if chunk.valid)
            self._buffer.rewind(chunk.fetch for chunk in void)
        self._buffer.sort_out()
        states = self._subscription.partitions.values()
        self._failed = any(state.phase is Phase.FAILED for state in states)
        self._ends.changed()
        self._arrived.set()

    def report(self, error: Exception) -> None:
        """Has an error raised at the next request, once."""
        place = (error.topic_partition, error.broker) if isinstance(error, KafkaError) else ()
        key = (type(error), *place)
        self.reports[key] = error
        self._arrived.set()

    def stop(self) -> None:
        """Ends all reading, after what is in hand. From the loop's thread."""
        self.mark_stopped()
        self.wake()

    def mark_stopped(self) -> None:
        """The part of `stop` that any thread may do: who waits is not woken."""
        self.stopped = True
        self.turnstile.interrupt()

    def wake(self) -> None:
        """Has who waits look again."""
        self.turnstile.interrupt()
        self._lookup.cancel()
        self._arrived.set()

    def leave(self, cursor: Cursor) -> None:
        """The iteration has ended."""
        self.turnstile.leave(cursor)
        if self._ends.belong_to(cursor):
            self._end_limits()

    # -- how far

    def settle(self) -> None:
        """Writes down how far the iteration went through the exposed chunk."""
        chunk = self._exposed
        if chunk is None:
            return
        if (count := chunk.count()) != chunk.handed:
            self._meters.delivered(chunk.state.tp.topic, count - chunk.handed)
            chunk.handed = count
            self._move(chunk, chunk.records[count - 1].offset)

    def _move(self, chunk: Chunk, processed: int | None = None, *, out: bool = True) -> None:
        """Moves the position behind what of the chunk was handed `out`, or passed by."""
        state = chunk.state
        if chunk.generation != state.generation:
            return
        state.position = chunk.offset_after(chunk.handed)
        state.position_epoch = chunk.epoch
        if out:
            self.in_hand.took(state, processed, first=chunk.handed <= 1)
        else:
            self.in_hand.passed(state)

    def _take_back(self) -> None:
        self.settle()
        self._exposed = None
        self.turnstile.interrupt()

    def _ask(self, *, tracking: bool = False) -> None:
        """The next is asked for, so what is in hand is processed."""
        self._take_back()
        self.in_hand.ask(tracking=tracking)

    async def _give_way(self) -> None:
        """Lets the loop run if it is time; cancellations and timeouts come in here."""
        if self._fresh or self._time() - self._yielded >= GIVE_WAY_S:
            try:
                await asyncio.sleep(0)
            finally:
                # If it was cancelled here: the next request may go on, or none would ever.
                self._yielded, self._fresh = self._time(), False

    def stretch(self) -> float:
        """For how long, in seconds, an iteration may go through what it has before it asks."""
        until = self._yielded + GIVE_WAY_S  # one before may have been cut short without a turn
        state = self.exposed_state()
        if state is not None and self._subscription.is_shared(state.tp):
            until = min(until, self._subscription.confirmed_until())
        return max(until - self._time(), 0.0)

    async def _wait(self, until: float) -> None:
        self._ends.hold()
        await self._arrived.wait(until)
        self._ends.changed()
        self._yielded, self._fresh = self._time(), False

    # -- chunks

    def _front(self) -> Chunk | None:
        """The first chunk with a record left; deals with all that stands before it.

        Raises what is to be raised instead of a record.
        """
        while True:
            self._subscription.look()
            self._raise_failures()
            if not self._chunks and not self._unpack():
                return None
            chunk = self._chunks[0]
            if chunk.left:
                return chunk
            self._pass(chunk)

    def _unpack(self) -> bool:
        chunk = self._unpacker.step()
        if chunk is not None:
            self._chunks.append(chunk)
        return chunk is not None

    def _pass(self, chunk: Chunk) -> None:
        """Removes a chunk without records left, and does what it calls for."""
        self._chunks.popleft()
        if chunk.damage is not None:
            self._damaged(chunk.state, chunk.damage)
            return
        self._move(chunk, out=chunk.error is not None)
        fetch = chunk.fetch
        if fetch.read and chunk.next_offset >= fetch.next_offset:
            self._buffer.remove(fetch)
            self._fresh = True
        self._ends.moved(chunk.state)
        if chunk.error is not None:
            raise chunk.error

    def _damaged(self, state: PartitionState, damage: Damage) -> None:
        """Once it is fetched anew; the second time only the user can go past it."""
        self._meters.damaged.add()
        if state.damaged_at != damage.offset:
            state.damaged_at = damage.offset
            state.rewind()
        else:
            error = CorruptBatchError(
                str(damage.cause),
                topic_partition=state.tp,
                offset=damage.offset,
                last_offset=damage.last_offset,
            )
            error.__cause__ = damage.cause
            state.fail(error)
        self._subscription.changed()

    def _raise_failures(self) -> None:
        if (died := self._died()) is not None:
            raise died
        if self.reports:
            raise self.reports.pop(next(iter(self.reports)))
        if self._failed:
            for state in self._subscription.partitions.values():
                if state.error is not None:
                    raise state.error.with_traceback(None)

    # -- lists

    async def read(
        self,
        max_records: int,
        timeout: float,
        *,
        max_wait: float = 0.0,
        by_partition: bool = False,
        cursor: Cursor | None = None,
    ) -> Records[Any, Any]:
        """Up to `max_records`: as soon as there are some, or `max_wait` seconds later.

        Empty when `timeout` seconds pass without any, when stopped, and at the end of an
        iteration to the end. A cancellation loses no record.
        """
        with self.turnstile.enter(cursor):
            self._ask()
            self._limit(cursor)
            deadline = self._time() + timeout
            until: float | None = None
            await self._give_way()
            while not (self.stopped or self._at_end(cursor)):
                count, more = self._gather(max_records, by_partition)
                more = more and not self._to_the_end(cursor, by_partition)
                now = self._time()
                if not count:
                    until = None  # What was there has become void meanwhile.
                elif until is None:
                    until = min(now + max_wait, deadline)
                if until is not None and (not more or now >= until):
                    return self._hand_out(max_records, by_partition)
                if now - self._yielded >= GIVE_WAY_S:
                    await self._give_way()
                elif self._time() >= deadline:
                    break
                else:
                    await self._wait(deadline if until is None else until)
            return Records()

    def _gather(self, max_records: int, by_partition: bool) -> tuple[int, bool]:
        """Unpacks until so many records are ready; how many are, and whether more may join them.

        Gives up after a while, so that the loop gets its turn.
        """
        first = self._front()
        if first is None:
            return 0, True
        started = self._time()
        while True:
            count = 0
            for chunk in self._chunks:
                if chunk.error is not None or chunk.damage is not None:
                    return count, False
                if by_partition and chunk.state is not first.state:
                    return count, False
                count += chunk.left
            if count >= max_records:
                return count, False
            if self._time() - started >= GIVE_WAY_S / 2 or not self._unpack():
                return count, True

    def _hand_out(self, max_records: int, by_partition: bool) -> Records[Any, Any]:
        records: Records[Any, Any] = Records()
        first = self._chunks[0].state
        while self._chunks and len(records) < max_records:
            chunk = self._chunks[0]
            if chunk.error is not None or chunk.damage is not None:
                break
            if by_partition and chunk.state is not first:
                break
            room = max_records - len(records)
            if chunk.handed == 0 and len(chunk.records) <= room:
                records += chunk.records
            else:
                records += chunk.records[chunk.handed : chunk.handed + room]
            self._meters.delivered(chunk.state.tp.topic, min(room, chunk.left))
            chunk.handed = min(chunk.handed + room, len(chunk.records))
            self._move(chunk)
            if not chunk.left:
                self._pass(chunk)
        return records

    # -- one by one

    async def advance(
        self, cursor: Cursor, room: Callable[[], bool] | None = None
    ) -> Iterator[RawRecord] | None:
        """The records that an iteration goes through next; None when it is over.

        With `room`, for `tracked`, it waits until that says that there is some.
        """
        with self.turnstile.enter(cursor):
            self._ask(tracking=room is not None)
            self._limit(cursor)
            await self._give_way()
            while not (self.stopped or self._at_end(cursor)):
                chunk = self._front()
                if chunk is not None and (room is None or room()):
                    self._exposed = chunk
                    return chunk.expose()
                await self._wait(math.inf)
        self.leave(cursor)
        return None

    def exposed_state(self) -> PartitionState | None:
        """The partition of the records that the iteration goes through."""
        return None if self._exposed is None else self._exposed.state

    def mark_processed(self) -> None:
        """Count everything delivered so far as processed; the iteration continues."""
        self.settle()
        self.in_hand.mark_processed()
        if self.in_hand.full:
            self.in_hand.full = False
            self._arrived.set()

    def done(self, record: RawRecord) -> None:
        """The program is done with a record that `tracked` has handed out."""
        place: Any = (record.topic, record.partition)  # Equal to the TopicPartition, and cheaper.
        state = self._subscription.partitions.get(place)
        if state is not None and self.in_hand.done(state, record) and self.in_hand.full:
            self.in_hand.full = False
            self._arrived.set()

    # -- whole parts, for Arrow

    async def read_part(self, cursor: Cursor, convert: Convert[T]) -> T | None:
        """All that is left of the next fetched part, converted; None when it is over.

        `convert` gets the partition, its batches, the offset to begin at and how many bytes there
        may be in a batch, runs in a thread if they are large, and answers None if there is nothing
        in them for the program. Where a batch is damaged (CorruptRecordError) the part ends before
        it.
        """
        with self.turnstile.enter(cursor):
            self._ask()
            self._limit(cursor)
            self._drop_chunks()
            await self._give_way()
            while not self.stopped:
                self._subscription.look()
                self._raise_failures()
                fetch = self._buffer.next()
                if fetch is None:
                    await self._wait(math.inf)
                    continue
                part = fetch.rest()
                converted, count = await self._convert(fetch, part, convert)
                # In the meantime it may have become void, or the session may have ended.
                self._subscription.look()
                if fetch.alive and fetch.state.flowing:
                    self._skip(fetch, part, count, out=converted is not None)
                    if converted is not None:
                        self._meters.table(fetch.state.tp.topic, converted)
                        return converted
        self.leave(cursor)
        return None

    async def _convert(
        self, fetch: PartitionFetch, part: Sequence[int], convert: Convert[T]
    ) -> tuple[T | None, int]:
        """The converted part, and of how many batches it is: those before a damaged one."""
        batches = [fetch.batches[index] for index in part]
        tp, offset = fetch.state.tp, fetch.offset
        while batches:
            try:
                if is_light(batches):
                    try:
                        limit = CONTENT // len(batches)
                        return convert(tp, batches, offset, limit), len(batches)
                    except CorruptRecordError:
                        pass  # Perhaps there is more in them, which a thread will find out.
                work = partial(convert, tp, batches, offset, DEFAULT_LIMIT)
                return await threads.run(work), len(batches)
            except CorruptRecordError as error:
                if len(batches) == 1:
                    self._mark_damaged(fetch, part[0], error)
                batches = batches[: len(batches) // 2]
        return None, 0

    def _mark_damaged(self, fetch: PartitionFetch, index: int, error: KafkaError) -> None:
        batch, fetch.index = fetch.batches[index], index
        fetch.damaged(Damage(batch.base_offset, batch.last_offset, error))

    def _skip(self, fetch: PartitionFetch, part: Sequence[int], count: int, *, out: bool) -> None:
        """Moves past so many batches of the part, and past what lies behind a whole one."""
        state = fetch.state
        if fetch.damage is None or count:
            whole = count == len(part)
            fetch.index = len(fetch.batches) if whole else part[count - 1] + 1
            fetch.offset = fetch.batches[fetch.index - 1].next_offset
            state.position, state.position_epoch = (
                fetch.offset,
                fetch.batches[fetch.index - 1].leader_epoch,
            )
            if out:
                self.in_hand.took(state, None)
            else:
                self.in_hand.passed(state)
        if fetch.index < len(fetch.batches):
            return
        if fetch.damage is not None:
            self._damaged(state, fetch.damage)
        else:
            self._buffer.remove(fetch)
            self._fresh = True

    # -- to the end

    async def limit(self, cursor: Cursor, ends: EndsLookup) -> None:
        """Has the iteration end at the offsets that `ends()` tells, unless it is stopped."""
        with self.turnstile.enter(cursor):
            self._ask()
            self._end_limits()
            if self.stopped:
                return
            with anyio.CancelScope() as self._lookup:
                found = await ends()
            if self._lookup.cancelled_caught:
                return
            self._drop_chunks()
            self._unpacker.limits = self._ends.begin(cursor, found)

    def _limit(self, cursor: Cursor | None) -> None:
        """Takes back the limits of an iteration that another request has followed."""
        if self._ends.outlived_by(cursor):
            self._end_limits()

    def _end_limits(self) -> None:
        if self._unpacker.limits:
            self._unpacker.limits = {}
            self._drop_chunks()
            self._buffer.rewind(list(self._buffer))  # They have cut off what comes now.
        self._ends.clear()

    def _at_end(self, cursor: Cursor | None) -> bool:
        return self._ends.belong_to(cursor) and self._ends.reached()

    def _to_the_end(self, cursor: Cursor | None, by_partition: bool) -> bool:
        """Whether the chunks hold all that is left for the iteration, or for its next list."""
        if not self._chunks or not self._ends.belong_to(cursor):
            return False
        ahead = {chunk.state: chunk.next_offset for chunk in self._chunks}
        return self._ends.within(ahead, self._chunks[0].state if by_partition else None)

    def _drop_chunks(self) -> None:
        self._take_back()
        chunks, self._chunks = self._chunks, deque()
        half_unpacked = [fetch for fetch in self._buffer if fetch.raw is not None]
        self._buffer.rewind([*(chunk.fetch for chunk in chunks), *half_unpacked])
