"""The description of groups: their offsets and lag, members, state, or topology."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from aiokclient.cli.exit_codes import NotFoundError
from aiokclient.cli.grammar import AdminCommand, Option
from aiokclient.cli.nouns.groups.listing import ALL, GROUPS, REGEX, choose_groups, types_of
from aiokclient.cli.nouns.groups.progress import (
    ISOLATION_LEVEL,
    LAG,
    SHARE_LAG,
    WIDE,
    add_commit_details,
    read_progress,
)
from aiokclient.cli.output import Result, Row, Table, as_json

if TYPE_CHECKING:
    from argparse import Namespace

    from aiokclient import Admin, TopicPartition
    from aiokclient.admin import (
        GroupDescription,
        GroupMemberDescription,
        StreamsGroupDescription,
        StreamsMemberDescription,
        StreamsSubtopology,
    )

    Group = GroupDescription | StreamsGroupDescription
    Member = GroupMemberDescription | StreamsMemberDescription

SHOWN = ("offsets", "members", "state", "topology")
MEMBER = ("group_id", "member_id", "client_id", "host", "group_instance_id", "partition_count")
MEMBER_WIDE = ("rack", "epoch", "partitions", "target", "subscribed")
STATE = ("group_id", "type", "state", "protocol", "coordinator", "member_count")
STATE_WIDE = ("epoch", "assignment_epoch", "topology_epoch")
SUBTOPOLOGY = (
    "group_id",
    "subtopology_id",
    "source_topics",
    "repartition_source_topics",
    "repartition_sink_topics",
    "changelog_topics",
)
NODE = ("group_id", "subtopology_id", "name", "type", "source_topics", "sink_topic", "stores")
NOT_IN_STATE = (
    "members",
    "subtopologies",
    "topology_description",
    "topology_description_status",
    "authorized_operations",
)
"""The fields of a description that are not shown as its state."""


class DescribeGroups(AdminCommand):
    """Describe groups: their offsets and lag, or what --show names.

    offsets: a row for each partition that has a committed offset or is assigned to a member, with
    the end of the partition, the lag, and the member that reads it. Share groups have the start of
    what they have in progress instead of a committed offset.
    members: a row for each member.
    state: a row for each group, with its coordinator.
    topology: the subtopologies of streams groups, with their nodes if a plugin of the brokers has
    stored these.
    """

    verb = "describe"
    watches = True
    arguments = (GROUPS,)
    options = (
        Option(
            ("--show",),
            "What is shown: offsets (the default), members, state, or topology.",
            "PART",
            default=SHOWN[0],
            choices=SHOWN,
        ),
        ALL,
        REGEX,
        Option(("-w", "--wide"), "Show more columns, such as epochs and assignments."),
        ISOLATION_LEVEL,
    )

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return what was asked for about each group."""
        listed, failures = await choose_groups(admin, given)
        types = types_of(listed)
        if given.show == "offsets":
            return await self._describe_offsets(admin, types, failures, given)
        if given.show == "topology":
            if not given.all:
                failures |= find_groups_without_topology(types)
            types = {name: each for name, each in types.items() if each == "streams"}
        groups, errors = await describe_types(admin, types, given.show)
        failures |= errors
        if given.show == "members":
            return describe_members(groups, failures, given)
        if given.show == "state":
            return describe_states(groups, types, failures, given)
        return describe_topologies(groups, failures)

    async def _describe_offsets(
        self,
        admin: Admin,
        types: Mapping[str, str],
        failures: dict[str, Exception],
        given: Namespace,
    ) -> Result:
        progress, errors = await read_progress(admin, types, given)
        if given.wide:
            progress = await add_commit_details(admin, progress, types)
        shared = [row for group in progress if types[group] == "share" for row in progress[group]]
        others = [row for group in progress if types[group] != "share" for row in progress[group]]
        only_share = bool(progress) and all(types[group] == "share" for group in progress)
        tables = []
        if others or not (shared or only_share):
            columns = ("group_id", *LAG, *(WIDE if given.wide else ()))
            tables.append(Table(columns, others))
        if shared or only_share:
            columns = ("group_id", *SHARE_LAG, *(WIDE[:1] if given.wide else ()))
            tables.append(Table(columns, shared))
        data = [row for rows in progress.values() for row in rows]
        return Result(data, tables, failures | errors)


async def describe_types(
    admin: Admin, types: Mapping[str, str], shown: str = ""
) -> tuple[dict[str, Group], dict[str, Exception]]:
    """Return the descriptions of groups, whose types are given, and the errors of the others."""
    streams = [name for name, each in types.items() if each == "streams"]
    others = [name for name, each in types.items() if each != "streams"]
    found: dict[str, Group] = {}
    failures: dict[str, Exception] = {}
    if others:
        described = await admin.describe_groups(others)
        found |= described.succeeded
        failures |= described.errors
    if streams:
        of_streams = await admin.describe_streams_groups(
            streams, include_topology_description=shown == "topology"
        )
        found |= of_streams.succeeded
        failures |= of_streams.errors
    return {name: found[name] for name in types if name in found}, failures


def describe_members(
    groups: Mapping[str, Group], failures: Mapping[str, Exception], given: Namespace
) -> Result:
    """Return a row for each member of each group."""
    data: list[Row] = []
    rows: list[Row] = []
    for name, group in groups.items():
        for member in group.members:
            row = {"group_id": name, **as_json(member)}
            data.append(row)
            rows.append({**row, **assignment_fields(member)})
    columns = (*MEMBER, *(MEMBER_WIDE if given.wide else ()))
    return Result(data, [Table(columns, rows)], failures)


def assignment_fields(member: Member) -> Row:
    """Return what is assigned to a member, as texts: partitions, or the tasks of streams groups."""
    tasks: Any = getattr(member, "tasks", None)
    if tasks is not None:
        target: Any = getattr(member, "target", None)
        return {
            "partition_count": sum(map(len, tasks.active.values())),
            "partitions": by_name(tasks.active),
            "target": by_name(target.active),
        }
    partitions: tuple[TopicPartition, ...] = getattr(member, "partitions", ())
    targets: tuple[TopicPartition, ...] | None = getattr(member, "target", None)
    return {
        "partition_count": len(partitions),
        "partitions": by_name(grouped(partitions)),
        "target": None if targets is None else by_name(grouped(targets)),
    }


def grouped(tps: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the numbers of partitions by topic."""
    found: dict[str, list[int]] = {}
    for topic, partition in tps:
        found.setdefault(topic, []).append(partition)
    return found


def by_name(partitions: Mapping[str, Iterable[int]]) -> str | None:
    """Return partitions in the form in which they can be typed, such as `orders:0,1 refunds:2`."""
    parts = [f"{name}:{','.join(map(str, each))}" for name, each in partitions.items() if each]
    return " ".join(parts) or None


def describe_states(
    groups: Mapping[str, Group],
    types: Mapping[str, str],
    failures: Mapping[str, Exception],
    given: Namespace,
) -> Result:
    """Return a row for each group."""
    data: list[Row] = []
    rows: list[Row] = []
    for name, group in groups.items():
        fields = {key: each for key, each in as_json(group).items() if key not in NOT_IN_STATE}
        row = {**fields, "type": types[name], "member_count": len(group.members)}
        data.append(row)
        broker = row["coordinator"]
        text = {
            "protocol": row.get("protocol", row.get("assignor")),
            "coordinator": f"{broker['node_id']} ({broker['host']}:{broker['port']})",
        }
        rows.append({**row, **text})
    columns = (*STATE, *(STATE_WIDE if given.wide else ()))
    return Result(data, [Table(columns, rows)], failures)


def find_groups_without_topology(types: Mapping[str, str]) -> dict[str, Exception]:
    """Return an error for each group that is not one of Kafka Streams."""
    return {
        name: NotFoundError(f"It is a {each} group, and only streams groups have a topology.")
        for name, each in types.items()
        if each != "streams"
    }


def describe_topologies(groups: Mapping[str, Group], failures: Mapping[str, Exception]) -> Result:
    """Return the topologies of streams groups, and tables of their subtopologies and nodes."""
    data: list[Row] = []
    rows: list[Row] = []
    nodes: list[Row] = []
    for name, group in groups.items():
        fields = as_json(group)
        names = ("topology_epoch", "subtopologies", "topology_description_status")
        data.append(
            {
                "group_id": name,
                **{key: fields[key] for key in names},
                "topology_description": fields["topology_description"],
            }
        )
        subtopologies: Iterable[StreamsSubtopology] = getattr(group, "subtopologies", ())
        rows += [subtopology_row(name, each) for each in subtopologies]
        description = fields["topology_description"] or {"subtopologies": {}}
        nodes += [
            {"group_id": name, "subtopology_id": subtopology, **node}
            for subtopology, parts in description["subtopologies"].items()
            for node in parts
        ]
    tables = [Table(SUBTOPOLOGY, rows)]
    if nodes:
        tables.append(Table((*NODE, "successors"), nodes))
    return Result(data, tables, failures)


def subtopology_row(group: str, subtopology: StreamsSubtopology) -> Row:
    """Return a part of a topology as a row, with the names of its topics."""
    return {
        "group_id": group,
        "subtopology_id": subtopology.subtopology_id,
        "source_topics": subtopology.source_topics,
        "repartition_source_topics": [each.name for each in subtopology.repartition_source_topics],
        "repartition_sink_topics": subtopology.repartition_sink_topics,
        "changelog_topics": [each.name for each in subtopology.changelog_topics],
    }
