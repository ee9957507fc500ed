"""The broker that each partition is fetched from, and the partitions to fetch from each broker.

A partition is fetched from its leader, or from the replica that the leader prefers (KIP-392). The
replica is used for a limited time, or until it returns no records for some time or does not
respond.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from aiokclient.background import Callbacks
from aiokclient.cluster.client import ClusterClient
from aiokclient.config.consumer import ConsumerConfig
from aiokclient.consumer.fetching.session import NO_TOPIC_ID, Wanted
from aiokclient.consumer.state.partition import PartitionState
from aiokclient.consumer.state.subscription import SubscriptionState
from aiokclient.types import TopicPartition

if TYPE_CHECKING:
    from aiokclient.consumer.fetching.manager import FetchManager

__all__ = ["Routes"]


class Routes:
    """The routes of one consumer."""

    def __init__(
        self,
        cluster: ClusterClient,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        manager: FetchManager,
        callbacks: Callbacks,
    ) -> None:
        self._cluster = cluster
        self._subscription = subscription
        self._manager = manager
        self._callbacks = callbacks
        self._uses_racks = bool(config.client_rack)
        self._preferred_s = config.metadata_max_age_ms / 1000
        self.is_open = False
        """Whether fetching is permitted."""

    def permit_fetching(self) -> None:
        """Permit fetching from now on."""
        self.is_open = True

    def stop_fetching(self) -> None:
        """Stop all fetching."""
        self.is_open = False

    def find_node(self, state: PartitionState, now: float) -> int:
        """Return the broker to fetch a partition from, -1 if there is none."""
        fetch = state.fetch
        if fetch.preferred >= 0:
            if fetch.prefers(now) and fetch.preferred in self._cluster.metadata.brokers:
                return fetch.preferred
            fetch.use_leader()
            # The leader's fetcher may have to be woken or created.
            self._callbacks.soon(self._manager.update_fetchers)
        return fetch.leader

    def reads_from(self, node_id: int) -> bool:
        """Return whether any partition is fetched from the broker, paused ones included."""
        now = self._cluster.clock.monotonic()
        states = self._subscription.partitions.values()
        return self.is_open and any(self.find_node(state, now) == node_id for state in states)

    def topics_of(self, node_id: int) -> list[str]:
        """Return the topics with a partition that is fetched from the broker."""
        now = self._cluster.clock.monotonic()
        states = self._subscription.partitions.values()
        topics = [state.tp.topic for state in states if self.find_node(state, now) == node_id]
        return list(dict.fromkeys(topics))

    def find_wanted(self, node_id: int) -> tuple[dict[TopicPartition, Wanted], float]:
        """Return the partitions to fetch from a broker now, and the time at which to look again."""
        now = self._cluster.clock.monotonic()
        wanted: dict[TopicPartition, Wanted] = {}
        retry_at = math.inf
        # This loop must be fast: it examines thousands of partitions for each request.
        for tp, state in self._subscription.partitions.items():
            fetch = state.fetch
            if fetch.preferred < 0 and fetch.leader != node_id:
                continue
            if not state.flowing:
                continue
            if fetch.preferred >= 0 and self.find_node(state, now) != node_id:
                continue
            if state.retry.at > now:
                retry_at = min(retry_at, state.retry.at)
                continue
            if fetch.examined == state.generation:
                continue  # The reader must handle the damaged batch first.
            want = fetch.want
            if (
                want is None
                or want.offset != fetch.offset
                or want.generation != state.generation
                or want.leader_epoch != state.leader_epoch
                or want.topic_id is not (state.topic_id or NO_TOPIC_ID)
            ):
                want = Wanted(
                    state.topic_id or NO_TOPIC_ID,
                    fetch.offset,
                    state.leader_epoch,
                    state.generation,
                )
                fetch.store_want(want)
            wanted[tp] = want
        return wanted, retry_at

    # -- preferred replicas

    def hides_rack(self, tps: Iterable[TopicPartition]) -> bool:
        """Return whether to omit the rack, so that a broker names no replica that has failed."""
        if not self._uses_racks:
            return False
        now = self._cluster.clock.monotonic()
        partitions = self._subscription.partitions
        return any(tp in partitions and partitions[tp].fetch.is_resting(now) for tp in tps)

    def prefer(self, state: PartitionState, replica: int) -> bool:
        """Fetch from a replica that the leader prefers; return whether the replica is usable."""
        now = self._cluster.clock.monotonic()
        if replica in self._cluster.metadata.brokers and not state.fetch.is_resting(now):
            state.fetch.prefer(replica, now, self._preferred_s)
            return True
        state.fetch.rest_replica(now)
        return False

    def leave_replica(self, node_id: int) -> None:
        """Fetch partitions from their leaders instead of a replica that does not respond."""
        now = self._cluster.clock.monotonic()
        for state in self._subscription.partitions.values():
            if state.fetch.preferred == node_id:
                state.fetch.rest_replica(now)
        self._manager.update_fetchers()  # Here, the subscription does not change.
