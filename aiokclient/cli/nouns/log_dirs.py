"""The commands of the log directories of brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aiokclient.cli.exit_codes import NotFoundError, one_line
from aiokclient.cli.grammar import (
    NO_CHECK,
    AdminCommand,
    Argument,
    Command,
    Option,
    WrongUseError,
    value_error,
)
from aiokclient.cli.nouns.topics import dry_run_notes
from aiokclient.cli.output import Result, Row, Table, as_json, rows_result
from aiokclient.cli.values import Numbers, TopicPartitions

if TYPE_CHECKING:
    from argparse import Namespace

    from aiokclient import Admin
    from aiokclient.admin import LogDirDescription

CORDONED = "cordoned.log.dirs"
"""The option of a broker that has its directories without new replicas (KIP-1066, Kafka 4.3)."""
ALL = "*"


class BrokerPath:
    """A log directory of a broker, as BROKER:PATH."""

    def __init__(self, text: str) -> None:
        broker, _, self.path = text.partition(":")
        if not broker.isdecimal() or not self.path:
            raise value_error(f"{text!r} is not BROKER:PATH, such as 1:/var/lib/kafka")
        self.broker = int(broker)


class Names:
    """Names with commas between them."""

    def __init__(self, text: str) -> None:
        self.values = [each for each in text.split(",") if each]


PATHS = Argument("PATH", "Directories, as BROKER:PATH.", "+", type=BrokerPath)


class DescribeLogDirs(AdminCommand):
    """Describe the log directories of brokers, with their sizes and replicas.

    Sizes are in bytes. The documents have the replicas of each directory, and tables have them
    with --replicas.
    """

    verb = "describe"
    options = (
        Option(("--brokers",), "Only these brokers.", "ID[,...]", Numbers, completes="brokers"),
        Option(("--topics",), "Only replicas of these topics.", "NAME[,...]", Names),
        Option(("--replicas",), "Show a table of the replicas."),
    )

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return the directories, and tables of them and of their replicas."""
        described = await admin.describe_log_dirs(
            given.brokers and given.brokers.values, given.topics and given.topics.values
        )
        directories: list[dict[str, Any]] = [
            directory_row(broker, each)
            for broker, listed in described.succeeded.items()
            for each in listed
        ]
        replicas = [
            {"broker": each["broker"], "path": each["path"], **replica}
            for each in directories
            for replica in each["replicas"]
        ]
        columns = ["broker", "path", "replica_count", "size", "total_bytes", "usable_bytes"]
        columns += ["is_cordoned", "error"]
        inner = ["topic", "partition", "broker", "path", "size", "offset_lag", "is_future"]
        table = Table(inner, replicas) if given.replicas else Table(columns, directories)
        failures = {f"broker {broker}": error for broker, error in described.errors.items()}
        return Result(directories, [table], failures)


class MoveReplicas(AdminCommand):
    """Move replicas to another log directory of their broker.

    The command ends when the broker has begun to copy. `aiokclient log-dirs describe` shows the
    copy as a future replica until it is complete. To cancel a move, name the directory in which
    the replica is.
    """

    verb = "move"
    changes = True
    arguments = (
        Argument("TOPIC", "The partitions, as TOPIC:P[,...].", type=TopicPartitions),
        Argument("PATH", "The directory, as BROKER:PATH.", type=BrokerPath),
    )
    options = (NO_CHECK,)

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for each replica that is moved."""
        from aiokclient.admin import TopicPartitionReplica

        typed, target = given.topic, given.path
        if typed.partitions is None:
            raise WrongUseError(f"Name partitions of {typed.topic}, such as {typed.topic}:0.")
        replicas = [
            TopicPartitionReplica(typed.topic, number, target.broker) for number in typed.partitions
        ]
        described = await admin.describe_replica_log_dirs(replicas)
        before = described.raise_for_errors()
        failures: dict[str, Exception] = {}
        if given.dry_run:
            if not given.no_check:
                listed = await list_directories(admin, target.broker)
                refuse_unknown_directory(listed, target)
            failures = {
                f"{each.topic}-{each.partition}": missing_replica(each.broker_id)
                for each in replicas
                if before[each].path is None
            }
        else:
            moved = await admin.alter_replica_log_dirs(
                dict.fromkeys(replicas, target.path), check=not given.no_check
            )
            failures = {f"{r.topic}-{r.partition}": error for r, error in moved.errors.items()}
        rows = [
            {
                "topic": each.topic,
                "partition": each.partition,
                "broker": each.broker_id,
                "before": before[each].path,
                "after": target.path,
            }
            for each in replicas
            if f"{each.topic}-{each.partition}" not in failures
        ]
        columns = ["topic", "partition", "broker", "before", "after"]
        return rows_result(columns, rows, failures, dry_run_notes(given))


class CordonLogDirs(AdminCommand):
    """Let directories get no new replicas (KIP-1066, Kafka 4.3).

    Their replicas stay. A broker of which all directories are cordoned gets no new replicas.
    """

    verb = "cordon"
    changes = True
    arguments = (PATHS,)

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for each directory, with what it was before."""
        return await set_cordoned(admin, given, True)


class UncordonLogDirs(AdminCommand):
    """Let directories get new replicas again."""

    verb = "uncordon"
    changes = True
    arguments = (PATHS,)

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for each directory, with what it was before."""
        return await set_cordoned(admin, given, False)


async def set_cordoned(admin: Admin, given: Namespace, is_cordoned: bool) -> Result:
    """Cordon directories, or take that back. Return a row for each of them."""
    from aiokclient import ConfigResource

    typed: dict[int, list[BrokerPath]] = {}
    for each in given.path:
        typed.setdefault(each.broker, []).append(each)
    changes: dict[ConfigResource, Mapping[str, str | None]] = {}
    rows: list[dict[str, Any]] = []
    for broker, targets in typed.items():
        listed = await list_directories(admin, broker)
        before = {each.path for each in listed if each.is_cordoned}
        for target in targets:
            refuse_unknown_directory(listed, target)
            rows += [
                {
                    "broker": broker,
                    "path": each.path,
                    "before": each.is_cordoned,
                    "after": is_cordoned,
                }
                for each in listed
                if target.path in (each.path, ALL)
            ]
        paths = {row["path"] for row in rows if row["broker"] == broker}
        after = before | paths if is_cordoned else before - paths
        # Without its last entry, the option would stay set, to an empty list.
        value = ",".join(sorted(after)) or None
        changes[ConfigResource.broker(broker)] = {CORDONED: value}
    altered = await admin.alter_configs(changes, validate_only=given.dry_run)
    failures = {f"broker {each.name}": error for each, error in altered.errors.items()}
    rows = [row for row in rows if f"broker {row['broker']}" not in failures]
    columns = ["broker", "path", "before", "after"]
    return rows_result(columns, rows, failures, dry_run_notes(given))


async def list_directories(admin: Admin, broker: int) -> Sequence[LogDirDescription]:
    """Return the log directories of a broker. Raises NotFoundError."""
    brokers = (await admin.describe_cluster()).brokers
    if broker not in [each.node_id for each in brokers]:
        raise NotFoundError(f"No broker {broker} is running.")
    return (await admin.describe_log_dirs([broker])).raise_for_errors()[broker]


def refuse_unknown_directory(listed: Iterable[LogDirDescription], target: BrokerPath) -> None:
    """Raise NotFoundError for a path that is none of a broker's directories."""
    paths = [each.path for each in listed]
    if target.path not in (*paths, ALL):
        raise NotFoundError(
            f"Broker {target.broker} has no directory {target.path}. It has {', '.join(paths)}."
        )


def missing_replica(broker: int) -> Exception:
    """Return the error for a replica that a broker does not have."""
    from aiokclient.errors import ReplicaNotAvailableError

    return ReplicaNotAvailableError(f"Broker {broker} has no replica of the partition.")


def directory_row(broker: int, directory: LogDirDescription) -> dict[str, Any]:
    """Return the row of a directory."""
    replicas: list[Row] = [
        {**as_json(tp), **as_json(log)} for tp, log in sorted(directory.replicas.items())
    ]
    return {
        "broker": broker,
        "path": directory.path,
        "total_bytes": directory.total_bytes,
        "usable_bytes": directory.usable_bytes,
        "is_cordoned": directory.is_cordoned,
        "error": directory.error and one_line(directory.error),
        "replica_count": len(replicas),
        "size": sum(each["size"] for each in replicas),
        "replicas": replicas,
    }


COMMANDS: Sequence[type[Command]] = (
    DescribeLogDirs,
    MoveReplicas,
    CordonLogDirs,
    UncordonLogDirs,
)
