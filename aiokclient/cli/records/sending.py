"""Sending records that are read from files, in the chunks in which they are read."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import sys
from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokclient import Producer, ProducerRecord, TransactionOutcome
from aiokclient.cli.connection import Notice, make_client
from aiokclient.cli.exit_codes import ExitCode, OutputError, one_line
from aiokclient.cli.grammar import Command, WrongUseError
from aiokclient.cli.output import as_json, write_error, write_text
from aiokclient.cli.records.formats import compact_json
from aiokclient.cli.records.reading import BlockWriter, run_to_end
from aiokclient.cli.records.schemas import SchemaEncoder, make_encoder
from aiokclient.errors import (
    ApiTimeoutError,
    BufferExhaustedError,
    KafkaError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)

if TYPE_CHECKING:
    from argparse import Namespace

    from aiokclient import Delivery, Transaction

BLOCK = 262_144
"""The most bytes that are read at a time."""
PIPE = 1_048_576
"""The size of the pipe of standard input in bytes, where the system lets it be chosen.

With the usual 64 KiB, the command and the program that writes wait for each other for each of
these: a million lines of 100 bytes took 1,530 reads, and take 400.
"""
BATCH = "1000000"
"""The size of batches in bytes, which is below the largest that topics accept by default."""
CREATION_S = 5.0
"""Seconds to wait for brokers to create a topic that does not exist."""
SLICES = 20
"""The number of chunks in a second if there is a rate."""


class Chunk(NamedTuple):
    """Records that were read together: values, or records with more than a value.

    `content` is what was read, for --tee. `error` says why the rest cannot be read.
    """

    items: Sequence[Any]
    content: bytes
    error: str = ""


class InputError(Exception):
    """An error raised if the input cannot be read."""


def run_sending(command: Command, given: Namespace) -> int:
    """Send all records of the input, and return the exit code."""
    return asyncio.run(run_to_end(_send_input(command, given), has_output=given.tee))


async def _send_input(command: Command, given: Namespace) -> int:
    parse = make_line_parser(given)
    chunks = read_chunks(given, parse)
    if given.dry_run:
        return await _show_records(given, chunks)
    encoder = make_encoder(given)
    outcome = Outcome()
    # Larger batches than those of services, because all that was read is there at once.
    producer = make_producer(command, given, outcome, batch_size=BATCH)
    notice = Notice(producer, given)
    try:
        async with producer:
            await prepare_topic(producer, given.topic)
            notice.cancel()
            if encoder is not None:
                await encoder.prepare(given.topic)
            sending = Sending(producer, given, outcome, encoder)
            if given.transactional_id is None:
                await sending.send_chunks(chunks)
            else:
                async with producer.transaction() as outcome.transaction:
                    await sending.send_chunks(chunks)
                    outcome.raise_failure()
    except (KafkaError, InputError, asyncio.CancelledError) as error:
        if not outcome.sent:
            raise _as_wrong_use(error) from None
        write_error(outcome.describe_end(error))
        if isinstance(error, asyncio.CancelledError):
            raise
        return ExitCode.UNKNOWN if outcome.is_unknown() else ExitCode.FAILED
    except OutputError:  # With --tee. What was sent before is not undone.
        if outcome.sent:
            write_error(outcome.describe_end())
        raise
    finally:
        notice.cancel()
        if encoder is not None:
            await encoder.close()
    if outcome.failed:
        write_error(outcome.describe_end())
        return ExitCode.FAILED
    if not given.quiet and sys.stderr is not None and sys.stderr.isatty():
        write_error(f"{_count(outcome.sent)} acknowledged.")
    return ExitCode.SUCCESS


def _as_wrong_use(error: BaseException) -> BaseException:
    """Return the error to raise if nothing was sent."""
    return WrongUseError(str(error)) if isinstance(error, InputError) else error


def make_producer(
    command: Command, given: Namespace, outcome: Outcome, **options: Any
) -> Producer[bytes, bytes]:
    """Return the producer of a command. `options` count less than what the user gives."""
    fixed: dict[str, Any] = {"on_delivery_error": outcome.on_failure}
    fixed["transactional_id"] = given.transactional_id
    if given.compression is not None:
        fixed["compression_type"] = given.compression
    if given.acks is not None:
        fixed["acks"] = "all" if given.acks in ("all", "-1") else int(given.acks)
    return make_client(Producer, command, given, fixed=fixed, **options)


async def prepare_topic(producer: Producer[bytes, bytes], topic: str) -> None:
    """Wait for the metadata of the topic, which creates it if the brokers allow that.

    Raises UnknownTopicOrPartitionError if it does not exist after a few seconds.
    """
    try:
        await producer.prepare(topic, CREATION_S)
    except ApiTimeoutError as error:
        if isinstance(error.__cause__, UnknownTopicOrPartitionError):
            raise error.__cause__ from None
        await producer.prepare(topic)


class Outcome:
    """The number of records that were sent, and their outcomes."""

    def __init__(self) -> None:
        self.sent = 0
        self.failed = 0
        self.transaction: Transaction | None = None
        """The transaction to which all records belong, if there is one."""
        self._first: KafkaError | None = None

    def on_failure(self, delivery: Delivery) -> None:
        """Count a record that was not acknowledged."""
        error = delivery.exception()
        self.failed += 1
        if self._first is None and isinstance(error, KafkaError):
            self._first = error

    def raise_failure(self) -> None:
        """Raise the first failure of a record, if there is one."""
        if self._first is not None:
            raise self._first.with_traceback(None)

    def is_unknown(self) -> bool:
        """Return whether it is not known if the transaction was committed."""
        tx = self.transaction
        return tx is not None and tx.outcome is TransactionOutcome.UNKNOWN

    def describe_end(self, error: BaseException | None = None) -> str:
        """Return a sentence on what was sent, and why not more."""
        reason = "Interrupted." if isinstance(error, asyncio.CancelledError) else ""
        error = error if isinstance(error, KafkaError | InputError) else self._first
        if error is not None and not reason:
            reason = one_line(error) or str(error)
        if self.transaction is None:
            done = f"{self.sent - self.failed} of {_count(self.sent)} acknowledged."
        elif self.transaction.outcome is TransactionOutcome.COMMITTED:
            done = "The transaction was committed with all records."
        elif self.is_unknown():
            done = "It is not known whether the transaction was committed."
        else:
            done = "The transaction was not committed: none of its records counts."
        return f"{done} {reason}"


def _count(number: int) -> str:
    return "1 record was" if number == 1 else f"{number} records were"


class Sending:
    """One run of the command: it sends chunks of records until the input ends or one fails."""

    def __init__(
        self,
        producer: Producer[bytes, bytes],
        given: Namespace,
        outcome: Outcome,
        encoder: SchemaEncoder | None = None,
    ) -> None:
        self._producer = producer
        self._encoder = encoder
        self._given = given
        self._outcome = outcome
        self._writer = BlockWriter()
        self._next_s = asyncio.get_running_loop().time()
        """The time at which the next record may be sent if there is a rate."""

    async def send_chunks(self, chunks: AsyncIterator[Chunk]) -> None:
        """Send all chunks, and wait until each record has its outcome.

        Nothing is sent after the first failure. Raises InputError.
        """
        outcome, given = self._outcome, self._given
        left = given.max.number if given.max else None
        async for items, content, error in chunks:
            if left is not None and len(items) >= left:
                items, content = items[:left], cut_content(content, left, given)
            if self._encoder is not None:
                items, error = self._encoder.encode_items(given.topic, items, error)
            for part in self._split_by_rate(items):
                await self._wait_for_turn(len(part))
                await self._send_items(part)
            if given.tee:
                await self._writer.write_part(content)
                await self._writer.flush_block()
            if error:
                await self._producer.flush()
                raise InputError(error)
            if left is not None:
                left -= len(items)
            if outcome.failed or left == 0:
                break
        await self._producer.flush()

    def _split_by_rate(self, items: Sequence[Any]) -> Iterator[Sequence[Any]]:
        if self._given.sync:
            size = 1
        elif self._given.rate is None:
            yield items
            return
        else:
            size = max(1, round(self._given.rate.per_second / SLICES))
        for start in range(0, len(items), size):
            yield items[start : start + size]

    async def _wait_for_turn(self, count: int) -> None:
        if self._given.rate is None:
            return
        now = asyncio.get_running_loop().time()
        if self._next_s > now:
            await asyncio.sleep(self._next_s - now)
        self._next_s = max(self._next_s, now) + count / self._given.rate.per_second

    async def _send_items(self, items: Sequence[Any]) -> None:
        """Send records. Wait for room if there is not enough."""
        producer, topic = self._producer, self._given.topic
        if not items:
            return
        try:
            deliveries = producer.send_many(topic, items)
        except (BufferExhaustedError, RecordTooLargeError) as error:
            if isinstance(error, BufferExhaustedError):
                await producer.flush()
            elif len(items) == 1:
                raise
            if len(items) > 1:
                # Half as many find room, and all before a record that is too large are sent.
                half = len(items) // 2
                await self._send_items(items[:half])
                await self._send_items(items[half:])
                return
            deliveries = producer.send_many(topic, items)
        self._outcome.sent += len(items)
        if self._given.sync:
            with contextlib.suppress(KafkaError):  # It is counted by the handler.
                await deliveries[-1]
        await producer.drain()


# -- the input


def make_line_parser(given: Namespace) -> Callable[[Sequence[bytes], int], Chunk]:
    """Return the function that makes records of lines, of which the first has a number."""
    partition = given.partition.number if given.partition else -1
    number = partition if partition >= 0 else None
    headers, topic = given.headers, given.topic
    if given.jsonl:
        return lambda lines, first: parse_json_lines(lines, first, given, number)
    if given.key_delimiter is None and given.fixed_key is None and number is None and not headers:
        null = given.null_text
        if null is None:
            return lambda lines, _: Chunk(lines, b"")
        return lambda lines, _: Chunk([None if each == null else each for each in lines], b"")

    def parse_lines(lines: Sequence[bytes], first: int) -> Chunk:
        items = []
        for line in lines:
            key, value = split_line(line, given)
            items.append(ProducerRecord(topic, value, key, number, None, headers))
        return Chunk(items, b"")

    return parse_lines


def split_line(line: bytes, given: Namespace) -> tuple[bytes | None, bytes | None]:
    """Return the key and the value of a line."""
    key: bytes | None = None
    value: bytes | None = line
    null = given.null_text
    if given.key_delimiter is not None:
        before, delimiter, after = line.partition(given.key_delimiter.content)
        if delimiter:
            key, value = before, after
            if null is not None and key == null:
                return None, None if value == null else value
    if key is None:
        key = given.fixed_key
    return key, None if null is not None and value == null else value


def parse_json_lines(
    lines: Sequence[bytes], first: int, given: Namespace, partition: int | None
) -> Chunk:
    """Return the records of lines of JSON, up to the first that is wrong. Empty lines count not."""
    items = []
    for number, line in enumerate(lines, first):
        if not line.strip():
            continue
        try:
            items.append(parse_record(line, given, partition))
        except (ValueError, TypeError) as error:
            return Chunk(items, b"", f"Line {number} cannot be sent: {str(error).rstrip('.')}.")
    return Chunk(items, b"")


def parse_record(line: bytes, given: Namespace, partition: int | None) -> ProducerRecord:
    """Return the record of a line of JSON. Raises ValueError or TypeError."""
    row = json.loads(line)
    if not isinstance(row, dict):
        raise TypeError("it is no JSON object")
    if "value" not in row:
        raise ValueError('it has no "value"; a tombstone has null')
    key = as_content(row.get("key"))
    timestamp = row.get("timestamp")
    if timestamp is not None and (isinstance(timestamp, bool) or not isinstance(timestamp, int)):
        raise TypeError(f"its timestamp {timestamp!r} is no integer of milliseconds")
    if given.keep_partitions:
        partition = row.get("partition")
        if isinstance(partition, bool) or not isinstance(partition, int):
            raise TypeError(f"its partition {partition!r} is no integer")
    return ProducerRecord(
        given.topic,
        as_content(row["value"]),
        given.fixed_key if key is None else key,
        partition,
        # Kafka has -1 for no timestamp.
        timestamp if timestamp is not None and timestamp >= 0 else None,
        [*as_headers(row.get("headers")), *given.headers],
    )


def as_headers(pairs: Any) -> list[tuple[str, bytes | None]]:
    """Return the headers of a line of JSON. Raises TypeError."""
    if pairs is None:
        return []
    if isinstance(pairs, dict):
        pairs = list(pairs.items())
    if not isinstance(pairs, list):
        raise TypeError("its headers are no list of [name, value]")
    headers = []
    for pair in pairs:
        if not (isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str)):
            raise TypeError("its headers are no list of [name, value]")
        headers.append((pair[0], as_content(pair[1])))
    return headers


def as_content(item: Any) -> bytes | None:
    """Return the bytes of a key, value, or header value of a line of JSON. Raises ValueError."""
    if item is None:
        return None
    if isinstance(item, str):
        return item.encode()
    if isinstance(item, dict) and item.keys() == {"base64"} and isinstance(item["base64"], str):
        return b64decode(item["base64"], validate=True)
    return compact_json(item)


def cut_content(content: bytes, count: int, given: Namespace) -> bytes:
    """Return the first lines of what was read."""
    delimiter = given.delimiter.content if given.delimiter else b"\n"
    lines = content.split(delimiter)
    return content if len(lines) <= count else delimiter.join([*lines[:count], b""])


async def read_chunks(
    given: Namespace, parse: Callable[[Sequence[bytes], int], Chunk]
) -> AsyncIterator[Chunk]:
    """Yield the records of standard input or of the files. Raises InputError."""
    delimiter = given.delimiter.content if given.delimiter else b"\n"
    for name in given.file or ["-"]:
        if given.whole_files:
            parts = [part async for part in read_blocks(name)]
            content = b"".join(parts)
            yield parse([content], 1)._replace(content=content)
            continue
        rest, number = b"", 1
        async for block in read_blocks(name):
            block = rest + block
            lines = block.split(delimiter)
            rest = lines.pop()
            if lines:
                whole = block[: len(block) - len(rest)] if given.tee else b""
                yield _name_file(parse(lines, number)._replace(content=whole), name)
                number += len(lines)
        if rest:
            whole = rest + delimiter
            yield _name_file(parse([rest], number)._replace(content=whole), name)


def _name_file(chunk: Chunk, name: str) -> Chunk:
    if not chunk.error or name == "-":
        return chunk
    return chunk._replace(error=f"{name}: {chunk.error}")


async def read_blocks(name: str) -> AsyncIterator[bytes]:
    """Yield the bytes of a file in blocks, as soon as they are there; `-` is standard input."""
    if name == "-":
        if sys.stdin is None:
            raise InputError("Standard input is closed.")
        try:
            descriptor = sys.stdin.fileno()
        except (OSError, ValueError):  # It is no file, but an object that stands for one.
            binary = getattr(sys.stdin, "buffer", None)
            yield sys.stdin.read().encode() if binary is None else binary.read()
            return
        _enlarge_pipe(descriptor)
        async for block in _read_descriptor(descriptor, "Standard input"):
            yield block
        return
    try:
        descriptor = os.open(name, os.O_RDONLY)
    except OSError as error:
        raise InputError(f"The file {name} cannot be read: {error.strerror}.") from None
    try:
        async for block in _read_descriptor(descriptor, f"The file {name}"):
            yield block
    finally:
        os.close(descriptor)


def _enlarge_pipe(descriptor: int) -> None:
    """Let a pipe hold more bytes, if it is one, and if the system and its limits permit that."""
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import fcntl  # Windows has none.

        # Only Linux has this call.
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE)


async def _read_descriptor(descriptor: int, subject: str) -> AsyncIterator[bytes]:
    while True:
        await _wait_until_readable(descriptor)
        try:
            block = os.read(descriptor, BLOCK)
        except OSError as error:
            raise InputError(f"{subject} cannot be read: {error.strerror}.") from None
        if not block:
            return
        yield block


async def _wait_until_readable(descriptor: int) -> None:
    """Wait for bytes of a pipe or terminal. A thread that reads could not be interrupted."""
    try:
        if select.select([descriptor], [], [], 0)[0]:
            return
        loop = asyncio.get_running_loop()
        is_readable = loop.create_future()
        loop.add_reader(descriptor, _set_result, is_readable)
    except (NotImplementedError, OSError, ValueError):
        return  # The system has no such wait for it, so the read itself waits.
    try:
        await is_readable
    finally:
        loop.remove_reader(descriptor)


def _set_result(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _show_records(given: Namespace, chunks: AsyncIterator[Chunk]) -> int:
    """Write the records that would be sent as lines of JSON."""
    async for items, _, error in chunks:
        for item in items:
            record = item if isinstance(item, ProducerRecord) else ProducerRecord("", item)
            row = {
                "topic": given.topic,
                "partition": record.partition,
                "timestamp": record.timestamp,
                "key": as_json(record.key),
                "value": as_json(record.value),
                "headers": [[name, as_json(value)] for name, value in record.headers],
            }
            write_text(f"{json.dumps(row)}\n")
        if error:
            raise WrongUseError(error)
    write_error("This was a dry run: nothing was changed.")
    return ExitCode.SUCCESS
