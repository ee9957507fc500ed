"""The commands of transactions and their producers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aiokclient.cli.exit_codes import NotFoundError
from aiokclient.cli.grammar import (
    NAME,
    NO_CHECK,
    AdminCommand,
    Argument,
    Command,
    Option,
    WrongUseError,
)
from aiokclient.cli.nouns.elect import find_partitions
from aiokclient.cli.nouns.topics import dry_run_notes
from aiokclient.cli.output import Result, Row, Table, as_json, iso_time, rows_result
from aiokclient.cli.values import Duration, TopicPartitions

if TYPE_CHECKING:
    from argparse import Namespace

    from aiokclient import Admin, TopicPartition
    from aiokclient.admin import ActiveProducer, HangingTransaction

IDS = Argument("ID", "Transactional ids; - reads them from standard input.", "+")
TOPICS = Argument(
    "TOPIC",
    "Topics, or partitions as TOPIC:P[,...].",
    "+",
    type=TopicPartitions,
    completes="topics",
)
STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
)
OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
AT_ONCE = 20
"""The number of topics that are searched at the same time."""
BROKER = Option(
    ("--broker",), "Ask this broker, not the leaders.", "ID", type=int, completes="brokers"
)


class States:
    """States of transactions with commas between them. Capital letters do not matter."""

    def __init__(self, text: str) -> None:
        known = {state.lower(): state for state in STATES}
        self.names = [known.get(each.lower(), each) for each in text.split(",")]


class ListTransactions(AdminCommand):
    """List the transactional ids, with the state of the latest transaction of each."""

    verb = "list"
    watches = True
    options = (
        Option(
            ("--state",), f"Only these states: {', '.join(STATES)}.", "STATE[,...]", type=States
        ),
        Option(
            ("--producer-id",), "Only this producer id. Can be repeated.", "ID", int, None, True
        ),
        Option(
            ("--older-than",),
            "Only ids whose latest transaction began before this time, or that had none (Kafka "
            "3.8). Add --state Ongoing for open transactions.",
            "SPAN",
            type=Duration,
        ),
        Option(
            ("--pattern",),
            "Only ids that match this regular expression of RE2/J (Kafka 4.1).",
            "REGEX",
        ),
    )

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for each transactional id."""
        listed = await admin.list_transactions(
            states=given.state.names if given.state else (),
            producer_ids=given.producer_id,
            older_than_ms=given.older_than and given.older_than.milliseconds,
            pattern=given.pattern,
        )
        rows = [
            {**as_json(each), "coordinator_id": each.coordinator.node_id}
            for _, each in sorted(listed.items())
        ]
        return rows_result(["transactional_id", "coordinator_id", "producer_id", "state"], rows)


class DescribeTransactions(AdminCommand):
    """Describe transactional ids: the producer, the latest transaction, and its partitions."""

    verb = "describe"
    arguments = (IDS,)

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for each transactional id."""
        described = await admin.describe_transactions(given.id)
        data: list[Row] = []
        shown: list[Row] = []
        for each in described.succeeded.values():
            partitions = sorted(each.partitions)
            started = each.start_time_ms
            # The clock of this machine may differ from that of the coordinator.
            duration = None if started is None else max(0, round(time.time() * 1000) - started)
            row = {
                **as_json(each),
                "start_time_iso": iso_time(started),
                "duration_ms": duration,
                "coordinator_id": each.coordinator.node_id,
                "partitions": as_json(partitions),
            }
            data.append(row)
            shown.append({**row, "partitions": [f"{tp.topic}:{tp.partition}" for tp in partitions]})
        columns = ["transactional_id", "coordinator_id", "producer_id", "producer_epoch", "state"]
        columns += ["timeout_ms", "start_time_iso", "duration_ms", "partitions"]
        return Result(data, [Table(columns, shown)], described.errors)


class DescribeProducers(AdminCommand):
    """List the idempotent and transactional producers that have written to partitions."""

    verb = "producers"
    arguments = (TOPICS,)
    options = (BROKER,)

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for each producer of each partition."""
        partitions, failures = await find_partitions(admin, given.topic)
        described = await admin.describe_producers(partitions, broker_id=given.broker)
        failures |= {str(tp): e for tp, e in described.errors.items()}
        rows = [
            producer_row(tp, each)
            for tp, producers in described.succeeded.items()
            for each in producers
        ]
        columns = ["topic", "partition", "producer_id", "producer_epoch", "last_sequence"]
        columns += ["last_timestamp_iso", "coordinator_epoch", "transaction_start_offset"]
        return rows_result(columns, rows, failures)


class FindHanging(AdminCommand):
    """List open transactions that no coordinator will end.

    They keep readers with read_committed from reading on. Without a topic, all partitions are
    searched, or those of which --broker has a replica.
    """

    verb = "find-hanging"
    arguments = (TOPICS._replace(repeats="*"),)
    options = (
        BROKER._replace(help="Only partitions of which this broker has a replica."),
        Option(
            ("--max-transaction-timeout",),
            "Only transactions whose last record is older than this. It should be the brokers' "
            "transaction.max.timeout.ms, which is 15m by default.",
            "SPAN",
            type=Duration,
        ),
    )

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for each hanging transaction."""
        import asyncio

        from aiokclient.errors import UnknownTopicOrPartitionError

        span = given.max_transaction_timeout or Duration("15m")

        async def search(topic: str | None, number: int | None) -> Sequence[HangingTransaction]:
            try:
                return await admin.find_hanging_transactions(
                    topic=topic,
                    partition=number,
                    broker_id=given.broker,
                    max_transaction_timeout_ms=span.milliseconds,
                )
            except UnknownTopicOrPartitionError:
                if given.topic:
                    raise
                return ()  # The topic was deleted in the meantime.

        scopes: list[tuple[str | None, int | None]] = [
            (each.topic, number) for each in given.topic for number in (each.partitions or (None,))
        ]
        if not scopes:
            names = [None] if given.broker is not None else await admin.list_topics(internal=True)
            scopes = [(name, None) for name in names]
        hanging: list[HangingTransaction] = []
        for start in range(0, len(scopes), AT_ONCE):
            step = scopes[start : start + AT_ONCE]
            for part in await asyncio.gather(*(search(*scope) for scope in step)):
                hanging += part
        rows = [hanging_row(each) for each in hanging]
        columns = ["topic", "partition", "producer_id", "producer_epoch", "coordinator_epoch"]
        columns += ["start_offset", "last_timestamp_iso", "transactional_id"]
        notes = []
        if hanging:
            (topic, number), offset = hanging[0].partition, hanging[0].start_offset
            ended = "it" if len(hanging) == 1 else "the first one"
            command = f"{NAME} transactions abort {topic}:{number} --start-offset {offset}"
            notes = [f"'{command}' ends {ended}."]
        return rows_result(columns, rows, notes=notes)


class AbortTransaction(AdminCommand):
    """Abort a hanging transaction in the log of one partition, without its coordinator.

    --start-offset is that of `aiokclient transactions find-hanging`. With --producer-id,
    --producer-epoch, and --coordinator-epoch, a transaction is aborted as they say, which is for
    brokers before 3.0. A transaction that its coordinator will end is refused, because the
    coordinator could still commit it in other partitions.
    """

    verb = "abort"
    changes = True
    arguments = (TOPICS._replace(help="The partition, as TOPIC:P.", repeats=""),)
    options = (
        Option(("--start-offset",), "The offset of its first record.", "N", type=int),
        Option(("--producer-id",), "The id of its producer.", "N", type=int),
        Option(("--producer-epoch",), "The epoch of its producer.", "N", type=int),
        Option(("--coordinator-epoch",), "The epoch of its coordinator.", "N", type=int),
        NO_CHECK,
    )

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for the transaction that was aborted."""
        tp = single_partition(given.topic)
        transaction = await find_transaction(admin, given, tp)
        if not given.no_check and given.start_offset is not None:
            await refuse_coordinated(admin, transaction)
        if not given.dry_run:
            await admin.abort_transaction(transaction)
        columns = ["topic", "partition", "producer_id", "producer_epoch", "coordinator_epoch"]
        columns += ["start_offset"]
        return rows_result(columns, [hanging_row(transaction)], notes=dry_run_notes(given))


class TerminateTransactions(AdminCommand):
    """Abort the open transaction of transactional ids, and fence their producers.

    A producer that still runs fails, and a new one with the same id works.
    """

    verb = "terminate"
    changes = True
    arguments = (IDS,)

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for each transactional id, with the state of its transaction before."""
        # Fencing would create an id that does not exist.
        described = await admin.describe_transactions(given.id)
        failures: dict[str, Exception] = dict(described.errors)
        known = described.succeeded
        rows: list[Row] = [
            {
                "transactional_id": name,
                "producer_id": each.producer_id,
                "producer_epoch": each.producer_epoch,
                "state_before": each.state,
            }
            for name, each in known.items()
        ]
        if known and not given.dry_run:
            fenced = await admin.fence_producers(known)
            failures |= fenced.errors
            rows = [
                {**row, **as_json(fenced[row["transactional_id"]])}
                for row in rows
                if row["transactional_id"] in fenced.succeeded
            ]
        columns = ["transactional_id", "producer_id", "producer_epoch", "state_before"]
        notes = dry_run_notes(given)
        if idle := [name for name, each in known.items() if each.state not in OPEN]:
            notes.append(
                f"No transaction was open: {', '.join(idle)}. '{NAME} transactions find-hanging' "
                "lists those that hang."
            )
        return rows_result(columns, rows, failures, notes)


def single_partition(typed: TopicPartitions) -> TopicPartition:
    """Return the partition that was typed. Raises WrongUseError if it is not exactly one."""
    from aiokclient import TopicPartition

    if typed.partitions is None or len(typed.partitions) != 1:
        raise WrongUseError(f"Give one partition of {typed.topic}, such as {typed.topic}:0.")
    return TopicPartition(typed.topic, typed.partitions[0])


async def find_transaction(
    admin: Admin, given: Namespace, tp: TopicPartition
) -> HangingTransaction:
    """Return the transaction that the options name.

    Raises WrongUseError if they do not belong together, and NotFoundError.
    """
    from aiokclient.admin import HangingTransaction

    numbers = (given.producer_id, given.producer_epoch, given.coordinator_epoch)
    if given.start_offset is None:
        if given.producer_id is None or given.producer_epoch is None:
            raise WrongUseError(
                "Give --start-offset, or --producer-id, --producer-epoch, and --coordinator-epoch."
            )
        return HangingTransaction(tp, *numbers)
    if any(each is not None for each in numbers):
        raise WrongUseError("--start-offset finds the producer. Give no other option with it.")
    described = await admin.describe_producers([tp])
    for each in described.raise_for_errors()[tp]:
        if each.transaction_start_offset == given.start_offset:
            return HangingTransaction(
                tp,
                each.producer_id,
                each.producer_epoch,
                each.coordinator_epoch,
                each.transaction_start_offset,
                each.last_timestamp,
            )
    raise NotFoundError(f"No open transaction of {tp} begins at offset {given.start_offset}.")


async def refuse_coordinated(admin: Admin, transaction: HangingTransaction) -> None:
    """Raise WrongUseError for a transaction that its coordinator will end."""
    topic, partition = transaction.partition
    hanging = await admin.find_hanging_transactions(
        topic=topic, partition=partition, max_transaction_timeout_ms=0
    )
    if transaction.producer_id not in [each.producer_id for each in hanging]:
        raise WrongUseError(
            f"The transaction of producer {transaction.producer_id} in {topic}:{partition} does "
            "not hang: its coordinator will end it. End it with 'aiokclient transactions "
            "terminate', or give --no-check."
        )


def producer_row(tp: TopicPartition, producer: ActiveProducer) -> Row:
    """Return the row of a producer."""
    return {
        **as_json(tp),
        **as_json(producer),
        "last_timestamp_iso": iso_time(producer.last_timestamp),
    }


def hanging_row(transaction: HangingTransaction) -> Row:
    """Return the row of a hanging transaction."""
    fields = as_json(transaction)
    return {
        **fields.pop("partition"),
        **fields,
        "last_timestamp_iso": iso_time(transaction.last_timestamp),
    }


COMMANDS: Sequence[type[Command]] = (
    ListTransactions,
    DescribeTransactions,
    DescribeProducers,
    FindHanging,
    AbortTransaction,
    TerminateTransactions,
)
