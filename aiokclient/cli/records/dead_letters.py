"""The commands for dead letters: records whose handler has failed for good."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from aiokclient.cli.asking import confirm
from aiokclient.cli.exit_codes import NotFoundError
from aiokclient.cli.grammar import (
    AdminCommand,
    Argument,
    Command,
    Option,
    value_error,
)
from aiokclient.cli.nouns.topics import dry_run_notes
from aiokclient.cli.output import Result, Row, Table, iso_time, rows_result
from aiokclient.cli.records.formats import RecordFilter
from aiokclient.cli.records.options import Count
from aiokclient.cli.values import TopicPartitions, counted

if TYPE_CHECKING:
    from aiokclient import Admin, ConsumerRecord, TopicPartition
    from aiokclient.worker import DeadLetterInfo, ReplayReport

    Record = ConsumerRecord[bytes, bytes]

TOPIC = Argument(
    "TOPIC", "The topic of dead letters, or TOPIC:0,1.", type=TopicPartitions, completes="topics"
)
PARTS_OF_LISTS = 1_048_576
"""The size of the records that are read before their rows are made, in bytes."""


class LetterPlace:
    """The partition and the offset of a dead letter, as 0:17."""

    def __init__(self, text: str) -> None:
        partition, _, offset = text.partition(":")
        if not (partition.isascii() and partition.isdecimal()):
            raise value_error(f"{text!r} is not PARTITION:OFFSET, such as 0:17")
        if not (offset.isascii() and offset.isdecimal()):
            raise value_error(f"{text!r} is not PARTITION:OFFSET, such as 0:17")
        self.place = int(partition), int(offset)


CHOICE = (
    Option(("--error",), "Only those with this error, such as ValueError.", "TYPE"),
    Option(("--origin",), "Only those from this topic.", "TOPIC", completes="topics"),
    Option(
        ("--grep",),
        "Only matching ones: k:PATTERN, v:PATTERN, h:NAME=PATTERN, hk:, hv:; ! before it negates. "
        "Repeated: all must match.",
        "PART:PATTERN",
        type=RecordFilter,
        repeated=True,
    ),
)


class Choice:
    """The conditions that were typed for dead letters."""

    def __init__(self, given: Namespace) -> None:
        self._partitions = given.topic.partitions
        self._error = given.error
        self._origin = given.origin
        self._filters: Sequence[RecordFilter] = given.grep

    def accepts_letter(self, record: Record, info: DeadLetterInfo) -> bool:
        """Return whether a dead letter fulfills all conditions."""
        if self._partitions is not None and record.partition not in self._partitions:
            return False
        if self._origin is not None and info.origin_topic != self._origin:
            return False
        error = info.error_type or ""
        if self._error is not None and self._error not in (error, error.rpartition(".")[2]):
            return False
        return all(each.accepts_record(record) for each in self._filters)


class ListLetters(AdminCommand):
    """List dead letters: where they came from, and why they failed.

    With --summary, there is a row for each topic and error.
    """

    verb = "list"
    asks_brokers = True
    arguments = (TOPIC,)
    options = (
        *CHOICE,
        Option(("-n", "--limit"), "List the first N only.", "N", type=Count),
        Option(("--summary",), "Count them by topic and error."),
    )

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for each dead letter, or for each topic and error."""
        choice, rows = Choice(given), []
        async with aclosing(read_letters(given, await find_partitions(given))) as letters:
            async for record, info in letters:
                if choice.accepts_letter(record, info):
                    rows.append(letter_row(record, info))
                    if given.limit is not None and len(rows) == given.limit.number:
                        break
        if given.summary:
            return summary_of(rows)
        columns = ["partition", "offset", "key", "origin_topic", "origin_partition"]
        columns += ["origin_offset", "error_type", "attempts", "replays", "failed_at_iso"]
        return rows_result(columns, rows)


class ShowLetters(AdminCommand):
    """Show dead letters with their headers, values, and tracebacks."""

    verb = "show"
    asks_brokers = True
    arguments = (
        Argument("TOPIC", "The topic of dead letters.", completes="topics"),
        Argument("LETTER", "PARTITION:OFFSET of dead letters, such as 0:17.", "+", LetterPlace),
    )

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a table for each dead letter."""
        given.topic = TopicPartitions(given.topic)
        tps = await find_partitions(given)
        data, tables = [], []
        failures: dict[str, Exception] = {}
        for partition, offset in dict.fromkeys(each.place for each in given.letter):
            name = f"{given.topic.topic}-{partition}@{offset}"
            tp = next((each for each in tps if each.partition == partition), None)
            if tp is None:
                failures[name] = NotFoundError(f"The topic has {len(tps)} partitions.")
            elif (row := await find_letter(given, tp, offset)) is None:
                failures[name] = NotFoundError("There is no record with this offset.")
            else:
                data.append(row)
                tables.append(Table(["field", "value"], field_rows(row), name))
        return Result(data, tables, failures)


class ReplayLetters(AdminCommand):
    """Put dead letters back into the topics from which they came.

    The dead letters stay where they are: another replay puts them back again. With --group, a
    replay begins where the last one of this group has ended. --dry-run counts what would be put
    back.
    """

    verb = "replay"
    asks_brokers = True
    changes = True
    arguments = (TOPIC,)
    options = (
        Option(("--to",), "Put all of them into this topic.", "TOPIC", completes="topics"),
        *CHOICE,
        Option(
            ("--letter",),
            "Only the one with this partition and offset. May be repeated.",
            "PARTITION:OFFSET",
            type=LetterPlace,
            repeated=True,
        ),
        Option(("-n", "--limit"), "Put back N at most.", "N", type=Count),
        Option(("-g", "--group"), "The group that remembers what was put back.", "GROUP"),
    )

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for each topic, with the number of records that were put back."""
        await find_partitions(given)
        choice = ReplayChoice(given)
        is_asking = not (given.yes or given.dry_run)
        if is_asking:
            report = await replay_letters(given, choice, dry_run=True)
            if report.replayed:
                topics = ", ".join(sorted(report.topics))
                confirm(given, f"Put {counted(report.replayed, 'record')} back into {topics}?")
            choice.end_at_last_read()
        report = await replay_letters(given, choice, dry_run=given.dry_run)
        rows = [
            {"topic": topic, "replayed": number} for topic, number in sorted(report.topics.items())
        ]
        data = {
            "topics": rows,
            "read": report.read,
            "replayed": report.replayed,
            "skipped": report.skipped,
            "failed": report.failed,
            "dry_run": report.dry_run,
        }
        failures = {f"{tp}@{offset}": error for (tp, offset), error in report.errors.items()}
        notes = list(dry_run_notes(given))
        if report.failed > len(failures):
            notes.append(f"{report.failed - len(failures)} more could not be put back.")
        return Result(data, [Table(["topic", "replayed"], rows)], failures, notes)


class ReplayChoice:
    """The function `where` of a replay. It knows the last dead letter of each partition.

    The user agrees to put back what a first run has counted. Dead letters that were written after
    that are left alone.
    """

    def __init__(self, given: Namespace) -> None:
        self._choice = Choice(given)
        self._places = {each.place for each in given.letter}
        self._last: dict[int, int] = {}
        self._has_ends = False

    def end_at_last_read(self) -> None:
        """Choose nothing after the dead letters that were read until now."""
        self._has_ends = True

    def __call__(self, record: Record) -> bool:
        """Return whether a dead letter is put back."""
        from aiokclient.worker import DeadLetterInfo

        if self._has_ends:
            if record.offset > self._last.get(record.partition, -1):
                return False
        else:
            self._last[record.partition] = record.offset
        if self._places and (record.partition, record.offset) not in self._places:
            return False
        return self._choice.accepts_letter(record, DeadLetterInfo.of(record))


async def replay_letters(given: Namespace, choice: ReplayChoice, dry_run: bool) -> ReplayReport:
    """Put dead letters back, or count them, with the options that were typed."""
    from aiokclient.worker import replay

    return await replay(
        given.topic.topic,
        to=given.to,
        where=choice,
        limit=given.limit.number if given.limit else None,
        dry_run=dry_run,
        client=given.client,
        **({"group_id": given.group} if given.group else {}),
    )


async def find_partitions(given: Namespace) -> list[TopicPartition]:
    """Return the partitions that were typed. Raises NotFoundError if there is no such partition."""
    from aiokclient import Admin, TopicPartition

    name = given.topic.topic
    async with Admin(client=given.client) as admin:
        described = await admin.describe_topics([name])
    described.raise_for_errors()
    known = sorted(each.index for each in described.succeeded[name].partitions)
    wanted = given.topic.partitions
    if missing := [number for number in wanted or () if number not in known]:
        raise NotFoundError(
            f"There is no partition {missing[0]} of {name}. It has {len(known)} partitions."
        )
    return [TopicPartition(name, number) for number in (known if wanted is None else wanted)]


async def find_letter(given: Namespace, tp: TopicPartition, offset: int) -> Row | None:
    """Return a dead letter with its contents, or None if there is none with this offset."""
    async with aclosing(read_letters(given, [tp], offset)) as letters:
        async for record, info in letters:
            if record.offset != offset:
                break
            return {**letter_row(record, info), **contents_of(record, info)}
    return None


async def read_letters(
    given: Namespace, tps: Sequence[TopicPartition], offset: int | None = None
) -> AsyncGenerator[tuple[Record, DeadLetterInfo], None]:
    """Yield the dead letters of partitions up to their present ends, from an offset on."""
    from aiokclient import Consumer
    from aiokclient.worker import DeadLetterInfo

    consumer = Consumer(
        client=given.client,
        auto_offset_reset="earliest",
        allow_auto_create_topics=False,
        isolation_level="read_committed",
    )
    async with consumer:
        consumer.assign(tps)
        if offset is not None:
            if offset >= (await consumer.end_offsets(tps))[tps[0]]:
                return
            consumer.seek(tps[0], offset)
        async for records in consumer.batches(max_bytes=PARTS_OF_LISTS, until_end=True):
            for record in records:
                yield record, DeadLetterInfo.of(record)


def letter_row(record: Record, info: DeadLetterInfo) -> dict[str, Any]:
    """Return a dead letter as a row, without its value and its traceback."""
    fields = {name: value for name, value in info._asdict().items() if name != "traceback"}
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_iso": iso_time(record.timestamp),
        "key": record.key,
        **fields,
        "failed_at_iso": iso_time(info.failed_at),
    }


def contents_of(record: Record, info: DeadLetterInfo) -> Row:
    """Return the value and the traceback of a dead letter, and the headers that it had before."""
    headers = [
        {"name": name, "value": value}
        for name, value in record.headers
        if not name.startswith("aiokclient.")
    ]
    return {"headers": headers, "value": record.value, "traceback": info.traceback}


def field_rows(row: Mapping[str, Any]) -> list[Row]:
    """Return the fields of a dead letter as rows, one for each line of its traceback."""
    rows: list[Row] = []
    for name, value in row.items():
        if name in ("timestamp", "failed_at", "topic"):
            continue
        lines = value.splitlines() if name == "traceback" and value else [value]
        if name == "headers":
            lines = [f"{each['name']}={shown_value(each['value'])}" for each in value] or [None]
        rows += [{"field": name, "value": line} for line in lines]
    return rows


def shown_value(value: bytes | None) -> str:
    """Return the value of a header as a text."""
    from aiokclient.cli.output import shown

    return shown(value)


def summary_of(rows: Sequence[Row]) -> Result:
    """Return the number of dead letters for each topic and error, the most frequent first."""
    found: dict[tuple[Any, Any], dict[str, Any]] = {}
    for row in rows:
        key = row["origin_topic"], row["error_type"]
        each = found.setdefault(
            key,
            {
                "origin_topic": key[0],
                "error_type": key[1],
                "letters": 0,
                "first_failed_at": row["failed_at"],
                "last_failed_at": row["failed_at"],
            },
        )
        each["letters"] += 1
        times = [t for t in (each["first_failed_at"], row["failed_at"]) if t is not None]
        each["first_failed_at"] = min(times, default=None)
        times = [t for t in (each["last_failed_at"], row["failed_at"]) if t is not None]
        each["last_failed_at"] = max(times, default=None)
    for each in found.values():
        each["first_failed_at_iso"] = iso_time(each["first_failed_at"])
        each["last_failed_at_iso"] = iso_time(each["last_failed_at"])
    ordered = sorted(found.values(), key=lambda each: -each["letters"])
    columns = ["origin_topic", "error_type", "letters", "first_failed_at_iso", "last_failed_at_iso"]
    return rows_result(columns, ordered)


COMMANDS: Sequence[type[Command]] = (ListLetters, ShowLetters, ReplayLetters)
