"""One broker of the embedded cluster, with its listeners and its connections."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from aiokclient.testing.broker.connections.connection import BrokerProtocol
from aiokclient.testing.broker.node import Endpoint, Node

if TYPE_CHECKING:
    from aiokclient.testing.broker.connections.listener import Listener, Listening
    from aiokclient.testing.broker.state import ClusterState


class EmbeddedBroker(Node):
    """A broker that is either listening or stopped."""

    def __init__(
        self,
        cluster: ClusterState,
        node_id: int,
        endpoints: Mapping[str, Endpoint],
        rack: str | None,
    ) -> None:
        super().__init__(
            node_id,
            endpoints,
            rack,
            defaults=cluster.configs,
            rng=cluster.rng,
            time=lambda: cluster.loop.time(),
        )
        self._cluster = cluster
        self._listening: list[Listening] = []
        self._connections: dict[BrokerProtocol, None] = {}

    @property
    def connections(self) -> int:
        return len(self._connections)

    def open_listeners(self, listener: Listener, host: str) -> None:
        """Open all listeners at `host`; `accept_connections` accepts their connections.

        Raises OSError if a port is not free.
        """
        try:
            for name, endpoint in self.endpoints.items():
                accept = partial(self._make_protocol, name)
                tls = self._cluster.security.server_context(name)
                listening = (
                    listener.listen(host, endpoint.port, accept)
                    if tls is None
                    else listener.listen(host, endpoint.port, accept, tls)
                )
                self._listening.append(listening)
                self.endpoints[name] = endpoint._replace(port=listening.port)
        except BaseException:
            self._stop_listening()
            raise
        self.alive = self.registered = True

    async def accept_connections(self) -> None:
        """Accept connections, unless the broker was stopped meanwhile."""
        for each in list(self._listening):
            await each.serve()

    def kill(self) -> None:
        """Stop immediately, as if killed: cut connections, forget sessions and client instances."""
        self._stop_listening()
        self.alive = False
        # The locks of a killed broker end without being released.
        self.shares.drop_all()
        self.cut_connections()
        self.sessions.evict_all()
        self.client_instances.clear_instances()
        self.paused = False

    def _stop_listening(self) -> None:
        for each in self._listening:
            each.close()
        self._listening.clear()

    def cut_connections(self) -> None:
        """Cut all connections. New ones are accepted."""
        for connection in list(self._connections):
            connection.abort()

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        for connection in list(self._connections):
            connection.handle_queued()

    def _make_protocol(self, listener: str) -> BrokerProtocol:
        return BrokerProtocol(self, self._cluster, self, listener)

    def on_connected(self, connection: BrokerProtocol) -> None:
        self._connections[connection] = None
        if not self.alive:
            # The operating system accepted the connection before the listener was closed.
            connection.abort()

    def on_disconnected(self, connection: BrokerProtocol) -> None:
        self._connections.pop(connection, None)
        self.client_instances.on_disconnected(connection)
        self.shares.on_disconnected(connection)
