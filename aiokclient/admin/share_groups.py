"""The admin calls about the offsets of share groups (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from aiokclient.admin.arguments import (
    as_mapping,
    as_name,
    as_names,
    as_partition,
    as_partitions,
    require_offset,
)
from aiokclient.admin.offsets import OffsetSpec, as_time_ms, find_offsets, find_out_of_range
from aiokclient.admin.requests import (
    AdminRequests,
    Answers,
    by_topic,
    find_partition_problem,
    read_failure,
)
from aiokclient.admin.results import Results
from aiokclient.cluster.metadata.snapshot import BrokerInfo
from aiokclient.cluster.targets import Broker, Coordinator, Target
from aiokclient.errors import KafkaError, TopicAuthorizationError, UnsupportedVersionError
from aiokclient.errors.local import ArgumentTypeError, ArgumentValueError
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
from aiokclient.types import TopicPartition, is_integer, public_in
from aiokclient.types.named_tuple import NamedTuple

DESCRIBE: Final = "DescribeShareGroupOffsets"
ALTER: Final = "AlterShareGroupOffsets"
DELETE: Final = "DeleteShareGroupOffsets"
REFUSALS: Final = ("", "The version of API is not supported.")
"""The texts of brokers about a request that they refuse although they announce its version."""
SPECS: Final = {"earliest": OffsetSpec.EARLIEST, "latest": OffsetSpec.LATEST}
"""The bounds of the log at which a share group can start, by name."""


@public_in("aiokclient.admin")
class SharePartitionOffset(NamedTuple):
    """The start of what a share group has in progress in a partition.

    All records before `start_offset` are done. `lag` is the number of records that the group has
    not finished, or None if the broker does not know it (before Kafka 4.2).
    """

    start_offset: int
    leader_epoch: int | None = None
    lag: int | None = None


ShareStart: TypeAlias = int | Literal["earliest", "latest"] | datetime
"""The start of a share group in a partition: an offset, a bound of the log, or a time."""

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
        response = await _send_request(requests, request, Broker(to.node_id), remaining)
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
    NOT_COORDINATOR until the timeout, and one about an unknown partition takes half a minute. The
    description of a group may be forbidden because of one of its topics. Its offsets in the others
    are not.
    """
    request = ShareGroupDescribeRequest(group_ids=list(groups))
    response = await _send_request(requests, request, Broker(to.node_id), remaining)
    answers: dict[str, Any] = {}
    for group in response.groups:
        error = read_failure(group, "ShareGroupDescribe", f"group {group.group_id}")
        if error is not None and error.code != TopicAuthorizationError.code:
            answers[group.group_id] = _explain_disabled(error)
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


async def _send_request(requests: AdminRequests, request: Any, to: Target, remaining: float) -> Any:
    """Send a request. If there are no share groups, or they are disabled, the error says so."""
    try:
        return await requests.send_request(request, to, remaining)
    except UnsupportedVersionError as error:
        _explain_disabled(error)
        raise


def _explain_disabled(error: KafkaError) -> KafkaError:
    """Return an error, which gets another text if there are no share groups, or they are disabled.

    Brokers announce the requests of share groups even if these are disabled.
    """
    if error.code != UnsupportedVersionError.code:
        return error
    if error.message in REFUSALS:
        error.what = "Share groups are disabled: the feature share.version of the cluster is 0."
        error.hint = "Raise the feature to 1 or 2 with Admin.update_features."
    else:
        error.what = "Share groups are not available."
        error.hint = "Upgrade the brokers to Kafka 4.2 or later."
    return error


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
        return _explain_disabled(error)
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
    offsets: Mapping[TopicPartition, ShareStart],
    check: bool,
    timeout: float | None,
) -> Results[TopicPartition, None]:
    """See `Admin.alter_share_group_offsets`."""
    as_name(group, "group")
    given = as_mapping(offsets, "partitions")
    starts = {as_partition(tp): as_start(each, "offsets", check) for tp, each in given.items()}
    requests.require_open()
    deadline = requests.compute_deadline(timeout)
    remaining = requests.compute_remaining_s(deadline)
    found = await find_starts(requests, starts, check, remaining)
    wanted = {tp: each for tp, each in found.items() if not isinstance(each, KafkaError)}
    refused = {tp: each for tp, each in found.items() if isinstance(each, KafkaError)}

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
        response = await _send_request(requests, request, Coordinator("group", group), remaining)
        answers: dict[TopicPartition, KafkaError | None] = {tp: _make_unaltered(tp) for tp in items}
        for topic in response.responses:
            for part in topic.partitions:
                tp = TopicPartition(topic.topic_name, part.partition_index)
                answers[tp] = read_failure(part, ALTER, f"partition {tp}")
        return answers

    results = await requests.ask_items(wanted, ask, requests.compute_remaining_s(deadline))
    return requests.join_results(starts, results, refused)


def _make_unaltered(tp: TopicPartition) -> KafkaError:
    """Return the error of a partition that a response does not contain.

    Kafka 4.1 changes no start of a partition that exists. It says so by an answer without an error
    and without the partition.
    """
    error = UnsupportedVersionError(api=ALTER, topic_partition=tp)
    error.what = "The broker stores no starts of share groups, as Kafka 4.1, and has changed none."
    error.hint = (
        "Upgrade the brokers to Kafka 4.2 or later. Until then, the configuration "
        "share.auto.offset.reset of the group says where it starts; set it with "
        "Admin.alter_configs before the first member joins."
    )
    return error


def as_start(given: Any, name: str, check: bool) -> int | OffsetSpec | datetime:
    """Return the start of a group in a partition.

    `name` is that of the argument. Raises ArgumentTypeError for a wrong type, ArgumentValueError
    for another name of an offset and, with `check`, for a negative offset, and ConfigError for a
    time that is unclear.
    """
    if isinstance(given, str | OffsetSpec):
        spec = SPECS.get(given, given) if isinstance(given, str) else given
        if isinstance(spec, OffsetSpec) and spec in SPECS.values():
            return spec
        raise ArgumentValueError(
            f"{given!r} is not the start of a share group. Pass {' or '.join(map(repr, SPECS))}, "
            "an offset, or an aware datetime."
        )
    if isinstance(given, datetime):
        as_time_ms(given, name)
        return given
    if not is_integer(given):
        raise ArgumentTypeError(
            f"{given!r} is not the start of a share group. Pass {' or '.join(map(repr, SPECS))}, "
            "an offset, or an aware datetime."
        )
    if check:
        require_offset(given)
    return int(given)


async def find_starts(
    requests: AdminRequests,
    starts: Mapping[TopicPartition, int | OffsetSpec | datetime],
    check: bool,
    timeout: float,
) -> dict[TopicPartition, int | KafkaError]:
    """Return the offset of each start, or the error of its partition, in order.

    With `check`, an offset outside of the log has an error. This takes at most half of the timeout.
    """
    deadline = requests.compute_deadline(timeout / 2)
    offsets: dict[TopicPartition, int] = {}
    specs: dict[TopicPartition, int] = {}
    for tp, start in starts.items():
        if isinstance(start, datetime):
            specs[tp] = as_time_ms(start, "offsets")
        elif isinstance(start, OffsetSpec):
            specs[tp] = start
        else:
            offsets[tp] = start
    found: dict[TopicPartition, int | KafkaError] = dict(offsets)
    if specs:
        found.update(await find_offsets(requests, specs, requests.compute_remaining_s(deadline)))
    if check and offsets:
        remaining = requests.compute_remaining_s(deadline)
        found.update(await find_out_of_range(requests, offsets, remaining))
    return {tp: found[tp] for tp in starts}


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
        response = await _send_request(requests, request, Coordinator("group", group), remaining)
        return {
            each.topic_name: read_failure(each, DELETE, f"topic {each.topic_name}")
            for each in response.responses
        }

    return await requests.ask_items(dict.fromkeys(as_names(topics)), ask, timeout)
