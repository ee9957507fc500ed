"""The admin calls that elect the leaders of partitions, and that move their replicas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final

from aiokclient.admin.arguments import as_kind, as_list, as_mapping, as_partition, as_partitions
from aiokclient.admin.requests import AdminRequests, Answers, by_topic
from aiokclient.admin.results import Results
from aiokclient.cluster.targets import Controller
from aiokclient.errors import KafkaError, error_for
from aiokclient.errors.local import ArgumentTypeError
from aiokclient.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from aiokclient.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from aiokclient.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from aiokclient.types import TopicPartition, is_integer, public_in
from aiokclient.types.named_tuple import NamedTuple

ELECT: Final = "ElectLeaders"
ALTER: Final = "AlterPartitionReassignments"


@public_in("aiokclient.admin")
class ElectionType(IntEnum):
    """The kinds of elections. The values are those of Kafka's protocol.

    PREFERRED makes the first replica of a partition its leader again. UNCLEAN makes any running
    replica the leader of a partition that has none. Records that this replica lacks are lost.
    """

    PREFERRED = 0
    UNCLEAN = 1


async def elect_leaders(
    requests: AdminRequests,
    election_type: ElectionType,
    tps: Iterable[TopicPartition] | None,
    timeout: float | None,
) -> Results[TopicPartition, None]:
    """See `Admin.elect_leaders`."""
    kind = as_kind(election_type, ElectionType)

    async def ask(
        items: dict[TopicPartition, None] | None, remaining: float
    ) -> Answers[TopicPartition, None]:
        request = ElectLeadersRequest(
            election_type=kind,
            topic_partitions=None if items is None else _group_by_topic(items),
            timeout_ms=requests.compute_broker_timeout_ms(remaining),
        )
        response = await requests.send_request(request, Controller(), remaining)
        return _read_results(response)

    if tps is not None:
        return await requests.ask_items(as_partitions(tps), ask, timeout)
    requests.require_open()
    deadline = requests.compute_deadline(timeout)
    first = dict(await ask(None, requests.compute_remaining_s(deadline)))
    again = {
        tp: None for tp, error in first.items() if isinstance(error, KafkaError) and error.retriable
    }
    first.update(await requests.ask_items(again, ask, requests.compute_remaining_s(deadline)))
    return Results(first, requests.cluster.make_log("admin"))


def _group_by_topic(tps: Iterable[TopicPartition]) -> list[TopicPartitions]:
    return [
        TopicPartitions(topic=name, partitions=[tp.partition for tp in of_topic])
        for name, of_topic in by_topic(tps).items()
    ]


def _read_results(response: ElectLeadersResponse) -> dict[TopicPartition, Any]:
    return {
        (tp := TopicPartition(topic.topic, result.partition_id)): error_for(
            result.error_code, result.error_message, api=ELECT, topic_partition=tp
        )
        for topic in response.replica_election_results
        for result in topic.partition_result
    }


class _Reassignment(NamedTuple):
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@public_in("aiokclient.admin")
class PartitionReassignment(_Reassignment):
    """The brokers of a partition whose replicas are being moved.

    `replicas` has those that will remain, and after them those that will go. `adding` are the
    brokers that do not have all records yet, and `removing` are those that will go.
    """

    __slots__ = ()

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas at the end of the reassignment, the preferred leader first."""
        return tuple(each for each in self.replicas if each not in self.removing)


async def alter_partition_reassignments(
    requests: AdminRequests,
    reassignments: Mapping[TopicPartition, Sequence[int] | None],
    allow_replication_factor_change: bool,
    timeout: float | None,
) -> Results[TopicPartition, None]:
    """See `Admin.alter_partition_reassignments`."""
    given = as_mapping(reassignments, "partitions")
    wanted = {as_partition(tp): _as_replicas(tp, replicas) for tp, replicas in given.items()}

    async def ask(
        items: dict[TopicPartition, list[int] | None], remaining: float
    ) -> Answers[TopicPartition, None]:
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=requests.compute_broker_timeout_ms(remaining),
            allow_replication_factor_change=allow_replication_factor_change,
            topics=[
                ReassignableTopic(
                    name=name,
                    partitions=[
                        ReassignablePartition(partition_index=tp.partition, replicas=items[tp])
                        for tp in of_topic
                    ],
                )
                for name, of_topic in by_topic(items).items()
            ],
        )
        response = await requests.send_request(request, Controller(), remaining)
        return {
            (tp := TopicPartition(topic.name, result.partition_index)): error_for(
                result.error_code, result.error_message, api=ALTER, topic_partition=tp
            )
            for topic in response.responses
            for result in topic.partitions
        }

    return await requests.ask_items(wanted, ask, timeout)


async def list_partition_reassignments(
    requests: AdminRequests, tps: Iterable[TopicPartition] | None, timeout: float | None
) -> dict[TopicPartition, PartitionReassignment]:
    """See `Admin.list_partition_reassignments`."""
    topics = None
    if tps is not None:
        topics = [
            ListPartitionReassignmentsTopics(
                name=name, partition_indexes=[tp.partition for tp in of_topic]
            )
            for name, of_topic in by_topic(as_partitions(tps)).items()
        ]
        if not topics:
            return {}
    deadline = requests.compute_deadline(timeout)
    remaining = requests.compute_remaining_s(deadline)
    request = ListPartitionReassignmentsRequest(
        timeout_ms=requests.compute_broker_timeout_ms(remaining), topics=topics
    )
    response = await requests.send_request(request, Controller(), remaining)
    return {
        TopicPartition(topic.name, each.partition_index): PartitionReassignment(
            tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
        )
        for topic in response.topics
        for each in topic.partitions
    }


def _as_replicas(tp: TopicPartition, given: Any) -> list[int] | None:
    if given is None:
        return None
    replicas = as_list(given, "broker ids")
    if not all(map(is_integer, replicas)):
        raise ArgumentTypeError(
            f"{given!r} are not the replicas of {tp}. Pass a list of broker ids."
        )
    return replicas
