"""The commands of topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aiokclient.cli.asking import confirm
from aiokclient.cli.exit_codes import ExitCode, NotFoundError, exit_code_of
from aiokclient.cli.grammar import (
    AdminCommand,
    Argument,
    Command,
    Option,
    WrongUseError,
    value_error,
)
from aiokclient.cli.output import Result, Row, Table, as_json, rows_result
from aiokclient.cli.values import JsonFile, Place, PlaceType, Setting, TopicPartitions

if TYPE_CHECKING:
    from argparse import Namespace
    from uuid import UUID

    from aiokclient import Admin, Client, TopicPartition
    from aiokclient.admin import (
        ConfigEntry,
        PartitionDescription,
        PartitionReassignment,
        TopicDescription,
    )

    Moves = Mapping[TopicPartition, PartitionReassignment]

NAMES = Argument(
    "NAME", "Names of topics; - reads them from standard input.", "+", completes="topics"
)
INTERNAL = Option(("--internal",), "Include Kafka's internal topics.")
REGEX = Option(("--regex",), "The names are regular expressions that match whole names.")
IF_EXISTS = Option(("--if-exists",), "Ignore topics that do not exist.")
ASSIGNED = "1:2,2:3"
ONLY = ("under-replicated", "under-min-isr", "at-min-isr", "offline", "overrides")
HIGH_WATERMARK = -1
"""The offset that stands for the end of a partition in a file of kafka-delete-records."""
PAGE = 2000
"""Partitions in one response to a description, the limit of brokers by default."""
KNOWN_WAIT_S = 5.0
"""Seconds within which all brokers should know a new topic. The command ends then anyway."""
KNOWN_POLL_S = 0.05


class Assignment:
    """Replicas of each partition, as 1:2,2:3: brokers with colons, partitions with commas."""

    def __init__(self, text: str) -> None:
        try:
            self.replicas = [[int(broker) for broker in p.split(":")] for p in text.split(",")]
        except ValueError:
            raise value_error(
                f"{text!r} is not the brokers of each partition, such as 1:2,2:3"
            ) from None


class ListTopics(AdminCommand):
    """List the names of topics."""

    verb = "list"
    arguments = (Argument("NAME", "Names of topics, all without any.", "*", completes="topics"),)
    options = (INTERNAL, REGEX)

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for each topic."""
        # A topic that is named is meant, whether it is internal or not. A pattern is less clear.
        listed = await admin.list_topics(internal=given.internal or is_named(given))
        chosen, failures = choose_names(listed, given.name, given.regex)
        return rows_result(["name"], [as_json(listed[name]) for name in chosen], failures)


class DescribeTopics(AdminCommand):
    """Describe topics, their partitions, and their configs that are not defaults.

    With --only, there are only the partitions that are under-replicated (fewer replicas are in
    sync than there are, without those that a reassignment adds), under-min-isr (fewer are in sync
    than min.insync.replicas), at-min-isr, or offline (without a leader), or only the topics with
    overrides of configs.
    """

    verb = "describe"
    watches = True
    arguments = (
        Argument("NAME", "Names, or id:TOPIC_ID; all topics without any.", "*", completes="topics"),
    )
    options = (
        INTERNAL,
        REGEX,
        Option(("--only",), f"Only what is {', '.join(ONLY)}.", "STATE", choices=ONLY),
        IF_EXISTS,
    )

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return the topics, a table of them, and one of their partitions."""
        from aiokclient import TopicPartition

        described, failures = await describe_chosen(admin, given)
        configs = await read_configs(admin, [each.name for each in described])
        moves = await read_moves(admin)
        topics: list[Row] = []
        partitions: list[Row] = []
        for topic in described:
            values, overrides = configs[topic.name]
            found = [
                (each, moves.get(TopicPartition(topic.name, each.index)))
                for each in topic.partitions
            ]
            rows = [
                partition_row(topic.name, each, move)
                for each, move in found
                if is_wanted(each, given.only, values, move)
            ]
            if (given.only and not rows) or (given.only == "overrides" and not overrides):
                continue
            partitions += rows
            topics.append(
                {
                    "name": topic.name,
                    "topic_id": as_json(topic.topic_id),
                    "internal": topic.internal,
                    "partitions": [{k: v for k, v in row.items() if k != "topic"} for row in rows],
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
        if given.only:
            tables = tables[:1] if given.only == "overrides" else tables[1:]
        return Result(topics, tables, failures)


class CreateTopics(AdminCommand):
    """Create topics. What is not given has the default of the cluster.

    When the command ends, all brokers know the topics, so that the next command finds them.
    --config NAME=VALUE is a config of the topics; --config FILE is a properties file of the client.
    """

    verb = "create"
    changes = True
    asks_brokers = True
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
        Option(("--assign",), "The brokers of each partition.", ASSIGNED, type=Assignment),
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
        if created.succeeded and not given.dry_run:
            given.done += [f"creation of {name}" for name in created.succeeded]
            await wait_for_topics(given.client, admin, created.succeeded)
        failures = {
            name: error
            for name, error in created.errors.items()
            if not (given.if_not_exists and error.code == TopicExistsError.code)
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
    options = (REGEX, IF_EXISTS)

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for each topic that was deleted."""
        listed = await admin.list_topics(internal=is_named(given))
        chosen, failures = choose_names(listed, given.name, given.regex)
        if chosen:
            confirm(given, f"Delete {count_of(chosen, 'topic')} and all records?")
        rows: list[Row] = [{"name": name} for name in chosen]
        if chosen and not given.dry_run:
            deleted = await admin.delete_topics(chosen)
            failures |= {str(name): error for name, error in deleted.errors.items()}
            rows = [{"name": name} for name in deleted.succeeded]
        kept = without_absent(failures) if given.if_exists else failures
        return rows_result(["name"], rows, kept, dry_run_notes(given))


class SetPartitions(AdminCommand):
    """Add partitions to topics until each one has a total number.

    Records with a key may go to another partition afterwards than before.
    """

    verb = "set-partitions"
    changes = True
    arguments = (
        Argument("NAME", "The name of the topic.", completes="topics"),
        Argument("TOTAL", "The number of partitions that the topic will have.", type=int),
    )
    options = (
        Option(("--assign",), "The brokers of each new partition.", ASSIGNED, type=Assignment),
        Option(("--regex",), "The name is a regular expression that matches whole names."),
        IF_EXISTS,
    )

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return the number of partitions of each topic, before and after."""
        from aiokclient import NewPartitions

        listed = await admin.list_topics() if given.regex else [given.name]
        chosen, failures = choose_names(listed, [given.name], given.regex)
        described = await admin.describe_topics(chosen)
        before = {topic.name: len(topic.partitions) for topic in described.succeeded.values()}
        replicas = given.assign.replicas if given.assign else None
        totals = {name: NewPartitions(given.total, replicas) for name in before}
        changed = await admin.create_partitions(totals, validate_only=given.dry_run)
        for results in (described, changed):
            failures |= {str(name): error for name, error in results.errors.items()}
        rows = [
            {"name": name, "before": before[name], "after": given.total}
            for name in changed.succeeded
        ]
        kept = without_absent(failures) if given.if_exists else failures
        return rows_result(["name", "before", "after"], rows, kept, dry_run_notes(given))


class TrimTopics(AdminCommand):
    """Delete the oldest records of topics, those before an offset, a time, or the end.

    --before is an offset, a time, end, or -N for all but the last N records of each partition. A
    file has the offset of each partition, in the form of kafka-delete-records:
    {"partitions": [{"topic": "orders", "partition": 0, "offset": 12}], "version": 1}
    """

    verb = "trim"
    changes = True
    destroys = True
    arguments = (
        Argument(
            "TOPIC", "Topics, or TOPIC:PARTITION[,...].", "*", TopicPartitions, completes="topics"
        ),
    )
    options = (
        Option(("--before",), "What is kept begins here.", "OFFSET|TIME|end", type=Place),
        Option(
            ("--from-file",),
            "A JSON file with the offset of each partition; - is standard input.",
            "FILE",
            type=JsonFile,
            completes="files",
        ),
        REGEX,
        IF_EXISTS,
    )

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return the first offset of each partition, before and after."""
        chosen, wanted, failures = await self._choose_partitions(admin, given)
        bounds = await self._find_bounds(admin, chosen, failures)
        if given.before:
            wanted = await find_places(admin, given.before, bounds, failures)
        plan: dict[TopicPartition, int] = {}
        for tp, (start, end) in bounds.items():
            offset = wanted.get(tp, start)
            offset = end if offset == HIGH_WATERMARK else offset
            if offset > end:
                failures[str(tp)] = beyond_end(offset, end)
            elif offset > start:
                plan[tp] = offset
        if plan:
            count = sum(offset - bounds[tp][0] for tp, offset in plan.items())
            tps = count_of([*plan], "partition")
            confirm(given, f"Delete the records at {count} offsets of {tps}?")
        after = dict(plan)
        if plan and not given.dry_run:
            trimmed = await admin.delete_records(plan)
            failures |= {str(tp): error for tp, error in trimmed.errors.items()}
            after = trimmed.succeeded
        rows = [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "before": start,
                "after": after.get(tp, start),
            }
            for tp, (start, _) in sorted(bounds.items())
            if str(tp) not in failures
        ]
        kept = without_absent(failures) if given.if_exists else failures
        columns = ["topic", "partition", "before", "after"]
        return rows_result(columns, rows, kept, dry_run_notes(given))

    async def _choose_partitions(
        self, admin: Admin, given: Namespace
    ) -> tuple[list[TopicPartition], dict[TopicPartition, int], dict[str, Exception]]:
        """Return the partitions to trim, the offsets that a file has, and the other errors."""
        if given.from_file:
            if given.topic or given.before:
                raise WrongUseError("Give either --from-file, or topics and --before.")
            typed = offsets_in(given.from_file)
            chosen, failures = await choose_partitions(admin, [*map(as_typed, typed)], False)
            return chosen, {tp: typed[tp] for tp in chosen}, failures
        if not given.topic or not given.before:
            raise WrongUseError("Name topics, and the first record to keep with --before.")
        if given.before.type in (PlaceType.START, PlaceType.COMMITTED, PlaceType.FIRST):
            raise WrongUseError("--before is an offset, a time, end, or -N for all but the last N.")
        chosen, failures = await choose_partitions(admin, given.topic, given.regex)
        return chosen, {}, failures

    async def _find_bounds(
        self, admin: Admin, tps: Sequence[TopicPartition], failures: dict[str, Exception]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return the first offset and the end of each partition, and add errors to `failures`."""
        from aiokclient.admin import OffsetSpec

        starts = await admin.list_offsets(dict.fromkeys(tps, OffsetSpec.EARLIEST))
        ends = await admin.list_offsets(dict.fromkeys(tps, OffsetSpec.LATEST))
        for results in (starts, ends):
            failures |= {str(tp): error for tp, error in results.errors.items()}
        return {
            tp: (start.offset, end.offset)
            for tp, start in starts.succeeded.items()
            if start is not None and (end := ends.succeeded.get(tp)) is not None
        }


class CopyConfig(AdminCommand):
    """Set the configs of a topic to those that are set for another topic.

    Configs that are set for the second topic alone are kept, and removed with --exact.
    """

    verb = "copy-config"
    changes = True
    arguments = (
        Argument("FROM", "The topic whose configs are read.", completes="topics"),
        Argument("TO", "The topic whose configs are set.", completes="topics"),
    )
    options = (Option(("--exact",), "Remove the configs that only the second topic has."),)

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for each config that was changed, with its value before and after."""
        from aiokclient import ConfigResource

        resources = [ConfigResource.topic(name) for name in (getattr(given, "from"), given.to)]
        entries = (await admin.describe_configs(resources)).raise_for_errors()
        source, target = (overrides_in(entries[each]) for each in resources)
        changes = {name: value for name, value in source.items() if target.get(name) != value}
        if given.exact:
            changes |= {name: None for name in target if name not in source}
        if changes:
            altered = await admin.alter_configs(
                {resources[1]: changes}, validate_only=given.dry_run
            )
            altered.raise_for_errors()
        rows = [
            {"name": name, "before": target.get(name), "after": value}
            for name, value in changes.items()
        ]
        return rows_result(["name", "before", "after"], rows, notes=dry_run_notes(given))


async def wait_for_topics(client: Client, admin: Admin, names: Iterable[str]) -> None:
    """Wait until all brokers know new topics and their leaders.

    The controller creates topics, and each broker learns of them a moment later. A broker that does
    not answer, or may not tell this user, is not waited for.
    """
    import asyncio
    import contextlib

    from aiokclient import Broker
    from aiokclient.errors import KafkaError, LeaderNotAvailableError, UnknownTopicOrPartitionError
    from aiokclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

    topics = [MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    not_yet = {UnknownTopicOrPartitionError.code, LeaderNotAvailableError.code}

    async def wait_for_broker(node_id: int) -> None:
        with contextlib.suppress(KafkaError):
            while True:
                response = await client.request(request, to=Broker(node_id))
                codes = {topic.error_code for topic in response.topics}
                codes |= {each.error_code for topic in response.topics for each in topic.partitions}
                if not_yet.isdisjoint(codes):
                    return
                await asyncio.sleep(KNOWN_POLL_S)

    with contextlib.suppress(TimeoutError, KafkaError):
        async with asyncio.timeout(KNOWN_WAIT_S):
            brokers = (await admin.describe_cluster()).brokers
            await asyncio.gather(*(wait_for_broker(each.node_id) for each in brokers))


def is_named(given: Namespace) -> bool:
    """Return whether names of topics were typed, and not patterns."""
    return bool(given.name) and not given.regex


def choose_names(
    known: Iterable[str], typed: Sequence[str], are_patterns: bool, noun: str = "topic"
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
                f"No {noun} has a name that matches."
                if are_patterns
                else f"There is no such {noun}, or the user may not describe it."
            )
    return list(chosen), failures


def matches(pattern: str, name: str) -> bool:
    """Return whether a regular expression matches a whole name. Raises WrongUseError."""
    import re

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
        listed = await admin.list_topics(internal=given.internal or is_named(given))
        names, failures = choose_names(listed, typed, given.regex)
        chosen += names
    # Only pages have the eligible leader replicas.
    described = await admin.describe_topics(chosen, partitions_per_response=PAGE)
    failures |= {str(name): error for name, error in described.errors.items()}
    topics = sorted(described.succeeded.values(), key=lambda topic: topic.name)
    return topics, without_absent(failures) if given.if_exists else failures


def as_topic_id(text: str) -> UUID:
    """Return the id of `id:TEXT`, in Kafka's notation or that of UUIDs. Raises WrongUseError."""
    from base64 import urlsafe_b64decode
    from uuid import UUID

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

    described = await admin.describe_configs([ConfigResource.topic(name) for name in names])
    found: dict[str, tuple[dict[str, str | None], dict[str, str | None]]] = {
        name: ({}, {}) for name in names
    }
    for resource, entries in described.succeeded.items():
        values = {each.name: each.value for each in entries.values()}
        found[resource.name] = (values, overrides_in(entries))
    _ = described.errors  # They have been looked at: the rest of the description is useful.
    return found


def overrides_in(entries: Mapping[str, ConfigEntry]) -> dict[str, str | None]:
    """Return the configs that are set for a topic itself, by name."""
    from aiokclient.admin import ConfigSource

    own = ConfigSource.TOPIC
    return {name: each.value for name, each in sorted(entries.items()) if each.source is own}


async def read_moves(admin: Admin) -> Moves:
    """Return the partitions whose replicas are being moved.

    There are none if the user may not list them, or if the brokers are too old to tell: the rest of
    a description is useful without them.
    """
    from aiokclient.errors import ClusterAuthorizationError, KafkaError, UnsupportedVersionError

    try:
        return await admin.list_partition_reassignments()
    except KafkaError as error:
        if error.code in (ClusterAuthorizationError.code, UnsupportedVersionError.code):
            return {}
        raise


def partition_row(
    topic: str, partition: PartitionDescription, move: PartitionReassignment | None
) -> Row:
    """Return a partition as a row, with the brokers that a reassignment adds and removes."""
    return {
        "topic": topic,
        **as_json(partition),
        "adding": list(move.adding) if move else [],
        "removing": list(move.removing) if move else [],
    }


def is_wanted(
    partition: PartitionDescription,
    only: str | None,
    configs: Mapping[str, str | None],
    move: PartitionReassignment | None = None,
) -> bool:
    """Return whether a partition is in the state that --only names."""
    in_sync = len(partition.isr)
    least = int(configs.get("min.insync.replicas") or 1)
    # The replicas that a reassignment adds are not in sync until it is complete.
    expected = len(partition.replicas) - (len(move.adding) if move else 0)
    return {
        None: True,
        "overrides": True,
        "under-replicated": in_sync < expected,
        "under-min-isr": in_sync < least,
        "at-min-isr": in_sync == least,
        "offline": partition.leader is None,
    }[only]


async def choose_partitions(
    admin: Admin, typed: Sequence[TopicPartitions], are_patterns: bool, internal: bool = False
) -> tuple[list[TopicPartition], dict[str, Exception]]:
    """Return the partitions that were typed, sorted, and an error for each that does not exist.

    Without any, return those of all topics. Patterns match names of topics.
    """
    from aiokclient import TopicPartition

    names = [each.topic for each in typed]
    listed = await admin.list_topics(internal=internal or bool(typed and not are_patterns))
    chosen, failures = choose_names(listed, names, are_patterns)
    described = await admin.describe_topics(chosen, partitions_per_response=PAGE)
    failures |= {str(name): error for name, error in described.errors.items()}
    found: dict[TopicPartition, None] = {}
    for topic in described.succeeded.values():
        count = len(topic.partitions)
        matching = [
            each
            for each in typed
            if (matches(each.topic, topic.name) if are_patterns else each.topic == topic.name)
        ]
        for each in matching or [TopicPartitions(topic.name)]:
            for partition in each.select(count):
                tp = TopicPartition(topic.name, partition)
                if 0 <= partition < count:
                    found[tp] = None
                else:
                    failures[str(tp)] = NotFoundError(f"The topic has {count} partitions.")
    return sorted(found), failures


def offsets_in(file: JsonFile) -> dict[TopicPartition, int]:
    """Return the offsets in a file of kafka-delete-records. Raises WrongUseError."""
    from aiokclient import TopicPartition

    try:
        found = {
            TopicPartition(str(each["topic"]), int(each["partition"])): int(each["offset"])
            for each in file.data["partitions"]
        }
    except (ValueError, KeyError, TypeError):
        raise WrongUseError(
            f'{file.name} is not JSON such as {{"partitions": [{{"topic": "orders", '
            '"partition": 0, "offset": 12}]}.'
        ) from None
    for tp, offset in found.items():
        if offset < HIGH_WATERMARK:
            raise WrongUseError(f"{file.name}: {offset}, the offset of {tp}, is negative.")
    return found


def as_typed(tp: TopicPartition) -> TopicPartitions:
    """Return a partition as if it had been typed."""
    return TopicPartitions(f"{tp.topic}:{tp.partition}")


async def find_places(
    admin: Admin,
    place: Place,
    bounds: Mapping[TopicPartition, tuple[int, int]],
    failures: dict[str, Exception],
) -> dict[TopicPartition, int]:
    """Return the offset of a place in each partition, and add errors to `failures`.

    `bounds` has the first offset and the end of each partition. A partition whose records are all
    older than a time has its end.
    """
    if place.type is PlaceType.TIME:
        listed = await admin.list_offsets(dict.fromkeys(bounds, place.value))
        failures |= {str(tp): error for tp, error in listed.errors.items()}
        return {
            tp: bounds[tp][1] if each is None else each.offset
            for tp, each in listed.succeeded.items()
        }
    if place.type is PlaceType.OFFSET:
        return dict.fromkeys(bounds, place.value)
    last = place.value if place.type is PlaceType.LAST else 0
    return {tp: max(end - last, start) for tp, (start, end) in bounds.items()}


def beyond_end(offset: int, end: int) -> Exception:
    """Return the error for an offset after the end of a partition."""
    from aiokclient.errors import OffsetOutOfRangeError

    error = OffsetOutOfRangeError()
    error.what = f"Offset {offset} is after {end}, the end of the partition."
    error.hint = "Give end to delete all records."
    return error


def without_absent(failures: Mapping[str, Exception]) -> dict[str, Exception]:
    """Return the failures other than those of things that do not exist."""
    return {key: each for key, each in failures.items() if exit_code_of(each) != ExitCode.NOT_FOUND}


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
    TrimTopics,
    CopyConfig,
)
