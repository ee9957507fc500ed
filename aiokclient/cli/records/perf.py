"""The commands that measure a cluster: rates of records, and latencies."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from aiokclient.cli.exit_codes import ExitCode
from aiokclient.cli.grammar import Argument, Command, Option, WrongUseError, value_error
from aiokclient.cli.output import rows_result, write_error, write_result
from aiokclient.cli.records.formats import Delimiter
from aiokclient.cli.records.layouts import Formatted, Layout
from aiokclient.cli.records.options import (
    ACKS,
    CODECS,
    Count,
    Rate,
    Seconds,
    settle_reading,
)
from aiokclient.cli.values import Place

if TYPE_CHECKING:
    from argparse import Namespace

    from aiokclient import Consumer, ConsumerRecord, Delivery, Producer, ProducerRecord
    from aiokclient.cli.connection import AnyClient
    from aiokclient.cli.records.sending import Outcome

    Row = dict[str, Any]

KEYS = ("none", "range", "random")
RATES = ("seconds", "records_per_second", "megabytes_per_second")
LATENCIES = (
    "latency_avg_ms",
    "latency_max_ms",
    "latency_p50_ms",
    "latency_p95_ms",
    "latency_p99_ms",
    "latency_p999_ms",
)
TOPIC = Argument("TOPIC", "The name of the topic.", completes="topics")
INTERVAL = Option(
    ("--interval",),
    "Write a line to standard error after each time span, such as 5s.",
    "S",
    type=Seconds,
)
PRINT_METRICS = Option(("--metrics",), "Add the metrics of the client to --json, --jsonl, --yaml.")
SAMPLES = 500_000
"""The most records whose latency is measured."""
CHUNK = 200
"""The number of records after which `perf produce` yields to the event loop."""
MEGABYTE = 1_048_576
DURATION_S = 3.0
"""Seconds after which `perf produce` commits a transaction."""
IDLE_S = "10s"
"""The time without a record after which `perf consume` ends."""
SHORTEST_S = 0.1
"""Seconds from the first records to the last ones from which `perf consume` prints rates."""
ARRIVAL_S = 60.0
"""Seconds in which `perf latency` must read each record that it has sent."""


class Size:
    """A number of bytes or of headers, which may be 0."""

    def __init__(self, text: str) -> None:
        if not (text.isascii() and text.isdecimal()):
            raise value_error(f"{text!r} is no number of bytes")
        self.number = int(text)


class HeaderSize:
    """A number of bytes, or -1 for null."""

    def __init__(self, text: str) -> None:
        self.number: int | None = None if text == "-1" else Size(text).number


class MeasureProduce(Command):
    """Send records as fast as possible, or at a rate, and print rates and latencies.

    A latency is the time from the send of a record to its acknowledgement. Latencies are those of
    at most 500,000 records, evenly spread. Random values are the same in each run with the same
    --seed.
    """

    verb = "produce"
    arguments = (TOPIC,)
    options = (
        Option(("-n", "--records"), "How many records to send.", "N", type=Count),
        Option(
            ("--size",),
            "The size of each value in bytes. No default: give it, or one of the next two.",
            "BYTES",
            type=Size,
        ),
        Option(("--payload-file",), "Send random records of this file.", "FILE", completes="files"),
        Option(("--payload-delimiter",), "What ends a record of the file.", "D", type=Delimiter),
        Option(("--payload-monotonic",), "The values are numbers that increase."),
        Option(("--keys",), "Which keys to send.", "KEYS", default="none", choices=KEYS),
        Option(("--key-range",), "How many different keys to send.", "N", type=Count),
        Option(("--seed",), "The seed of what is random.", "N", type=int, default=0),
        Option(("--rate",), "Send at most N records a second.", "N", type=Rate),
        Option(
            ("--warmup",), "Leave the first N records out of a row of its own.", "N", type=Count
        ),
        Option(("--transactional-id",), "Send in transactions.", "ID"),
        Option(
            ("--transaction-duration",), "Commit after this time, 3s by default.", "S", type=Seconds
        ),
        Option(("-z", "--compression"), "The codec of batches.", "CODEC", choices=CODECS),
        Option(("--acks",), "Which replicas acknowledge a record.", "ACKS", choices=ACKS),
        INTERVAL,
        PRINT_METRICS,
    )

    def run(self, given: Namespace) -> int:
        """Send the records, print the figures, and return the exit code."""
        if given.records is None:
            raise WrongUseError("How many records? Give -n N.")
        payloads = (given.size, given.payload_file, given.payload_monotonic or None)
        if sum(each is not None for each in payloads) != 1:
            raise WrongUseError("Give one of --size, --payload-file, and --payload-monotonic.")
        if (given.keys == "none") is not (given.key_range is None):
            raise WrongUseError("--keys range or random and --key-range go together.")
        if given.warmup and given.warmup.number >= given.records.number:
            raise WrongUseError("--warmup must be less than -n.")
        import asyncio

        code, rows = asyncio.run(measure_produce(self, given))
        columns = ["phase", "records", *RATES, *LATENCIES]
        return write_result(rows_result(columns, rows), given) or code


class MeasureConsume(Command):
    """Read records as fast as possible, and print rates.

    Without -g, it reads all partitions of the topics. With --share-group, it accepts the records.
    There are no rates if less than 0.1 s passed from the first records to the last ones.
    The exit code is 1 if it ended before N records, because none came for the time of --idle.
    """

    verb = "consume"
    arguments = (Argument("TOPIC", "Names of topics.", "+", completes="topics"),)
    options = (
        Option(("-n", "--records"), "How many records to read.", "N", type=Count),
        Option(
            ("-o", "--from"),
            "Where to begin: by default at the start, or where the group has committed.",
            "POSITION",
            type=Place,
        ),
        Option(("-g", "--group"), "Read as a member of this group.", "GROUP", completes="groups"),
        Option(
            ("--share-group",),
            "Read as a member of this share group, and accept the records.",
            "GROUP",
            completes="groups",
        ),
        Option(("--regex",), "The topics are regular expressions that match whole names."),
        Option(("--idle",), "End after this time without a record, 10s by default.", "S", Seconds),
        INTERVAL,
        PRINT_METRICS,
    )

    def run(self, given: Namespace) -> int:
        """Read the records, print the figures, and return the exit code."""
        if given.records is None:
            raise WrongUseError("How many records? Give -n N.")
        import asyncio

        code, row = asyncio.run(measure_consume(self, given))
        notes = remove_rates(row)
        columns = ["records", *RATES, "join_seconds"]
        return write_result(rows_result(columns, [row], notes=notes), given) or code


class MeasureLatency(Command):
    """Send one record at a time, read it back, and print the latencies from end to end."""

    verb = "latency"
    arguments = (TOPIC,)
    options = (
        Option(("-n", "--records"), "How many records to send.", "N", type=Count),
        Option(("--size",), "The size of each value in bytes.", "BYTES", type=Size),
        Option(("--key-size",), "The size of each key in bytes; 0: no key.", "BYTES", type=Size),
        Option(("--headers",), "The number of headers of each record.", "N", type=Size),
        Option(("--header-key-size",), "The size of their names in bytes.", "BYTES", type=Size),
        Option(("--header-size",), "The size of their values; -1: null.", "BYTES", type=HeaderSize),
        Option(("--acks",), "Which replicas acknowledge a record.", "ACKS", choices=ACKS),
        PRINT_METRICS,
    )

    def run(self, given: Namespace) -> int:
        """Send and read the records, print the figures, and return the exit code."""
        if given.records is None or given.size is None:
            raise WrongUseError("Give the number of records and their size: -n N --size BYTES.")
        import asyncio

        row = asyncio.run(measure_latency(self, given))
        return write_result(rows_result(["records", *LATENCIES], [row]), given)


class Figures:
    """The number of records, their bytes, and latencies in seconds."""

    def __init__(self) -> None:
        self.records = self.size = 0
        self.latencies: list[float] = []
        self._began_s = time.perf_counter()
        self.ended_s: float | None = None
        """The time of the last record, or None for now."""

    def make_row(self) -> Row:
        """Return the figures as they are printed."""
        ended_s = time.perf_counter() if self.ended_s is None else self.ended_s
        seconds = max(ended_s - self._began_s, 1e-9)
        return {
            "records": self.records,
            "bytes": self.size,
            "seconds": round(seconds, 3),
            "records_per_second": round(self.records / seconds, 1),
            "megabytes_per_second": round(self.size / seconds / MEGABYTE, 3),
        }

    def describe(self) -> str:
        """Return the figures as a sentence."""
        row = self.make_row()
        text = (
            f"{row['records']} records, {row['records_per_second']} records/s, "
            f"{row['megabytes_per_second']} MB/s"
        )
        if self.latencies:
            found = latency_row(self.latencies)
            text += (
                f", {found['latency_avg_ms']} ms on average, {found['latency_max_ms']} ms at most"
            )
        return f"{text}."


def latency_row(latencies: Sequence[float]) -> Row:
    """Return mean, maximum, and percentiles of latencies in seconds, as milliseconds."""
    ordered = sorted(latencies)
    if not ordered:
        return {}

    def at(share: float) -> float:
        return round(1000 * ordered[min(int(len(ordered) * share), len(ordered) - 1)], 3)

    return {
        "latency_avg_ms": round(1000 * sum(ordered) / len(ordered), 3),
        "latency_max_ms": at(1.0),
        "latency_p50_ms": at(0.5),
        "latency_p95_ms": at(0.95),
        "latency_p99_ms": at(0.99),
        "latency_p999_ms": at(0.999),
    }


def metrics_of(client: AnyClient, given: Namespace) -> Row:
    """Return the metrics of a client as a field of a row, if they were asked for."""
    return {"metrics": client.metrics()} if given.metrics else {}


class Progress:
    """A line on standard error after each interval."""

    def __init__(self, given: Namespace) -> None:
        self._interval_s = given.interval.seconds if given.interval else None
        self._last_s = time.perf_counter()
        self.figures = Figures()

    def write_line(self) -> None:
        """Write the figures since the last line if an interval has passed."""
        now = time.perf_counter()
        if self._interval_s is not None and now - self._last_s >= self._interval_s:
            write_error(self.figures.describe())
            self._last_s, self.figures = now, Figures()


# -- produce


def make_values(given: Namespace) -> Iterator[bytes]:
    """Yield values without end. Raises WrongUseError for a file that cannot be read."""
    import random
    from pathlib import Path

    source = random.Random(given.seed)
    if given.payload_monotonic:
        number = 0
        while True:
            yield b"%d" % number
            number += 1
    if given.payload_file is not None:
        try:
            content = Path(given.payload_file).read_bytes()
        except OSError as error:
            text = f"The file {given.payload_file} cannot be read: {error.strerror}."
            raise WrongUseError(text) from None
        delimiter = given.payload_delimiter.content if given.payload_delimiter else b"\n"
        lines = [line for line in content.split(delimiter) if line]
        if not lines:
            raise WrongUseError(f"The file {given.payload_file} has no records.")
        while True:
            yield source.choice(lines)
    letters = source.choices(range(65, 91), k=given.size.number)
    while True:
        yield bytes(letters)


def make_keys(given: Namespace) -> Iterator[bytes | None]:
    """Yield keys without end."""
    import random

    source = random.Random(given.seed)
    number = 0
    while True:
        if given.keys == "none":
            yield None
        elif given.keys == "range":
            yield b"%d" % (number % given.key_range.number)
        else:
            yield b"%d" % source.randrange(given.key_range.number)
        number += 1


async def measure_produce(command: Command, given: Namespace) -> tuple[int, list[Row]]:
    """Return the exit code, and a row for all records and one without the warmup."""
    import random

    from aiokclient.cli.connection import Notice
    from aiokclient.cli.records.sending import Outcome, make_producer, prepare_topic

    values, keys = make_values(given), make_keys(given)
    outcome = Outcome()
    if given.transactional_id is None and given.transaction_duration is not None:
        given.transactional_id = f"perf-produce-{random.randrange(1 << 32):08x}"
    producer = make_producer(command, given, outcome)
    notice = Notice(producer, given)
    try:
        async with producer:
            await prepare_topic(producer, given.topic)
            notice.cancel()
            run = ProduceRun(producer, given, outcome)
            rows = await run.send_records(values, keys)
            for row in rows:
                row |= metrics_of(producer, given)
    finally:
        notice.cancel()
    if outcome.failed:
        write_error(outcome.describe_end())
    return ExitCode.FAILED if outcome.failed else ExitCode.SUCCESS, rows


class ProduceRun:
    """One run of `perf produce`."""

    def __init__(
        self, producer: Producer[bytes, bytes], given: Namespace, outcome: Outcome
    ) -> None:
        self._producer = producer
        self._given = given
        self._outcome = outcome
        self._count = given.records.number
        self._warmup = given.warmup.number if given.warmup else 0
        self._step = max(1, self._count // SAMPLES)
        self._total = Figures()
        self._steady = Figures()
        self._progress = Progress(given)

    async def send_records(
        self, values: Iterator[bytes], keys: Iterator[bytes | None]
    ) -> list[Row]:
        """Send all records, and return the rows with the figures."""
        import asyncio

        producer, given = self._producer, self._given
        is_transactional = given.transactional_id is not None
        span = given.transaction_duration
        duration_s = span.seconds if span else DURATION_S
        began_s = time.perf_counter()
        self._total, committed_s = Figures(), began_s
        if is_transactional:
            await producer.begin_transaction()
        for number in range(self._count):
            if number == self._warmup:
                self._steady = Figures()
            has_paused = False
            if given.rate is not None:
                due_s = began_s + number / given.rate.per_second
                if (left_s := due_s - time.perf_counter()) > 0.001:
                    await asyncio.sleep(left_s)
                    has_paused = True
            self._send_record(number, next(values), next(keys))
            # At a low rate, the time of a line or of a transaction may end before a chunk does.
            if has_paused or producer.full or number % CHUNK == 0:
                await producer.drain()
                self._progress.write_line()
                if is_transactional and time.perf_counter() - committed_s >= duration_s:
                    await producer.commit_transaction()
                    committed_s = time.perf_counter()
                    await producer.begin_transaction()
        if is_transactional:
            await producer.commit_transaction()
        await producer.flush()
        rows = [self._make_row("all", self._total)]
        if self._warmup:
            rows.append(self._make_row("steady", self._steady))
        return rows

    def _make_row(self, phase: str, figures: Figures) -> Row:
        return {"phase": phase, **figures.make_row(), **latency_row(figures.latencies)}

    def _send_record(self, number: int, value: bytes, key: bytes | None) -> None:
        sent_s = time.perf_counter()
        delivery = self._producer.send(self._given.topic, value, key)
        self._outcome.sent += 1
        size = len(value) + len(key or b"")
        is_steady = number >= self._warmup
        for figures in (self._total, self._steady, self._progress.figures):
            if figures is not self._steady or is_steady:
                figures.records += 1
                figures.size += size
        if number % self._step == 0:

            def on_done(_: Delivery) -> None:
                latency = time.perf_counter() - sent_s
                self._total.latencies.append(latency)
                self._progress.figures.latencies.append(latency)
                if is_steady:
                    self._steady.latencies.append(latency)

            delivery.add_done_callback(on_done)


# -- consume


class CountingLayout(Layout):
    """A layout that writes nothing, and counts records and their bytes."""

    def __init__(self, given: Namespace) -> None:
        self.figures = Figures()
        self.first_s: float | None = None
        """The time of the first record."""
        self._progress = Progress(given)

    def format_records(self, records: Sequence[ConsumerRecord[bytes, bytes]]) -> Formatted:
        """Count the records."""
        if self.first_s is None:
            self.first_s = time.perf_counter()
            self.figures = Figures()
        size = sum([len(record.value or b"") + len(record.key or b"") for record in records])
        for figures in (self.figures, self._progress.figures):
            figures.records += len(records)
            figures.size += size
        self.figures.ended_s = time.perf_counter()
        self._progress.write_line()
        return Formatted(b"", len(records))


def remove_rates(row: Row) -> list[str]:
    """Remove the rates of a row whose time is too short for them; return notes that say so.

    What one response has brought is read in no time, whatever the cluster can do.
    """
    if row["seconds"] >= SHORTEST_S:
        return []
    row["records_per_second"] = row["megabytes_per_second"] = None
    if not row["records"]:
        return []
    return [
        f"There are no rates: all records were read within {SHORTEST_S:g} s of the first ones. "
        "Read more of them with a larger -n."
    ]


def fill_options(given: Namespace) -> None:
    """Set the options that reading has and this command has not."""
    defaults: dict[str, Any] = {
        "ack": None,
        "partitions": None,
        "commit": False,
        "until": None,
        "isolation_level": None,
        "per_partition": None,
        "skip_errors": False,
        "grep": [],
        "unbuffered": False,
    }
    vars(given).update(defaults)
    given.max = given.records
    if given.idle is None:
        given.idle = Seconds(IDLE_S)
    has_group = given.group is not None or given.share_group is not None
    if getattr(given, "from") is None and not has_group:
        setattr(given, "from", Place("start"))
    settle_reading(given)


async def measure_consume(command: Command, given: Namespace) -> tuple[int, Row]:
    """Return the exit code, and the row with the figures."""
    from aiokclient.cli.connection import Notice
    from aiokclient.cli.records.reading import (
        BlockWriter,
        Reading,
        SharedReading,
        make_consumer,
        make_share_consumer,
    )

    fill_options(given)
    layout, writer = CountingLayout(given), BlockWriter()
    reading: Reading | SharedReading
    if given.share_group is not None:
        consumer: AnyClient = (member := make_share_consumer(command, given))
        reading = SharedReading(member, given, layout, writer, None)
    else:
        # A group that has committed nothing begins at the start, too.
        consumer = (reader := make_consumer(command, given, auto_offset_reset="earliest"))
        reading = Reading(reader, given, layout, writer)
    notice = Notice(consumer, given)
    began_s = time.perf_counter()
    try:
        async with consumer:
            notice.cancel()
            if isinstance(reading, Reading):
                await reading.begin_reading()
            await reading.read_all()
            row = layout.figures.make_row() | metrics_of(consumer, given)
    finally:
        notice.cancel()
    first_s = layout.first_s if layout.first_s is not None else time.perf_counter()
    row["join_seconds"] = round(first_s - began_s, 3)
    if layout.figures.records < given.records.number:
        write_error(
            f"Only {layout.figures.records} of {given.records.number} records were read: none came "
            f"for {given.idle.seconds:g} s."
        )
        return ExitCode.FAILED, row
    return ExitCode.SUCCESS, row


# -- latency


async def measure_latency(command: Command, given: Namespace) -> Row:
    """Return the row with the figures."""
    from aiokclient import Consumer, TopicPartition
    from aiokclient.cli.connection import Notice, make_client
    from aiokclient.cli.records.sending import Outcome, make_producer, prepare_topic

    given.transactional_id = given.compression = None
    outcome = Outcome()
    producer = make_producer(command, given, outcome)
    fixed = {"group_id": None, "enable_auto_commit": False}
    consumer = make_client(Consumer, command, given, fixed=fixed, auto_offset_reset="latest")
    notice = Notice(producer, given)
    try:
        async with producer, consumer:
            await prepare_topic(producer, given.topic)
            notice.cancel()
            infos = await consumer.partitions_for(given.topic)
            tps = [TopicPartition(given.topic, each.index) for each in infos]
            consumer.assign(tps)
            for tp, offset in (await consumer.end_offsets(tps)).items():
                consumer.seek(tp, offset)
            latencies = [
                await _send_and_read(producer, consumer, record) for record in _make_records(given)
            ]
            metrics = metrics_of(producer, given)
    finally:
        notice.cancel()
    return {"records": len(latencies), **latency_row(latencies), **metrics}


def _make_records(given: Namespace) -> Iterator[ProducerRecord]:
    import random

    from aiokclient import ProducerRecord

    source = random.Random(0)
    key_size = given.key_size.number if given.key_size else 0
    name = "h" * (given.header_key_size.number if given.header_key_size else 1)
    header_size = given.header_size.number if given.header_size else 0
    count = given.headers.number if given.headers else 0
    for _ in range(given.records.number):
        value = source.randbytes(given.size.number)
        key = source.randbytes(key_size) if key_size else None
        content = None if header_size is None else source.randbytes(header_size)
        yield ProducerRecord(given.topic, value, key, None, None, [(name, content)] * count)


async def _send_and_read(
    producer: Producer[bytes, bytes], consumer: Consumer[bytes, bytes], record: ProducerRecord
) -> float:
    """Return the seconds from the send of a record until it was read."""
    from aiokclient.errors import KafkaTimeoutError

    began_s = time.perf_counter()
    metadata = await producer.send(*record)
    until_s = began_s + ARRIVAL_S
    while (left_s := until_s - time.perf_counter()) > 0:
        for read in await consumer.poll(left_s, 1000):
            # Others may write to the topic, too.
            is_same = metadata.offset < 0 or read.offset == metadata.offset
            if is_same and read.partition == metadata.partition and read.value == record.value:
                return time.perf_counter() - began_s
    raise KafkaTimeoutError(f"A record was not read within {ARRIVAL_S:g} s after it was sent.")


COMMANDS: Sequence[type[Command]] = (MeasureProduce, MeasureConsume, MeasureLatency)
