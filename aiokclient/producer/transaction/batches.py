"""The batches of a transaction that are refused, or that will not be committed.

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
from typing import TYPE_CHECKING

from aiokclient.errors import KafkaError, UnsupportedVersionError
from aiokclient.policy import Scope
from aiokclient.producer.batching.batch import ProducerBatch
from aiokclient.producer.batching.queue import PartitionQueue
from aiokclient.producer.batching.stages import BatchStage
from aiokclient.producer.delivery.delivery import settled
from aiokclient.producer.transaction.states import BROKEN
from aiokclient.producer.transaction.status import (
    CurrentTransaction,
    abortable,
    repeated,
)

if TYPE_CHECKING:
    from aiokclient.producer.engine import Engine
    from aiokclient.producer.transaction.manager import TransactionManager

__all__ = ["TransactionBatches"]

RECHECK_S = 0.1
"""Seconds between two searches for batches that returned to their queues without an outcome."""


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
        self._accumulator.callbacks.soon(self._drop_after_error)

    def _drop_after_error(self) -> None:
        error = self._status.fatal
        if error is not None:
            self._drop_batches(repeated(error), in_flight=False)
        elif self._status.state in BROKEN:
            why = "an earlier error requires that the transaction is aborted"
            dropped = _dropped(why)
            dropped.__cause__ = self._status.current.error
            self._drop_batches(dropped, in_flight=False)

    async def drain(self) -> None:
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
        batch.queue.come_back(batch)
        batch.queue.block()
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
            batch.queue.unblock()


def _dropped(why: str) -> KafkaError:
    return abortable(f"The record was not sent, because {why}.")
