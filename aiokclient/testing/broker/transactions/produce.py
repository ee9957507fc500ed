"""The verification of the transactional batches of one Produce request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.topics.producers import Verification
from aiokclient.testing.broker.topics.topics import Appended, Partition
from aiokclient.testing.broker.topics.validation import require_batch
from aiokclient.testing.broker.transactions.transaction import ProducerIdAndEpoch
from aiokclient.testing.broker.transactions.verification import (
    Support,
    ask_coordinator,
    find_support,
)
from aiokclient.types import TopicPartition

if TYPE_CHECKING:
    from aiokclient.protocol.messages.produce import PartitionProduceData, TopicProduceData
    from aiokclient.testing.broker.call import Call

_BY_ID = 13
_ABORTABLE_SINCE = 11
_RETRY_FOR_S = 0.1
"""Seconds for which a broker waits for the end of the last transaction."""
_RETRY_AFTER_S = 0.02
_UNAVAILABLE = frozenset(
    {
        Code.COORDINATOR_LOAD_IN_PROGRESS,
        Code.COORDINATOR_NOT_AVAILABLE,
        Code.NOT_COORDINATOR,
    }
)

_Data: TypeAlias = "tuple[TopicProduceData, dict[int, PartitionProduceData]]"


class _Batch(NamedTuple):
    partition: Partition
    producer: ProducerIdAndEpoch
    sequence: int


class ProduceVerification:
    """The results of the verification, by partition."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._codes: dict[Partition, Code] = {}
        self._verifications: dict[Partition, Verification] = {}
        self._support = find_support(call.version, _ABORTABLE_SINCE)

    def find_code(self, partition: Partition) -> Code:
        """Return the error code with which a partition's batch is refused, or NONE."""
        return self._codes.get(partition, Code.NONE)

    def find_verification(self, partition: Partition) -> Verification | None:
        """Return the verification that must still be valid at the append, or None."""
        return self._verifications.get(partition)

    async def verify_batches(self, topics: Iterable[_Data]) -> Code:
        """Verify the transactional batches. Return a code that refuses the whole request, or NONE.

        The results for single partitions are those of `find_code` and `find_verification`.
        """
        batches = [each async for each in self._list_batches(topics)]
        producers = {each.producer for each in batches}
        if len(producers) > 1:
            return Code.INVALID_PRODUCER_ID_MAPPING
        loop = self._call.cluster.loop
        deadline = loop.time() + _RETRY_FOR_S
        while (
            self._ask_coordinator(batches)
            and self._support is Support.ADDS
            and loop.time() < deadline
        ):
            pause: asyncio.Future[None] = loop.create_future()
            loop.call_later(_RETRY_AFTER_S, _wake_waiter, pause)
            await pause
        return Code.NONE

    async def _list_batches(self, topics: Iterable[_Data]) -> AsyncIterator[_Batch]:
        cluster = self._call.cluster
        for data, partitions in topics:
            by_id = self._call.version >= _BY_ID
            topic = (
                cluster.topics_by_id.get(data.topic_id) if by_id else cluster.topics.get(data.name)
            )
            async for each in self._call.iterate_items(partitions.values()):
                partition = None if topic is None else topic.find_partition(each.index)
                batch = require_batch(each.records)
                if partition is None or isinstance(batch, Appended):
                    continue
                if batch.is_transactional and batch.producer_id >= 0:
                    producer = ProducerIdAndEpoch(batch.producer_id, batch.producer_epoch)
                    yield _Batch(partition, producer, batch.base_sequence)

    def _ask_coordinator(self, batches: Iterable[_Batch]) -> bool:
        """Ask the coordinator about all batches, and return whether to ask again soon."""
        self._codes.clear()
        self._verifications.clear()
        call = self._call
        asked: dict[TopicPartition, tuple[Partition, Verification]] = {}
        for partition, producer, sequence in batches:
            code = partition.check_request(call.broker.node_id, -1)
            bumps = self._support is Support.ADDS
            found = code or partition.log.producers.begin_verification(*producer, sequence, bumps)
            if isinstance(found, Verification):
                tp = TopicPartition(partition.topic.name, partition.index)
                asked[tp] = partition, found
                self._verifications[partition] = found
            elif found:
                self._codes[partition] = found
        wanted = {tp: verification for tp, (_, verification) in asked.items()}
        if not wanted:
            return False
        transactional_id = call.request.transactional_id
        codes = ask_coordinator(call, transactional_id, producer, wanted, self._support)
        for tp, code in codes.items():
            if code:
                self._codes[asked[tp][0]] = self._adapt_code(code)
        return Code.CONCURRENT_TRANSACTIONS in codes.values()

    def _adapt_code(self, code: Code) -> Code:
        """Return the code for the client: one after which it retries, if a retry may help."""
        concurrent = code is Code.CONCURRENT_TRANSACTIONS and self._support is not Support.ADDS
        return Code.NOT_ENOUGH_REPLICAS if code in _UNAVAILABLE or concurrent else code


def _wake_waiter(pause: asyncio.Future[None]) -> None:
    if not pause.done():
        pause.set_result(None)
