"""The conversion of fetched batches to Arrow tables of a limited size.

Batches that would block the event loop are converted in a thread. A batch that does not fit is read
in pieces (`RecordStream`), and the next table continues in its middle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from aiokclient.decoding.batches import CONTENT, Damage, is_light
from aiokclient.errors import CorruptRecordError
from aiokclient.memory import BufferPool
from aiokclient.record.batch import ContentLimitError, RecordBatch
from aiokclient.threads import run
from aiokclient.types import TopicPartition
from aiokclient.types.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokclient.record.arrow import TableBuilder
    from aiokclient.record.stream import RecordStream

KEPT: Final = 32 * 1024 * 1024
"""The maximum number of bytes of memory that freed tables leave for the next tables."""
PIECE: Final = 4 * 1024 * 1024
"""The size in bytes of the part of a large batch that is converted at a time."""
WHOLE: Final = 16 * 1024 * 1024
"""The largest decompressed size in bytes of a compressed batch that is converted as a whole."""
MOST_ROWS: Final = 1 << 20
"""The approximate limit for the number of rows of a table.

Each row takes 40 bytes in addition to its key, value, and headers.
"""
LARGEST: Final = 1 << 30
"""The limit for the size of a table in bytes, because no column can have 2 GiB."""


class Converted(NamedTuple):
    """A table, and the offset at which the next one begins."""

    table: Any
    """The table, or None if the batches have no records for the application."""
    used: int
    """Number of batches that were read to their ends."""
    offset: int
    epoch: int
    rest: RecordStream | None = None
    """The rest of the next batch, if a part of it was read."""
    damage: Damage | None = None
    """The damage because of which the next batch cannot be read."""


class TableConverter:
    """The converter of batches to tables of about `max_bytes` at most, whose columns fit in 2 GiB.

    `limit` is the largest permitted size in bytes of a decompressed batch. `columns` has the names
    of the tables' columns, or None for all. The tables have no records from `end_offset` on.
    """

    def __init__(
        self,
        *,
        max_bytes: int,
        limit: int,
        check_crcs: bool = True,
        columns: Sequence[str] | None = None,
        end_offset: int | None = None,
    ) -> None:
        self.max_bytes = min(max_bytes, LARGEST)
        self.limit = limit
        self.check_crcs = check_crcs
        self._columns = columns
        self.end_offset = end_offset
        self._pool = BufferPool(KEPT)

    async def convert_next(
        self,
        tp: TopicPartition,
        batches: Sequence[RecordBatch],
        offset: int,
        stream: RecordStream | None,
    ) -> Converted:
        """Convert as many batches as fit into a table, here or in a thread. See `convert`."""
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
            return is_light(batches) and sum(b.size for b in batches) <= self.max_bytes
        except CorruptRecordError:
            return False  # The codec is unknown. Reading the batch raises the error.

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
        from aiokclient.record.arrow import COLUMNS, TableBuilder

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
            most=self.max_bytes,
            check_crcs=self.check_crcs,
            pool=self._pool,
            columns=COLUMNS if self._columns is None else self._columns,
            end_offset=self.end_offset,
        )
        if light is not None and light * len(batches) <= self.max_bytes and rows <= MOST_ROWS:
            try:
                return self._convert_light(builder, batches, offset, min(light, self.limit))
            except ContentLimitError:
                raise
            except CorruptRecordError:  # Convert one by one, to find the damaged batch.
                return self.convert(tp, batches, offset, None, None)
        filling = _Filling(self, builder, offset, light)
        for index, batch in enumerate(batches):
            try:
                whole = filling.add_batch(batch, stream)
            except CorruptRecordError as error:
                if light is not None and isinstance(error, ContentLimitError):
                    raise
                if index:
                    return self.convert(tp, batches[:index], offset, None, light)
                return Converted(None, 0, offset, -1, damage=Damage.of(batch, error))
            stream = None
            if not whole:
                return filling.build_result(index)
        return filling.build_result(len(batches))

    def _convert_light(
        self, builder: TableBuilder, batches: Sequence[RecordBatch], offset: int, limit: int
    ) -> Converted:
        """Convert batches that certainly fit into one table. This is the fast, usual case."""
        count = 0
        for batch in batches:
            if not batch.is_control:
                count = builder.add(batch, offset, limit)
            elif self.check_crcs and not batch.check_crc():
                raise CorruptRecordError("The checksum of a control batch does not match.")
        last = batches[-1]
        table = builder.table() if count else None
        return Converted(table, len(batches), last.next_offset, last.leader_epoch)


class _Filling:
    """The fill level of one table."""

    def __init__(
        self,
        converter: TableConverter,
        builder: TableBuilder,
        offset: int,
        light: int | None,
    ) -> None:
        self._converter = converter
        self._room = converter.max_bytes
        self._builder = builder
        self._offset = offset
        self._epoch = -1
        self._count = 0
        self._light = light
        self._rest: RecordStream | None = None

    def build_result(self, count: int) -> Converted:
        table = self._builder.table() if self._count else None
        return Converted(table, count, self._offset, self._epoch, self._rest)

    def add_batch(self, batch: RecordBatch, stream: RecordStream | None) -> bool:
        """Add a batch, or the rest of it. Return False if a part does not fit in the table."""
        if batch.is_control:
            if self._converter.check_crcs and not batch.check_crc():
                raise CorruptRecordError("The checksum of a control batch does not match.")
        elif stream is not None or not self._add_whole(batch):
            if self._is_full:
                return False
            if stream is None:
                # Few topics have such batches, so the module is not imported with the consumer.
                from aiokclient.record.stream import RecordStream

                given = self._converter
                stream = RecordStream(batch, check_crcs=given.check_crcs, limit=given.limit)
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
        light, limit = self._light, self._converter.limit
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
        builder, end_offset = self._builder, self._converter.end_offset
        while not self._is_full and (end_offset is None or stream.next_offset < end_offset):
            size = max(min(self._room, PIECE), 1)
            piece = stream.take(size, first=self._count == 0)
            if piece is None:
                return
            stream.expect(builder.add_part(batch, piece, self._offset))
            if builder.count > self._count:
                self._count = builder.count
                self._room -= len(piece.content)
