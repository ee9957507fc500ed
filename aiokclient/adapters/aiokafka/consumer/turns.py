"""The reads of several tasks from one native consumer, which only one of them may read at a time.

One task reads; the others wait. Each of them may want certain partitions only. Then all other
partitions are paused in the native consumer, as long as no waiting task wants them. The task that
reads passes on the records and the errors of partitions that a waiting task wants. What it has read
beyond the limit of that task is put back by a seek, which the native consumer serves from its
buffer. A partition that cannot be read raises its error again at each read that wants it.

aiokafka drops its buffer at a seek of the program, and fetches again. Here, the partition rests for
about that time, or else a handler that seeks back after each failure would keep the loop busy.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Collection, Sequence
from typing import Any

from aiokclient import Consumer, ConsumerRecord, TopicPartition
from aiokclient.errors import KafkaError, RecordError

UNLIMITED = 2**31 - 1
PROCESSED_S = 0.1
"""The time after which a delivered record counts as processed: a native consumer would delay a
rebalance until the program asks for the next one, which aiokafka does not. A timer for many records
costs less than a call for each."""
REST_S = 0.005
"""The time for which a partition rests after a seek of the program."""


class Read:
    """One task's request for records."""

    __slots__ = ("error", "given", "limit", "partitions", "wake")

    def __init__(self, partitions: Collection[TopicPartition], limit: int) -> None:
        self.partitions = frozenset(partitions)
        """The partitions that are wanted. Empty means all."""
        self.limit = limit
        self.given: list[ConsumerRecord[Any, Any]] = []
        """The records that another task has read for this one."""
        self.error: KafkaError | None = None
        """The error of one of the partitions, which another task has met."""
        self.wake: asyncio.Future[None] | None = None

    def wants(self, record: ConsumerRecord[Any, Any]) -> bool:
        """Return whether the task takes this record."""
        if len(self.given) >= self.limit:
            return False
        return not self.partitions or (record.topic, record.partition) in self.partitions

    def covers(self, partition: tuple[str, int]) -> bool:
        """Return whether this partition is wanted."""
        return not self.partitions or partition in self.partitions

    def wake_up(self) -> None:
        """Let the task continue."""
        if self.wake is not None and not self.wake.done():
            self.wake.set_result(None)


class Turns:
    """The order in which tasks read from a native consumer."""

    def __init__(self, native: Consumer[Any, Any]) -> None:
        self._native = native
        self._reader: Read | None = None
        self._next: Read | None = None
        """The waiting read that was woken to take the turn, and has not done so yet."""
        self._waiting: deque[Read] = deque()
        self._cursor: Any = None
        self._held: set[TopicPartition] = set()
        """The partitions that are paused because no task wants them."""
        self._resting: set[TopicPartition] = set()
        """The partitions that are paused because the program has just sought in them."""
        self._timer: asyncio.TimerHandle | None = None
        self.is_closed = False
        self.paused: set[TopicPartition] = set()
        """The partitions that the program has paused."""

    async def read_one(self) -> ConsumerRecord[Any, Any] | None:
        """Return the next record of any partition, or None if the consumer was stopped."""
        if self._reader is not None or self._waiting:
            records = await self.read((), 1, math.inf)
            return records[0] if records else None
        self._reader = reader = Read((), 1)
        try:
            if self._cursor is None:
                self._cursor = aiter(self._native)
            record: ConsumerRecord[Any, Any] = await anext(self._cursor)
        except StopAsyncIteration:
            return None
        except BaseException:
            self._cursor = None
            raise
        finally:
            self._end_turn(reader)
        if self._timer is None:
            self._start_timer()
        return record

    async def read(
        self, partitions: Collection[TopicPartition], limit: int, timeout_s: float
    ) -> Sequence[ConsumerRecord[Any, Any]]:
        """Return up to `limit` records as soon as there is one; none after `timeout_s`.

        None is returned, too, if the consumer was stopped. A cancellation loses no record. Raises
        the errors of these partitions, and of the consumer.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        read = Read(partitions, limit)
        while True:
            if self._reader is None and self._next in (None, read):
                self._next = None
                self._reader = read
                try:
                    records = await self._read_in_turn(read, deadline)
                finally:
                    self._end_turn(read)
                break
            if timeout_s <= 0 and self._is_covered(read):
                return []  # Nothing is buffered: the task that reads would have it.
            if not await self._wait_for_turn(read, deadline) or read.given:
                records = read.given
                break
            if read.error is not None:
                raise read.error.with_traceback(None)
        if records and self._timer is None:
            self._start_timer()
        return records

    async def _wait_for_turn(self, read: Read, deadline: float) -> bool:
        """Wait until another task has records for this one, or ends. False after the deadline."""
        loop = asyncio.get_running_loop()
        read.wake = loop.create_future()
        self._waiting.append(read)
        self._hold_unwanted()
        try:
            remaining_s = None if deadline == math.inf else max(deadline - loop.time(), 0.001)
            async with asyncio.timeout(remaining_s):
                await read.wake
        except TimeoutError:
            self._pass_turn(read)
            return False
        except BaseException:
            self._put_back(read.given)
            self._pass_turn(read)
            raise
        finally:
            self._waiting.remove(read)
            self._hold_unwanted()
        return True

    def _pass_turn(self, read: Read) -> None:
        """Wake the next task if this one was woken to read, but does not."""
        if self._next is read:
            self._next = None
            self._wake_next()

    async def _read_in_turn(
        self, read: Read, deadline: float
    ) -> Sequence[ConsumerRecord[Any, Any]]:
        self._cursor = None
        loop = asyncio.get_running_loop()
        self._hold_unwanted()
        while True:
            remaining_s = deadline - loop.time()
            try:
                records = await self._native.poll(max(remaining_s, 0.0), max_records=read.limit)
            except KafkaError as error:
                if not self._pass_error(read, error):
                    raise
                await asyncio.sleep(0)  # The other task takes the error, and wants no more.
                continue
            if not records:
                return []
            if not read.partitions and not self._waiting:
                return records
            own = self._distribute(read, records)
            if own or remaining_s <= 0:
                return own

    def _distribute(
        self, read: Read, records: Sequence[ConsumerRecord[Any, Any]]
    ) -> list[ConsumerRecord[Any, Any]]:
        """Return the records for the task that reads; pass on or put back the others."""
        own: list[ConsumerRecord[Any, Any]] = []
        rest: list[ConsumerRecord[Any, Any]] = []
        refused: set[tuple[str, int]] = set()
        for record in records:
            where = record.topic, record.partition
            if where in refused:
                rest.append(record)
            elif read.wants(record):
                own.append(record)
            else:
                taker = next((each for each in self._waiting if each.wants(record)), None)
                if taker is None:
                    refused.add(where)
                    rest.append(record)
                else:
                    taker.given.append(record)
        for each in self._waiting:
            if each.given:
                each.wake_up()
        self._put_back(rest)
        return own

    def _pass_error(self, read: Read, error: KafkaError) -> bool:
        """Return whether an error concerns none of the partitions that a read wants.

        It is then raised in the first waiting task that wants its partition. Without such a task it
        is dropped: a partition that cannot be read raises its error again once it is wanted.
        """
        tp = error.topic_partition
        if tp is None or read.covers(tp):
            return False
        if isinstance(error, RecordError):
            # The native consumer has moved past the record, at which aiokafka's stays.
            self.read_again(tp, error.offset)
        taker = next((each for each in self._waiting if each.covers(tp)), None)
        if taker is not None:
            taker.error = error
            taker.wake_up()
        self._held.discard(tp)  # Its pause has ended, or it would raise nothing.
        self._hold_unwanted()
        return True

    def _put_back(self, records: Sequence[ConsumerRecord[Any, Any]]) -> None:
        """Deliver these records again, if their partitions are still assigned."""
        first: dict[TopicPartition, int] = {}
        for record in records:
            first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        for tp, offset in first.items():
            self.read_again(tp, offset)

    def read_again(self, partition: TopicPartition, offset: int) -> None:
        """Continue at this offset, if the partition is still assigned."""
        if partition in self._native.assignment():
            self._native.seek(partition, offset)

    def _end_turn(self, read: Read) -> None:
        if self._reader is read:
            self._reader = None
        if self._waiting:
            self._wake_next()
        elif self._held:
            self._hold_unwanted()

    def _wake_next(self) -> None:
        if self._reader is not None or self._next is not None:
            return
        for each in self._waiting:
            if each.wake is not None and not each.wake.done():
                self._next = each
                each.wake_up()
                return

    def _is_covered(self, read: Read) -> bool:
        """Return whether the tasks that read or wait want all partitions of this request."""
        reads = [each for each in (self._reader, *self._waiting) if each is not None]
        if any(not each.partitions for each in reads):
            return True
        return bool(read.partitions) and all(
            any(tp in each.partitions for each in reads) for tp in read.partitions
        )

    def _hold_unwanted(self) -> None:
        """Pause the partitions that no task wants, and resume the others."""
        reads = [each for each in (self._reader, *self._waiting) if each is not None]
        if not self._held and all(not each.partitions for each in reads):
            return
        try:
            assigned = self._native.assignment()
        except KafkaError:
            return  # The consumer is closed or has failed, so that nothing is read any more.
        if not reads or any(not each.partitions for each in reads):
            unwanted: set[TopicPartition] = set()
        else:
            wanted = frozenset[TopicPartition]().union(*(each.partitions for each in reads))
            unwanted = assigned - wanted
        if to_resume := (self._held - unwanted - self.paused - self._resting) & assigned:
            self._native.resume(to_resume)
        if to_pause := unwanted - self._held - self.paused:
            self._native.pause(to_pause)
        self._held = unwanted - self.paused

    def on_assigned(self) -> None:
        """End the pauses of the program, as aiokafka does, and pause what no task wants."""
        if stay := (self.paused | self._held | self._resting) & self._native.assignment():
            self._native.resume(stay)
        self.paused, self._held, self._resting = set(), set(), set()
        self._hold_unwanted()

    def pause(self, tps: Collection[TopicPartition]) -> None:
        """Pause partitions for the program."""
        self._native.pause(set(tps) - self._held)
        self.paused.update(tps)

    def resume(self, tps: Collection[TopicPartition]) -> None:
        """Resume partitions that the program has paused."""
        self.paused.difference_update(tps)
        self._native.resume(set(tps) - self._held - self._resting)
        self._hold_unwanted()

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Continue at this offset for the program, after a rest."""
        self._native.seek(tp, offset)
        self._native.pause((tp,))
        if not self._resting:
            asyncio.get_running_loop().call_later(REST_S, self._end_rest)
        self._resting.add(tp)

    def _end_rest(self) -> None:
        rested, self._resting = self._resting - self.paused - self._held, set()
        try:
            self._native.resume(rested & self._native.assignment())
        except KafkaError:
            pass  # The consumer is closed or has failed, so that nothing is read any more.

    # -- processed records

    def _start_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(PROCESSED_S, self._mark_processed)

    def _mark_processed(self) -> None:
        self._timer = None
        try:
            self._native.mark_processed()
        except KafkaError:
            pass  # The consumer is closed or has failed: the next call of the program says so.

    def close(self) -> None:
        """Count all delivered records as processed, before the native consumer is closed."""
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._mark_processed()
        self._cursor = None
