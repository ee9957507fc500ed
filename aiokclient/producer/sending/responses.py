"""The handling of produce responses, and of missing responses, for each batch.

For an error there are three cases, which are checked in this order: the error code concerns
sequences (`sequences.CODES`); the batch is too large and can be split (KIP-126); the policy decides
what to do.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from aiokclient.cluster.metadata.snapshot import BrokerInfo
from aiokclient.cluster.requests.attempts import is_refusal
from aiokclient.config.codecs import SLOW_BYTES, Compression
from aiokclient.errors import (
    CorruptRecordError,
    KafkaError,
    NotEnoughReplicasError,
    RecordTooLargeError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    error_for,
)
from aiokclient.log.limited_log import LimitedLog
from aiokclient.policy import Backoff, Decision, Scope, decide
from aiokclient.producer.batching.batch import ProducerBatch
from aiokclient.producer.batching.queue import PartitionQueue
from aiokclient.producer.batching.sequences import CODES, SequenceEvent
from aiokclient.producer.batching.stages import InLog
from aiokclient.producer.sending.expiry import late_error
from aiokclient.producer.sending.sender import Sent
from aiokclient.record.batch import RecordBatchBuilder

if TYPE_CHECKING:
    import asyncio

    from aiokclient.config.producer import ProducerConfig
    from aiokclient.producer.engine import Engine
    from aiokclient.protocol.messages.produce import PartitionProduceResponse

UNWRITTEN = frozenset(
    error.code
    for error in (
        CorruptRecordError,
        NotEnoughReplicasError,
        RecordTooLargeError,
        UnknownTopicIdError,
        UnknownTopicOrPartitionError,
    )
)
"""Error codes which show that the batch is in no existing log. After any other code, or without a
response, the batch may have been written."""
PERSISTENT = 5
"""Number of failed attempts after which a refusal is logged although new metadata may end it."""


class Responses:
    """The handling of responses: batches are completed, queued again, split, or failed."""

    def __init__(self, config: ProducerConfig, engine: Engine) -> None:
        cluster = engine.cluster
        self._engine = engine
        self._rng = cluster.clock.rng
        self._accumulator = engine.accumulator
        self._updater = cluster.updater
        self._metrics = cluster.metrics
        self._log = LimitedLog(engine.log, cluster.clock)
        self._delivery_s = config.delivery_timeout_ms / 1000
        self._compression = Compression[config.compression_type.upper()]
        self._level = config.compression_level
        self._backoff = Backoff.of(config)
        self._scope = Scope.PRODUCE if config.transactional_id is None else Scope.PRODUCE_TXN

    def on_partition_response(
        self,
        sent: Sent,
        part: PartitionProduceResponse,
        broker: int,
        endpoints: Sequence[BrokerInfo],
    ) -> None:
        """Handle the broker's response for a batch."""
        batch = sent.batch
        if not batch.is_current_attempt(sent.attempt):
            return
        if not part.error_code:
            self._accumulator.complete_batch(
                batch, part.base_offset, part.log_append_time_ms, part.log_start_offset
            )
            return
        event = self._find_event(batch, part.error_code)
        if event is SequenceEvent.WRITTEN:
            self._complete_duplicate(batch)
            return
        partition = batch.queue.topic_partition
        error = error_for(
            part.error_code,
            part.error_message,
            api="Produce",
            broker=broker,
            topic_partition=partition,
        )
        assert error is not None
        if event is not None:
            self._resend_refused(batch, error, event)
        # The topic's max.message.bytes may be lower than max_request_size. The producer does not
        # know it, because Metadata does not contain it.
        elif part.error_code == RecordTooLargeError.code and batch.count > 1:
            self._split_batch(sent, error)
        elif part.error_code == RecordTooLargeError.code:
            said = f"{error.message.rstrip('.')}. " if error.message else ""
            error.message = f"{said}The batch, which has only this record, has {batch.size} bytes."
            self._retry_or_fail(batch, error)
        elif not self._postpone_batch(batch, error):
            if part.error_code == UnknownTopicIdError.code:
                # From Produce 13 on, topics are named by their ids (KIP-516): this one may be
                # deleted or recreated.
                self._updater.doubt_topic_id(batch.queue.topic.topic_id)
            leader = part.current_leader
            # From Produce 10 on, the refusal names the new leader, so that no metadata is needed
            # (KIP-951).
            hint = (leader.leader_id, leader.leader_epoch, endpoints)
            self._retry_or_fail(batch, error, hint if leader.leader_id >= 0 else None)

    def _can_retry(self) -> bool:
        """Return whether batches may be sent again: always, or while the transaction permits it."""
        status = self._engine.status
        return status is None or status.may_send

    def _postpone_batch(self, batch: ProducerBatch, error: KafkaError) -> bool:
        """Return whether the transactions have put a refused batch back into its queue.

        The error needs no further handling then.
        """
        transactions = self._engine.transactions
        return transactions is not None and transactions.batches.postpone_batch(batch, error)

    def _find_event(self, batch: ProducerBatch, code: int) -> SequenceEvent | None:
        """Return what an error code says about the sequences, or None."""
        event = CODES.get(code)
        if event is None:
            return None
        identity, sequences = batch.identity, batch.queue.sequences
        if event is SequenceEvent.WRITTEN:
            sent_before = batch.in_log is not InLog.NO or batch.whole is not None
            if identity is not None and sent_before:
                return event
            event = SequenceEvent.FOREIGN  # A batch that was not sent before cannot be in the log.
        first = batch.queue.sent[0] is batch
        if identity is None or self._scope is not Scope.PRODUCE:
            # A transaction cannot take another identity. So it must be aborted, unless the leader
            # refused the batch only because an earlier batch of this producer is missing.
            waits = event is SequenceEvent.REFUSED and (not first or batch.whole is not None)
            return event if waits and self._can_retry() else None
        # What precedes the first batch in flight was acknowledged. A leader that misses it has lost
        # records, or the state of this producer.
        if event is SequenceEvent.REFUSED and first:
            by_name = batch.by_name
            explained = batch.whole is not None or sequences.is_explained(identity, by_name=by_name)
            return event if explained else SequenceEvent.FOREIGN
        return event

    def _complete_duplicate(self, batch: ProducerBatch) -> None:
        """Complete a batch that the leader already has, or has as part of a larger batch."""
        batch.pass_on_whole_batch()
        self._accumulator.complete_batch(batch)

    def on_no_response(self, sent: Sent, error: KafkaError) -> None:
        """Handle a missing response, after which it is unknown whether the batch was written."""
        if sent.batch.is_current_attempt(sent.attempt):
            self._retry_or_fail(sent.batch, sent.batch.with_partition(error))

    def fail_unknowable(self, batch: ProducerBatch) -> None:
        """Fail a batch for which it is impossible to find out whether it was written."""
        text = (
            "The topic was recreated, or the cluster replaced, after the batch was sent and before "
            "an acknowledgement came. The records may have been written to either topic; look "
            "there before you send them again."
        )
        self._accumulator.fail_batch(batch, batch.with_partition(KafkaError(text, api="Produce")))
        batch.queue.notify_sender()

    def _retry_or_fail(
        self,
        batch: ProducerBatch,
        error: KafkaError,
        hint: tuple[int, int, Sequence[BrokerInfo]] | None = None,
    ) -> None:
        queue = batch.queue
        remaining = batch.created + self._delivery_s - self._accumulator.loop.time()
        action = decide(error, self._scope, batch.failures, remaining, self._rng, self._backoff)
        if not action.again or not self._can_retry():
            if remaining <= 0:
                error = self._describe_lateness(batch, error)
            self._accumulator.fail_batch(batch, error)
            return
        self._count_retry(batch, error)
        batch.count_failure(error)
        self._log_retried(batch, error, action.decision)
        if error.code not in UNWRITTEN:
            batch.note_unknown()
        # Below Produce 13, a topic that is recreated meanwhile cannot be told from the old one.
        if batch.by_name and error.code == UnknownTopicOrPartitionError.code:
            queue.note_vanished()
        queue.requeue_batch(batch)
        if hint is not None and queue.partition is not None:
            leader, epoch, endpoints = hint
            if self._updater.apply_hint(
                queue.topic.name, queue.partition, leader, epoch, endpoints
            ):
                queue.notify_sender()
                return
        self._block_queue(queue, action.delay_s)
        if action.decision is Decision.REFRESH_AND_RETRY:
            self._updater.request_update((queue.topic.name,))

    def _describe_lateness(self, batch: ProducerBatch, error: KafkaError) -> KafkaError:
        """Return the error of a batch whose last attempt failed after its deadline."""
        if error.code not in UNWRITTEN:
            batch.note_unknown()
        waited_s = self._accumulator.loop.time() - batch.created
        return late_error(batch, waited_s, error)

    def _log_retried(self, batch: ProducerBatch, error: KafkaError, decision: Decision) -> None:
        """Log the first refusal of each kind. A broker's repeated ones are one line in a while."""
        # A refusal that new metadata usually ends is logged if it did not.
        usual = decision is Decision.REFRESH_AND_RETRY and batch.failures < PERSISTENT
        if error.code is None or usual:
            return
        partition = batch.queue.topic_partition
        text = "Broker %s refuses records for %s: %s"
        if not is_refusal(error):
            text = "The connection to broker %s was lost before it acknowledged records for %s: %s"
        self._log.write(
            logging.WARNING,
            ("retried", partition.topic, error.name),
            f"{text} The producer sends them again, until %.0f s after their send.",
            error.broker,
            partition,
            error.brief,
            self._delivery_s,
            extra={"event": "batch_retried", "topic": partition.topic, "error": error.name},
        )

    def _resend_refused(
        self, batch: ProducerBatch, error: KafkaError, event: SequenceEvent
    ) -> None:
        """Send a batch again that the leader refused because of its sequence.

        Either its predecessors are written first, or the partition restarts with new sequences.
        """
        queue = batch.queue
        self._count_retry(batch, error)
        head = queue.sent[0] is batch
        if head and batch.whole is not None and event is SequenceEvent.REFUSED:
            self._settle_whole_batch(batch, error)
            return
        queue.requeue_batch(batch, refused=True, foreign=event is SequenceEvent.FOREIGN)
        if head:
            self._log_refused(batch, error, event)
            delay_s = self._backoff.compute_delay_after_s(
                error, self._scope, batch.failures, self._rng
            )
            self._block_queue(queue, delay_s)
            batch.count_failure(error)
        else:
            queue.notify_sender()

    def _log_refused(self, batch: ProducerBatch, error: KafkaError, event: SequenceEvent) -> None:
        # The error's own text is not logged. Its advice is for programs that cannot send the batch
        # again.
        partition, foreign = batch.queue.topic_partition, event is SequenceEvent.FOREIGN
        if foreign:
            why = "its log does not have this producer's last batch"
            goes_on = "with a new producer id"
        else:
            why, goes_on = "an earlier one was not written", "in order"
        self._log.write(
            logging.WARNING if foreign else logging.INFO,
            (partition, event),
            "Broker %s did not accept a batch of %d records for %s (%s): %s. The producer sends it "
            "again %s.",
            error.broker,
            batch.count,
            partition,
            error.name,
            why,
            goes_on,
            extra={
                "event": "producer_unknown" if foreign else "batch_refused",
                "topic": partition.topic,
                "error": error.name,
            },
        )

    def _block_queue(self, queue: PartitionQueue, delay_s: float) -> None:
        if queue.blocked:
            return
        queue.block_sending()
        self._accumulator.callbacks.call_later(delay_s, queue.unblock_sending)

    def _count_retry(self, batch: ProducerBatch, error: KafkaError) -> None:
        name = error.name or type(error).__name__
        self._metrics.counter("producer.retries", error=name).add()
        meters = self._accumulator.meters
        meters.own_metrics.counter("retries", error=name).add()
        meters.count_retried(batch)

    # -- splitting

    def _split_batch(self, sent: Sent, error: KafkaError) -> None:
        batch = sent.batch
        self._count_retry(batch, error)
        if batch.in_log is not InLog.NO and batch.whole is not None:
            # If this part were split, no response could show whether the whole batch was written.
            for part in batch.whole:
                self._fail_part(part, error)
            return
        topic = batch.queue.topic
        # MESSAGE_TOO_LARGE does not tell the limit, so it is searched for by halving.
        limit = topic.batch_limit.halve_limit(batch.builder.size)
        self._log.write(
            logging.INFO,
            ("split", topic.name),
            "Broker %s refused a batch for %s as too large. The producer sends it again as batches "
            "of at most %d bytes.",
            error.broker,
            batch.queue.topic_partition,
            limit,
            extra={"event": "batch_split", "topic": topic.name, "error": error.name},
        )
        if batch.builder.size < SLOW_BYTES:
            self._replace_batch(batch, self._make_builders(batch, limit))
            return
        then = partial(self._on_builders_made, sent)
        self._accumulator.callbacks.call_in_thread(self._make_builders, batch, limit, then=then)

    def _on_builders_made(self, sent: Sent, work: asyncio.Future[list[RecordBatchBuilder]]) -> None:
        batch = sent.batch
        if work.cancelled() or not batch.is_current_attempt(sent.attempt):
            return
        error = work.exception()
        if error is None:
            self._replace_batch(batch, work.result())
            return
        failure = KafkaError(f"The batch could not be split: {error!r}.")
        failure.__cause__ = error
        self._accumulator.fail_batch(batch, batch.with_partition(failure))

    def _make_builders(self, batch: ProducerBatch, limit: int) -> list[RecordBatchBuilder]:
        builders: list[RecordBatchBuilder] = []
        for timestamp, key, value, headers in batch.builder.records():
            if not builders or builders[-1].append(timestamp, key, value, headers) < 0:
                builder = RecordBatchBuilder(
                    compression=self._compression, level=self._level, limit=limit
                )
                builder.append(timestamp, key, value, headers)
                builders.append(builder)
        return builders

    def _replace_batch(self, batch: ProducerBatch, builders: list[RecordBatchBuilder]) -> None:
        self._accumulator.meters.splits.add()
        self._accumulator.replace_by_parts(batch, batch.split_into(builders))
        batch.queue.notify_sender()

    def _settle_whole_batch(self, first: ProducerBatch, error: KafkaError) -> None:
        """Complete or fail the parts of a batch that may have been written as a whole.

        The leader refused the first part because of its sequence. If the previous batch was
        written, the refusal proves that the whole batch was written, too: otherwise, the leader
        would have accepted the first part. If the previous batch was lost, the parts fail, because
        the refusal proves nothing.
        """
        assert first.whole is not None
        assert first.identity is not None
        known = first.identity[2] == first.queue.sequences.acknowledged
        for part in first.whole:
            if part.done:
                continue
            if known:
                self._accumulator.complete_batch(part)
            else:
                self._fail_part(part, error)

    def _fail_part(self, part: ProducerBatch, error: KafkaError) -> None:
        """Fail one of several parts with its own copy of the error."""
        self._accumulator.fail_batch(part, error.with_partition(part.queue.topic_partition))
