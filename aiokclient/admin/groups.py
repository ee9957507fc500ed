"""The admin calls about groups of any type, their members, committed offsets, and lag."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from aiokclient.admin.arguments import (
    as_mapping,
    as_name,
    as_names,
    as_partition,
    as_partitions,
    as_text,
    require_integer,
    require_offset,
)
from aiokclient.admin.cluster import BrokerDescription, described_broker
from aiokclient.admin.group_descriptions import (
    GroupDescription,
    GroupListing,
    GroupMemberDescription,
    read_classic_group,
    read_epoch_group,
)
from aiokclient.admin.offsets import (
    LIST_OFFSETS,
    OffsetSpec,
    ask_leader,
    find_out_of_range,
    isolation_number,
)
from aiokclient.admin.requests import (
    AdminRequests,
    Answers,
    ask_targets,
    by_partition,
    by_topic,
    read_failure,
)
from aiokclient.admin.results import Results
from aiokclient.cluster.metadata.snapshot import BrokerInfo, ClusterMetadata
from aiokclient.cluster.targets import AnyBroker, Broker, Coordinator, Leader
from aiokclient.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    KafkaError,
    NotCoordinatorError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    UsageError,
    error_for,
)
from aiokclient.log.kept_errors import bare
from aiokclient.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from aiokclient.protocol.messages.delete_groups import DeleteGroupsRequest
from aiokclient.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from aiokclient.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from aiokclient.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from aiokclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from aiokclient.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from aiokclient.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from aiokclient.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from aiokclient.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from aiokclient.protocol.schema import Request
from aiokclient.types import OffsetAndMetadata, TopicPartition, public_in

CLASSIC = "classic"
DEAD = "Dead"
"""The state that brokers older than 4.0 return for a group that does not exist.

Later brokers return GROUP_ID_NOT_FOUND, also for a group of another type (KIP-1043).
"""

COORDINATOR_CODES = frozenset(
    {
        CoordinatorLoadInProgressError.code,
        CoordinatorNotAvailableError.code,
        NotCoordinatorError.code,
    }
)
"""Error codes of brokers that are not the coordinator, or not yet."""

NOT_REMOVED = frozenset(
    {
        UnknownMemberIdError.code,
        CoordinatorLoadInProgressError.code,
        NotCoordinatorError.code,
    }
)
"""Error codes that imply that the broker has removed no member."""

NO_ID = UUID(int=0)

Offsets = dict[TopicPartition, OffsetAndMetadata]


async def list_groups(
    requests: AdminRequests, states: Iterable[str], types: Iterable[str], timeout: float | None
) -> dict[str, GroupListing]:
    """See `Admin.list_groups`."""
    request = ListGroupsRequest(states_filter=as_names(states), types_filter=as_names(types))
    found: dict[str, GroupListing] = {}
    for broker, response in (await requests.ask_all_brokers(request, timeout)).items():
        found.update(_listed(response, described_broker(broker)))
    return dict(sorted(found.items()))


async def describe_groups(
    requests: AdminRequests,
    groups: Iterable[str],
    include_authorized_operations: bool,
    timeout: float | None,
) -> Results[str, GroupDescription]:
    """See `Admin.describe_groups`."""
    forms: dict[str, Callable[[list[str]], Request[Any]]] = {
        CLASSIC: lambda ids: DescribeGroupsRequest(
            groups=ids, include_authorized_operations=include_authorized_operations
        ),
        "consumer": lambda ids: ConsumerGroupDescribeRequest(
            group_ids=ids, include_authorized_operations=include_authorized_operations
        ),
        "share": lambda ids: ShareGroupDescribeRequest(
            group_ids=ids, include_authorized_operations=include_authorized_operations
        ),
    }

    async def ask(
        items: dict[str, None], to: BrokerInfo, remaining: float
    ) -> Answers[str, GroupDescription]:
        answers: dict[str, GroupDescription | KafkaError] = {}
        left = list(items)
        for kind, form in forms.items():
            said = await _describe_as(requests, kind, form(left), to, remaining) if left else {}
            answers.update(said)
            # Brokers from 4.0 on answer GROUP_ID_NOT_FOUND for a group of another type, too
            # (KIP-1043).
            left = [group for group in left if _is_absent(answers.get(group))]
        return answers

    return await requests.ask_coordinators(dict.fromkeys(as_names(groups)), ask, timeout)


async def _describe_as(
    requests: AdminRequests, kind: str, request: Request[Any], to: BrokerInfo, remaining: float
) -> Answers[str, GroupDescription]:
    try:
        response = await requests.send_request(request, Broker(to.node_id), remaining)
    except UnsupportedVersionError:
        if kind == CLASSIC:
            raise
        # A broker that does not know this type of group has no groups of this type.
        return {}
    api, broker = request.api_key.api_name, described_broker(to)
    return {
        group.group_id: _read_failure(group, api)
        or (
            read_classic_group(group, broker)
            if kind == CLASSIC
            else read_epoch_group(group, kind, broker)
        )
        for group in response.groups
        # A broker on which this type is disabled, as by default in 3.9, has no such groups.
        if kind == CLASSIC or group.error_code != UnsupportedVersionError.code
    }


async def delete_groups(
    requests: AdminRequests, groups: Iterable[str], timeout: float | None
) -> Results[str, None]:
    """See `Admin.delete_groups`."""

    async def ask(items: dict[str, None], to: BrokerInfo, remaining: float) -> Answers[str, None]:
        request = DeleteGroupsRequest(groups_names=list(items))
        response = await requests.send_request(request, Broker(to.node_id), remaining)
        return {
            result.group_id: read_failure(result, "DeleteGroups", f"group {result.group_id}")
            for result in response.results
        }

    return await requests.ask_coordinators(dict.fromkeys(as_names(groups)), ask, timeout)


async def remove_members(
    requests: AdminRequests,
    group: str,
    members: Iterable[str],
    static: bool,
    reason: str,
    timeout: float | None,
) -> Results[str, None]:
    """See `Admin.remove_members`."""
    as_name(group, "group")
    as_text(reason, "a reason")
    unknown: list[KafkaError] = []

    async def ask(items: dict[str, None], remaining: float) -> Answers[str, None]:
        request = LeaveGroupRequest(
            group_id=group,
            members=[
                MemberIdentity(
                    member_id="" if static else name,
                    group_instance_id=name if static else None,
                    reason=reason,
                )
                for name in items
            ],
        )
        try:
            to = Coordinator("group", group)
            response = await requests.send_request(
                request, to, remaining, _note_unknown_outcomes(unknown)
            )
        except UnsupportedVersionError:
            if static:
                raise
            return await _remove_each(requests, group, items, remaining)
        answers: dict[str, KafkaError | None] = {}
        for member in response.members:
            name = (member.group_instance_id or "") if static else member.member_id
            gone = member.error_code == UnknownMemberIdError.code
            # An earlier attempt, whose response was lost, may have removed the member.
            code = 0 if unknown and gone else member.error_code
            answers[name] = error_for(code, api="LeaveGroup", resource=f"group {group}")
        return answers

    return await requests.ask_items(dict.fromkeys(as_names(members)), ask, timeout)


async def _remove_each(
    requests: AdminRequests, group: str, members: Iterable[str], remaining: float
) -> Answers[str, None]:
    """Remove members with one request each, for brokers older than 2.4, before KIP-345."""

    async def ask(items: dict[str, None], member: str) -> Answers[str, None]:
        unknown: list[KafkaError] = []
        request = LeaveGroupRequest(group_id=group, member_id=member)
        try:
            to = Coordinator("group", group)
            await requests.send_request(request, to, remaining, _note_unknown_outcomes(unknown))
        except KafkaError as error:
            if error.code != UnknownMemberIdError.code or not unknown:
                raise
        return items

    return await ask_targets({member: {member: None} for member in members}, ask)


def _note_unknown_outcomes(found: list[KafkaError]) -> Callable[[KafkaError], None]:
    """Return a function that records errors after which members may have been removed.

    It appends each such error to the given list.
    """

    def failed(error: KafkaError) -> None:
        if error.code not in NOT_REMOVED:
            found.append(error)

    return failed


def _listed(response: ListGroupsResponse, broker: BrokerDescription) -> dict[str, GroupListing]:
    return {
        group.group_id: GroupListing(
            group.group_id,
            # A broker that supports only classic groups leaves the type empty.
            group.group_type.lower() or CLASSIC,
            group.protocol_type,
            group.group_state,
            broker,
        )
        for group in response.groups
    }


def _read_failure(group: Any, api: str) -> KafkaError | None:
    absent = isinstance(group, DescribedGroup) and group.group_state == DEAD
    error = read_failure(group, api, f"group {group.group_id}")
    if error is None and absent:
        return GroupIdNotFoundError(api=api, resource=f"group {group.group_id}")
    return error


def _is_absent(answer: Any) -> bool:
    """Return whether the group does not exist, or is not of the requested type."""
    return answer is None or (
        isinstance(answer, KafkaError) and answer.code == GroupIdNotFoundError.code
    )


async def list_consumer_group_offsets(
    requests: AdminRequests, groups: Iterable[str], require_stable: bool, timeout: float | None
) -> Results[str, dict[TopicPartition, OffsetAndMetadata]]:
    """See `Admin.list_consumer_group_offsets`."""

    async def ask(
        items: dict[str, None], to: BrokerInfo, remaining: float
    ) -> Answers[str, Offsets]:
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=None) for group in items],
            require_stable=require_stable,
        )
        try:
            response = await requests.send_request(request, Broker(to.node_id), remaining)
        except UnsupportedVersionError:
            return await _list_offsets_one_by_one(requests, items, to, require_stable, remaining)
        ids = [t.topic_id for group in response.groups for t in group.topics]
        names = await _find_names(requests, ids, remaining)
        return {
            group.group_id: _read_offsets(group, group.group_id, names) for group in response.groups
        }

    return await requests.ask_coordinators(dict.fromkeys(as_names(groups)), ask, timeout)


async def _list_offsets_one_by_one(
    requests: AdminRequests,
    groups: Iterable[str],
    to: BrokerInfo,
    require_stable: bool,
    remaining: float,
) -> Answers[str, Offsets]:
    """Request the offsets of one group at a time, for brokers older than 3.0, before KIP-709."""
    answers: dict[str, Offsets | KafkaError] = {}
    for group in groups:
        request = OffsetFetchRequest(group_id=group, topics=None, require_stable=require_stable)
        response = await requests.send_request(request, Broker(to.node_id), remaining)
        answers[group] = _read_offsets(response, group, {})
    return answers


async def _find_names(
    requests: AdminRequests, ids: Iterable[UUID], remaining: float
) -> Mapping[UUID, str]:
    """Return the names of topics by topic id, without topics that do not exist."""
    wanted = [topic_id for topic_id in dict.fromkeys(ids) if topic_id != NO_ID]
    if not wanted:
        return {}
    request = MetadataRequest(
        topics=[MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in wanted],
        allow_auto_topic_creation=False,
    )
    response = await requests.send_request(request, AnyBroker(), remaining)
    return {topic.topic_id: topic.name for topic in response.topics if topic.name}


async def alter_consumer_group_offsets(
    requests: AdminRequests,
    group: str,
    offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
    check: bool,
    timeout: float | None,
) -> Results[TopicPartition, None]:
    """See `Admin.alter_consumer_group_offsets`."""
    as_name(group, "group")
    wanted = {
        as_partition(tp): offset
        if isinstance(offset, OffsetAndMetadata)
        else OffsetAndMetadata(offset)
        for tp, offset in as_mapping(offsets, "partitions").items()
    }
    for offset in wanted.values():
        require_integer(offset.offset, "an offset")
        as_text(offset.metadata, "the metadata of an offset")
        if check:
            require_offset(offset.offset)
    requests.require_open()
    deadline = requests.compute_deadline(timeout)
    refused: dict[TopicPartition, KafkaError] = {}
    if check:
        numbers = {tp: offset.offset for tp, offset in wanted.items()}
        refused = await find_out_of_range(requests, numbers, requests.compute_remaining_s(deadline))

    async def ask(
        items: dict[TopicPartition, OffsetAndMetadata], remaining: float
    ) -> Answers[TopicPartition, None]:
        topics = list(dict.fromkeys(tp.topic for tp in items))
        snapshot = await requests.cluster.updater.refresh(topics, timeout=remaining, at_once=True)
        answers: dict[TopicPartition, KafkaError | None] = {
            tp: error for tp in items if (error := _find_unknown(snapshot, tp)) is not None
        }
        request = _make_commit(
            group, {tp: o for tp, o in items.items() if tp not in answers}, snapshot
        )
        if not request.topics:
            return answers
        response = await requests.send_request(
            request, Coordinator("group", group), remaining, check=_find_refusal
        )
        for topic in response.topics:
            name = topic.name or snapshot.names.get(topic.topic_id, "")
            for result in topic.partitions:
                tp = TopicPartition(name, result.partition_index)
                error = error_for(result.error_code, api="OffsetCommit", resource=f"partition {tp}")
                if error is not None and error.code == UnknownMemberIdError.code:
                    # A coordinator refuses a commit without a member id while it has members.
                    error.what = "The group has members, and only they may commit its offsets."
                    error.hint = (
                        "Stop all of them first. Or call rewind_group() of one of them, which "
                        "moves the whole group, if it uses the classic protocol."
                    )
                answers[tp] = error
        return answers

    left = {tp: offset for tp, offset in wanted.items() if tp not in refused}
    results = await requests.ask_items(left, ask, requests.compute_remaining_s(deadline))
    return requests.join_results(wanted, results, refused)


def _find_refusal(response: OffsetCommitResponse) -> KafkaError | None:
    """Return the error of a broker that is not the coordinator, or not yet.

    The response has it for each partition. As the error of the request, it makes the next attempt
    locate the coordinator again.
    """
    for topic in response.topics:
        for result in topic.partitions:
            if result.error_code in COORDINATOR_CODES:
                return error_for(result.error_code)
    return None


async def delete_consumer_group_offsets(
    requests: AdminRequests, group: str, tps: Iterable[TopicPartition], timeout: float | None
) -> Results[TopicPartition, None]:
    """See `Admin.delete_consumer_group_offsets`."""
    as_name(group, "group")

    async def ask(
        items: dict[TopicPartition, None], remaining: float
    ) -> Answers[TopicPartition, None]:
        topics = [
            OffsetDeleteRequestTopic(
                name=name,
                partitions=[OffsetDeleteRequestPartition(partition_index=i) for _, i in tps],
            )
            for name, tps in by_topic(items).items()
        ]
        request = OffsetDeleteRequest(group_id=group, topics=topics)
        response = await requests.send_request(request, Coordinator("group", group), remaining)
        return {
            tp: error_for(result.error_code, api="OffsetDelete", resource=f"partition {tp}")
            for tp, result in by_partition(response.topics)
        }

    return await requests.ask_items(as_partitions(tps), ask, timeout)


def _read_offsets(group: Any, group_id: str, names: Mapping[UUID, str]) -> Offsets | KafkaError:
    found: Offsets = {}
    where = f"group {group_id}"
    error = error_for(group.error_code, api="OffsetFetch", resource=where)
    for topic in group.topics:
        name = topic.name or names.get(getattr(topic, "topic_id", NO_ID))
        for each in topic.partitions:
            error = error or error_for(each.error_code, api="OffsetFetch", resource=where)
            # A topic id without a name belongs to a topic that was deleted in the meantime.
            if name and each.committed_offset >= 0:
                epoch = each.committed_leader_epoch
                found[TopicPartition(name, each.partition_index)] = OffsetAndMetadata(
                    each.committed_offset, each.metadata or "", None if epoch < 0 else epoch
                )
    return error or found


def _find_unknown(snapshot: ClusterMetadata, tp: TopicPartition) -> KafkaError | None:
    topic = snapshot.find_topic(tp.topic)
    if topic is None:
        return UnknownTopicOrPartitionError(api="OffsetCommit", topic_partition=tp)
    return error_for(topic.error, api="OffsetCommit", resource=f"topic {topic.name}")


def _make_commit(
    group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], snapshot: ClusterMetadata
) -> OffsetCommitRequest:
    topics = [
        # The API version determines whether the name or the id is encoded.
        OffsetCommitRequestTopic(
            name=name,
            topic_id=snapshot.topics[name].topic_id,
            partitions=[_read_committed(tp.partition, *offsets[tp]) for tp in tps],
        )
        for name, tps in by_topic(offsets).items()
    ]
    return OffsetCommitRequest(group_id=group, topics=topics)


def _read_committed(
    index: int, offset: int, metadata: str, epoch: int | None
) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=offset,
        committed_leader_epoch=-1 if epoch is None else epoch,
        committed_metadata=metadata,
    )


@public_in("aiokclient.admin")
@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The progress of a group in one partition, and the member that owns the partition.

    `committed` is the committed offset, or None if the group has committed none. `end` is the
    offset after the last record (with "read_committed": the last stable offset), or None if the
    partition does not exist any more. `lag` is the number of offsets from `committed` to `end`, at
    least 0, or None if one of them is None. `member_id`, `client_id`, and `host` describe the
    member, and are None if no member owns the partition.
    """

    committed: int | None
    end: int | None
    lag: int | None
    member_id: str | None = None
    client_id: str | None = None
    host: str | None = None


async def group_lag(
    requests: AdminRequests, groups: Iterable[str], isolation_level: str, timeout: float | None
) -> Results[str, dict[TopicPartition, PartitionLag]]:
    """See `Admin.group_lag`."""
    names, level = list(dict.fromkeys(as_names(groups))), isolation_number(isolation_level)
    requests.require_open()
    until = requests.compute_deadline(timeout)
    described = await describe_groups(requests, names, False, requests.compute_remaining_s(until))
    errors: dict[str, KafkaError] = dict(described.errors)
    # The ends are read last. A group that commits in the meantime would otherwise seem to have
    # committed an offset after the end.
    committed = await list_consumer_group_offsets(
        requests, described.succeeded, False, requests.compute_remaining_s(until)
    )
    errors.update(committed.errors)
    offsets = committed.succeeded
    owners = {group: _find_owners(described.succeeded[group]) for group in offsets}
    wanted = {group: sorted({*offsets[group], *owners[group]}) for group in offsets}
    ends = await _read_ends(
        requests,
        dict.fromkeys(tp for tps in wanted.values() for tp in tps),
        level,
        requests.compute_remaining_s(until),
    )
    return Results(
        {
            group: errors[group]
            if group in errors
            else _compute_lags(wanted[group], offsets[group], owners[group], ends)
            for group in names
        },
        requests.cluster.make_log("admin"),
    )


async def _read_ends(
    requests: AdminRequests, tps: dict[TopicPartition, None], level: int, timeout: float
) -> Mapping[TopicPartition, int | KafkaError]:
    """Return the ends of partitions, without those that do not exist."""
    if not tps:
        return {}
    until = requests.compute_deadline(timeout)
    topics = list(dict.fromkeys(tp.topic for tp in tps))
    try:
        metadata = await requests.cluster.updater.refresh(topics, timeout=timeout, at_once=True)
    except UsageError:
        raise
    except KafkaError as error:
        return dict.fromkeys(tps, bare(error))
    # Without this, the lookup would repeat UNKNOWN_TOPIC_OR_PARTITION until the timeout.
    existing = {
        tp: None
        for tp in tps
        if metadata.has_topic(tp.topic)
        and ((topic := metadata.topics[tp.topic]).error or tp.partition < len(topic.partitions))
    }

    async def ask(
        items: dict[TopicPartition, None], to: Leader, remaining: float
    ) -> Answers[TopicPartition, int]:
        ends = dict.fromkeys(items, int(OffsetSpec.LATEST))
        return {
            tp: answer if isinstance(answer, KafkaError) else answer.offset
            for tp, answer in (await ask_leader(requests, ends, level, to, remaining)).items()
        }

    found = await requests.ask_leaders(
        existing, ask, LIST_OFFSETS, requests.compute_remaining_s(until)
    )
    return {**found.succeeded, **found.errors}


def _find_owners(group: GroupDescription) -> dict[TopicPartition, GroupMemberDescription]:
    return {tp: member for member in group.members for tp in member.partitions}


def _compute_lags(
    tps: Iterable[TopicPartition],
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    owners: Mapping[TopicPartition, GroupMemberDescription],
    ends: Mapping[TopicPartition, int | KafkaError],
) -> dict[TopicPartition, PartitionLag] | KafkaError:
    """Return the lag of each partition of a group, or the first error of their ends."""
    lags: dict[TopicPartition, PartitionLag] = {}
    for tp in tps:
        end, owner = ends.get(tp), owners.get(tp)
        if isinstance(end, KafkaError):
            return end
        committed = offsets[tp].offset if tp in offsets else None
        lags[tp] = PartitionLag(
            committed,
            end,
            None if committed is None or end is None else max(end - committed, 0),
            *((owner.member_id, owner.client_id, owner.host) if owner is not None else ()),
        )
    return lags
