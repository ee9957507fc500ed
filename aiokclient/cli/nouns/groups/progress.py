"""The progress of groups of all types in their partitions, as rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from aiokclient.cli.grammar import Option
from aiokclient.cli.output import Row, as_json

if TYPE_CHECKING:
    from argparse import Namespace

    from aiokclient import Admin, TopicPartition
    from aiokclient.admin import (
        SharePartitionOffset,
        StreamsGroupDescription,
        StreamsMemberDescription,
    )

LEVELS = ("read_uncommitted", "read_committed")
ISOLATION_LEVEL = Option(
    ("--isolation-level",),
    "With read_committed, a partition ends at the last stable offset, before which no transaction "
    "is open.",
    "LEVEL",
    default=LEVELS[0],
    choices=LEVELS,
)
LAG = ("topic", "partition", "committed", "end", "lag", "member_id", "client_id", "host")
"""The columns of groups that commit offsets."""
WIDE = ("leader_epoch", "metadata")
"""The columns that --wide adds."""
SHARE_LAG = ("topic", "partition", "start_offset", "lag")
"""The columns of share groups."""

Progress = dict[str, list[Row]]
"""The rows of the partitions of each group."""


async def read_progress(
    admin: Admin, types: Mapping[str, str], given: Namespace
) -> tuple[Progress, dict[str, Exception]]:
    """Return the partitions of groups, whose types are given, and the errors of the others.

    A group that commits offsets has the fields of `PartitionLag`, and a share group those of
    `SharePartitionOffset`.
    """
    by_type: dict[str, list[str]] = {"share": [], "streams": [], "": []}
    for group, group_type in types.items():
        by_type[group_type if group_type in by_type else ""].append(group)
    found: Progress = {}
    failures: dict[str, Exception] = {}
    if by_type[""]:
        lags = await admin.group_lag(by_type[""], isolation_level=given.isolation_level)
        failures |= lags.errors
        for group, partitions in lags.succeeded.items():
            found[group] = [make_row(group, tp, as_json(lag)) for tp, lag in partitions.items()]
    if by_type["share"]:
        starts = await admin.list_share_group_offsets(by_type["share"])
        failures |= starts.errors
        for group, offsets in starts.succeeded.items():
            found[group] = [
                make_row(group, tp, share_fields(offsets[tp])) for tp in sorted(offsets)
            ]
    if by_type["streams"]:
        rows, errors = await read_streams_progress(admin, by_type["streams"], given)
        found |= rows
        failures |= errors
    return {group: found[group] for group in types if group in found}, failures


def make_row(group: str, tp: TopicPartition, fields: Row) -> Row:
    """Return the row of a partition of a group."""
    return {"group_id": group, "topic": tp.topic, "partition": tp.partition, **fields}


def share_fields(start: SharePartitionOffset | None) -> Row:
    """Return the fields of a partition of a share group, None if no member has read it."""
    if start is None:
        return {"start_offset": None, "leader_epoch": None, "lag": None}
    fields: Row = as_json(start)
    return fields


async def read_streams_progress(
    admin: Admin, groups: Iterable[str], given: Namespace
) -> tuple[Progress, dict[str, Exception]]:
    """Return the partitions of streams groups, with the members that have their active tasks."""
    from aiokclient.admin import OffsetSpec

    described = await admin.describe_streams_groups(groups)
    committed = await admin.list_consumer_group_offsets(described.succeeded)
    failures: dict[str, Exception] = {**described.errors, **committed.errors}
    owners = {group: find_owners(described.succeeded[group]) for group in committed.succeeded}
    tps = {
        group: sorted({*offsets, *owners[group]}) for group, offsets in committed.succeeded.items()
    }
    ends = await admin.list_offsets(
        {tp: OffsetSpec.LATEST for each in tps.values() for tp in each},
        isolation_level=given.isolation_level,
    )
    found: Progress = {}
    for group, offsets in committed.succeeded.items():
        if errors := [ends.errors[tp] for tp in tps[group] if tp in ends.errors]:
            failures[group] = errors[0]
            continue
        found[group] = []
        for tp in tps[group]:
            owner, listed = owners[group].get(tp), ends.succeeded[tp]
            offset = offsets[tp].offset if tp in offsets else None
            end = listed.offset if listed else None
            fields = {
                "committed": offset,
                "end": end,
                "lag": None if offset is None or end is None else max(end - offset, 0),
                "member_id": owner.member_id if owner else None,
                "client_id": owner.client_id if owner else None,
                "host": owner.host if owner else None,
            }
            found[group].append(make_row(group, tp, fields))
    return found, failures


def find_owners(
    group: StreamsGroupDescription,
) -> dict[TopicPartition, StreamsMemberDescription]:
    """Return the member that reads each partition: the one that has its active task."""
    from aiokclient import TopicPartition

    topics = {
        each.subtopology_id: [
            *each.source_topics,
            *(topic.name for topic in each.repartition_source_topics),
        ]
        for each in group.subtopologies
    }
    return {
        TopicPartition(topic, partition): member
        for member in group.members
        for subtopology, partitions in member.tasks.active.items()
        for topic in topics.get(subtopology, ())
        for partition in partitions
    }


async def add_commit_details(
    admin: Admin, progress: Progress, types: Mapping[str, str]
) -> Progress:
    """Return the rows of groups that commit offsets with the leader epochs and the metadata."""
    groups = [group for group in progress if types[group] != "share"]
    committed = (await admin.list_consumer_group_offsets(groups)).raise_for_errors()
    by_partition = {
        (group, *tp): offset
        for group, offsets in committed.items()
        for tp, offset in offsets.items()
    }
    detailed: Progress = {}
    for group, rows in progress.items():
        if types[group] == "share":
            detailed[group] = rows
            continue
        detailed[group] = []
        for row in rows:
            offset = by_partition.get((group, row["topic"], row["partition"]))
            details = {
                "leader_epoch": offset.leader_epoch if offset else None,
                "metadata": offset.metadata if offset else None,
            }
            detailed[group].append({**row, **details})
    return detailed
