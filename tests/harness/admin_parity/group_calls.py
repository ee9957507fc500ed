"""The calls of this Admin about groups, under the names of Java's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from admin_parity.calls import NONE, Given, call_as, partitions
from admin_parity.forms import error_form, form, items, node, upper
from aiokclient import Admin, OffsetAndMetadata, TopicPartition
from aiokclient.admin import (
    GroupDescription,
    GroupListing,
    GroupMemberDescription,
    SharePartitionOffset,
    StreamsGroupDescription,
    StreamsMemberDescription,
    StreamsTasks,
    StreamsTopic,
)
from aiokclient.errors import KafkaError

CONSUMER, CLASSIC = "consumer", "classic"


async def _list(admin: Admin, given: Given, types: list[str]) -> list[GroupListing]:
    listed = await admin.list_groups(
        states=given.get("states", ()), types=given.get("types", types)
    )
    # Java's client selects by the type of the protocol itself, too.
    kinds = given.get("protocolTypes")
    return [each for each in listed.values() if kinds is None or each.protocol_type in kinds]


def _is_simple(each: Any) -> bool:
    return bool(each.type == CLASSIC and not each.protocol_type)


@call_as("listGroups")
async def list_groups(admin: Admin, given: Given) -> Any:
    return [
        {
            "groupId": each.group_id,
            "type": each.type.upper(),
            "protocol": each.protocol_type,
            "groupState": upper(each.state),
            "isSimpleConsumerGroup": _is_simple(each),
        }
        for each in await _list(admin, given, [])
    ]


@call_as("listConsumerGroups")
async def list_consumer_groups(admin: Admin, given: Given) -> Any:
    return [
        {
            "groupId": each.group_id,
            "type": each.type.upper(),
            "groupState": upper(each.state),
            "isSimpleConsumerGroup": not each.protocol_type,
        }
        for each in await _list(admin, given, [])
        if each.protocol_type in ("", CONSUMER)
    ]


def _member(each: GroupMemberDescription) -> dict[str, Any]:
    return {
        "consumerId": each.member_id,
        "rackId": each.rack,
        "clientId": each.client_id,
        "host": each.host,
        "assignment": {"topicPartitions": sorted(map(form, each.partitions))},
        "memberEpoch": each.epoch,
    }


def _consumer_member(each: GroupMemberDescription) -> dict[str, Any]:
    target = each.target
    return _member(each) | {
        "groupInstanceId": each.group_instance_id,
        "upgraded": None if each.classic is None else not each.classic,
        "targetAssignment": None
        if target is None
        else {"topicPartitions": sorted(map(form, target))},
    }


def _group(each: GroupDescription) -> dict[str, Any]:
    return {
        "groupId": each.group_id,
        "coordinator": node(each.coordinator),
        "authorizedOperations": form(each.authorized_operations),
    }


@call_as("describeConsumerGroups")
async def describe_consumer_groups(admin: Admin, given: Given) -> Any:
    def described(each: GroupDescription) -> Any:
        return _group(each) | {
            "isSimpleConsumerGroup": not each.protocol_type,
            "members": [_consumer_member(member) for member in each.members],
            "partitionAssignor": each.protocol,
            "type": each.type.upper(),
            "groupState": upper(each.state),
            "groupEpoch": each.epoch,
            "targetAssignmentEpoch": each.assignment_epoch,
        }

    return items(await _describe(admin, given), described)


@call_as("describeClassicGroups")
async def describe_classic_groups(admin: Admin, given: Given) -> Any:
    def described(each: GroupDescription) -> Any:
        return _group(each) | {
            "protocol": each.protocol_type,
            "protocolData": each.protocol,
            "isSimpleConsumerGroup": _is_simple(each),
            "members": [_consumer_member(member) for member in each.members],
            "state": upper(each.state),
        }

    return items(await _describe(admin, given), described)


@call_as("describeShareGroups")
async def describe_share_groups(admin: Admin, given: Given) -> Any:
    def described(each: GroupDescription) -> Any:
        return _group(each) | {
            "members": [_member(member) for member in each.members],
            "groupState": upper(each.state),
            "groupEpoch": each.epoch,
            "targetAssignmentEpoch": each.assignment_epoch,
        }

    return items(await _describe(admin, given), described)


async def _describe(admin: Admin, given: Given) -> Mapping[str, GroupDescription | KafkaError]:
    return await admin.describe_groups(
        given["groups"], include_authorized_operations=given.get("operations", False)
    )


@call_as("describeStreamsGroups")
async def describe_streams_groups(admin: Admin, given: Given) -> Any:
    results = await admin.describe_streams_groups(
        given["groups"],
        include_authorized_operations=given.get("operations", False),
        include_topology_description=given.get("topology", False),
    )
    return items(results, _streams_group)


def _streams_group(each: StreamsGroupDescription) -> Any:
    return {
        "groupId": each.group_id,
        "groupEpoch": each.epoch,
        "targetAssignmentEpoch": each.assignment_epoch,
        "topologyEpoch": NONE if each.topology_epoch is None else each.topology_epoch,
        "subtopologies": [
            {
                "subtopologyId": part.subtopology_id,
                "sourceTopics": list(part.source_topics),
                "repartitionSinkTopics": list(part.repartition_sink_topics),
                "stateChangelogTopics": _streams_topics(part.changelog_topics),
                "repartitionSourceTopics": _streams_topics(part.repartition_source_topics),
            }
            for part in each.subtopologies
        ],
        "members": [_streams_member(member) for member in each.members],
        "groupState": upper(each.state),
        "coordinator": node(each.coordinator),
        "authorizedOperations": form(each.authorized_operations),
        "topologyDescription": form(each.topology_description),
        "topologyDescriptionStatus": each.topology_description_status.name,
        "assignorName": each.assignor,
    }


def _streams_topics(topics: tuple[StreamsTopic, ...]) -> dict[str, Any]:
    return {
        each.name: {
            "partitions": each.partitions or 0,
            "replicationFactor": each.replication_factor or 0,
            "topicConfigs": dict(each.configs),
        }
        for each in topics
    }


def _streams_member(each: StreamsMemberDescription) -> dict[str, Any]:
    return {
        "memberId": each.member_id,
        "memberEpoch": each.epoch,
        "instanceId": each.group_instance_id,
        "rackId": each.rack,
        "clientId": each.client_id,
        "clientHost": each.host,
        "topologyEpoch": each.topology_epoch,
        "processId": each.process_id,
        "userEndpoint": None
        if each.endpoint is None
        else {"host": each.endpoint[0], "port": each.endpoint[1]},
        "clientTags": dict(each.client_tags or {}),
        "taskOffsets": _task_offsets(each.task_offsets),
        "taskEndOffsets": _task_offsets(each.task_end_offsets),
        "assignment": _tasks(each.tasks),
        "targetAssignment": _tasks(each.target),
        "isClassic": each.classic,
    }


def _task_offsets(given: Mapping[tuple[str, int], int] | None) -> list[Any]:
    return [
        {"subtopologyId": part, "partition": partition, "offset": offset}
        for (part, partition), offset in (given or {}).items()
    ]


def _tasks(tasks: StreamsTasks) -> dict[str, Any]:
    return {
        f"{kind}Tasks": [
            {"subtopologyId": part, "partitions": list(numbers)} for part, numbers in some.items()
        ]
        for kind, some in tasks._asdict().items()
    }


@call_as("deleteConsumerGroups")
@call_as("deleteShareGroups")
@call_as("deleteStreamsGroups")
async def delete_groups(admin: Admin, given: Given) -> Any:
    return items(await admin.delete_groups(given["groups"]))


@call_as("listConsumerGroupOffsets")
@call_as("listStreamsGroupOffsets")
async def list_group_offsets(admin: Admin, given: Given) -> Any:
    """Return the offsets; those of the given partitions are selected here, not by the broker."""
    results = await admin.list_consumer_group_offsets(
        given["groups"], require_stable=given.get("stable", False)
    )
    found: dict[str, Any] = {}
    for group, offsets in results.items():
        if isinstance(offsets, KafkaError):
            found[group] = error_form(offsets)
            continue
        wanted = partitions(given["groups"][group])
        some: Mapping[TopicPartition, OffsetAndMetadata | None] = (
            offsets if wanted is None else {tp: offsets.get(tp) for tp in wanted}
        )
        found[group] = {"value": {form(tp): _offset(each) for tp, each in some.items()}}
    return found


def _offset(each: OffsetAndMetadata | None) -> Any:
    if each is None:
        return None
    return {
        "offset": each.offset,
        "metadata": each.metadata,
        "leaderEpoch": each.leader_epoch,
    }


@call_as("alterConsumerGroupOffsets")
@call_as("alterStreamsGroupOffsets")
async def alter_group_offsets(admin: Admin, given: Given) -> Any:
    offsets = {
        TopicPartition(*each[:2]): each[2]
        if isinstance(each[2], int)
        else OffsetAndMetadata(each[2][0], each[2][2], each[2][1])
        for each in given["offsets"]
    }
    results = await admin.alter_consumer_group_offsets(given["group"], offsets, check=False)
    return items(results)


@call_as("deleteConsumerGroupOffsets")
@call_as("deleteStreamsGroupOffsets")
async def delete_group_offsets(admin: Admin, given: Given) -> Any:
    tps = partitions(given["partitions"]) or []
    return items(await admin.delete_consumer_group_offsets(given["group"], tps))


@call_as("removeMembersFromConsumerGroup")
async def remove_members(admin: Admin, given: Given) -> Any:
    return items(await admin.remove_members(given["group"], given["instances"], static=True))


@call_as("listShareGroupOffsets")
async def list_share_group_offsets(admin: Admin, given: Given) -> Any:
    def listed(offsets: Mapping[TopicPartition, SharePartitionOffset | None]) -> Any:
        return {
            form(tp): None
            if each is None
            else {
                "startOffset": each.start_offset,
                "leaderEpoch": each.leader_epoch,
                "lag": each.lag,
            }
            for tp, each in offsets.items()
        }

    groups = {group: partitions(tps) for group, tps in given["groups"].items()}
    return items(await admin.list_share_group_offsets(groups, check=False), listed)


@call_as("alterShareGroupOffsets")
async def alter_share_group_offsets(admin: Admin, given: Given) -> Any:
    offsets = {TopicPartition(*each[:2]): each[2] for each in given["offsets"]}
    return items(await admin.alter_share_group_offsets(given["group"], offsets, check=False))


@call_as("deleteShareGroupOffsets")
async def delete_share_group_offsets(admin: Admin, given: Given) -> Any:
    return items(await admin.delete_share_group_offsets(given["group"], given["topics"]))
