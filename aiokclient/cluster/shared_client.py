"""The client that producers, consumers, admins and group members may share."""

from __future__ import annotations

from typing import Any, Protocol

from aiokclient.cluster.client import ClusterClient
from aiokclient.cluster.ownership import Anchor
from aiokclient.config import ClientConfig
from aiokclient.errors import ConfigError

__all__ = ["ClientLike", "config_of"]


class ClientLike(Protocol):
    """What a producer, consumer or admin needs of the client that it is given."""

    @property
    def cluster(self) -> ClusterClient:
        """Connections and metadata; raises unless the client is open."""
        ...

    @property
    def config(self) -> ClientConfig: ...

    def adopt(self, child: Anchor[Any]) -> None:
        """Close the child when the client is closed, unless the child is gone by then."""
        ...

    def disown(self, child: Anchor[Any]) -> None:
        """Forget a child that has ended by itself."""
        ...


def config_of(client: ClientLike | None) -> ClientConfig | None:
    """Return the options of a client that is given to share, or None without one.

    Raises ConfigError for an object that is no client.
    """
    if client is None:
        return None
    config = getattr(client, "config", None)
    if not isinstance(config, ClientConfig):
        raise ConfigError(f"client: {client!r} is not an aiokclient.Client. Make one and share it.")
    return config
