"""The fetch loop of one broker, which sends one request at a time in one fetch session.

The next request is sent as soon as the batch headers of the last response are read, so that data
arrives while the application processes records. No request is sent while two responses are unread.
Records are not decoded here.

`EVENTS` has the error codes of partitions that concern the position. The policy decides about all
others.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from enum import Enum, auto
from types import MappingProxyType
from typing import Final

from aiokclient.cluster.client import ClusterClient
from aiokclient.cluster.metadata import BrokerInfo
from aiokclient.config import ConsumerConfig
from aiokclient.consumer.fetching.aborted import visible
from aiokclient.consumer.fetching.buffer import Damage, PartitionFetch, Slot
from aiokclient.consumer.fetching.responses import Responses
from aiokclient.consumer.fetching.routes import Routes
from aiokclient.consumer.fetching.session import (
    Answer,
    FetchOptions,
    FetchSession,
    SessionState,
    Wanted,
)
from aiokclient.consumer.meters import ReadMeters
from aiokclient.consumer.state.partition import PartitionState
from aiokclient.consumer.state.wakeup import Wakeup
from aiokclient.errors import CorruptRecordError, KafkaError, error_for
from aiokclient.network.connection import BrokerConnection
from aiokclient.network.pool import Purpose
from aiokclient.policy import Backoff, Decision, Scope
from aiokclient.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from aiokclient.record.batch import RecordBatch, walk
from aiokclient.types import TopicPartition

__all__ = ["EVENTS", "BrokerFetcher", "FetchEvent"]

MAX_UNREAD: Final = 2
IDLE_S: Final = 0.01
"""Seconds of the first pause after responses that are empty and arrive too early."""
HURRY_EVERY_S: Final = 0.05
"""Seconds between two requests of `hurry` if the first one returned no records."""
HURRY_S: Final = 1.0
"""Seconds for which the main connection waits for the end of a request of `hurry`."""
SESSION_MISMATCH: Final = 71


class FetchEvent(Enum):
    """The effect of a response on the position of a partition."""

    DATA = auto()
    OUT_OF_RANGE = auto()
    REFUSED = auto()


EVENTS = MappingProxyType({0: FetchEvent.DATA, 1: FetchEvent.OUT_OF_RANGE})
"""The events for error codes that concern the position. All other codes are REFUSED."""


class BrokerFetcher:
    """The fetch loop of one broker.

    Others set `wake` after changes that may affect the next request. `owners` has the owners of the
    main connection and of the connection of `hurry`.
    """

    def __init__(
        self,
        node_id: int,
        cluster: ClusterClient,
        config: ConsumerConfig,
        routes: Routes,
        responses: Responses,
        *,
        owners: tuple[Hashable, Hashable],
        spawn: Callable[..., None],
    ) -> None:
        self.node_id = node_id
        self.wake = Wakeup()
        self.unread = 0
        self._cluster = cluster
        self._routes = routes
        self._responses = responses
        self._owner, self._second_owner = owners
        self._spawn = spawn
        self._options = FetchOptions(
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_max_bytes,
            max_wait_ms=config.fetch_max_wait_ms,
            partition_max_bytes=config.max_partition_fetch_bytes,
            read_committed=config.isolation_level == "read_committed",
            rack_id=config.client_rack or "",
        )
        self._request_timeout_s = (config.request_timeout_ms + config.fetch_max_wait_ms) / 1000
        self._idle_backoff = Backoff(IDLE_S, max(config.retry_backoff_ms / 1000, IDLE_S))
        self._session = FetchSession(self._options)
        self._connection: BrokerConnection | None = None
        self._retry = responses.retry()
        self._empty = 0
        self._idle_until = -math.inf
        self._in_flight = False
        self._asked: Mapping[TopicPartition, Wanted] = {}
        """The contents of the request in flight."""
        self._hurrying = self._hurried_on = False
        self._second_in_flight = False
        self._hurried = Wakeup()
        self._again = Wakeup()
        metrics = cluster.metrics
        self._requests = metrics.counter("consumer.fetch.requests", broker=node_id)
        self._bytes = metrics.counter("consumer.fetch.bytes", unit="By", broker=node_id)
        self._meters = ReadMeters(metrics)

    async def run(self) -> None:
        """Fetch until no partition is fetched from this broker any more."""
        while self._routes.reads_from(self.node_id):
            await self._turn()
        self.end_session()

    async def _turn(self) -> None:
        if self.unread >= MAX_UNREAD:
            await self.wake.wait()
            return
        until = self._cluster.clock.monotonic() + HURRY_S
        while self._second_in_flight and await self._hurried.wait(until):
            pass  # The second request fetches some of the same partitions.
        known = self._asked
        wanted, retry_at = self._routes.wanted(self.node_id)
        if not wanted:
            await self.wake.wait(retry_at)
            return
        if self._idles(known, wanted):
            await self.wake.wait(self._idle_until)
            return
        try:
            connection = self._cluster.connected(self.node_id, Purpose.FETCH, self._owner)
            if connection is None:
                connection = await self._cluster.connect(self.node_id, Purpose.FETCH, self._owner)
                # Time has passed: what is wanted now may differ.
                wanted, _ = self._routes.wanted(self.node_id)
            self._note(connection)
            if wanted:
                await self._fetch(connection, wanted)
        except KafkaError as error:
            self._session.lost()
            await self._failed(error)

    def _idles(
        self, known: Mapping[TopicPartition, Wanted], wanted: Mapping[TopicPartition, Wanted]
    ) -> bool:
        """Return whether to pause, because the same request gets immediate empty responses."""
        if self._idle_until <= self._cluster.clock.monotonic():
            return False
        return all(known.get(tp) is want for tp, want in wanted.items())

    async def _fetch(
        self, connection: BrokerConnection, wanted: Mapping[TopicPartition, Wanted]
    ) -> None:
        clock = self._cluster.clock
        begun = clock.monotonic()
        self._asked, self._in_flight = wanted, True
        try:
            response = await self._exchange(connection, wanted)
        finally:
            self._in_flight = self._hurried_on = False
        self._pace(response, clock.monotonic() - begun)
        self._take(response)

    def _pace(self, response: FetchResponse, seconds: float) -> None:
        """Pause after repeated empty responses that the broker sends without waiting."""
        waited = 1000 * seconds >= self._options.max_wait_ms / 2
        if useful(response) or (waited and self._options.max_wait_ms):
            self._empty = 0
            return
        self._empty += 1
        if self._empty > 1:
            clock = self._cluster.clock
            delay = self._idle_backoff.delay(self._empty - 2, clock.rng)
            self._idle_until = clock.monotonic() + delay

    def _note(self, connection: BrokerConnection) -> None:
        if connection is not self._connection:
            # A session does not end with its connection, but its last response may be lost.
            self._session.lost()
            self._connection = connection

    async def _exchange(
        self, connection: BrokerConnection, wanted: Mapping[TopicPartition, Wanted]
    ) -> FetchResponse:
        version = self._session.version(wanted, connection.broker.version_of(FetchRequest))
        rack_id = "" if self._routes.hides_rack(wanted) else None
        request = self._session.request(wanted, version, rack_id=rack_id)
        self._requests.add()
        response: FetchResponse = await connection.send(
            request, timeout_s=self._request_timeout_s, version=version
        )
        return response

    def _take(self, response: FetchResponse) -> None:
        refusal = error_for(response.error_code, api="Fetch", broker=self.node_id)
        if refusal is not None:
            forgotten = self._session.refused(response.error_code)
            if forgotten and not self._retry.attempt:
                # A new session is tried immediately. If it is refused as well, it backs off.
                self._retry.next_attempt()
                return
            raise refusal
        self._deliver(self._session.answers(response), response)
        if self._session.state is SessionState.BROKEN:
            mismatch = error_for(
                SESSION_MISMATCH, "The response does not match the request.", broker=self.node_id
            )
            assert mismatch is not None
            raise mismatch
        self._retry.succeeded()

    def _deliver(self, answers: Sequence[Answer], response: FetchResponse) -> None:
        endpoints = [BrokerInfo(n.node_id, n.host, n.port, n.rack) for n in response.node_endpoints]
        slot = Slot(self._freed)
        self.unread += 1
        for answer in answers:
            self._answer(answer, slot, endpoints)
        slot.release()
        self._responses.arrived()

    # -- positions that have moved while a request is in flight

    def hurry(self) -> None:
        """Fetch partitions whose positions have moved, during a request in flight. Synchronous.

        A broker answers the requests of a connection in order, and may hold the request in flight
        until there are records. So this uses a second connection, without a session.
        """
        self._hurried_on = True
        self._again.set()
        self._go_on()

    def _go_on(self) -> None:
        if self._in_flight and not self._hurrying and self.unread < MAX_UNREAD:
            self._hurrying = True
            self._spawn(self._hurry, name=f"fetch from broker {self.node_id} after a seek")

    async def _hurry(self) -> None:
        try:
            while self._moved() and self.unread < MAX_UNREAD:
                connection = await self._cluster.connect(
                    self.node_id, Purpose.FETCH, self._second_owner
                )
                if wanted := self._moved():
                    await self._fetch_moved(connection, wanted)
        except KafkaError:
            pass  # The next request on the main connection fetches the same.
        finally:
            self._hurrying = False
            self.wake.set()

    def _moved(self) -> dict[TopicPartition, Wanted]:
        """Return the requests for the partitions in flight whose position has changed."""
        asked = self._asked if self._in_flight else {}
        wanted = self._routes.wanted(self.node_id)[0] if asked else {}
        return {
            tp: want
            for tp, want in wanted.items()
            if tp in asked and asked[tp].generation != want.generation
        }

    async def _fetch_moved(
        self, connection: BrokerConnection, wanted: Mapping[TopicPartition, Wanted]
    ) -> None:
        session = FetchSession(self._options)
        version = session.version(wanted, connection.broker.version_of(FetchRequest))
        rack_id = "" if self._routes.hides_rack(wanted) else None
        request = session.without_session(wanted, version, rack_id=rack_id)
        self._requests.add()
        self._second_in_flight = True
        try:
            response: FetchResponse = await connection.send(
                request, timeout_s=self._request_timeout_s, version=version
            )
        finally:
            self._second_in_flight = False
            self._hurried.set()
        if not response.error_code:
            self._deliver(session.answers(response), response)
        if not useful(response):
            await self._again.wait(self._cluster.clock.monotonic() + HURRY_EVERY_S)

    # -- room

    def _freed(self) -> None:
        self.unread -= 1
        self.wake.set()
        if self._hurried_on:
            self._go_on()

    async def _failed(self, error: KafkaError) -> None:
        action = self._retry.failed(error, Scope.FETCH)
        self._routes.leave_replica(self.node_id)
        delay_s = action.delay_s
        if action.decision is Decision.REFRESH_AND_RETRY:
            self._responses.refresh(self.node_id, str(error))
        elif action.decision is not Decision.RETRY:
            self._responses.unusable(self.node_id, error)
            delay_s = self._responses.longest_backoff_s
        await asyncio.sleep(delay_s)

    def end_session(self) -> asyncio.Future[FetchResponse] | None:
        """End the session at the broker; return None if there is none or a fetch is in flight."""
        connection = self._cluster.connected(self.node_id, Purpose.FETCH, self._owner)
        if connection is None or connection.in_flight:
            return None
        request = self._session.final_request()
        if request is None:
            return None
        return connection.send(request, timeout_s=self._request_timeout_s)

    # -- answers

    def _answer(self, answer: Answer, slot: Slot, endpoints: list[BrokerInfo]) -> None:
        state = self._responses.state(answer)
        if state is None:
            return
        event = EVENTS.get(answer.data.error_code, FetchEvent.REFUSED)
        if event is FetchEvent.DATA:
            self._data(state, answer, slot)
        elif event is FetchEvent.OUT_OF_RANGE:
            self._responses.out_of_range(state, self.node_id, answer.wanted.offset)
        else:
            self._responses.refused(state, self.node_id, answer.data.error_code)
            self._hint(state.tp, answer.data, endpoints)

    def _hint(self, tp: TopicPartition, data: PartitionData, endpoints: list[BrokerInfo]) -> None:
        leader = data.current_leader
        if leader.leader_id >= 0 and leader.leader_epoch >= 0:
            self._cluster.updater.apply_hint(
                tp.topic, tp.partition, leader.leader_id, leader.leader_epoch, endpoints
            )

    def _data(self, state: PartitionState, answer: Answer, slot: Slot) -> None:
        data, offset = answer.data, answer.wanted.offset
        state.retry.succeeded()
        state.fetch.fetched(data.high_watermark)
        diverging = data.diverging_epoch
        if diverging.end_offset >= 0:
            self._responses.diverged(state, diverging.epoch, diverging.end_offset)
            return
        if data.preferred_read_replica >= 0:
            self._responses.prefer(state, self.node_id, data.preferred_read_replica)
        if data.records:
            self._keep(state, offset, data, slot)

    def _keep(self, state: PartitionState, offset: int, data: PartitionData, slot: Slot) -> None:
        batches, damage = _batches(memoryview(data.records or b""), offset)
        aborted = [(t.producer_id, t.first_offset) for t in data.aborted_transactions or ()]
        shown = visible(batches, aborted)
        fetch = PartitionFetch(state, offset, batches, shown, slot, damage)
        state.fetch.buffered(fetch.next_offset)
        if damage is not None:
            state.fetch.damaged(state.generation)
        self._bytes.add(fetch.size)
        self._meters.fetched(state.tp.topic, fetch.size)
        self._responses.keep(fetch)


def useful(response: FetchResponse) -> bool:
    """Return whether a response has records or errors, so that the next request differs."""
    return any(p.records or p.error_code for topic in response.responses for p in topic.partitions)


def _batches(records: memoryview, offset: int) -> tuple[Sequence[RecordBatch], Damage | None]:
    """Return the batches from `offset` on, up to the first that is damaged or does not follow."""
    try:
        found = walk(records)
    except CorruptRecordError as error:
        return [], Damage(offset, offset, error)
    batches: list[RecordBatch] = []
    following = offset
    for batch in found:
        if batch.next_offset <= offset and not batches:
            continue  # The broker began with a whole batch before the offset.
        if batch.next_offset <= following or (batches and batch.base_offset < following):
            break
        batches.append(batch)
        following = batch.next_offset
    if batches:
        return batches, None
    why = CorruptRecordError(
        f"The response has {len(records)} bytes, but no batch that follows offset {offset}."
    )
    return [], Damage(offset, offset, why)
