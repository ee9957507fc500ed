"""The manager of a consumer's fetchers. There is one fetcher for each broker.

The manager listens to the subscription and the metadata. It creates and wakes the fetchers, which
nothing else calls, and tells them which partitions to fetch.

A partition is fetched from its leader, or from the replica that the leader prefers (KIP-392). The
replica is used for a limited time, or until it returns no records for some time or does not
respond.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from aiokclient.cluster.metadata.snapshot import ClusterMetadata
from aiokclient.consumer.fetching.broker_fetcher import BrokerFetcher
from aiokclient.consumer.fetching.responses import PartitionResponses
from aiokclient.consumer.fetching.session import NO_TOPIC_ID, Wanted
from aiokclient.consumer.state.offset_reset import EARLIEST
from aiokclient.consumer.state.partition import PartitionState, Phase
from aiokclient.types import TopicPartition

if TYPE_CHECKING:
    from aiokclient.consumer.engine import ConsumerEngine

SILENCE_S: Final = 1.0
"""Seconds without an answer that is due, after which a broker counts as silent."""
LOOKED_UP: Final = frozenset({Phase.RESETTING, Phase.VALIDATING})
"""The phases in which the leader is asked about a position."""


class FetchManager:
    """The owner of the fetchers, which creates one for each broker with partitions to fetch.

    It owns the fetchers' connections, except for those that `second` owns.
    """

    def __init__(self, engine: ConsumerEngine) -> None:
        self._engine = engine
        self._cluster = engine.cluster
        self._subscription = engine.subscription
        config = engine.config
        # As in Java's client, the leader may name another replica after that time (KIP-392).
        self._preferred_s = config.metadata_max_age_ms / 1000
        self.is_open = False
        """Whether fetching is permitted."""
        self.responses = PartitionResponses(engine, self)
        self._fresh = EARLIEST if config.new_partitions == "earliest" else None
        self._fetchers: dict[int, BrokerFetcher] = {}
        self.second = (self, "second connection")
        """The owner of the connections of `MovedPositions`."""

    def start(self) -> None:
        """Start to fetch and to listen to changes."""
        self.is_open = True
        self._subscription.add_change_listener(self.update_fetchers)
        self.on_metadata(self._cluster.metadata)

    async def stop(self, timeout: float) -> None:
        """Send no more fetches; end the sessions at idle brokers within `timeout` seconds."""
        self.is_open = False
        ends = [fetcher.end_session() for fetcher in self._fetchers.values()]
        told = [end for end in ends if end is not None]
        if told and timeout > 0:
            await asyncio.wait(told, timeout=timeout)

    def on_metadata(self, metadata: ClusterMetadata) -> None:
        """Take leaders and topic ids from the metadata."""
        self._subscription.update_positions()
        for state in list(self._subscription.partitions.values()):
            self._update_leader(state, metadata)
        self._subscription.report_change()

    def _update_leader(self, state: PartitionState, metadata: ClusterMetadata) -> None:
        info = metadata.find_topic(state.tp.topic)
        if info is not None and not info.error and info.topic_id != NO_TOPIC_ID:
            fresh = self._fresh or self._subscription.reset
            self._subscription.set_topic_id(state, info.topic_id, fresh)
        leader = metadata.find_leader(*state.tp)
        state.fetch.set_leader(leader if leader in metadata.brokers else -1)
        if state.set_leader_epoch(metadata.find_leader_epoch(*state.tp)):
            self._subscription.log.write(
                logging.INFO,
                ("new leader", state.tp),
                "%s has a new leader: its position is validated",
                state.tp,
                extra={"event": "leader_changed", "topic": state.tp.topic},
            )

    def describe_silence(self, state: PartitionState) -> str | None:
        """Return a text about the broker that keeps a partition from being read by not answering.

        Returns None if there is no such broker. Synchronous.
        """
        node_id = state.fetch.preferred if state.fetch.preferred >= 0 else state.fetch.leader
        if state.is_readable:
            fetcher = self._fetchers.get(node_id)
            seconds = 0.0 if fetcher is None else fetcher.get_silence_s()
        elif state.phase in LOOKED_UP and state.retry.at == math.inf:
            seconds = self._cluster.measure_silence_s(node_id)
        else:
            return None
        if seconds < SILENCE_S:
            return None
        return f"broker {node_id}, its leader, has not answered for {seconds:.0f} s"

    def update_fetchers(self) -> None:
        """Wake the fetchers, and create those that are missing."""
        if not self.is_open:
            return
        now = self._cluster.clock.monotonic()
        metadata = self._cluster.metadata
        moved: dict[int, None] = {}
        for state in self._subscription.partitions.values():
            if state.fetch.leader < 0:
                self._subscription.update_positions()
                self._update_leader(
                    state, metadata
                )  # A partition that was just assigned has no leader.
            if state.is_readable:
                node_id = self.find_node(state, now)
                if node_id >= 0 and node_id not in self._fetchers:
                    self._begin_fetcher(node_id)
                want = state.fetch.want
                if want is not None and want.generation != state.generation:
                    moved[node_id] = None
        for fetcher in self._fetchers.values():
            fetcher.wake.set()
            if fetcher.node_id in moved:
                fetcher.moved.fetch_moved()

    def _begin_fetcher(self, node_id: int) -> None:
        fetcher = self._fetchers[node_id] = BrokerFetcher(node_id, self._engine)
        self._engine.supervisor.spawn(
            self._run_fetcher, fetcher, name=f"fetch from broker {node_id}"
        )

    async def _run_fetcher(self, fetcher: BrokerFetcher) -> None:
        await fetcher.run()
        # The fetcher has nothing left to fetch. A new one is created when necessary.
        if self._fetchers.get(fetcher.node_id) is fetcher:
            del self._fetchers[fetcher.node_id]

    # -- what to fetch, and from which broker

    def find_node(self, state: PartitionState, now: float) -> int:
        """Return the broker to fetch a partition from, -1 if there is none."""
        fetch = state.fetch
        if fetch.preferred >= 0:
            if fetch.is_replica_usable(now) and fetch.preferred in self._cluster.metadata.brokers:
                return fetch.preferred
            fetch.use_leader()
            # The leader's fetcher may have to be woken or created.
            self._engine.supervisor.callbacks.call_soon(self.update_fetchers)
        return fetch.leader

    def reads_from(self, node_id: int) -> bool:
        """Return whether any partition is fetched from the broker, paused ones included."""
        now = self._cluster.clock.monotonic()
        states = self._subscription.partitions.values()
        return self.is_open and any(self.find_node(state, now) == node_id for state in states)

    def find_topics(self, node_id: int) -> list[str]:
        """Return the topics with a partition that is fetched from the broker."""
        now = self._cluster.clock.monotonic()
        states = self._subscription.partitions.values()
        topics = [state.tp.topic for state in states if self.find_node(state, now) == node_id]
        return list(dict.fromkeys(topics))

    def find_wanted(
        self, node_id: int, now: float
    ) -> tuple[dict[TopicPartition, Wanted], float | None]:
        """Return the partitions to fetch from a broker now, and the time at which to look again.

        The time is None if no partition is fetched from the broker, paused ones included.
        """
        wanted: dict[TopicPartition, Wanted] = {}
        retry_at, is_read = math.inf, False
        # This loop must be fast: it examines thousands of partitions for each request.
        for tp, state in self._subscription.partitions.items():
            fetch = state.fetch
            if fetch.preferred < 0:
                if fetch.leader != node_id:
                    continue
            elif self.find_node(state, now) != node_id:
                continue
            is_read = True
            if not state.is_readable:
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
        return (wanted, retry_at) if is_read and self.is_open else ({}, None)

    # -- preferred replicas

    def must_omit_rack(self, tps: Iterable[TopicPartition]) -> bool:
        """Return whether to omit the rack, so that a broker names no replica that has failed."""
        now = self._cluster.clock.monotonic()
        partitions = self._subscription.partitions
        return any(tp in partitions and partitions[tp].fetch.is_resting(now) for tp in tps)

    def prefer_replica(self, state: PartitionState, replica: int) -> bool:
        """Fetch from a replica that the leader prefers; return whether the replica is usable."""
        now = self._cluster.clock.monotonic()
        if replica in self._cluster.metadata.brokers and not state.fetch.is_resting(now):
            state.fetch.prefer_replica(replica, now, self._preferred_s)
            return True
        state.fetch.rest_replica(now)
        return False

    def leave_replica(self, node_id: int) -> None:
        """Fetch partitions from their leaders instead of a replica that does not respond."""
        now = self._cluster.clock.monotonic()
        for state in self._subscription.partitions.values():
            if state.fetch.preferred == node_id:
                state.fetch.rest_replica(now)
        self.update_fetchers()  # Here, the subscription does not change.
