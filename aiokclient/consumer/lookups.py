"""The lookups of a started consumer: positions, offsets, and topics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from aiokclient.cluster.client import ClusterClient
from aiokclient.cluster.metadata.listing import by_name
from aiokclient.cluster.metadata.snapshot import PartitionInfo, differ, partitions_in
from aiokclient.cluster.metadata.updater import partitions_of
from aiokclient.cluster.targets import AnyBroker
from aiokclient.consumer.fetching.list_offsets import MissingPartitions, OffsetLookup
from aiokclient.consumer.ranges.log_bounds import LOOK_S, LOOKS
from aiokclient.consumer.state.offset_reset import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from aiokclient.consumer.state.partition import PartitionState
from aiokclient.consumer.state.subscription import SubscriptionState
from aiokclient.errors import ApiTimeoutError
from aiokclient.protocol.messages.metadata import MetadataRequest
from aiokclient.types import OffsetAndTimestamp, TopicPartition

__all__ = ["Lookups"]


class Lookups:
    """The lookup calls of a consumer. `Consumer` documents them. Timeouts are in seconds.

    `located(tp, until)` waits for the position of a partition, and returns whether it is known.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        subscription: SubscriptionState,
        offsets: OffsetLookup,
        located: Callable[[TopicPartition, float], Awaitable[bool]],
    ) -> None:
        self._cluster = cluster
        self._subscription = subscription
        self._offsets = offsets
        self._located = located

    async def position(self, tp: TopicPartition, timeout: float) -> int:
        """Return the offset of the next record to be delivered."""
        now = self._cluster.clock.monotonic
        until, missing = now() + timeout, MissingPartitions(self._cluster)
        while not await self._located(tp, min(until, now() + LOOK_S)):
            if missing.is_missing(tp):
                raise missing.error(tp)
            if now() < until:
                continue
            trouble = self._subscription[tp].retry.last.error
            text = f"The position was not found within {timeout:.1f} s."
            raise ApiTimeoutError(text, topic_partition=tp) from trouble
        self._subscription.settle()
        return self._subscription[tp].position

    async def beginning_offsets(
        self, tps: Sequence[TopicPartition], timeout: float
    ) -> dict[TopicPartition, int]:
        """Return the offset of the first record of each partition."""
        return await self._find(tps, EARLIEST_TIMESTAMP, timeout)

    async def end_offsets(
        self, tps: Sequence[TopicPartition], timeout: float
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition."""
        return await self._find(tps, LATEST_TIMESTAMP, timeout)

    async def final_offsets(self, timeout: float) -> dict[TopicPartition, int]:
        """Return the end offset of each assigned partition.

        If one is lower than the consumer's position, or than the end that a fetch has returned, its
        broker may lag, so it is asked again.
        """
        partitions = self._subscription.partitions
        found = await self.end_offsets(list(partitions), timeout)
        for _ in range(LOOKS - 1):
            self._subscription.settle()
            partitions = self._subscription.partitions
            low = [
                tp
                for tp, end in found.items()
                if (state := partitions.get(tp)) is not None
                and state.located
                and end < max(state.position, self._fetched_end(state))
            ]
            if not low:
                break
            await asyncio.sleep(LOOK_S)
            found |= await self.end_offsets(low, timeout)
        return found

    def _fetched_end(self, state: PartitionState) -> int:
        """Return the end of a partition as of its last fetch, or -1 if that is not known."""
        fetch = state.fetch
        return fetch.last_stable if self._offsets.committed_only else fetch.high_watermark

    async def lag(self, tps: Sequence[TopicPartition], timeout: float) -> dict[TopicPartition, int]:
        """Return the number of offsets from the position to the end of each partition."""
        clock = self._cluster.clock
        until = clock.monotonic() + timeout
        while True:
            cluster_id = self._cluster.metadata.cluster_id
            ends = await self.end_offsets(tps, max(until - clock.monotonic(), 0.0))
            found = {tp: await self.position(tp, max(until - clock.monotonic(), 0.0)) for tp in tps}
            if not differ(cluster_id, self._cluster.metadata.cluster_id):
                return {tp: max(ends[tp] - position, 0) for tp, position in found.items()}

    async def _find(
        self, tps: Sequence[TopicPartition], timestamp: int, timeout: float
    ) -> dict[TopicPartition, int]:
        wanted = dict.fromkeys(tps, timestamp)
        found = await self._offsets.until_found(wanted, timeout)
        return {tp: found[tp].offset for tp in wanted}

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int], timeout: float
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return for each partition the first offset whose record is at or after a time in ms.

        The value is None if there is no such record.
        """
        found = await self._offsets.until_found(times, timeout)
        answers: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        for tp in times:
            offset, timestamp, epoch = found[tp]
            known = epoch if epoch >= 0 else None
            answers[tp] = OffsetAndTimestamp(offset, timestamp, known) if offset >= 0 else None
        return answers

    async def partitions_for(self, topic: str, timeout: float) -> tuple[PartitionInfo, ...]:
        """Request and return the partitions of a topic."""
        return await partitions_of(self._cluster.updater, topic, timeout)

    async def list_topics(self, timeout: float | None) -> dict[str, tuple[PartitionInfo, ...]]:
        """Return the partitions of all topics that this client may see, by topic."""
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        answer = await self._cluster.request(request, AnyBroker(), timeout=timeout)
        return await by_name(
            answer.topics, lambda topic: None if topic.error_code else partitions_in(topic)
        )
