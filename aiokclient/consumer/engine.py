"""The background parts of one started consumer, and the calls that wait for their results.

`Lookups` has the calls that look up positions, offsets, and topics. `PositionWaits` has those that
wait for partitions and positions, which background tasks find.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aiokclient.background import Wakeup
from aiokclient.cluster.client import ClusterClient
from aiokclient.cluster.lifecycle.ownership import Anchor, for_background
from aiokclient.cluster.lifecycle.supervisor import Supervisor
from aiokclient.cluster.metadata.listing import by_name
from aiokclient.cluster.metadata.snapshot import (
    ClusterMetadata,
    PartitionInfo,
    differ,
    partitions_in,
)
from aiokclient.cluster.targets import AnyBroker
from aiokclient.config.consumer import ConsumerConfig
from aiokclient.consumer.delivery.in_progress import InProgress
from aiokclient.consumer.delivery.preparation import Preparations
from aiokclient.consumer.delivery.read_lock import ReadLock
from aiokclient.consumer.delivery.reader import Reader
from aiokclient.consumer.delivery.stall_watch import StallWatch
from aiokclient.consumer.delivery.unpack import Unpacker
from aiokclient.consumer.fetching.buffer import FetchBuffer
from aiokclient.consumer.fetching.list_offsets import (
    LOW_END_LOOK_S,
    LOW_END_LOOKS,
    MissingPartitions,
    OffsetLookup,
)
from aiokclient.consumer.fetching.manager import FetchManager
from aiokclient.consumer.fetching.position_resolver import PositionResolver
from aiokclient.consumer.membership.coordinator import ConsumerCoordinator
from aiokclient.consumer.membership.listener import ListenerCalls
from aiokclient.consumer.meters import ConsumerGauges
from aiokclient.consumer.state.offset_reset import LATEST_TIMESTAMP
from aiokclient.consumer.state.partition import PartitionState, Phase, Withheld
from aiokclient.consumer.state.subscription import PartitionSource, Reports, SubscriptionState
from aiokclient.consumer.topics import TopicFollower
from aiokclient.decoding.deserialize import Deserializers
from aiokclient.errors import ApiTimeoutError, ClosedError
from aiokclient.metrics import Labels, OwnMetrics
from aiokclient.network.event_hub import EventSource
from aiokclient.protocol.messages.metadata import MetadataRequest
from aiokclient.types import OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from aiokclient.consumer.consumer import Consumer
    from aiokclient.consumer.transactional import TransactionalReads

SETTLE_S = 3.0
"""Longest time, in seconds, that a start waits until brokers have returned all positions."""

SEARCHING = (Phase.AWAITING, Phase.RESETTING)


class PositionWaits:
    """The calls of one consumer that wait for partitions or positions.

    Times are on the loop's clock.
    """

    def __init__(self, engine: ConsumerEngine) -> None:
        self._engine = engine
        self._subscription = engine.subscription
        self._source = engine.source
        self._reports = engine.reports
        self._over: ClosedError | None = None
        self._moved = Wakeup()
        # This is at most half of `default_api_timeout_ms`, so that a start does not time out.
        self._settle_s = min(SETTLE_S, engine.config.default_api_timeout_ms / 2000)

    def _has_failed(self) -> bool:
        return self._engine.get_failure() is not None

    def wake_waiting(self) -> None:
        """Wake the waiting calls after a change of partitions or positions, or after a failure.

        Synchronous.
        """
        self._moved.set()

    def fail_waits(self, error: ClosedError) -> None:
        """Raise this error in the calls that still wait for a position. Synchronous."""
        self._over = error
        self._moved.set()

    async def wait_until_located(self, tp: TopicPartition, until: float = math.inf) -> bool:
        """Wait for a position; return False if `until` passes first.

        Raises the error of the consumer or partition if the position will never be known.
        """
        while not self._subscription[tp].is_located:
            if (ended := self._over or self._engine.get_failure(raised=True)) is not None:
                raise ended.with_traceback(None)
            state = self._subscription[tp]
            if state.error is not None:
                raise state.error.with_traceback(None)
            if not await self._moved.wait(until):
                return False
        return True

    async def wait_until_offsets_are_found(
        self, states: Sequence[PartitionState], until: float
    ) -> None:
        """Wait until the committed offsets of these partitions are found, at most until `until`.

        Return early if the consumer ends. Do not wait for partitions that are no longer owned.
        """
        partitions = self._subscription.partitions
        while any(
            state.phase is Phase.AWAITING and partitions.get(state.tp) is state for state in states
        ):
            if self._over or self._has_failed() or not await self._moved.wait(until):
                return

    async def wait_until_partitions_known(self, until: float) -> bool:
        """Wait until the subscribed partitions are known; return False if `until` passes first."""
        while not (
            self._has_failed() or self._reports.errors or self._source.knows_its_partitions()
        ):
            if not await self._moved.wait(until):
                return False
        return True

    async def wait_until_followed(self, follower: TopicFollower) -> None:
        """Wait until the subscribed topics were looked up once."""
        while self._subscription.subscription and not (
            follower.up_to_date or self._engine.get_failure()
        ):
            await follower.assigned.wait()

    async def wait_until_settled(self, group: ConsumerCoordinator | None) -> None:
        """Wait, for a few seconds at most, until no further position is likely to be found soon."""
        until = asyncio.get_running_loop().time() + self._settle_s
        while not (
            self._has_settled(group) or self._engine.get_failure()
        ) and await self._moved.wait(until):
            pass

    def _has_settled(self, group: ConsumerCoordinator | None) -> bool:
        if self._reports.errors:
            return True
        if group is not None and not group.owns_assignment():
            return False
        states = self._subscription.partitions.values()
        return all(
            state.phase not in SEARCHING and not state.withheld & Withheld.INITIAL_OFFSET
            for state in states
        )


class Lookups:
    """The lookup calls of a consumer. `Consumer` documents them. Timeouts are in seconds."""

    def __init__(self, engine: ConsumerEngine) -> None:
        self._engine = engine
        self._cluster = engine.cluster
        self._positions = engine.positions
        self._subscription = engine.subscription
        self._offsets = engine.offsets
        self._timeout_s = engine.config.default_api_timeout_ms / 1000

    async def find_position(self, tp: TopicPartition, timeout: float) -> int:
        """Return the offset of the next record to be delivered."""
        now = self._cluster.clock.monotonic
        until, missing = now() + timeout, MissingPartitions(self._cluster)
        while not await self._positions.wait_until_located(tp, min(until, now() + LOW_END_LOOK_S)):
            if missing.is_missing(tp):
                raise missing.make_error(tp)
            if now() < until:
                continue
            trouble = self._subscription[tp].retry.last.error
            text = f"The position was not found within {timeout:.1f} s."
            raise ApiTimeoutError(text, topic_partition=tp) from trouble
        self._subscription.update_positions()
        return self._subscription[tp].position

    async def find_final_offsets(self) -> dict[TopicPartition, int]:
        """Wait until the partitions are known; return the end offset of each.

        Raises ApiTimeoutError if that takes more than `default_api_timeout_ms`.
        """
        timeout, positions = self._timeout_s, self._positions
        if not await positions.wait_until_partitions_known(
            self._cluster.clock.monotonic() + timeout
        ):
            group = self._engine.group
            source = "topics have" if group is None else "group assigned"
            reasons = "" if group is None else "; ".join(group.list_troubles())
            text = f"The {source} no partitions within {timeout:.1f} s"
            text = f"{text} ({reasons})." if reasons else f"{text}."
            raise ApiTimeoutError(text) from self._engine.source.find_cause()
        failure = self._engine.get_failure(raised=True)
        if failure is not None:
            raise failure
        return await self._find_end_offsets(timeout)

    async def _find_end_offsets(self, timeout: float) -> dict[TopicPartition, int]:
        """Return the end offset of each assigned partition.

        If one is lower than the consumer's position, or than the end that a fetch has returned, its
        broker may lag, so it is asked again.
        """
        partitions = self._subscription.partitions
        found = await self.find_offsets(list(partitions), LATEST_TIMESTAMP, timeout)
        for _ in range(LOW_END_LOOKS - 1):
            self._subscription.update_positions()
            partitions = self._subscription.partitions
            low = [
                tp
                for tp, end in found.items()
                if (state := partitions.get(tp)) is not None
                and state.is_located
                and end < max(state.position, self._find_fetched_end(state))
            ]
            if not low:
                break
            await asyncio.sleep(LOW_END_LOOK_S)
            found |= await self.find_offsets(low, LATEST_TIMESTAMP, timeout)
        return found

    def _find_fetched_end(self, state: PartitionState) -> int:
        """Return the end of a partition as of its last fetch, or -1 if that is not known."""
        fetch = state.fetch
        return fetch.last_stable if self._offsets.committed_only else fetch.high_watermark

    async def find_lag(
        self, tps: Sequence[TopicPartition], timeout: float
    ) -> dict[TopicPartition, int]:
        """Return the number of offsets from the position to the end of each partition."""
        clock = self._cluster.clock
        until = clock.monotonic() + timeout
        while True:
            cluster_id = self._cluster.metadata.cluster_id
            left = max(until - clock.monotonic(), 0.0)
            ends = await self.find_offsets(tps, LATEST_TIMESTAMP, left)
            found = {
                tp: await self.find_position(tp, max(until - clock.monotonic(), 0.0)) for tp in tps
            }
            if not differ(cluster_id, self._cluster.metadata.cluster_id):
                return {tp: max(ends[tp] - position, 0) for tp, position in found.items()}

    async def find_offsets(
        self, tps: Sequence[TopicPartition], timestamp: int, timeout: float
    ) -> dict[TopicPartition, int]:
        """Return the offset at a time in ms, -1 for the end, -2 for the beginning."""
        wanted = dict.fromkeys(tps, timestamp)
        found = await self._offsets.ask_until_found(wanted, timeout)
        return {tp: found[tp].offset for tp in wanted}

    async def find_offsets_for_times(
        self, times: Mapping[TopicPartition, int], timeout: float
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return for each partition the first offset whose record is at or after a time in ms.

        The value is None if there is no such record.
        """
        found = await self._offsets.ask_until_found(times, timeout)
        answers: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        for tp in times:
            offset, timestamp, epoch = found[tp]
            known = epoch if epoch >= 0 else None
            answers[tp] = OffsetAndTimestamp(offset, timestamp, known) if offset >= 0 else None
        return answers

    async def list_topics(self, timeout: float | None) -> dict[str, tuple[PartitionInfo, ...]]:
        """Return the partitions of all topics that this client may see, by topic."""
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        answer = await self._cluster.request(request, AnyBroker(), timeout=timeout)
        return await by_name(
            answer.topics, lambda topic: None if topic.error_code else partitions_in(topic)
        )


TROUBLES = 20
"""The largest number of problems that `list_troubles()` lists. Further ones are only counted."""

FAREWELL_S = 0.5
"""The longest time, in seconds, for which `stop` waits for brokers to end the fetch sessions."""


def _none() -> None:
    return None


class ConsumerEngine:
    """The parts of a consumer that exist from its start to its end.

    Only the subscription exists before the start and after the end.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        deserializers: Deserializers,
        supervisor: Supervisor,
        owner: Anchor[Consumer[Any, Any]],
        events: EventSource,
    ) -> None:
        self.config = config = for_background(config)
        self._owner = owner
        self.events = events
        self.cluster = cluster
        self.subscription = subscription
        self.supervisor = supervisor
        self.log = cluster.make_log("consumer", config.group_id)
        membership = "assigned" if config.group_id is None else config.group_protocol
        own_metrics = OwnMetrics(cluster.metrics, "consumer", membership, owner=self)
        own_metrics.add_updater(subscription.update_positions)
        subscription.set_metrics(own_metrics, self.log, cluster.clock)
        self.arrived = Wakeup()
        """A flag that is set when there may be new records for the reader."""
        self.buffer = FetchBuffer(config.fetch_max_bytes)
        self.reports = Reports(self.arrived, subscription)
        self.listener_calls = ListenerCalls()
        self.in_progress = InProgress()
        self.read_lock = ReadLock(self.listener_calls)
        if config.group_id is not None and not config.enable_auto_commit:
            self.read_lock.observe_transactions()
        self.find_last_reads: Callable[[], TransactionalReads | None] = _none
        """Return the reads in the transaction to which this consumer was added last, or None."""
        self.offsets = OffsetLookup(cluster, config)
        self.fetchers = FetchManager(self)
        self._position_resolver = PositionResolver(self)
        self.group: ConsumerCoordinator | None = None
        self._follower: TopicFollower | None = None
        self.source = self._make_source()
        self.positions = PositionWaits(self)
        self.lookups = Lookups(self)
        self._stalls = StallWatch(self)
        callbacks = supervisor.callbacks
        self.preparations = Preparations(self, Anchor(deserializers))
        unpacker = Unpacker(
            self.buffer,
            deserializers,
            self.arrived,
            callbacks,
            config,
            self.preparations if deserializers.can_wait else None,
        )
        self.reader = Reader(self, unpacker, self._stalls)
        self._wanted_topics: dict[str, None] = {}
        self._unsubscribe: Callable[[], None] = lambda: None
        self._gauges = ConsumerGauges(self)
        cluster.metrics.add_owner(own_metrics)

    @property
    def metric_attributes(self) -> Labels:
        """The attributes by which an operator recognizes this consumer."""
        config, group = self.config, self.group
        found = {
            "client_rack": config.client_rack,
            "group_id": config.group_id,
            "group_instance_id": config.group_instance_id,
            "group_member_id": None if group is None else group.membership.metadata.member_id,
        }
        return tuple((name, value) for name, value in found.items() if value)

    def _make_source(self) -> PartitionSource:
        """Make the object that determines the partitions of the subscription."""
        if self.config.group_id is None:
            self._follower = TopicFollower(self)
            return self._follower
        self.group = ConsumerCoordinator(self)
        return self.group

    async def start(self, wait: bool) -> None:
        """Start the background tasks; return when the partitions and their positions are known.

        Raises the error by which a group refuses this consumer. If no broker returns a position,
        because there is no leader or the leader does not respond, it waits only briefly for that
        position. Without `wait`, it returns immediately, and the error of the group is raised when
        the application reads.
        """
        subscription, callbacks = self.subscription, self.supervisor.callbacks
        for state in subscription.partitions.values():
            state.restart_fetching()  # A cancelled start may have changed the state.
        subscription.begin_reading(self.reader, self.source, callbacks)
        self._unsubscribe = self.cluster.updater.add_listener(
            callbacks.guard_function(self._on_metadata)
        )
        subscription.add_change_listener(self.positions.wake_waiting)
        subscription.add_change_listener(self._want_assigned_topics)
        self._want_assigned_topics()
        self.fetchers.start()
        self.supervisor.spawn(self._position_resolver.run, name="positions")
        if self._follower is not None:
            self.supervisor.spawn(self._follower.run, name="topics")
            if wait:
                await self.positions.wait_until_followed(self._follower)
        if self.group is not None:
            self.group.start()
        if not wait:
            return
        await self.positions.wait_until_settled(self.group)
        refusal = None if self.group is None else self.group.health.find_refusal()
        if refusal is not None:
            self.reports.clear()
            raise refusal

    def wake_all(self) -> None:
        """Wake all waiting tasks, because the consumer has failed. Synchronous."""
        self.reader.wake_request()
        self.positions.wake_waiting()
        if self._follower is not None:
            self._follower.assigned.set()
        if self.group is not None:
            self.group.commits.wake_commits()

    def get_failure(self, *, raised: bool = False) -> BaseException | None:
        """Return the error with which the consumer has failed, or None if it has not failed.

        `raised` means that the caller raises this error to the application.
        """
        consumer = self._owner.get()
        return None if consumer is None else consumer._get_failure(raised)

    async def stop(
        self, timeout: float, closers: Collection[asyncio.Task[Any] | None], *, graceful: bool
    ) -> None:
        """End within `timeout` seconds; the supervisor ends the tasks.

        If `graceful`, the consumer waits for records in progress before it leaves its group, as
        long as the application may still request records (the tasks in `closers` will not), and
        ends the fetch sessions at the brokers.
        """
        self.reader.stop()
        self.subscription.own_metrics.keep_attributes()
        try:
            if self.group is not None and timeout > 0:
                await self.group.close(timeout, closers if graceful else None)
        finally:
            await self._end_parts(timeout if graceful else 0.0)

    async def _end_parts(self, timeout: float) -> None:
        self._unsubscribe()
        self.subscription.end_reading()
        self.buffer.clear()
        try:
            await self.fetchers.stop(min(timeout, FAREWELL_S))
        finally:
            self._release_resources()

    def _release_resources(self) -> None:
        self.read_lock.forget_task()
        self._stalls.end_watch()
        self._gauges.remove_values()
        self.subscription.own_metrics.end_owner()
        if self._follower is not None:
            self.cluster.updater.unwant_topics(self._follower.topics)
        if self.group is not None:
            self.group.release_connections()
        self.cluster.updater.unwant_topics(self)
        self.cluster.release_owner(self.fetchers)
        self.cluster.release_owner(self.fetchers.second)

    def list_troubles(self) -> list[str]:
        """Return topics and partitions that cannot be read, with reasons, as texts. Synchronous.

        `health()` shows them, and the log, if no records can be read for a time; see `StallWatch`.
        """
        errors = self.cluster.updater.errors
        found = [
            f"topic {topic} cannot be read: {errors[topic]}"
            for topic in self.subscription.subscription.topics
            if topic in errors
        ]
        for state in list(self.subscription.partitions.values()):
            if state.retry.trouble is not None:
                found.append(f"{state.tp} cannot be read: {state.retry.trouble}")
            elif state.is_leaderless:
                found.append(f"{state.tp} cannot be read: it has no leader")
            elif (silence := self.fetchers.describe_silence(state)) is not None:
                found.append(f"{state.tp} cannot be read: {silence}")
        source = self._follower if self.group is None else self.group
        if source is not None and not self.subscription.partitions:
            is_current = source.topics.current is self.subscription.subscription
            if is_current and (nothing := source.topics.describe_trouble()) is not None:
                found.append(nothing)
        if self.group is not None:
            found = [*self.group.list_troubles(), *found]
        found = [*self.preparations.list_troubles(), *found]
        if self.read_lock.trouble is not None and not self.reader.stopped:
            found.insert(0, self.read_lock.trouble)
        return found[:TROUBLES] + [f"and {len(found) - TROUBLES} more"] * (len(found) > TROUBLES)

    def list_stall_reasons(self) -> list[str]:
        """Return why no records can be read: problems of the consumer, or else of its client."""
        return self.list_troubles() or self.cluster.list_troubles()

    def _want_assigned_topics(self) -> None:
        """Request the metadata of the topics that are assigned now, and of no others."""
        topics = dict.fromkeys(tp.topic for tp in self.subscription.partitions)
        former, self._wanted_topics = self._wanted_topics, topics
        if any(topic not in topics for topic in former):
            self.cluster.updater.unwant_topics(self)
        if topics != former:
            for topic in topics:
                self.cluster.updater.want_topic(topic, self)

    def _on_metadata(self, old: ClusterMetadata, new: ClusterMetadata) -> None:
        if differ(old.cluster_id, new.cluster_id):
            if self._follower is not None:
                self._follower.topics.on_cluster_replaced(new)
            if self.group is not None:
                self.group.on_cluster_replaced(new)
            self.subscription.discard_positions()
        self.fetchers.on_metadata(new)
        if self._follower is not None:
            self._follower.on_metadata()
