"""Deadlines of what waits: `delivery_timeout_ms` for every record, `max_block_ms` for those of a
topic or partition that does not exist or that no broker has told anything about.

One timer, set to the earliest deadline that was found when it last rang. As each queue is in the
order of its sends and all have the same time, only the heads are looked at.

The time of a batch is that of its first record. So that the last one is not failed long before its
own, a batch that cannot leave takes no more records after a tenth of the time.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiokclient.clock import Clock
from aiokclient.errors import DeliveryTimeoutError, KafkaError, error_for
from aiokclient.producer.batching.accumulator import Accumulator
from aiokclient.producer.batching.queue import PartitionQueue, QueuedBatch
from aiokclient.producer.fairness import SLICE_S
from aiokclient.producer.sending.leaders import no_such_partition

if TYPE_CHECKING:
    from aiokclient.config import ProducerConfig

__all__ = ["Expiry"]

SOONEST_S = 0.001


class Expiry:
    """Fails what is out of time."""

    def __init__(self, config: ProducerConfig, clock: Clock, accumulator: Accumulator) -> None:
        self._delivery_s = config.delivery_timeout_ms / 1000
        self._block_s = config.max_block_ms / 1000
        self._age_s = self._delivery_s / 10
        self._numbered = bool(config.enable_idempotence)
        self._clock = clock
        self._accumulator = accumulator
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        """Time of `_timer`. uvloop's handle of a short delay does not have it."""

    def arm(self) -> None:
        """Something waits from now on, or a shorter deadline may hold for what waits."""
        when = self._clock.monotonic() + min(self._age_s, self._block_s)
        if self._timer is None:
            self._set(when)
        elif self._due > when:
            self._timer.cancel()
            self._set(when)

    def stop(self) -> None:
        """No more deadlines: nothing waits any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, when: float) -> None:
        self._due = when
        self._timer = self._accumulator.turns.at(when, self._ring)

    def _ring(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        earliest: float | None = None
        active = self._accumulator.active
        for queue in list(active):
            deadline = self._expire(queue, now)
            if deadline is None:
                active.pop(queue, None)
            elif earliest is None or deadline < earliest:
                earliest = deadline
            if self._clock.monotonic() - now > SLICE_S:
                earliest = now
                break
        if earliest is not None:
            self._set(max(min(earliest, now + self._age_s), now + SOONEST_S))

    def _expire(self, queue: PartitionQueue, now: float) -> float | None:
        """Fail what is out of time in one queue; the deadline of what is left."""
        until = now + SLICE_S
        if queue.unsendable and queue.open is not None and queue.open.expired(now, self._age_s):
            self._accumulator.close(queue)
        while (batch := queue.oldest()) is not None:
            deadline = self._deadline(batch)
            if deadline > now or self._clock.monotonic() > until:
                return deadline
            self._accumulator.fail(batch, self._error(batch))
        return None

    def _deadline(self, batch: QueuedBatch) -> float:
        deadline = batch.created + self._delivery_s
        topic = batch.queue.topic
        absent_since = batch.queue.absent_since
        if absent_since is not None:
            return min(deadline, max(batch.created, absent_since) + self._block_s)
        if topic.missing_since is not None:
            missing = max(batch.created, topic.missing_since)
            if batch.queue.partition is None:
                missing = batch.created
            return min(deadline, missing + self._block_s)
        if batch.queue.partition is None and not topic.moving:
            return min(deadline, batch.created + self._block_s)
        return deadline

    def _error(self, batch: QueuedBatch) -> KafkaError:
        topic = batch.queue.topic
        code = 0 if topic.info is None else topic.info.error
        missing = error_for(code, api="Metadata", topic_partition=batch.queue.topic_partition)
        if missing is not None:
            return missing
        if batch.queue.absent_since is not None:
            return no_such_partition(batch.queue.topic_partition, topic.partition_count)
        return DeliveryTimeoutError(self._why(batch), topic_partition=batch.queue.topic_partition)

    def _why(self, batch: QueuedBatch) -> str:
        waited = f"After {self._clock.monotonic() - batch.created:.1f} s"
        queue = batch.queue
        if batch.attempt:
            return f"{waited} it was sent {batch.attempt} time(s) without an acknowledgement"
        if queue.topic.info is None:
            return f"{waited} no broker had told the partitions of the topic; it was never sent"
        if queue.sender is None:
            return f"{waited} the partition had no leader; it was never sent"
        if queue.unsendable:
            broker = f"its leader, broker {queue.sender.node_id},"
            return f"{waited} {broker} was disconnected or did not answer; it was never sent"
        if self._numbered and queue.sequences.producer_id < 0:
            return f"{waited} no broker had given a producer id; it was never sent"
        if batch.compressing:
            what = "was still being compressed, or waited for a thread to be compressed in"
            return f"{waited} it {what}; it was never sent"
        return f"{waited} it had not been its turn to be sent"
