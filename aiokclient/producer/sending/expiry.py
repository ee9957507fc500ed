"""Deadlines of records that wait to be delivered, and the errors of those that were too late.

A record fails if it is not delivered within `delivery_timeout_ms`. If its topic or partition does
not exist, or if no broker has described the topic yet, the limit is `max_block_ms`.

Each queue is ordered by the times of the sends, and all records have the same timeout, so only the
first batch of each queue is checked.

The timeout of a batch starts with its first record. A batch that cannot be sent accepts no more
records after a tenth of the timeout, so that its last record does not fail long before that
record's own deadline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokclient.background import SLICE_S
from aiokclient.clock import Clock
from aiokclient.cluster.requests.attempts import is_refusal
from aiokclient.errors import DeliveryTimeoutError, KafkaError, error_for
from aiokclient.producer.batching.accumulator import AGES
from aiokclient.producer.batching.batch import ProducerBatch
from aiokclient.producer.batching.queue import PartitionQueue
from aiokclient.producer.batching.stages import BatchStage, InLog
from aiokclient.producer.sending.leaders import no_such_partition

if TYPE_CHECKING:
    from aiokclient.config.producer import ProducerConfig
    from aiokclient.producer.engine import Engine

NOT_WRITTEN = "It is safe to send the record again. Check that the partition can be written."


def late_error(
    batch: ProducerBatch, waited_s: float, error: KafkaError | None, why: str = ""
) -> KafkaError:
    """Return the error of a batch that was not acknowledged in time.

    `error` is that of the last attempt, which becomes the cause. `why` is the reason for which the
    batch was never sent.
    """
    error = error or batch.last_error
    if not batch.attempt:
        text = f"It was never sent: for {waited_s:.1f} s, {why}. It was not written."
        unwritten = True
    else:
        sent = f"It was sent {batch.attempt} time(s) in {waited_s:.1f} s"
        unwritten = batch.in_log is InLog.NO and batch.stage is not BatchStage.IN_FLIGHT
        if unwritten and error is not None:
            text = f"{sent} and refused each time, so it was not written."
        else:
            text, unwritten = f"{sent} and not acknowledged.", False
    answer = batch.last_answer
    if error is not None and not is_refusal(error) and answer is not None and is_refusal(answer):
        text = f"{text} After the last answer: {error.brief}"
        error = answer
    late = DeliveryTimeoutError(text, topic_partition=batch.queue.topic_partition)
    if unwritten:
        late.hint = NOT_WRITTEN
    late.__cause__ = error
    return late


def why_never_sent(batch: ProducerBatch, idempotent: bool, transactional: bool = False) -> str:
    """Return the reason for which a batch was not sent, as a clause."""
    queue = batch.queue
    if queue.topic.info is None:
        return "no broker described the partitions of the topic"
    if queue.sender is None:
        return "the partition had no leader"
    if queue.unsendable:
        return f"its leader, broker {queue.sender.node_id}, was disconnected or did not answer"
    if transactional and queue.sequences.producer_id < 0:
        return "the coordinator did not add its partition to the transaction"
    if idempotent and queue.sequences.producer_id < 0:
        return "no broker returned a producer id"
    if batch.compressing:
        return "it was being compressed, or waited for a thread for that"
    return "older records were sent first"


SOONEST_S = 0.001


class Expiry:
    """The expiry of batches whose deadline has passed."""

    def __init__(self, config: ProducerConfig, engine: Engine) -> None:
        self._engine = engine
        self._delivery_s = config.delivery_timeout_ms / 1000
        self._block_s = config.max_block_ms / 1000
        self._age_s = self._delivery_s / AGES
        self._idempotent = bool(config.enable_idempotence)
        self._transactional = config.transactional_id is not None
        self._cluster = engine.cluster
        self._clock: Clock = engine.cluster.clock
        self._accumulator = engine.accumulator

    def expire_batches(self, now: float) -> float | None:
        """Fail the batches whose deadline has passed. Return the time of the next check, or None.

        None means that no batch waits.
        """
        earliest: float | None = None
        active = self._accumulator.active
        for queue in list(active):
            deadline = self._expire_queue(queue, now)
            if deadline is None:
                active.pop(queue, None)
            elif earliest is None or deadline < earliest:
                earliest = deadline
            if self._clock.monotonic() - now > SLICE_S:
                earliest = now
                break
        if earliest is None:
            return None
        return max(min(earliest, now + self._age_s), now + SOONEST_S)

    def _expire_queue(self, queue: PartitionQueue, now: float) -> float | None:
        """Fail the batches of a queue whose deadline has passed. Return the next deadline."""
        until = now + SLICE_S
        if queue.unsendable and queue.open is not None and queue.open.is_expired(now, self._age_s):
            self._accumulator.close_batch(queue)
        while (batch := queue.oldest_batch()) is not None:
            deadline = self._find_deadline(batch)
            if deadline > now or self._clock.monotonic() > until:
                return deadline
            self._accumulator.fail_batch(batch, self._make_error(batch))
        return None

    def _find_deadline(self, batch: ProducerBatch) -> float:
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

    def _make_error(self, batch: ProducerBatch) -> KafkaError:
        topic = batch.queue.topic
        code = 0 if topic.info is None else topic.info.error
        missing = error_for(code, api="Metadata", topic_partition=batch.queue.topic_partition)
        if missing is not None:
            return missing
        if batch.queue.absent_since is not None:
            return no_such_partition(batch.queue.topic_partition, topic.partition_count)
        waited_s = self._clock.monotonic() - batch.created
        why = why_never_sent(batch, self._idempotent, self._transactional)
        return late_error(batch, waited_s, self._find_last_error(batch), why)

    def _find_last_error(self, batch: ProducerBatch) -> KafkaError | None:
        """Return the last error of what the batch waits for, or None if that has not failed."""
        queue = batch.queue
        if queue.sender is not None and queue.unsendable:
            # This is newer than the end of an attempt: a broker that refuses the next login has
            # first closed the connection on which the batch was sent.
            obstacle = self._cluster.find_last_error(queue.sender.node_id)
            if obstacle is not None:
                return batch.with_partition(obstacle)
        if batch.attempt:
            return batch.last_error
        if queue.sender is None:
            return self._cluster.find_last_error()
        if self._idempotent and queue.sequences.producer_id < 0:
            return self._engine.batch_ids.last_error
        return queue.sent[0].last_error if queue.sent else None
