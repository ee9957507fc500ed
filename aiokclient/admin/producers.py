"""The admin calls that describe producers and fence them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aiokclient.admin.arguments import as_name, as_partitions, require_integer
from aiokclient.admin.groups import group_ids
from aiokclient.admin.requests import AdminRequests, Answers, ask_targets, failure, leader_failure
from aiokclient.admin.results import Results
from aiokclient.admin.transaction_descriptions import ActiveProducer, FencedProducer
from aiokclient.admin.transactions import TRANSACTION
from aiokclient.cluster.metadata.snapshot import BrokerInfo
from aiokclient.cluster.targets import Broker, Leader, Target
from aiokclient.errors import IllegalStateError, KafkaError, NotLeaderOrFollowerError, error_for
from aiokclient.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    ProducerState,
    TopicRequest,
)
from aiokclient.protocol.messages.init_producer_id import InitProducerIdRequest
from aiokclient.types import TopicPartition

__all__ = ["ProducerCalls"]

API = "DescribeProducers"


class ProducerCalls:
    """The admin calls about the producers of partitions and of transactional ids."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def describe_producers(
        self,
        partitions: Iterable[TopicPartition],
        *,
        broker_id: int | None = None,
        timeout: float | None = None,
    ) -> Results[TopicPartition, tuple[ActiveProducer, ...]]:
        """See `Admin.describe_producers`."""
        wanted = as_partitions(partitions)
        if broker_id is None:
            ask = self._producers_of_leader
            return await self._requests.by_leader(wanted, ask, API, timeout)
        require_integer(broker_id, "the id of a broker")
        return await self._producers_of_replica(wanted, broker_id, timeout)

    async def _producers_of_leader(
        self, items: dict[TopicPartition, None], to: Leader, remaining: float
    ) -> Answers[TopicPartition, tuple[ActiveProducer, ...]]:
        return {
            tp: leader_failure(part.error_code, API, tp, part.error_message)
            or _producers(part.active_producers)
            for tp, part in await self._ask_for_producers(items, to, remaining)
        }

    async def _producers_of_replica(
        self, wanted: dict[TopicPartition, None], broker_id: int, timeout: float | None
    ) -> Results[TopicPartition, tuple[ActiveProducer, ...]]:
        async def ask(
            items: dict[TopicPartition, None], remaining: float
        ) -> Answers[TopicPartition, tuple[ActiveProducer, ...]]:
            answers: dict[TopicPartition, tuple[ActiveProducer, ...] | KafkaError] = {}
            for tp, part in await self._ask_for_producers(items, Broker(broker_id), remaining):
                if part.error_code == NotLeaderOrFollowerError.code:
                    answers[tp] = _no_replica(tp, broker_id)
                else:
                    error = error_for(
                        part.error_code,
                        part.error_message,
                        api=API,
                        broker=broker_id,
                        topic_partition=tp,
                    )
                    answers[tp] = error or _producers(part.active_producers)
            return answers

        return await self._requests.each(wanted, ask, timeout)

    async def _ask_for_producers(
        self, items: Iterable[TopicPartition], to: Target, remaining: float
    ) -> list[tuple[TopicPartition, Any]]:
        """Send one DescribeProducers request, and return the result for each partition."""
        topics: dict[str, list[int]] = {}
        for tp in items:
            topics.setdefault(tp.topic, []).append(tp.partition)
        request = DescribeProducersRequest(
            topics=[TopicRequest(name=n, partition_indexes=i) for n, i in topics.items()]
        )
        response = await self._requests.send(request, to, remaining)
        return [
            (TopicPartition(topic.name, part.partition_index), part)
            for topic in response.topics
            for part in topic.partitions
        ]

    async def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout: float | None = None
    ) -> Results[str, FencedProducer]:
        """See `Admin.fence_producers`."""

        async def ask(
            items: dict[str, None], to: BrokerInfo, remaining: float
        ) -> Answers[str, FencedProducer]:
            answers: dict[str, FencedProducer | KafkaError] = {}

            async def fence(some: dict[str, None], transactional_id: str) -> Answers[str, Any]:
                return {transactional_id: await self._fence(transactional_id, to, remaining)}

            each = {transactional_id: {transactional_id: None} for transactional_id in items}
            answers.update(await ask_targets(each, fence))
            return answers

        wanted = dict.fromkeys(group_ids(transactional_ids))
        return await self._requests.by_coordinator(wanted, ask, timeout, kind=TRANSACTION)

    async def _fence(
        self, transactional_id: str, to: BrokerInfo, remaining: float
    ) -> FencedProducer | KafkaError:
        """Send InitProducerId, which aborts an open transaction and increases the epoch."""
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            # This is also the longest time for which the coordinator waits for its replicas.
            transaction_timeout_ms=int(self._requests.patience_s * 1000),
        )
        # The caller's loop over the items handles errors in the response, because that loop locates
        # the coordinator again. So `check` finds no error here.
        response = await self._requests.send(
            request, Broker(to.node_id), remaining, check=lambda response: None
        )
        error = failure(
            response.error_code, None, "InitProducerId", f"transactional id {transactional_id}"
        )
        return error or FencedProducer(response.producer_id, response.producer_epoch)

    async def force_terminate_transaction(
        self, transactional_id: str, *, timeout: float | None = None
    ) -> None:
        """See `Admin.force_terminate_transaction`."""
        as_name(transactional_id, "transaction")
        (await self.fence_producers([transactional_id], timeout=timeout)).raise_for_errors()


def _producers(states: Iterable[ProducerState]) -> tuple[ActiveProducer, ...]:
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


def _no_replica(tp: TopicPartition, broker_id: int) -> KafkaError:
    error = IllegalStateError(
        f"Broker {broker_id} has no replica of {tp}. Pass the id of one of its replicas, or no "
        "broker_id for the leader."
    )
    error.topic_partition = tp
    return error
