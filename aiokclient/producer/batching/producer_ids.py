"""Producer ids, with which the sequences of an idempotent producer begin.

A producer id is this producer's as long as the cluster that gave it exists. A wiped cluster, or
another one at the same address, gives the same ids to other producers. So each id belongs to a
*generation*, which ends with a sign that the cluster may be another one: every connection was lost
at one time, the cluster or a topic has another id, or a leader's state is not this producer's.
Partitions begin in a new generation with an id that was requested in it. Those with an id of an old
generation change it as soon as all batches that were sent with it have their outcome.

A batch that was sent in an old generation and has no outcome is sent again with the same sequences,
so that it is written once. Requests that name the topic by its id (from Produce 13 on) reach no
other topic. If they can only name it by its name, the metadata is refreshed first: if the name is
another topic's by now, it cannot be known whether the batch was written, and the batch fails.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from aiokclient.errors import KafkaError
from aiokclient.producer.batching.queue import PartitionQueue, QueuedBatch
from aiokclient.producer.batching.sequences import SequenceState

if TYPE_CHECKING:
    from aiokclient.cluster.supervisor import Supervisor
    from aiokclient.producer.batching.topic_status import TopicStatus

__all__ = ["ProducerIds"]

RECHECK_S = 1.0
"""Seconds until the metadata of a missing topic is refreshed again."""


class ProducerIds:
    """Requests producer ids when they are needed, and gives batches their identity.

    `request` asks for an id. `look` asks for fresh metadata of a topic and returns whether the
    topic exists. `has_sent` returns whether batches that were sent to a topic have no outcome.
    `arrived` is called when batches may be sent, `failed` when no broker returns an id.
    """

    def __init__(
        self,
        idempotent: bool,
        request: Callable[[], Awaitable[tuple[int, int]]],
        look: Callable[[str], Awaitable[bool]],
        has_sent: Callable[[str], bool],
        supervisor: Supervisor,
        arrived: Callable[[], None],
        failed: Callable[[KafkaError], None],
    ) -> None:
        self.current: tuple[int, int] | None = None
        self.generation = 0
        self._idempotent = idempotent
        self._request = request
        self._look = look
        self._has_sent = has_sent
        self._supervisor = supervisor
        self._arrived = arrived
        self._failed = failed
        self._asking = False
        self._looked_at: dict[TopicStatus, int] = {}
        """The generation in which the metadata of a topic was last refreshed."""
        self._looking: dict[TopicStatus, None] = {}

    def identify(self, queue: PartitionQueue, batch: QueuedBatch, *, by_name: bool) -> bool:
        """Give a batch that is about to be sent its identity. Return False if that has to wait.

        `by_name`: requests to the leader name topics by their names.
        """
        sequences = queue.sequences
        restarting = sequences.state is SequenceState.RESTARTING
        if not self._idempotent:
            if restarting:
                sequences.adopt(-1, -1)
            return True
        old = sequences.generation != self.generation
        if batch.identity is not None:
            if not old or (queue.topic.topic_id.int and not by_name):
                return True
            return self._checked(queue.topic)
        if sequences.void and not old:
            self.expire()
            old = True
        if old and queue.sent:
            queue.drain()
            return False
        if old or sequences.producer_id < 0 or (restarting and sequences.exhausted):
            found = self.get(unlike=sequences.producer_id)
            if found is None:
                return False
            sequences.adopt(*found, self.generation)
        elif restarting:
            sequences.restart()
        batch.identify(sequences.assign(batch.count))
        return True

    def get(self, unlike: int = -1) -> tuple[int, int] | None:
        """Return a producer id with its epoch, but not `unlike`; None if there is none yet."""
        if self.current is not None and self.current[0] != unlike:
            return self.current
        if not self._asking:
            self._asking = True
            self._supervisor.spawn(self._ask, name="producer id")
        return None

    def expire(self) -> None:
        """Begin a new generation: earlier ids may belong to other producers now."""
        self.generation += 1
        self.current = None

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

    def _checked(self, topic: TopicStatus) -> bool:
        """Return whether the metadata was refreshed in this generation; begin it otherwise."""
        if self._looked_at.get(topic, 0) == self.generation:
            return True
        if topic not in self._looking:
            self._looking[topic] = None
            self._supervisor.spawn(self._check, topic, name=f"metadata of {topic.name}")
        return False

    async def _check(self, topic: TopicStatus) -> None:
        try:
            while True:
                generation = self.generation
                with contextlib.suppress(KafkaError):
                    if await self._look(topic.name):
                        break
                if not self._has_sent(topic.name):
                    return
                await asyncio.sleep(RECHECK_S)
        finally:
            del self._looking[topic]
        self._looked_at[topic] = generation
        self._arrived()
