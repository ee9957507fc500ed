"""The handling of responses to fetch requests, and their effects on partitions.

`BrokerResponses` reads the responses of one broker, partition by partition, and
`PartitionResponses` applies them to the partitions of the consumer. `EVENTS` has those error codes
that concern the position of a partition. The policy decides about all other codes. Records are not
decoded here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import Enum, auto
from types import MappingProxyType
from typing import Final

from aiokclient.cluster.client import ClusterClient
from aiokclient.cluster.metadata.snapshot import BrokerInfo
from aiokclient.config.consumer import ConsumerConfig
from aiokclient.consumer.fetching.batches import following_batches, visible
from aiokclient.consumer.fetching.buffer import Damage, FetchBuffer, PartitionFetch, Slot
from aiokclient.consumer.fetching.routes import Routes
from aiokclient.consumer.fetching.session import Answer, Wanted
from aiokclient.consumer.meters import FetchedPartition, FetchMeters
from aiokclient.consumer.state.offset_reset import NONE
from aiokclient.consumer.state.partition import PartitionState
from aiokclient.consumer.state.subscription import PartitionBackoff, SubscriptionState
from aiokclient.errors import (
    KafkaError,
    LogTruncationError,
    OffsetOutOfRangeError,
    ResponseTooLargeError,
    error_for,
)
from aiokclient.log.kept_errors import bare
from aiokclient.policy import Decision, Retry, Scope
from aiokclient.protocol.messages.fetch import FetchResponse, PartitionData
from aiokclient.record.batch import RecordBatch
from aiokclient.types import TopicPartition

__all__ = ["BrokerResponses", "EVENTS", "FetchEvent", "PartitionResponses", "useful"]


class PartitionResponses:
    """The methods that apply fetch responses to the partitions of one consumer.

    `arrived` is called when there may be new records for the reader. `report` makes the next
    request for records raise an error.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        buffer: FetchBuffer,
        routes: Routes,
        *,
        arrived: Callable[[], None],
        report: Callable[[KafkaError], None],
    ) -> None:
        self._cluster = cluster
        self._subscription = subscription
        self._buffer = buffer
        self._routes = routes
        self._report = report
        self.arrived = arrived
        self.meters = FetchMeters(subscription.own_metrics)
        self._backoff = PartitionBackoff(cluster.clock, config, subscription)
        self.longest_backoff_s = self._backoff.longest_s
        self.obstructed: set[TopicPartition] = set()
        """Partitions whose next batch was too large to be received; perhaps it no longer is."""

    def is_obstructed(self, tp: TopicPartition) -> bool:
        """Return whether the next batch of a partition was too large to be received."""
        if tp not in self.obstructed:
            return False
        state = self._subscription.partitions.get(tp)
        if state is None or not state.is_obstructed:
            self.obstructed.discard(tp)  # The application has moved the position.
            return False
        return True

    def too_large(self, tp: TopicPartition, wanted: Wanted, error: ResponseTooLargeError) -> None:
        """Handle a batch that is too large to be received. The reader raises the error.

        Records that were fetched before the batch are delivered first.
        """
        state = self._subscription.partitions.get(tp)
        if state is None or state.generation != wanted.generation:
            return
        if state.fetch.offset != wanted.offset:
            return
        failure = bare(error.of_records(tp, wanted.offset))
        self._backoff.obstructed(state, failure)
        self.obstructed.add(tp)
        if state.is_obstructed:
            return
        damage = Damage(wanted.offset, wanted.offset, failure, unfetched=True)
        state.fetch.damaged(state.generation)
        self._buffer.add(PartitionFetch(state, wanted.offset, (), (), None, damage))
        self.arrived()

    def clear(self, state: PartitionState) -> None:
        """Raise the error of `too_large` no more, because the next batch was received."""
        if state.is_obstructed:
            state.clear()
            self._subscription.changed()

    def state(self, answer: Answer) -> PartitionState | None:
        """Return the state of a response's partition, or None if the response is to be ignored.

        It is ignored if the position has jumped since the request, if the fetch offset is no longer
        the requested one (the same records have already arrived), or if the consumer is ending.
        """
        state = self._subscription.partitions.get(answer.tp) if self._routes.is_open else None
        if state is None or state.generation != answer.wanted.generation:
            return None
        return state if state.fetch.offset == answer.wanted.offset else None

    def retry(self) -> Retry:
        """Return the retries of a new fetcher, which have no deadline."""
        return Retry(math.inf, self._backoff.backoff, self._cluster.clock)

    def refresh(self, node_id: int) -> None:
        """Request the leaders of the partitions that are fetched from a broker.

        It does nothing while the consumer ends: the fetch in flight has then failed only because
        the consumer cancelled it.
        """
        if self._routes.is_open:
            self._cluster.updater.request_update(self._routes.topics_of(node_id))

    def keep(self, fetch: PartitionFetch) -> None:
        """Buffer the batches of a partition."""
        fetch.state.fetch.replica_delivers(self._cluster.clock.monotonic())
        self._buffer.add(fetch)

    def out_of_range(self, state: PartitionState, node_id: int, offset: int) -> None:
        """Handle an offset that the broker does not have."""
        self._subscription.settle()
        now = self._cluster.clock.monotonic()
        if node_id != state.fetch.leader:
            state.fetch.rest_replica(now)  # A follower may lag, so the leader is asked next.
        elif offset != state.position:
            # Buffered records are delivered first. Then the position itself is fetched.
            self._backoff.repeat(state)
        elif self._subscription.reset == NONE:
            error = OffsetOutOfRangeError(
                f"The position is {offset}.", api="Fetch", broker=node_id, topic_partition=state.tp
            )
            state.fail(error)
        else:
            reason = f"broker {node_id} does not have the offset"
            self._subscription.reset_visibly(state, reason, self._subscription.reset)
            self._backoff.lost(state)
        self._subscription.changed()

    def diverged(self, state: PartitionState, epoch: int, end_offset: int) -> None:
        """Handle a log that was truncated below the position.

        From `end_offset` on, the log differs from the one that was read. A negative `end_offset`
        means that this offset is unknown.
        """
        self._subscription.settle()
        if self._subscription.reset == NONE:
            error = LogTruncationError(
                f"The position is {state.position}, but the log differs from offset {end_offset} on"
                if end_offset >= 0
                else f"The position is {state.position}",
                topic_partition=state.tp,
                offset=state.position,
                diverging_offset=end_offset if end_offset >= 0 else None,
            )
            state.fail(error)
            self._subscription.changed()
            return
        if end_offset < 0:
            self._subscription.reset_visibly(
                state, "the log was truncated at an unknown offset", self._subscription.reset
            )
        else:
            self._subscription.truncate(state, end_offset, epoch)
        self._backoff.lost(state)

    def refused(self, state: PartitionState, node_id: int, code: int) -> None:
        """Handle an error of the broker for a partition."""
        error = error_for(code, api="Fetch", broker=node_id, topic_partition=state.tp)
        assert error is not None
        if node_id != state.fetch.leader:
            state.fetch.rest_replica(self._cluster.clock.monotonic())
        decision = self._backoff.failed(state, error, Scope.FETCH)
        if decision is Decision.REFRESH_AND_RETRY:
            self._cluster.updater.request_update([state.tp.topic])
        elif decision is not Decision.RETRY:
            self._report(error)
        self._subscription.changed()

    def unusable(self, node_id: int, error: KafkaError) -> None:
        """Handle an error that is expected to fail every fetch from this broker."""
        now = self._cluster.clock.monotonic()
        for state in self._subscription.partitions.values():
            if state.flowing and self._routes.node(state, now) == node_id:
                self._backoff.unusable(state, error)
        if self._subscription.concerns_all(error):
            self._report(error)

    def prefer(self, state: PartitionState, node_id: int, replica: int) -> None:
        """Handle a response in which the leader names a closer replica (KIP-392)."""
        if replica == node_id:
            return
        if not self._routes.prefer(state, replica):
            self._backoff.repeat(state)
        self._subscription.changed()


MAX_UNREAD: Final = 2


class FetchEvent(Enum):
    """The effect of a response on the position of a partition."""

    DATA = auto()
    OUT_OF_RANGE = auto()
    REFUSED = auto()


EVENTS = MappingProxyType({0: FetchEvent.DATA, 1: FetchEvent.OUT_OF_RANGE})
"""The events for error codes that concern the position. All other codes are REFUSED."""


class BrokerResponses:
    """The responses of one broker, of which at most two are unread at a time.

    `freed` is called when all parts of a response have been read.
    """

    def __init__(
        self,
        node_id: int,
        cluster: ClusterClient,
        responses: PartitionResponses,
        freed: Callable[[], None],
    ) -> None:
        self._node_id = node_id
        self._cluster = cluster
        self._responses = responses
        self._freed = freed
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
        slot = Slot(self._read)
        self._unread += 1
        fetched: list[FetchedPartition] = []
        self._fetched = fetched
        for answer in answers:
            self._answer(answer, slot, endpoints)
        throttle_ms = response.throttle_time_ms
        self._responses.meters.fetched(self._bytes, seconds, throttle_ms, fetched)
        slot.release()
        self._responses.arrived()

    def _read(self) -> None:
        self._unread -= 1
        self._freed()

    def _answer(self, answer: Answer, slot: Slot, endpoints: list[BrokerInfo]) -> None:
        state = self._responses.state(answer)
        if state is None:
            return
        event = EVENTS.get(answer.data.error_code, FetchEvent.REFUSED)
        if event is FetchEvent.DATA:
            self._data(state, answer, slot)
        elif event is FetchEvent.OUT_OF_RANGE:
            self._responses.out_of_range(state, self._node_id, answer.wanted.offset)
        else:
            self._responses.refused(state, self._node_id, answer.data.error_code)
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
        end, start = data.high_watermark, data.log_start_offset
        state.fetch.fetched(end, start, data.last_stable_offset)
        if state.error is not None and (data.records or end <= offset):
            self._responses.clear(state)
        size = 0
        if data.diverging_epoch.end_offset >= 0:
            diverging = data.diverging_epoch
            self._responses.diverged(state, diverging.epoch, diverging.end_offset)
        else:
            if data.preferred_read_replica >= 0:
                self._responses.prefer(state, self._node_id, data.preferred_read_replica)
            if data.records:
                size = self._keep(state, offset, data, slot)
        self._fetched.append((state.fetch, state.tp.topic, offset, end, start, size))

    def _keep(self, state: PartitionState, offset: int, data: PartitionData, slot: Slot) -> int:
        """Buffer the batches of a partition, and return their size in bytes."""
        batches, damage = _batches(memoryview(data.records or b""), offset)
        aborted = [(t.producer_id, t.first_offset) for t in data.aborted_transactions or ()]
        shown = visible(batches, aborted)
        fetch = PartitionFetch(state, offset, batches, shown, slot, damage)
        state.fetch.buffered(fetch.next_offset)
        if damage is not None:
            state.fetch.damaged(state.generation)
        self._responses.keep(fetch)
        return fetch.size


def useful(response: FetchResponse) -> bool:
    """Return whether a response has records or errors for any partition."""
    return any(p.records or p.error_code for topic in response.responses for p in topic.partitions)


def _batches(records: memoryview, offset: int) -> tuple[Sequence[RecordBatch], Damage | None]:
    """Return the batches from `offset` on and, if there are none, the damage that is the reason."""
    batches, error = following_batches(records, offset)
    return batches, None if error is None else Damage(offset, offset, error)
