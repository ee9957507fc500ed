"""The admin calls that list and describe transactions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from aiokclient.admin.arguments import as_text, require_integer
from aiokclient.admin.cluster import described_broker
from aiokclient.admin.groups import group_ids
from aiokclient.admin.requests import AdminRequests, Answers, failure
from aiokclient.admin.results import Results
from aiokclient.admin.transaction_descriptions import TransactionDescription, TransactionListing
from aiokclient.cluster.metadata.snapshot import BrokerInfo
from aiokclient.cluster.targets import Broker
from aiokclient.errors import IllegalStateError, KafkaError, UnsupportedVersionError
from aiokclient.errors.local import ArgumentTypeError
from aiokclient.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    TransactionState,
)
from aiokclient.protocol.messages.list_transactions import ListTransactionsRequest
from aiokclient.types import TopicPartition

__all__ = ["TRANSACTION", "TransactionCalls"]

TRANSACTION: Final = "transaction"
"""The kind of the coordinators of transactional ids."""
ANY_DURATION: Final = -1


class TransactionCalls:
    """The admin calls about transactional ids."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        older_than_ms: int | None = None,
        pattern: str | None = None,
        timeout: float | None = None,
    ) -> dict[str, TransactionListing]:
        """See `Admin.list_transactions`."""
        if older_than_ms is not None:
            require_integer(older_than_ms, "a number of milliseconds")
        if pattern is not None:
            as_text(pattern, "a pattern")
        request = ListTransactionsRequest(
            state_filters=group_ids(states),
            producer_id_filters=_producer_ids(producer_ids),
            duration_filter=ANY_DURATION if older_than_ms is None else older_than_ms,
            transactional_id_pattern=pattern or None,
        )
        try:
            responses = await self._requests.of_all_brokers(request, timeout)
        except UnsupportedVersionError as error:
            if needed := _needed(request):
                text = f"list_transactions({needed} or later."
                raise UnsupportedVersionError(text, api=error.api, broker=error.broker) from error
            raise
        found: dict[str, TransactionListing] = {}
        for broker, response in responses.items():
            if response.unknown_state_filters:
                raise _unknown_states(response.unknown_state_filters, broker)
            coordinator = described_broker(broker)
            for each in response.transaction_states:
                found[each.transactional_id] = TransactionListing(
                    each.transactional_id, each.producer_id, each.transaction_state, coordinator
                )
        return dict(sorted(found.items()))

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout: float | None = None
    ) -> Results[str, TransactionDescription]:
        """See `Admin.describe_transactions`."""

        async def ask(
            items: dict[str, None], to: BrokerInfo, remaining: float
        ) -> Answers[str, TransactionDescription]:
            request = DescribeTransactionsRequest(transactional_ids=list(items))
            response = await self._requests.send(request, Broker(to.node_id), remaining)
            return {
                state.transactional_id: _failure(state, "DescribeTransactions")
                or _described(state, to)
                for state in response.transaction_states
            }

        wanted = dict.fromkeys(group_ids(transactional_ids))
        return await self._requests.by_coordinator(wanted, ask, timeout, kind=TRANSACTION)


def _producer_ids(given: Iterable[int]) -> list[int]:
    if not isinstance(given, Iterable) or isinstance(given, str | bytes):
        raise ArgumentTypeError(f"{given!r} is not a collection of producer ids. Pass a list.")
    ids = list(given)
    for each in ids:
        require_integer(each, "a producer id")
    return ids


def _needed(request: ListTransactionsRequest) -> str:
    """Return a text about the argument that needs the newest brokers, or "" if none does."""
    if request.transactional_id_pattern is not None:
        return "pattern=) needs brokers of version 4.1"
    if request.duration_filter != ANY_DURATION:
        return "older_than_ms=) needs brokers of version 3.8"
    return ""


def _unknown_states(states: Iterable[str], broker: BrokerInfo) -> KafkaError:
    return IllegalStateError(
        f"Broker {broker.node_id} does not know the transaction states {', '.join(states)}. Use "
        "Kafka's names: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, "
        "CompleteAbort, PrepareEpochFence."
    )


def _failure(state: TransactionState, api: str) -> KafkaError | None:
    return failure(state.error_code, None, api, f"transactional id {state.transactional_id}")


def _described(state: TransactionState, broker: BrokerInfo) -> TransactionDescription:
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
