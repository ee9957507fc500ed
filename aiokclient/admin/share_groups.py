"""The admin calls about the offsets of share groups (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from aiokclient.admin.arguments import (
    as_mapping,
    as_name,
    as_names,
    as_partition,
    as_partitions,
    require_integer,
    require_offset,
)
from aiokclient.admin.offsets import find_out_of_range
from aiokclient.admin.requests import (
    AdminRequests,
    Answers,
    by_topic,
    find_partition_problem,
    read_failure,
)
from aiokclient.admin.results import Results
from aiokclient.cluster.metadata.snapshot import BrokerInfo
from aiokclient.cluster.targets import Broker, Coordinator
from aiokclient.errors import KafkaError
from aiokclient.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from aiokclient.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from aiokclient.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponseGroup,
)
from aiokclient.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from aiokclient.types import TopicPartition, public_in
from aiokclient.types.named_tuple import NamedTuple

DESCRIBE: Final = "DescribeShareGroupOffsets"
ALTER: Final = "AlterShareGroupOffsets"
DELETE: Final = "DeleteShareGroupOffsets"


@public_in("aiokclient.admin")
class SharePartitionOffset(NamedTuple):
    """The start of what a share group has in progress in a partition.

    All records before `start_offset` are done. `lag` is the number of records that the group has
    not finished, or None if the broker does not know it (before Kafka 4.2).
    """

    start_offset: int
    leader_epoch: int | None = None
    lag: int | None = None


ChosenPartitions = Mapping[TopicPartition, None] | None
ShareOffsets = dict[TopicPartition, SharePartitionOffset | None]


async def list_share_group_offsets(
    requests: AdminRequests,
    groups: Iterable[str] | Mapping[str, Iterable[TopicPartition] | None],
    check: bool,
    timeout: float | None,
) -> Results[str, ShareOffsets]:
    """See `Admin.list_share_group_offsets`."""
    wanted: dict[str, ChosenPartitions]
    if isinstance(groups, Mapping):
        wanted = {
            as_name(group, "group"): None if tps is None else as_partitions(tps)
            for group, tps in groups.items()
        }
    else:
        wanted = dict.fromkeys(as_names(groups))

    async def ask(
        items: dict[str, ChosenPartitions], to: BrokerInfo, remaining: float
    ) -> Answers[str, ShareOffsets]:
        answers = await _find_problems(requests, items, to, remaining) if check else {}
        left = {group: tps for group, tps in items.items() if group not in answers}
        if not left:
            return answers
        request = DescribeShareGroupOffsetsRequest(
            groups=[
                DescribeShareGroupOffsetsRequestGroup(
                    group_id=group, topics=None if tps is None else _make_topics(tps)
                )
                for group, tps in left.items()
            ]
        )
        response = await requests.send_request(request, Broker(to.node_id), remaining)
        return {**answers, **{each.group_id: _read_group(each) for each in response.groups}}

    return await requests.ask_coordinators(wanted, ask, timeout)


async def _find_problems(
    requests: AdminRequests,
    groups: Mapping[str, ChosenPartitions],
    to: BrokerInfo,
    remaining: float,
) -> dict[str, Any]:
    """Return errors for groups and partitions that do not exist.

    Brokers return no error for these. A request about all partitions of an unknown group fails with
    NOT_COORDINATOR until the timeout, and one about an unknown partition takes half a minute.
    """
    request = ShareGroupDescribeRequest(group_ids=list(groups))
    response = await requests.send_request(request, Broker(to.node_id), remaining)
    answers: dict[str, Any] = {}
    for group in response.groups:
        if error := read_failure(group, "ShareGroupDescribe", f"group {group.group_id}"):
            answers[group.group_id] = error
    topics = list(dict.fromkeys(tp.topic for tps in groups.values() for tp in tps or ()))
    if topics:
        snapshot = await requests.cluster.updater.refresh(topics, timeout=remaining, at_once=True)
        for name, tps in groups.items():
            for tp in tps or ():
                if name not in answers and (
                    error := find_partition_problem(snapshot, tp, DESCRIBE)
                ):
                    answers[name] = error
    return answers


def _make_topics(tps: Iterable[TopicPartition]) -> list[DescribeShareGroupOffsetsRequestTopic]:
    return [
        DescribeShareGroupOffsetsRequestTopic(
            topic_name=name, partitions=[tp.partition for tp in of_topic]
        )
        for name, of_topic in by_topic(tps).items()
    ]


def _read_group(group: DescribeShareGroupOffsetsResponseGroup) -> ShareOffsets | KafkaError:
    resource = f"group {group.group_id}"
    if error := read_failure(group, DESCRIBE, resource):
        return error
    found: ShareOffsets = {}
    for topic in group.topics:
        for part in topic.partitions:
            if error := read_failure(part, DESCRIBE, resource):
                return error
            tp = TopicPartition(topic.topic_name, part.partition_index)
            found[tp] = None
            if part.start_offset >= 0:
                found[tp] = SharePartitionOffset(
                    part.start_offset,
                    None if part.leader_epoch < 0 else part.leader_epoch,
                    None if part.lag < 0 else part.lag,
                )
    return found


async def alter_share_group_offsets(
    requests: AdminRequests,
    group: str,
    offsets: Mapping[TopicPartition, int],
    check: bool,
    timeout: float | None,
) -> Results[TopicPartition, None]:
    """See `Admin.alter_share_group_offsets`."""
    as_name(group, "group")
    wanted = {as_partition(tp): o for tp, o in as_mapping(offsets, "partitions").items()}
    for offset in wanted.values():
        require_integer(offset, "an offset")
        if check:
            require_offset(offset)
    requests.require_open()
    deadline = requests.compute_deadline(timeout)
    refused: dict[TopicPartition, KafkaError] = {}
    if check:
        refused = await find_out_of_range(requests, wanted, requests.compute_remaining_s(deadline))

    async def ask(
        items: dict[TopicPartition, int], remaining: float
    ) -> Answers[TopicPartition, None]:
        topics = [
            AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=[
                    AlterShareGroupOffsetsRequestPartition(
                        partition_index=tp.partition, start_offset=items[tp]
                    )
                    for tp in of_topic
                ],
            )
            for name, of_topic in by_topic(items).items()
        ]
        request = AlterShareGroupOffsetsRequest(group_id=group, topics=topics)
        response = await requests.send_request(request, Coordinator("group", group), remaining)
        return {
            (tp := TopicPartition(topic.topic_name, part.partition_index)): read_failure(
                part, ALTER, f"partition {tp}"
            )
            for topic in response.responses
            for part in topic.partitions
        }

    left = {tp: offset for tp, offset in wanted.items() if tp not in refused}
    results = await requests.ask_items(left, ask, requests.compute_remaining_s(deadline))
    return requests.join_results(wanted, results, refused)


async def delete_share_group_offsets(
    requests: AdminRequests, group: str, topics: Iterable[str], timeout: float | None
) -> Results[str, None]:
    """See `Admin.delete_share_group_offsets`."""
    as_name(group, "group")

    async def ask(items: dict[str, None], remaining: float) -> Answers[str, None]:
        request = DeleteShareGroupOffsetsRequest(
            group_id=group,
            topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in items],
        )
        response = await requests.send_request(request, Coordinator("group", group), remaining)
        return {
            each.topic_name: read_failure(each, DELETE, f"topic {each.topic_name}")
            for each in response.responses
        }

    return await requests.ask_items(dict.fromkeys(as_names(topics)), ask, timeout)
