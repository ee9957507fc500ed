"""The fetch requests to one broker, on any of the consumer's connections to it."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Mapping

from aiokclient.cluster.client import ClusterClient
from aiokclient.config.consumer import ConsumerConfig
from aiokclient.consumer.fetching.routes import Routes
from aiokclient.consumer.fetching.session import FetchOptions, FetchSession, Wanted
from aiokclient.network.connection import BrokerConnection
from aiokclient.network.pool import Purpose
from aiokclient.protocol.messages.fetch import FetchRequest, FetchResponse
from aiokclient.types import TopicPartition

__all__ = ["BrokerRequests"]


class BrokerRequests:
    """The fetch requests to one broker, and counters of them."""

    def __init__(
        self, node_id: int, cluster: ClusterClient, config: ConsumerConfig, routes: Routes
    ) -> None:
        self.node_id = node_id
        self.options = FetchOptions(
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_max_bytes,
            max_wait_ms=config.fetch_max_wait_ms,
            partition_max_bytes=config.max_partition_fetch_bytes,
            read_committed=config.isolation_level == "read_committed",
            rack_id=config.client_rack or "",
        )
        self._cluster = cluster
        self._routes = routes
        self._timeout_s = (config.request_timeout_ms + config.fetch_max_wait_ms) / 1000
        self._count = cluster.metrics.counter("consumer.fetch.requests", broker=node_id)

    def connected(self, owner: Hashable) -> BrokerConnection | None:
        """Return the owner's connection to the broker, or None if it has none."""
        return self._cluster.connected(self.node_id, Purpose.FETCH, owner)

    async def connect(self, owner: Hashable) -> BrokerConnection:
        """Return the owner's connection to the broker; make it if there is none."""
        return await self._cluster.connect(self.node_id, Purpose.FETCH, owner)

    async def fetch(
        self,
        connection: BrokerConnection,
        session: FetchSession,
        wanted: Mapping[TopicPartition, Wanted],
        *,
        once: bool = False,
    ) -> FetchResponse:
        """Fetch these partitions.

        With `once`, the request uses no session, and the broker does not wait for records.
        """
        version = session.version(wanted, connection.broker.version_of(FetchRequest))
        rack_id = "" if self._routes.hides_rack(wanted) else None
        make = session.without_session if once else session.request
        request = make(wanted, version, rack_id=rack_id)
        self._count.add()
        response: FetchResponse = await connection.send(
            request, timeout_s=self._timeout_s, version=version
        )
        return response

    def end(
        self, connection: BrokerConnection, session: FetchSession
    ) -> asyncio.Future[FetchResponse] | None:
        """Send the request that ends a session at the broker; return the future of its response.

        Returns None if there is no session.
        """
        request = session.final_request()
        if request is None:
            return None
        return connection.send(request, timeout_s=self._timeout_s)
