"""Fetch 4 to 18: record batches from an offset on, after a wait if necessary.

* `sessions.py` describes fetch sessions. An error of the session refuses the whole request. From
  version 13 on, topics have ids. An unknown id is UNKNOWN_TOPIC_ID for that topic.
* The response waits until `min_bytes` are available, `max_wait_ms` has passed, or a partition has
  an error, a diverging epoch, or a preferred replica. While it waits, no other request on the
  connection is answered.
* `partition_max_bytes` and `max_bytes` apply as in Kafka. Batches are whole, except that the last
  one of a partition may be cut off. The first batch of the response is whole whatever its size.
  Partitions are in the order of the session.
* From version 11 on, a follower answers, too, up to the end of its replica. A leader names a
  replica in the client's rack instead of returning records (KIP-392), if brokers have racks and
  that replica is in sync.
* The leader epoch that the client knows is checked (KIP-320). From version 12 on, the epoch of the
  client's last record is checked as well. If the log diverged from the client's records before the
  fetch offset, the response says where.
* Replicas do not fetch here, so a fetch with a replica id is NOT_LEADER_OR_FOLLOWER, as from a
  broker that has no replica of the partition. An unknown isolation level is UNKNOWN_SERVER_ERROR.
* `read_committed` ends at the last stable offset, and the response names the aborted transactions.
* From version 16 on, NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH come with the leader and its
  address (KIP-951).

A request with very many partitions is handled in slices (`Call.iterate_slices`), also while it
waits. If a partition changes while it is being read, it is read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from aiokclient.memory import MANY, untrack, untrack_whole
from aiokclient.protocol.messages import FetchRequest, FetchResponse
from aiokclient.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.sessions import (
    BrokerFetchSession,
    FetchContext,
    FetchedPartition,
    PartitionKey,
    TopicKey,
)
from aiokclient.testing.broker.topics.topics import Partition
from aiokclient.testing.disposal import discard_items

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
    code = call.find_refusal()
    if code in _WHOLE_REQUEST:
        return FetchResponse(error_code=code)
    context = await call.broker.sessions.find_context(call)
    if context.code:
        return FetchResponse(error_code=context.code)
    fetch = _Fetch(call, context)
    try:
        return await fetch.answer_request()
    finally:
        fetch.free_state()


class _Fetch:
    """One fetch request. It may read several times; the last result is the response."""

    def __init__(self, call: Call, context: FetchContext) -> None:
        self.call = call
        self.request: FetchRequest = call.request
        self.session: BrokerFetchSession = context.session
        self._wanted = list(context.session.partitions.values())
        self._many = len(self._wanted) >= MANY
        self._settled = not self._wanted
        self._size = 0
        self._room = 0
        self._incremental = context.incremental
        # From version 15 on, a follower names itself in replica_state (KIP-903).
        state, named = self.request.replica_state, self.request.replica_id
        self._by_replica = (state.replica_id if call.version >= 15 else named) >= 0
        self._committed = self.request.isolation_level == _READ_COMMITTED
        self._answers: list[PartitionData] = []
        self._gave: list[PartitionKey] = []
        self._hints: dict[int, None] = {}
        if self._many:
            untrack(self._wanted)

    async def answer_request(self) -> FetchResponse:
        """Read, wait if there is not enough data, and return the response."""
        if self.request.isolation_level not in _ISOLATION_LEVELS:
            return await self._refuse_all()
        await self._read_all()
        if not self._is_complete and self.request.max_wait_ms > 0:
            await self._wait_for_data()
        return await self._make_response()

    def free_state(self) -> None:
        """Free everything that is stored for this request only."""
        self._wanted, wanted = [], self._wanted
        self._answers, answers = [], self._answers
        discard_items(wanted)
        discard_items(answers)
        if not self.session.id:
            discard_items(self.session.partitions)

    @property
    def _is_complete(self) -> bool:
        """Whether the response need not wait for more data."""
        return self._settled or self._size >= self.request.min_bytes

    async def _wait_for_data(self) -> None:
        """Wait up to `max_wait_ms`, and read again when enough data was appended."""
        wait = _Wait(self.call)
        try:
            await wait.watch_partitions(self._list_existing())
            if self.call.yielded:
                # Records may have come while the handler yielded to the event loop.
                wait.reset_count()
                await self._read_all()
            while not self._is_complete and not wait.over:
                await wait.wait_until_added(self.request.min_bytes - self._size)
                wait.reset_count()
                await self._read_all()
        finally:
            wait.stop_watching()

    async def _read_all(self) -> None:
        """Read all partitions within the limits, and set `_size` and `_settled`."""
        answers: list[PartitionData] = []
        if self._many:
            untrack(answers)
        self._answers, earlier = answers, self._answers
        discard_items(earlier)
        self._size = 0
        self._room = min(self.request.max_bytes, _UNBOUNDED)
        async for part in self.call.iterate_slices(self._wanted):
            answers += [self._read_wanted(wanted) for wanted in part]

    def _read_wanted(self, wanted: FetchedPartition) -> PartitionData:
        before = self._size
        answer = self._read_partition(wanted, min(self._room, wanted.max_bytes))
        self._room = max(0, self._room - (self._size - before))
        return self._hide_answer(answer)

    def _hide_answer(self, answer: PartitionData) -> PartitionData:
        """Hide a response from the garbage collector if the request has many partitions."""
        if self._many:
            untrack_whole(answer)
        return answer

    def _list_existing(self) -> Iterable[Partition]:
        """Yield those of the requested partitions that exist."""
        for wanted in self._wanted:
            partition = self._find_partition(wanted.key)
            if partition is not None:
                yield partition

    def _find_partition(self, key: PartitionKey) -> Partition | None:
        cluster = self.call.cluster
        if isinstance(key.topic, str):
            return cluster.find_partition(key.topic, key.partition)
        topic = cluster.topics_by_id.get(key.topic)
        return None if topic is None else topic.find_partition(key.partition)

    def _read_partition(self, wanted: FetchedPartition, max_bytes: int) -> PartitionData:
        partition = self._find_partition(wanted.key)
        if partition is None:
            return self._make_failure(wanted, self._find_missing_code(wanted.key), None)
        code = self.call.find_refusal(partition.topic.name, partition.index)
        if not code and self._by_replica:
            return self._make_failure(wanted, Code.NOT_LEADER_OR_FOLLOWER, None)
        code = code or partition.check_request(
            self.call.broker.node_id, wanted.leader_epoch, leader_only=self.call.version < 11
        )
        if code:
            return self._make_failure(wanted, code, partition)
        return self._read_log(wanted, partition, max_bytes)

    def _find_missing_code(self, key: PartitionKey) -> int:
        if isinstance(key.topic, str):
            return (
                self.call.find_refusal(key.topic, key.partition) or Code.UNKNOWN_TOPIC_OR_PARTITION
            )
        if key.topic not in self.call.cluster.topics_by_id:
            return self.call.find_refusal() or Code.UNKNOWN_TOPIC_ID
        return Code.UNKNOWN_TOPIC_OR_PARTITION

    def _make_failure(
        self, wanted: FetchedPartition, code: int, partition: Partition | None
    ) -> PartitionData:
        self._settled = True
        answer = PartitionData(
            partition_index=wanted.key.partition,
            error_code=code,
            high_watermark=-1,
            aborted_transactions=None,
            records=b"",
        )
        # From version 16 on, a refusal names the new leader (KIP-951).
        if partition is not None and code in _NAMES_LEADER and self.call.version >= 16:
            answer.current_leader = LeaderIdAndEpoch(
                leader_id=partition.leader, leader_epoch=partition.leader_epoch
            )
            self._hints[partition.leader] = None
        return answer

    def _read_log(
        self, wanted: FetchedPartition, partition: Partition, max_bytes: int
    ) -> PartitionData:
        log, node = partition.log, self.call.broker.node_id
        end = partition.find_replica_end(node)
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
        preferred = self._find_preferred_replica(partition, wanted.offset)
        if preferred is not None:
            answer.preferred_read_replica = preferred
            self._settled = True
            return answer
        diverging, known = self._find_divergence(wanted, partition, end)
        if not log.start_offset <= wanted.offset <= end or not known:
            return self._make_failure(wanted, Code.OFFSET_OUT_OF_RANGE, partition)
        # From version 12 on, a fetch finds a truncation without OffsetForLeaderEpoch (KIP-595).
        if diverging is not None:
            answer.diverging_epoch = diverging
            self._settled = True
            return answer
        pieces, size, next_offset = log.read_range(
            wanted.offset,
            stable if self._committed else high,
            max_bytes,
            # Only the first batch of a response may exceed the limits (KIP-74).
            whole_first=self._size == 0,
        )
        self._size += size
        answer.records = pieces or b""
        if self._committed:
            answer.aborted_transactions = [
                AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
                for each in log.producers.find_aborted(wanted.offset, next_offset)
            ]
        return answer

    def _find_divergence(
        self, wanted: FetchedPartition, partition: Partition, end: int
    ) -> tuple[EpochEndOffset | None, bool]:
        """Return where the log diverged from the client's records, and whether that is known."""
        if wanted.last_fetched_epoch < 0:
            return None, True
        epoch, ends = partition.log.epochs.find_end(wanted.last_fetched_epoch, end)
        if epoch < 0:
            return None, False
        if epoch < wanted.last_fetched_epoch or ends < wanted.offset:
            return EpochEndOffset(epoch=epoch, end_offset=ends), True
        return None, True

    def _find_preferred_replica(self, partition: Partition, offset: int) -> int | None:
        """Return a replica in the client's rack that could answer instead of the leader, if any."""
        broker, rack = self.call.broker, self.request.rack_id
        if not rack or partition.leader != broker.node_id or broker.rack == rack:
            return None
        brokers = self.call.cluster.alive
        for node in partition.isr:
            near = node in brokers and brokers[node].rack == rack
            if near and partition.log.start_offset <= offset <= partition.find_replica_end(node):
                return node
        return None

    async def _refuse_all(self) -> FetchResponse:
        """Refuse each partition with UNKNOWN_SERVER_ERROR, without a session."""
        self.call.broker.sessions.remove_session(self.session)
        async for part in self.call.iterate_slices(self._wanted):
            for wanted in part:
                answer = self._make_failure(wanted, Code.UNKNOWN_SERVER_ERROR, None)
                self._answers.append(self._hide_answer(answer))
        response = await self._make_response()
        response.error_code, response.session_id = Code.UNKNOWN_SERVER_ERROR, 0
        return response

    async def _make_response(self) -> FetchResponse:
        """Return the response with the results of the last read.

        The response to an incremental fetch has only partitions with news (see `sessions.py`).
        """
        topics: _Topics = {}
        async for part in self.call.iterate_slices(zip(self._wanted, self._answers, strict=True)):
            for wanted, answer in part:
                self._add_answer(topics, wanted, answer)
        self.session.move_to_end(self._gave)
        return FetchResponse(
            session_id=self.session.id,
            responses=list(topics.values()),
            node_endpoints=self._list_endpoints(),
        )

    def _add_answer(self, topics: _Topics, wanted: FetchedPartition, answer: PartitionData) -> None:
        if not wanted.has_news(answer) and self._incremental:
            return
        key = wanted.key
        topic = topics.get(key.topic)
        if topic is None:
            topic = topics[key.topic] = FetchableTopicResponse()
            if self._many:
                untrack(topic.partitions)
            if isinstance(key.topic, str):
                topic.topic = key.topic
            else:
                topic.topic_id = key.topic
        topic.partitions.append(answer)
        if answer.records:
            self._gave.append(key)

    def _list_endpoints(self) -> list[NodeEndpoint]:
        alive, listener = self.call.cluster.alive, self.call.owner.listener
        named = [alive[node] for node in self._hints if node in alive]
        return [
            NodeEndpoint(
                node_id=each.node_id,
                host=each.endpoints[listener].host,
                port=each.endpoints[listener].port,
                rack=each.rack,
            )
            for each in named
        ]


class _Wait:
    """A wait for partitions to change, for the request's `max_wait_ms` at most."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self.over = False
        """Whether `max_wait_ms` has passed."""
        self._added = 0
        self._enough = 0
        self._woken: asyncio.Future[None] | None = None
        self._watched: list[Partition] = []
        loop, seconds = call.cluster.loop, call.request.max_wait_ms / 1000
        self._timer = loop.call_later(seconds, self._on_timeout)

    async def watch_partitions(self, partitions: Iterable[Partition]) -> None:
        """Watch all partitions for changes."""
        async for part in self._call.iterate_slices(partitions):
            for each in part:
                each.add_watcher(self)
                self._watched.append(each)

    def reset_count(self) -> None:
        """Reset the count of added bytes."""
        self._added = 0

    async def wait_until_added(self, size: int) -> None:
        """Wait until `size` bytes were added since `reset_count`, at most for `max_wait_ms`."""
        self._enough = size
        if self._added < size and not self.over:
            self._woken = self._call.cluster.loop.create_future()
            await self._woken

    def on_change(self, added: int) -> None:
        self._added += added
        if self._added >= self._enough:
            self._wake_waiter()

    def _on_timeout(self) -> None:
        self.over = True
        self._wake_waiter()

    def _wake_waiter(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def stop_watching(self) -> None:
        """Stop watching."""
        self._timer.cancel()
        for partition in self._watched:
            partition.remove_watcher(self)
