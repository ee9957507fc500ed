"""The fetch of partitions whose positions have moved while a request is in flight.

A broker answers the requests of a connection in order, and may hold the request in flight until
there are records. So these partitions are fetched on a second connection, without a session.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Final

from aiokclient.clock import Clock
from aiokclient.consumer.fetching.broker_requests import BrokerRequests
from aiokclient.consumer.fetching.broker_responses import BrokerResponses, useful
from aiokclient.consumer.fetching.routes import Routes
from aiokclient.consumer.fetching.session import FetchSession, Wanted
from aiokclient.consumer.state.wakeup import Wakeup
from aiokclient.errors import KafkaError
from aiokclient.network.connection import BrokerConnection
from aiokclient.types import TopicPartition

__all__ = ["MovedPositions"]

EVERY_S: Final = 0.05
"""Seconds between two requests if the first one returned no records."""
LONGEST_S: Final = 1.0
"""The longest time, in seconds, that the main connection waits for the second connection."""


class MovedPositions:
    """The requests of one fetcher on its second connection.

    `in_flight` returns the contents of the request in flight on the main connection, and `ended` is
    called when no more requests follow on the second one.
    """

    def __init__(
        self,
        requests: BrokerRequests,
        responses: BrokerResponses,
        routes: Routes,
        owner: Hashable,
        clock: Clock,
        *,
        in_flight: Callable[[], Mapping[TopicPartition, Wanted]],
        ended: Callable[[], None],
        spawn: Callable[..., None],
    ) -> None:
        self._requests = requests
        self._responses = responses
        self._routes = routes
        self._owner = owner
        self._clock = clock
        self._in_flight = in_flight
        self._ended = ended
        self._spawn = spawn
        self._wanted = self._running = self._sent = False
        self._answered = Wakeup()
        self._again = Wakeup()

    def fetch(self) -> None:
        """Fetch the partitions that have moved since the main connection's request. Synchronous."""
        self._wanted = True
        self._again.set()
        self.proceed()

    def proceed(self) -> None:
        """Continue to fetch if there is room for a response."""
        if self._wanted and self._in_flight() and not (self._running or self._responses.full):
            self._running = True
            name = f"fetch from broker {self._requests.node_id} after a seek"
            self._spawn(self._run, name=name)

    def superseded(self) -> None:
        """Stop after the present request, because the request on the main connection has ended."""
        self._wanted = False

    async def settled(self) -> None:
        """Wait at most LONGEST_S seconds until no request is in flight on the second connection.

        Call it before the next request on the main connection, which includes the same partitions.
        """
        until = self._clock.monotonic() + LONGEST_S
        while self._sent and await self._answered.wait(until):
            pass

    async def _run(self) -> None:
        try:
            while self._moved() and not self._responses.full:
                connection = await self._requests.connect(self._owner)
                if wanted := self._moved():
                    await self._fetch(connection, wanted)
        except KafkaError:
            pass  # The next request on the main connection includes the same partitions.
        finally:
            self._running = False
            self._ended()

    def _moved(self) -> dict[TopicPartition, Wanted]:
        """Return what to fetch for each partition whose position has changed.

        The positions are compared with those in the request in flight on the main connection.
        """
        asked = self._in_flight()
        wanted = self._routes.wanted(self._requests.node_id)[0] if asked else {}
        return {
            tp: want
            for tp, want in wanted.items()
            if tp in asked and asked[tp].generation != want.generation
        }

    async def _fetch(
        self, connection: BrokerConnection, wanted: Mapping[TopicPartition, Wanted]
    ) -> None:
        session = FetchSession(self._requests.options)
        self._sent = True
        try:
            response = await self._requests.fetch(connection, session, wanted, once=True)
        finally:
            self._sent = False
            self._answered.set()
        if not response.error_code:
            self._responses.deliver(session.answers(response), response)
        if not useful(response):
            await self._again.wait(self._clock.monotonic() + EVERY_S)
