"""The fetches of one range.

The fetches need no task. When a response arrives, a callback sends the next fetch, so that the
broker works while the response is decoded. This continues until `FetchSizes.ahead` responses wait
for the reader. If there is no connection yet, if a fetch has failed, or at the beginning of the
range, the waiting reader itself sends the next fetch, with the retries of `ClusterClient.request`.

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
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import Any, Final

from aiokclient.cluster.client import ClusterClient
from aiokclient.consumer.ranges.connections import RangeOwner
from aiokclient.consumer.ranges.leader_requests import LeaderRequests
from aiokclient.consumer.ranges.log_bounds import LOOK_S, LOOKS, log_bounds
from aiokclient.consumer.ranges.outcomes import FetchedPart, PartEvent, fetched, partition_data
from aiokclient.consumer.ranges.request import RangeRequest
from aiokclient.consumer.ranges.sizes import FetchSizes
from aiokclient.errors import (
    ApiTimeoutError,
    CorruptBatchError,
    DecompressionLimitError,
    KafkaError,
    OffsetOutOfRangeError,
    ResponseTooLargeError,
)
from aiokclient.policy import Backoff, Retry

__all__ = ["RangeFetches"]

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
        self._retry = self._new_retry()

    # -- the reader's side

    @property
    def idle(self) -> bool:
        """Whether no response can arrive any more, so that the connections can be used again."""
        return not self._in_flight and not self._abandoned

    @property
    def largest(self) -> int:
        """The largest size of one fetch in bytes."""
        return self._sizes.largest

    async def next(self) -> FetchedPart | None:
        """Return the next part with batches; None at the end of the range.

        A wait without progress takes at most `timeout_s` of the range request. Raises
        OffsetOutOfRangeError, CorruptBatchError, ApiTimeoutError, UnknownTopicOrPartitionError,
        ResponseTooLargeError, UnknownTopicIdError, ClusterChangedError, and all other errors of
        requests that are not retried.
        """
        self._progressed()
        while True:
            if self._ready:
                part = self._ready.popleft()
                if part.event is PartEvent.DATA:
                    self._sizes.taken(part.size)
                    self._fetch_ahead()
                    return part
                await self._without_data(part)
            elif self.position >= self._request.end:
                return None
            elif self._in_flight:
                await self._wait()
            else:
                await self._fetch()

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
        self._discard()
        self.position = offset

    def close(self) -> None:
        """Ignore all responses from now on. Synchronous."""
        self._discard()

    def _discard(self) -> None:
        self._generation += 1
        self._abandoned = self._abandoned or self._in_flight
        self._in_flight = False
        self._error = None
        self._ready.clear()

    # -- fetching

    async def _fetch(self) -> None:
        """Fetch the position, with retries, until the timeout."""
        earlier, self._error = self._error, None
        generation, offset = self._generation, self.position
        size = 1 if self._alone else self._sizes.next(self._request.end - offset)
        self._in_flight = True
        try:
            if not self._located:
                await self._requests.locate(self._remaining_s)
                self._located = True
            self._sent_at = self._now()
            response = await self._requests.request(offset, size, self._remaining_s, earlier)
            if generation == self._generation:
                self._in_flight = self._alone = False
                self._take(response)
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
        ahead = len(self._ready) < self._sizes.ahead and self.position < self._request.end
        if not ahead or self._in_flight or self._error is not None:
            return
        if self._ready and self._ready[-1].event is not PartEvent.DATA:
            return
        connection = self._requests.connected()
        if connection is None:
            return
        size = self._sizes.next(self._request.end - self.position)
        done = partial(self._on_response, self._generation, connection.broker.node_id)
        self._in_flight, self._sent_at = True, self._now()
        try:
            self._requests.attempt(connection, self.position, size, done)
        except KafkaError as error:
            self._in_flight, self._error = False, error

    def _on_response(
        self, generation: int, broker: int, response: Any, error: KafkaError | None
    ) -> None:
        if generation != self._generation:
            return
        self._in_flight = False
        error = error if error is not None else self._requests.refusal(response)
        if error is None:
            self._take(response)
        else:
            error.broker, self._error = broker, error
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)

    def _take(self, response: Any) -> None:
        """Queue a response that has no error, and send the next fetch if possible."""
        data = partition_data(response, self._request.tp.partition)
        part = fetched(data, self.position, self._request.end)
        self._ready.append(part)
        if part.event is PartEvent.DATA:
            self._sizes.fetched(part.next_offset - self.position, part.size)
            self.position = part.next_offset
            self._fetch_ahead()

    # -- waiting

    def _now(self) -> float:
        return self._cluster.clock.monotonic()

    @property
    def _remaining_s(self) -> float:
        return max(self._retry.remaining_s, 0.0)

    def _new_retry(self) -> Retry:
        return Retry(self._now() + self._timeout_s, self._backoff, self._cluster.clock)

    def _progressed(self) -> None:
        self._empty = 0
        self._retry = self._new_retry()

    async def _wait(self) -> None:
        """Wait for the response to the fetch in flight."""
        self._arrived = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(self._remaining_s) as patience:
                await self._arrived
        except TimeoutError:
            if not patience.expired():
                raise
            raise self._out_of_time("The broker did not respond.") from None
        finally:
            self._arrived = None

    def _out_of_time(self, why: str) -> ApiTimeoutError:
        text = f"Nothing was read from offset {self.position} on within {self._timeout_s:.1f} s."
        return ApiTimeoutError(f"{text} {why}", api="Fetch", topic_partition=self._request.tp)

    # -- responses without data

    async def _without_data(self, part: FetchedPart) -> None:
        """Handle a response without a batch at the position, and wait before the next fetch."""
        prompt = self._now() - self._sent_at < PROMPT_S
        why = "The broker returned no records, because a quota is exceeded."
        if part.event is PartEvent.DAMAGED:
            assert part.damage is not None
            self.fetch_again(part.damage, part.offset, part.offset, over=False)
            return
        if part.event is PartEvent.OUT_OF_RANGE:
            await self._check_bounds()
            why = "The broker does not have the offset, although the log contains it."
        elif part.event is PartEvent.NOTHING:
            why = await self._nothing(part)
        if self.position > part.offset:
            return
        if prompt:
            await asyncio.sleep(min(self._retry.pause_s(), self._remaining_s))
        if self._retry.remaining_s <= SHORTEST_S:
            raise self._out_of_time(why)

    async def _nothing(self, part: FetchedPart) -> str:
        """Handle an empty response. Return the probable reason for it, as text for an error."""
        stable = part.last_stable_offset if self._request.read_committed else -1
        readable = part.high_watermark if stable < 0 else stable
        if self.position < readable:
            self._empty += 1
            if self._empty >= CONFIRMED:
                self.position = min(readable, self._request.end)
                self._progressed()
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
        for _ in range(LOOKS - 1):
            if log_end > position or position < start or self._remaining_s <= LOOK_S:
                break
            # A new leader returns an end offset that is too low, until its followers have fetched.
            await asyncio.sleep(LOOK_S)
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
