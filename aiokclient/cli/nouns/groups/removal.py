"""The commands that delete groups and their offsets, and remove members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from aiokclient.cli.asking import confirm
from aiokclient.cli.exit_codes import NotFoundError
from aiokclient.cli.grammar import AdminCommand, Argument, Option, WrongUseError
from aiokclient.cli.nouns.groups.descriptions import describe_types
from aiokclient.cli.nouns.groups.internal_topics import (
    INTERNAL_TOPICS,
    delete_topics,
    find_internal_topics,
)
from aiokclient.cli.nouns.groups.listing import (
    ALL,
    GROUPS,
    REGEX,
    choose_groups,
    find_type,
    types_of,
)
from aiokclient.cli.nouns.topics import count_of, dry_run_notes, without_absent
from aiokclient.cli.output import Result, Row, rows_result
from aiokclient.cli.values import TopicPartitions

if TYPE_CHECKING:
    from argparse import Namespace

    from aiokclient import Admin, TopicPartition
    from aiokclient.admin import GroupListing
    from aiokclient.cli.nouns.groups.descriptions import Member

GROUP = Argument("GROUP", "The name of the group.", completes="groups")
WITHOUT_MEMBERS = ("Empty", "Dead", "")
"""The states in which a group has no members. Brokers before 2.6 do not tell the state."""


class DeleteGroups(AdminCommand):
    """Delete groups that have no members, with their committed offsets."""

    verb = "delete"
    changes = True
    destroys = True
    arguments = (GROUPS,)
    options = (
        ALL,
        REGEX,
        INTERNAL_TOPICS,
        Option(("--if-exists",), "Ignore groups that do not exist."),
    )

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for each group that was deleted."""
        listed, failures = await choose_groups(admin, given)
        topics: Mapping[str, Sequence[str]] = {}
        if given.internal_topics:
            topics = await find_internal_topics(admin, types_of(listed))
        names = list(listed)
        if given.dry_run:
            failures |= find_occupied(listed)
            names = [name for name in names if name not in failures]
        elif names:
            more = f" and {sum(map(len, topics.values()))} internal topics" if topics else ""
            confirm(given, f"Delete {count_of(names, 'group')} with all offsets{more}?")
            deleted = await admin.delete_groups(names)
            failures |= deleted.errors
            names = list(deleted.succeeded)
            given.done += [f"deletion of {name}" for name in names]
            failures |= await delete_topics(
                admin, [each for name in names for each in topics.get(name, ())]
            )
        rows: list[Row] = []
        for name in names:
            row = {"group_id": name, "type": listed[name].type}
            rows.append({**row, "internal_topics": topics.get(name, ())} if topics else row)
        columns = ["group_id", "type", *(["internal_topics"] if topics else [])]
        kept = without_absent(failures) if given.if_exists else failures
        return rows_result(columns, rows, kept, dry_run_notes(given))


def find_occupied(listed: Mapping[str, GroupListing]) -> dict[str, Exception]:
    """Return the error that brokers would return for each group that has members."""
    from aiokclient.errors import GroupNotEmptyError

    return {
        name: GroupNotEmptyError(f"Its state is {each.state}.")
        for name, each in listed.items()
        if each.state not in WITHOUT_MEMBERS
    }


class DeleteOffsets(AdminCommand):
    """Delete the offsets that a group has committed in topics or partitions.

    No member may be subscribed to the topics. A share group must have no members, and its offsets
    are deleted for whole topics.
    """

    verb = "delete-offsets"
    changes = True
    destroys = True
    arguments = (
        GROUP,
        Argument(
            "TOPIC", "Topics, or TOPIC:PARTITION[,...].", "*", TopicPartitions, completes="topics"
        ),
    )
    options = (Option(("--all-topics",), "All topics in which the group has offsets."),)

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for each partition, and for share groups for each topic."""
        if bool(given.topic) == given.all_topics:
            raise WrongUseError("Give either topics, or --all-topics.")
        if await find_type(admin, given.group) == "share":
            return await self._delete_of_share_group(admin, given)
        offsets = await admin.list_consumer_group_offsets([given.group])
        committed = offsets.raise_for_errors()[given.group]
        tps, failures = choose_committed(committed, given.topic)
        if tps:
            confirm(given, f"Delete the offsets of {given.group} in {count_of(tps, 'partition')}?")
        if tps and not given.dry_run:
            deleted = await admin.delete_consumer_group_offsets(given.group, tps)
            failures |= {str(tp): error for tp, error in deleted.errors.items()}
            tps = list(deleted.succeeded)
        rows = [
            {"topic": tp.topic, "partition": tp.partition, "committed": committed[tp].offset}
            for tp in tps
        ]
        columns = ["topic", "partition", "committed"]
        return rows_result(columns, rows, failures, dry_run_notes(given))

    async def _delete_of_share_group(self, admin: Admin, given: Namespace) -> Result:
        if partial := [each.topic for each in given.topic if each.partitions is not None]:
            raise WrongUseError(
                f"{given.group} is a share group, whose offsets are deleted for whole topics. Give "
                f"{partial[0]} without partitions."
            )
        listed = await admin.list_share_group_offsets([given.group])
        known = sorted({tp.topic for tp in listed.raise_for_errors()[given.group]})
        chosen = known if given.all_topics else [each.topic for each in given.topic]
        topics = [name for name in dict.fromkeys(chosen) if name in known]
        failures: dict[str, Exception] = {
            name: NotFoundError("The group has no offsets of this topic.")
            for name in chosen
            if name not in known
        }
        if topics:
            confirm(given, f"Delete the offsets of {given.group} in {count_of(topics, 'topic')}?")
        if topics and given.dry_run:
            occupied = find_occupied(await admin.list_groups())
            if given.group in occupied:
                failures |= dict.fromkeys(topics, occupied[given.group])
                topics = []
        elif topics:
            deleted = await admin.delete_share_group_offsets(given.group, topics)
            failures |= deleted.errors
            topics = list(deleted.succeeded)
        rows = [{"topic": topic} for topic in topics]
        return rows_result(["topic"], rows, failures, dry_run_notes(given))


def choose_committed(
    committed: Mapping[TopicPartition, object], typed: Sequence[TopicPartitions]
) -> tuple[list[TopicPartition], dict[str, Exception]]:
    """Return the partitions that were typed, or all without any, in which a group has offsets.

    An error stands for each topic or partition in which it has none.
    """
    from aiokclient import TopicPartition

    if not typed:
        return sorted(committed), {}
    chosen: dict[TopicPartition, None] = {}
    failures: dict[str, Exception] = {}
    for each in typed:
        known = sorted(tp for tp in committed if tp.topic == each.topic)
        tps = known
        if each.partitions is not None:
            tps = [TopicPartition(each.topic, partition) for partition in each.partitions]
        missing = [str(tp) for tp in tps if tp not in committed]
        for name in missing if tps else [each.topic]:
            failures[name] = NotFoundError("The group has no committed offset here.")
        chosen.update(dict.fromkeys(tp for tp in tps if tp in committed))
    return list(chosen), failures


class RemoveMembers(AdminCommand):
    """Remove members from a group, all of them if none is named.

    A member that still runs joins the group again. Removing one that will not return spares the
    group the wait for its session timeout.
    """

    verb = "remove-members"
    changes = True
    arguments = (GROUP, Argument("MEMBER", "Member ids, or group instance ids.", "*"))
    options = (
        Option(
            ("--reason",),
            "What the log of the brokers gives as the reason.",
            "TEXT",
            default="removed by an admin",
        ),
    )

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for each member that was removed."""
        group_type = await find_type(admin, given.group)
        described, errors = await describe_types(admin, {given.group: group_type})
        if errors:
            raise errors[given.group]
        members, failures = choose_members(described[given.group].members, given.member)
        if members and not given.member:
            confirm(given, f"Remove all {len(members)} members of the group {given.group}?")
        # A classic group knows a static member by its instance id.
        static = {
            each.group_instance_id: each
            for each in members
            if each.group_instance_id is not None and group_type == "classic"
        }
        others = {each.member_id: each for each in members if each not in static.values()}
        removed = list(members)
        if not given.dry_run:
            removed = []
            for chosen, is_static in ((static, True), (others, False)):
                if chosen:
                    results = await admin.remove_members(
                        given.group, chosen, static=is_static, reason=given.reason
                    )
                    failures |= results.errors
                    removed += [chosen[name] for name in results.succeeded]
        columns = ["member_id", "client_id", "host", "group_instance_id"]
        rows = [{name: getattr(each, name) for name in columns} for each in removed]
        return rows_result(columns, rows, failures, dry_run_notes(given))


def choose_members(
    known: Sequence[Member], typed: Sequence[str]
) -> tuple[list[Member], dict[str, Exception]]:
    """Return the members that were typed, or all without any, and the errors of the others."""
    if not typed:
        return list(known), {}
    names = {name: each for each in known for name in (each.group_instance_id, each.member_id)}
    failures: dict[str, Exception] = {
        name: NotFoundError("The group has no such member.") for name in typed if name not in names
    }
    chosen = {names[name].member_id: names[name] for name in typed if name in names}
    return list(chosen.values()), failures
