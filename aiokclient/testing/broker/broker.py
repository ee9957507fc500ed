"""One broker: its place in the cluster, its connections, what it announces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokclient.testing.broker.configs import BROKER_OPTIONS, Configs, ConfigSource
from aiokclient.testing.broker.connection import BrokerProtocol
from aiokclient.testing.broker.sessions import FetchSessions

if TYPE_CHECKING:
    from aiokclient.testing.broker.listener import Listener, Listening
    from aiokclient.testing.broker.state import ClusterState


class Broker:
    """A broker listens or is down; paused it takes connections and answers nothing.

    `host` and `port` are what clients are told (KIP-103's advertised listener); the port stays
    the same from the first start on.
    """

    def __init__(
        self, cluster: ClusterState, node_id: int, host: str, port: int, rack: str | None
    ) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.host = host
        self.port = port
        self.rack = rack
        self.paused = False
        self.configs = Configs(BROKER_OPTIONS, ConfigSource.DYNAMIC_BROKER, cluster.configs)
        self.sessions = FetchSessions(self)
        self._listening: Listening | None = None
        self._connections: dict[BrokerProtocol, None] = {}

    def __repr__(self) -> str:
        return f"<broker {self.node_id} at {self.host}:{self.port}>"

    @property
    def alive(self) -> bool:
        return self._listening is not None

    @property
    def connections(self) -> int:
        return len(self._connections)

    def listen(self, listener: Listener, host: str) -> None:
        """Be there at `host`, to `serve`; raises OSError when the port is not to be had."""
        self._listening = listener.listen(host, self.port, self._accept)
        self.port = self._listening.port

    async def serve(self) -> None:
        """Take connections, unless it was killed meanwhile."""
        if self._listening is not None:
            await self._listening.serve()

    def shut(self) -> None:
        """Stop at once, as if killed: connections are cut, sessions forgotten."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        self.disconnect()
        self.sessions = FetchSessions(self)
        self.paused = False

    def disconnect(self) -> None:
        """Cut all connections; new ones are taken."""
        for connection in list(self._connections):
            connection.abort()

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        for connection in list(self._connections):
            connection.pump()

    def _accept(self) -> BrokerProtocol:
        return BrokerProtocol(self)

    def connected(self, connection: BrokerProtocol) -> None:
        self._connections[connection] = None
        if not self.alive:
            # Accepted by the operating system before the listener was closed.
            connection.abort()

    def disconnected(self, connection: BrokerProtocol) -> None:
        self._connections.pop(connection, None)
