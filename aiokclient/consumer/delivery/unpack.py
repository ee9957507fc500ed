"""The conversion of fetched batches to lists of records, when the reading task reaches them.

A step unpacks one large batch, or several small ones, into a `Chunk`. Batches that would block the
event loop are checked, decompressed and decoded in a thread, one batch ahead of the reading task.
All other batches are unpacked in the event loop. A very large batch is read in parts, each of which
is a chunk. So a consumer has at most two parts in memory besides the delivered records. User code
(deserializers) runs in the event loop, for a few milliseconds per step.

`is_light` in `aiokclient.decoding.batches` decides between the event loop and a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterator, Mapping
from functools import partial
from itertools import islice
from operator import length_hint
from typing import TYPE_CHECKING, Final

from aiokclient._native import chosen
from aiokclient.background import Wakeup
from aiokclient.cluster.lifecycle.ownership import Anchor
from aiokclient.cluster.lifecycle.supervisor import Callbacks
from aiokclient.config.consumer import ConsumerConfig
from aiokclient.consumer.fetching.buffer import FetchBuffer, PartitionFetch
from aiokclient.consumer.state.partition import PartitionState
from aiokclient.decoding.batches import (
    CONTENT,
    Damage,
    Loaded,
    check_marker,
    is_light,
    load,
    load_part,
    size_of,
)
from aiokclient.decoding.deserialize import Deserializers, RawRecord
from aiokclient.decoding.preparation import TOGETHER
from aiokclient.errors import CorruptRecordError, RecordError
from aiokclient.record.batch import ContentLimitError, RecordBatch
from aiokclient.record.compression import MANY_BLOCKS

if TYPE_CHECKING:
    from aiokclient.consumer.delivery.preparation import Preparations, WithheldRecords

GROUP_RECORDS: Final = chosen(native=2500, pure=500)
GROUP_BYTES: Final = chosen(native=256 * 1024, pure=64 * 1024)
"""The most records and bytes of small batches that are unpacked together. Then the steps that a
chunk takes, about 35 calls in Python, are those of several batches. More would leave the
processor's cache before they are delivered.
"""
GROUP_PACKED: Final = chosen(native=32, pure=8)
"""The factor by which the size of a compressed batch counts when small batches are grouped."""
LIGHT_SIZE: Final = MANY_BLOCKS * GROUP_PACKED
"""The size up to which a group is light with any codec, if it has at most GROUP_RECORDS records."""
NO_DESERIALIZERS: Final = Deserializers()
STEP_S: Final = 0.005
"""Seconds for which a step may run user code."""


class Decoded:
    """Decoded records of a part; from `index` on they are not yet deserialized."""

    __slots__ = ("epoch", "error", "index", "next_offset", "preparation", "records", "size")

    def __init__(self, records: list[RawRecord], next_offset: int, epoch: int, size: int) -> None:
        self.records = records
        self.size = size
        """The size of the records in bytes, which includes at least keys, values, and headers."""
        self.next_offset = next_offset
        self.epoch = epoch
        self.index = 0
        self.error: RecordError | None = None
        """The error of the record at `index`, or None.

        It is raised after the records before `index` are delivered.
        """
        self.preparation: WithheldRecords | None = None
        """The preparation of the record at `index`, or None if it need not be prepared."""

    @property
    def is_waiting(self) -> bool:
        """Whether the record at `index` must be prepared first."""
        return self.preparation is not None and not self.preparation.has_ended

    def advance_to(self, index: int, error: RecordError | None = None) -> None:
        """Mark the records before `index` as deserialized.

        `error` is the error of the record at `index`, if it has one.
        """
        self.index, self.error = index, error

    @property
    def is_deserialized(self) -> bool:
        """Whether all records are deserialized."""
        return self.index >= len(self.records)


class Chunk:
    """Records of one partition, in order, and the position after them.

    `delivered` is the number of delivered records. An `error` is raised instead of records.
    `damage` is handled when all records before it have been delivered.

    `size` is an upper bound for the size of keys, values and headers, in bytes as fetched. `share`
    is an estimate of that size if the chunk has only some of the records decoded together.
    """

    __slots__ = (
        "damage",
        "delivered",
        "epoch",
        "error",
        "fetch",
        "generation",
        "iterator",
        "next_offset",
        "raw",
        "records",
        "share",
        "size",
        "sizes",
        "state",
    )

    def __init__(
        self,
        fetch: PartitionFetch,
        records: list[RawRecord],
        next_offset: int,
        epoch: int,
        *,
        size: int = 0,
        raw: Decoded | None = None,
        error: RecordError | None = None,
        damage: Damage | None = None,
    ) -> None:
        self.raw = raw
        self.share = self.size = size
        self.sizes: dict[int, int] | None = None  # The sizes by offset, computed when needed.
        if raw is not None:
            self.size = self.share = raw.size
            if len(records) < len(raw.records):
                self.share = raw.size * len(records) // len(raw.records) + 1
        self.fetch = fetch
        self.state: PartitionState = fetch.state
        self.generation = fetch.generation
        self.records = records
        self.next_offset = next_offset
        self.epoch = epoch
        self.error = error
        self.damage = damage
        self.delivered = 0
        self.iterator: Iterator[RawRecord] | None = None

    @property
    def is_valid(self) -> bool:
        """Whether the chunk may be delivered: no seek, pause, or revocation has followed."""
        return self.generation == self.state.generation and self.state.is_readable

    def take_records(self, most: int, size: int, *, first: bool) -> tuple[list[RawRecord], int]:
        """Take at most `most` records of at most `size` bytes. Return them and their size.

        With `first`, at least one record is taken, whatever its size.
        """
        if self.size <= size:
            taken = self.size  # An upper bound of the size.
        else:
            most, taken = self._count_fitting(most, size, first)
        begin, self.delivered = self.delivered, min(self.delivered + most, len(self.records))
        if begin == 0 and self.delivered == len(self.records):
            return self.records, taken
        return self.records[begin : self.delivered], taken

    def _count_fitting(self, most: int, size: int, first: bool) -> tuple[int, int]:
        sizes = self.sizes
        if sizes is None:
            fetched = self.records if self.raw is None else self.raw.records
            sizes = self.sizes = {record.offset: size_of(record) for record in fetched}
        count = taken = 0
        for record in self.records[self.delivered : self.delivered + most]:
            more = sizes.get(record.offset, 0)
            if taken + more > size and (count or not first):
                break
            count += 1
            taken += more
        return count, taken

    def expose_records(self) -> Iterator[RawRecord]:
        """Return an iterator over the records that are left.

        `count_delivered` finds out how far it went.
        """
        iterator = iter(self.records)
        iterator.__setstate__(self.delivered)  # type: ignore[attr-defined]
        self.iterator = iterator
        return iterator

    def count_delivered(self) -> int:
        """Count the records that the iterator has delivered; return how many are new."""
        before = self.delivered
        self.delivered = len(self.records) - length_hint(self.iterator)
        return self.delivered - before

    def mark_delivered(self, count: int) -> None:
        """Count the next records as delivered."""
        self.delivered += count

    def cut_records(self, limit: int) -> None:
        """Remove the records from this offset on."""
        self.next_offset = limit
        self.records = [record for record in self.records if record.offset < limit]
        if self.error is not None and self.error.offset >= limit:
            self.error = None


class Unpacker:
    """The unpacking of a buffer's parts, in order. `arrived` is set when a thread has finished."""

    def __init__(
        self,
        buffer: FetchBuffer,
        deserializers: Deserializers,
        arrived: Wakeup,
        callbacks: Callbacks,
        config: ConsumerConfig,
        preparations: Preparations | None = None,
    ) -> None:
        self._buffer = buffer
        self._owned = Anchor(deserializers)
        self._deserializes = bool(deserializers)
        self._copies = not deserializers.views
        self._preparations = preparations
        """The preparations, or None if no record has to be prepared."""
        self._arrived = arrived
        self._callbacks = callbacks
        self._check_crcs = config.check_crcs
        self.limit_bytes = config.max_decompressed_batch_bytes
        self._size = 0
        """The size in bytes of the records that were read last: a batch, or a part of one."""
        self._limits: Mapping[PartitionState, int] = {}

    def get_deserializers(self) -> Deserializers:
        """Return the application's deserializers, which only the consumer keeps alive."""
        given = self._owned.get()
        return NO_DESERIALIZERS if given is None else given

    def set_limits(self, offsets: Mapping[PartitionState, int]) -> None:
        """Stop unpacking at these end offsets of an iteration."""
        self._limits = offsets

    def lift_limits(self) -> bool:
        """Remove the limits that `set_limits` has set. Return whether there were any."""
        limited, self._limits = bool(self._limits), {}
        return limited

    def read_raw(self, raw: bool) -> None:
        """Deliver keys and values as bytes from now on, or deserialize them again."""
        given = self.get_deserializers()
        self._deserializes = bool(given) and not raw
        self._copies = raw or not given.views

    def unpack_next(self, apart: Container[PartitionState] = ()) -> Chunk | None:
        """Return the next chunk, or None if nothing is ready.

        A chunk may have no records, and only move the position. No chunk of the partitions in
        `apart` is returned.
        """
        fetch = self._buffer.get_next(apart)
        if fetch is None:
            return None
        decoded = fetch.raw
        if decoded is not None and decoded.is_waiting:
            fetch = self._buffer.get_next_prepared(apart)
            if fetch is None:
                return None
            decoded = fetch.raw
        if decoded is not None:
            chunk = self._deserialize_records(fetch, decoded)
        elif fetch.index >= len(fetch.batches):
            return Chunk(fetch, [], fetch.next_offset, -1, damage=fetch.take_damage())
        else:
            found = self._decode_together(fetch) or self._decode_batch(fetch)
            if found is None:
                return None if fetch.job is not None else self.unpack_next(apart)
            records, epoch, size = found
            if self._deserializes:
                decoded = Decoded(records, fetch.offset, epoch, size)
                fetch.store_decoded(decoded)
                chunk = self._deserialize_records(fetch, decoded)
            else:
                chunk = Chunk(fetch, records, fetch.offset, epoch, size=size)
        if self._limits:
            self._cut_at_limit(chunk)
        return chunk

    def _decode_together(self, fetch: PartitionFetch) -> tuple[list[RawRecord], int, int] | None:
        """Decode the next batches in the event loop: one large batch, or several small ones.

        Return the records, their leader epoch, and their size in bytes. Return None if the batches
        must be read one by one, because a thread should read one of them, or one is damaged.
        """
        first, batches = fetch.index, fetch.batches
        if fetch.job is not None or fetch.stream is not None:
            return None
        epoch = batches[first].leader_epoch
        count = size = 0
        stop = first
        for batch in islice(batches, first, None):
            count += batch.count
            size += batch.size * GROUP_PACKED if batch.is_compressed else batch.size
            if stop > first and (
                batch.leader_epoch != epoch or count > GROUP_RECORDS or size > GROUP_BYTES
            ):
                break
            stop += 1
        records: list[RawRecord] = []
        taken = 0
        topic, partition = fetch.state.tp
        limit = min(CONTENT, self.limit_bytes)
        try:
            # Most groups are light by these limits, so that the codecs need not be looked up.
            if (size > LIGHT_SIZE or count > GROUP_RECORDS) and not is_light(batches[first:stop]):
                return None
            for index in range(first, stop):
                batch = batches[index]
                if not fetch.visible[index]:
                    check_marker(batch, check_crcs=self._check_crcs)
                    continue
                found = batch.records(
                    topic,
                    partition,
                    fetch.offset,
                    copy=self._copies,
                    check_crcs=self._check_crcs,
                    limit=limit,
                )
                taken += batch.content_size
                if records:
                    records += found
                else:
                    records = found
        except CorruptRecordError:  # Damage, or more content than the event loop should decode.
            return None
        fetch.pass_batches(stop - first)
        return records, epoch, taken

    def _decode_batch(self, fetch: PartitionFetch) -> tuple[list[RawRecord], int, int] | None:
        """Decode the next batch, or a part of it, and return the same as `_decode_together`.

        Return None if a thread decodes it, or if it is damaged.
        """
        batch = fetch.batches[fetch.index]
        try:
            records = self._read_batch(fetch, batch)
        except CorruptRecordError as error:
            fetch.end_before_damage(Damage.of(batch, error))
            return None
        if records is None:
            return None
        if fetch.stream is None:
            fetch.pass_batches(1)
        elif records:  # Only a part of the batch was read.
            fetch.continue_at(records[-1].offset + 1)
        return records, batch.leader_epoch, self._size

    def _read_batch(self, fetch: PartitionFetch, batch: RecordBatch) -> list[RawRecord] | None:
        if not fetch.visible[fetch.index]:
            check_marker(batch, check_crcs=self._check_crcs)
            self._size = 0
            return []
        job = fetch.job
        if job is None:
            if fetch.stream is None and is_light((batch,)):
                try:
                    records = batch.records(
                        *fetch.state.tp,
                        fetch.offset,
                        copy=self._copies,
                        check_crcs=self._check_crcs,
                        limit=min(CONTENT, self.limit_bytes),
                    )
                except ContentLimitError:
                    pass  # The batch contains more than the event loop should decode.
                else:
                    self._size = batch.content_size
                    return records
            job = self._start_job(fetch, batch)
        if not job.done():
            return None
        found = fetch.finish_job()
        self._size = found.size
        if found.rest is not None:
            self._start_job(fetch, batch)
        else:
            self._start_next_job(fetch)
        return found.records

    def _start_job(self, fetch: PartitionFetch, batch: RecordBatch) -> asyncio.Future[Loaded]:
        """Start to read the batch, or the next part of it, in a thread."""
        copy = self._copies
        if fetch.stream is not None:
            work = partial(load_part, fetch.stream, fetch.state.tp, fetch.offset, copy)
        else:
            limit, check = self.limit_bytes, self._check_crcs
            work = partial(load, batch, fetch.state.tp, fetch.offset, copy, check, limit)
        job = self._callbacks.call_in_thread(work, then=self._on_job_done)
        fetch.store_job(job)
        return job

    def _start_next_job(self, fetch: PartitionFetch) -> None:
        """Start to decode the next batch in a thread, while the application processes this one."""
        following = fetch.index + 1
        if following < len(fetch.batches) and fetch.visible[following]:
            batch = fetch.batches[following]
            try:
                light = is_light((batch,))
            except CorruptRecordError:
                return  # The codec is unknown. Reading the batch raises the error.
            if not light:
                self._start_job(fetch, batch)

    def _on_job_done(self, job: asyncio.Future[Loaded]) -> None:
        if not job.cancelled():
            # Mark the error as retrieved. It is raised later if the result is still needed.
            job.exception()
        self._arrived.set()

    def _deserialize_records(self, fetch: PartitionFetch, decoded: Decoded) -> Chunk:
        if decoded.error is not None:
            return self._make_error_chunk(fetch, decoded, decoded.error)
        given, raw = self.get_deserializers(), decoded.records
        apply, preparations = given.deserialize_record, self._preparations
        time = asyncio.get_running_loop().time
        until = time() + STEP_S
        records: list[RawRecord] = []
        index, failure = decoded.index, None
        # The progress is stored at the end, so that no record is lost by a KeyboardInterrupt.
        while index < len(raw):
            unprepared = None
            if preparations is not None and (unprepared := given.find_unprepared(raw[index])):
                ended = preparations.take_ended(raw[index], preparations.deserializers)
                if ended is not None:
                    unprepared = ended.refusal
                elif unprepared.error is None:
                    following = raw[index : index + TOGETHER]
                    preparation = preparations.begin_preparation(
                        fetch.state, following, preparations.deserializers
                    )
                    if not records:
                        decoded.preparation = preparation
                    break
            try:
                if unprepared is None:
                    record = apply(raw[index])
                else:
                    record = given.refuse_record(raw[index], unprepared)
            except RecordError as error:
                failure = error
                break
            index += 1
            if record is not None:
                records.append(record)
            if time() >= until:
                break
        decoded.advance_to(index, failure)
        if failure is not None and not records:
            return self._make_error_chunk(fetch, decoded, failure)
        return Chunk(fetch, records, self._offset_after(fetch, decoded), decoded.epoch, raw=decoded)

    def _make_error_chunk(
        self, fetch: PartitionFetch, decoded: Decoded, error: RecordError
    ) -> Chunk:
        decoded.advance_to(decoded.index + 1)
        return Chunk(fetch, [], self._offset_after(fetch, decoded), decoded.epoch, error=error)

    def _offset_after(self, fetch: PartitionFetch, decoded: Decoded) -> int:
        """Return the position after the deserialized records.

        If no record is left to deserialize, drop the decoded records.
        """
        if not decoded.is_deserialized:
            return decoded.records[decoded.index].offset
        fetch.store_decoded(None)
        return decoded.next_offset

    def _cut_at_limit(self, chunk: Chunk) -> None:
        limit = self._limits.get(chunk.state)
        if limit is not None and chunk.next_offset > limit:
            chunk.cut_records(limit)
