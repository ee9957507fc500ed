"""Reading records from where a command begins to where it ends.

The ends of `--until` are offsets that are looked up once, before the first record is read, so that
a topic to which others write has an end, too. Lists of records are written in blocks. What is left
of a block is written as soon as no record is waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import stat
import sys
import time
from collections import Counter
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from aiokclient import Consumer, ShareConsumer, TopicPartition
from aiokclient.cli.connection import Notice, make_client
from aiokclient.cli.exit_codes import ExitCode, OutputError, one_line
from aiokclient.cli.grammar import Command
from aiokclient.cli.output import write_bytes, write_error
from aiokclient.cli.records.internal_topics import TOPICS as INTERNAL_TOPICS
from aiokclient.cli.records.layouts import Layout
from aiokclient.cli.records.schemas import SchemaDecoder, make_decoder
from aiokclient.cli.values import Place, PlaceType
from aiokclient.errors import (
    ApiTimeoutError,
    CorruptBatchError,
    DecompressionLimitError,
    IllegalStateError,
    SerializationError,
    UnknownTopicOrPartitionError,
)

if TYPE_CHECKING:
    from argparse import Namespace

    from aiokclient import ConsumerRecord, ShareRecord
    from aiokclient.cli.records.formats import RecordFilter

    Record = ConsumerRecord[bytes, bytes]
    Offsets = dict[TopicPartition, int]

BLOCK = 65_536
"""The size of the blocks in which records are written, in bytes."""
LIST_RECORDS = 2000
LIST_BYTES = 1_048_576
LOOK_S = 0.05
"""Seconds between two looks at the positions, because an end may have no record before it."""
EMPTY_ASSIGNMENT_S = 10.0
"""Seconds after which reading to an end gives up if the group has assigned no partition."""
TERMINATED = 128 + signal.SIGTERM


def run_reading(command: Command, given: Namespace, layout: Layout) -> int:
    """Read and write records until the end, and return the exit code."""
    return asyncio.run(run_to_end(_read_until_end(command, given, layout)))


async def _read_until_end(command: Command, given: Namespace, layout: Layout) -> int:
    if given.share_group is not None:
        return await read_share_group(command, given, layout)
    decoder = make_decoder(given)
    consumer = make_consumer(command, given)
    notice = Notice(consumer, given)
    writer = BlockWriter(has_thread=given.group is not None, is_unbuffered=given.unbuffered)
    try:
        async with consumer:
            notice.cancel()
            reading = Reading(consumer, given, layout, writer, decoder)
            await reading.begin_reading()
            await reading.read_all()
    finally:
        notice.cancel()
        if decoder is not None:
            await decoder.close()
    return ExitCode.SUCCESS


async def read_share_group(command: Command, given: Namespace, layout: Layout) -> int:
    """Read, write, and settle records of a share group until the end; return the exit code."""
    decoder = make_decoder(given)
    consumer = make_share_consumer(command, given)
    notice = Notice(consumer, given)
    writer = BlockWriter(has_thread=True, is_unbuffered=given.unbuffered)
    try:
        async with consumer:
            notice.cancel()
            await SharedReading(consumer, given, layout, writer, decoder).read_all()
    finally:
        notice.cancel()
        if decoder is not None:
            await decoder.close()
    return ExitCode.SUCCESS


def make_share_consumer(command: Command, given: Namespace) -> ShareConsumer[bytes, bytes]:
    """Return the member of a share group of a command, for its topics."""
    options = {"group_id": given.share_group, "on_acknowledge_error": _tell_refused}
    topics = tuple(each.topic for each in given.topics)
    return make_client(ShareConsumer, command, given, topics, fixed=options)


def _tell_refused(error: Exception) -> None:
    write_error(f"Not settled: {one_line(error)}")


async def run_to_end(work: Coroutine[Any, Any, int], has_output: bool = True) -> int:
    """Run a command that reads or writes records, and return its exit code.

    SIGTERM ends it as Ctrl-C does. With `has_output`, it also ends when the reader of standard
    output has ended. Raises OutputError then.
    """
    code: int = ExitCode.SUCCESS
    with watch_ends(asyncio.current_task(), has_output) as ended_by:
        try:
            code = await work
        except asyncio.CancelledError:
            if not ended_by:
                raise
            code = ended_by[0]
    if code == ExitCode.CLOSED_PIPE:
        raise OutputError("Broken pipe", is_pipe=True)
    return code


def make_consumer(command: Command, given: Namespace, **defaults: Any) -> Consumer[bytes, bytes]:
    """Return the consumer of a command, without topics. Its user's options replace the defaults."""
    fixed: dict[str, Any] = {"group_id": given.group, "enable_auto_commit": given.commit}
    if given.isolation_level is not None:
        fixed["isolation_level"] = given.isolation_level
    options: dict[str, Any] = {"allow_auto_create_topics": "false", **defaults}
    has_start = given.start is not None and given.start.type is not PlaceType.COMMITTED
    if given.group is None or has_start:
        # A position whose records were deleted meanwhile continues at those that are left.
        options["auto_offset_reset"] = "earliest"
    return make_client(Consumer, command, given, fixed=fixed, **options)


@contextlib.contextmanager
def watch_ends(task: asyncio.Task[Any] | None, has_output: bool) -> Iterator[list[int]]:
    """Cancel the task on SIGTERM, and when the reader of standard output has ended.

    Yields a list that has the exit code then. Without it, a command that waits for records would
    only notice that its reader has ended when it writes the next one.
    """
    loop = asyncio.get_running_loop()
    ended_by: list[int] = []

    def end_with(code: int) -> None:
        if not ended_by and task is not None:
            ended_by.append(code)
            task.cancel()

    descriptor = _find_output_pipe() if has_output else None
    with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
        loop.add_signal_handler(signal.SIGTERM, end_with, TERMINATED)
    if descriptor is not None:
        try:
            # Nothing can be read from this end: it gets ready when the other end is closed.
            loop.add_reader(descriptor, end_with, ExitCode.CLOSED_PIPE)
        except (NotImplementedError, OSError):
            descriptor = None
    try:
        yield ended_by
    finally:
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.remove_signal_handler(signal.SIGTERM)
        if descriptor is not None:
            loop.remove_reader(descriptor)


def _find_output_pipe() -> int | None:
    """Return the descriptor of standard output if it is a pipe."""
    try:
        descriptor = sys.stdout.fileno()
        return descriptor if stat.S_ISFIFO(os.fstat(descriptor).st_mode) else None
    except (AttributeError, OSError, ValueError):  # It is closed, or no file.
        return None


class BlockWriter:
    """Standard output, written in blocks.

    With a thread, a slow reader does not keep the event loop from sending heartbeats to the group.
    """

    def __init__(self, has_thread: bool = False, is_unbuffered: bool = False) -> None:
        self._limit = 1 if is_unbuffered else BLOCK
        self._thread = ThreadPoolExecutor(1) if has_thread else None
        self._parts: list[bytes] = []
        self._size = 0

    async def write_part(self, content: bytes) -> None:
        """Add bytes to the block, and write it if it is full. Raises OutputError."""
        self._parts.append(content)
        self._size += len(content)
        if self._size >= self._limit:
            await self.flush_block()

    async def flush_block(self) -> None:
        """Write what is left of the block. Raises OutputError."""
        if not self._size:
            return
        block = b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        if self._thread is None:
            write_bytes(block)
        else:
            loop = asyncio.get_running_loop()
            # The block is written completely, even if Ctrl-C cancels the wait for it.
            await asyncio.shield(loop.run_in_executor(self._thread, write_bytes, block))


class SharedReading:
    """One run of the command as a member of a share group.

    A record is settled when it is written. What is read beyond the end is released.
    """

    def __init__(
        self,
        consumer: ShareConsumer[bytes, bytes],
        given: Namespace,
        layout: Layout,
        writer: BlockWriter,
        decoder: SchemaDecoder | None,
    ) -> None:
        self._consumer = consumer
        self._given = given
        self._layout = layout
        self._writer = writer
        self._decoder = decoder
        self._settle = {
            "accept": consumer.done,
            "release": consumer.release,
            "reject": consumer.reject,
        }[given.ack]
        self._left: float = given.max.number if given.max else math.inf
        self._wait_s = given.idle.seconds if given.idle else math.inf

    async def read_all(self) -> None:
        """Read, write, and settle until the end."""
        writer, layout = self._writer, self._layout
        await writer.write_part(layout.format_start())
        try:
            while self._left:
                limit = int(min(LIST_RECORDS, self._left))
                records = await self._consumer.poll(self._wait_s, limit, tracked=True)
                if not records:
                    break
                self._left -= len(records)
                await self._write_records(records)
        finally:
            await writer.write_part(layout.format_end())
            await writer.flush_block()
        await self._consumer.commit(return_exceptions=True)

    async def _write_records(self, records: Sequence[ShareRecord[bytes, bytes]]) -> None:
        """Write records, and settle those that were written."""
        shown: Sequence[Record] = records
        if self._decoder is not None:
            shown = await self._decoder.decode_records(records)
        done = 0
        while done < len(records):
            content, count, error = self._layout.format_records(shown[done:])
            await self._writer.write_part(content)
            await self._writer.flush_block()
            written = records[done : done + count]
            done += count
            if error and self._given.skip_errors:
                write_error(f"Skipped: {error}")
                written = [*written, records[done]]
                done += 1
            if written:
                self._settle(written)
            if error and not self._given.skip_errors:
                raise SerializationError(error)


class SeekingListener:
    """Moves each partition to where reading begins when the group assigns it for the first time."""

    def __init__(self, consumer: Consumer[bytes, bytes], starts: Offsets) -> None:
        self._consumer = consumer
        self._starts = starts
        self.has_joined = False

    def on_assigned(self, tps: Iterable[TopicPartition]) -> None:
        """Seek to the positions of partitions that are new here."""
        self.has_joined = True
        for tp in tps:
            offset = self._starts.pop(tp, None)
            if offset is not None:
                self._consumer.seek(tp, offset)

    def on_revoked(self, tps: Iterable[TopicPartition]) -> None:
        """Do nothing: what is written is committed by the consumer."""

    def on_lost(self, tps: Iterable[TopicPartition]) -> None:
        """Do nothing."""


class Positions:
    """The offsets of positions that were typed, in the partitions of a command."""

    def __init__(self, consumer: Consumer[bytes, bytes], tps: Sequence[TopicPartition]) -> None:
        self._consumer = consumer
        self._tps = tps
        self._firsts: Offsets | None = None
        self._ends: Offsets | None = None

    async def find_starts(self, place: Place) -> Offsets:
        """Return where reading begins. The group knows it for partitions that are missing."""
        if place.type is PlaceType.COMMITTED:
            return {}
        found = await self._find_offsets(place)
        if place.type is not PlaceType.OFFSET:
            return found
        firsts, ends = await self._find_firsts(), await self._find_ends()
        return {tp: min(max(offset, firsts[tp]), ends[tp]) for tp, offset in found.items()}

    async def find_ends(self, place: Place) -> Offsets:
        """Return where reading ends: before these offsets."""
        if place.type is not PlaceType.COMMITTED:
            return await self._find_offsets(place)
        firsts = await self._find_firsts()
        committed = await self._consumer.committed(self._tps)
        return {
            tp: firsts[tp] if stored is None else stored.offset for tp, stored in committed.items()
        }

    async def _find_offsets(self, place: Place) -> Offsets:
        if place.type is PlaceType.OFFSET:
            return dict.fromkeys(self._tps, place.value)
        if place.type is PlaceType.START:
            return await self._find_firsts()
        ends = await self._find_ends()
        if place.type is PlaceType.FIRST:
            firsts = await self._find_firsts()
            return {tp: min(first + place.value, ends[tp]) for tp, first in firsts.items()}
        if place.type is PlaceType.LAST:
            firsts = await self._find_firsts()
            return {tp: max(end - place.value, firsts[tp]) for tp, end in ends.items()}
        if place.type is PlaceType.TIME:
            # Where no record is at or after the time, it is the end.
            found = await self._consumer.offsets_for_times(dict.fromkeys(self._tps, place.value))
            return {tp: ends[tp] if each is None else each.offset for tp, each in found.items()}
        return ends

    async def _find_firsts(self) -> Offsets:
        if self._firsts is None:
            self._firsts = await self._consumer.beginning_offsets(self._tps)
        return self._firsts

    async def _find_ends(self) -> Offsets:
        if self._ends is None:
            self._ends = await self._consumer.end_offsets(self._tps)
        return self._ends


async def find_topics(
    consumer: Consumer[bytes, bytes], given: Namespace
) -> dict[str, tuple[int, ...]]:
    """Return the partitions to read of each topic. Raises UnknownTopicOrPartitionError."""
    if given.pattern is not None:
        listed = await consumer.list_topics()
        names = [name for name in listed if name not in INTERNAL_TOPICS]
        matching = sorted(name for name in names if given.pattern.fullmatch(name))
        if not matching:
            raise UnknownTopicOrPartitionError("No topic has a name that matches.")
        return {name: tuple(each.index for each in listed[name]) for name in matching}
    found: dict[str, tuple[int, ...]] = {}
    for typed in given.topics:
        infos = await consumer.partitions_for(typed.topic)
        known = sorted(each.index for each in infos)
        wanted = typed.partitions
        if given.partitions is not None:
            wanted = given.partitions.numbers
        for number in wanted or ():
            if number not in known:
                raise UnknownTopicOrPartitionError(
                    f"The topic has {len(known)} partitions, numbered from 0.",
                    topic_partition=TopicPartition(typed.topic, number),
                )
        chosen = known if wanted is None else wanted
        found[typed.topic] = tuple(dict.fromkeys((*found.get(typed.topic, ()), *chosen)))
    return found


def first_offsets(records: Sequence[Record]) -> Offsets:
    """Return the first offset of each partition in a list of records."""
    return {TopicPartition(r.topic, r.partition): r.offset for r in reversed(records)}


class Reading:
    """One run of the command: it reads records and writes them until it is at its end."""

    def __init__(
        self,
        consumer: Consumer[bytes, bytes],
        given: Namespace,
        layout: Layout,
        writer: BlockWriter,
        decoder: SchemaDecoder | None = None,
    ) -> None:
        self._consumer = consumer
        self._decoder = decoder
        self._given = given
        self._layout = layout
        self._filters: Sequence[RecordFilter] = given.grep
        self._writer = writer
        self._tps: Sequence[TopicPartition] = ()
        self._listener: SeekingListener | None = None
        self._ends: Offsets = {}
        self._open: set[TopicPartition] = set()
        """The partitions that have an end and have not reached it."""
        self._ends_at_ms = math.inf
        """The time in the future at which the ends are looked up."""
        self._has_ends = False
        self._left: float = given.max.number if given.max else math.inf
        self._counts: Counter[tuple[str, int]] = Counter()
        self._most = given.per_partition.number if given.per_partition else None
        self._last_s = self._began_s = asyncio.get_running_loop().time()

    # -- the start

    async def begin_reading(self) -> None:
        """Look up the positions, and subscribe to the topics or assign their partitions."""
        given, consumer = self._given, self._consumer
        topics = await find_topics(consumer, given)
        tps = [TopicPartition(name, number) for name in topics for number in topics[name]]
        self._tps = tps
        positions = Positions(consumer, tps)
        starts = await positions.find_starts(given.start) if given.start else {}
        await self._set_ends(positions)
        are_all = given.partitions is None and all(each.partitions is None for each in given.topics)
        if not are_all or (given.group is None and self._has_ends):
            consumer.assign(tps)
            for tp, offset in starts.items():
                consumer.seek(tp, offset)
            return
        self._listener = SeekingListener(consumer, starts)
        consumer.subscribe(given.pattern or list(topics), self._listener)

    async def _set_ends(self, positions: Positions) -> None:
        until: Place | None = self._given.until
        if until is None:
            return
        if until.type is PlaceType.TIME and until.value > time.time() * 1000:
            self._ends_at_ms = until.value
            return
        self._ends = await positions.find_ends(until)
        self._has_ends = True
        self._open = set(self._ends)

    # -- the loop

    async def read_all(self) -> None:
        """Read and write until the end. After a cancellation, too, what was read is written."""
        writer, layout = self._writer, self._layout
        await writer.write_part(layout.format_start())
        try:
            while self._left and not await self._is_at_end():
                records = await self._request_records()
                if records:
                    if self._decoder is not None:
                        records = await self._decoder.decode_records(records)
                    await self._write_records(await self._choose_records(records))
                elif self._is_idle():
                    break
        except OutputError:
            raise
        except BaseException:
            await self._finish_writing()
            raise
        await self._finish_writing()

    async def _finish_writing(self) -> None:
        await self._writer.write_part(self._layout.format_end())
        await self._writer.flush_block()
        if self._given.commit:
            self._consumer.mark_processed()

    async def _request_records(self) -> Sequence[Record]:
        limit = LIST_RECORDS
        if not self._filters and self._most is None:
            limit = int(min(limit, self._left))
        try:
            records = await self._consumer.poll(0.0, limit, LIST_BYTES)
            if not records:
                await self._writer.flush_block()
                records = await self._consumer.poll(self._find_wait_s(), limit, LIST_BYTES)
        except (CorruptBatchError, DecompressionLimitError) as error:
            if not self._given.skip_errors:
                raise
            self._skip_batch(error)
            return ()
        return records

    def _skip_batch(self, error: CorruptBatchError | DecompressionLimitError) -> None:
        assert error.topic_partition is not None
        assert error.last_offset is not None
        write_error(f"Skipped: {one_line(error)}")
        self._consumer.seek(TopicPartition(*error.topic_partition), error.last_offset + 1)

    def _find_wait_s(self) -> float:
        """Return how long to wait for the next record, in seconds."""
        wait_s = math.inf
        if self._has_ends or self._most is not None:
            wait_s = LOOK_S
        if self._given.idle is not None:
            wait_s = min(wait_s, self._given.idle.seconds)
        if self._ends_at_ms < math.inf:
            wait_s = min(wait_s, max(self._ends_at_ms / 1000 - time.time(), 0.001))
        return wait_s

    def _is_idle(self) -> bool:
        idle = self._given.idle
        return idle is not None and asyncio.get_running_loop().time() - self._last_s >= idle.seconds

    async def _is_at_end(self) -> bool:
        """Return whether all partitions are at their ends."""
        if self._ends_at_ms <= time.time() * 1000:
            self._ends_at_ms = math.inf
            # What was looked up at the start is too old.
            await self._set_ends(Positions(self._consumer, self._tps))
        if not self._has_ends and self._most is None:
            return False
        assigned = self._consumer.assignment()
        if not assigned:
            return self._is_without_partitions()
        reached = []
        for tp in assigned & self._open:
            if await self._find_position(tp) >= self._ends[tp]:
                reached.append(tp)
        self._stop_partitions(reached)
        if self._has_ends:
            return not (assigned & self._open)
        return all(tp in self._ends for tp in assigned)

    def _is_without_partitions(self) -> bool:
        now = asyncio.get_running_loop().time()
        if self._listener is None or not self._listener.has_joined:
            return False
        if now - self._began_s < EMPTY_ASSIGNMENT_S:
            return False
        if not self._given.quiet:
            write_error("The group has assigned no partition, because it has other members.")
        return True

    async def _find_position(self, tp: TopicPartition) -> float:
        """Return the position of a partition, or -1 if it is not known."""
        try:
            return await self._consumer.position(tp, 0.0)
        except (ApiTimeoutError, IllegalStateError):  # It is being looked up, or was revoked.
            return -1

    def _stop_partitions(self, tps: Iterable[TopicPartition]) -> None:
        """Read no more of these partitions, which are at their ends."""
        for tp in tps:
            self._open.discard(tp)
            self._consumer.pause([tp])

    # -- records

    async def _choose_records(self, records: Sequence[Record]) -> Sequence[Record]:
        """Return those records of a list that are to be written."""
        self._last_s = asyncio.get_running_loop().time()
        if self._has_ends:
            records = await self._drop_beyond_ends(records)
        if self._filters:
            filters = self._filters
            records = [r for r in records if all(each.accepts_record(r) for each in filters)]
        if self._most is not None:
            records = self._choose_per_partition(records, self._most)
        if len(records) > self._left:
            count = int(self._left)
            self._return_to(first_offsets(records[count:]))
            records = records[:count]
        self._left -= len(records)
        return records

    async def _drop_beyond_ends(self, records: Sequence[Record]) -> Sequence[Record]:
        """Return those records that are before the ends, and move positions back to the ends."""
        ends: dict[Any, int] = {}
        for tp in self._open:
            # Few lists reach an end, so that looking at each record would cost more.
            if await self._find_position(tp) > self._ends[tp]:
                ends[tp] = self._ends[tp]
        if not ends:
            return records
        self._return_to(ends)
        return [r for r in records if r.offset < ends.get((r.topic, r.partition), math.inf)]

    def _choose_per_partition(self, records: Sequence[Record], most: int) -> Sequence[Record]:
        """Return at most so many records of each partition, counted from the start."""
        kept = []
        full = {}
        for record in records:
            key = (record.topic, record.partition)
            if self._counts[key] >= most:
                continue
            self._counts[key] += 1
            kept.append(record)
            if self._counts[key] == most:
                full[TopicPartition(*key)] = record.offset + 1
        self._ends |= full
        self._return_to(full)
        self._stop_partitions(full)
        return kept

    def _return_to(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Move positions back to records that were read and are not written."""
        for tp, offset in offsets.items():
            with contextlib.suppress(IllegalStateError):  # The partition was revoked.
                self._consumer.seek(tp, offset)

    async def _write_records(self, records: Sequence[Record]) -> None:
        while records:
            content, count, error = self._layout.format_records(records)
            await self._writer.write_part(content)
            if not error:
                break
            if not self._given.skip_errors:
                self._return_to(first_offsets(records[count:]))
                raise SerializationError(error)
            write_error(f"Skipped: {error}")
            records = records[count + 1 :]
        if self._given.commit:
            # What is written counts as processed at the next request, and may be committed then.
            await self._writer.flush_block()
