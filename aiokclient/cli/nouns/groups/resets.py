"""The commands that change the committed offsets of groups, or the starts of share groups."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError, Namespace
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aiokclient.cli.asking import confirm
from aiokclient.cli.grammar import NO_CHECK, AdminCommand, Argument, Option, WrongUseError
from aiokclient.cli.nouns.groups.internal_topics import (
    INTERNAL_TOPICS,
    delete_topics,
    find_internal_topics,
)
from aiokclient.cli.nouns.groups.listing import find_type
from aiokclient.cli.nouns.offsets import KAFKAS_WORDS, SPECS
from aiokclient.cli.nouns.topics import count_of, dry_run_notes
from aiokclient.cli.output import Result, Row, rows_result
from aiokclient.cli.values import TextFile, TopicPartitions, time_ms

if TYPE_CHECKING:
    from aiokclient import Admin, OffsetAndMetadata, TopicPartition
    from aiokclient.admin import OffsetChange

    Changes = Mapping[TopicPartition, OffsetChange]

CURRENT = ("current", "committed")
COLUMNS = ("group_id", "topic", "partition", "before", "after")
TOPICS = Argument(
    "TOPIC",
    "Topics, or TOPIC:PARTITION[,...]; all in which the group has offsets without any.",
    "*",
    TopicPartitions,
    completes="topics",
)


class ResetTarget:
    """The new position of a group, as it is typed for --to.

    It is a word of `SPECS`, current, an offset, +N or -N from the committed offset, or a time.
    """

    _SHIFT = re.compile(r"[+-]\d+", re.ASCII)

    def __init__(self, text: str) -> None:
        self.spec = SPECS.get(KAFKAS_WORDS.get(text, text)) if text[:1] not in "+-" else None
        self.is_bound = self.spec in ("EARLIEST", "LATEST")
        self.is_current = text in CURRENT
        self.distance = int(text) if self._SHIFT.fullmatch(text) else None
        self.offset = int(text) if text.isascii() and text.isdecimal() else None
        self.milliseconds: int | None = None
        if self.spec or self.is_current or self.distance is not None or self.offset is not None:
            return
        try:
            self.milliseconds = time_ms(text)
        except ArgumentTypeError as error:
            raise ArgumentTypeError(
                f"{error}; other positions are {', '.join(SPECS)}, current, an offset, and +N or "
                "-N from the committed offset"
            ) from None

    def as_argument(self) -> Any:
        """Return what `Admin.reset_offsets` takes. Raises WrongUseError."""
        from datetime import UTC, datetime, timedelta

        from aiokclient.admin import OffsetSpec, Shift

        if self.spec:
            return OffsetSpec[self.spec]
        if self.is_current:
            return "current"
        if self.distance is not None:
            return Shift(self.distance)
        if self.offset is not None:
            return self.offset
        try:
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=self.milliseconds or 0)
        except OverflowError:
            raise WrongUseError(f"The time {self.milliseconds} ms is too far away.") from None


class ResetOffsets(AdminCommand):
    """Set the offsets of a group, which must have no members.

    --to is start, end, current, an offset, +N or -N from the committed offset, a time, or a time
    span before now such as -1h. Further positions are max-timestamp, and for tiered storage
    local-start, tiered, and pending-upload. An offset outside of the log is moved to its nearest
    end. If all records are older than a time, the position is the end.

    A group that does not exist is created if topics are given.

    --dry-run prints the plan, and with --csv in a form that --from-file reads. A file has lines of
    TOPIC,PARTITION,OFFSET or GROUP,TOPIC,PARTITION,OFFSET, as those of kafka-consumer-groups, or a
    heading that names these columns, of which the offset may be named after.
    """

    verb = "reset"
    changes = True
    destroys = True
    arguments = (
        Argument("GROUP", "The name of the group; none with --all.", "?", completes="groups"),
        TOPICS,
    )
    options = (
        Option(("--to",), "The new position.", "POSITION", type=ResetTarget),
        Option(
            ("--shift", "--shift-by"),
            "The same as --to +N or --to -N: a number of offsets from the committed one.",
            "N",
            type=int,
        ),
        Option(
            ("--from-file",),
            "A CSV file with the offset of each partition; - is standard input.",
            "FILE",
            type=TextFile,
            completes="files",
        ),
        Option(("--all",), "All groups that have no members, except share groups."),
        Option(("--all-topics",), "All topics in which the group has offsets, as without topics."),
        INTERNAL_TOPICS,
        Option(
            ("--internal-topic",),
            "Delete only this one of the internal topics. Can be repeated.",
            "NAME",
            repeated=True,
        ),
        NO_CHECK,
    )

    def run(self, given: Namespace) -> int:
        """Check which options were given together, and run the command."""
        if given.all and given.group is not None:
            given.topic.insert(0, TopicPartitions(given.group))
            given.group = None
        if given.group is None and not given.all:
            raise WrongUseError("Name a group, or give --all.")
        if given.all_topics and given.topic:
            raise WrongUseError("Give either topics, or --all-topics.")
        if given.shift is not None and given.to is None:
            given.to = ResetTarget(f"{given.shift:+d}")
        elif given.shift is not None:
            raise WrongUseError("Give either --to or --shift.")
        if (given.to is None) == (given.from_file is None):
            raise WrongUseError("Give the new position by either --to, --shift, or --from-file.")
        if given.from_file and given.topic:
            raise WrongUseError("Give either topics or --from-file.")
        return super().run(given)

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return the offset of each partition, before and after."""
        planned, failures = await self._plan_changes(admin, given)
        topics: list[str] = []
        if given.internal_topics or given.internal_topic:
            types = {group: await find_type(admin, group) for group in planned}
            found = await find_internal_topics(admin, types)
            topics = [topic for each in found.values() for topic in each]
            if given.internal_topic:
                topics = select_topics(topics, given.internal_topic)
        if given.dry_run:
            notes = notes_on(planned, topics, False)
            return changes_result(planned, failures, [*notes, *dry_run_notes(given)])
        if any(planned.values()) or topics:
            confirm(given, question_of(planned, topics))
        done: dict[str, Changes] = {}
        for group, changes in planned.items():
            # What was planned and agreed to is what is sent, even if records arrive meanwhile.
            offsets = as_offsets(changes)
            results, errors = (
                await reset_group(admin, given, group, offsets) if changes else ({}, {})
            )
            failures |= errors
            done[group] = {tp: changes[tp] for tp in results}
            given.done.append(f"reset of {group}")
        if topics and failures:
            names = count_of(topics, "internal topic")
            return changes_result(done, failures, [f"Not deleted because of the errors: {names}."])
        failures |= await delete_topics(admin, topics)
        topics = [topic for topic in topics if topic not in failures]
        return changes_result(done, failures, notes_on(done, topics, True))

    async def _plan_changes(
        self, admin: Admin, given: Namespace
    ) -> tuple[dict[str, Changes], dict[str, Exception]]:
        """Return the changes of each group, and the errors of partitions and groups."""
        targets = await self._find_targets(admin, given)
        selection = selection_of(given.topic)
        planned: dict[str, Changes] = {}
        failures: dict[str, Exception] = {}
        for group, target in targets.items():
            planned[group], errors = await reset_group(
                admin, given, group, target, topics=selection, dry_run=True
            )
            failures |= errors
        return planned, failures

    async def _find_targets(self, admin: Admin, given: Namespace) -> Mapping[str, Any]:
        """Return the new position of each group, as `Admin.reset_offsets` takes it."""
        if given.from_file:
            plans = read_plans(given.from_file, given.group)
            if given.all:
                return plans
            if given.group not in plans:
                raise WrongUseError(f"{given.from_file.name} has no offset of {given.group}.")
            return {given.group: plans[given.group]}
        groups = [given.group]
        if given.all:
            listed = await admin.list_groups()
            groups = [
                name
                for name, each in listed.items()
                if each.type != "share" and each.protocol_type in ("consumer", "streams", "")
            ]
        return dict.fromkeys(groups, given.to.as_argument())


class CopyOffsets(AdminCommand):
    """Copy the offsets of a group to another group, which must have no members.

    A second group that does not exist is created. Its offsets in other partitions are kept.
    """

    verb = "copy-offsets"
    changes = True
    destroys = True
    arguments = (
        Argument("FROM", "The group whose offsets are read.", completes="groups"),
        Argument("TO", "The group whose offsets are set.", completes="groups"),
        TOPICS,
    )

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return the offset of each partition, before and after."""
        source, target = getattr(given, "from"), given.to
        topics = selection_of(given.topic)
        planned = await admin.copy_offsets(source, target, topics=topics, dry_run=True)
        failures = keyed(planned.errors)
        changes = {target: planned.succeeded}
        if given.dry_run:
            notes = [*notes_on(changes, (), False), *dry_run_notes(given)]
            return changes_result(changes, failures, notes)
        if any(change.before is not None for change in planned.succeeded.values()):
            confirm(given, question_of(changes, ()))
        copied = await admin.copy_offsets(source, target, topics=topics)
        failures = keyed(copied.errors)
        done = {target: copied.succeeded}
        return changes_result(done, failures, notes_on(done, (), True))


class CreateShareGroup(AdminCommand):
    """Create a share group whose starts are stored before its first member joins.

    Otherwise, its brokers look for the start when a member first fetches, and again if the leader
    moves before a member has settled a record: what was produced meanwhile is skipped.

    --from is start, end, a time, or a time span before now such as -1h. If all records are older
    than a time, the start is the end. A partition that has a start keeps it, so that the command
    can be repeated. The group must not have members, unless all partitions have a start.

    A file has lines of TOPIC,PARTITION,OFFSET with all partitions of the topics, as for reset.
    """

    verb = "create-share"
    changes = True
    arguments = (
        Argument("GROUP", "The name of the group."),
        Argument("TOPIC", "The topics that the group will read.", "+", completes="topics"),
    )
    options = (
        Option(("-o", "--from"), "The start of the group.", "POSITION", type=ResetTarget),
        Option(
            ("--from-file",),
            "A CSV file with the start of each partition; - is standard input.",
            "FILE",
            type=TextFile,
            completes="files",
        ),
        NO_CHECK,
    )

    def run(self, given: Namespace) -> int:
        """Check which options were given together, and run the command."""
        start: ResetTarget | None = getattr(given, "from")
        if (start is None) == (given.from_file is None):
            raise WrongUseError("Give the start by either --from or --from-file.")
        if start is not None and not start.is_bound and start.milliseconds is None:
            raise WrongUseError("--from is start, end, or a time. Offsets need --from-file.")
        return super().run(given)

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return the start of each partition, as `reset` returns offsets."""
        start: ResetTarget | None = getattr(given, "from")
        target: Any
        if start is None:
            plans = read_plans(given.from_file, given.group)
            if given.group not in plans:
                raise WrongUseError(f"{given.from_file.name} has no offset of {given.group}.")
            target = plans[given.group]
        else:
            target = start.as_argument()
        created = await admin.create_share_group(
            given.group, given.topic, target, dry_run=given.dry_run, check=not given.no_check
        )
        changes = {given.group: created.succeeded}
        notes = [*notes_on(changes, (), not given.dry_run), *dry_run_notes(given)]
        return changes_result(changes, keyed(created.errors), notes)


async def reset_group(
    admin: Admin, given: Namespace, group: str, target: Any, **options: Any
) -> tuple[Changes, dict[str, Exception]]:
    """Reset one group, or plan that, and return its changes and the errors of partitions.

    With --all, the error of a group does not prevent the others.
    """
    from aiokclient.errors import KafkaError

    try:
        results = await admin.reset_offsets(group, target, check=not given.no_check, **options)
    except KafkaError as error:
        if not given.all:
            raise
        return {}, {group: error}
    return results.succeeded, keyed(results.errors, group if given.all else "")


def selection_of(typed: Sequence[TopicPartitions]) -> list[str | TopicPartition] | None:
    """Return the topics and partitions that were typed, or None without any."""
    from aiokclient import TopicPartition

    if not typed:
        return None
    selected: list[str | TopicPartition] = []
    for each in typed:
        if each.partitions is None:
            selected.append(each.topic)
        else:
            selected += [TopicPartition(each.topic, partition) for partition in each.partitions]
    return selected


def select_topics(found: Sequence[str], typed: Sequence[str]) -> list[str]:
    """Return the internal topics that were typed. Raises WrongUseError for another topic."""
    if unknown := [name for name in typed if name not in found]:
        raise WrongUseError(
            f"{unknown[0]} is no internal topic of the group, which has "
            f"{', '.join(found) or 'none'}."
        )
    return list(typed)


def as_offsets(changes: Changes) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets that changes set."""
    from aiokclient import OffsetAndMetadata

    return {
        tp: OffsetAndMetadata(change.after, change.metadata, change.leader_epoch)
        for tp, change in changes.items()
    }


def keyed(errors: Mapping[TopicPartition, Exception], group: str = "") -> dict[str, Exception]:
    """Return errors by the names of partitions, with that of the group if there are several.

    The library has the partition -1 for a topic as a whole.
    """
    prefix = f"{group}: " if group else ""
    return {
        f"{prefix}{tp if tp.partition >= 0 else tp.topic}": error for tp, error in errors.items()
    }


def changes_result(
    groups: Mapping[str, Changes], failures: Mapping[str, Exception], notes: Sequence[str]
) -> Result:
    """Return a row for each partition of each group."""
    rows: list[Row] = [
        {"group_id": group, "topic": tp.topic, "partition": tp.partition, **change._asdict()}
        for group, changes in groups.items()
        for tp, change in sorted(changes.items())
    ]
    return rows_result(COLUMNS, rows, failures, notes)


def question_of(groups: Mapping[str, Changes], topics: Sequence[str]) -> str:
    """Return the question before offsets are set, with how far they move."""
    changes = [change for each in groups.values() for change in each.values()]
    known = [(each.before, each.after) for each in changes if each.before is not None]
    back = sum(max(before - after, 0) for before, after in known)
    forward = sum(max(after - before, 0) for before, after in known)
    names = count_of(list(groups), "group")
    more = f", and delete {count_of(topics, 'internal topic')}" if topics else ""
    moves = f"{back} offsets back and {forward} forward"
    count = f"{len(changes)} offset{'' if len(changes) == 1 else 's'}"
    return f"Set {count} of {names} ({moves}){more}?"


def notes_on(groups: Mapping[str, Changes], topics: Sequence[str], is_done: bool) -> list[str]:
    """Return what a table of changes does not show."""
    notes = []
    for group, changes in groups.items():
        if any(change.created_group for change in changes.values()):
            created = "did not exist, and was" if is_done else "does not exist, and would be"
            notes.append(f"The group {group} {created} created.")
        notes += [
            f"Offset {change.requested} is outside of {tp}, and the nearest is {change.after}."
            for tp, change in sorted(changes.items())
            if change.requested is not None
        ]
    if topics:
        verb = "were" if is_done else "would be"
        notes.append(f"These internal topics {verb} deleted: {', '.join(topics)}.")
    return notes


def read_plans(file: TextFile, group: str | None) -> dict[str, dict[TopicPartition, int]]:
    """Return the offsets in a CSV file by group. Raises WrongUseError.

    `group` is the one of lines that name none.
    """
    import csv

    from aiokclient import TopicPartition

    names: Sequence[str] = ("group_id", "topic", "partition", "offset")
    lines = [line for line in csv.reader(file.text.splitlines()) if line]
    if lines and "topic" in lines[0]:
        heading: Sequence[str] = lines.pop(0)
    else:
        heading = names if lines and len(lines[0]) == len(names) else names[1:]
    found: dict[str, dict[TopicPartition, int]] = {}
    for line in lines:
        fields = dict(zip(heading, line, strict=False))
        try:
            tp = TopicPartition(fields["topic"], int(fields["partition"]))
            offset = int(fields["offset"] if "offset" in fields else fields["after"])
            name = fields["group_id"] if group is None else fields.get("group_id", group)
        except (KeyError, ValueError):
            raise WrongUseError(
                f"{file.name}: {','.join(line)} is not TOPIC,PARTITION,OFFSET or "
                "GROUP,TOPIC,PARTITION,OFFSET."
            ) from None
        found.setdefault(name, {})[tp] = offset
    if not found:
        raise WrongUseError(f"{file.name} has no offsets.")
    return found
