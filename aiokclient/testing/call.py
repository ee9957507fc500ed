"""One request on its way through a broker: what a handler is given and what it gives back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeAlias

from aiokclient.testing.faults import Refusal

if TYPE_CHECKING:
    from aiokclient.protocol import ApiKey
    from aiokclient.protocol.schema import Response
    from aiokclient.testing.broker import Broker
    from aiokclient.testing.connection import BrokerProtocol
    from aiokclient.testing.faults import Fault
    from aiokclient.testing.state import ClusterState

Reply: TypeAlias = "Response | asyncio.Future[Response | None] | None"
"""What a handler gives: an answer, none at all (`acks=0`), or one that comes later.

The future of an answer that comes later is cancelled when the connection is lost; a handler
that waits for something hangs its cleaning up on it (`add_done_callback`).
"""


class Call:
    """A request, who received it, and which faults apply to it."""

    __slots__ = (
        "_refusals",
        "_spoken",
        "api",
        "broker",
        "client_id",
        "owner",
        "request",
        "version",
    )

    def __init__(
        self,
        broker: Broker,
        api: ApiKey,
        version: int,
        request: Any,
        client_id: str | None,
        owner: BrokerProtocol,
        faults: list[Fault],
    ) -> None:
        self.broker = broker
        self.api = api
        self.version = version
        self.request = request
        self.client_id = client_id
        self.owner = owner
        """The connection: whatever lives only as long as that can be kept by it."""
        self._refusals = [each for each in faults if isinstance(each, Refusal)]
        self._spoken: list[Refusal] = []

    @property
    def cluster(self) -> ClusterState:
        return self.broker.cluster

    def refused(self, topic: str | None = None, partition: int | None = None) -> int:
        """The error code with which a test wants this (part of the) request refused, or 0.

        A refusal counts as used once for a request, however many partitions it covers.
        """
        for each in self._refusals:
            if each.covers(topic, partition):
                if each not in self._spoken:
                    self._spoken.append(each)
                    each.use()
                return each.code
        return 0

    def later(self) -> asyncio.Future[Response | None]:
        """For an answer that comes later."""
        return self.cluster.loop.create_future()
