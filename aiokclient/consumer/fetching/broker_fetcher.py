"""The fetch loop of one broker, which sends one request at a time in one fetch session.

The next request is sent as soon as the batch headers of the last response are read, so that data
arrives while the application processes records. No request is sent while two responses are unread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping
from typing import Final

from aiokclient.cluster.client import ClusterClient
from aiokclient.config.consumer import ConsumerConfig
from aiokclient.consumer.fetching.broker_requests import BrokerRequests
from aiokclient.consumer.fetching.broker_responses import BrokerResponses, useful
from aiokclient.consumer.fetching.empty_responses import EmptyResponses
from aiokclient.consumer.fetching.moved_positions import MovedPositions
from aiokclient.consumer.fetching.oversized import OversizedFetches
from aiokclient.consumer.fetching.responses import PartitionResponses
from aiokclient.consumer.fetching.routes import Routes
from aiokclient.consumer.fetching.session import FetchSession, SessionState, Wanted
from aiokclient.consumer.state.wakeup import Wakeup
from aiokclient.errors import KafkaError, ResponseTooLargeError, error_for
from aiokclient.network.connection import BrokerConnection
from aiokclient.policy import Decision, Scope
from aiokclient.protocol.messages.fetch import FetchResponse
from aiokclient.types import TopicPartition

__all__ = ["BrokerFetcher"]

SESSION_MISMATCH: Final = 71


class BrokerFetcher:
    """The fetch loop of one broker.

    Other objects set `wake` after changes that may affect the next request. `owners` has the owners
    of the main connection and of the connection of `MovedPositions`.
    """

    def __init__(
        self,
        node_id: int,
        cluster: ClusterClient,
        config: ConsumerConfig,
        routes: Routes,
        responses: PartitionResponses,
        *,
        owners: tuple[Hashable, Hashable],
        spawn: Callable[..., None],
    ) -> None:
        self.node_id = node_id
        self.wake = Wakeup()
        self._clock = cluster.clock
        self._routes = routes
        self._responses = responses
        self._owner, second_owner = owners
        self._requests = BrokerRequests(node_id, cluster, config, routes)
        self._incoming = BrokerResponses(node_id, cluster, responses, self._freed)
        self._empty = EmptyResponses(cluster.clock, config)
        self._moved = MovedPositions(
            self._requests,
            self._incoming,
            routes,
            second_owner,
            cluster.clock,
            in_flight=lambda: self._asked if self._in_flight else {},
            ended=self.wake.set,
            spawn=spawn,
        )
        self._session = FetchSession(self._requests.options)
        self._oversized = OversizedFetches(self._requests.options, responses)
        self._connection: BrokerConnection | None = None
        self._retry = responses.retry()
        self._in_flight = False
        self._unanswered_since: float | None = None
        """The time at which the broker was to answer or accept a connection, and has not yet."""
        self._max_wait_s = config.fetch_max_wait_ms / 1000
        self._asked: Mapping[TopicPartition, Wanted] = {}
        """The contents of the request in flight, or of the last one."""

    async def run(self) -> None:
        """Fetch repeatedly, as long as any partition is to be fetched from this broker."""
        while self._routes.reads_from(self.node_id):
            await self._turn()
        self.end_session()

    def silent_for(self) -> float:
        """Return the seconds since an answer of the broker was due; 0.0 if none is. Synchronous.

        A broker may wait for records for `fetch_max_wait_ms`, and for the end of a throttle time.
        """
        since, connection = self._unanswered_since, self._connection
        if since is None or (connection is not None and connection.is_busy):
            return 0.0
        return self._clock.monotonic() - since - self._max_wait_s

    def hurry(self) -> None:
        """Fetch the partitions that have moved while a request was in flight. Synchronous.

        A partition has moved if its position was changed, for example by a seek.
        """
        self._moved.fetch()

    async def _turn(self) -> None:
        if self._incoming.full:
            await self.wake.wait()
            return
        await self._moved.settled()
        known = self._asked
        wanted, retry_at = self._routes.wanted(self.node_id)
        if not wanted:
            self._unanswered_since = None
            await self.wake.wait(retry_at)
            return
        if self._empty.pauses(known, wanted):
            await self.wake.wait(self._empty.until)
            return
        if self._unanswered_since is None:
            self._unanswered_since = self._clock.monotonic()
        try:
            connection = self._requests.connected(self._owner)
            if connection is None:
                connection = await self._requests.connect(self._owner)
                # Connecting took time, so other partitions may have to be fetched now.
                wanted, _ = self._routes.wanted(self.node_id)
            self._note(connection)
            chosen, apart = self._oversized.choose(wanted)
            if apart is not None:
                await self._fetch_apart(connection, apart, chosen)
            elif chosen:
                await self._fetch(connection, chosen)
        except ResponseTooLargeError as error:
            self._unanswered_since = None
            self._session.lost()
            self._session.limit(self._oversized.on_too_large(self._asked, error))
        except KafkaError as error:
            self._session.lost()
            await self._failed(error)

    async def _fetch(
        self, connection: BrokerConnection, wanted: Mapping[TopicPartition, Wanted]
    ) -> None:
        begun = self._clock.monotonic()
        response = await self._request(connection, self._session, wanted)
        seconds = self._clock.monotonic() - begun
        self._empty.received(useful=useful(response), seconds=seconds)
        self._take(response, seconds)

    async def _fetch_apart(
        self,
        connection: BrokerConnection,
        session: FetchSession,
        wanted: Mapping[TopicPartition, Wanted],
    ) -> None:
        """Fetch some partitions without the session of the others."""
        response = await self._request(connection, session, wanted, once=True)
        refusal = error_for(response.error_code, api="Fetch", broker=self.node_id)
        if refusal is not None:
            raise refusal
        self._incoming.deliver(session.answers(response), response)

    async def _request(
        self,
        connection: BrokerConnection,
        session: FetchSession,
        wanted: Mapping[TopicPartition, Wanted],
        *,
        once: bool = False,
    ) -> FetchResponse:
        self._asked, self._in_flight = wanted, True
        try:
            response = await self._requests.fetch(connection, session, wanted, once=once)
        finally:
            self._in_flight = False
            self._moved.superseded()
        self._unanswered_since = None
        return response

    def _note(self, connection: BrokerConnection) -> None:
        if connection is not self._connection:
            # The broker keeps the session, but its last response may be lost. So a new session
            # begins on the new connection.
            self._session.lost()
            self._connection = connection

    def _take(self, response: FetchResponse, seconds: float) -> None:
        refusal = error_for(response.error_code, api="Fetch", broker=self.node_id)
        if refusal is not None:
            forgotten = self._session.refused(response.error_code)
            if forgotten and not self._retry.attempt:
                # Try a new session immediately. If it is refused as well, the fetcher backs off.
                self._retry.next_attempt()
                return
            raise refusal
        self._incoming.deliver(self._session.answers(response), response, seconds)
        if self._session.state is SessionState.BROKEN:
            mismatch = error_for(
                SESSION_MISMATCH, "The response does not match the request.", broker=self.node_id
            )
            assert mismatch is not None
            raise mismatch
        self._retry.succeeded()

    def _freed(self) -> None:
        self.wake.set()
        self._moved.proceed()

    async def _failed(self, error: KafkaError) -> None:
        action = self._retry.failed(error, Scope.FETCH)
        self._routes.leave_replica(self.node_id)
        delay_s = action.delay_s
        if action.decision is Decision.REFRESH_AND_RETRY:
            self._responses.refresh(self.node_id)
        elif action.decision is not Decision.RETRY:
            self._responses.unusable(self.node_id, error)
            delay_s = self._responses.longest_backoff_s
        await asyncio.sleep(delay_s)

    def end_session(self) -> asyncio.Future[FetchResponse] | None:
        """Send the request that ends the session at the broker; return the future of its response.

        Sends nothing and returns None if there is no session or no connection, or if a fetch is in
        flight.
        """
        connection = self._requests.connected(self._owner)
        if connection is None or connection.in_flight:
            return None
        return self._requests.end(connection, self._session)
