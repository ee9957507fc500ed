"""The commands that move replicas to other brokers.

A plan is a JSON file of kafka-reassign-partitions, with more fields, which that tool ignores.
"""

from __future__ import annotations

import json
from argparse import ArgumentTypeError, Namespace
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from aiokclient.cli.grammar import NAME, AdminCommand, Argument, Command, Option, WrongUseError
from aiokclient.cli.nouns.elect import find_partitions
from aiokclient.cli.nouns.topics import dry_run_notes
from aiokclient.cli.output import Result, Row, Table, as_json, rows_result, write_error
from aiokclient.cli.values import (
    STANDARD_INPUT,
    ByteCount,
    JsonFile,
    Numbers,
    TopicPartitions,
    named_bytes,
)

if TYPE_CHECKING:
    from aiokclient import Admin, ConfigResource, TopicPartition
    from aiokclient.admin import (
        PartitionReassignment,
        ReassignmentPlan,
        ReassignmentProgress,
    )

T = TypeVar("T")

LOG_DIR_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate", LOG_DIR_RATE)
"""The options of brokers that throttle reassignments."""
LISTS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
"""The options of topics that name the replicas that are throttled."""
MOVES = "moves"
BROKERS = "brokers"


class TopicFile(JsonFile):
    """A file of kafka-reassign-partitions with topics: {"topics": [{"topic": "a"}]}."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        try:
            self.topics = [str(each["topic"]) for each in self.data["topics"]]
        except (KeyError, TypeError):
            form = '{"topics": [{"topic": "a"}]}'
            raise ArgumentTypeError(f"{self.name} is not {form}") from None


class Throttle:
    """A number of bytes a second, or none."""

    def __init__(self, text: str) -> None:
        self.bytes = None if text == "none" else ByteCount(text).bytes
        if self.bytes == 0:
            raise ArgumentTypeError("a throttle of 0 would stop all copies")


PLAN = Argument(
    "PLAN", "The file with the plan; - is standard input.", type=JsonFile, completes="files"
)
THROTTLE = Option(
    ("--throttle",),
    "Bytes a second that each broker sends, and receives, for the copies.",
    "RATE",
    type=Throttle,
)
KEEP_THROTTLES = Option(("--keep-throttles",), "Leave the throttles of brokers and topics alone.")
SHOW = Option(
    ("--show",), f"Show only the {MOVES}, or the {BROKERS}.", "TABLE", choices=(MOVES, BROKERS)
)


class PlanReassignment(AdminCommand):
    """Plan how to distribute replicas and preferred leaders evenly. Nothing is changed.

    As few replicas move as possible, racks keep what they have, and new replicas fit on the disks.
    With --json, the output is a file for `aiokclient reassign start`.
    """

    verb = "plan"
    arguments = (Argument("TOPIC", "Names of topics, all without any.", "*", completes="topics"),)
    options = (
        Option(
            ("--brokers",),
            "The brokers that may have replicas, by default those that run.",
            "ID[,...]",
            type=Numbers,
            completes="brokers",
        ),
        Option(
            ("--from-file",),
            "A JSON file with the topics, as for kafka-reassign-partitions.",
            "FILE",
            type=TopicFile,
            completes="files",
        ),
        Option(("--ignore-racks",), "Let replicas of a partition be in fewer racks than before."),
        Option(("--out",), "Write the plan to this file.", "FILE", completes="files"),
        SHOW,
    )

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return the plan, with tables of its moves and of the brokers."""
        if given.topic and given.from_file:
            raise WrongUseError("Give topics, or --from-file.")
        topics = given.from_file.topics if given.from_file else given.topic or None
        brokers = given.brokers.values if given.brokers else None
        plan = await admin.rebalance_plan(topics, brokers=brokers, ignore_racks=given.ignore_racks)
        if given.out is not None:
            write_plan(given.out, plan)
        return plan_result(plan, given)


class StartReassignment(AdminCommand):
    """Move replicas as a plan says.

    The command ends when the controller has begun. `aiokclient reassign status PLAN` shows the
    progress, and ends the throttle. With --wait, the command ends when all replicas have been
    moved; if it fails or is interrupted before, what is not complete is moved back.
    """

    verb = "start"
    changes = True
    arguments = (PLAN,)
    options = (
        THROTTLE,
        Option(
            ("--log-dir-throttle",),
            "Bytes a second that each broker copies between its own log directories.",
            "RATE",
            type=Throttle,
        ),
        KEEP_THROTTLES,
        Option(("--same-factor",), "Refuse a plan that changes the number of replicas."),
        Option(("--wait",), "Wait until all replicas have been moved."),
        SHOW,
    )

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return the plan, with the replicas before and after."""
        plan = read_plan(given.plan)
        rates = (given.throttle, given.log_dir_throttle)
        if given.keep_throttles and any(rates):
            raise WrongUseError("--keep-throttles excludes --throttle and --log-dir-throttle.")
        plan = await add_before(admin, plan)
        if given.same_factor:
            refuse_other_factor(plan)
        if not given.dry_run:
            if given.log_dir_throttle is not None:
                await throttle_log_dirs(admin, plan, given.log_dir_throttle.bytes)
            lines = ProgressLines() if given.wait else None
            applied = admin.apply_plan(
                plan,
                throttle=given.throttle and given.throttle.bytes,
                wait=given.wait,
                on_progress=lines,
            )
            await say_what_was_undone(applied, given, lines)
        return plan_result(plan, given, dry_run_notes(given) or following_notes(plan, given))


class ListReassignments(AdminCommand):
    """List the partitions whose replicas are being moved."""

    verb = "list"
    accepts_controllers = True

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for each partition."""
        moving = await admin.list_partition_reassignments()
        rows = [moving_row(tp, each) for tp, each in sorted(moving.items())]
        return rows_result(["topic", "partition", "replicas", "adding", "removing", "target"], rows)


class DescribeReassignment(AdminCommand):
    """Show how far a plan is, or without a plan, all partitions that are being moved.

    If the plan is complete and nothing else is being moved, the throttles of reassignments are
    removed, unless --keep-throttles is given.
    """

    verb = "status"
    watches = True
    arguments = (PLAN._replace(repeats="?"),)
    options = (KEEP_THROTTLES,)

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return the progress, with a row for each partition."""
        if given.plan is None:
            return await ListReassignments().ask(admin, given)
        plan = read_plan(given.plan)
        progress = await admin.describe_plan_progress(plan)
        notes = [progress_text(progress)]
        if progress.is_complete and not given.keep_throttles:
            notes += await end_throttles(admin, {tp.topic for tp in plan.moves})
        rows = list(progress_rows(plan, progress))
        columns = ["topic", "partition", "state", "before", "after", "adding", "removing"]
        data = {**as_json(progress), "is_complete": progress.is_complete, "partitions": rows}
        return Result(data, [Table(columns, rows)], notes=notes)


class CancelReassignment(AdminCommand):
    """Stop the moves of a plan, or without a plan, all moves. What has been moved stays there.

    The replicas get their former order if the plan names it. The throttles are removed as well.
    """

    verb = "cancel"
    changes = True
    accepts_controllers = True
    arguments = (PLAN._replace(repeats="?"),)
    options = (KEEP_THROTTLES,)

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for each partition whose move was stopped."""
        plan = read_plan(given.plan) if given.plan is not None else None
        moves = plan.moves if plan is not None else None
        moving = await admin.list_partition_reassignments(moves)
        if moves is not None:
            moving = {tp: each for tp, each in moving.items() if each.target == moves[tp].after}
        failures: Mapping[TopicPartition, Exception] = {}
        notes = dry_run_notes(given)
        # Controllers know no options of brokers.
        keeps_throttles = given.keep_throttles or given.bootstrap_controller is not None
        if not given.dry_run:
            if plan is not None and not keeps_throttles:
                # The throttle is also on the brokers from which replicas are copied.
                plan = await add_before(admin, plan)
                failures = (await admin.cancel_plan(plan)).errors
            else:
                failures = await cancel_moves(admin, moving, plan)
            if plan is None and not keeps_throttles:
                notes += await end_throttles(admin)
        if not moving:
            notes.insert(0, "Nothing is being moved.")
        rows = [moving_row(tp, each) for tp, each in sorted(moving.items()) if tp not in failures]
        columns = ["topic", "partition", "replicas", "adding", "removing"]
        return rows_result(columns, rows, named_failures(failures), notes)


class ThrottleReassignments(AdminCommand):
    """Limit the bytes a second that each broker copies for the moves that are in progress.

    With `none`, the limits are removed from all brokers and topics.
    """

    verb = "throttle"
    changes = True
    arguments = (
        Argument("RATE", "Bytes a second, such as 50MB, or none to remove it.", type=Throttle),
    )

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for each broker and topic whose options were changed."""
        rate = given.rate.bytes
        if given.dry_run:
            moving = await admin.list_partition_reassignments()
            brokers = sorted({broker for each in moving.values() for broker in each.replicas})
            if rate is None:
                brokers = sorted(await find_throttled(admin))
            rows: list[Row] = [
                {"type": "broker", "name": str(each), "throttle": rate} for each in brokers
            ]
            return rows_result(["type", "name", "throttle"], rows, notes=dry_run_notes(given))
        changed = await admin.throttle_reassignments(rate)
        rows = [throttled_row(each, rate) for each in changed.succeeded]
        failures = {str(each): error for each, error in changed.errors.items()}
        return rows_result(["type", "name", "throttle"], rows, failures)


async def say_what_was_undone(
    applied: Awaitable[T], given: Namespace, lines: ProgressLines | None
) -> T:
    """Wait for a call that moves replicas, and say what it leaves if it ends early."""
    from asyncio import CancelledError

    from aiokclient.errors import KafkaError

    try:
        return await applied
    except (CancelledError, KafkaError) as error:
        notes = list(getattr(error, "__notes__", ()))
        for note in notes:
            write_error(note)
        if not notes and lines is not None:
            undone = f"{lines.done}, and what was not complete was moved back."
            if isinstance(error, CancelledError):
                given.left = undone
            elif lines.has_begun:
                write_error(undone)
        raise


def read_plan(file: JsonFile) -> ReassignmentPlan:
    """Return the plan of a file. Raises WrongUseError if it has none."""
    from aiokclient.admin import ReassignmentPlan
    from aiokclient.errors import KafkaError

    try:
        return ReassignmentPlan.from_json(file.text)
    except KafkaError as error:
        raise WrongUseError(f"{file.name}: {error}") from None


def write_plan(name: str, plan: ReassignmentPlan) -> None:
    """Write a plan to a file. Raises WrongUseError if that is not possible."""
    try:
        Path(name).write_text(f"{plan.to_json()}\n", encoding="utf-8")
    except OSError as error:
        raise WrongUseError(f"{name} cannot be written: {error.strerror}.") from None


async def add_before(admin: Admin, plan: ReassignmentPlan) -> ReassignmentPlan:
    """Return the plan with the replicas before each move, if a file of Kafka's tool lacks them."""
    from dataclasses import replace

    lacking = {tp for tp, move in plan.moves.items() if move.before is None}
    named = [TopicPartitions(f"{tp.topic}:{tp.partition}") for tp in lacking]
    partitions, failures = await find_partitions(admin, named)
    for error in failures.values():
        raise error
    # The cluster lists those that are being added as replicas already.
    moving = await admin.list_partition_reassignments(lacking)
    moves = dict(plan.moves)
    for tp in lacking:
        adding = moving[tp].adding if tp in moving else ()
        before = tuple(each for each in partitions[tp].replicas if each not in adding)
        moves[tp] = replace(moves[tp], before=before)
    return replace(plan, moves=moves)


def refuse_other_factor(plan: ReassignmentPlan) -> None:
    """Raise InvalidReplicationFactorError if a move changes the number of replicas."""
    from aiokclient.errors import InvalidReplicationFactorError

    for tp, move in plan.moves.items():
        before = move.before or ()
        if len(before) != len(move.after):
            raise InvalidReplicationFactorError(
                f"The plan changes the number of replicas of {tp} from "
                f"{len(before)} to {len(move.after)}. Nothing was changed."
            )


async def throttle_log_dirs(admin: Admin, plan: ReassignmentPlan, rate: int | None) -> None:
    """Limit the copies between the directories of each broker that has replicas of the plan."""
    from aiokclient import ConfigResource

    brokers = {broker for move in plan.moves.values() for broker in move.after}
    changed = await admin.alter_configs(
        {ConfigResource.broker(each): {LOG_DIR_RATE: rate} for each in sorted(brokers)}, check=False
    )
    changed.raise_for_errors()


async def find_throttled(admin: Admin) -> list[int]:
    """Return the brokers that have a throttle of reassignments."""
    from aiokclient import ConfigResource
    from aiokclient.admin import ConfigSource

    brokers = [each.node_id for each in (await admin.describe_cluster()).brokers]
    described = await admin.describe_configs(
        {ConfigResource.broker(each): RATES for each in brokers}
    )
    return [
        int(resource.name)
        for resource, entries in described.raise_for_errors().items()
        if any(each.source is ConfigSource.DYNAMIC_BROKER for each in entries.values())
    ]


async def is_any_throttled(admin: Admin, topics: Iterable[str]) -> bool:
    """Return whether a topic names replicas that are throttled. It may have been deleted."""
    from aiokclient import ConfigResource
    from aiokclient.admin import ConfigSource
    from aiokclient.errors import UnknownTopicOrPartitionError

    described = await admin.describe_configs({ConfigResource.topic(each): LISTS for each in topics})
    for error in described.errors.values():
        if not isinstance(error, UnknownTopicOrPartitionError):
            raise error
    return any(
        each.source is ConfigSource.TOPIC
        for entries in described.succeeded.values()
        for each in entries.values()
    )


async def end_throttles(admin: Admin, topics: Iterable[str] = ()) -> list[str]:
    """Remove the throttles if nothing is being moved, and return a note if there were some.

    The topics of a plan may have some, even if the brokers do not have theirs any more.
    """
    from aiokclient import ConfigResource

    throttled = await find_throttled(admin)
    if not throttled and not await is_any_throttled(admin, topics):
        return []
    if await admin.list_partition_reassignments():
        return []
    (await admin.throttle_reassignments(None)).raise_for_errors()
    changes = {ConfigResource.broker(each): {LOG_DIR_RATE: None} for each in throttled}
    (await admin.alter_configs(changes, check=False)).raise_for_errors()
    return ["The throttles of reassignments were removed."]


async def cancel_moves(
    admin: Admin,
    moving: Mapping[TopicPartition, PartitionReassignment],
    plan: ReassignmentPlan | None,
) -> dict[TopicPartition, Exception]:
    """Cancel the moves of partitions, and return the errors.

    A cancellation does not restore the order of the replicas. Another reassignment does.
    """
    cancelled = await admin.alter_partition_reassignments(dict.fromkeys(moving))
    moves = plan.moves if plan is not None else {}
    former = {
        tp: before
        for tp in cancelled.succeeded
        if tp in moves and (before := moves[tp].before) is not None
    }
    restored = await admin.alter_partition_reassignments(former)
    return {**cancelled.errors, **restored.errors}


def plan_result(plan: ReassignmentPlan, given: Namespace, notes: Sequence[str] = ()) -> Result:
    """Return a plan as a result: its file as the document, and tables of moves and brokers."""
    moves = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "before": move.before,
            "after": move.after,
            "size": move.size,
            "bytes_to_copy": move.bytes_to_copy,
        }
        for tp, move in sorted(plan.moves.items())
    ]
    brokers: list[Row] = []
    for broker, after in sorted(plan.loads_after.items()):
        row: dict[str, Any] = {"broker": broker}
        before = as_json(plan.loads_before.get(broker)) or {}
        for name, value in as_json(after).items():
            row |= {f"{name}_before": before.get(name), f"{name}_after": value}
        brokers.append(row)
    names = ("replica_count", "leader_count", "size")
    columns = ["broker", *(f"{name}_{when}" for name in names for when in ("before", "after"))]
    move_columns = ["topic", "partition", "before", "after", "size", "bytes_to_copy"]
    tables = {MOVES: Table(move_columns, moves)}
    if brokers:
        tables[BROKERS] = Table(columns, brokers)
    if given.show is not None:
        tables = {given.show: tables.get(given.show, Table(columns, []))}
    return Result(json.loads(plan.to_json()), list(tables.values()), notes=notes)


def following_notes(plan: ReassignmentPlan, given: Namespace) -> list[str]:
    """Return the note of how to follow moves that have begun, if the command does not wait."""
    if given.wait or not plan.moves or given.plan.name == STANDARD_INPUT:
        return []
    return [
        f"The moves have begun. '{NAME} reassign status {given.plan.name}' shows how far they are, "
        "and removes the throttle when all is complete."
    ]


def moving_row(tp: TopicPartition, moving: PartitionReassignment) -> Row:
    """Return the row of a partition whose replicas are being moved."""
    return {**as_json(tp), **as_json(moving), "target": moving.target}


def progress_rows(plan: ReassignmentPlan, progress: ReassignmentProgress) -> Iterable[Row]:
    """Yield a row for each partition of a plan."""
    for tp, move in sorted(plan.moves.items()):
        now = progress.moving.get(tp)
        is_complete = tp in progress.complete
        yield {
            **as_json(tp),
            "state": "complete" if is_complete else "stopped" if now is None else "moving",
            "before": move.before,
            "after": move.after,
            "adding": now.adding if now is not None else (),
            "removing": now.removing if now is not None else (),
        }


def progress_text(progress: ReassignmentProgress) -> str:
    """Return the progress of a plan in one sentence."""
    done = len(progress.complete)
    total = done + len(progress.moving) + len(progress.stopped)
    # A file of Kafka's tool does not have the sizes of replicas.
    of_all = f" of {named_bytes(progress.total_bytes)}" if progress.total_bytes else ""
    count = len(progress.stopped)
    stopped = f" {count} {'is' if count == 1 else 'are'} not being moved." if count else ""
    copied = f"{named_bytes(progress.copied_bytes)}{of_all} were copied."
    return f"{done} of {total} partitions have been moved, and {copied}{stopped}"


class ProgressLines:
    """The progress of a plan on standard error: a line whenever it has changed."""

    def __init__(self) -> None:
        self._text = ""
        self.done = "Nothing has been moved"
        """The number of moved partitions, as the beginning of a sentence."""
        self.has_begun = False

    def __call__(self, progress: ReassignmentProgress) -> None:
        """Write the progress, if it is not that of the last call."""
        text = progress_text(progress)
        self.done, self.has_begun = text.partition(", and ")[0], True
        if text != self._text:
            self._text = text
            write_error(text)


def throttled_row(resource: ConfigResource, rate: int | None) -> Row:
    """Return the row of a broker or a topic whose options were changed."""
    return {"type": as_json(resource.type), "name": resource.name, "throttle": rate}


def named_failures(errors: Mapping[TopicPartition, Exception]) -> dict[str, Exception]:
    """Return the errors of partitions, by their names."""
    return {str(tp): error for tp, error in errors.items()}


COMMANDS: Sequence[type[Command]] = (
    PlanReassignment,
    StartReassignment,
    ListReassignments,
    DescribeReassignment,
    CancelReassignment,
    ThrottleReassignments,
)
