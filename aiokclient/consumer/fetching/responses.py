"""The effects of fetch responses on partitions.

`BrokerResponses` reads the responses of one broker, partition by partition, and buffers their
batches, which are not decoded here. `PartitionResponses` has what all brokers of a consumer share.
`EVENTS` has those error codes that concern the position of a partition. The policy decides about
all other codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from aiokclient.cluster.metadata.snapshot import BrokerInfo
from aiokclient.config.consumer import ConsumerConfig
from aiokclient.consumer.fetching.buffer import PartitionFetch, read_batches
from aiokclient.consumer.fetching.session import Answer, Wanted
from aiokclient.consumer.meters import FetchedPartition, FetchMeters
from aiokclient.consumer.state.offset_reset import NONE
from aiokclient.consumer.state.partition import PartitionState
from aiokclient.consumer.state.subscription import PartitionBackoff
from aiokclient.decoding.batches import Damage
from aiokclient.errors import (
    KafkaError,
    LogTruncationError,
    OffsetOutOfRangeError,
    ResponseTooLargeError,
    error_for,
)
from aiokclient.log.kept_errors import bare
from aiokclient.policy import Decision, Scope
from aiokclient.protocol.messages.fetch import FetchResponse, PartitionData
from aiokclient.types import TopicPartition

if TYPE_CHECKING:
    from aiokclient.consumer.engine import ConsumerEngine
    from aiokclient.consumer.fetching.broker_fetcher import BrokerFetcher
    from aiokclient.consumer.fetching.manager import FetchManager


class PartitionResponses:
    """The methods that apply fetch responses to the partitions of one consumer."""

    def __init__(self, engine: ConsumerEngine, manager: FetchManager) -> None:
        self._cluster = cluster = engine.cluster
        self._subscription = subscription = engine.subscription
        self._buffer = engine.buffer
        self._manager = manager
        self._reports = engine.reports
        self.arrived = engine.arrived
        self.meters = FetchMeters(subscription.own_metrics)
        self.backoff = PartitionBackoff(cluster.clock, engine.config, subscription)
        self.obstructed: set[TopicPartition] = set()
        """Partitions whose next batch was too large to be received; perhaps it no longer is."""

    def has_obstructed(self, tp: TopicPartition) -> bool:
        """Return whether the next batch of a partition was too large to be received."""
        if tp not in self.obstructed:
            return False
        state = self._subscription.partitions.get(tp)
        if state is None or not state.is_obstructed:
            self.obstructed.discard(tp)  # The application has moved the position.
            return False
        return True

    def on_too_large(
        self, tp: TopicPartition, wanted: Wanted, error: ResponseTooLargeError
    ) -> None:
        """Handle a batch that is too large to be received. The reader raises the error.

        Records that were fetched before the batch are delivered first.
        """
        state = self._subscription.partitions.get(tp)
        if state is None or state.generation != wanted.generation:
            return
        if state.fetch.offset != wanted.offset:
            return
        failure = bare(error.of_records(tp, wanted.offset))
        self.backoff.on_obstruction(state, failure)
        self.obstructed.add(tp)
        if state.is_obstructed:
            return
        damage = Damage(wanted.offset, wanted.offset, failure, unfetched=True)
        state.fetch.stop_at_damage(state.generation)
        self._buffer.add(PartitionFetch(state, wanted.offset, (), (), None, damage))
        self.arrived.set()

    def clear_obstruction(self, state: PartitionState) -> None:
        """Raise the error of `on_too_large` no more, because the next batch was received."""
        if state.is_obstructed:
            state.clear_error()
            self._subscription.report_change()

    def find_state(self, answer: Answer) -> PartitionState | None:
        """Return the state of a response's partition, or None if the response is to be ignored.

        It is ignored if the position has jumped since the request, if the fetch offset is no longer
        the requested one (the same records have already arrived), or if the consumer is ending.
        """
        state = self._subscription.partitions.get(answer.tp) if self._manager.is_open else None
        # A seek has moved the position while the request was in flight.
        if state is None or state.generation != answer.wanted.generation:
            return None
        return state if state.fetch.offset == answer.wanted.offset else None

    def request_leaders(self, node_id: int) -> None:
        """Request the leaders of the partitions that are fetched from a broker.

        It does nothing while the consumer ends: the fetch in flight has then failed only because
        the consumer cancelled it.
        """
        if self._manager.is_open:
            self._cluster.updater.request_update(self._manager.find_topics(node_id))

    def keep_batches(
        self, state: PartitionState, offset: int, data: PartitionData, slot: Slot
    ) -> int:
        """Buffer the batches of a partition, and return their size in bytes."""
        batches, shown, error = read_batches(data, offset)
        damage = None if error is None else Damage(offset, offset, error)
        fetch = PartitionFetch(state, offset, batches, shown, slot, damage)
        state.fetch.fetch_from(fetch.next_offset)
        if damage is not None:
            state.fetch.stop_at_damage(state.generation)
        if state.fetch.preferred >= 0:
            state.fetch.on_replica_records(self._cluster.clock.monotonic())
        self._buffer.add(fetch)
        return fetch.size

    def on_out_of_range(self, state: PartitionState, node_id: int, offset: int) -> None:
        """Handle an offset that the broker does not have."""
        self._subscription.update_positions()
        reset = self._subscription.find_reset(state.tp)
        now = self._cluster.clock.monotonic()
        if node_id != state.fetch.leader:
            state.fetch.rest_replica(now)  # A follower may lag, so the leader is asked next.
        elif offset != state.position:
            # Buffered records are delivered first. Then the position itself is fetched.
            self.backoff.delay_next_request(state)
        elif reset == NONE:
            error = OffsetOutOfRangeError(
                f"The position is {offset}.", api="Fetch", broker=node_id, topic_partition=state.tp
            )
            error.offset = offset
            state.fail(error)
        else:
            reason = f"broker {node_id} does not have the offset"
            self._subscription.reset_position(state, reason, reset)
            self.backoff.on_position_lost(state)
        self._subscription.report_change()

    def on_divergence(self, state: PartitionState, epoch: int, end_offset: int) -> None:
        """Handle a log that was truncated below the position.

        From `end_offset` on, the log differs from the one that was read. A negative `end_offset`
        means that this offset is unknown.
        """
        self._subscription.update_positions()
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
            self._subscription.report_change()
            return
        if end_offset < 0:
            self._subscription.reset_position(
                state, "the log was truncated at an unknown offset", self._subscription.reset
            )
        else:
            self._subscription.move_to_truncation(state, end_offset, epoch)
        self.backoff.on_position_lost(state)

    def on_refusal(self, state: PartitionState, node_id: int, code: int) -> None:
        """Handle an error of the broker for a partition."""
        error = error_for(code, api="Fetch", broker=node_id, topic_partition=state.tp)
        assert error is not None
        if node_id != state.fetch.leader:
            state.fetch.rest_replica(self._cluster.clock.monotonic())
        decision = self.backoff.on_request_failure(state, error, Scope.FETCH)
        if decision is Decision.REFRESH_AND_RETRY:
            self._cluster.updater.request_update([state.tp.topic])
        elif decision is not Decision.RETRY:
            self._reports.add_error(error)
        self._subscription.report_change()

    def on_unusable_broker(self, node_id: int, error: KafkaError) -> None:
        """Handle an error that is expected to fail every fetch from this broker."""
        now = self._cluster.clock.monotonic()
        for state in self._subscription.partitions.values():
            if state.is_readable and self._manager.find_node(state, now) == node_id:
                self.backoff.delay_after_error(state, error, self.backoff.longest_s)
        if self._subscription.must_raise_error(error):
            self._reports.add_error(error)

    def use_replica(self, state: PartitionState, node_id: int, replica: int) -> None:
        """Handle a response in which the leader names a closer replica (KIP-392)."""
        # A follower that names itself, or a leader that is closest, changes nothing.
        if replica == node_id:
            return
        if not self._manager.prefer_replica(state, replica):
            self.backoff.delay_next_request(state)
        self._subscription.report_change()


class Slot:
    """One response of a broker, which counts its unread parts.

    The count begins at one, for the fetcher that adds the parts and then releases the slot.
    """

    __slots__ = ("_responses", "unread")

    def __init__(self, responses: BrokerResponses) -> None:
        self.unread = 1
        self._responses = responses

    def add_part(self) -> None:
        """Count one more unread part."""
        self.unread += 1

    def release_part(self) -> None:
        """Count a part as read; the last part frees the slot."""
        self.unread -= 1
        if self.unread == 0:
            self._responses.on_response_read()


class FetchEvent(Enum):
    """The effect of a response on the position of a partition."""

    DATA = auto()
    OUT_OF_RANGE = auto()
    REFUSED = auto()


EVENTS = MappingProxyType({0: FetchEvent.DATA, 1: FetchEvent.OUT_OF_RANGE})
"""The events for error codes that concern the position. All other codes are REFUSED."""

FIRST_BYTES: Final = 2 * 1024 * 1024
"""The bytes of the first responses. Records that stay in the processor's cache between the socket
and the application take less time to decode."""
GROWTH: Final = 4
"""The factor of growth. The third response may have 32 MiB."""
LONG_WAIT_S: Final = 0.005
"""Seconds of waiting for one response after which the next one is larger. With shorter waits, 2 MiB
for each response are at least 400 MB/s, more than a program reads."""
EARLY_RESPONSES: Final = 16
"""The number of consecutive early responses after which the next one is half as large."""


class ResponseSize:
    """The size to request for the next response of one broker.

    Only one request is in flight, so a response must have enough records for the time until the
    next one arrives. That time is short in one data center, and may be 100 ms between two of them.
    So the size grows while the program waits for responses that are full, up to `fetch_max_bytes`.
    It shrinks, not below the first size, if responses arrive before the program needs them.
    """

    def __init__(self, config: ConsumerConfig) -> None:
        self._most = config.fetch_max_bytes
        # A broker does not wait for more bytes than it may return, so a lower size would make
        # fetch_min_bytes ineffective.
        self._least = min(max(FIRST_BYTES, config.fetch_min_bytes), self._most)
        self.max_bytes = self._least
        """The size in bytes. A larger batch is returned if it is the first one (KIP-74)."""
        self._early = 0

    def on_response(self, size: int, waited_s: float) -> None:
        """Adapt to a response with `size` bytes of records.

        The program has waited `waited_s` seconds for it, with nothing to read.
        """
        if waited_s:
            self._early = 0
            # Batches are not divided, so a response that omits some may be half empty.
            if waited_s >= LONG_WAIT_S and 2 * size >= self.max_bytes:
                self.max_bytes = min(self.max_bytes * GROWTH, self._most)
            return
        self._early += 1
        if self._early == EARLY_RESPONSES:
            self._early = 0
            self.max_bytes = max(self.max_bytes // 2, self._least)


MAX_UNREAD: Final = 2
"""The number of unread responses of a broker at which no further request is sent."""


class BrokerResponses:
    """The responses of one broker, of which at most two are unread at a time."""

    def __init__(self, fetcher: BrokerFetcher, engine: ConsumerEngine) -> None:
        self._fetcher = fetcher
        self._node_id = node_id = fetcher.node_id
        self._engine = engine
        self._cluster = cluster = engine.cluster
        self._responses = engine.fetchers.responses
        self.size = ResponseSize(engine.config)
        self._unread = 0
        metrics = cluster.metrics
        self._bytes = metrics.counter("consumer.fetch.bytes", unit="By", broker=node_id)
        self._fetched: list[FetchedPartition] = []

    @property
    def is_full(self) -> bool:
        """Whether the reader must read a response before the next request."""
        return self._unread >= MAX_UNREAD

    def apply_response(
        self,
        answers: Sequence[Answer],
        response: FetchResponse,
        begun: float | None = None,
        now: float = 0.0,
    ) -> None:
        """Apply a response to its partitions, and buffer its batches.

        `begun` and `now` are the times of the request and of the response, if they were measured.
        """
        since = None if self._unread else self._engine.reader.waiting_since
        slot = Slot(self)
        self._unread += 1
        fetched: list[FetchedPartition] = []
        self._fetched = fetched
        for answer in answers:
            self._apply_answer(answer, slot, response)
        seconds, throttle_ms = None if begun is None else now - begun, response.throttle_time_ms
        self._responses.meters.on_response(self._bytes, seconds, throttle_ms, fetched)
        if begun is not None:
            waited_s = 0.0 if since is None else now - max(since, begun)
            self.size.on_response(sum([part[-1] for part in fetched]), waited_s)
        slot.release_part()
        self._responses.arrived.set()

    def on_response_read(self) -> None:
        """Handle the end of a response whose parts have all been read."""
        self._unread -= 1
        self._fetcher.on_room()

    def _apply_answer(self, answer: Answer, slot: Slot, response: FetchResponse) -> None:
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
            self._apply_hint(state.tp, answer.data, response)

    def _apply_hint(self, tp: TopicPartition, data: PartitionData, response: FetchResponse) -> None:
        """Apply the new leader that a response names (KIP-951)."""
        leader = data.current_leader
        if leader.leader_id >= 0 and leader.leader_epoch >= 0:
            nodes = response.node_endpoints
            endpoints = [BrokerInfo(n.node_id, n.host, n.port, n.rack) for n in nodes]
            self._cluster.updater.apply_hint(*tp, leader.leader_id, leader.leader_epoch, endpoints)

    def _apply_data(self, state: PartitionState, answer: Answer, slot: Slot) -> None:
        data, offset = answer.data, answer.wanted.offset
        state.retry.on_success()
        end, start = data.high_watermark, data.log_start_offset
        state.fetch.set_log_ends(end, start, data.last_stable_offset)
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
                size = self._responses.keep_batches(state, offset, data, slot)
        self._fetched.append((state.fetch, state.tp.topic, offset, end, start, size))
