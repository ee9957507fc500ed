"""Transactions made with raw requests, for tests that need one in a certain state.

transaction = RawTransaction(client, "t-1")
await transaction.begin()                        # InitProducerId
await transaction.produce(tp, b"a", b"b")        # the broker adds the partition (KIP-890)
await transaction.commit_offsets("g", {tp: 3})   # the coordinator adds the group (KIP-890)
await transaction.end(commit=True)               # EndTxn, which returns the next epoch
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from aiokclient import Client, Coordinator, Leader, TopicPartition
from aiokclient.errors import ConcurrentTransactionsError, UnknownTopicOrPartitionError, error_for
from aiokclient.network.pool import Purpose
from aiokclient.protocol.messages import (
    EndTxnRequest,
    InitProducerIdRequest,
    MetadataRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from aiokclient.protocol.messages.metadata import MetadataRequestTopic
from aiokclient.protocol.messages.produce import PartitionProduceData, TopicProduceData
from aiokclient.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from aiokclient.record.batch import RecordBatchBuilder

SHORTLY_REFUSED = (ConcurrentTransactionsError, UnknownTopicOrPartitionError)
"""Errors of a request that is sent too soon after the end of a transaction, or after a topic's
creation."""


class RawTransaction:
    """The transactions of one transactional id, one after the other."""

    def __init__(
        self, client: Client, transactional_id: str, *, transaction_timeout_ms: int = 60_000
    ) -> None:
        self.client = client
        self.transactional_id = transactional_id
        self.timeout_ms = transaction_timeout_ms
        self.producer_id = self.producer_epoch = -1
        self._sequences: dict[TopicPartition, int] = {}

    async def begin(self) -> None:
        """Get a producer id and an epoch, which fences older producers with this id."""
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=self.timeout_ms
        )
        response = await self.client.request(
            request, to=Coordinator("transaction", self.transactional_id)
        )
        self._continue_as(response)

    async def produce(
        self, tp: TopicPartition, *values: bytes, timestamp: int | None = None, version: int = 12
    ) -> int:
        """Append one batch to a partition; return its base offset.

        Versions below 12 do not add the partition to the transaction.
        """
        builder = RecordBatchBuilder(limit=1 << 20)
        stamp = self.client._cluster.clock.time_ms() if timestamp is None else timestamp
        for value in values:
            builder.append(stamp, None, value)
        builder.close()
        first = self._sequences.get(tp, 0)
        data = builder.seal(self.producer_id, self.producer_epoch, first, transactional=True)
        part = PartitionProduceData(index=tp.partition, records=bytes(data))
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=tp.topic, partition_data=[part])],
        )
        leader = await self._leader(tp)
        while True:
            connection = await self.client._cluster.connect(leader, Purpose.CONTROL)
            response: Any = await connection.send(request, timeout_s=60, version=version)
            answer = response.responses[0].partition_responses[0]
            if not _is_refused_shortly(answer.error_code):
                break
            await asyncio.sleep(0.05)
        self._sequences[tp] = first + len(values)
        return int(answer.base_offset)

    async def _leader(self, tp: TopicPartition) -> int:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=tp.topic)], allow_auto_topic_creation=False
        )
        response = await self.client.request(request, to=Leader(*tp))
        [leader] = [
            part.leader_id
            for part in response.topics[0].partitions
            if part.partition_index == tp.partition
        ]
        return int(leader)

    async def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Send offsets of a group, which EndTxn commits."""
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for tp, offset in offsets.items():
            part = TxnOffsetCommitRequestPartition(
                partition_index=tp.partition, committed_offset=offset, committed_metadata=""
            )
            topics.setdefault(tp.topic, []).append(part)
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            topics=[TxnOffsetCommitRequestTopic(name=n, partitions=p) for n, p in topics.items()],
        )
        coordinator = await self.client._cluster.coordinators.locate_coordinator("group", group)
        while True:
            connection = await self.client._cluster.connect(coordinator, Purpose.CONTROL)
            response: Any = await connection.send(request, timeout_s=60, version=5)
            codes = {part.error_code for topic in response.topics for part in topic.partitions}
            if not [code for code in codes if _is_refused_shortly(code)]:
                return
            await asyncio.sleep(0.05)

    async def end(self, *, commit: bool) -> None:
        """End the transaction, and take the epoch of the next one."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=commit,
        )
        response = await self.client.request(
            request, to=Coordinator("transaction", self.transactional_id)
        )
        if response.producer_id >= 0:
            self._continue_as(response)

    def _continue_as(self, response: Any) -> None:
        self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch
        self._sequences.clear()


def _is_refused_shortly(code: int) -> bool:
    """Return whether the code is that of an error in SHORTLY_REFUSED. Raises any other error."""
    error = error_for(code)
    if error is None or isinstance(error, SHORTLY_REFUSED):
        return error is not None
    raise error
