"""The fetch loop of one broker, which sends one request at a time in one fetch session.

The next request is sent as soon as the batch headers of the last response are read, so that data
arrives while the application processes records. No request is sent while two responses are unread.

`BrokerResponses` reads the responses, partition by partition. `EVENTS` has those error codes that
concern the position of a partition. The policy decides about all other codes. Records are not
decoded here. Three other parts handle what is not usual:

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
from collections.abc import Hashable, Mapping, Sequence
from enum import Enum, auto
from types import MappingProxyType
from typing import Final

from aiokclient.clock import Clock
from aiokclient.cluster.client import ClusterClient
from aiokclient.cluster.lifecycle.supervisor import Supervisor
from aiokclient.cluster.metadata.snapshot import BrokerInfo
from aiokclient.config.consumer import ConsumerConfig
from aiokclient.consumer.fetching.batches import following_batches, visible
from aiokclient.consumer.fetching.buffer import Damage, PartitionFetch, Slot
from aiokclient.consumer.fetching.responses import PartitionResponses
from aiokclient.consumer.fetching.routes import Routes
from aiokclient.consumer.fetching.session import (
    Answer,
    FetchOptions,
    FetchSession,
    SessionState,
    Wanted,
)
from aiokclient.consumer.meters import FetchedPartition
from aiokclient.consumer.state.partition import PartitionState
from aiokclient.consumer.state.wakeup import Wakeup
from aiokclient.errors import KafkaError, ResponseTooLargeError, error_for
from aiokclient.network.connection import BrokerConnection
from aiokclient.network.pool import Purpose
from aiokclient.policy import Backoff, Decision, Scope
from aiokclient.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from aiokclient.record.batch import RecordBatch
from aiokclient.types import TopicPartition

__all__ = [
    "EVENTS",
    "BrokerFetcher",
    "BrokerResponses",
    "BrokerRequests",
    "EmptyResponses",
    "FetchEvent",
    "MovedPositions",
    "OversizedFetches",
]


MAX_UNREAD: Final = 2
"""The number of unread responses of a broker at which no further request is sent."""


class BrokerRequests:
    """The fetch requests to one broker, and counters of them."""

    def __init__(
        self, node_id: int, cluster: ClusterClient, config: ConsumerConfig, routes: Routes
    ) -> None:
        self.node_id = node_id
        self.options = FetchOptions(
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_max_bytes,
            max_wait_ms=config.fetch_max_wait_ms,
            partition_max_bytes=config.max_partition_fetch_bytes,
            read_committed=config.isolation_level == "read_committed",
            rack_id=config.client_rack or "",
        )
        self._cluster = cluster
        self._routes = routes
        self._timeout_s = (config.request_timeout_ms + config.fetch_max_wait_ms) / 1000
        self._count = cluster.metrics.counter("consumer.fetch.requests", broker=node_id)

    def get_connection(self, owner: Hashable) -> BrokerConnection | None:
        """Return the owner's connection to the broker, or None if it has none."""
        return self._cluster.connected(self.node_id, Purpose.FETCH, owner)

    async def connect(self, owner: Hashable) -> BrokerConnection:
        """Return the owner's connection to the broker; make it if there is none."""
        return await self._cluster.connect(self.node_id, Purpose.FETCH, owner)

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
        version = session.version(wanted, connection.broker.version_of(FetchRequest))
        hides_rack = bool(self.options.rack_id) and self._routes.hides_rack(wanted)
        rack_id = "" if hides_rack else None
        make = session.without_session if once else session.request
        request = make(wanted, version, rack_id=rack_id)
        self._count.add()
        response: FetchResponse = await connection.send(
            request, timeout_s=self._timeout_s, version=version
        )
        return response

    def end(
        self, connection: BrokerConnection, session: FetchSession
    ) -> asyncio.Future[FetchResponse] | None:
        """Send the request that ends a session at the broker; return the future of its response.

        Returns None if there is no session.
        """
        request = session.final_request()
        if request is None:
            return None
        return connection.send(request, timeout_s=self._timeout_s)


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
        self, known: Mapping[TopicPartition, Wanted], wanted: Mapping[TopicPartition, Wanted]
    ) -> bool:
        """Return whether to pause before the request `wanted`, after early empty responses.

        There is no pause if `wanted` contains anything that the last request, `known`, did not.
        """
        if self.until == -math.inf or self.until <= self._clock.monotonic():
            return False
        return all(known.get(tp) is want for tp, want in wanted.items())

    def on_response(self, *, useful: bool, seconds: float) -> None:
        """Record a response that has arrived `seconds` after its request."""
        waited = 1000 * seconds >= self._max_wait_ms / 2
        if useful or (waited and self._max_wait_ms):
            self._count = 0
            return
        self._count += 1
        if self._count > 1:
            delay_s = self._backoff.delay(self._count - 2, self._clock.rng)
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

    def choose(
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

    def __init__(
        self,
        fetcher: BrokerFetcher,
        requests: BrokerRequests,
        responses: BrokerResponses,
        routes: Routes,
        owner: Hashable,
        clock: Clock,
        supervisor: Supervisor,
    ) -> None:
        self._fetcher = fetcher
        self._requests = requests
        self._responses = responses
        self._routes = routes
        self._owner = owner
        self._clock = clock
        self._supervisor = supervisor
        self._wanted = self._running = self._sent = False
        self._answered = Wakeup()
        self._again = Wakeup()

    def fetch_moved(self) -> None:
        """Fetch the partitions that have moved since the main connection's request. Synchronous."""
        self._wanted = True
        self._again.set()
        self.proceed()

    def proceed(self) -> None:
        """Continue to fetch if there is room for a response."""
        if self._running or not self._wanted or self._responses.full:
            return
        if self._fetcher.in_flight:
            self._running = True
            name = f"fetch from broker {self._requests.node_id} after a seek"
            self._supervisor.spawn(self._run, name=name)

    def stop_fetching(self) -> None:
        """Stop after the present request, because the request on the main connection has ended."""
        self._wanted = False

    async def wait_for_answer(self) -> None:
        """Wait at most LONGEST_S seconds until no request is in flight on the second connection.

        Call it before the next request on the main connection, which includes the same partitions.
        """
        if self._sent:
            until = self._clock.monotonic() + LONGEST_S
            while self._sent and await self._answered.wait(until):
                pass

    async def _run(self) -> None:
        try:
            while self._find_moved() and not self._responses.full:
                connection = await self._requests.connect(self._owner)
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
        wanted = self._routes.find_wanted(self._requests.node_id)[0] if asked else {}
        return {
            tp: want
            for tp, want in wanted.items()
            if tp in asked and asked[tp].generation != want.generation
        }

    async def _fetch_partitions(
        self, connection: BrokerConnection, wanted: Mapping[TopicPartition, Wanted]
    ) -> None:
        session = FetchSession(self._requests.options)
        self._sent = True
        try:
            response = await self._requests.send_fetch(connection, session, wanted, once=True)
        finally:
            self._sent = False
            self._answered.set()
        if not response.error_code:
            self._responses.deliver(session.answers(response), response)
        if not useful(response):
            await self._again.wait(self._clock.monotonic() + EVERY_S)


SESSION_MISMATCH: Final = 71


class FetchEvent(Enum):
    """The effect of a response on the position of a partition."""

    DATA = auto()
    OUT_OF_RANGE = auto()
    REFUSED = auto()


EVENTS = MappingProxyType({0: FetchEvent.DATA, 1: FetchEvent.OUT_OF_RANGE})
"""The events for error codes that concern the position. All other codes are REFUSED."""


class BrokerResponses:
    """The responses of one broker, of which at most two are unread at a time."""

    def __init__(
        self, fetcher: BrokerFetcher, cluster: ClusterClient, responses: PartitionResponses
    ) -> None:
        self._fetcher = fetcher
        self._node_id = node_id = fetcher.node_id
        self._cluster = cluster
        self._responses = responses
        self._unread = 0
        metrics = cluster.metrics
        self._bytes = metrics.counter("consumer.fetch.bytes", unit="By", broker=node_id)
        self._fetched: list[FetchedPartition] = []

    @property
    def full(self) -> bool:
        """Whether the reader must read a response before the next request."""
        return self._unread >= MAX_UNREAD

    def deliver(
        self, answers: Sequence[Answer], response: FetchResponse, seconds: float | None = None
    ) -> None:
        """Apply a response to its partitions, and buffer its batches.

        `seconds` is the time from the request to the response, if it was measured.
        """
        endpoints = [BrokerInfo(n.node_id, n.host, n.port, n.rack) for n in response.node_endpoints]
        slot = Slot(self)
        self._unread += 1
        fetched: list[FetchedPartition] = []
        self._fetched = fetched
        for answer in answers:
            self._apply_answer(answer, slot, endpoints)
        throttle_ms = response.throttle_time_ms
        self._responses.meters.note_response(self._bytes, seconds, throttle_ms, fetched)
        slot.release()
        self._responses.arrived.set()

    def on_read(self) -> None:
        """Handle the end of a response whose parts have all been read."""
        self._unread -= 1
        self._fetcher.on_room()

    def _apply_answer(self, answer: Answer, slot: Slot, endpoints: list[BrokerInfo]) -> None:
        state = self._responses.find_state(answer)
        if state is None:
            return
        event = EVENTS.get(answer.data.error_code, FetchEvent.REFUSED)
        if event is FetchEvent.DATA:
            self._apply_data(state, answer, slot)
        elif event is FetchEvent.OUT_OF_RANGE:
            self._responses.on_out_of_range(state, self._node_id, answer.wanted.offset)
        else:
            self._responses.on_refusal(state, self._node_id, answer.data.error_code)
            self._hint(state.tp, answer.data, endpoints)

    def _hint(self, tp: TopicPartition, data: PartitionData, endpoints: list[BrokerInfo]) -> None:
        leader = data.current_leader
        if leader.leader_id >= 0 and leader.leader_epoch >= 0:
            self._cluster.updater.apply_hint(
                tp.topic, tp.partition, leader.leader_id, leader.leader_epoch, endpoints
            )

    def _apply_data(self, state: PartitionState, answer: Answer, slot: Slot) -> None:
        data, offset = answer.data, answer.wanted.offset
        state.retry.succeeded()
        end, start = data.high_watermark, data.log_start_offset
        state.fetch.note_ends(end, start, data.last_stable_offset)
        if state.error is not None and (data.records or end <= offset):
            self._responses.clear_obstruction(state)
        size = 0
        if data.diverging_epoch.end_offset >= 0:
            diverging = data.diverging_epoch
            self._responses.on_divergence(state, diverging.epoch, diverging.end_offset)
        else:
            if data.preferred_read_replica >= 0:
                self._responses.use_replica(state, self._node_id, data.preferred_read_replica)
            if data.records:
                size = self._keep(state, offset, data, slot)
        self._fetched.append((state.fetch, state.tp.topic, offset, end, start, size))

    def _keep(self, state: PartitionState, offset: int, data: PartitionData, slot: Slot) -> int:
        """Buffer the batches of a partition, and return their size in bytes."""
        batches, damage = _batches(memoryview(data.records or b""), offset)
        aborted = [(t.producer_id, t.first_offset) for t in data.aborted_transactions or ()]
        shown = visible(batches, aborted)
        fetch = PartitionFetch(state, offset, batches, shown, slot, damage)
        state.fetch.fetch_after(fetch.next_offset)
        if damage is not None:
            state.fetch.stop_at_damage(state.generation)
        self._responses.keep_fetch(fetch)
        return fetch.size


def useful(response: FetchResponse) -> bool:
    """Return whether a response has records or errors for any partition."""
    return any(p.records or p.error_code for topic in response.responses for p in topic.partitions)


def _batches(records: memoryview, offset: int) -> tuple[Sequence[RecordBatch], Damage | None]:
    """Return the batches from `offset` on and, if there are none, the damage that is the reason."""
    batches, error = following_batches(records, offset)
    return batches, None if error is None else Damage(offset, offset, error)


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
        supervisor: Supervisor,
    ) -> None:
        self.node_id = node_id
        self.wake = Wakeup()
        self._clock = cluster.clock
        self._routes = routes
        self._responses = responses
        self._owner, second_owner = owners
        self._requests = BrokerRequests(node_id, cluster, config, routes)
        self._incoming = BrokerResponses(self, cluster, responses)
        self._empty = EmptyResponses(cluster.clock, config)
        self._moved = MovedPositions(
            self,
            self._requests,
            self._incoming,
            routes,
            second_owner,
            cluster.clock,
            supervisor,
        )
        self._session = FetchSession(self._requests.options)
        self._oversized = OversizedFetches(self._requests.options, responses)
        self._connection: BrokerConnection | None = None
        self._retry = responses.make_retry()
        self.in_flight: Mapping[TopicPartition, Wanted] = {}
        """The contents of the request in flight; empty if there is none."""
        self._unanswered_since: float | None = None
        """The time at which the broker was to answer or accept a connection, and has not yet."""
        self._max_wait_s = config.fetch_max_wait_ms / 1000
        self._asked: Mapping[TopicPartition, Wanted] = {}
        """The contents of the last request."""

    async def run(self) -> None:
        """Fetch repeatedly, as long as any partition is to be fetched from this broker."""
        while self._routes.reads_from(self.node_id):
            await self._take_turn()
        self.end_session()

    def silent_for(self) -> float:
        """Return the seconds since an answer of the broker was due; 0.0 if none is. Synchronous.

        A broker may wait for records for `fetch_max_wait_ms`, and for the end of a throttle time.
        """
        since, connection = self._unanswered_since, self._connection
        if since is None or (connection is not None and connection.is_busy):
            return 0.0
        return self._clock.monotonic() - since - self._max_wait_s

    def fetch_moved(self) -> None:
        """Fetch the partitions that have moved while a request was in flight. Synchronous.

        A partition has moved if its position was changed, for example by a seek.
        """
        self._moved.fetch_moved()

    async def _take_turn(self) -> None:
        if self._incoming.full:
            await self.wake.wait()
            return
        await self._moved.wait_for_answer()
        known = self._asked
        wanted, retry_at = self._routes.find_wanted(self.node_id)
        if not wanted:
            self._unanswered_since = None
            await self.wake.wait(retry_at)
            return
        if self._empty.needs_pause(known, wanted):
            await self.wake.wait(self._empty.until)
            return
        if self._unanswered_since is None:
            self._unanswered_since = self._clock.monotonic()
        try:
            connection = self._connection
            if connection is None or connection.closed:
                connection = await self._requests.connect(self._owner)
                # Connecting took time, so other partitions may have to be fetched now.
                wanted, _ = self._routes.find_wanted(self.node_id)
            self._note_connection(connection)
            chosen, apart = self._oversized.choose(wanted)
            if apart is not None:
                await self._fetch_apart(connection, apart, chosen)
            elif chosen:
                await self._fetch_in_session(connection, chosen)
        except ResponseTooLargeError as error:
            self._unanswered_since = None
            self._session.on_loss()
            self._session.limit_size(self._oversized.on_too_large(self._asked, error))
        except KafkaError as error:
            self._session.on_loss()
            await self._on_fetch_error(error)

    async def _fetch_in_session(
        self, connection: BrokerConnection, wanted: Mapping[TopicPartition, Wanted]
    ) -> None:
        begun = self._clock.monotonic()
        response = await self._send_request(connection, self._session, wanted)
        seconds = self._clock.monotonic() - begun
        self._empty.on_response(useful=useful(response), seconds=seconds)
        self._take_response(response, seconds)

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
        self._incoming.deliver(session.answers(response), response)

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
            response = await self._requests.send_fetch(connection, session, wanted, once=once)
        finally:
            self.in_flight = {}
            self._moved.stop_fetching()
        self._unanswered_since = None
        return response

    def _note_connection(self, connection: BrokerConnection) -> None:
        if connection is not self._connection:
            # The broker keeps the session, but its last response may be lost. So a new session
            # begins on the new connection.
            self._session.on_loss()
            self._connection = connection

    def _take_response(self, response: FetchResponse, seconds: float) -> None:
        if response.error_code:
            refusal = error_for(response.error_code, api="Fetch", broker=self.node_id)
            assert refusal is not None
            forgotten = self._session.on_refusal(response.error_code)
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
        if self._retry.attempt:
            self._retry.succeeded()

    def on_room(self) -> None:
        """Handle the end of a response, which leaves room for another one."""
        self.wake.set()
        self._moved.proceed()

    async def _on_fetch_error(self, error: KafkaError) -> None:
        action = self._retry.failed(error, Scope.FETCH)
        self._routes.leave_replica(self.node_id)
        delay_s = action.delay_s
        if action.decision is Decision.REFRESH_AND_RETRY:
            self._responses.request_leaders(self.node_id)
        elif action.decision is not Decision.RETRY:
            self._responses.on_unusable_broker(self.node_id, error)
            delay_s = self._responses.longest_backoff_s
        await asyncio.sleep(delay_s)

    def end_session(self) -> asyncio.Future[FetchResponse] | None:
        """Send the request that ends the session at the broker; return the future of its response.

        Sends nothing and returns None if there is no session or no connection, or if a fetch is in
        flight.
        """
        connection = self._requests.get_connection(self._owner)
        if connection is None or connection.in_flight:
            return None
        return self._requests.end(connection, self._session)
