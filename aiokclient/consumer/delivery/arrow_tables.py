"""The conversion of fetched parts to Arrow tables of a limited size.

A table has records of one partition: as many of the remaining records of a fetched part as fit.
Batches that would block the event loop are converted in a thread. A batch that does not fit is read
in pieces (`RecordStream`), and the next table continues in its middle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aiokclient.buffers import BufferPool
from aiokclient.consumer.delivery.decode_cost import CONTENT, is_light
from aiokclient.consumer.delivery.read_lock import Cursor
from aiokclient.consumer.delivery.reader import Reader
from aiokclient.consumer.fetching.buffer import Damage, PartitionFetch
from aiokclient.errors import CorruptRecordError
from aiokclient.record.batch import ContentLimitError, RecordBatch
from aiokclient.record.stream import RecordStream
from aiokclient.threads import run
from aiokclient.types import TopicPartition

if TYPE_CHECKING:
    from aiokclient.record.arrow import TableBuilder

__all__ = ["ArrowTables"]

KEPT: Final = 32 * 1024 * 1024
"""Bytes of memory of earlier tables that are kept for the next ones."""
PIECE: Final = 4 * 1024 * 1024
"""Bytes of records of a large batch that are converted at a time."""
WHOLE: Final = 16 * 1024 * 1024
"""Bytes of records in a compressed batch that is converted in one go."""
MOST_ROWS: Final = 1 << 20
"""The approximate limit for the rows of a table. Each takes 40 bytes plus key, value, headers."""
LARGEST: Final = 1 << 30
"""The limit for the bytes of a table, because no column can have 2 GiB."""


class Converted(NamedTuple):
    """A table, and the offset at which the next one begins."""

    table: Any
    """None if the batches have no records for the application."""
    used: int
    """Number of batches that were read to their ends."""
    offset: int
    epoch: int
    rest: RecordStream | None = None
    """The rest of the next batch, if a part of it was read."""
    damage: Damage | None = None
    """The damage because of which the next batch cannot be read."""


class ArrowTables:
    """The converter of a reader's fetched parts to Arrow tables."""

    def __init__(self, reader: Reader, *, max_bytes: int, limit: int, check_crcs: bool) -> None:
        self._reader = reader
        self._max_bytes = min(max_bytes, LARGEST)
        self._limit = limit
        self._check_crcs = check_crcs
        self._pool = BufferPool(KEPT)

    async def next(self, cursor: Cursor) -> Any:
        """Return the next table; None when the consumer was stopped."""
        reader = self._reader
        with reader.read_lock.enter(cursor):
            await reader.begin(cursor)
            while (fetch := await reader.part()) is not None:
                part, jumps = fetch.rest(self._max_bytes), fetch.state.jumps
                try:
                    found = await self._convert(fetch, part)
                except BaseException:
                    fetch.rewind()  # Read again the records that were not delivered.
                    raise
                # The part may have become invalid during the conversion, or the session has ended.
                reader.look()
                if fetch.alive and fetch.state.flowing and fetch.state.jumps == jumps:
                    self._take(fetch, part, found)
                    if found.table is not None:
                        size = sum(fetch.batches[index].size for index in part[: found.used])
                        reader.meters.table(fetch.state.tp.topic, found.table, size)
                        return found.table
                else:
                    fetch.rewind()
                await reader.yield_to_loop()
        reader.leave(cursor)
        return None

    async def _convert(self, fetch: PartitionFetch, part: Sequence[int]) -> Converted:
        batches = [fetch.batches[index] for index in part]
        tp, offset, stream = fetch.state.tp, fetch.offset, fetch.stream
        if not batches:
            return Converted(None, 0, offset, -1)
        if stream is None and self._may_be_light(batches):
            try:
                return self.convert(tp, batches, offset, None, CONTENT // len(batches))
            except ContentLimitError:
                pass  # The batches contain more than the event loop should decode.
        return await run(self.convert, tp, batches, offset, stream, None)

    def _may_be_light(self, batches: Sequence[RecordBatch]) -> bool:
        try:
            return is_light(batches) and sum(b.size for b in batches) <= self._max_bytes
        except CorruptRecordError:
            return False  # The codec is unknown. Reading the batch raises the error.

    def _take(self, fetch: PartitionFetch, part: Sequence[int], found: Converted) -> None:
        """Move the position after the converted records and after skipped ones."""
        out = found.table is not None
        offset, epoch = found.offset, found.epoch
        if found.used < len(part):
            index = part[found.used]
        elif part and sum(fetch.batches[index].size for index in part) > self._max_bytes:
            index = part[-1] + 1  # The batch may have more records.
        else:
            index = len(fetch.batches)
        if index == len(fetch.batches) and fetch.batches:
            last = fetch.batches[-1]
            offset, epoch = last.next_offset, last.leader_epoch
        fetch.advance(index, found.rest)
        if offset > fetch.offset:
            fetch.part_read(offset)
            self._reader.advanced(fetch, epoch, out=out)
        if found.damage is not None:
            fetch.damaged(found.damage)
        if fetch.index >= len(fetch.batches):
            self._reader.finished(fetch)

    # -- in a thread, or in the loop for what is light

    def convert(
        self,
        tp: TopicPartition,
        batches: Sequence[RecordBatch],
        offset: int,
        stream: RecordStream | None,
        light: int | None,
    ) -> Converted:
        """Convert as many batches as fit into a table, from `offset` on.

        `stream` has the rest of the first batch if a part of it was read. `light` limits the
        decompressed size of a batch in bytes. Raises ContentLimitError if a batch exceeds it.
        """
        from aiokclient.record.arrow import TableBuilder

        rows = size = 0
        native = True
        for batch in batches:
            rows += batch.count
            size += batch.size
            native = native and batch.magic > 1
        builder = TableBuilder(
            *tp,
            native=native,
            rows=max(min(rows, size, MOST_ROWS), 0),
            size=size,
            most=self._max_bytes,
            check_crcs=self._check_crcs,
            pool=self._pool,
        )
        if light is not None and light * len(batches) <= self._max_bytes and rows <= MOST_ROWS:
            try:
                return self._convert_light(builder, batches, offset, min(light, self._limit))
            except ContentLimitError:
                raise
            except CorruptRecordError:  # Convert one by one, to find the damaged batch.
                return self.convert(tp, batches, offset, None, None)
        filling = _Filling(builder, offset, self._max_bytes, self._limit, light, self._check_crcs)
        for index, batch in enumerate(batches):
            try:
                whole = filling.add(batch, stream)
            except CorruptRecordError as error:
                if light is not None and isinstance(error, ContentLimitError):
                    raise
                if index:
                    return self.convert(tp, batches[:index], offset, None, light)
                return Converted(None, 0, offset, -1, damage=Damage.of(batch, error))
            stream = None
            if not whole:
                return filling.converted(index)
        return filling.converted(len(batches))

    def _convert_light(
        self, builder: TableBuilder, batches: Sequence[RecordBatch], offset: int, limit: int
    ) -> Converted:
        """Convert batches that fit into one table in any case. This is the fast, usual case."""
        count = 0
        for batch in batches:
            if not batch.is_control:
                count = builder.add(batch, offset, limit)
            elif self._check_crcs and not batch.check_crc():
                raise CorruptRecordError("The checksum of a control batch does not match.")
        last = batches[-1]
        table = builder.table() if count else None
        return Converted(table, len(batches), last.next_offset, last.leader_epoch)


class _Filling:
    """The fill level of one table."""

    def __init__(
        self,
        builder: TableBuilder,
        offset: int,
        room: int,
        limit: int,
        light: int | None,
        check_crcs: bool,
    ) -> None:
        self._limit = limit
        self._check_crcs = check_crcs
        self._room = room
        self._builder = builder
        self._offset = offset
        self._epoch = -1
        self._count = 0
        self._light = light
        self._rest: RecordStream | None = None

    def converted(self, count: int) -> Converted:
        table = self._builder.table() if self._count else None
        return Converted(table, count, self._offset, self._epoch, self._rest)

    def add(self, batch: RecordBatch, stream: RecordStream | None) -> bool:
        """Add a batch, or the rest of it. Return False if the table is full before its end."""
        if batch.is_control:
            if self._check_crcs and not batch.check_crc():
                raise CorruptRecordError("The checksum of a control batch does not match.")
        elif stream is not None or not self._add_whole(batch):
            if self._is_full:
                return False
            if stream is None:
                stream = RecordStream(batch, check_crcs=self._check_crcs, limit=self._limit)
            self._add_pieces(batch, stream)
            if not stream.done:
                self._offset = max(self._offset, stream.next_offset)
                self._epoch, self._rest = batch.leader_epoch, stream
                return False
        self._offset, self._epoch = batch.next_offset, batch.leader_epoch
        return True

    @property
    def _is_full(self) -> bool:
        return self._count > 0 and (self._room <= 0 or self._count >= MOST_ROWS)

    def _add_whole(self, batch: RecordBatch) -> bool:
        """Add the batch as a whole unless it is too large. Return whether it was added."""
        light, limit = self._light, self._limit
        if batch.magic > 1:
            if light is None:
                light = WHOLE
                if batch.size > min(light, self._room) and not batch.is_compressed:
                    return False
            limit = min(limit, light, max(self._room, 0))
            if self._count + batch.count > MOST_ROWS:
                return False
        try:
            count = self._builder.add(batch, self._offset, limit)
        except ContentLimitError:
            if self._light is not None or batch.magic <= 1:
                raise
            return False
        if count > self._count:
            self._count = count
            self._room -= batch.content_size
        return True

    def _add_pieces(self, batch: RecordBatch, stream: RecordStream) -> None:
        builder = self._builder
        while not self._is_full:
            size = max(min(self._room, PIECE), 1)
            piece = stream.take(size, first=self._count == 0)
            if piece is None:
                return
            stream.expect(builder.add_part(batch, piece, self._offset))
            if builder.count > self._count:
                self._count = builder.count
                self._room -= len(piece.content)
