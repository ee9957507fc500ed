"""The admin calls that find hanging transactions and abort them.

A transaction hangs in a partition if it is open in the partition's log, and its coordinator does
not know of it and will therefore never end it. Readers with `read_committed` wait at its first
record. This happened with brokers older than 3.6, which accepted records that arrived after the end
of their transaction (KIP-890).

The search follows KIP-664:

1. DescribeProducers returns the producers of each partition. Their transactions that have been open
   for longer than any transaction may take are candidates.
2. ListTransactions returns the transactional ids of these producers.
3. DescribeTransactions returns the partitions that the coordinators know of each transaction. A
   candidate hangs if its producer has no transactional id, or if the transaction of that id does
   not include the partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from aiokclient.admin.arguments import TOPIC, as_name, as_partition, require_integer
from aiokclient.admin.producers import ProducerCalls
from aiokclient.admin.requests import AdminRequests, Answers, leader_failure
from aiokclient.admin.topics import TopicCalls
from aiokclient.admin.transaction_descriptions import HangingTransaction, TransactionDescription
from aiokclient.admin.transactions import TransactionCalls
from aiokclient.cluster.targets import Leader
from aiokclient.errors import (
    IllegalStateError,
    TransactionalIdNotFoundError,
    UnknownTopicOrPartitionError,
)
from aiokclient.errors.local import ArgumentTypeError
from aiokclient.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from aiokclient.types import TopicPartition

__all__ = ["HangingTransactionCalls"]

T = TypeVar("T")

API = "WriteTxnMarkers"
AT_ONCE: Final = 500
"""The number of topics or partitions in one step of a search, so that requests stay small."""
LOWEST_EPOCH: Final = 0
"""The coordinator epoch that is sent if it is unknown. No coordinator has a lower one."""


class HangingTransactionCalls:
    """The admin calls about hanging transactions."""

    def __init__(
        self,
        requests: AdminRequests,
        topics: TopicCalls,
        producers: ProducerCalls,
        transactions: TransactionCalls,
    ) -> None:
        self._requests = requests
        self._topics = topics
        self._producers = producers
        self._transactions = transactions

    async def find_hanging_transactions(
        self,
        *,
        topic: str | None = None,
        partition: int | None = None,
        broker_id: int | None = None,
        max_transaction_timeout_ms: int = 900_000,
        timeout: float | None = None,
    ) -> tuple[HangingTransaction, ...]:
        """See `Admin.find_hanging_transactions`."""
        _check_scope(topic, partition, broker_id)
        require_integer(max_transaction_timeout_ms, "a number of milliseconds")
        clock = self._requests.cluster.clock
        deadline = self._requests.deadline(timeout)

        def left_s() -> float:
            return max(deadline - clock.monotonic(), 0.0)

        candidates: list[HangingTransaction] = []
        for some in _parts(await self._partitions(topic, partition, broker_id, left_s)):
            started_by = clock.time_ms() - max_transaction_timeout_ms
            candidates += [
                each
                for each in await self._open(some, broker_id, topic is None, left_s())
                if (each.last_timestamp or 0) < started_by
            ]
        return await self._hanging(candidates, left_s)

    async def _partitions(
        self,
        topic: str | None,
        partition: int | None,
        broker_id: int | None,
        left_s: Callable[[], float],
    ) -> list[TopicPartition]:
        """Return the partitions to search."""
        if topic is not None and partition is not None:
            return [TopicPartition(topic, partition)]
        names = [topic] if topic is not None else await self._all_topics(left_s())
        found: list[TopicPartition] = []
        for some in _parts(names):
            results = await self._topics.describe_topics(some, timeout=left_s())
            if topic is not None:
                results.raise_for_errors()
            found += [
                TopicPartition(described.name, each.index)
                for described in results.succeeded.values()
                for each in described.partitions
                if broker_id is None or broker_id in each.replicas
            ]
        return found

    async def _all_topics(self, left_s: float) -> list[str]:
        return list(await self._topics.list_topics(internal=True, timeout=left_s))

    async def _open(
        self,
        partitions: Sequence[TopicPartition],
        broker_id: int | None,
        may_be_deleted: bool,
        left_s: float,
    ) -> list[HangingTransaction]:
        """Return all open transactions of these partitions."""
        results = await self._producers.describe_producers(
            partitions, broker_id=broker_id, timeout=left_s
        )
        for error in results.errors.values():
            # If the caller did not name the topic, its deletion during the search is no error.
            if not (may_be_deleted and error.code == UnknownTopicOrPartitionError.code):
                raise error
        return [
            HangingTransaction(
                tp,
                producer.producer_id,
                producer.producer_epoch,
                producer.coordinator_epoch,
                producer.transaction_start_offset,
                producer.last_timestamp,
            )
            for tp, producers in results.succeeded.items()
            for producer in producers
            if producer.transaction_start_offset is not None
        ]

    async def _hanging(
        self, candidates: Sequence[HangingTransaction], left_s: Callable[[], float]
    ) -> tuple[HangingTransaction, ...]:
        """Return the open transactions that no coordinator will end."""
        if not candidates:
            return ()
        producer_ids = {each.producer_id for each in candidates}
        listed = await self._transactions.list_transactions(
            producer_ids=producer_ids, timeout=left_s()
        )
        ids = {each.producer_id: each.transactional_id for each in listed.values()}
        known = await self._known(ids.values(), left_s())
        found: list[HangingTransaction] = []
        for each in candidates:
            transactional_id = ids.get(each.producer_id)
            described = known.get(transactional_id or "")
            if described is None or each.partition not in described.partitions:
                found.append(replace(each, transactional_id=transactional_id))
        return tuple(found)

    async def _known(
        self, transactional_ids: Iterable[str], left_s: float
    ) -> dict[str, TransactionDescription]:
        """Return the transactions of these ids, except ids that no coordinator knows any more."""
        results = await self._transactions.describe_transactions(transactional_ids, timeout=left_s)
        for error in results.errors.values():
            if error.code != TransactionalIdNotFoundError.code:
                raise error
        return results.succeeded

    async def abort_transaction(
        self, transaction: HangingTransaction, *, timeout: float | None = None
    ) -> None:
        """See `Admin.abort_transaction`."""
        if not isinstance(transaction, HangingTransaction):
            raise ArgumentTypeError(f"{transaction!r} is not a HangingTransaction. Pass one.")
        epoch = transaction.coordinator_epoch
        marker = WritableTxnMarker(
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            transaction_result=False,
            coordinator_epoch=LOWEST_EPOCH if epoch is None else epoch,
        )

        async def ask(
            items: dict[TopicPartition, None], to: Leader, remaining: float
        ) -> Answers[TopicPartition, None]:
            marker.topics = [
                WritableTxnMarkerTopic(name=tp.topic, partition_indexes=[tp.partition])
                for tp in items
            ]
            request = WriteTxnMarkersRequest(markers=[marker])
            response = await self._requests.send(request, to, remaining)
            return {
                (tp := TopicPartition(topic.name, part.partition_index)): leader_failure(
                    part.error_code, API, tp
                )
                for result in response.markers
                for topic in result.topics
                for part in topic.partitions
            }

        wanted = {as_partition(transaction.partition): None}
        results = await self._requests.by_leader(wanted, ask, API, timeout)
        results.raise_for_errors()


def _parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), AT_ONCE):
        yield items[start : start + AT_ONCE]


def _check_scope(topic: str | None, partition: int | None, broker_id: int | None) -> None:
    """Raise IllegalStateError or ArgumentTypeError if the arguments select no valid scope."""
    if topic is None and broker_id is None:
        raise IllegalStateError(
            "A search in all partitions of a cluster takes too long. Pass topic=, broker_id=, or "
            "both."
        )
    if partition is not None and topic is None:
        raise IllegalStateError("partition= needs topic=. Pass both, or neither.")
    if topic is not None:
        as_name(topic, TOPIC)
    if partition is not None:
        require_integer(partition, "the number of a partition")
    if broker_id is not None:
        require_integer(broker_id, "the id of a broker")
