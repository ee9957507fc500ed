"""The handling of one broker's responses to fetch requests, partition by partition.

`EVENTS` has those error codes that concern the position of a partition. The policy decides about
all other codes. Records are not decoded here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from types import MappingProxyType
from typing import Final

from aiokclient.cluster.client import ClusterClient
from aiokclient.cluster.metadata.snapshot import BrokerInfo
from aiokclient.consumer.fetching.aborted import visible
from aiokclient.consumer.fetching.buffer import Damage, PartitionFetch, Slot
from aiokclient.consumer.fetching.following import following_batches
from aiokclient.consumer.fetching.responses import PartitionResponses
from aiokclient.consumer.fetching.session import Answer
from aiokclient.consumer.meters import FetchedPartition
from aiokclient.consumer.state.partition import PartitionState
from aiokclient.protocol.messages.fetch import FetchResponse, PartitionData
from aiokclient.record.batch import RecordBatch
from aiokclient.types import TopicPartition

__all__ = ["EVENTS", "BrokerResponses", "FetchEvent", "useful"]

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
