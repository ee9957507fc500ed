"""The producer ids of an idempotent producer, and how batches get their identities.

A producer id is unique only within the cluster that returned it. After a cluster was wiped, or
replaced by another one at the same address, the same id may be given to another producer. So each
id belongs to a *generation*. A generation ends when something shows that the cluster may be another
one: all connections were lost at the same time, the cluster or a topic has another id, or a leader
has the state of another producer. In a new generation, partitions begin with an id that was
requested in that generation. A partition with an id of an old generation gets a new id as soon as
all batches that were sent with the old id have their outcome.

A batch that was sent in an old generation and has no outcome is sent again with the same sequences,
so that it is written once. Requests that name the topic by its id (from Produce 13 on) cannot reach
another topic. If the broker supports only requests with the topic's name, the metadata is refreshed
first. If the name now belongs to another topic, the batch fails, because nobody can know whether it
was written.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import TYPE_CHECKING

from aiokclient.cluster.requests.attempts import is_refusal
from aiokclient.cluster.targets import AnyBroker
from aiokclient.errors import KafkaError, UnsupportedVersionError
from aiokclient.log.kept_errors import bare
from aiokclient.policy import Scope
from aiokclient.producer.batching.batch import ProducerBatch
from aiokclient.producer.batching.queue import PartitionQueue
from aiokclient.producer.batching.sequences import SequenceState
from aiokclient.protocol.messages.init_producer_id import InitProducerIdRequest

if TYPE_CHECKING:
    from aiokclient.config.producer import ProducerConfig
    from aiokclient.producer.batching.queue import TopicStatus
    from aiokclient.producer.engine import Engine

_FLOWING = SequenceState.FLOWING
"""The state of nearly all partitions. It is compared for every batch, so it is looked up once."""

RECHECK_S = 1.0
"""Seconds until the metadata of a missing topic is refreshed again."""


class ProducerIds:
    """The producer ids, which are requested when needed, and the identities of batches."""

    def __init__(self, config: ProducerConfig, engine: Engine) -> None:
        self.current: tuple[int, int] | None = None
        self.generation = 0
        self.last_error: KafkaError | None = None
        """The error of the last request for an id, if it failed."""
        self._idempotent = bool(config.enable_idempotence)
        self._config = config
        self._engine = engine
        self._asking = False
        self._looked_at: dict[TopicStatus, int] = {}
        """For each topic, the generation in which its metadata was last refreshed."""
        self._looking: dict[TopicStatus, None] = {}

    def identify_batch(self, queue: PartitionQueue, batch: ProducerBatch, by_name: bool) -> bool:
        """Set the identity of a batch that is about to be sent. Return False if it must wait.

        `by_name` says that requests to the leader use the names of topics, not their ids.
        """
        sequences = queue.sequences
        old = sequences.generation != self.generation
        if (
            sequences.state is _FLOWING
            and sequences.producer_id >= 0
            and not (old or sequences.void or batch.identity is not None)
        ):  # This is so for nearly all batches.
            batch.set_identity(sequences.assign_identity(batch.count))
            return True
        restarting = sequences.state is SequenceState.RESTARTING
        if not self._idempotent:
            if restarting:
                sequences.adopt_producer_id(-1, -1)
            return True
        if batch.identity is not None:
            # A request with the topic's id cannot reach another topic of the same name (KIP-516).
            if not old or (queue.topic.topic_id.int and not by_name):
                return True
            return self._is_checked(queue.topic)
        if sequences.void and not old:
            self.expire_ids()
            old = True
        if old and queue.sent:
            queue.pause_until_drained()
            return False
        if old or sequences.producer_id < 0 or (restarting and sequences.exhausted):
            found = self.find_id(unlike=sequences.producer_id)
            if found is None:
                return False
            sequences.adopt_producer_id(*found, self.generation)
        elif restarting:
            sequences.begin_next_epoch()
        batch.set_identity(sequences.assign_identity(batch.count))
        return True

    def find_id(self, unlike: int = -1) -> tuple[int, int] | None:
        """Return a producer id other than `unlike`, with its epoch.

        If there is none yet, request one in the background, and return None.
        """
        if self.current is not None and self.current[0] != unlike:
            return self.current
        if not self._asking:
            self._asking = True
            self._engine.supervisor.spawn(self._obtain_id, name="producer id")
        return None

    def note_failure(self, error: KafkaError) -> None:
        """Store the error of a request that is repeated."""
        if self.last_error is None or is_refusal(error) or not is_refusal(self.last_error):
            self.last_error = bare(error)

    def expire_ids(self) -> None:
        """Begin a new generation, because earlier ids may now belong to other producers."""
        self.generation += 1
        self.current = None

    async def _obtain_id(self) -> None:
        try:
            self.current = await self._request_id()
            self.last_error = None
        except KafkaError as error:
            self._asking = False
            self._fail_waiting_batches(error)
            return
        finally:
            self._asking = False
        self._engine.accumulator.notify_senders()

    async def _request_id(self) -> tuple[int, int]:
        request = InitProducerIdRequest(
            transactional_id=None,
            transaction_timeout_ms=self._config.transaction_timeout_ms,
            producer_id=-1,
        )
        try:
            # This needs no deadline, because the batches that wait for the id have their own.
            response = await self._engine.cluster.request(
                request,
                AnyBroker(),
                timeout=math.inf,
                scope=Scope.INIT_PRODUCER_ID,
                failed=self.note_failure,
            )
        except UnsupportedVersionError as error:
            raise UnsupportedVersionError(
                "An idempotent producer needs a producer id, which the broker cannot give. Check "
                "that the brokers run Kafka 0.11 or later, or set enable_idempotence=False.",
                api=error.api,
                broker=error.broker,
            ) from error
        return response.producer_id, response.producer_epoch

    def _fail_waiting_batches(self, error: KafkaError) -> None:
        """Fail the batches that wait for a producer id. Later sends request one again."""
        accumulator = self._engine.accumulator
        for batch in list(accumulator.pending):
            if batch.identity is None and batch.queue.partition is not None:
                accumulator.fail_batch(batch, error)

    def _is_checked(self, topic: TopicStatus) -> bool:
        """Return whether the metadata was refreshed in this generation. If not, start a refresh."""
        if self._looked_at.get(topic, 0) == self.generation:
            return True
        if topic not in self._looking:
            self._looking[topic] = None
            self._engine.supervisor.spawn(
                self._check_topic, topic, name=f"metadata of {topic.name}"
            )
        return False

    async def _check_topic(self, topic: TopicStatus) -> None:
        try:
            while True:
                generation = self.generation
                with contextlib.suppress(KafkaError):
                    if await self._refresh_topic(topic.name):
                        break
                if not self._engine.leaders.has_sent(topic.name):
                    return
                await asyncio.sleep(RECHECK_S)
        finally:
            del self._looking[topic]
        self._looked_at[topic] = generation
        self._engine.accumulator.notify_senders()

    async def _refresh_topic(self, name: str) -> bool:
        """Request new metadata of a topic. Return whether the topic exists."""
        timeout = self._config.default_api_timeout_ms / 1000
        updater = self._engine.cluster.updater
        snapshot = await updater.refresh((name,), timeout=timeout, at_once=True)
        info = snapshot.find_topic(name)
        return info is not None and not info.error
