"""All fetchers of a consumer: which broker each partition is read from, and what answers mean.

It listens to the subscription and to the metadata; nobody calls it but the fetchers themselves.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable
from typing import Final

from aiokclient.background import Callbacks
from aiokclient.cluster.client import ClusterClient
from aiokclient.cluster.metadata import ClusterMetadata
from aiokclient.config import ConsumerConfig
from aiokclient.consumer.fetching.broker_fetcher import BrokerFetcher
from aiokclient.consumer.fetching.buffer import FetchBuffer, PartitionFetch
from aiokclient.consumer.fetching.session import NO_TOPIC_ID, Answer, FetchOptions, Wanted
from aiokclient.consumer.state.offset_reset import EARLIEST, NONE
from aiokclient.consumer.state.partition import PartitionState
from aiokclient.consumer.state.subscription import SubscriptionState
from aiokclient.errors import KafkaError, LogTruncationError, OffsetOutOfRangeError, error_for
from aiokclient.policy import Action, Backoff, Decision, Scope, decide
from aiokclient.types import TopicPartition

__all__ = ["Fetchers"]

REPLICA_IDLE_S: Final = 10.0
"""A replica that gives no record for so long may be behind: the leader is asked again."""
IDLE_S: Final = 0.01
"""The first pause after responses that are empty and come too early."""
REPLICA_REST_S: Final = 30.0
"""How long a partition is read from its leader after the preferred replica was of no use."""


class Fetchers:
    """Makes a fetcher for each broker that there is something to read from."""

    def __init__(
        self,
        cluster: ClusterClient,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        buffer: FetchBuffer,
        *,
        arrived: Callable[[], None],
        report: Callable[[KafkaError], None],
        spawn: Callable[..., None],
        callbacks: Callbacks,
    ) -> None:
        self.cluster = cluster
        self.options = FetchOptions(
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_max_bytes,
            max_wait_ms=config.fetch_max_wait_ms,
            partition_max_bytes=config.max_partition_fetch_bytes,
            read_committed=config.isolation_level == "read_committed",
            rack_id=config.client_rack or "",
        )
        self.request_timeout_s = (config.request_timeout_ms + config.fetch_max_wait_ms) / 1000
        self.idle_backoff = Backoff(IDLE_S, max(config.retry_backoff_ms / 1000, IDLE_S))
        self.longest_backoff_s = config.retry_backoff_max_ms / 1000
        self.arrived = arrived
        self.report = report
        self.spawn = spawn
        self._callbacks = callbacks
        self._subscription = subscription
        self._buffer = buffer
        self._fresh = EARLIEST if config.new_partitions == "earliest" else None
        self._backoff = Backoff(config.retry_backoff_ms / 1000, self.longest_backoff_s)
        self._preferred_s = config.metadata_max_age_ms / 1000
        self._fetchers: dict[int, BrokerFetcher] = {}
        self.second = (self, "second connection")
        """Owns the connections of `BrokerFetcher.hurry`."""
        self._started = False

    def start(self) -> None:
        """Begins to fetch, and to follow what changes."""
        self._started = True
        self._subscription.listen(self.changed)
        self.observe(self.cluster.metadata)

    async def stop(self, timeout: float) -> None:
        """Begins nothing any more; tells idle brokers so, within `timeout` seconds."""
        self._started = False
        ends = [fetcher.end_session() for fetcher in self._fetchers.values()]
        told = [end for end in ends if end is not None]
        if told and timeout > 0:
            await asyncio.wait(told, timeout=timeout)

    # -- changes

    def observe(self, metadata: ClusterMetadata) -> None:
        """Takes note of leaders and topic ids."""
        self._subscription.settle()
        for state in list(self._subscription.partitions.values()):
            self._observe(state, metadata)
        self._subscription.changed()

    def _observe(self, state: PartitionState, metadata: ClusterMetadata) -> None:
        info = metadata.topic(state.tp.topic)
        if info is not None and not info.error and info.topic_id != NO_TOPIC_ID:
            fresh = self._fresh or self._subscription.reset
            self._subscription.bind(state, info.topic_id, fresh)
        leader = metadata.leader(*state.tp)
        state.leader = leader if leader in metadata.brokers else -1
        if state.led_anew(metadata.leader_epoch(*state.tp)):
            self._subscription.log.write(
                logging.INFO,
                ("new leader", state.tp),
                "%s has a new leader: its position is validated",
                state.tp,
                extra={"event": "leader_changed", "topic": state.tp.topic},
            )

    def changed(self) -> None:
        """Wakes the fetchers, and makes those that are missing."""
        if not self._started:
            return
        now = self.cluster.clock.monotonic()
        metadata = self.cluster.metadata
        moved: dict[int, None] = {}
        for state in self._subscription.partitions.values():
            if state.leader < 0:
                self._subscription.settle()
                self._observe(state, metadata)  # It was assigned just now.
            if state.flowing:
                node_id = self._node(state, now)
                if node_id >= 0 and node_id not in self._fetchers:
                    fetcher = self._fetchers[node_id] = BrokerFetcher(node_id, self)
                    self.spawn(fetcher.run, name=f"fetch from broker {node_id}")
                if state.want is not None and state.want.generation != state.generation:
                    moved[node_id] = None
        for fetcher in self._fetchers.values():
            fetcher.wake.set()
            if fetcher.node_id in moved:
                fetcher.hurry()

    def ended(self, fetcher: BrokerFetcher) -> None:
        """The fetcher has nothing to read; another is made when there is."""
        if self._fetchers.get(fetcher.node_id) is fetcher:
            del self._fetchers[fetcher.node_id]

    # -- what a fetcher asks

    def reads_from(self, node_id: int) -> bool:
        """Whether any partition is read from the broker, paused ones included."""
        now = self.cluster.clock.monotonic()
        states = self._subscription.partitions.values()
        return self._started and any(self._node(state, now) == node_id for state in states)

    def wanted(self, node_id: int) -> tuple[dict[TopicPartition, Wanted], float]:
        """What to fetch from the broker now, and when there may be more."""
        now = self.cluster.clock.monotonic()
        wanted: dict[TopicPartition, Wanted] = {}
        retry_at = math.inf
        # A broker may lead thousands of partitions, and all are looked at for each request.
        for tp, state in self._subscription.partitions.items():
            if state.preferred < 0 and state.leader != node_id:
                continue
            if not state.flowing:
                continue
            if state.preferred >= 0 and self._node(state, now) != node_id:
                continue
            if state.retry_at > now:
                retry_at = min(retry_at, state.retry_at)
                continue
            if state.examined == state.generation:
                continue  # What cannot be read is to be examined first.
            want = state.want
            if (
                want is None
                or want.offset != state.fetch_offset
                or want.generation != state.generation
                or want.leader_epoch != state.leader_epoch
                or want.topic_id is not (state.topic_id or NO_TOPIC_ID)
            ):
                want = state.want = Wanted(
                    state.topic_id or NO_TOPIC_ID,
                    state.fetch_offset,
                    state.leader_epoch,
                    state.generation,
                )
            wanted[tp] = want
        return wanted, retry_at

    def leaders_only(self, tps: Iterable[TopicPartition]) -> bool:
        """Whether a broker must not be told the rack: it would name a replica of no use again."""
        if not self.options.rack_id:
            return False
        now = self.cluster.clock.monotonic()
        partitions = self._subscription.partitions
        return any(tp in partitions and partitions[tp].no_replica_until > now for tp in tps)

    def state(self, answer: Answer) -> PartitionState | None:
        """The state that an answer is for; None if it is void by now, or came before."""
        state = self._subscription.partitions.get(answer.tp) if self._started else None
        if state is None or state.generation != answer.wanted.generation:
            return None
        return state if state.fetch_offset == answer.wanted.offset else None

    def decide(self, error: KafkaError, attempts: int) -> Action:
        """What the policy says."""
        return decide(error, Scope.FETCH, attempts, math.inf, self.cluster.clock.rng, self._backoff)

    def refresh(self, node_id: int, reason: str) -> None:
        """Has the leaders of what is read from the broker looked up anew.

        Not at the end, which cuts off the fetch that is under way.
        """
        if not self._started:
            return
        now = self.cluster.clock.monotonic()
        states = self._subscription.partitions.values()
        topics = [state.tp.topic for state in states if self._node(state, now) == node_id]
        self.cluster.updater.request_update(list(dict.fromkeys(topics)), reason=reason)

    # -- what answers lead to

    def keep(self, fetch: PartitionFetch) -> None:
        """Buffers what came for a partition."""
        if fetch.state.preferred >= 0:
            fetch.state.preferred_idle = self.cluster.clock.monotonic() + REPLICA_IDLE_S
        self._buffer.add(fetch)

    def out_of_range(self, state: PartitionState, node_id: int, offset: int) -> None:
        """The broker has nothing at the offset."""
        self._subscription.settle()
        now = self.cluster.clock.monotonic()
        if node_id != state.leader:
            self._rest_replica(state, now)  # A follower may lag behind: the leader knows.
        elif offset != state.position:
            # What is buffered comes first; then the position itself is asked for.
            state.back_off(now + self._backoff.delay(state.attempts, self.cluster.clock.rng))
        elif self._subscription.reset == NONE:
            error = OffsetOutOfRangeError(
                f"The position is {offset}", api="Fetch", broker=node_id, topic_partition=state.tp
            )
            state.fail(error)
        else:
            reason = f"broker {node_id} has no such offset"
            self._subscription.reset_visibly(state, reason, self._subscription.reset)
            state.lost(now, self._backoff, self.cluster.clock.rng)
        self._subscription.changed()

    def diverged(self, state: PartitionState, epoch: int, end_offset: int) -> None:
        """The log was cut back behind the position; `end_offset` is where the two part."""
        self._subscription.settle()
        if self._subscription.reset == NONE:
            error = LogTruncationError(
                f"The position is {state.position}, the log of the same history ends at "
                f"{end_offset}"
                if end_offset >= 0
                else f"The position is {state.position}",
                topic_partition=state.tp,
                offset=state.position,
                diverging_offset=end_offset if end_offset >= 0 else None,
            )
            state.fail(error)
            self._subscription.changed()
            return
        if end_offset < 0:
            self._subscription.reset_visibly(
                state, "the log was truncated, nobody knows where", self._subscription.reset
            )
        else:
            self._subscription.truncate(state, end_offset, epoch)
        clock = self.cluster.clock
        state.lost(clock.monotonic(), self._backoff, clock.rng)

    def refused(self, state: PartitionState, node_id: int, code: int) -> None:
        """The broker answered an error for the partition."""
        error = error_for(code, api="Fetch", broker=node_id, topic_partition=state.tp)
        assert error is not None
        now = self.cluster.clock.monotonic()
        if node_id != state.leader:
            self._rest_replica(state, now)
        action = self.decide(error, state.attempts)
        until = now + (action.delay_s or self.longest_backoff_s)
        self._subscription.back_off(state, until, error)
        if action.decision is Decision.REFRESH_AND_RETRY:
            self.cluster.updater.request_update([state.tp.topic], reason=str(error))
        elif action.decision is not Decision.RETRY:
            self.report(error)
        self._subscription.changed()

    def unusable(self, node_id: int, error: KafkaError) -> None:
        """The broker fails every fetch, and will go on to."""
        now = self.cluster.clock.monotonic()
        for state in self._subscription.partitions.values():
            if state.flowing and self._node(state, now) == node_id:
                self._subscription.back_off(state, now + self.longest_backoff_s, error)
        if self._subscription.concerns_all(error):
            self.report(error)

    # -- replicas to prefer

    def prefer(self, state: PartitionState, node_id: int, replica: int) -> None:
        """The leader says that another replica is closer (KIP-392)."""
        now = self.cluster.clock.monotonic()
        if replica == node_id:
            return
        if replica in self.cluster.metadata.brokers and state.no_replica_until <= now:
            state.preferred, state.preferred_until = replica, now + self._preferred_s
            state.preferred_idle = now + REPLICA_IDLE_S
        else:
            self._rest_replica(state, now)
            delay = self._backoff.delay(state.attempts, self.cluster.clock.rng)
            state.back_off(now + delay)
        self._subscription.changed()

    def give_up_replica(self, node_id: int) -> None:
        """The broker does not answer: what is read from it as a replica goes to the leaders."""
        now = self.cluster.clock.monotonic()
        for state in self._subscription.partitions.values():
            if state.preferred == node_id:
                self._rest_replica(state, now)
        self.changed()

    def _rest_replica(self, state: PartitionState, now: float) -> None:
        state.preferred = -1
        state.no_replica_until = now + REPLICA_REST_S

    def _node(self, state: PartitionState, now: float) -> int:
        if state.preferred >= 0:
            until = min(state.preferred_until, state.preferred_idle)
            if now < until and state.preferred in self.cluster.metadata.brokers:
                return state.preferred
            state.preferred = -1
            # The leader's fetcher may be asleep, or not even there.
            self._callbacks.soon(self.changed)
        return state.leader
