"""Produce 3 to 13: append record batches.

* Versions 0 to 2 are announced, as in Kafka, because some old clients check for them. But a request
  in one of these versions closes the connection.
* Each partition has one batch of magic 2. Its header and checksum are checked. Its records are
  checked only if their keys or timestamps may be refused (`validation.py`). From version 8 on, the
  response names the records that were refused. The log checks sequences.
* For a partition that is repeated, only the last batch is appended.
* A batch that is one of its producer's last five is answered with the offset that it already has.
* With acks=0 there is no response (an error closes the connection). With acks=1 the response comes
  when the batch is in the log, and with acks=-1 when all in-sync replicas have it. After
  `timeout_ms` (immediately if that is 0 or less), the result is REQUEST_TIMED_OUT with the offset.
  It is NOT_ENOUGH_REPLICAS, immediately, if fewer replicas are in sync than min.insync.replicas,
  or than the partition has, whichever is lower.
* A request without a transactional id that has a transactional batch is
  TRANSACTIONAL_ID_AUTHORIZATION_FAILED as a whole. Batches of several transactional producers are
  INVALID_PRODUCER_ID_MAPPING.
* Before the first batch of a transaction in a partition, the transaction's coordinator is asked.
  From version 12 on, the partition is added to the transaction, and while the last transaction ends
  the broker tries again for 100 ms before the result is CONCURRENT_TRANSACTIONS. Up to version 11,
  a partition that was not added is TRANSACTION_ABORTABLE, up to version 10 INVALID_TXN_STATE. If
  the coordinator cannot answer, the result is NOT_ENOUGH_REPLICAS.
* If `compression.type` names a codec, batches are stored in that codec.
* Clients may not write to internal topics: INVALID_TOPIC_EXCEPTION.
* From version 10 on, a broker that is not the leader names the leader (KIP-951). From version 13
  on, topics have ids, and an unknown id is UNKNOWN_TOPIC_ID.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

from aiokclient.protocol.messages import ProduceRequest, ProduceResponse
from aiokclient.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from aiokclient.record.header import ATTRIBUTES_AT, MAGIC_AT, TRANSACTIONAL
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.security.acls import AclResource
from aiokclient.testing.broker.topics.topics import Appended, BrokerTopic, Partition
from aiokclient.testing.broker.topics.validation import (
    MAGIC,
    check_batch,
    convert_batch,
    require_batch,
)
from aiokclient.testing.broker.transactions.produce import ProduceVerification

if TYPE_CHECKING:
    from aiokclient.protocol.schema import Response

ANNOUNCED_FROM = 0
_ALL = -1
_BY_ID = 13
_NO_ID = UUID(int=0)
_ADMIN_CLIENT = "__admin_client"
_ATTRIBUTES_AT = ATTRIBUTES_AT + 1
"""The position of the lower byte of the attributes in a batch. This byte has the flags."""

_Data: TypeAlias = tuple[TopicProduceData, dict[int, PartitionProduceData]]


async def handle(call: Call) -> Answer:
    request: ProduceRequest = call.request
    produce = _Produce(call)
    topics, transactional = await _find_distinct_topics(call)
    if transactional and (
        request.transactional_id is None
        or call.check_authorization(AclResource.TRANSACTIONAL_ID, request.transactional_id)
    ):
        produce.refusal = Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif transactional:
        topics = list(topics)
        produce.refusal = await produce.transaction.verify_batches(topics)
    response = ProduceResponse(
        responses=[await produce.produce_topic(*each) async for each in call.iterate_items(topics)]
    )
    response.node_endpoints = produce.list_endpoints()
    if request.acks == 0:
        if produce.failed:
            # As in Kafka: there is no response, so that only a lost connection makes the client
            # refresh its metadata.
            call.owner.abort()
        return None
    if produce.waiting and request.timeout_ms > 0:
        held = _HeldProduce(call, response, produce.waiting)
        # Replicas may have caught up while the handler yielded to the event loop.
        held.on_change(0)
        return held.answer
    for _, answer, _ in produce.waiting:
        answer.error_code = Code.REQUEST_TIMED_OUT
    return response


async def _find_distinct_topics(call: Call) -> tuple[Iterable[_Data], bool]:
    """Return the topics to append to, and whether any batch belongs to a transaction.

    If a partition is repeated, its last batch is used.
    """
    topics: dict[str | UUID, _Data] = {}
    transactional = False
    async for topic in call.iterate_items(call.request.topic_data):
        key: str | UUID = topic.topic_id if call.version >= _BY_ID else topic.name
        _, partitions = topics.setdefault(key, (topic, {}))
        async for each in call.iterate_items(topic.partition_data):
            partitions[each.index] = each
            transactional = transactional or _is_transactional(each.records or b"")
    return topics.values(), transactional


def _is_transactional(records: bytes | memoryview) -> bool:
    if len(records) <= _ATTRIBUTES_AT or records[MAGIC_AT] != MAGIC:
        return False
    return bool(records[_ATTRIBUTES_AT] & TRANSACTIONAL)


class _Produce:
    """One produce request. `waiting` has the appends that replicas have not received yet."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.transaction = ProduceVerification(call)
        self.failed = False
        self.refusal = Code.NONE
        """The error code with which the whole request is refused."""
        self.waiting: list[tuple[Partition, PartitionProduceResponse, int]] = []
        self._hints: dict[int, None] = {}

    async def produce_topic(
        self, data: TopicProduceData, partitions: dict[int, PartitionProduceData]
    ) -> TopicProduceResponse:
        cluster = self.call.cluster
        if self.call.version >= _BY_ID:
            topic, unknown = cluster.topics_by_id.get(data.topic_id), Code.UNKNOWN_TOPIC_ID
        else:
            topic, unknown = cluster.topics.get(data.name), Code.UNKNOWN_TOPIC_OR_PARTITION
        return TopicProduceResponse(
            name=data.name,
            topic_id=data.topic_id,
            partition_responses=[
                self._produce_partition(topic, data, each, unknown)
                async for each in self.call.iterate_items(partitions.values())
            ],
        )

    def _produce_partition(
        self,
        topic: BrokerTopic | None,
        named: TopicProduceData,
        data: PartitionProduceData,
        unknown: Code,
    ) -> PartitionProduceResponse:
        name = named.name if topic is None else topic.name
        answer = PartitionProduceResponse(index=data.index, base_offset=-1)
        partition = None if topic is None else topic.find_partition(data.index)
        answer.error_code = self.call.find_refusal(name, data.index) or self.refusal
        if partition is None and not answer.error_code:
            missing = topic is not None
            answer.error_code = Code.UNKNOWN_TOPIC_OR_PARTITION if missing else unknown
        elif partition is not None:
            if not answer.error_code:
                self._append_batch(partition, data, answer)
            # From version 10 on, a refusal names the new leader (KIP-951).
            if answer.error_code == Code.NOT_LEADER_OR_FOLLOWER and self.call.version >= 10:
                self._hints[partition.leader] = None
                answer.current_leader = LeaderIdAndEpoch(
                    leader_id=partition.leader, leader_epoch=partition.leader_epoch
                )
        self.failed |= bool(answer.error_code)
        return answer

    def _append_batch(
        self, partition: Partition, data: PartitionProduceData, answer: PartitionProduceResponse
    ) -> None:
        acks = self.call.request.acks
        code = self.transaction.find_code(partition)
        result = Appended(code) if code else self._try_append(partition, data, acks)
        answer.error_code = result.code
        answer.error_message = result.message
        if result.refused:
            answer.log_start_offset = partition.log.start_offset
            answer.record_errors = [
                BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
                for index, message in result.refused.items()
            ]
        if result.code:
            return
        answer.base_offset = result.base_offset
        answer.log_append_time_ms = result.append_time
        answer.log_start_offset = partition.log.start_offset
        end = partition.log.end_offset
        if acks == _ALL and partition.high_watermark < end:
            self.waiting.append((partition, answer, end))

    def _try_append(self, partition: Partition, data: PartitionProduceData, acks: int) -> Appended:
        if acks not in (0, 1, _ALL):
            return Appended(Code.INVALID_REQUIRED_ACKS)
        code = partition.check_request(self.call.broker.node_id, -1)
        if code:
            return Appended(code)
        # Kafka lets only its own tools, by this client id, write to internal topics.
        if partition.topic.internal and self.call.client_id != _ADMIN_CLIENT:
            return Appended(Code.INVALID_TOPIC_EXCEPTION)
        batch = require_batch(data.records)
        if isinstance(batch, Appended):
            return batch
        now_ms = self.call.cluster.clock.time_ms()
        checked = check_batch(batch, partition.topic, self.call.version, now_ms)
        if checked.code:
            return checked
        least = partition.topic.configs.read_number("min.insync.replicas")
        # Kafka never demands more replicas than the partition has.
        if acks == _ALL and len(partition.isr) < min(least, len(partition.replicas)):
            return Appended(Code.NOT_ENOUGH_REPLICAS)
        stored = convert_batch(batch, partition.topic)
        if isinstance(stored, Appended):
            return stored
        verification = self.transaction.find_verification(partition)
        return partition.append_batch(stored, now_ms, verification)

    def list_endpoints(self) -> list[NodeEndpoint]:
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


class _HeldProduce:
    """An append that waits for the in-sync replicas, for `timeout_ms` at most."""

    def __init__(
        self,
        call: Call,
        response: ProduceResponse,
        waiting: list[tuple[Partition, PartitionProduceResponse, int]],
    ) -> None:
        self._node = call.broker.node_id
        self._response = response
        self._waiting = waiting
        self._all = list(waiting)
        self.answer: asyncio.Future[Response | None] = call.hold_response()
        for partition, _, _ in waiting:
            partition.add_watcher(self)
        self._timer = call.cluster.loop.call_later(call.request.timeout_ms / 1000, self._on_timeout)
        self.answer.add_done_callback(self._on_answered)

    def on_change(self, added: int) -> None:
        self._waiting = [each for each in self._waiting if not self._is_done(*each)]
        if not self._waiting and not self.answer.done():
            self.answer.set_result(self._response)

    def _is_done(self, partition: Partition, answer: PartitionProduceResponse, end: int) -> bool:
        if partition.leader != self._node or partition.deleted:
            answer.error_code = Code.NOT_LEADER_OR_FOLLOWER
            answer.base_offset = -1
            return True
        return partition.high_watermark >= end

    def _on_timeout(self) -> None:
        for _, answer, _ in self._waiting:
            answer.error_code = Code.REQUEST_TIMED_OUT
        if not self.answer.done():
            self.answer.set_result(self._response)

    def _on_answered(self, answer: asyncio.Future[Response | None]) -> None:
        self._timer.cancel()
        for partition, _, _ in self._all:
            partition.remove_watcher(self)
