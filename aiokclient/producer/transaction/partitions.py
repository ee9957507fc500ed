"""The partitions of a transaction, and its batches: identities, sequences, and failures.

All partitions have the producer id and the epoch that the coordinator returned. If they have
changed since the last batch of a partition, its sequences begin at 0. Within one epoch, sequences
continue from one transaction to the next (levels 0 and 1 of `transaction.version`).

Nothing is sent outside a transaction, nor after an error: the batches that were not sent by then
are dropped when the transaction is aborted.

Levels 0 and 1 add each partition to the transaction before its first batch is sent.
A batch waits until its partition was added. Partitions that are found to be missing in the same
iteration of the event loop are added by one request. If the coordinator refuses one of them, it
adds none: the others are added by another request at once, so that no partition delays another.

Of a transaction that will not be committed, batches that were not sent are dropped. Batches in
flight are awaited, so that none of them can arrive after the end of the transaction; they are not
sent again.

A cluster that was downgraded below level 2 of `transaction.version` (KIP-890) refuses Produce
requests of level 2, because their partitions cannot be added to the transaction. The batches wait
until the client has read the level again. If the level is lower, they are sent again with the
requests of the lower level.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from aiokclient.cluster.requests.attempts import LastAnswer
from aiokclient.cluster.requests.per_item import PerItem
from aiokclient.errors import (
    ConcurrentTransactionsError,
    KafkaError,
    OperationNotAttemptedError,
    UnsupportedVersionError,
    error_for,
)
from aiokclient.policy import Attempts, Backoff, Scope
from aiokclient.producer.batching.batch import ProducerBatch
from aiokclient.producer.batching.queue import PartitionQueue
from aiokclient.producer.batching.sequences import SequenceState
from aiokclient.producer.batching.stages import BatchStage
from aiokclient.producer.delivery.delivery import settled
from aiokclient.producer.transaction.requests import IMPLICIT, blocked
from aiokclient.producer.transaction.states import BROKEN
from aiokclient.producer.transaction.status import CurrentTransaction, abortable, repeated
from aiokclient.types import TopicPartition

if TYPE_CHECKING:
    from aiokclient.config.producer import ProducerConfig
    from aiokclient.producer.engine import Engine
    from aiokclient.producer.transaction.manager import TransactionManager
    from aiokclient.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse

API = "AddPartitionsToTxn"
OLD_PRODUCE = 11
"""The highest version of Produce at levels 0 and 1. Later versions add partitions implicitly."""

RECHECK_S = 0.1
"""Seconds between two searches for batches that returned to their queues without an outcome."""

Errors = dict[TopicPartition, KafkaError]


class TransactionPartitions:
    """The partitions of the open transaction, which give their batches identities."""

    def __init__(self, engine: Engine, config: ProducerConfig, manager: TransactionManager) -> None:
        self._engine = engine
        self._requests = manager.requests
        self._status = manager.status
        self._batches = manager.batches
        self._backoff = Backoff.of(config)
        self._added_queues: dict[TopicPartition, PartitionQueue] = {}
        self._queues_in_flight: dict[TopicPartition, PartitionQueue] = {}
        self._missing_queues: dict[TopicPartition, PartitionQueue] = {}
        self._newest_answer = LastAnswer()

    def forget_partitions(self) -> None:
        """Forget the partitions of the previous transaction."""
        self._added_queues.clear()
        self._queues_in_flight.clear()
        self._missing_queues.clear()
        self._newest_answer = LastAnswer()

    @property
    def last_error(self) -> KafkaError | None:
        """Why partitions, without which batches have no identity, were not added so far."""
        return self._newest_answer.error or self._requests.find_last_error()

    def has_gap(self) -> bool:
        """Return whether a batch was lost, so that a partition cannot continue in this epoch."""
        return any(
            queue.sequences.state is SequenceState.RESTARTING
            for queue in self._added_queues.values()
        )

    def identify_batch(self, queue: PartitionQueue, batch: ProducerBatch, by_name: bool) -> bool:
        """Set the identity of a batch that is about to be sent. Return False if it must wait."""
        status = self._status
        if not status.may_send or not self._has_partition(queue):
            return False
        if batch.identity is not None:
            return True
        sequences = queue.sequences
        identity = status.current.identity
        if (sequences.producer_id, sequences.epoch) != identity:
            sequences.adopt_producer_id(*identity)
        batch.set_identity(sequences.assign_identity(batch.count))
        status.current.mark_written()
        return True

    def find_highest_produce(self) -> int | None:
        """Return the highest version of Produce that the open transaction permits.

        None means that it permits any version.
        """
        # With Produce 12 or later, the leader assumes that it may add the partition (KIP-890).
        return None if self._status.current.level >= IMPLICIT else OLD_PRODUCE

    def _has_partition(self, queue: PartitionQueue) -> bool:
        """Return whether batches of a partition may be sent. If not, add the partition."""
        # At level 2 of transaction.version, the leaders add their partitions themselves (KIP-890).
        if self._status.current.level >= IMPLICIT:
            return True
        tp = queue.topic_partition
        if tp in self._added_queues:
            return True
        if tp not in self._queues_in_flight:
            if not self._missing_queues:
                self._engine.callbacks.call_soon(self._add_missing)
            self._missing_queues[tp] = self._queues_in_flight[tp] = queue
        return False

    def _add_missing(self) -> None:
        missing, self._missing_queues = self._missing_queues, {}
        if missing and self._status.may_send:
            name = "adding partitions to the transaction"
            self._engine.supervisor.spawn(
                self._add_partitions, self._status.current, missing, name=name
            )

    async def _add_partitions(
        self, transaction: CurrentTransaction, queues: dict[TopicPartition, PartitionQueue]
    ) -> None:
        """Add partitions. This has no deadline, because the waiting batches have their own."""
        transaction.mark_written()

        def is_over() -> bool:
            return self._status.current is not transaction or not self._status.may_send

        async def ask(tps: list[TopicPartition]) -> Errors:
            if is_over():
                return {}
            errors = await self._add_once(transaction, tps)
            if transaction.was_refused:
                errors = {
                    tp: blocked(error) if error.code == ConcurrentTransactionsError.code else error
                    for tp, error in errors.items()
                }
            for tp in tps:
                if tp not in errors:
                    transaction.mark_added()
                if tp not in errors and not is_over():
                    self._added_queues[tp] = queues[tp]
                    self._queues_in_flight.pop(tp, None)
                    queues[tp].notify_sender()
            return errors

        def refuse(tp: TopicPartition, error: KafkaError) -> None:
            if not is_over():
                self._batches.fail_partition(queues[tp], error)

        def refresh(tp: TopicPartition, error: KafkaError) -> bool:
            self._requests.forget_coordinator()
            return True

        retry = Attempts(math.inf, self._backoff, self._engine.cluster.clock)
        refusals = self._engine.cluster.refusals
        loop = PerItem(
            queues, retry, Scope.TRANSACTION, refusals=refusals, last=self._newest_answer
        )
        try:
            await loop.request_items(ask, refresh=refresh, refuse=refuse)
        except KafkaError as error:
            for tp in loop.remaining:
                refuse(tp, error)

    async def _add_once(self, transaction: CurrentTransaction, tps: list[TopicPartition]) -> Errors:
        """Send the request. If the coordinator refuses partitions, send it again without them."""
        errors: Errors = {}
        left: Iterable[TopicPartition] = tps
        while left:
            response = await self._requests.add_partitions(
                left, transaction.identity, math.inf, lambda response: None
            )
            answers = self._collect_errors(response)
            # With this code, a partition was not added because another one was refused.
            skipped = [tp for tp in answers if answers[tp].code == OperationNotAttemptedError.code]
            refused = {tp: error for tp, error in answers.items() if tp not in skipped}
            errors |= refused
            if not refused:
                errors |= answers
                break
            left = skipped
        return errors

    def _collect_errors(self, response: AddPartitionsToTxnResponse) -> Errors:
        errors: Errors = {}
        for topic in response.results_by_topic_v3_and_below:
            for part in topic.results_by_partition:
                tp = TopicPartition(topic.name, part.partition_index)
                error = error_for(part.partition_error_code, api=API, topic_partition=tp)
                if error is not None:
                    errors[tp] = error
        return errors


class TransactionBatches:
    """The batches of the current transaction that are dropped, failed, or postponed."""

    def __init__(self, engine: Engine, manager: TransactionManager) -> None:
        self._accumulator = engine.accumulator
        self._supervisor = engine.supervisor
        self._status = manager.status
        self._requests = manager.requests
        self._waiting: dict[ProducerBatch, KafkaError] = {}
        """The refused batches that wait until the level was read again, with their errors."""
        self._rechecked: set[ProducerBatch] = set()
        """The batches that have waited once. They are not postponed again."""

    def forget_batches(self) -> None:
        """Forget the batches of the previous transaction."""
        self._rechecked.clear()

    # -- batches that will not be committed

    def drop_later(self) -> None:
        """After an error, schedule the removal of the batches that were not sent."""
        self._accumulator.callbacks.call_soon(self._drop_after_error)

    def _drop_after_error(self) -> None:
        error = self._status.fatal
        if error is not None:
            self._drop_batches(repeated(error), in_flight=False)
        elif self._status.state in BROKEN:
            why = "an earlier error requires that the transaction is aborted"
            dropped = _dropped(why)
            dropped.__cause__ = self._status.current.error
            self._drop_batches(dropped, in_flight=False)

    async def drain_batches(self) -> None:
        """Drop the batches that were not sent, and wait for the outcome of the others."""
        while (batch := self._drop_batches(_dropped("the transaction was aborted"))) is not None:
            try:
                async with asyncio.timeout(RECHECK_S):
                    await settled(batch)
            except TimeoutError:
                continue

    def drop_all(self) -> None:
        """Drop all batches. Requests of the old epoch will be refused."""
        dropped = _dropped("the producer was restarted")
        dropped.hint = "Send the record again in a new transaction."
        self._drop_batches(dropped, in_flight=True)

    def fail_partition(self, queue: PartitionQueue, error: KafkaError) -> None:
        """Fail the batches of a partition that cannot be added to the transaction."""
        raised = self._status.handle_error(error, Scope.TRANSACTION)
        for batch in list(queue.all_batches()):
            self._accumulator.fail_batch(batch, batch.with_partition(raised))

    def _drop_batches(self, error: KafkaError, *, in_flight: bool = False) -> ProducerBatch | None:
        """Fail the batches without an outcome. `in_flight` includes those that are in flight.

        Return one that was not failed because it is in flight, or None.
        """
        waits: ProducerBatch | None = None
        for batch in list(self._accumulator.pending):
            if batch.stage is BatchStage.IN_FLIGHT and not in_flight:
                waits = waits or batch
            else:
                self._accumulator.fail_batch(batch, batch.with_partition(error))
        return waits

    # -- batches that a downgraded cluster has refused

    def postpone_batch(self, batch: ProducerBatch, error: KafkaError) -> bool:
        """Let a refused batch wait until the level has been read again. Return whether it waits.

        After the wait, the batch is sent again if the level is lower, and otherwise fails with
        `error`.
        """
        refused = error.code == UnsupportedVersionError.code and self._status.may_send
        if not refused or batch in self._rechecked:
            return False
        batch.count_failure(error)
        batch.queue.requeue_batch(batch)
        batch.queue.block_sending()
        if not self._waiting:
            name = "reading the level of transactions"
            self._supervisor.spawn(self._recheck_level, self._status.current, name=name)
        self._waiting[batch] = error
        return True

    async def _recheck_level(self, transaction: CurrentTransaction) -> None:
        part = next(iter(self._waiting)).queue.topic_partition
        downgraded = await self._requests.was_downgraded(transaction, part)
        waiting, self._waiting = self._waiting, {}
        self._rechecked.update(waiting)
        for batch, error in waiting.items():
            if not downgraded:
                self._accumulator.fail_batch(batch, error)
            batch.queue.unblock_sending()


def _dropped(why: str) -> KafkaError:
    return abortable(f"The record was not sent, because {why}.")
