"""Refusals of a cluster that was downgraded below level 2 of `transaction.version` (KIP-890).

A downgraded cluster refuses Produce requests of level 2, because their partitions cannot be added
to the transaction. The batches wait until the client has read the level again. If the level is
lower, they are sent again with the requests of the lower level.

A downgraded coordinator also refuses InitProducerId for a transactional id that it has stored at
level 2. After it has refused one request for an id, it refuses all others, until another broker
becomes the coordinator of the id. Before its first refusal, it accepts requests of a lower level
with the current producer id and epoch, and then stores the id at that level. So a restart first
begins and aborts an empty transaction of the lower level, and then sends InitProducerId.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokclient.errors import KafkaError, UnsupportedVersionError
from aiokclient.policy import Decision, Scope, classify
from aiokclient.producer.batching.accumulator import Accumulator
from aiokclient.producer.batching.queue import QueuedBatch
from aiokclient.producer.transaction.requests import TransactionRequests
from aiokclient.producer.transaction.status import CurrentTransaction, TransactionStatus

if TYPE_CHECKING:
    from aiokclient.cluster.lifecycle.supervisor import Supervisor

__all__ = ["LevelCheck"]


class LevelCheck:
    """The checks of the level after refused batches, and the preparation of a restart."""

    def __init__(
        self,
        requests: TransactionRequests,
        status: TransactionStatus,
        supervisor: Supervisor,
        accumulator: Accumulator,
    ) -> None:
        self._requests = requests
        self._status = status
        self._supervisor = supervisor
        self._accumulator = accumulator
        self._waiting: dict[QueuedBatch, KafkaError] = {}
        self._checked: set[QueuedBatch] = set()
        """The batches that have waited once. They are not postponed again."""

    def begin(self) -> None:
        """Forget the batches of the previous transaction."""
        self._checked.clear()

    def postpone(self, batch: QueuedBatch, error: KafkaError) -> bool:
        """Let a refused batch wait until the level has been read again. Return whether it waits.

        After the wait, the batch is sent again if the level is lower, and otherwise fails with
        `error`.
        """
        refused = error.code == UnsupportedVersionError.code and self._status.may_send
        if not refused or batch in self._checked:
            return False
        batch.count_failure(error)
        batch.queue.come_back(batch)
        batch.queue.block()
        if not self._waiting:
            name = "reading the level of transactions"
            self._supervisor.spawn(self._check, self._status.current, name=name)
        self._waiting[batch] = error
        return True

    async def _check(self, transaction: CurrentTransaction) -> None:
        part = next(iter(self._waiting)).queue.topic_partition
        downgraded = await self._requests.was_downgraded(transaction, part)
        waiting, self._waiting = self._waiting, {}
        self._checked.update(waiting)
        for batch, error in waiting.items():
            if not downgraded:
                self._accumulator.fail(batch, error)
            batch.queue.unblock()

    async def prepare_restart(self, timeout: float) -> None:
        """Make the coordinator store the lower level, if it refused a request since a downgrade.

        Raises ApiTimeoutError after `timeout` seconds, and the error with which the coordinator
        refuses the transaction of the lower level, unless a new epoch corrects the error.
        """
        transaction = self._status.current
        if transaction.part is None:
            return
        try:
            await self._requests.abort_empty(transaction.part, self._status.identity, timeout)
        except KafkaError as error:
            if classify(error, Scope.TRANSACTION) is not Decision.RECOVER:
                raise
            # Another producer has taken over, so the coordinator has stored the lower level.
