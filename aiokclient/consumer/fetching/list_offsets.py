"""The lookup of offsets by time (ListOffsets) and by leader epoch (OffsetForLeaderEpoch).

One round sends one request to every leader, concurrently, and returns the found offsets and the
errors. The caller handles the errors by the policy. `log_bounds` looks up where one log begins and
ends, without a consumer.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias, TypeVar

from aiokclient.cluster.client import ClusterClient
from aiokclient.cluster.metadata.snapshot import ClusterMetadata, differ
from aiokclient.cluster.requests.per_item import (
    ItemResults,
    ask_in_parallel,
    ask_within,
    group_by_leader,
)
from aiokclient.cluster.targets import Leader
from aiokclient.config.consumer import ConsumerConfig
from aiokclient.consumer.state.offset_reset import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from aiokclient.errors import (
    KafkaError,
    LeaderNotAvailableError,
    ProtocolError,
    RefreshRetriableError,
    UnknownTopicOrPartitionError,
    error_for,
)
from aiokclient.network.pool import Purpose
from aiokclient.policy import Attempts, Backoff, Scope
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
from aiokclient.types.named_tuple import NamedTuple

CONSUMER: Final = -1
FOR_CONSUMERS: Final = 3
"""The first version of OffsetForLeaderEpoch that clients may use.

Older versions need a permission that only brokers have."""
NO_END: Final = 2**63 - 1
LOOKS: Final = 3
"""The number of metadata responses without a partition after which it does not exist."""
MISSING_S: Final = 2.0
"""The shortest time, in seconds, within which these responses must arrive."""
A = TypeVar("A")
T = TypeVar("T")

LookupResult: TypeAlias = ItemResults[TopicPartition, T]
"""The results and errors of one round of requests, by partition."""


class FoundOffset(NamedTuple):
    """The offset that was found for a time; -1 if no record is that recent."""

    offset: int
    timestamp: int
    leader_epoch: int


class EpochEnd(NamedTuple):
    """The largest leader epoch that is not above the requested one, and its end offset."""

    leader_epoch: int
    end_offset: int


class MissingPartitions:
    """The partitions that the metadata lacks, in one call of the application.

    A new topic or partition may be unknown to some brokers for a moment. So a partition is missing
    if `LOOKS` metadata responses within at least `MISSING_S` have said so.
    """

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster
        self._looks: dict[TopicPartition, tuple[float, int, float]] = {}
        """The time of the first look, the number of looks, and the time of the last response."""

    def is_missing(self, tp: TopicPartition) -> bool:
        """Return whether the partition does not exist; request new metadata if it may not exist."""
        updater, now = self._cluster.updater, self._cluster.clock.monotonic()
        if not self._cluster.metadata.lacks_partition(*tp):
            self._looks.pop(tp, None)
            return False
        updater.request_update([tp.topic])
        read_at = now - updater.age
        since, count, last = self._looks.get(tp, (now, 0, -math.inf))
        if read_at > last:
            count, last = count + 1, read_at
        self._looks[tp] = since, count, last
        return count >= LOOKS and now - since >= MISSING_S

    def make_error(self, tp: TopicPartition) -> KafkaError:
        """Return the error for a missing partition."""
        return _without_leader(self._cluster.metadata, tp)


class OffsetLookup:
    """The lookups of a consumer.

    `ask_by_time` and `ask_by_epoch` send one round of requests each.
    """

    def __init__(self, cluster: ClusterClient, config: ConsumerConfig) -> None:
        self._cluster = cluster
        self.committed_only = config.isolation_level == "read_committed"
        """Whether the end of a log is its last stable offset."""
        self._timeout_s = config.request_timeout_ms / 1000
        self._backoff = Backoff.of(config)

    async def ask_by_time(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> LookupResult[FoundOffset]:
        """Look up offsets by timestamp in ms, -1 for the end of the log, or -2 for its beginning.

        With `read_committed` the end is the last stable offset.
        """
        return await self._ask_leaders(timestamps, self._list_offsets)

    async def ask_by_epoch(self, epochs: Mapping[TopicPartition, int]) -> LookupResult[EpochEnd]:
        """Look up the end offsets of leader epochs (KIP-320)."""
        return await self._ask_leaders(epochs, self._list_epoch_ends)

    async def ask_until_found(
        self, timestamps: Mapping[TopicPartition, int], timeout: float
    ) -> dict[TopicPartition, FoundOffset]:
        """Repeat `ask_by_time` until one cluster has returned all offsets, for at most `timeout` s.

        Raises UnknownTopicOrPartitionError for a partition that does not exist, ApiTimeoutError,
        whose cause is the last error, and errors that are not retriable.
        """
        clock = self._cluster.clock
        until = clock.monotonic() + timeout
        while True:
            cluster_id = self._cluster.metadata.cluster_id
            found = await self._ask_in_one_cluster(timestamps, until)
            if not differ(cluster_id, self._cluster.metadata.cluster_id):
                return found

    async def _ask_in_one_cluster(
        self, timestamps: Mapping[TopicPartition, int], until: float
    ) -> dict[TopicPartition, FoundOffset]:
        found: dict[TopicPartition, FoundOffset] = {}
        missing = MissingPartitions(self._cluster)

        def refresh(tp: TopicPartition, error: KafkaError) -> bool:
            self._cluster.updater.request_update([tp.topic])
            return not missing.is_missing(tp)

        async def ask(left: list[TopicPartition]) -> Mapping[TopicPartition, KafkaError]:
            results = await self.ask_by_time({tp: timestamps[tp] for tp in left})
            found.update(results.found_values)
            return results.errors

        clock = self._cluster.clock
        await ask_within(
            max(until - clock.monotonic(), 0.0),
            timestamps,
            ask,
            Attempts(until, self._backoff, clock),
            Scope.LIST_OFFSETS,
            refresh=refresh,
            check=self._cluster.supervisor.raise_failure,
            api="ListOffsets",
            needed="offset",
            refusals=self._cluster.refusals,
        )
        return found

    # -- one round

    async def _ask_leaders(
        self,
        questions: Mapping[TopicPartition, A],
        ask: Callable[[int, Mapping[TopicPartition, A], LookupResult[T]], Awaitable[None]],
    ) -> LookupResult[T]:
        results: LookupResult[T] = ItemResults()
        metadata = self._cluster.metadata
        leaders = group_by_leader(metadata, questions)
        for leader in [leader for leader in leaders if leader not in metadata.brokers]:
            for tp in leaders.pop(leader):
                results.fail_item(
                    tp, _without_leader(metadata, tp, self._cluster.find_last_error())
                )

        async def ask_one(node_id: int, part: Mapping[TopicPartition, A]) -> None:
            await ask(node_id, part, results)
            results.fail_missing(part, lambda tp: _left_out(node_id, tp))

        def failed(part: Mapping[TopicPartition, A], error: KafkaError) -> None:
            results.fail_missing(part, lambda tp: error)

        await ask_in_parallel(leaders, ask_one, failed)
        return results

    async def _list_offsets(
        self,
        node_id: int,
        timestamps: Mapping[TopicPartition, int],
        results: LookupResult[FoundOffset],
    ) -> None:
        topics: dict[str, ListOffsetsTopic] = {}
        for tp, timestamp in timestamps.items():
            topic = topics.setdefault(tp.topic, ListOffsetsTopic(name=tp.topic))
            epoch = self._cluster.metadata.find_leader_epoch(*tp)
            topic.partitions.append(
                ListOffsetsPartition(
                    partition_index=tp.partition, current_leader_epoch=epoch, timestamp=timestamp
                )
            )
        request = ListOffsetsRequest(
            replica_id=CONSUMER,
            isolation_level=int(self.committed_only),
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
                    results.put_partition(tp, answer.error_code, "ListOffsets", node_id, found)

    async def _list_epoch_ends(
        self,
        node_id: int,
        epochs: Mapping[TopicPartition, int],
        results: LookupResult[EpochEnd],
    ) -> None:
        topics: dict[str, OffsetForLeaderTopic] = {}
        for tp, epoch in epochs.items():
            topic = topics.setdefault(tp.topic, OffsetForLeaderTopic(topic=tp.topic))
            current = self._cluster.metadata.find_leader_epoch(*tp)
            topic.partitions.append(
                OffsetForLeaderPartition(
                    partition=tp.partition, current_leader_epoch=current, leader_epoch=epoch
                )
            )
        request = OffsetForLeaderEpochRequest(replica_id=CONSUMER, topics=list(topics.values()))
        connection = await self._cluster.connect(node_id, Purpose.CONTROL)
        offered = connection.broker.api_versions.get(OffsetForLeaderEpochRequest.api_key)
        if offered is None or offered[1] < FOR_CONSUMERS:
            for tp, epoch in epochs.items():
                results.put_item(tp, None, EpochEnd(epoch, NO_END))
            return
        response = await connection.send(request, timeout_s=self._timeout_s)
        for answered in response.topics:
            for answer in answered.partitions:
                tp = TopicPartition(answered.topic, answer.partition)
                if tp in epochs:
                    end = EpochEnd(answer.leader_epoch, answer.end_offset)
                    results.put_partition(
                        tp, answer.error_code, "OffsetForLeaderEpoch", node_id, end
                    )


def _left_out(node_id: int, tp: TopicPartition) -> KafkaError:
    text = "The response does not contain the partition."
    return ProtocolError(text, broker=node_id, topic_partition=tp)


def _without_leader(
    metadata: ClusterMetadata, tp: TopicPartition, trouble: KafkaError | None = None
) -> KafkaError:
    """Return the error for a partition without a leader, according to the metadata.

    `trouble` is the last error of requesting metadata.
    """
    info = metadata.find_topic(tp.topic)
    refusal = error_for(0 if info is None else info.error, api="Metadata", topic_partition=tp)
    if refusal is not None:
        return refusal
    if info is not None and tp.partition >= len(info.partitions):
        return UnknownTopicOrPartitionError(
            f"{tp.topic} has {len(info.partitions)} partitions", api="Metadata", topic_partition=tp
        )
    if info is None:
        # No broker has answered this, so it must not look like a refusal.
        text = "No broker has described the topic yet."
        if trouble is not None:
            text = f"{text} The last error: {trouble.brief}"
        unknown = RefreshRetriableError(text, api="Metadata", topic_partition=tp)
        unknown.__cause__ = trouble
        return unknown
    return LeaderNotAvailableError(api="Metadata", topic_partition=tp)


LOW_END_LOOKS = 3
"""The number of times that a log is found to end before an offset, before that counts as true."""
LOW_END_LOOK_S = 1.0
"""Seconds between two such looks."""


async def log_bounds(cluster: ClusterClient, tp: TopicPartition, timeout: float) -> tuple[int, int]:
    """Return the log start offset and the high watermark of a partition, from its leader.

    `timeout` is in seconds. Raises the errors of `ClusterClient.request`.
    """
    until = cluster.clock.monotonic() + timeout
    start = await _offset(cluster, tp, EARLIEST_TIMESTAMP, timeout)
    left = max(until - cluster.clock.monotonic(), 0.0)
    return start, await _offset(cluster, tp, LATEST_TIMESTAMP, left)


async def _offset(
    cluster: ClusterClient, tp: TopicPartition, timestamp: int, timeout: float
) -> int:
    partition = ListOffsetsPartition(partition_index=tp.partition, timestamp=timestamp)
    topic = ListOffsetsTopic(name=tp.topic, partitions=[partition])
    request = ListOffsetsRequest(replica_id=-1, topics=[topic])
    response = await cluster.request(
        request,
        Leader(*tp),
        timeout=timeout,
        scope=Scope.LIST_OFFSETS,
        check=lambda response: _refusal(response, tp),
    )
    offset: int = response.topics[0].partitions[0].offset
    return offset


def _refusal(response: Any, tp: TopicPartition) -> KafkaError | None:
    found = [part for topic in response.topics for part in topic.partitions]
    if not found:
        text = "The response does not contain the partition."
        return ProtocolError(text, api="ListOffsets", topic_partition=tp)
    return error_for(found[0].error_code, api="ListOffsets", topic_partition=tp)
