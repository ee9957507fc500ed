"""Fetch 4 to 18: record batches from an offset on, waited for.

* Sessions as in `sessions.py`; their errors refuse the whole request. From version 13 on
  topics have ids: one that is not known is UNKNOWN_TOPIC_ID, for that topic.
* The answer waits until `min_bytes` are there, or `max_wait_ms` is over, or a partition has
  an error, a diverging epoch or a preferred replica to tell; while it waits nothing else on
  the connection is answered.
* `partition_max_bytes` and `max_bytes` hold as in Kafka: batches are whole but for the last
  one of a partition, which may be cut; the first batch of the answer is whole whatever its
  size. Partitions come in the order of the session.
* A replica that follows answers too, from version 11 on, up to what it has. A leader names a
  replica in the client's rack instead of answering with records (KIP-392), if brokers have
  racks and that replica is in sync.
* The leader epoch that the client knows is checked (KIP-320); from version 12 on so is the
  epoch of the last record it has: if the log parted from it before the fetch offset, the
  answer says where.
* Replicas do not fetch here, so that a fetch with a replica id is NOT_LEADER_OR_FOLLOWER, as from
  a broker that has no replica of the partition. An unknown isolation level is
  UNKNOWN_SERVER_ERROR.
* `read_committed` ends at the last stable offset and names the aborted transactions.
* From version 16 on NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH name the leader and its
  address (KIP-951).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from aiokclient.protocol.messages import FetchRequest, FetchResponse
from aiokclient.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from aiokclient.testing.call import Answer, Call
from aiokclient.testing.codes import Code
from aiokclient.testing.sessions import (
    FetchContext,
    FetchedPartition,
    FetchSession,
    PartitionKey,
    TopicKey,
)
from aiokclient.testing.topics import ANYTHING, Partition

if TYPE_CHECKING:
    from aiokclient.protocol.schema import Response

_READ_COMMITTED = 1
_ISOLATION_LEVELS = (0, _READ_COMMITTED)
_UNBOUNDED = 1 << 31
_WHOLE_REQUEST = (
    Code.FETCH_SESSION_ID_NOT_FOUND,
    Code.INVALID_FETCH_SESSION_EPOCH,
    Code.FETCH_SESSION_TOPIC_ID_ERROR,
)
_Topics = dict[TopicKey, FetchableTopicResponse]
_NAMES_LEADER = (Code.NOT_LEADER_OR_FOLLOWER, Code.FENCED_LEADER_EPOCH)


async def handle(call: Call) -> Answer:
    request: FetchRequest = call.request
    code = call.refused()
    if code in _WHOLE_REQUEST:
        return FetchResponse(error_code=code)
    context = await call.broker.sessions.context(call)
    if context.code:
        return FetchResponse(error_code=context.code)
    fetch = _Fetch(call, context)
    if request.isolation_level not in _ISOLATION_LEVELS:
        return await fetch.unreadable()
    await fetch.read_each()
    if fetch.settled or fetch.size >= request.min_bytes or request.max_wait_ms <= 0:
        return await fetch.respond()
    parked = _Parked(fetch)
    if call.yielded:
        # Records may have come while the handler yielded to the event loop.
        parked.changed(ANYTHING)
    return parked.answer


class _Fetch:
    """One fetch; `read` may be called again, the last result counts."""

    def __init__(self, call: Call, context: FetchContext) -> None:
        self.call = call
        self.request: FetchRequest = call.request
        self.session: FetchSession = context.session
        self.settled = not context.session.partitions
        self.size = 0
        self._room = 0
        self._incremental = context.incremental
        state, named = self.request.replica_state, self.request.replica_id
        self._by_replica = (state.replica_id if call.version >= 15 else named) >= 0
        self._committed = self.request.isolation_level == _READ_COMMITTED
        self._answers: list[tuple[FetchedPartition, PartitionData]] = []
        self._gave: list[PartitionKey] = []
        self._hints: dict[int, None] = {}

    def read(self) -> None:
        """Read every partition, within the limits; `size` and `settled` say what came."""
        self._begin()
        for wanted in self.session.partitions.values():
            self._read_one(wanted)

    async def read_each(self) -> None:
        """Do as `read`, and yield to the event loop between partitions."""
        self._begin()
        async for wanted in self.call.each(list(self.session.partitions.values())):
            self._read_one(wanted)

    def _begin(self) -> None:
        self._answers.clear()
        self.size = 0
        self._room = min(self.request.max_bytes, _UNBOUNDED)

    def _read_one(self, wanted: FetchedPartition) -> None:
        before = self.size
        answer = self._partition(wanted, min(self._room, wanted.max_bytes))
        self._room = max(0, self._room - (self.size - before))
        self._answers.append((wanted, answer))

    def found(self) -> Iterable[Partition]:
        """The partitions that there are, of those asked for."""
        for key in self.session.partitions:
            partition = self._find(key)
            if partition is not None:
                yield partition

    def _find(self, key: PartitionKey) -> Partition | None:
        cluster = self.call.cluster
        if isinstance(key.topic, str):
            return cluster.find(key.topic, key.partition)
        topic = cluster.topics_by_id.get(key.topic)
        return None if topic is None else topic.partition(key.partition)

    def _partition(self, wanted: FetchedPartition, max_bytes: int) -> PartitionData:
        partition = self._find(wanted.key)
        if partition is None:
            return self._failed(wanted, self._missing(wanted.key), None)
        code = self.call.refused(partition.topic.name, partition.index)
        if not code and self._by_replica:
            return self._failed(wanted, Code.NOT_LEADER_OR_FOLLOWER, None)
        code = code or partition.check(
            self.call.broker.node_id, wanted.leader_epoch, leader_only=self.call.version < 11
        )
        if code:
            return self._failed(wanted, code, partition)
        return self._read(wanted, partition, max_bytes)

    def _missing(self, key: PartitionKey) -> int:
        if isinstance(key.topic, str):
            return self.call.refused(key.topic, key.partition) or Code.UNKNOWN_TOPIC_OR_PARTITION
        if key.topic not in self.call.cluster.topics_by_id:
            return self.call.refused() or Code.UNKNOWN_TOPIC_ID
        return Code.UNKNOWN_TOPIC_OR_PARTITION

    def _failed(
        self, wanted: FetchedPartition, code: int, partition: Partition | None
    ) -> PartitionData:
        self.settled = True
        answer = PartitionData(
            partition_index=wanted.key.partition,
            error_code=code,
            high_watermark=-1,
            aborted_transactions=None,
            records=b"",
        )
        if partition is not None and code in _NAMES_LEADER and self.call.version >= 16:
            answer.current_leader = LeaderIdAndEpoch(
                leader_id=partition.leader, leader_epoch=partition.leader_epoch
            )
            self._hints[partition.leader] = None
        return answer

    def _read(
        self, wanted: FetchedPartition, partition: Partition, max_bytes: int
    ) -> PartitionData:
        log, node = partition.log, self.call.broker.node_id
        end = partition.replica_end(node)
        high = min(partition.high_watermark, end)
        stable = min(partition.last_stable_offset, end)
        answer = PartitionData(
            partition_index=partition.index,
            high_watermark=high,
            last_stable_offset=stable,
            log_start_offset=log.start_offset,
            aborted_transactions=[] if self._committed else None,
            records=b"",
        )
        preferred = self._preferred(partition, wanted.offset)
        if preferred is not None:
            answer.preferred_read_replica = preferred
            self.settled = True
            return answer
        diverging, known = self._diverging(wanted, partition, end)
        if not log.start_offset <= wanted.offset <= end or not known:
            return self._failed(wanted, Code.OFFSET_OUT_OF_RANGE, partition)
        if diverging is not None:
            answer.diverging_epoch = diverging
            self.settled = True
            return answer
        pieces, size, next_offset = log.read(
            wanted.offset,
            stable if self._committed else high,
            max_bytes,
            whole_first=self.size == 0,
        )
        self.size += size
        answer.records = pieces or b""
        if self._committed:
            answer.aborted_transactions = [
                AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
                for each in log.producers.aborted_in(wanted.offset, next_offset)
            ]
        return answer

    def _diverging(
        self, wanted: FetchedPartition, partition: Partition, end: int
    ) -> tuple[EpochEndOffset | None, bool]:
        """Where the log parted from what the client has, and whether that can be told."""
        if wanted.last_fetched_epoch < 0:
            return None, True
        epoch, ends = partition.log.epochs.end_of(wanted.last_fetched_epoch, end)
        if epoch < 0:
            return None, False
        if epoch < wanted.last_fetched_epoch or ends < wanted.offset:
            return EpochEndOffset(epoch=epoch, end_offset=ends), True
        return None, True

    def _preferred(self, partition: Partition, offset: int) -> int | None:
        """A replica in the client's rack that could answer instead of this leader."""
        broker, rack = self.call.broker, self.request.rack_id
        if not rack or partition.leader != broker.node_id or broker.rack == rack:
            return None
        brokers = self.call.cluster.alive
        for node in partition.isr:
            near = node in brokers and brokers[node].rack == rack
            if near and partition.log.start_offset <= offset <= partition.replica_end(node):
                return node
        return None

    async def unreadable(self) -> FetchResponse:
        """Refuse each partition with UNKNOWN_SERVER_ERROR, without a session."""
        self.call.broker.sessions.remove(self.session)
        async for wanted in self.call.each(list(self.session.partitions.values())):
            answer = self._failed(wanted, Code.UNKNOWN_SERVER_ERROR, None)
            self._answers.append((wanted, answer))
        response = await self.respond()
        response.error_code, response.session_id = Code.UNKNOWN_SERVER_ERROR, 0
        return response

    def response(self) -> FetchResponse:
        """The answer as last read, without partitions that have nothing new to say."""
        topics: _Topics = {}
        for wanted, answer in self._answers:
            self._tell(topics, wanted, answer)
        return self._assembled(topics)

    async def respond(self) -> FetchResponse:
        """Do as `response`, and yield to the event loop between partitions."""
        topics: _Topics = {}
        async for wanted, answer in self.call.each(self._answers):
            self._tell(topics, wanted, answer)
        return self._assembled(topics)

    def _tell(self, topics: _Topics, wanted: FetchedPartition, answer: PartitionData) -> None:
        if not wanted.news(answer) and self._incremental:
            return
        key = wanted.key
        topic = topics.get(key.topic)
        if topic is None:
            topic = topics[key.topic] = FetchableTopicResponse()
            if isinstance(key.topic, str):
                topic.topic = key.topic
            else:
                topic.topic_id = key.topic
        topic.partitions.append(answer)
        if answer.records:
            self._gave.append(key)

    def _assembled(self, topics: _Topics) -> FetchResponse:
        self.session.to_the_end(self._gave)
        return FetchResponse(
            session_id=self.session.id,
            responses=list(topics.values()),
            node_endpoints=self._endpoints(),
        )

    def _endpoints(self) -> list[NodeEndpoint]:
        alive = self.call.cluster.alive
        named = [alive[node] for node in self._hints if node in alive]
        return [
            NodeEndpoint(node_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
            for each in named
        ]


class _Parked:
    """A fetch that waits for its partitions to change, for `max_wait_ms` at most."""

    def __init__(self, fetch: _Fetch) -> None:
        self._fetch = fetch
        self._missing = fetch.request.min_bytes - fetch.size
        self.answer: asyncio.Future[Response | None] = fetch.call.later()
        self._watched = list(fetch.found())
        for partition in self._watched:
            partition.watch(self)
        loop = fetch.call.cluster.loop
        self._timer = loop.call_later(fetch.request.max_wait_ms / 1000, self._finish)
        self.answer.add_done_callback(self._ended)

    def changed(self, added: int) -> None:
        if self.answer.done():
            return
        self._missing -= added
        if self._missing > 0:
            return
        fetch = self._fetch
        fetch.read()
        self._missing = fetch.request.min_bytes - fetch.size
        if fetch.settled or self._missing <= 0:
            self.answer.set_result(fetch.response())
        elif added == ANYTHING:
            self._missing = max(self._missing, 1)

    def _finish(self) -> None:
        if not self.answer.done():
            self._fetch.read()
            self.answer.set_result(self._fetch.response())

    def _ended(self, answer: asyncio.Future[Response | None]) -> None:
        self._timer.cancel()
        for partition in self._watched:
            partition.unwatch(self)
