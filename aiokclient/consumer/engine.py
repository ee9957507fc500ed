"""The background parts of one started consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiokclient.cluster.client import ClusterClient
from aiokclient.cluster.lifecycle.ownership import for_background
from aiokclient.cluster.lifecycle.supervisor import Supervisor
from aiokclient.cluster.metadata.snapshot import ClusterMetadata, differ
from aiokclient.config.consumer import ConsumerConfig
from aiokclient.consumer.assigned_topics import AssignedTopics
from aiokclient.consumer.delivery.deserialize import Deserializers
from aiokclient.consumer.delivery.in_progress import InProgress
from aiokclient.consumer.delivery.read_lock import ReadLock
from aiokclient.consumer.delivery.reader import Reader
from aiokclient.consumer.delivery.reports import Reports
from aiokclient.consumer.delivery.stall_watch import StallWatch
from aiokclient.consumer.delivery.unpack import Unpacker
from aiokclient.consumer.fetching.buffer import FetchBuffer
from aiokclient.consumer.fetching.list_offsets import OffsetLookup
from aiokclient.consumer.fetching.manager import FetchManager
from aiokclient.consumer.fetching.position_resolver import PositionResolver
from aiokclient.consumer.lookups import Lookups
from aiokclient.consumer.membership.coordinator import ConsumerCoordinator
from aiokclient.consumer.membership.group_calls import ConsumerGroupCalls
from aiokclient.consumer.membership.listener import ListenerCalls
from aiokclient.consumer.meters import ConsumerGauges, measure
from aiokclient.consumer.positions import PositionWaits
from aiokclient.consumer.state.subscription import PartitionSource, SubscriptionState
from aiokclient.consumer.state.wakeup import Wakeup
from aiokclient.consumer.topics import TopicFollower
from aiokclient.errors import ClosedError
from aiokclient.measures import Measures
from aiokclient.metrics import Labels

__all__ = ["ConsumerEngine"]

TROUBLES = 20
"""The largest number of problems that `troubles()` lists. Further problems are only counted."""

FAREWELL_S = 0.5
"""The longest time, in seconds, for which `stop` waits for brokers to end the fetch sessions."""


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
        died: Callable[..., BaseException | None],
        emit: Callable[..., None],
    ) -> None:
        config = for_background(config)
        self.cluster = cluster
        self._subscription = subscription
        self._supervisor = supervisor
        self._emit = emit
        log = cluster.log("consumer", config.group_id)
        membership = "assigned" if config.group_id is None else config.group_protocol
        measures = Measures("consumer", self._resource, membership)
        measures.before_reading(subscription.settle)
        subscription.measure(cluster.metrics, log, cluster.clock.monotonic, measures)
        arrived = Wakeup()
        self.buffer = FetchBuffer(config.fetch_max_bytes)
        self.reports = Reports(arrived.set)
        self.listener_calls = ListenerCalls()
        time = asyncio.get_running_loop().time
        self.in_progress = InProgress()
        self.read_lock = ReadLock(time, self.listener_calls.is_inside)
        if config.group_id is not None and not config.enable_auto_commit:
            self.read_lock.observe_transactions()
        offsets = OffsetLookup(cluster, config)
        self.fetchers = FetchManager(
            cluster,
            config,
            subscription,
            self.buffer,
            arrived=arrived.set,
            report=self.reports.add,
            spawn=supervisor.spawn,
            callbacks=supervisor.callbacks,
        )
        self._position_resolver = PositionResolver(
            cluster,
            config,
            subscription,
            offsets,
            diverged=self.fetchers.responses.diverged,
            report=self.reports.add,
            spawn=supervisor.spawn,
        )
        self.group: ConsumerCoordinator | None = None
        self._follower: TopicFollower | None = None
        self.group_calls: ConsumerGroupCalls | None = None
        self._source = self._make_source(config, offsets)
        self.positions = PositionWaits(subscription, self._source, self.reports, died, config)
        self.lookups = Lookups(cluster, subscription, offsets, self.positions.located)
        self._stalls = StallWatch(time, supervisor.callbacks, log, self._reasons)
        self.reader = self._make_reader(config, deserializers, arrived, died)
        self._topics = AssignedTopics(cluster.updater, subscription)
        self._unsubscribe: Callable[[], None] = lambda: None
        lock, buffer, time = self.read_lock, self.buffer, cluster.clock.monotonic
        self._gauges = ConsumerGauges(
            cluster.metrics,
            subscription,
            lambda: lock.away_since,
            lambda: buffer.size,
            time,
            config.group_id,
        )
        measure(measures, subscription, lock, self.in_progress, time)
        self._config = config
        self._end_measures = cluster.measures.add(measures)

    def _resource(self) -> Labels:
        """Return the attributes by which an operator recognizes this consumer."""
        config, group = self._config, self.group
        found = {
            "client_rack": config.client_rack,
            "group_id": config.group_id,
            "group_instance_id": config.group_instance_id,
            "group_member_id": None if group is None else group.membership.metadata.member_id,
        }
        return tuple((name, value) for name, value in found.items() if value)

    def _make_source(self, config: ConsumerConfig, offsets: OffsetLookup) -> PartitionSource:
        """Make the object that determines the partitions of the subscription."""
        if config.group_id is None:
            self._follower = TopicFollower(
                self.cluster,
                config,
                self._subscription,
                report=self.reports.add,
                calls=self.listener_calls,
            )
            return self._follower
        self.group = ConsumerCoordinator(
            self.cluster,
            config,
            self._subscription,
            self.in_progress,
            self.read_lock,
            report=self.reports.add,
            listener_calls=self.listener_calls,
            bounds=offsets.bounds,
            supervisor=self._supervisor,
            emit=self._emit,
        )
        self.group_calls = ConsumerGroupCalls(self.group, self._subscription)
        return self.group

    def _make_reader(
        self,
        config: ConsumerConfig,
        deserializers: Deserializers,
        arrived: Wakeup,
        died: Callable[..., BaseException | None],
    ) -> Reader:
        callbacks = self._supervisor.callbacks
        return Reader(
            self._subscription,
            self.buffer,
            Unpacker(self.buffer, deserializers, arrived.set, callbacks, config),
            arrived,
            self.reports,
            self.in_progress,
            self.read_lock,
            self.cluster.metrics,
            self._stalls,
            requested=_nothing if self.group is None else self.group.requested,
            died=died,
        )

    async def start(self, wait: bool) -> None:
        """Start the background tasks; return when the partitions and their positions are known.

        Raises the error by which a group refuses this consumer. If no broker returns a position,
        because there is no leader or the leader does not respond, it waits only briefly for that
        position. Without `wait`, it returns immediately, and the error of the group is raised when
        the application reads.
        """
        subscription, callbacks = self._subscription, self._supervisor.callbacks
        for state in subscription.partitions.values():
            state.begin_again()  # A cancelled start may have changed the state.
        subscription.begin(self.reader, self._source, callbacks.soon)
        self._unsubscribe = self.cluster.updater.subscribe(callbacks.guard(self._observe))
        subscription.listen(self.positions.changed)
        subscription.listen(self._topics.want)
        self._topics.want()
        self.fetchers.start()
        self._supervisor.spawn(self._position_resolver.run, name="positions")
        if self._follower is not None:
            self._supervisor.spawn(self._follower.run, name="topics")
            if wait:
                await self.positions.followed(self._follower)
        if self.group is not None:
            self.group.start()
        if not wait:
            return
        await self.positions.settled(self.group)
        refusal = None if self.group is None else self.group.refused()
        if refusal is not None:
            self.reports.clear()
            raise refusal

    def wake(self) -> None:
        """Wake all waiting tasks, because the consumer has failed. Synchronous."""
        self.reader.wake()
        self.positions.changed()
        if self._follower is not None:
            self._follower.assigned.set()
        if self.group is not None:
            self.group.wake()

    async def stop(
        self, timeout: float, may_ask: Callable[[], bool], *, farewell: bool = True
    ) -> None:
        """End within `timeout` seconds; the supervisor ends the tasks.

        Before the consumer leaves its group, it waits for records in progress, as long as
        `may_ask()` returns true: the application may still request records. Without `farewell` the
        fetch sessions are not ended at the brokers.
        """
        self.reader.stop()
        self._subscription.measures.note_resource()
        try:
            if self.group is not None and timeout > 0:
                await self.group.close(timeout, may_ask)
        finally:
            await self._end(timeout if farewell else 0.0)

    def abandon(self, error: ClosedError) -> None:
        """Raise this error in the calls that still wait for a position. Synchronous."""
        self.positions.abandon(error)

    async def _end(self, timeout: float) -> None:
        self._unsubscribe()
        self._subscription.end()
        self.buffer.clear()
        try:
            await self.fetchers.stop(min(timeout, FAREWELL_S))
        finally:
            self._release()

    def _release(self) -> None:
        self.read_lock.forget()
        self._stalls.close()
        self._gauges.close()
        self.reader.meters.end()
        self.fetchers.responses.meters.end()
        self._end_measures()
        if self._follower is not None:
            self.cluster.updater.unwant(self._follower.topics)
        if self.group is not None:
            self.group.release()
        self._topics.unwant()
        self.cluster.release(self.fetchers)
        self.cluster.release(self.fetchers.second)

    def troubles(self) -> list[str]:
        """Return topics and partitions that cannot be read, with reasons, as texts. Synchronous.

        `health()` shows them, and the log, if no records can be read for a time; see `StallWatch`.
        """
        errors = self.cluster.updater.errors
        found = [
            f"topic {topic} cannot be read: {errors[topic]}"
            for topic in self._subscription.subscription.topics
            if topic in errors
        ]
        for state in list(self._subscription.partitions.values()):
            if state.retry.trouble is not None:
                found.append(f"{state.tp} cannot be read: {state.retry.trouble}")
            elif state.leaderless:
                found.append(f"{state.tp} cannot be read: it has no leader")
            elif (silence := self.fetchers.silence(state)) is not None:
                found.append(f"{state.tp} cannot be read: {silence}")
        source = self._follower if self.group is None else self.group
        if source is not None and not self._subscription.partitions:
            is_current = source.topics.current is self._subscription.subscription
            if is_current and (nothing := source.topics.trouble()) is not None:
                found.append(nothing)
        if self.group is not None:
            found = [*self.group.troubles(), *found]
        if self.read_lock.trouble is not None and not self.reader.stopped:
            found.insert(0, self.read_lock.trouble)
        return found[:TROUBLES] + [f"and {len(found) - TROUBLES} more"] * (len(found) > TROUBLES)

    def _reasons(self) -> list[str]:
        """Return why no records can be read: problems of the consumer, or else of its client."""
        return self.troubles() or self.cluster.troubles()

    def _observe(self, old: ClusterMetadata, new: ClusterMetadata) -> None:
        if differ(old.cluster_id, new.cluster_id):
            if self._follower is not None:
                self._follower.topics.rebase(new)
            if self.group is not None:
                self.group.cluster_replaced(new)
            self._subscription.discard_positions()
        self.fetchers.observe(new)
        if self._follower is not None:
            self._follower.observe()


def _nothing() -> None:
    """Do nothing. The reader calls this at each request for records if there is no group."""
