"""The owners of the connections on which ranges are fetched.

A fetch may wait at the broker, so it never uses the connection of other requests. Connections of
ranges that have ended are used again, because a new one takes several round trips, and with TLS
and SASL even more.
"""

from __future__ import annotations

from typing import Final

from aiokclient.cluster.client import ClusterClient

__all__ = ["RangeConnections", "RangeOwner"]

KEPT: Final = 8
"""The largest number of owners without a range whose connections stay open."""


class RangeOwner:
    """The owner of the connections of one range at a time: at most one connection per broker."""

    __slots__ = ("__weakref__",)


class RangeConnections:
    """The owners of a client's connections for ranges."""

    def __init__(self) -> None:
        self._unused: list[RangeOwner] = []

    def take(self) -> RangeOwner:
        """Return an owner for a range. Its connections may be open already."""
        return self._unused.pop() if self._unused else RangeOwner()

    def give_back(self, owner: RangeOwner, cluster: ClusterClient, *, idle: bool) -> None:
        """End the use of an owner. Its connections stay open only if they are `idle`."""
        if idle and len(self._unused) < KEPT:
            cluster.updater.unwant(owner)
            self._unused.append(owner)
        else:
            cluster.release(owner)
