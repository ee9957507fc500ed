"""Producer ids: where the numbers of an idempotent producer begin."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from aiokclient.errors import KafkaError
from aiokclient.producer.batch import ProducerBatch
from aiokclient.producer.queue import PartitionQueue
from aiokclient.producer.sequences import State

if TYPE_CHECKING:
    from aiokclient.cluster.supervisor import Supervisor

__all__ = ["ProducerIds"]


class ProducerIds:
    """Asks for a producer id when one is needed, and numbers batches."""

    def __init__(
        self,
        idempotent: bool,
        request: Callable[[], Awaitable[tuple[int, int]]],
        supervisor: Supervisor,
        arrived: Callable[[], None],
        failed: Callable[[KafkaError], None],
    ) -> None:
        self.current: tuple[int, int] | None = None
        self._idempotent = idempotent
        self._request = request
        self._supervisor = supervisor
        self._arrived = arrived
        self._failed = failed
        self._asking = False

    def number(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """Give a batch that is about to leave its numbers; False if that has to wait for an id."""
        sequences = queue.sequences
        restarting = sequences.state is State.RESTARTING
        if not self._idempotent:
            if restarting:
                sequences.adopt(-1, -1)
            return True
        if batch.numbers is not None:
            return True
        if sequences.producer_id < 0 or (restarting and sequences.exhausted):
            found = self.get(unlike=sequences.producer_id)
            if found is None:
                return False
            sequences.adopt(*found)
        elif restarting:
            sequences.restart()
        batch.numbers = sequences.assign(batch.count)
        return True

    def get(self, unlike: int = -1) -> tuple[int, int] | None:
        """A producer id with its epoch, another one than `unlike`; None if it has to be awaited."""
        if self.current is not None and self.current[0] != unlike:
            return self.current
        if not self._asking:
            self._asking = True
            self._supervisor.spawn(self._ask, name="producer id")
        return None

    async def _ask(self) -> None:
        try:
            self.current = await self._request()
        except KafkaError as error:
            self._asking = False
            self._failed(error)
            return
        finally:
            self._asking = False
        self._arrived()
