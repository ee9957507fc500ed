"""One broker of the embedded cluster, with its listener and its connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokclient.testing.broker.connection import BrokerProtocol
from aiokclient.testing.broker.node import Node

if TYPE_CHECKING:
    from aiokclient.testing.broker.listener import Listener, Listening
    from aiokclient.testing.broker.state import ClusterState


class EmbeddedBroker(Node):
    """A broker that is either listening or stopped."""

    def __init__(
        self, cluster: ClusterState, node_id: int, host: str, port: int, rack: str | None
    ) -> None:
        super().__init__(
            node_id,
            host,
            port,
            rack,
            defaults=cluster.configs,
            rng=cluster.rng,
            time=lambda: cluster.loop.time(),
        )
        self._cluster = cluster
        self._listening: Listening | None = None
        self._connections: dict[BrokerProtocol, None] = {}

    @property
    def connections(self) -> int:
        return len(self._connections)

    def listen(self, listener: Listener, host: str) -> None:
        """Open the listener at `host`; `serve` accepts its connections.

        Raises OSError if the port is not free.
        """
        self._listening = listener.listen(host, self.port, self._accept)
        self.port = self._listening.port
        self.alive = True

    async def serve(self) -> None:
        """Accept connections, unless the broker was stopped meanwhile."""
        if self._listening is not None:
            await self._listening.serve()

    def shut(self) -> None:
        """Stop immediately, as if killed: cut all connections and forget all fetch sessions."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        self.alive = False
        self.disconnect()
        self.sessions.evict()
        self.paused = False

    def disconnect(self) -> None:
        """Cut all connections. New ones are accepted."""
        for connection in list(self._connections):
            connection.abort()

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        for connection in list(self._connections):
            connection.pump()

    def _accept(self) -> BrokerProtocol:
        return BrokerProtocol(self, self._cluster, self)

    def connected(self, connection: BrokerProtocol) -> None:
        self._connections[connection] = None
        if not self.alive:
            # The operating system accepted it before the listener was closed.
            connection.abort()

    def disconnected(self, connection: BrokerProtocol) -> None:
        self._connections.pop(connection, None)
