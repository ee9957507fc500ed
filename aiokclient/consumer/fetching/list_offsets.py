"""Asking brokers for offsets: by time (ListOffsets) and by leader epoch (OffsetForLeaderEpoch).

One round asks every leader once, all at the same time, and tells found from failed. Who asks
decides by the policy what to do about the failed ones.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

import anyio

from aiokclient.cluster.client import ClusterClient
from aiokclient.cluster.metadata import ClusterMetadata
from aiokclient.config import ConsumerConfig
from aiokclient.errors import (
    ApiTimeoutError,
    KafkaError,
    LeaderNotAvailableError,
    ProtocolError,
    UnknownTopicOrPartitionError,
    error_for,
)
from aiokclient.network.pool import Purpose
from aiokclient.policy import Backoff, Decision, Scope, decide
from aiokclient.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from aiokclient.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from aiokclient.types import TopicPartition

__all__ = ["EpochEnd", "FoundOffset", "LookupResult", "OffsetLookup"]

CONSUMER: Final = -1
FOR_CONSUMERS: Final = 3
"""Older versions of OffsetForLeaderEpoch need a permission that only brokers have."""
NO_END: Final = 2**63 - 1
A = TypeVar("A")
T = TypeVar("T")


class FoundOffset(NamedTuple):
    """An offset by time; -1 if no record is that young."""

    offset: int
    timestamp: int
    leader_epoch: int


class EpochEnd(NamedTuple):
    """Where a leader epoch ended: the largest epoch up to that asked for, and its end offset."""

    leader_epoch: int
    end_offset: int


class LookupResult(Generic[T]):
    """What one round brought."""

    __slots__ = ("failed", "found")

    def __init__(self) -> None:
        self.found: dict[TopicPartition, T] = {}
        self.failed: dict[TopicPartition, KafkaError] = {}

    def put(self, tp: TopicPartition, code: int, api: str, broker: int, value: T) -> None:
        """Takes note of one partition's answer."""
        error = error_for(code, api=api, broker=broker, topic_partition=tp)
        if error is None:
            self.found[tp] = value
        else:
            self.failed[tp] = error


class OffsetLookup:
    """The questions; each method is one round but for `until_found`."""

    def __init__(self, cluster: ClusterClient, config: ConsumerConfig) -> None:
        self._cluster = cluster
        self._committed_only = config.isolation_level == "read_committed"
        self._timeout_s = config.request_timeout_ms / 1000
        self._backoff = Backoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000)

    async def by_time(self, timestamps: Mapping[TopicPartition, int]) -> LookupResult[FoundOffset]:
        """Offsets by timestamp in ms, or -1 for the end of the log, -2 for its beginning.

        With `read_committed` the end is the last stable offset.
        """
        return await self._round(timestamps, self._list)

    async def by_epoch(self, epochs: Mapping[TopicPartition, int]) -> LookupResult[EpochEnd]:
        """Where leader epochs ended (KIP-320)."""
        return await self._round(epochs, self._epochs)

    async def until_found(
        self, timestamps: Mapping[TopicPartition, int], timeout: float
    ) -> dict[TopicPartition, FoundOffset]:
        """As `by_time`, in rounds until all are found, within `timeout` seconds.

        Raises ApiTimeoutError, whose cause is what was met last, and what is not to be retried.
        """
        found: dict[TopicPartition, FoundOffset] = {}
        last: KafkaError | None = None
        deadline = self._cluster.clock.monotonic() + timeout
        try:
            async with asyncio.timeout(None if timeout == math.inf else timeout):
                for attempt in range(1 << 62):
                    left = {tp: time for tp, time in timestamps.items() if tp not in found}
                    outcome = await self.by_time(left)
                    found.update(outcome.found)
                    if not outcome.failed:
                        return found
                    last = next(iter(outcome.failed.values()))
                    await self._before_next(outcome.failed, attempt, deadline)
        except TimeoutError as error:
            if isinstance(error, KafkaError):
                raise
            missing = next(tp for tp in timestamps if tp not in found)
            raise ApiTimeoutError(
                f"no offset within {timeout:.1f} s", api="ListOffsets", topic_partition=missing
            ) from last
        raise AssertionError("unreachable")

    async def _before_next(
        self, failed: Mapping[TopicPartition, KafkaError], attempt: int, deadline: float
    ) -> None:
        self._cluster.supervisor.check()
        clock = self._cluster.clock
        remaining = deadline - clock.monotonic()
        delay = 0.0
        for tp, error in failed.items():
            action = decide(error, Scope.LIST_OFFSETS, attempt, remaining, clock.rng, self._backoff)
            if action.decision is Decision.REFRESH_AND_RETRY:
                self._cluster.updater.request_update([tp.topic], reason=str(error))
            elif action.decision is not Decision.RETRY and remaining > 0:
                raise error
            delay = max(delay, action.delay_s)
        await asyncio.sleep(delay)

    # -- one round

    async def _round(
        self,
        questions: Mapping[TopicPartition, A],
        ask: Callable[[int, Mapping[TopicPartition, A], LookupResult[T]], Awaitable[None]],
    ) -> LookupResult[T]:
        outcome: LookupResult[T] = LookupResult()
        metadata = self._cluster.metadata
        brokers: dict[int, dict[TopicPartition, A]] = {}
        for tp, question in questions.items():
            leader = metadata.leader(*tp)
            if leader in metadata.brokers:
                brokers.setdefault(leader, {})[tp] = question
            else:
                outcome.failed[tp] = _without_leader(metadata, tp)
        async with anyio.create_task_group() as group:
            for node_id, part in brokers.items():
                group.start_soon(self._ask_one, node_id, part, ask, outcome)
        return outcome

    async def _ask_one(
        self,
        node_id: int,
        part: Mapping[TopicPartition, A],
        ask: Callable[[int, Mapping[TopicPartition, A], LookupResult[T]], Awaitable[None]],
        outcome: LookupResult[T],
    ) -> None:
        try:
            await ask(node_id, part, outcome)
        except KafkaError as error:
            outcome.failed.update((tp, error) for tp in part if tp not in outcome.found)
        for tp in part:
            if tp not in outcome.found and tp not in outcome.failed:
                outcome.failed[tp] = ProtocolError(
                    "the answer leaves the partition out", broker=node_id, topic_partition=tp
                )

    async def _list(
        self,
        node_id: int,
        timestamps: Mapping[TopicPartition, int],
        outcome: LookupResult[FoundOffset],
    ) -> None:
        topics: dict[str, ListOffsetsTopic] = {}
        for tp, timestamp in timestamps.items():
            topic = topics.setdefault(tp.topic, ListOffsetsTopic(name=tp.topic))
            epoch = self._cluster.metadata.leader_epoch(*tp)
            topic.partitions.append(
                ListOffsetsPartition(
                    partition_index=tp.partition, current_leader_epoch=epoch, timestamp=timestamp
                )
            )
        request = ListOffsetsRequest(
            replica_id=CONSUMER,
            isolation_level=int(self._committed_only),
            topics=list(topics.values()),
            timeout_ms=int(self._timeout_s * 1000),
        )
        connection = await self._cluster.connect(node_id, Purpose.CONTROL)
        response = await connection.send(request, timeout_s=self._timeout_s)
        for answered in response.topics:
            for answer in answered.partitions:
                tp = TopicPartition(answered.name, answer.partition_index)
                if tp in timestamps:
                    found = FoundOffset(answer.offset, answer.timestamp, answer.leader_epoch)
                    outcome.put(tp, answer.error_code, "ListOffsets", node_id, found)

    async def _epochs(
        self, node_id: int, epochs: Mapping[TopicPartition, int], outcome: LookupResult[EpochEnd]
    ) -> None:
        topics: dict[str, OffsetForLeaderTopic] = {}
        for tp, epoch in epochs.items():
            topic = topics.setdefault(tp.topic, OffsetForLeaderTopic(topic=tp.topic))
            current = self._cluster.metadata.leader_epoch(*tp)
            topic.partitions.append(
                OffsetForLeaderPartition(
                    partition=tp.partition, current_leader_epoch=current, leader_epoch=epoch
                )
            )
        request = OffsetForLeaderEpochRequest(replica_id=CONSUMER, topics=list(topics.values()))
        connection = await self._cluster.connect(node_id, Purpose.CONTROL)
        offered = connection.api_versions.get(OffsetForLeaderEpochRequest.api_key)
        if offered is None or offered[1] < FOR_CONSUMERS:
            outcome.found.update((tp, EpochEnd(epoch, NO_END)) for tp, epoch in epochs.items())
            return
        response = await connection.send(request, timeout_s=self._timeout_s)
        for answered in response.topics:
            for answer in answered.partitions:
                tp = TopicPartition(answered.topic, answer.partition)
                if tp in epochs:
                    end = EpochEnd(answer.leader_epoch, answer.end_offset)
                    outcome.put(tp, answer.error_code, "OffsetForLeaderEpoch", node_id, end)


def _without_leader(metadata: ClusterMetadata, tp: TopicPartition) -> KafkaError:
    """What the metadata says of a partition that nobody leads."""
    info = metadata.topic(tp.topic)
    refusal = error_for(0 if info is None else info.error, api="Metadata", topic_partition=tp)
    if refusal is not None:
        return refusal
    if info is not None and tp.partition >= len(info.partitions):
        return UnknownTopicOrPartitionError(
            f"{tp.topic} has {len(info.partitions)} partitions", api="Metadata", topic_partition=tp
        )
    return LeaderNotAvailableError(topic_partition=tp)
