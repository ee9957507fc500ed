"""The calls of a consumer that look up offsets, and what is known of the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from aiokclient.cluster.lifecycle import Lifecycle
from aiokclient.cluster.listing import by_name
from aiokclient.cluster.metadata import PartitionInfo, partitions_in
from aiokclient.cluster.targets import AnyBroker
from aiokclient.cluster.tracebacks import lets_go
from aiokclient.cluster.updater import partitions_of
from aiokclient.consumer.arguments import as_numbers, as_partition, as_partitions, as_topics
from aiokclient.consumer.state.offset_reset import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from aiokclient.errors import ApiTimeoutError
from aiokclient.protocol.messages.metadata import MetadataRequest
from aiokclient.types import OffsetAndTimestamp, State, TopicPartition

if TYPE_CHECKING:
    from aiokclient.consumer.engine import Engine
    from aiokclient.consumer.state.subscription import SubscriptionState

__all__ = ["LookupCalls"]


class LookupCalls(Lifecycle):
    """A part of `Consumer`."""

    _subscription: SubscriptionState
    _engine: Engine | None

    @property
    def _running(self) -> Engine:
        self._check()
        assert self._engine is not None
        return self._engine

    @lets_go
    async def position(self, tp: TopicPartition, timeout: float | None = None) -> int:
        """Return the offset of the next record to be delivered; look it up if it is not known.

        `timeout` in seconds (`default_api_timeout_ms`), after which ApiTimeoutError is raised;
        ClosedError, or what failed the consumer, if that is its end. May be cancelled.
        """
        engine, timeout, tp = self._running, self._seconds(timeout), as_partition(tp)
        until = self._cluster.clock.monotonic() + timeout
        if not await engine.located(tp, until):
            trouble = self._subscription[tp].trouble
            text = f"no position within {timeout:.1f} s"
            raise ApiTimeoutError(text, topic_partition=tp) from trouble
        self._subscription.settle()
        return self._subscription[tp].position

    @lets_go
    async def beginning_offsets(
        self, tps: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset of the first record of each partition.

        `timeout` in seconds (`default_api_timeout_ms`), after which ApiTimeoutError is raised; the
        partitions need not be assigned.
        """
        return await self._find(tps, EARLIEST_TIMESTAMP, timeout)

    @lets_go
    async def end_offsets(
        self, tps: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition; as `beginning_offsets`.

        With `isolation_level="read_committed"` that before the first open transaction.
        """
        return await self._find(tps, LATEST_TIMESTAMP, timeout)

    async def _find(
        self, tps: Iterable[TopicPartition], timestamp: int, timeout: float | None
    ) -> dict[TopicPartition, int]:
        wanted = dict.fromkeys(as_partitions(tps), timestamp)
        found = await self._running.offsets.until_found(wanted, self._seconds(timeout))
        return {tp: found[tp].offset for tp in wanted}

    @lets_go
    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after a time in ms, for each partition; None if there is none.

        `timeout` as in `beginning_offsets`.
        """
        wanted = as_numbers(times, "a time in milliseconds since the epoch")
        found = await self._running.offsets.until_found(wanted, self._seconds(timeout))
        answers: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        for tp in wanted:
            offset, timestamp, epoch = found[tp]
            known = epoch if epoch >= 0 else None
            answers[tp] = OffsetAndTimestamp(offset, timestamp, known) if offset >= 0 else None
        return answers

    @lets_go
    async def lag(
        self, tps: Iterable[TopicPartition] | None = None, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the number of offsets from position to end, by default of all assigned partitions.

        `timeout` as in `beginning_offsets`.
        """
        chosen = [state.tp for state in self._subscription.chosen(tps)]
        ends = await self.end_offsets(chosen, timeout)
        return {tp: max(ends[tp] - await self.position(tp, timeout), 0) for tp in chosen}

    async def _ends(self) -> dict[TopicPartition, int]:
        timeout = self._seconds(None)
        if not await self._running.knows_its_part(self._cluster.clock.monotonic() + timeout):
            raise ApiTimeoutError(f"the group has given no partitions within {timeout:.1f} s")
        return await self.end_offsets(list(self._subscription.partitions))

    @lets_go
    def highwater(self, tp: TopicPartition) -> int | None:
        """Return the end offset of a partition as of its last fetch, or None if unknown.

        Synchronous. This is the high watermark, whatever `isolation_level` is.
        """
        self._check_known()
        state = self._subscription.partitions.get(as_partition(tp))
        end = -1 if state is None else state.fetch.high_watermark
        return None if end < 0 else end

    @lets_go
    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partition numbers of a topic in the known metadata, or None if unknown.

        Synchronous. Known are the topics that this client uses; `partitions_for` asks a broker.
        """
        self._check_known()
        (name,) = as_topics([topic])
        info = None if self._engine is None else self._engine.cluster.metadata.topic(name)
        if info is None or not info.partitions:
            return None
        return {partition.index for partition in info.partitions}

    def _check_known(self) -> None:
        """Raise unless a synchronous call that reads known data is allowed now."""
        if self._state not in (State.NEW, State.STARTING):
            self._check()

    @lets_go
    async def partitions_for(
        self, topic: str, timeout: float | None = None
    ) -> tuple[PartitionInfo, ...]:
        """The partitions of a topic with their leaders and replicas, read anew.

        `timeout` in seconds (`default_api_timeout_ms`). Raises UnknownTopicOrPartitionError,
        ApiTimeoutError, and ClosedError when the client is closed meanwhile. May be cancelled.
        """
        (name,) = as_topics([topic])
        updater = self._running.cluster.updater
        return await partitions_of(updater, name, self._seconds(timeout))

    @lets_go
    async def list_topics(
        self, timeout: float | None = None
    ) -> dict[str, tuple[PartitionInfo, ...]]:
        """Return the partitions of all topics that this client may see, by topic.

        `timeout` is in seconds (`default_api_timeout_ms`); ApiTimeoutError is raised after it.
        """
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        answer = await self._running.cluster.request(request, AnyBroker(), timeout=timeout)
        return await by_name(
            answer.topics, lambda topic: None if topic.error_code else partitions_in(topic)
        )
