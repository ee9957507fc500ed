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

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from aiokclient.admin.arguments import TOPIC, as_name, as_partition, require_integer
from aiokclient.admin.requests import (
    AdminRequests,
    Answers,
    by_partition,
    make_leader_failure,
    split_into_steps,
)
from aiokclient.admin.topics import describe_topics, list_topics
from aiokclient.admin.transactions import (
    TransactionDescription,
    describe_producers,
    describe_transactions,
    list_transactions,
)
from aiokclient.cluster.targets import Leader
from aiokclient.errors import (
    BrokerIdNotRegisteredError,
    IllegalStateError,
    KafkaError,
    TransactionalIdNotFoundError,
    UnknownTopicOrPartitionError,
)
from aiokclient.errors.local import ArgumentTypeError
from aiokclient.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from aiokclient.types import TopicPartition, public_in

T = TypeVar("T")

API = "WriteTxnMarkers"
LOWEST_EPOCH: Final = 0
"""The coordinator epoch that is sent if it is unknown. No coordinator has a lower one."""


@public_in("aiokclient.admin")
@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """An open transaction in the log of a partition, which `abort_transaction` can end.

    The first four fields identify it. For brokers older than 3.0, which cannot search for hanging
    transactions, create it from data of the log (`kafka-dump-log.sh`). The remaining fields are
    what `find_hanging_transactions` knows of it: the offset of its first record, the time of its
    last record in milliseconds since the epoch, and the transactional id. None means unknown.
    """

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int | None = None
    start_offset: int | None = None
    last_timestamp: int | None = None
    transactional_id: str | None = None


async def find_hanging_transactions(
    requests: AdminRequests,
    topic: str | None,
    partition: int | None,
    broker_id: int | None,
    max_transaction_timeout_ms: int,
    timeout: float | None,
) -> tuple[HangingTransaction, ...]:
    """See `Admin.find_hanging_transactions`."""
    _check_scope(topic, partition, broker_id)
    require_integer(max_transaction_timeout_ms, "a number of milliseconds")
    deadline = requests.compute_deadline(timeout)
    partitions = await _list_partitions(requests, topic, partition, broker_id, deadline)

    def on_error(tp: TopicPartition, error: KafkaError) -> None:
        # If the caller did not name the topic, its deletion during the search is no error.
        if topic is not None or error.code != UnknownTopicOrPartitionError.code:
            raise error

    candidates = await list_candidates(
        requests, partitions, broker_id, max_transaction_timeout_ms, deadline, on_error
    )
    return await select_hanging(requests, candidates, deadline)


async def list_candidates(
    requests: AdminRequests,
    partitions: Sequence[TopicPartition],
    broker_id: int | None,
    max_transaction_timeout_ms: int,
    deadline: float,
    on_error: Callable[[TopicPartition, KafkaError], None],
) -> list[HangingTransaction]:
    """Return the transactions that are open for longer than any may be, and so may hang.

    Each partition is asked by its leader, or by one broker. `on_error` is called for each partition
    whose producers cannot be described.
    """
    candidates: list[HangingTransaction] = []
    for step in split_into_steps(partitions):
        started_by = requests.cluster.clock.time_ms() - max_transaction_timeout_ms
        candidates += [
            transaction
            for transaction in await _list_open(requests, step, broker_id, on_error, deadline)
            if (transaction.last_timestamp or 0) < started_by
        ]
    return candidates


async def _list_partitions(
    requests: AdminRequests,
    topic: str | None,
    partition: int | None,
    broker_id: int | None,
    deadline: float,
) -> list[TopicPartition]:
    """Return the partitions to search."""
    if topic is not None and partition is not None:
        return [TopicPartition(topic, partition)]
    if topic is not None:
        names = [topic]
    else:
        names = list(await list_topics(requests, True, requests.compute_remaining_s(deadline)))
    partitions: list[TopicPartition] = []
    for step in split_into_steps(names):
        remaining = requests.compute_remaining_s(deadline)
        results = await describe_topics(requests, step, False, None, remaining)
        for error in results.errors.values():
            # Without a name, a topic may have been deleted since the topics were listed.
            if topic is not None or error.code != UnknownTopicOrPartitionError.code:
                raise error
        partitions += [
            TopicPartition(description.name, each.index)
            for description in results.succeeded.values()
            for each in description.partitions
            if broker_id is None or broker_id in each.replicas
        ]
    if broker_id is not None and not partitions:
        _require_broker(requests, broker_id)
    return partitions


def _require_broker(requests: AdminRequests, broker_id: int) -> None:
    """Raise BrokerIdNotRegisteredError for a broker that the cluster does not know."""
    running = requests.cluster.metadata.brokers
    if broker_id not in running:
        error = BrokerIdNotRegisteredError()
        error.what = f"No broker {broker_id} is running, and none of the partitions is on it."
        error.hint = f"The brokers that run are {', '.join(map(str, sorted(running)))}."
        raise error


async def _list_open(
    requests: AdminRequests,
    partitions: Sequence[TopicPartition],
    broker_id: int | None,
    on_error: Callable[[TopicPartition, KafkaError], None],
    deadline: float,
) -> list[HangingTransaction]:
    """Return all open transactions of these partitions."""
    remaining = requests.compute_remaining_s(deadline)
    results = await describe_producers(requests, partitions, broker_id, remaining)
    for tp, error in results.errors.items():
        on_error(tp, error)
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


async def select_hanging(
    requests: AdminRequests, candidates: Sequence[HangingTransaction], deadline: float
) -> tuple[HangingTransaction, ...]:
    """Return those of the open transactions that no coordinator will end."""
    if not candidates:
        return ()
    producer_ids = {each.producer_id for each in candidates}
    listings = await list_transactions(
        requests, (), producer_ids, None, None, requests.compute_remaining_s(deadline)
    )
    ids = {each.producer_id: each.transactional_id for each in listings.values()}
    descriptions = await _describe_known(requests, ids.values(), deadline)
    hanging: list[HangingTransaction] = []
    for each in candidates:
        transactional_id = ids.get(each.producer_id)
        description = descriptions.get(transactional_id or "")
        # A coordinator writes markers to the partitions that it knows of the transaction. It will
        # never write one to any other (KIP-664).
        if description is None or each.partition not in description.partitions:
            hanging.append(replace(each, transactional_id=transactional_id))
    return tuple(hanging)


async def _describe_known(
    requests: AdminRequests, transactional_ids: Iterable[str], deadline: float
) -> dict[str, TransactionDescription]:
    """Return the transactions of these ids, except ids that no coordinator knows any more."""
    remaining = requests.compute_remaining_s(deadline)
    results = await describe_transactions(requests, transactional_ids, remaining)
    for error in results.errors.values():
        if error.code != TransactionalIdNotFoundError.code:
            raise error
    return results.succeeded


async def abort_transaction(
    requests: AdminRequests, transaction: HangingTransaction, timeout: float | None
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
            WritableTxnMarkerTopic(name=tp.topic, partition_indexes=[tp.partition]) for tp in items
        ]
        request = WriteTxnMarkersRequest(markers=[marker])
        response = await requests.send_request(request, to, remaining)
        return {
            tp: make_leader_failure(part.error_code, API, tp)
            for result in response.markers
            for tp, part in by_partition(result.topics)
        }

    wanted = {as_partition(transaction.partition): None}
    results = await requests.ask_leaders(wanted, ask, API, timeout)
    results.raise_for_errors()


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
