"""The fetches of one range.

The fetches need no task. When a response arrives, a callback sends the next fetch, so that the
broker works while the response is decoded. This continues until `FetchSizes.responses_ahead`
responses wait for the reader. If there is no connection yet, if a fetch has failed, or at the
beginning of the range, the waiting reader itself sends the next fetch, with the retries of
`ClusterClient.request`.

The position never passes an offset without an answer of the broker:

    event of a response     what follows
    DATA                    the part is delivered, and the position moves after its last batch
    DAMAGED                 the same position is fetched once more, then an error is raised
    NOTHING                 after several of these events below the last readable offset, the
                            position moves to that offset, because compaction has left no record.
                            At the high watermark, the bounds of the log decide. Otherwise a
                            transaction is open, and the position is fetched again, until the
                            timeout
    OUT_OF_RANGE            the bounds of the log decide: an error, or another fetch
    UNREAD                  the position is fetched again

`LeaderRequests` sends the requests to the leader. `fetched` tells what a response means: `EVENTS`
has the error codes that concern the position, and the policy decides about all other codes.
`FetchSizes` chooses the size of each fetch. When a range ends, `RangeConnections` keeps its
connections open, so that later ranges can use them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from aiokclient.cluster.client import ClusterClient
from aiokclient.cluster.metadata.snapshot import BrokerInfo, differ
from aiokclient.cluster.targets import Leader
from aiokclient.config.rules import RESPONSE_OVERHEAD
from aiokclient.consumer.fetching.buffer import read_batches
from aiokclient.consumer.fetching.list_offsets import LOW_END_LOOK_S, LOW_END_LOOKS, log_bounds
from aiokclient.consumer.fetching.session import BY_ID, NO_TOPIC_ID
from aiokclient.consumer.ranges.request import RangeRequest
from aiokclient.errors import (
    ApiTimeoutError,
    ClusterChangedError,
    CorruptBatchError,
    CorruptRecordError,
    DecompressionLimitError,
    KafkaError,
    OffsetOutOfRangeError,
    ResponseTooLargeError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    error_for,
)
from aiokclient.network.connection import BrokerConnection, OnResponse
from aiokclient.network.pool import Purpose
from aiokclient.policy import Attempts, Backoff, Scope
from aiokclient.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from aiokclient.record.batch import RecordBatch

if TYPE_CHECKING:
    from aiokclient.cluster.metadata.snapshot import TopicInfo

KEPT: Final = 8
"""The largest number of owners without a range whose connections stay open."""


class RangeOwner:
    """The owner of the connections of one range at a time: at most one connection per broker."""

    __slots__ = ("__weakref__",)


class RangeConnections:
    """The owners of a client's connections for ranges."""

    def __init__(self) -> None:
        self._unused: list[RangeOwner] = []

    def take_owner(self) -> RangeOwner:
        """Return an owner for a range. Its connections may be open already."""
        return self._unused.pop() if self._unused else RangeOwner()

    def return_owner(self, owner: RangeOwner, cluster: ClusterClient, *, idle: bool) -> None:
        """End the use of an owner. Its connections stay open only if they are `idle`."""
        if idle and len(self._unused) < KEPT:
            cluster.updater.unwant_topics(owner)
            self._unused.append(owner)
        else:
            cluster.release_owner(owner)


PARTS: Final = 4
"""The number of parts into which the memory is divided.

One part is in flight, two wait for the reader, and one is being converted.
"""
FIRST: Final = 64 * 1024
"""The size of the first fetches, when it is not known how large the records are, and how many of
them the reader needs."""
EARLY: Final = 1024 * 1024
"""Bytes that the reader must have taken before anything is fetched that it has not asked for. Until
then, it may need only the first records."""
STEADY: Final = 8 * 1024 * 1024
"""Bytes after which the reader is expected to read the whole range. Spark passes about half of this
to its virtual machine before a limit stops a task."""
EARLY_GROWTH: Final = 8
"""The divisor of the bytes that the reader has taken, for the size of a fetch before `STEADY`."""
GROWTH: Final = 2
"""The divisor of the bytes that the reader has taken, for the size of a fetch after `STEADY`."""
AHEAD: Final = 2
"""The largest number of responses that wait for the reader, after `STEADY`."""
SPARE: Final = 64 * 1024
"""Bytes that are added to an estimate, so that it is rarely too small."""


class FetchSizes:
    """The sizes of the next fetches. All responses in memory take at most about `most` bytes.

    `response_limit` is the size in bytes of the largest response that the client accepts.
    """

    def __init__(self, most: int, response_limit: int) -> None:
        self.largest = max(min(most // PARTS, response_limit - RESPONSE_OVERHEAD), 1)
        """The largest size of one fetch. A single larger batch is fetched as a whole."""
        # Both are lower if the memory is small, because many small fetches would take too long.
        self._early, self._steady = min(EARLY, self.largest // 2), min(STEADY, self.largest)
        self._offsets = 0
        self._bytes = 0
        self._taken = 0

    def on_taken(self, size: int) -> None:
        """Record the bytes of a response that the reader has taken."""
        self._taken += size

    def on_fetched(self, offsets: int, size: int) -> None:
        """Record the number of offsets and the bytes of a response."""
        self._offsets += offsets
        self._bytes += size

    @property
    def responses_ahead(self) -> int:
        """The largest number of responses that wait for the reader.

        If it is 0, a fetch is sent only when the reader waits for it.
        """
        if self._taken < self._steady:
            return 0 if self._taken < self._early else 1
        return AHEAD

    def compute_next(self, offsets: int) -> int:
        """Return the bytes to request in the next fetch.

        `offsets` is the number of offsets of the range that are left.
        """
        growth = EARLY_GROWTH if self._taken < self._steady else GROWTH
        most = min(max(FIRST, self._taken // growth), self.largest)
        if not self._offsets:
            return most
        estimate = offsets * self._bytes // self._offsets
        return min(estimate + estimate // 8 + SPARE, most)


class PartEvent(Enum):
    """The effect of a response on the position in a range."""

    DATA = auto()
    """There are batches from the position on."""
    DAMAGED = auto()
    """No batch can be recognized at the position."""
    NOTHING = auto()
    """The response has no batches."""
    OUT_OF_RANGE = auto()
    """The broker does not have the position."""
    UNREAD = auto()
    """The broker did not read the partition, because a quota is exceeded."""


EVENTS: Final = MappingProxyType({0: PartEvent.DATA, 1: PartEvent.OUT_OF_RANGE})
"""The events for error codes that concern the position. All other codes are errors."""


@dataclass(frozen=True, slots=True)
class FetchedPart:
    """A response for the position `offset`.

    `batches` has the batches with records for the reader. `next_offset` is the offset after all
    fetched batches.
    """

    event: PartEvent
    offset: int
    next_offset: int
    batches: Sequence[RecordBatch] = ()
    size: int = 0
    """Bytes of the fetched batches."""
    high_watermark: int = -1
    last_stable_offset: int = -1
    damage: CorruptRecordError | None = None


def partition_data(response: FetchResponse, partition: int) -> PartitionData | None:
    """Return the partition of a response; None if the broker did not read it."""
    for topic in response.responses:
        for data in topic.partitions:
            if data.partition_index == partition:
                return data
    return None


def fetched(data: PartitionData | None, offset: int, end: int) -> FetchedPart:
    """Return the result of a fetch at the position `offset` of a range that ends before `end`."""
    if data is None:
        return FetchedPart(PartEvent.UNREAD, offset, offset)
    high, stable = data.high_watermark, data.last_stable_offset
    if EVENTS[data.error_code] is PartEvent.OUT_OF_RANGE:
        return FetchedPart(PartEvent.OUT_OF_RANGE, offset, offset)
    if not data.records:
        return FetchedPart(PartEvent.NOTHING, offset, offset, (), 0, high, stable)
    batches, shown, error = read_batches(data, offset)
    if error is not None:
        return FetchedPart(PartEvent.DAMAGED, offset, offset, damage=error)
    kept = [
        batch
        for batch, shows in zip(batches, shown, strict=True)
        if shows and batch.base_offset < end
    ]
    size = sum(batch.size for batch in batches)
    return FetchedPart(PartEvent.DATA, offset, batches[-1].next_offset, kept, size, high, stable)


MAX_WAIT_MS: Final = 500
"""Milliseconds that the broker may wait for records."""
DOUBTED: Final = MappingProxyType({100: True, 103: True})
"""The error codes of a leader that does not know the topic id, or has another id for the topic."""


class LeaderRequests:
    """The requests of one range. `locate_topic` must succeed before the others are called."""

    def __init__(self, cluster: ClusterClient, owner: RangeOwner, request: RangeRequest) -> None:
        self._cluster = cluster
        self._owner = owner
        self._tp = request.tp
        self._expected_id = request.topic_id
        self._read_committed = request.read_committed
        self._topic_id = NO_TOPIC_ID
        self._cluster_id: str | None = None
        self._answered = False
        """Whether the leader has sent a response without an error."""

    async def locate_topic(self, timeout: float) -> None:
        """Find the topic, and request it in all later updates of the metadata.

        Raises UnknownTopicOrPartitionError, UnknownTopicIdError if the topic has another id than
        expected, and the errors of `MetadataUpdater.refresh`.
        """
        updater, topic = self._cluster.updater, self._tp.topic
        updater.want_topic(topic, self._owner)
        info = self._cluster.metadata.find_topic(topic)
        if info is None or info.error or not self._may_be_wanted(info):
            if info is not None and not self._may_be_wanted(info):
                updater.doubt_topic_id(
                    info.topic_id
                )  # So that a single response replaces the topic.
            info = (await updater.refresh((topic,), timeout=timeout, at_once=True)).find_topic(
                topic
            )
        refusal = error_for(
            0 if info is None else info.error, api="Metadata", topic_partition=self._tp
        )
        if refusal is not None:
            raise refusal
        if info is None or self._tp.partition >= len(info.partitions):
            raise UnknownTopicOrPartitionError(api="Metadata", topic_partition=self._tp)
        if not self._may_be_wanted(info):
            raise self._make_recreated_error(f"Its id is {info.topic_id}, not {self._expected_id}.")
        self._topic_id, self._cluster_id = info.topic_id, self._cluster.metadata.cluster_id

    def _may_be_wanted(self, info: TopicInfo) -> bool:
        """Return whether a topic may be the one to read, and has the partition."""
        known = info.topic_id != NO_TOPIC_ID and self._expected_id is not None
        same = not known or info.topic_id == self._expected_id
        return same and self._tp.partition < len(info.partitions)

    def find_connection(self) -> BrokerConnection | None:
        """Return the open connection to the leader, or None if there is none."""
        leader = self._cluster.metadata.find_leader(*self._tp)
        return self._cluster.find_connection(leader, Purpose.FETCH, self._owner)

    def attempt_fetch(
        self, connection: BrokerConnection, offset: int, size: int, done: OnResponse
    ) -> None:
        """Fetch once. See `ClusterClient.attempt_request`."""
        epoch = self._cluster.metadata.find_leader_epoch(*self._tp)
        message = self._make_message(offset, size, epoch, MAX_WAIT_MS)
        self._cluster.attempt_request(
            connection, message, done, highest=self._find_highest_version()
        )

    async def request_fetch(
        self, offset: int, size: int, timeout: float, earlier: KafkaError | None
    ) -> FetchResponse:
        """Fetch, with retries, from the present leader. See `ClusterClient.request`."""
        # Each retry may go to another leader, so the request names no epoch. The broker waits for
        # less than the timeout, so that its response, which says why there is no record, arrives.
        wait_ms = min(MAX_WAIT_MS, int(timeout * 500))
        message = self._make_message(offset, size, -1, wait_ms)
        return await self._cluster.request(
            message,
            Leader(*self._tp),
            timeout=timeout,
            scope=Scope.FETCH,
            check=self.find_refusal,
            purpose=Purpose.FETCH,
            owner=self._owner,
            highest=self._find_highest_version,
            before_retry=self._before_retry,
            earlier=earlier,
        )

    def _make_message(self, offset: int, size: int, epoch: int, wait_ms: int) -> FetchRequest:
        partition = FetchPartition(
            partition=self._tp.partition,
            current_leader_epoch=epoch,
            fetch_offset=offset,
            partition_max_bytes=size,
        )
        return FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=size,
            isolation_level=int(self._read_committed),
            topics=[
                FetchTopic(topic=self._tp.topic, topic_id=self._topic_id, partitions=[partition])
            ],
        )

    def _find_highest_version(self) -> int | None:
        """Return the highest version in which to send the request, or None if there is no limit.

        Called before each attempt. Raises ClusterChangedError if the client has moved to another
        cluster.
        """
        self._require_cluster()
        return BY_ID - 1 if self._topic_id == NO_TOPIC_ID else None

    def find_refusal(self, response: FetchResponse) -> KafkaError | None:
        """Return the error of the partition in a response, or None if it concerns the position."""
        error = error_for(response.error_code, api="Fetch")
        data = partition_data(response, self._tp.partition)
        if error is not None or data is None:
            return error
        if data.error_code in EVENTS:
            self._answered = True
            return None
        self._apply_hint(data, response)
        if data.error_code in DOUBTED:
            self._cluster.updater.doubt_topic_id(self._topic_id)
        return error_for(data.error_code, api="Fetch", topic_partition=self._tp)

    def _apply_hint(self, data: PartitionData, response: FetchResponse) -> None:
        """Apply the new leader that a response names (KIP-951)."""
        leader = data.current_leader
        if leader.leader_id >= 0 and leader.leader_epoch >= 0:
            nodes = response.node_endpoints
            endpoints = [BrokerInfo(n.node_id, n.host, n.port, n.rack) for n in nodes]
            self._cluster.updater.apply_hint(
                *self._tp, leader.leader_id, leader.leader_epoch, endpoints
            )

    async def _before_retry(self, error: KafkaError) -> None:
        """Raise an error if the topic does not exist any more, or the client has moved.

        A client has moved if it is now connected to another cluster.
        """
        self._require_cluster()
        metadata = self._cluster.metadata
        info = metadata.find_topic(self._tp.topic)
        if info is None:
            return
        # Some brokers do not know a new topic yet. So a missing topic counts as deleted only after
        # its leader has answered.
        if self._answered and not metadata.has_topic(self._tp.topic):
            raise UnknownTopicOrPartitionError(
                "The topic was deleted while it was read.", api="Fetch", topic_partition=self._tp
            )
        if NO_TOPIC_ID not in (info.topic_id, self._topic_id) and info.topic_id != self._topic_id:
            raise self._make_recreated_error("It was deleted and created again while it was read.")

    def _require_cluster(self) -> None:
        """Raise ClusterChangedError if the client has moved to another cluster."""
        former, present = self._cluster_id, self._cluster.metadata.cluster_id
        if former is None or present is None or not differ(former, present):
            return
        error = ClusterChangedError(old_cluster_id=former, new_cluster_id=present)
        error.what = "The client moved to another cluster while the range was read."
        error.hint = "Its offsets mean nothing there. Read a range of the present cluster."
        raise error

    def _make_recreated_error(self, why: str) -> KafkaError:
        error = UnknownTopicIdError(why, api="Fetch", topic_partition=self._tp)
        error.what = "The topic is not the one to be read."
        error.hint = "The records of the deleted topic are gone."
        return error


CONFIRMED: Final = 3
"""The number of consecutive empty responses after which the position moves to the last readable
offset."""
PROMPT_S: Final = 0.25
"""Seconds below which a response time shows that the broker did not wait for records."""
SHORTEST_S: Final = 0.05
"""Seconds before the timeout in which no further fetch is sent, because it could time out."""
LONGEST_S: Final = 1e9
"""The timeout in seconds that is used instead of an infinite one."""


class RangeFetches:
    """The position in one range, and the responses that wait for the reader."""

    def __init__(self, cluster: ClusterClient, owner: RangeOwner, request: RangeRequest) -> None:
        self._cluster = cluster
        self._request = request
        self._requests = LeaderRequests(cluster, owner, request)
        self._timeout_s = min(request.timeout_s, LONGEST_S)
        self._sizes = FetchSizes(request.fetch_max_bytes, cluster.config.receive_message_max_bytes)
        self._alone = False
        """Whether to fetch a single batch, because the last response was too large."""
        self.position = request.start
        """The offset of the next fetch."""
        self._located = False
        self._ready: deque[FetchedPart] = deque()
        self._generation = 0
        """The generation of new fetches. Responses to fetches of older generations are ignored."""
        self._in_flight = False
        self._abandoned = False
        """Whether the response to an abandoned fetch may still arrive on a connection."""
        self._error: KafkaError | None = None
        """The error of the last fetch, with which the retries of the next one begin."""
        self._arrived: asyncio.Future[None] | None = None
        self._sent_at = 0.0
        self._empty = 0
        """The number of consecutive responses without a record, below the last readable offset."""
        self._refetched = -1
        """The offset of the last damaged batch, which is fetched once more."""
        config = cluster.config
        self._backoff = Backoff.of(config)
        self._retry = self._make_retry()

    # -- the reader's side

    @property
    def is_idle(self) -> bool:
        """Whether no response can arrive any more, so that the connections can be used again."""
        return not self._in_flight and not self._abandoned

    @property
    def largest_fetch(self) -> int:
        """The largest size of one fetch in bytes."""
        return self._sizes.largest

    async def read_next(self) -> FetchedPart | None:
        """Return the next part with batches; None at the end of the range.

        A wait without progress takes at most `timeout_s` of the range request. Raises
        OffsetOutOfRangeError, CorruptBatchError, ApiTimeoutError, UnknownTopicOrPartitionError,
        ResponseTooLargeError, UnknownTopicIdError, ClusterChangedError, and all other errors of
        requests that are not retried.
        """
        self._on_progress()
        while True:
            if self._ready:
                part = self._ready.popleft()
                if part.event is PartEvent.DATA:
                    self._sizes.on_taken(part.size)
                    self._fetch_ahead()
                    return part
                await self._on_part_without_data(part)
            elif self.position >= self._request.end:
                return None
            elif self._in_flight:
                await self._wait_for_response()
            else:
                await self._fetch_position()

    def fetch_again(self, error: KafkaError, offset: int, last_offset: int, over: bool) -> None:
        """Fetch a damaged batch again, or raise its error if it was already fetched again.

        `over` means that the batch exceeds the limit of its decompressed size. Then the error is
        always raised, because a second fetch would return the same batch.
        """
        if over or self._refetched >= offset:
            kind = DecompressionLimitError if over else CorruptBatchError
            raise kind(
                error.message,
                topic_partition=self._request.tp,
                offset=offset,
                last_offset=last_offset,
            ) from error
        self._refetched = offset
        self._discard_responses()
        self.position = offset

    def close(self) -> None:
        """Ignore all responses from now on. Synchronous."""
        self._discard_responses()

    def _discard_responses(self) -> None:
        self._generation += 1
        self._abandoned = self._abandoned or self._in_flight
        self._in_flight = False
        self._error = None
        self._ready.clear()

    # -- fetching

    async def _fetch_position(self) -> None:
        """Fetch the position, with retries, until the timeout."""
        earlier, self._error = self._error, None
        generation, offset = self._generation, self.position
        size = 1 if self._alone else self._sizes.compute_next(self._request.end - offset)
        self._in_flight = True
        try:
            if not self._located:
                await self._requests.locate_topic(self._remaining_s)
                self._located = True
            self._sent_at = self._get_time()
            response = await self._requests.request_fetch(offset, size, self._remaining_s, earlier)
            if generation == self._generation:
                self._in_flight = self._alone = False
                self._take_response(response)
        except ResponseTooLargeError as error:
            self._in_flight = False
            if self._alone:
                raise error.of_records(self._request.tp, offset) from None
            self._alone = True  # Other batches or a list of aborted transactions may be the reason.
        except KafkaError as error:
            self._in_flight = False
            if error.topic_partition is None:
                error.topic_partition = self._request.tp
            raise

    def _fetch_ahead(self) -> None:
        """Send the next fetch if the last one has moved the position, and it can be sent now."""
        ahead = len(self._ready) < self._sizes.responses_ahead and self.position < self._request.end
        if not ahead or self._in_flight or self._error is not None:
            return
        if self._ready and self._ready[-1].event is not PartEvent.DATA:
            return
        connection = self._requests.find_connection()
        if connection is None:
            return
        size = self._sizes.compute_next(self._request.end - self.position)
        done = partial(self._on_response, self._generation, connection.broker.node_id)
        self._in_flight, self._sent_at = True, self._get_time()
        try:
            self._requests.attempt_fetch(connection, self.position, size, done)
        except KafkaError as error:
            self._in_flight, self._error = False, error

    def _on_response(
        self, generation: int, broker: int, response: Any, error: KafkaError | None
    ) -> None:
        if generation != self._generation:
            return
        self._in_flight = False
        error = error if error is not None else self._requests.find_refusal(response)
        if error is None:
            self._take_response(response)
        else:
            error.broker, self._error = broker, error
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)

    def _take_response(self, response: Any) -> None:
        """Queue a response that has no error, and send the next fetch if possible."""
        data = partition_data(response, self._request.tp.partition)
        part = fetched(data, self.position, self._request.end)
        self._ready.append(part)
        if part.event is PartEvent.DATA:
            self._sizes.on_fetched(part.next_offset - self.position, part.size)
            self.position = part.next_offset
            self._fetch_ahead()

    # -- waiting

    def _get_time(self) -> float:
        return self._cluster.clock.monotonic()

    @property
    def _remaining_s(self) -> float:
        return max(self._retry.remaining_s, 0.0)

    def _make_retry(self) -> Attempts:
        return Attempts(self._get_time() + self._timeout_s, self._backoff, self._cluster.clock)

    def _on_progress(self) -> None:
        self._empty = 0
        self._retry = self._make_retry()

    async def _wait_for_response(self) -> None:
        """Wait for the response to the fetch in flight."""
        self._arrived = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(self._remaining_s) as patience:
                await self._arrived
        except TimeoutError:
            if not patience.expired():
                raise
            raise self._make_timeout_error("The broker did not respond.") from None
        finally:
            self._arrived = None

    def _make_timeout_error(self, why: str) -> ApiTimeoutError:
        text = f"Nothing was read from offset {self.position} on within {self._timeout_s:.1f} s."
        return ApiTimeoutError(f"{text} {why}", api="Fetch", topic_partition=self._request.tp)

    # -- responses without data

    async def _on_part_without_data(self, part: FetchedPart) -> None:
        """Handle a response without a batch at the position, and wait before the next fetch."""
        prompt = self._get_time() - self._sent_at < PROMPT_S
        why = "The broker returned no records, because a quota is exceeded."
        if part.event is PartEvent.DAMAGED:
            assert part.damage is not None
            self.fetch_again(part.damage, part.offset, part.offset, over=False)
            return
        if part.event is PartEvent.OUT_OF_RANGE:
            await self._check_bounds()
            why = "The broker does not have the offset, although the log contains it."
        elif part.event is PartEvent.NOTHING:
            why = await self._on_empty_part(part)
        if self.position > part.offset:
            return
        if prompt:
            await asyncio.sleep(min(self._retry.take_pause_s(), self._remaining_s))
        if self._retry.remaining_s <= SHORTEST_S:
            raise self._make_timeout_error(why)

    async def _on_empty_part(self, part: FetchedPart) -> str:
        """Handle an empty response. Return the probable reason for it, as text for an error."""
        stable = part.last_stable_offset if self._request.read_committed else -1
        readable = part.high_watermark if stable < 0 else stable
        if self.position < readable:
            self._empty += 1
            if self._empty >= CONFIRMED:
                self.position = min(readable, self._request.end)
                self._on_progress()
            return "The broker returned no records."
        self._empty = 0
        if self.position >= part.high_watermark:
            await self._check_bounds()
            return "The records are not replicated yet."
        return (
            f"The records from offset {readable} on cannot be read while a transaction is open. "
            "Its producer must end it, or the broker aborts it after transaction.timeout.ms."
        )

    async def _check_bounds(self) -> None:
        """Raise OffsetOutOfRangeError if the log does not contain the position."""
        tp, position, end = self._request.tp, self.position, self._request.end
        start, log_end = await log_bounds(self._cluster, tp, self._remaining_s)
        for _ in range(LOW_END_LOOKS - 1):
            if log_end > position or position < start or self._remaining_s <= LOW_END_LOOK_S:
                break
            # A new leader returns an end offset that is too low, until its followers have fetched.
            await asyncio.sleep(LOW_END_LOOK_S)
            start, log_end = await log_bounds(self._cluster, tp, self._remaining_s)
        if position < start:
            missing_end = min(start, end)
            why = f"The log starts at offset {start}: retention or an admin deleted older records."
        elif log_end <= position:
            missing_end = end
            why = f"The log ends at offset {log_end}."
        else:
            return
        error = OffsetOutOfRangeError(
            f"Offsets {position} to {missing_end - 1} are missing. {why}",
            api="Fetch",
            topic_partition=tp,
        )
        error.what = "The log does not contain the whole range."
        error.hint = "Read from an offset that exists: see Consumer.beginning_offsets, end_offsets."
        error.missing_start, error.missing_end = position, missing_end
        raise error
