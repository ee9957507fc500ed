"""The broker at the other end of a connection: its id, its address, and what it supports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from aiokclient.config.kinds import written
from aiokclient.errors import KafkaError
from aiokclient.protocol.api import negotiate

if TYPE_CHECKING:
    from aiokclient.protocol.schema import Request

__all__ = ["ConnectedBroker"]


class ConnectedBroker:
    """The broker of one connection. What it supports is known once the connection is ready.

    `node_id` is the broker id (negative for a bootstrap server), and `address` the address as
    configured or advertised. `api_versions` maps each API key that the broker supports to its
    lowest and highest version, and `features` maps the finalized features of the cluster to their
    levels. `session_lifetime_ms` is the time in milliseconds for which the broker accepts the
    authentication, or 0 for no limit.
    """

    __slots__ = (
        "_negotiated",
        "address",
        "api_versions",
        "features",
        "node_id",
        "session_lifetime_ms",
    )

    def __init__(self, node_id: int, host: str, port: int) -> None:
        self.node_id = node_id
        self.address = written((host, port))
        self.api_versions: Mapping[int, tuple[int, int]] = {}
        self.features: Mapping[str, int] = {}
        self.session_lifetime_ms = 0
        self._negotiated: dict[type[Request[Any]], int] = {}

    def rename(self, node_id: int) -> None:
        """Set the broker id, once it is known which broker the bootstrap server is."""
        self.node_id = node_id

    def supports(
        self,
        api_versions: Mapping[int, tuple[int, int]],
        features: Mapping[str, int],
        session_lifetime_ms: int,
    ) -> None:
        """Store the properties that the broker reported while the connection was set up."""
        self.api_versions = api_versions
        self.features = features
        self.session_lifetime_ms = session_lifetime_ms
        self._negotiated.clear()

    def renew(self, session_lifetime_ms: int) -> None:
        """Store the lifetime of the session, in milliseconds, after a repeated authentication."""
        self.session_lifetime_ms = session_lifetime_ms

    def learn_levels(self, features: Mapping[str, int]) -> None:
        """Store the levels of the finalized features, which may change while the broker runs."""
        self.features = features

    def version_of(self, request: type[Request[Any]]) -> int:
        """Return the version in which a request is sent to this broker.

        Raises UnsupportedVersionError, which names the versions of both sides, if they have none
        in common.
        """
        version = self._negotiated.get(request)
        if version is None:
            try:
                version = negotiate(request, self.api_versions.get(request.api_key))
            except KafkaError as error:
                error.broker = self.node_id
                raise
            self._negotiated[request] = version
        return version
