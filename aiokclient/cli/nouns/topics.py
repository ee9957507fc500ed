"""The commands of topics."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError, Namespace
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aiokclient.cli.asking import confirm
from aiokclient.cli.exit_codes import NotFoundError
from aiokclient.cli.grammar import (
    AdminCommand,
    Argument,
    Command,
    Option,
    WrongUseError,
)
from aiokclient.cli.output import Result, Row, Table, as_json, rows_result
from aiokclient.cli.values import Setting

if TYPE_CHECKING:
    from aiokclient import Admin
    from aiokclient.admin import PartitionDescription, TopicDescription

NAMES = Argument(
    "NAME", "Names of topics; - reads them from standard input.", "+", completes="topics"
)
INTERNAL = Option(("--internal",), "Include Kafka's internal topics.")
REGEX = Option(("--regex",), "The names are regular expressions that match whole names.")
ONLY = ("under-replicated", "under-min-isr", "at-min-isr", "offline", "overrides")


class Assignment:
    """Replicas of each partition, as 1:2,2:3: brokers with colons, partitions with commas."""

    def __init__(self, text: str) -> None:
        try:
            self.replicas = [[int(broker) for broker in p.split(":")] for p in text.split(",")]
        except ValueError:
            raise ArgumentTypeError(
                f"{text!r} is not the brokers of each partition, such as 1:2,2:3"
            ) from None


class ListTopics(AdminCommand):
    """List the names of topics."""

    verb = "list"
    arguments = (Argument("NAME", "Names of topics, all without any.", "*", completes="topics"),)
    options = (INTERNAL, REGEX)

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for each topic."""
        # A topic that is named is meant, whether it is internal or not.
        listed = await admin.list_topics(internal=given.internal or bool(given.name))
        chosen, failures = choose_names(listed, given.name, given.regex)
        return rows_result(["name"], [as_json(listed[name]) for name in chosen], failures)


class DescribeTopics(AdminCommand):
    """Describe topics, their partitions, and their configs that are not defaults.

    With --only, there are only the partitions that are under-replicated (fewer replicas are in
    sync than there are), under-min-isr (fewer are in sync than min.insync.replicas), at-min-isr,
    or offline (without a leader), or only the topics with overrides of configs.
    """

    verb = "describe"
    arguments = (
        Argument("NAME", "Names, or id:TOPIC_ID; all topics without any.", "*", completes="topics"),
    )
    options = (
        INTERNAL,
        REGEX,
        Option(("--only",), f"Only what is {', '.join(ONLY)}.", "STATE", choices=ONLY),
        Option(("--if-exists",), "Ignore topics that do not exist."),
    )

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return the topics, a table of them, and one of their partitions."""
        described, failures = await describe_chosen(admin, given)
        configs = await read_configs(admin, [each.name for each in described])
        topics: list[Row] = []
        partitions: list[Row] = []
        for topic in described:
            values, overrides = configs[topic.name]
            kept = [each for each in topic.partitions if is_wanted(each, given.only, values)]
            if (given.only and not kept) or (given.only == "overrides" and not overrides):
                continue
            rows = [{"topic": topic.name, **as_json(each)} for each in kept]
            partitions += rows
            topics.append(
                {
                    "name": topic.name,
                    "topic_id": as_json(topic.topic_id),
                    "internal": topic.internal,
                    "partitions": [as_json(each) for each in kept],
                    "partition_count": len(topic.partitions),
                    "replication_factor": max(
                        (len(each.replicas) for each in topic.partitions), default=0
                    ),
                    "configs": overrides,
                }
            )
        columns = ["name", "topic_id", "partition_count", "replication_factor", "configs"]
        inner = ["topic", "index", "leader", "leader_epoch", "replicas", "isr", "offline"]
        tables = [Table(columns, topics), Table(inner, partitions)]
        return Result(topics, tables[1:] if given.only else tables, failures)


class CreateTopics(AdminCommand):
    """Create topics. What is not given has the default of the cluster.

    --config NAME=VALUE is a config of the topics; --config FILE is a properties file of the client.
    """

    verb = "create"
    changes = True
    arguments = (Argument("NAME", "Names of topics; - reads them from standard input.", "+"),)
    options = (
        Option(("-p", "--partitions"), "The number of partitions.", "N", type=int),
        Option(("-r", "--replication-factor"), "Replicas of each partition.", "N", type=int),
        Option(
            ("--config",),
            "A config of the topics. Can be repeated.",
            "NAME=VALUE",
            repeated=True,
            completes="topic-configs",
        ),
        Option(("--assign",), "The brokers of each partition.", "1:2,2:3", type=Assignment),
        Option(("--if-not-exists",), "Ignore topics that exist."),
    )

    def run(self, given: Namespace) -> int:
        """Separate the configs of the topics from files of the client, which have no `=`."""
        given.topic_configs = [each for each in given.config if "=" in each]
        files = [each for each in given.config if "=" not in each]
        given.config = [*files, *given.command_config]
        return super().run(given)

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for each topic that was created."""
        from aiokclient import NewTopic
        from aiokclient.errors import TopicExistsError

        configs = {each.name: each.value for each in map(Setting, given.topic_configs)}
        assignments = dict(enumerate(given.assign.replicas)) if given.assign else {}
        topics = [
            NewTopic(name, given.partitions, given.replication_factor, configs, assignments)
            for name in given.name
        ]
        created = await admin.create_topics(topics, validate_only=given.dry_run)
        failures = {
            name: error
            for name, error in created.errors.items()
            if not (given.if_not_exists and isinstance(error, TopicExistsError))
        }
        rows = [as_json(each) for each in created.succeeded.values()]
        columns = ["name", "topic_id", "partitions", "replication_factor"]
        return rows_result(columns, rows, failures, dry_run_notes(given))


class DeleteTopics(AdminCommand):
    """Delete topics and all their records."""

    verb = "delete"
    changes = True
    destroys = True
    arguments = (NAMES,)
    options = (REGEX, Option(("--if-exists",), "Ignore topics that do not exist."))

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for each topic that was deleted."""
        listed = await admin.list_topics(internal=True)
        chosen, failures = choose_names(listed, given.name, given.regex)
        if chosen:
            confirm(given, f"Delete {count_of(chosen, 'topic')} and all records?")
        rows: list[Row] = [{"name": name} for name in chosen]
        if chosen and not given.dry_run:
            deleted = await admin.delete_topics(chosen)
            failures |= {str(name): error for name, error in deleted.errors.items()}
            rows = [{"name": name} for name in deleted.succeeded]
        kept = {} if given.if_exists else failures
        return rows_result(["name"], rows, kept, dry_run_notes(given))


class SetPartitions(AdminCommand):
    """Add partitions to a topic until it has a total number.

    Records with a key may go to another partition afterwards than before.
    """

    verb = "set-partitions"
    changes = True
    arguments = (
        Argument("NAME", "The name of the topic.", completes="topics"),
        Argument("TOTAL", "The number of partitions that the topic will have.", type=int),
    )
    options = (
        Option(("--assign",), "The brokers of each new partition.", "1:2,2:3", type=Assignment),
    )

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return the number of partitions before and after."""
        from aiokclient import NewPartitions

        before = (await admin.describe_topics([given.name])).raise_for_errors()[given.name]
        replicas = given.assign.replicas if given.assign else None
        totals = {given.name: NewPartitions(given.total, replicas)}
        changed = await admin.create_partitions(totals, validate_only=given.dry_run)
        changed.raise_for_errors()
        row = {"name": given.name, "before": len(before.partitions), "after": given.total}
        return rows_result(list(row), [row], notes=dry_run_notes(given))


def choose_names(
    known: Iterable[str], typed: Sequence[str], are_patterns: bool
) -> tuple[list[str], dict[str, Exception]]:
    """Return the names that were typed, or all known ones without any.

    An error stands for each name that is not known, and for each pattern that matches no name.
    Raises WrongUseError for a pattern that is not valid.
    """
    if not typed:
        return sorted(known), {}
    names = sorted(known)
    chosen: dict[str, None] = {}
    failures: dict[str, Exception] = {}
    for each in typed:
        found = [name for name in names if matches(each, name)] if are_patterns else [each]
        found = [name for name in found if name in set(names)]
        chosen.update(dict.fromkeys(found))
        if not found:
            failures[each] = NotFoundError(
                "No topic has a name that matches." if are_patterns else "There is no such topic."
            )
    return list(chosen), failures


def matches(pattern: str, name: str) -> bool:
    """Return whether a regular expression matches a whole name. Raises WrongUseError."""
    try:
        return re.fullmatch(pattern, name) is not None
    except re.error as error:
        raise WrongUseError(f"{pattern!r} is no regular expression: {error}.") from None


async def describe_chosen(
    admin: Admin, given: Namespace
) -> tuple[list[TopicDescription], dict[str, Exception]]:
    """Return the topics that were typed, by name or by id, and the errors of the others."""
    ids = [as_topic_id(each) for each in given.name if each.startswith("id:")]
    typed = [each for each in given.name if not each.startswith("id:")]
    chosen: list[str | UUID] = list(ids)
    failures: dict[str, Exception] = {}
    if typed or not ids:
        listed = await admin.list_topics(internal=given.internal or bool(typed))
        names, failures = choose_names(listed, typed, given.regex)
        chosen += names
    described = await admin.describe_topics(chosen)
    failures |= {str(name): error for name, error in described.errors.items()}
    topics = sorted(described.succeeded.values(), key=lambda topic: topic.name)
    return topics, {} if given.if_exists else failures


def as_topic_id(text: str) -> UUID:
    """Return the id of `id:TEXT`, in Kafka's notation or that of UUIDs. Raises WrongUseError."""
    from base64 import urlsafe_b64decode

    typed = text.removeprefix("id:")
    try:
        if len(typed) == 22:
            return UUID(bytes=urlsafe_b64decode(f"{typed}=="))
        return UUID(typed)
    except ValueError:
        raise WrongUseError(f"{typed!r} is no topic id.") from None


async def read_configs(
    admin: Admin, names: Sequence[str]
) -> dict[str, tuple[dict[str, str | None], dict[str, str | None]]]:
    """Return for each topic all configs, and those that are set for the topic itself.

    Both are empty for a topic whose configs the user may not read.
    """
    from aiokclient import ConfigResource
    from aiokclient.admin import ConfigSource

    described = await admin.describe_configs([ConfigResource.topic(name) for name in names])
    found: dict[str, tuple[dict[str, str | None], dict[str, str | None]]] = {
        name: ({}, {}) for name in names
    }
    for resource, entries in described.succeeded.items():
        values = {each.name: each.value for each in entries.values()}
        own = ConfigSource.TOPIC
        overrides = {each.name: each.value for each in entries.values() if each.source is own}
        found[resource.name] = (values, dict(sorted(overrides.items())))
    _ = described.errors  # They have been looked at: the rest of the description is useful.
    return found


def is_wanted(
    partition: PartitionDescription, only: str | None, configs: Mapping[str, str | None]
) -> bool:
    """Return whether a partition is in the state that --only names."""
    in_sync = len(partition.isr)
    least = int(configs.get("min.insync.replicas") or 1)
    return {
        None: True,
        "overrides": True,
        "under-replicated": in_sync < len(partition.replicas),
        "under-min-isr": in_sync < least,
        "at-min-isr": in_sync == least,
        "offline": partition.leader is None,
    }[only]


def count_of(items: Sequence[Any], noun: str) -> str:
    """Return the items in words: "the topic a", or "3 topics (a, b, c)"."""
    if len(items) == 1:
        return f"the {noun} {items[0]}"
    more = ", ..." if len(items) > 10 else ""
    return f"{len(items)} {noun}s ({', '.join(map(str, items[:10]))}{more})"


def dry_run_notes(given: Namespace) -> list[str]:
    """Return the note of a command that changed nothing."""
    return ["This was a dry run: nothing was changed."] if given.dry_run else []


COMMANDS: Sequence[type[Command]] = (
    ListTopics,
    DescribeTopics,
    CreateTopics,
    DeleteTopics,
    SetPartitions,
)
