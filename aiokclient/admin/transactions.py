"""The admin calls that list and describe transactions and their producers, and fence producers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from aiokclient.admin.arguments import (
    as_list,
    as_name,
    as_names,
    as_partitions,
    as_text,
    require_integer,
)
from aiokclient.admin.cluster import BrokerDescription, described_broker
from aiokclient.admin.requests import (
    AdminRequests,
    Answers,
    ask_targets,
    by_partition,
    by_topic,
    make_leader_failure,
)
from aiokclient.admin.results import Results
from aiokclient.cluster.metadata.snapshot import BrokerInfo
from aiokclient.cluster.targets import Broker, Leader, Target
from aiokclient.errors import (
    IllegalStateError,
    KafkaError,
    NotLeaderOrFollowerError,
    UnsupportedVersionError,
    error_for,
)
from aiokclient.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    ProducerState,
    TopicRequest,
)
from aiokclient.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    TransactionState,
)
from aiokclient.protocol.messages.init_producer_id import InitProducerIdRequest
from aiokclient.protocol.messages.list_transactions import ListTransactionsRequest
from aiokclient.types import TopicPartition, public_in


@public_in("aiokclient.admin")
@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id as `list_transactions` returns it.

    `state` is Kafka's name: "Empty", "Ongoing", "PrepareCommit", "PrepareAbort",
    "CompleteCommit", "CompleteAbort", or "PrepareEpochFence".
    """

    transactional_id: str
    producer_id: int
    state: str
    coordinator: BrokerDescription


@public_in("aiokclient.admin")
@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id with its latest transaction.

    `timeout_ms` is the producer's `transaction_timeout_ms`. `start_time_ms` is in milliseconds
    since the epoch, and None if no transaction is in progress. `partitions` has the partitions to
    which the transaction writes; once it is ending, only those whose logs do not have the marker
    yet. Committed offsets count as partitions of `__consumer_offsets`.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int | None
    partitions: frozenset[TopicPartition]
    coordinator: BrokerDescription


@public_in("aiokclient.admin")
@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """An idempotent or transactional producer of which a partition's log has records.

    `last_sequence` is -1 if only a marker of the producer is known. `last_timestamp` is in
    milliseconds since the epoch. `coordinator_epoch` is that of the last marker, or None if there
    is no marker. `transaction_start_offset` is the offset of the first record of the open
    transaction, or None if no transaction is open.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int | None
    transaction_start_offset: int | None


@public_in("aiokclient.admin")
@dataclass(frozen=True, slots=True)
class FencedProducer:
    """The producer id and epoch that a transactional id has after its producers were fenced."""

    producer_id: int
    producer_epoch: int


TRANSACTION: Final = "transaction"
"""The kind of the coordinators of transactional ids."""
ANY_DURATION: Final = -1
DESCRIBE_PRODUCERS: Final = "DescribeProducers"


async def list_transactions(
    requests: AdminRequests,
    states: Iterable[str],
    producer_ids: Iterable[int],
    older_than_ms: int | None,
    pattern: str | None,
    timeout: float | None,
) -> dict[str, TransactionListing]:
    """See `Admin.list_transactions`."""
    if older_than_ms is not None:
        require_integer(older_than_ms, "a number of milliseconds")
    if pattern is not None:
        as_text(pattern, "a pattern")
    ids = as_list(producer_ids, "producer ids")
    for producer_id in ids:
        require_integer(producer_id, "a producer id")
    request = ListTransactionsRequest(
        state_filters=as_names(states),
        producer_id_filters=ids,
        duration_filter=ANY_DURATION if older_than_ms is None else older_than_ms,
        transactional_id_pattern=pattern or None,
    )
    try:
        responses = await requests.ask_all_brokers(request, timeout)
    except UnsupportedVersionError as error:
        if needed := _describe_need(request):
            text = f"list_transactions({needed} or later."
            raise UnsupportedVersionError(text, api=error.api, broker=error.broker) from error
        raise
    found: dict[str, TransactionListing] = {}
    for broker, response in responses.items():
        if response.unknown_state_filters:
            raise _make_states_error(response.unknown_state_filters, broker)
        coordinator = described_broker(broker)
        for each in response.transaction_states:
            found[each.transactional_id] = TransactionListing(
                each.transactional_id, each.producer_id, each.transaction_state, coordinator
            )
    return dict(sorted(found.items()))


async def describe_transactions(
    requests: AdminRequests, transactional_ids: Iterable[str], timeout: float | None
) -> Results[str, TransactionDescription]:
    """See `Admin.describe_transactions`."""

    async def ask(
        items: dict[str, None], to: BrokerInfo, remaining: float
    ) -> Answers[str, TransactionDescription]:
        request = DescribeTransactionsRequest(transactional_ids=list(items))
        response = await requests.send_request(request, Broker(to.node_id), remaining)
        return {
            state.transactional_id: _make_error(
                state.error_code, "DescribeTransactions", state.transactional_id
            )
            or _read_description(state, to)
            for state in response.transaction_states
        }

    wanted = dict.fromkeys(as_names(transactional_ids))
    return await requests.ask_coordinators(wanted, ask, timeout, kind=TRANSACTION)


def _describe_need(request: ListTransactionsRequest) -> str:
    """Return a text about the argument that needs the newest brokers, or "" if none does."""
    if request.transactional_id_pattern is not None:
        return "pattern=) needs brokers of version 4.1"
    if request.duration_filter != ANY_DURATION:
        return "older_than_ms=) needs brokers of version 3.8"
    return ""


def _make_states_error(states: Iterable[str], broker: BrokerInfo) -> KafkaError:
    return IllegalStateError(
        f"Broker {broker.node_id} does not know the transaction states {', '.join(states)}. Use "
        "Kafka's names: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, "
        "CompleteAbort, PrepareEpochFence."
    )


def _make_error(code: int, api: str, transactional_id: str) -> KafkaError | None:
    return error_for(code, api=api, resource=f"transactional id {transactional_id}")


def _read_description(state: TransactionState, broker: BrokerInfo) -> TransactionDescription:
    return TransactionDescription(
        state.transactional_id,
        state.transaction_state,
        state.producer_id,
        state.producer_epoch,
        state.transaction_timeout_ms,
        None if state.transaction_start_time_ms < 0 else state.transaction_start_time_ms,
        frozenset(
            TopicPartition(topic.topic, partition)
            for topic in state.topics
            for partition in topic.partitions
        ),
        described_broker(broker),
    )


async def describe_producers(
    requests: AdminRequests,
    partitions: Iterable[TopicPartition],
    broker_id: int | None,
    timeout: float | None,
) -> Results[TopicPartition, tuple[ActiveProducer, ...]]:
    """See `Admin.describe_producers`."""
    wanted = as_partitions(partitions)
    if broker_id is None:
        return await _ask_leaders(requests, wanted, timeout)
    require_integer(broker_id, "the id of a broker")
    return await _ask_replica(requests, wanted, broker_id, timeout)


async def _ask_leaders(
    requests: AdminRequests, partitions: dict[TopicPartition, None], timeout: float | None
) -> Results[TopicPartition, tuple[ActiveProducer, ...]]:
    async def ask(
        items: dict[TopicPartition, None], to: Leader, remaining: float
    ) -> Answers[TopicPartition, tuple[ActiveProducer, ...]]:
        return {
            tp: make_leader_failure(part.error_code, DESCRIBE_PRODUCERS, tp, part.error_message)
            or _read_producers(part.active_producers)
            for tp, part in await _ask_for_producers(requests, items, to, remaining)
        }

    return await requests.ask_leaders(partitions, ask, DESCRIBE_PRODUCERS, timeout)


async def _ask_replica(
    requests: AdminRequests,
    wanted: dict[TopicPartition, None],
    broker_id: int,
    timeout: float | None,
) -> Results[TopicPartition, tuple[ActiveProducer, ...]]:
    async def ask(
        items: dict[TopicPartition, None], remaining: float
    ) -> Answers[TopicPartition, tuple[ActiveProducer, ...]]:
        answers: dict[TopicPartition, tuple[ActiveProducer, ...] | KafkaError] = {}
        for tp, part in await _ask_for_producers(requests, items, Broker(broker_id), remaining):
            if part.error_code == NotLeaderOrFollowerError.code:
                answers[tp] = _make_replica_error(tp, broker_id)
            else:
                error = error_for(
                    part.error_code,
                    part.error_message,
                    api=DESCRIBE_PRODUCERS,
                    broker=broker_id,
                    topic_partition=tp,
                )
                answers[tp] = error or _read_producers(part.active_producers)
        return answers

    return await requests.ask_items(wanted, ask, timeout)


async def _ask_for_producers(
    requests: AdminRequests, items: Iterable[TopicPartition], to: Target, remaining: float
) -> Iterator[tuple[TopicPartition, Any]]:
    """Send one DescribeProducers request, and return the result for each partition."""
    topics = [
        TopicRequest(name=name, partition_indexes=[tp.partition for tp in tps])
        for name, tps in by_topic(items).items()
    ]
    response = await requests.send_request(DescribeProducersRequest(topics=topics), to, remaining)
    return by_partition(response.topics)


async def fence_producers(
    requests: AdminRequests, transactional_ids: Iterable[str], timeout: float | None
) -> Results[str, FencedProducer]:
    """See `Admin.fence_producers`."""

    async def ask(
        items: dict[str, None], to: BrokerInfo, remaining: float
    ) -> Answers[str, FencedProducer]:
        async def fence(_: dict[str, None], transactional_id: str) -> Answers[str, FencedProducer]:
            return {
                transactional_id: await _fence_producer(requests, transactional_id, to, remaining)
            }

        return await ask_targets({each: {each: None} for each in items}, fence)

    wanted = dict.fromkeys(as_names(transactional_ids))
    return await requests.ask_coordinators(wanted, ask, timeout, kind=TRANSACTION)


async def _fence_producer(
    requests: AdminRequests, transactional_id: str, to: BrokerInfo, remaining: float
) -> FencedProducer | KafkaError:
    """Send InitProducerId, which aborts an open transaction and increases the epoch."""
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        # This is also the longest time for which the coordinator waits for its replicas.
        transaction_timeout_ms=int(requests.patience_s * 1000),
    )
    # The caller's loop over the items handles errors in the response, because that loop locates
    # the coordinator again. So `check` finds no error here.
    response = await requests.send_request(
        request, Broker(to.node_id), remaining, check=lambda response: None
    )
    error = _make_error(response.error_code, "InitProducerId", transactional_id)
    return error or FencedProducer(response.producer_id, response.producer_epoch)


async def force_terminate_transaction(
    requests: AdminRequests, transactional_id: str, timeout: float | None
) -> None:
    """See `Admin.force_terminate_transaction`."""
    as_name(transactional_id, "transaction")
    (await fence_producers(requests, [transactional_id], timeout)).raise_for_errors()


def _read_producers(states: Iterable[ProducerState]) -> tuple[ActiveProducer, ...]:
    return tuple(
        ActiveProducer(
            state.producer_id,
            state.producer_epoch,
            state.last_sequence,
            state.last_timestamp,
            None if state.coordinator_epoch < 0 else state.coordinator_epoch,
            None if state.current_txn_start_offset < 0 else state.current_txn_start_offset,
        )
        for state in states
    )


def _make_replica_error(tp: TopicPartition, broker_id: int) -> KafkaError:
    error = IllegalStateError(
        f"Broker {broker_id} has no replica of {tp}. Pass the id of one of its replicas, or no "
        "broker_id for the leader."
    )
    error.topic_partition = tp
    return error
