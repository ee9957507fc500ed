"""The end of the batches of a transaction that will not be committed.

Batches that were not sent are dropped. Batches in flight are awaited, so that none of
them can arrive after the end of the transaction; they are not sent again.
"""

from __future__ import annotations

import asyncio

from aiokclient.errors import KafkaError
from aiokclient.policy import Scope
from aiokclient.producer.batching.accumulator import Accumulator
from aiokclient.producer.batching.queue import PartitionQueue, QueuedBatch
from aiokclient.producer.batching.stages import BatchStage
from aiokclient.producer.delivery.delivery import settled
from aiokclient.producer.transaction.states import BROKEN
from aiokclient.producer.transaction.status import TransactionStatus, abortable, repeated

__all__ = ["Drain"]

RECHECK_S = 0.1
"""Seconds between two searches for batches that returned to their queues without an outcome."""


class Drain:
    """The removal of the current transaction's batches."""

    def __init__(self, accumulator: Accumulator, status: TransactionStatus) -> None:
        self._accumulator = accumulator
        self._status = status

    def begin(self) -> None:
        """After an error, schedule the removal of the batches that were not sent."""
        self._accumulator.callbacks.soon(self._drop_broken)

    def _drop_broken(self) -> None:
        error = self._status.fatal
        if error is not None:
            self._drop(repeated(error), in_flight=False)
        elif self._status.state in BROKEN:
            why = "an earlier error requires that the transaction is aborted"
            dropped = _dropped(why)
            dropped.__cause__ = self._status.current.error
            self._drop(dropped, in_flight=False)

    async def abort(self) -> None:
        """Drop the batches that were not sent, and wait for the outcome of the others."""
        while (batch := self._drop(_dropped("the transaction was aborted"))) is not None:
            try:
                async with asyncio.timeout(RECHECK_S):
                    await settled(batch)
            except TimeoutError:
                continue

    def restart(self) -> None:
        """Drop all batches. Requests of the old epoch will be refused."""
        dropped = _dropped("the producer was restarted")
        dropped.hint = "Send the record again in a new transaction."
        self._drop(dropped, in_flight=True)

    def refuse(self, queue: PartitionQueue, error: KafkaError) -> None:
        """Fail the batches of a partition that cannot be added to the transaction."""
        raised = self._status.failed(error, Scope.TRANSACTION)
        for batch in list(queue.batches()):
            self._accumulator.fail(batch, batch.with_partition(raised))

    def _drop(self, error: KafkaError, *, in_flight: bool = False) -> QueuedBatch | None:
        """Fail the batches without an outcome. `in_flight` includes those that are in flight.

        Return one that was not failed because it is in flight, or None.
        """
        waits: QueuedBatch | None = None
        for batch in list(self._accumulator.pending):
            if batch.stage is BatchStage.IN_FLIGHT and not in_flight:
                waits = waits or batch
            else:
                self._accumulator.fail(batch, batch.with_partition(error))
        return waits


def _dropped(why: str) -> KafkaError:
    return abortable(f"The record was not sent, because {why}.")
