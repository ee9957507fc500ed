"""From fetched batches to lists of records, when the reader reaches them.

A step unpacks one large batch, or several small ones, into a `Chunk`. Checksum, decompression and
decoding of what would hold the loop happen in a thread, one batch ahead of the reader; all else is
done at once. User code (deserializers) runs in the loop, for a few milliseconds a step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from operator import length_hint
from typing import Final

from aiokclient.background import Callbacks
from aiokclient.consumer.deserialize import Deserializers, RawRecord
from aiokclient.consumer.effort import CONTENT, is_light
from aiokclient.consumer.fetch_buffer import Damage, Decoded, FetchBuffer, PartitionFetch
from aiokclient.consumer.positions import PartitionState
from aiokclient.errors import CorruptRecordError, RecordError
from aiokclient.record.batch import DEFAULT_LIMIT, Compression, RecordBatch

__all__ = ["Chunk", "Unpacker"]

GROUP_RECORDS: Final = 500
GROUP_BYTES: Final = 64 * 1024
GROUP_PACKED: Final = 8
"""What is compressed counts so many times as much: there may be a lot in it."""
STEP_S: Final = 0.005
"""How long a step may run user code."""


class Chunk:
    """Records of one partition, in order, and where the position is after them.

    `handed` counts those that were handed out. An `error` is raised in their place, `damage` is
    dealt with when all before it has been handed out.
    """

    __slots__ = (
        "damage",
        "epoch",
        "error",
        "fetch",
        "generation",
        "handed",
        "iterator",
        "next_offset",
        "records",
        "state",
    )

    def __init__(
        self,
        fetch: PartitionFetch,
        records: list[RawRecord],
        next_offset: int,
        epoch: int,
        *,
        error: RecordError | None = None,
        damage: Damage | None = None,
    ) -> None:
        self.fetch = fetch
        self.state: PartitionState = fetch.state
        self.generation = fetch.generation
        self.records = records
        self.next_offset = next_offset
        self.epoch = epoch
        self.error = error
        self.damage = damage
        self.handed = 0
        self.iterator: Iterator[RawRecord] | None = None

    @property
    def valid(self) -> bool:
        """Whether it may be handed out: no seek, pause or revocation came between."""
        return self.generation == self.state.generation and self.state.flowing

    @property
    def left(self) -> int:
        """How many records are not handed out."""
        return len(self.records) - self.handed

    def expose(self) -> Iterator[RawRecord]:
        """An iterator over what is left; `count` tells how far it went."""
        iterator = iter(self.records)
        iterator.__setstate__(self.handed)  # type: ignore[attr-defined]
        self.iterator = iterator
        return iterator

    def count(self) -> int:
        """How many records went out by the iterator and before."""
        return len(self.records) - length_hint(self.iterator)

    def offset_after(self, handed: int) -> int:
        """The position once so many records are handed out."""
        return self.records[handed].offset if handed < len(self.records) else self.next_offset


class Unpacker:
    """Takes the parts of a buffer in order. `wake` is called when a thread has finished."""

    def __init__(
        self,
        buffer: FetchBuffer,
        deserializers: Deserializers,
        wake: Callable[[], None],
        callbacks: Callbacks,
        *,
        check_crcs: bool = True,
    ) -> None:
        self._buffer = buffer
        self._deserializers = deserializers
        self._wake = wake
        self._callbacks = callbacks
        self._check_crcs = check_crcs
        self.limits: Mapping[PartitionState, int] = {}
        """Offsets at which an iteration to the end stops."""

    def step(self) -> Chunk | None:
        """The next chunk; it may hold no record but move the position. None: nothing is ready."""
        fetch = self._buffer.next()
        if fetch is None:
            return None
        if fetch.raw is None:
            if fetch.index >= len(fetch.batches):
                fetch.damage_told = True
                return Chunk(fetch, [], fetch.next_offset, -1, damage=fetch.damage)
            fetch.raw = self._decode(fetch)
            if fetch.raw is None:
                return None if fetch.job is not None else self.step()
        chunk = self._deserialize(fetch, fetch.raw)
        self._limit(chunk)
        return chunk

    def _decode(self, fetch: PartitionFetch) -> Decoded | None:
        """Some batches; None while a thread is at it, or if the first of them is damaged."""
        first = fetch.index
        records: list[RawRecord] = []
        epoch = fetch.batches[first].leader_epoch
        size = 0
        while fetch.index < len(fetch.batches):
            batch = fetch.batches[fetch.index]
            size += batch.size * GROUP_PACKED if batch.is_compressed else batch.size
            if fetch.index > first and (
                batch.leader_epoch != epoch
                or len(records) + batch.count > GROUP_RECORDS
                or size > GROUP_BYTES
            ):
                break
            try:
                found = self._read(fetch, batch)
            except CorruptRecordError as error:
                fetch.job = None
                fetch.damaged(Damage(max(batch.base_offset, 0), batch.last_offset, error))
                break
            if found is None:
                break
            records = records + found if records else found
            fetch.offset = batch.next_offset
            fetch.index += 1
        if fetch.index == first:
            return None
        return Decoded(records, fetch.offset, epoch)

    def _read(self, fetch: PartitionFetch, batch: RecordBatch) -> list[RawRecord] | None:
        if not fetch.visible[fetch.index]:
            # A marker decides what else is visible, so it is checked as well.
            if batch.is_control and self._check_crcs and not batch.check_crc():
                raise CorruptRecordError("the checksum of a control batch does not match")
            return []
        job = fetch.job
        if job is None:
            if is_light((batch,)):
                try:
                    return self._work(fetch, batch, CONTENT)()
                except CorruptRecordError:
                    # There may be more in it than that.
                    if batch.compression == Compression.NONE or not batch.valid:
                        raise
            job = fetch.job = self._start(fetch, batch)
        if not job.done():
            return None
        fetch.job = None
        records = job.result()
        self._start_ahead(fetch)
        return records

    def _work(
        self, fetch: PartitionFetch, batch: RecordBatch, limit: int = DEFAULT_LIMIT
    ) -> Callable[[], list[RawRecord]]:
        return partial(
            batch.records,
            *fetch.state.tp,
            fetch.offset,
            copy=not self._deserializers.views,
            check_crcs=self._check_crcs,
            limit=limit,
        )

    def _start(self, fetch: PartitionFetch, batch: RecordBatch) -> asyncio.Future[list[RawRecord]]:
        return self._callbacks.in_thread(self._work(fetch, batch), then=self._finished)

    def _start_ahead(self, fetch: PartitionFetch) -> None:
        """While the program is busy with this batch, a thread may decode the next."""
        following = fetch.index + 1
        if following < len(fetch.batches) and fetch.visible[following]:
            batch = fetch.batches[following]
            try:
                light = is_light((batch,))
            except CorruptRecordError:
                return  # No such codec: reading it says so.
            if not light:
                fetch.job = self._start(fetch, batch)

    def _finished(self, job: asyncio.Future[list[RawRecord]]) -> None:
        if not job.cancelled():
            job.exception()  # Raised where the result is taken; it may have become void.
        self._wake()

    def _deserialize(self, fetch: PartitionFetch, decoded: Decoded) -> Chunk:
        if decoded.error is not None:
            return self._error(fetch, decoded, decoded.error)
        if not self._deserializers:
            fetch.raw = None
            return Chunk(fetch, decoded.records, decoded.next_offset, decoded.epoch)
        apply, raw = self._deserializers.apply, decoded.records
        time = asyncio.get_running_loop().time
        until = time() + STEP_S
        records: list[RawRecord] = []
        begin = decoded.index
        while decoded.index < len(raw):
            try:
                record = apply(raw[decoded.index])
            except RecordError as error:
                if not records:
                    return self._error(fetch, decoded, error)
                decoded.error = error
                break
            except BaseException:
                decoded.index = begin  # What goes through here, KeyboardInterrupt say, loses none.
                raise
            decoded.index += 1
            if record is not None:
                records.append(record)
            if time() >= until:
                break
        return Chunk(fetch, records, self._behind(fetch, decoded), decoded.epoch)

    def _error(self, fetch: PartitionFetch, decoded: Decoded, error: RecordError) -> Chunk:
        decoded.error = None
        decoded.index += 1
        return Chunk(fetch, [], self._behind(fetch, decoded), decoded.epoch, error=error)

    def _behind(self, fetch: PartitionFetch, decoded: Decoded) -> int:
        """The position behind what is deserialized; lets go of what is used up."""
        if decoded.index < len(decoded.records):
            return decoded.records[decoded.index].offset
        fetch.raw = None
        return decoded.next_offset

    def _limit(self, chunk: Chunk) -> None:
        limit = self.limits.get(chunk.state)
        if limit is None or chunk.next_offset <= limit:
            return
        chunk.next_offset = limit
        chunk.records = [record for record in chunk.records if record.offset < limit]
        if chunk.error is not None and chunk.error.offset >= limit:
            chunk.error = None
