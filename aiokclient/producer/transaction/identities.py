"""The producer id, epoch, and sequences of the batches of a transactional producer.

All partitions have the producer id and the epoch that the coordinator returned. If they have
changed since the last batch of a partition, its sequences begin at 0. Within one epoch, sequences
continue from one transaction to the next (levels 0 and 1 of `transaction.version`).

Nothing is sent outside a transaction, nor after an error: the batches that were not sent by then
are dropped when the transaction is aborted.
"""

from __future__ import annotations

from aiokclient.errors import KafkaError
from aiokclient.producer.batching.queue import PartitionQueue, QueuedBatch
from aiokclient.producer.transaction.partitions import TransactionPartitions
from aiokclient.producer.transaction.requests import IMPLICIT
from aiokclient.producer.transaction.status import TransactionStatus

__all__ = ["OLD_PRODUCE", "TransactionalIds"]

OLD_PRODUCE = 11
"""The highest version of Produce at levels 0 and 1. Later versions add partitions implicitly."""


class TransactionalIds:
    """The source of identities for the batches of a transactional producer."""

    def __init__(self, status: TransactionStatus, partitions: TransactionPartitions) -> None:
        self._status = status
        self._partitions = partitions

    @property
    def last_error(self) -> KafkaError | None:
        """The last error of adding partitions, without which batches have no identity."""
        return self._partitions.cause()

    def identify(self, queue: PartitionQueue, batch: QueuedBatch, *, by_name: bool) -> bool:
        """Set the identity of a batch that is about to be sent. Return False if it must wait."""
        status = self._status
        if not status.may_send or not self._partitions.contains(queue):
            return False
        if batch.identity is not None:
            return True
        sequences = queue.sequences
        identity = status.current.identity
        if (sequences.producer_id, sequences.epoch) != identity:
            sequences.adopt(*identity)
        batch.identify(sequences.assign(batch.count))
        status.current.note_written()
        return True

    def highest_produce(self) -> int | None:
        """Return the highest version of Produce that the open transaction permits.

        None means that it permits any version.
        """
        return None if self._status.current.level >= IMPLICIT else OLD_PRODUCE
