"""The background parts of one started consumer."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence

from aiokclient.cluster.client import ClusterClient
from aiokclient.cluster.metadata import ClusterMetadata
from aiokclient.cluster.ownership import for_background
from aiokclient.cluster.supervisor import Supervisor
from aiokclient.config import ConsumerConfig
from aiokclient.consumer.delivery.deserialize import Deserializers
from aiokclient.consumer.delivery.in_progress import InProgress
from aiokclient.consumer.delivery.read_lock import ReadLock
from aiokclient.consumer.delivery.reader import Reader
from aiokclient.consumer.delivery.reports import Reports
from aiokclient.consumer.delivery.unpack import Unpacker
from aiokclient.consumer.fetching.buffer import FetchBuffer
from aiokclient.consumer.fetching.list_offsets import OffsetLookup
from aiokclient.consumer.fetching.manager import FetchManager
from aiokclient.consumer.fetching.position_resolver import PositionResolver
from aiokclient.consumer.lookups import Lookups
from aiokclient.consumer.membership.coordinator import ConsumerCoordinator
from aiokclient.consumer.membership.group_calls import GroupCalls
from aiokclient.consumer.membership.listener import ListenerCalls
from aiokclient.consumer.meters import ConsumerGauges
from aiokclient.consumer.state.partition import PartitionState, Phase, Withheld
from aiokclient.consumer.state.subscription import PartitionSource, SubscriptionState
from aiokclient.consumer.state.wakeup import Wakeup
from aiokclient.consumer.topics import TopicFollower
from aiokclient.errors import ClosedError
from aiokclient.types import TopicPartition

__all__ = ["Engine"]

SETTLE_S = 3.0
"""Seconds for which `start` waits for positions that brokers do not return."""

TROUBLES = 20
"""The largest number of problems that are listed."""

SEARCHING = (Phase.AWAITING, Phase.RESETTING)

FAREWELL_S = 0.5
"""Seconds for which `stop` waits until brokers have ended the fetch sessions."""


class Engine:
    """The parts of a consumer from its start to its end. Only the subscription exists longer."""

    def __init__(
        self,
        cluster: ClusterClient,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        deserializers: Deserializers,
        supervisor: Supervisor,
        died: Callable[..., BaseException | None],
    ) -> None:
        config = for_background(config)
        self.cluster = cluster
        self._subscription = subscription
        self._died = died
        self._over: ClosedError | None = None
        log = cluster.log("consumer", config.group_id)
        subscription.measure(cluster.metrics, log, cluster.clock.monotonic)
        self._spawn, self._callbacks = supervisor.spawn, supervisor.callbacks
        self._arrived = Wakeup()
        self.moved = Wakeup()
        """Set when partitions or positions have changed."""
        self.buffer = FetchBuffer(config.fetch_max_bytes)
        self.reports = Reports(self._arrived.set)
        self.listener_calls = ListenerCalls()
        time = asyncio.get_running_loop().time
        self.in_progress = InProgress()
        self.read_lock = ReadLock(time, self.listener_calls.is_inside)
        self.offsets = OffsetLookup(cluster, config)
        self.fetchers = FetchManager(
            cluster,
            config,
            subscription,
            self.buffer,
            arrived=self._arrived.set,
            report=self.reports.add,
            spawn=self._spawn,
            callbacks=self._callbacks,
        )
        self._position_resolver = PositionResolver(
            cluster,
            config,
            subscription,
            self.offsets,
            diverged=self.fetchers.responses.diverged,
            report=self.reports.add,
            spawn=self._spawn,
        )
        self.group: ConsumerCoordinator | None = None
        self._follower: TopicFollower | None = None
        self.group_calls: GroupCalls | None = None
        self._source = self._make_source(config, supervisor)
        self.lookups = Lookups(cluster, subscription, self.offsets, self.located)
        self.reader = self._make_reader(config, deserializers)
        self._settle_s = min(SETTLE_S, config.default_api_timeout_ms / 2000)
        """Seconds for which a start waits for positions, well below its deadline."""
        self._assigned: dict[str, None] = {}
        self._unsubscribe: Callable[[], None] = lambda: None
        self._measure(config.group_id)

    def _make_source(self, config: ConsumerConfig, supervisor: Supervisor) -> PartitionSource:
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
            bounds=self.offsets.bounds,
            spawn=self._spawn,
            callbacks=self._callbacks,
            check=supervisor.check,
        )
        self.group_calls = GroupCalls(self.group, self._subscription)
        return self.group

    def _make_reader(self, config: ConsumerConfig, deserializers: Deserializers) -> Reader:
        arrived = self._arrived
        return Reader(
            self._subscription,
            self.buffer,
            Unpacker(self.buffer, deserializers, arrived.set, self._callbacks, config),
            arrived,
            self.reports,
            self.in_progress,
            self.read_lock,
            self.cluster.metrics,
            requested=_nothing if self.group is None else self.group.requested,
            died=self._died,
        )

    def _measure(self, group_id: str | None) -> None:
        metrics, time = self.cluster.metrics, self.cluster.clock.monotonic
        lock = self.read_lock
        self._gauges = ConsumerGauges(
            metrics, self._subscription, lambda: lock.away_since, time, group_id
        )
        buffered = metrics.gauge("consumer.buffer.bytes", unit="By")
        self._uncount = buffered.include(lambda: self.buffer.size)

    async def start(self) -> None:
        """Start the background tasks; return when the partitions and their positions are known.

        Raises the error by which a group refuses this consumer. It waits only shortly for positions
        that no broker returns, because there is no leader or the leader does not respond.
        """
        subscription = self._subscription
        for state in subscription.partitions.values():
            state.begin_again()  # An earlier start may have been cancelled.
        subscription.begin(self.reader, self._source, self._callbacks.soon)
        self._unsubscribe = self.cluster.updater.subscribe(self._callbacks.guard(self._observe))
        subscription.listen(self.moved.set)
        subscription.listen(self._want_assigned)
        self._want_assigned()
        self.fetchers.start()
        self._spawn(self._position_resolver.run, name="positions")
        if self._follower is not None:
            await self._start_follower(self._follower)
        if self.group is not None:
            self.group.start()
        until = asyncio.get_running_loop().time() + self._settle_s
        while not (self._settled() or self._died()) and await self.moved.wait(until):
            pass
        refusal = None if self.group is None else self.group.refused()
        if refusal is not None:
            self.reports.clear()
            raise refusal

    async def _start_follower(self, follower: TopicFollower) -> None:
        self._spawn(follower.run, name="topics")
        while self._subscription.subscription and not (follower.up_to_date or self._died()):
            await follower.assigned.wait()

    def wake(self) -> None:
        """Wake all waiting tasks, as the consumer has failed. Synchronous."""
        self.reader.wake()
        self.moved.set()
        if self._follower is not None:
            self._follower.assigned.set()
        if self.group is not None:
            self.group.wake()

    async def stop(
        self, timeout: float, may_ask: Callable[[], bool], *, farewell: bool = True
    ) -> None:
        """End within `timeout` seconds; the supervisor ends the tasks.

        Before the consumer leaves its group, it waits for records in progress while `may_ask()`
        returns true. Without `farewell` the fetch sessions are not ended at the brokers.
        """
        self.reader.stop()
        try:
            if self.group is not None and timeout > 0:
                await self.group.close(timeout, may_ask)
        finally:
            await self._end(timeout if farewell else 0.0)

    def abandon(self, error: ClosedError) -> None:
        """Make calls that still wait for a position raise this error. Synchronous."""
        self._over = error
        self.moved.set()

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
        self._uncount()
        self._gauges.close()
        if self._follower is not None:
            self.cluster.updater.unwant(self._follower.topics)
        if self.group is not None:
            self.group.release()
        self.cluster.updater.unwant(self)
        self.cluster.release(self.fetchers)
        self.cluster.release(self.fetchers.second)

    def troubles(self) -> list[str]:
        """Return topics and partitions that cannot be read, with reasons, as texts. Synchronous."""
        errors = self.cluster.updater.errors
        found = [
            f"topic {topic} cannot be read: {errors[topic]}"
            for topic in self._subscription.subscription.topics
            if topic in errors
        ]
        for state in self._subscription.partitions.values():
            if state.retry.trouble is not None:
                found.append(f"{state.tp} cannot be read: {state.retry.trouble}")
            elif state.leaderless:
                found.append(f"{state.tp} cannot be read: it has no leader")
        if self.group is not None:
            found = [*self.group.troubles(), *found]
        if self.read_lock.trouble is not None and not self.reader.stopped:
            found.insert(0, self.read_lock.trouble)
        return found[:TROUBLES] + [f"and {len(found) - TROUBLES} more"] * (len(found) > TROUBLES)

    async def located(self, tp: TopicPartition, until: float = math.inf) -> bool:
        """Wait for a position; return False if `until` passes first.

        Raises the error of the consumer or partition if the position will never be known.
        """
        while not self._subscription[tp].located:
            if (ended := self._over or self._died(raised=True)) is not None:
                raise ended.with_traceback(None)
            state = self._subscription[tp]
            if state.error is not None:
                raise state.error.with_traceback(None)
            if not await self.moved.wait(until):
                return False
        return True

    async def relocated(self, states: Sequence[PartitionState], until: float) -> None:
        """Wait until the committed offsets of these partitions are found, at most until `until`.

        Return early if the consumer ends; a partition that is no longer owned is not waited for.
        """
        partitions = self._subscription.partitions
        while any(
            state.phase is Phase.AWAITING and partitions.get(state.tp) is state for state in states
        ):
            if self._over or self._died() or not await self.moved.wait(until):
                return

    async def knows_its_part(self, until: float) -> bool:
        """Wait until the subscribed partitions are known; return False if `until` passes first."""
        while not (self._died() or self.reports.errors or self._source.knows_its_part()):
            if not await self.moved.wait(until):
                return False
        return True

    def _observe(self, old: ClusterMetadata, new: ClusterMetadata) -> None:
        self.fetchers.observe(new)
        if self._follower is not None:
            self._follower.observe()

    def _want_assigned(self) -> None:
        """Keep the topics of all assigned partitions in the metadata."""
        topics = dict.fromkeys(tp.topic for tp in self._subscription.partitions)
        if topics == self._assigned:
            return
        gone = any(topic not in topics for topic in self._assigned)
        self._assigned = topics
        if gone:
            self.cluster.updater.unwant(self)
        for topic in topics:
            self.cluster.updater.want(topic, self)

    def _settled(self) -> bool:
        """Return whether no further position can be expected soon."""
        if self.reports.errors:
            return True
        if self.group is not None and not self.group.settled():
            return False
        states = self._subscription.partitions.values()
        return all(
            state.phase not in SEARCHING and not state.withheld & Withheld.INITIAL_OFFSET
            for state in states
        )


def _nothing() -> None:
    """Do nothing. It is called at requests for records if there is no group."""
