"""The broker that each partition is fetched from, and what is fetched from each broker.

That is the leader, or the replica that the leader prefers (KIP-392) until that replica returns no
records for a while, does not answer, or its time is up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final

from aiokclient.background import Callbacks
from aiokclient.cluster.client import ClusterClient
from aiokclient.config import ConsumerConfig
from aiokclient.consumer.fetching.session import NO_TOPIC_ID, Wanted
from aiokclient.consumer.state.partition import PartitionState
from aiokclient.consumer.state.subscription import SubscriptionState
from aiokclient.types import TopicPartition

__all__ = ["Routes"]

REPLICA_IDLE_S: Final = 10.0
"""Seconds without records after which the leader is asked again: the replica may lag."""
REPLICA_REST_S: Final = 30.0
"""Seconds for which a partition is fetched from its leader after a replica was of no use."""


class Routes:
    """The routes of one consumer.

    `changed` is called when a partition has another broker without a change of the subscription.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        *,
        changed: Callable[[], None],
        callbacks: Callbacks,
    ) -> None:
        self._cluster = cluster
        self._subscription = subscription
        self._changed = changed
        self._callbacks = callbacks
        self._uses_racks = bool(config.client_rack)
        self._preferred_s = config.metadata_max_age_ms / 1000
        self._open = False

    def open(self) -> None:
        """Have partitions fetched from now on."""
        self._open = True

    def close(self) -> None:
        """Have nothing fetched any more."""
        self._open = False

    @property
    def is_open(self) -> bool:
        """Whether anything is fetched at all."""
        return self._open

    def node(self, state: PartitionState, now: float) -> int:
        """Return the broker to fetch a partition from, -1 if there is none."""
        if state.preferred >= 0:
            until = min(state.preferred_until, state.preferred_idle)
            if now < until and state.preferred in self._cluster.metadata.brokers:
                return state.preferred
            state.preferred = -1
            # The leader's fetcher may be asleep, or not even there.
            self._callbacks.soon(self._changed)
        return state.leader

    def reads_from(self, node_id: int) -> bool:
        """Return whether any partition is fetched from the broker, paused ones included."""
        now = self._cluster.clock.monotonic()
        states = self._subscription.partitions.values()
        return self._open and any(self.node(state, now) == node_id for state in states)

    def topics_of(self, node_id: int) -> list[str]:
        """Return the topics with a partition that is fetched from the broker."""
        now = self._cluster.clock.monotonic()
        states = self._subscription.partitions.values()
        topics = [state.tp.topic for state in states if self.node(state, now) == node_id]
        return list(dict.fromkeys(topics))

    def wanted(self, node_id: int) -> tuple[dict[TopicPartition, Wanted], float]:
        """Return what to fetch from the broker now, and the time at which there may be more."""
        now = self._cluster.clock.monotonic()
        wanted: dict[TopicPartition, Wanted] = {}
        retry_at = math.inf
        # A broker may lead thousands of partitions, and all are looked at for each request.
        for tp, state in self._subscription.partitions.items():
            if state.preferred < 0 and state.leader != node_id:
                continue
            if not state.flowing:
                continue
            if state.preferred >= 0 and self.node(state, now) != node_id:
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

    # -- preferred replicas

    def hides_rack(self, tps: Iterable[TopicPartition]) -> bool:
        """Return whether to hide the rack from a broker, which would prefer a useless replica."""
        if not self._uses_racks:
            return False
        now = self._cluster.clock.monotonic()
        partitions = self._subscription.partitions
        return any(tp in partitions and partitions[tp].no_replica_until > now for tp in tps)

    def prefer(self, state: PartitionState, replica: int) -> bool:
        """Fetch from a replica that the leader prefers; return whether it is of use."""
        now = self._cluster.clock.monotonic()
        if replica in self._cluster.metadata.brokers and state.no_replica_until <= now:
            state.preferred, state.preferred_until = replica, now + self._preferred_s
            state.preferred_idle = now + REPLICA_IDLE_S
            return True
        self.rest_replica(state)
        return False

    def replica_delivers(self, state: PartitionState) -> None:
        """Take note that the preferred replica of a partition, if it has one, returned records."""
        if state.preferred >= 0:
            state.preferred_idle = self._cluster.clock.monotonic() + REPLICA_IDLE_S

    def rest_replica(self, state: PartitionState) -> None:
        """Fetch a partition from its leader for a while."""
        state.preferred = -1
        state.no_replica_until = self._cluster.clock.monotonic() + REPLICA_REST_S

    def leave_replica(self, node_id: int) -> None:
        """Fetch from the leaders what was fetched from a broker that does not answer."""
        for state in self._subscription.partitions.values():
            if state.preferred == node_id:
                self.rest_replica(state)
        self._changed()
