"""The fetch loop of one broker, which sends one request at a time in one fetch session.

The next request is sent as soon as the batch headers of the last response are read, so that data
arrives while the application processes records. No request is sent while two responses are unread.

`BrokerResponses` reads the responses, partition by partition, and chooses their size. Three other
parts handle what is not usual:

- `EmptyResponses` pauses after early and empty responses, from a broker that does not wait for
  records.
- `OversizedFetches` searches for the partition whose next record batch is too large to be received.
  A broker returns at least the first batch of a response, whatever its size. If that makes a
  response larger than `receive_message_max_bytes`, the client closes the connection, and does not
  know which of the requested partitions was the reason. So halves of them are fetched apart, and
  then halves of these, until one partition is left. Its next batch, fetched alone, is beyond the
  limit. From then on it is fetched apart, so that it does not affect other partitions: it may be
  deleted, or another broker may have a shorter batch.
- `MovedPositions` fetches partitions whose positions have moved while a request is in flight. A
  broker answers the requests of a connection in order, and may hold the request in flight until
  there are records. So these partitions are fetched on a second connection, without a session.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Final

from aiokclient.background import Wakeup
from aiokclient.clock import Clock
from aiokclient.config.consumer import ConsumerConfig
from aiokclient.consumer.fetching.responses import BrokerResponses, PartitionResponses
from aiokclient.consumer.fetching.session import FetchOptions, FetchSession, SessionState, Wanted
from aiokclient.errors import KafkaError, ResponseTooLargeError, error_for
from aiokclient.network.connection import BrokerConnection
from aiokclient.network.pool import Purpose
from aiokclient.policy import Attempts, Backoff, Decision, Scope
from aiokclient.protocol.messages.fetch import FetchRequest, FetchResponse
from aiokclient.types import TopicPartition

if TYPE_CHECKING:
    from aiokclient.consumer.engine import ConsumerEngine

IDLE_S: Final = 0.01
"""Seconds of the first pause."""


class EmptyResponses:
    """The consecutive early and empty responses of one broker.

    A response is early if it arrives before half of `fetch_max_wait_ms`.
    """

    def __init__(self, clock: Clock, config: ConsumerConfig) -> None:
        self.until = -math.inf
        """The end of the pause, on the monotonic clock."""
        self._clock = clock
        self._max_wait_ms = config.fetch_max_wait_ms
        self._backoff = Backoff(IDLE_S, max(Backoff.of(config).initial_s, IDLE_S))
        self._count = 0

    def needs_pause(
        self,
        known: Mapping[TopicPartition, Wanted],
        wanted: Mapping[TopicPartition, Wanted],
        now: float,
    ) -> bool:
        """Return whether to pause before the request `wanted`, after early empty responses.

        There is no pause if `wanted` contains anything that the last request, `known`, did not.
        """
        return self.until > now and all(known.get(tp) is want for tp, want in wanted.items())

    def on_response(self, *, useful: bool, seconds: float) -> None:
        """Record a response that has arrived `seconds` after its request."""
        # A broker that answers much earlier than fetch_max_wait_ms without records would be asked
        # in a tight loop.
        waited = 1000 * seconds >= self._max_wait_ms / 2
        if useful or (waited and self._max_wait_ms):
            self._count = 0
            return
        self._count += 1
        if self._count > 1:
            delay_s = self._backoff.compute_delay_s(self._count - 2, self._clock.rng)
            self.until = self._clock.monotonic() + delay_s


OVERHEAD_SHARE: Final = 2
"""The response limit, divided by this, is the size to request after a response over the limit.

A response is larger than the records in it: it lists partitions and aborted transactions.
"""


class OversizedFetches:
    """The partitions to fetch apart from the others of one broker."""

    def __init__(self, options: FetchOptions, responses: PartitionResponses) -> None:
        self._options = options
        self._responses = responses
        self._groups: list[list[TopicPartition]] = []
        self._fetched: Mapping[TopicPartition, Wanted] = {}
        """The last partitions that were fetched apart."""

    def choose_partitions(
        self, wanted: Mapping[TopicPartition, Wanted]
    ) -> tuple[Mapping[TopicPartition, Wanted], FetchSession | None]:
        """Return what to fetch next of `wanted`.

        If it is to be fetched apart from the rest, also return the session for this one request.
        """
        if not self._groups and not self._responses.obstructed:
            return wanted, None
        found: Mapping[TopicPartition, Wanted] = {}
        while self._groups and not found:
            group = self._groups.pop()
            found = {tp: wanted[tp] for tp in group if tp in wanted}
        if not found:
            alone = next((tp for tp in wanted if self._responses.has_obstructed(tp)), None)
            if alone is None:
                return wanted, None
            found = {alone: wanted[alone]}
        self._fetched = found
        options = self._options
        if len(found) == 1:
            # A broker returns the first batch whole even if it exceeds these limits (KIP-74), so
            # this returns one batch.
            options = options._replace(max_bytes=1, partition_max_bytes=1)
        return found, FetchSession(options)

    def on_too_large(
        self, asked: Mapping[TopicPartition, Wanted], error: ResponseTooLargeError
    ) -> int:
        """Handle a response over the limit; return the size to request from now on, in bytes."""
        max_bytes = min(self._options.max_bytes, max(error.limit // OVERHEAD_SHARE, 1))
        self._options = self._options._replace(max_bytes=max_bytes)
        apart, self._fetched = asked is self._fetched, {}
        names = list(asked)
        if len(names) == 1 and apart:
            self._responses.on_too_large(names[0], asked[names[0]], error)
        elif len(names) == 1:
            self._groups.append(names)
        else:
            half = len(names) // 2
            self._groups += [names[half:], names[:half]]
        return max_bytes


EVERY_S: Final = 0.05
"""Seconds between two requests if the first one returned no records."""
LONGEST_S: Final = 1.0
"""The longest time, in seconds, that the main connection waits for the second connection."""


class MovedPositions:
    """The requests of one fetcher on its second connection."""

    def __init__(self, fetcher: BrokerFetcher, engine: ConsumerEngine) -> None:
        self._fetcher = fetcher
        self._manager = engine.fetchers
        self._clock = engine.cluster.clock
        self._supervisor = engine.supervisor
        self._wanted = self._running = False
        self.is_sent = False
        """Whether a request is in flight on the second connection."""
        self._answered = Wakeup()
        self._again = Wakeup()

    def fetch_moved(self) -> None:
        """Fetch the partitions that have moved since the main connection's request. Synchronous.

        A partition has moved if its position was changed, for example by a seek.
        """
        self._wanted = True
        self._again.set()
        self.fetch_if_room()

    def fetch_if_room(self) -> None:
        """Continue to fetch if there is room for a response."""
        if self._running or not self._wanted or self._fetcher.responses.is_full:
            return
        if self._fetcher.in_flight:
            self._running = True
            name = f"fetch from broker {self._fetcher.node_id} after a seek"
            self._supervisor.spawn(self._send_fetches, name=name)

    def stop_fetching(self) -> None:
        """Stop after the present request, because the request on the main connection has ended."""
        self._wanted = False

    async def wait_for_answer(self) -> None:
        """Wait at most LONGEST_S seconds until no request is in flight on the second connection.

        Call it before the next request on the main connection, which includes the same partitions.
        """
        until = self._clock.monotonic() + LONGEST_S
        while self.is_sent and await self._answered.wait(until):
            pass

    async def _send_fetches(self) -> None:
        try:
            while self._find_moved() and not self._fetcher.responses.is_full:
                connection = await self._fetcher.connect(self._manager.second)
                if wanted := self._find_moved():
                    await self._fetch_partitions(connection, wanted)
        except KafkaError:
            pass  # The next request on the main connection includes the same partitions.
        finally:
            self._running = False
            self._fetcher.wake.set()

    def _find_moved(self) -> dict[TopicPartition, Wanted]:
        """Return what to fetch for each partition whose position has changed.

        The positions are compared with those in the request in flight on the main connection.
        """
        asked = self._fetcher.in_flight
        now = self._clock.monotonic()
        wanted = self._manager.find_wanted(self._fetcher.node_id, now)[0] if asked else {}
        return {
            tp: want
            for tp, want in wanted.items()
            if tp in asked and asked[tp].generation != want.generation
        }

    async def _fetch_partitions(
        self, connection: BrokerConnection, wanted: Mapping[TopicPartition, Wanted]
    ) -> None:
        session = FetchSession(self._fetcher.options)
        self.is_sent = True
        try:
            response = await self._fetcher.send_fetch(connection, session, wanted, once=True)
        finally:
            self.is_sent = False
            self._answered.set()
        if not response.error_code:
            self._fetcher.responses.apply_response(session.read_answers(response), response)
        if not useful(response):
            await self._again.wait(self._clock.monotonic() + EVERY_S)


def useful(response: FetchResponse) -> bool:
    """Return whether a response has records or errors for any partition."""
    for topic in response.responses:
        for partition in topic.partitions:
            if partition.records or partition.error_code:
                return True
    return False


SESSION_MISMATCH: Final = 71


class BrokerFetcher:
    """The fetch loop of one broker.

    Other objects set `wake` after changes that may affect the next request. The manager of the
    fetchers owns the main connection, and its `second` that of `MovedPositions`.
    """

    def __init__(self, node_id: int, engine: ConsumerEngine) -> None:
        cluster, config, manager = engine.cluster, engine.config, engine.fetchers
        self.node_id = node_id
        self.wake = Wakeup()
        self.options = options = FetchOptions(
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_max_bytes,
            max_wait_ms=config.fetch_max_wait_ms,
            partition_max_bytes=config.max_partition_fetch_bytes,
            read_committed=config.isolation_level == "read_committed",
            rack_id=config.client_rack or "",
        )
        self._cluster = cluster
        self._clock = cluster.clock
        self._manager = manager
        self._shared = manager.responses
        # The broker may hold a fetch for fetch_max_wait_ms before it answers.
        self._timeout_s = (config.request_timeout_ms + config.fetch_max_wait_ms) / 1000
        self._requests = cluster.metrics.counter("consumer.fetch.requests", broker=node_id)
        self.responses = BrokerResponses(self, engine)
        self._empty = EmptyResponses(cluster.clock, config)
        self.moved = MovedPositions(self, engine)
        self._session = FetchSession(options)
        self._oversized = OversizedFetches(options, manager.responses)
        self._connection: BrokerConnection | None = None
        self._retry = Attempts(math.inf, manager.responses.backoff.backoff, cluster.clock)
        self.in_flight: Mapping[TopicPartition, Wanted] = {}
        """The contents of the request in flight; empty if there is none."""
        self._unanswered_since: float | None = None
        """The time at which the broker was to answer or accept a connection, and has not yet."""
        self._max_wait_s = config.fetch_max_wait_ms / 1000
        self._asked: Mapping[TopicPartition, Wanted] = {}
        """The contents of the last request."""

    async def run(self) -> None:
        """Fetch repeatedly, as long as any partition is to be fetched from this broker."""
        while await self._take_turn():
            pass
        self.end_session()

    def get_silence_s(self) -> float:
        """Return the seconds since an answer of the broker was due; 0.0 if none is. Synchronous.

        A broker may wait for records for `fetch_max_wait_ms`, and for the end of a throttle time.
        """
        since, connection = self._unanswered_since, self._connection
        if since is None or (connection is not None and connection.is_busy):
            return 0.0
        return self._clock.monotonic() - since - self._max_wait_s

    async def _take_turn(self) -> bool:
        """Fetch or wait. Return False if no partition is to be fetched from this broker."""
        if self.responses.is_full:
            await self.wake.wait()
            return self._manager.reads_from(self.node_id)
        if self.moved.is_sent:
            await self.moved.wait_for_answer()
        known = self._asked
        now = self._clock.monotonic()
        wanted, retry_at = self._manager.find_wanted(self.node_id, now)
        if retry_at is None:
            return False
        if not wanted:
            self._unanswered_since = None
            await self.wake.wait(retry_at)
            return True
        if self._empty.needs_pause(known, wanted, now):
            await self.wake.wait(self._empty.until)
            return True
        if self._unanswered_since is None:
            self._unanswered_since = now
        try:
            connection = self._connection
            if connection is None or connection.closed:
                connection = await self.connect(self._manager)
                # Connecting took time, so other partitions may have to be fetched now.
                now = self._clock.monotonic()
                wanted, _ = self._manager.find_wanted(self.node_id, now)
            if connection is not self._connection:
                self._use_connection(connection)
            chosen, apart = self._oversized.choose_partitions(wanted)
            if apart is not None:
                await self._fetch_apart(connection, apart, chosen)
            elif chosen:
                await self._fetch_in_session(connection, chosen, now)
        except ResponseTooLargeError as error:
            self._unanswered_since = None
            self._session.on_loss()
            self._session.limit_size(self._oversized.on_too_large(self._asked, error))
        except KafkaError as error:
            self._session.on_loss()
            await self._on_fetch_error(error)
        return True

    async def connect(self, owner: Hashable) -> BrokerConnection:
        """Return the owner's connection to the broker; make it if there is none."""
        return await self._cluster.connect(self.node_id, Purpose.FETCH, owner)

    async def _fetch_in_session(
        self, connection: BrokerConnection, wanted: Mapping[TopicPartition, Wanted], begun: float
    ) -> None:
        response = await self._send_request(connection, self._session, wanted)
        now = self._clock.monotonic()
        self._empty.on_response(useful=useful(response), seconds=now - begun)
        self._take_response(response, begun, now)

    async def _fetch_apart(
        self,
        connection: BrokerConnection,
        session: FetchSession,
        wanted: Mapping[TopicPartition, Wanted],
    ) -> None:
        """Fetch some partitions without the session of the others."""
        response = await self._send_request(connection, session, wanted, once=True)
        refusal = error_for(response.error_code, api="Fetch", broker=self.node_id)
        if refusal is not None:
            raise refusal
        self.responses.apply_response(session.read_answers(response), response)

    async def _send_request(
        self,
        connection: BrokerConnection,
        session: FetchSession,
        wanted: Mapping[TopicPartition, Wanted],
        *,
        once: bool = False,
    ) -> FetchResponse:
        self._asked = self.in_flight = wanted
        try:
            response = await self.send_fetch(connection, session, wanted, once=once)
        finally:
            self.in_flight = {}
            self.moved.stop_fetching()
        self._unanswered_since = None
        return response

    async def send_fetch(
        self,
        connection: BrokerConnection,
        session: FetchSession,
        wanted: Mapping[TopicPartition, Wanted],
        *,
        once: bool = False,
    ) -> FetchResponse:
        """Fetch these partitions.

        With `once`, the request uses no session, and the broker does not wait for records.
        """
        version = session.choose_version(wanted, connection.broker.version_of(FetchRequest))
        hides_rack = bool(self.options.rack_id) and self._manager.must_omit_rack(wanted)
        request = session.make_request(
            wanted, version, rack_id="" if hides_rack else None, once=once
        )
        request.max_bytes = min(request.max_bytes, self.responses.size.max_bytes)
        self._requests.value += 1
        response: FetchResponse = await connection.send(
            request, timeout_s=self._timeout_s, version=version
        )
        return response

    def _use_connection(self, connection: BrokerConnection) -> None:
        # The broker keeps the session, but its last response may be lost. So a new session begins
        # on the new connection.
        self._session.on_loss()
        self._connection = connection

    def _take_response(self, response: FetchResponse, begun: float, now: float) -> None:
        if response.error_code:
            refusal = error_for(response.error_code, api="Fetch", broker=self.node_id)
            assert refusal is not None
            forgotten = self._session.on_refusal(response.error_code)
            if forgotten and not self._retry.attempt:
                # Try a new session immediately. If it is refused as well, the fetcher backs off.
                self._retry.next_attempt()
                return
            raise refusal
        self.responses.apply_response(self._session.read_answers(response), response, begun, now)
        if self._session.state is SessionState.BROKEN:
            mismatch = error_for(
                SESSION_MISMATCH, "The response does not match the request.", broker=self.node_id
            )
            assert mismatch is not None
            raise mismatch
        if self._retry.attempt:
            self._retry.start_over()

    def on_room(self) -> None:
        """Handle the end of a response, which leaves room for another one."""
        self.wake.set()
        self.moved.fetch_if_room()

    async def _on_fetch_error(self, error: KafkaError) -> None:
        action = self._retry.count_failure(error, Scope.FETCH)
        self._manager.leave_replica(self.node_id)
        delay_s = action.delay_s
        if action.decision is Decision.REFRESH_AND_RETRY:
            self._shared.request_leaders(self.node_id)
        elif action.decision is not Decision.RETRY:
            self._shared.on_unusable_broker(self.node_id, error)
            delay_s = self._shared.backoff.longest_s
        await asyncio.sleep(delay_s)

    def end_session(self) -> asyncio.Future[FetchResponse] | None:
        """Send the request that ends the session at the broker; return the future of its response.

        Sends nothing and returns None if there is no session or no connection, or if a fetch is in
        flight.
        """
        connection = self._cluster.find_connection(self.node_id, Purpose.FETCH, self._manager)
        if connection is None or connection.in_flight:
            return None
        request = self._session.make_final_request()
        return None if request is None else connection.send(request, timeout_s=self._timeout_s)
