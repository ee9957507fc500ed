"""The client that producers, consumers, admins, and group members may share."""

from __future__ import annotations

from typing import Any, Protocol

from aiokclient.cluster.client import ClusterClient
from aiokclient.cluster.lifecycle.ownership import Anchor
from aiokclient.config.client import ClientConfig
from aiokclient.errors import ConfigError
from aiokclient.network.event_hub import EventHub

__all__ = ["ClientLike", "config_of"]


class ClientLike(Protocol):
    """The interface of a client that producers, consumers, admins, and group members share."""

    @property
    def cluster(self) -> ClusterClient:
        """The cluster client. Raises ClosedError or IllegalStateError if the client is not open."""
        ...

    @property
    def config(self) -> ClientConfig: ...

    @property
    def hub(self) -> EventHub:
        """The events of this client and its children."""
        ...

    def adopt(self, child: Anchor[Any]) -> None:
        """Register a child, which is closed with the client if it still exists then."""
        ...

    def disown(self, child: Anchor[Any]) -> None:
        """Forget a child that was closed on its own."""
        ...


def config_of(client: ClientLike | None) -> ClientConfig | None:
    """Return the options of a shared client, or None without a client.

    Raises ConfigError for an object that is not a client.
    """
    if client is None:
        return None
    config = getattr(client, "config", None)
    if not isinstance(config, ClientConfig):
        raise ConfigError(f"client: {client!r} is not an aiokclient.Client. Make one and share it.")
    return config
