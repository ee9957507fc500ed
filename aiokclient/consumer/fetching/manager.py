"""The manager of a consumer's fetchers. There is one fetcher for each broker.

The manager listens to the subscription and the metadata. It creates and wakes the fetchers, which
nothing else calls.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import Final

from aiokclient.cluster.client import ClusterClient
from aiokclient.cluster.lifecycle.supervisor import Supervisor
from aiokclient.cluster.metadata.snapshot import ClusterMetadata
from aiokclient.config.consumer import ConsumerConfig
from aiokclient.consumer.fetching.broker_fetcher import BrokerFetcher
from aiokclient.consumer.fetching.buffer import FetchBuffer
from aiokclient.consumer.fetching.responses import PartitionResponses
from aiokclient.consumer.fetching.routes import Routes
from aiokclient.consumer.fetching.session import NO_TOPIC_ID
from aiokclient.consumer.state.offset_reset import EARLIEST
from aiokclient.consumer.state.partition import PartitionState, Phase
from aiokclient.consumer.state.subscription import Reports, SubscriptionState
from aiokclient.consumer.state.wakeup import Wakeup

__all__ = ["FetchManager"]


SILENCE_S: Final = 1.0
"""Seconds without an answer that is due, after which a broker counts as silent."""
LOOKED_UP: Final = frozenset({Phase.RESETTING, Phase.VALIDATING})
"""The phases in which the leader is asked about a position."""


class FetchManager:
    """The owner of the fetchers, which creates one for each broker with partitions to fetch.

    It owns the fetchers' connections, except for those that `second` owns.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        buffer: FetchBuffer,
        arrived: Wakeup,
        reports: Reports,
        supervisor: Supervisor,
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._subscription = subscription
        self._supervisor = supervisor
        self._routes = Routes(cluster, config, subscription, self, supervisor.callbacks)
        self.responses = PartitionResponses(
            cluster, config, subscription, buffer, self._routes, arrived, reports
        )
        self._fresh = EARLIEST if config.new_partitions == "earliest" else None
        self._fetchers: dict[int, BrokerFetcher] = {}
        self.second = (self, "second connection")
        """The owner of the connections of `MovedPositions`."""

    def start(self) -> None:
        """Start to fetch and to listen to changes."""
        self._routes.permit_fetching()
        self._subscription.listen(self.update_fetchers)
        self.observe(self._cluster.metadata)

    async def stop(self, timeout: float) -> None:
        """Send no more fetches; end the sessions at idle brokers within `timeout` seconds."""
        self._routes.stop_fetching()
        ends = [fetcher.end_session() for fetcher in self._fetchers.values()]
        told = [end for end in ends if end is not None]
        if told and timeout > 0:
            await asyncio.wait(told, timeout=timeout)

    def observe(self, metadata: ClusterMetadata) -> None:
        """Take leaders and topic ids from the metadata."""
        self._subscription.settle()
        for state in list(self._subscription.partitions.values()):
            self._observe(state, metadata)
        self._subscription.report_change()

    def _observe(self, state: PartitionState, metadata: ClusterMetadata) -> None:
        info = metadata.topic(state.tp.topic)
        if info is not None and not info.error and info.topic_id != NO_TOPIC_ID:
            fresh = self._fresh or self._subscription.reset
            self._subscription.bind(state, info.topic_id, fresh)
        leader = metadata.leader(*state.tp)
        state.fetch.led_by(leader if leader in metadata.brokers else -1)
        if state.new_leader(metadata.leader_epoch(*state.tp)):
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
        if state.flowing:
            fetcher = self._fetchers.get(node_id)
            seconds = 0.0 if fetcher is None else fetcher.silent_for()
        elif state.phase in LOOKED_UP and state.retry.at == math.inf:
            seconds = self._cluster.silent_for(node_id)
        else:
            return None
        if seconds < SILENCE_S:
            return None
        return f"broker {node_id}, its leader, has not answered for {seconds:.0f} s"

    def update_fetchers(self) -> None:
        """Wake the fetchers, and create those that are missing."""
        if not self._routes.is_open:
            return
        now = self._cluster.clock.monotonic()
        metadata = self._cluster.metadata
        moved: dict[int, None] = {}
        for state in self._subscription.partitions.values():
            if state.fetch.leader < 0:
                self._subscription.settle()
                self._observe(state, metadata)  # A partition that was just assigned has no leader.
            if state.flowing:
                node_id = self._routes.find_node(state, now)
                if node_id >= 0 and node_id not in self._fetchers:
                    self._begin_fetcher(node_id)
                want = state.fetch.want
                if want is not None and want.generation != state.generation:
                    moved[node_id] = None
        for fetcher in self._fetchers.values():
            fetcher.wake.set()
            if fetcher.node_id in moved:
                fetcher.fetch_moved()

    def _begin_fetcher(self, node_id: int) -> None:
        fetcher = self._fetchers[node_id] = BrokerFetcher(
            node_id,
            self._cluster,
            self._config,
            self._routes,
            self.responses,
            owners=(self, self.second),
            supervisor=self._supervisor,
        )
        self._supervisor.spawn(self._run, fetcher, name=f"fetch from broker {node_id}")

    async def _run(self, fetcher: BrokerFetcher) -> None:
        await fetcher.run()
        # The fetcher has nothing left to fetch. A new one is created when necessary.
        if self._fetchers.get(fetcher.node_id) is fetcher:
            del self._fetchers[fetcher.node_id]
