"""Reading a large batch in pieces, so that not all of its records are in memory at once.

The content is decompressed piece by piece, if the codec allows it, and pieces end between records.
Batches of formats v0 and v1 cannot be read in pieces, but they are small.
"""

from __future__ import annotations

from collections.abc import Iterator

from aiokclient.errors import CorruptRecordError
from aiokclient.record._pure.decode import read_varint
from aiokclient.record.batch import HEADER_SIZE, RecordBatch, span
from aiokclient.record.compression import measure, pieces
from aiokclient.record.crc import Buffer
from aiokclient.types import ConsumerRecord

MOST_RECORDS = 65_536
"""Largest number of records in a piece, because the objects of small records take much memory."""


class Piece:
    """The bytes of some records, their number, and the smallest permitted first offset delta."""

    __slots__ = ("content", "count", "expected")

    def __init__(self, content: memoryview, count: int, expected: int) -> None:
        self.content = content
        self.count = count
        self.expected = expected


class RecordStream:
    """The records of one batch, piece by piece. Only one thread may use it at a time.

    All methods raise CorruptRecordError for a damaged batch, possibly after some pieces, and
    ContentLimitError before the first piece if there are more than `limit` bytes of content.
    """

    def __init__(self, batch: RecordBatch, *, check_crcs: bool, limit: int) -> None:
        self.batch = batch
        self._check_crcs = check_crcs
        self._limit = limit
        self._pieces: Iterator[Buffer] = iter(())
        self._data = memoryview(b"")
        self._at = 0
        self._left = batch.count
        self._expected = 0
        self._opened = False

    @property
    def done(self) -> bool:
        """Whether `take` has returned the last record."""
        return self._opened and not self._left

    @property
    def next_offset(self) -> int:
        """The smallest offset that the next record may have."""
        return self.batch.base_offset + self._expected

    def _open_content(self) -> None:
        self._opened = True
        batch = self.batch
        if self._check_crcs and not batch.check_crc():
            raise CorruptRecordError("The checksum is wrong.")
        codec = batch.compression
        content = batch.buffer[HEADER_SIZE:]
        measure(codec, content, self._limit)
        self._pieces = pieces(codec, content)
        if not self._left:
            self._check_end()

    def take(self, size: int, *, first: bool = True) -> Piece | None:
        """Return the next records, which have at most `size` bytes.

        If the next record alone is larger than `size`, the result is that record if `first` is
        true, and otherwise None. None also means that there are no more records.
        """
        if not self._opened:
            self._open_content()
        while self._left:
            count, end = span(self._data, self._at, min(self._left, MOST_RECORDS), size)
            if count:
                return self._cut_records(count, end)
            need = self._next_size()
            if need > len(self._data) - self._at:
                self._decompress_until(need)
            elif first:
                return self._cut_records(1, self._at + need)
            else:
                return None
        return None

    def records(
        self, topic: str, partition: int, start_offset: int, size: int, *, copy: bool
    ) -> tuple[list[ConsumerRecord[bytes, bytes]], int]:
        """Return the next records from `start_offset` on, and their size in bytes.

        The list is empty when there are no more. `size` is as in `take`.
        """
        found: list[ConsumerRecord[bytes, bytes]] = []
        taken = 0
        while not found and (piece := self.take(size)) is not None:
            found = self.batch.part_records(
                topic, partition, piece.content, piece.count, piece.expected, start_offset, copy
            )
            taken = len(piece.content)
            if found:
                self.expect(found[-1].offset - self.batch.base_offset + 1)
        return found, taken

    def expect(self, delta: int) -> None:
        """Require the offset delta of the next record to be at least `delta`."""
        self._expected = max(self._expected, delta)

    def _cut_records(self, count: int, end: int) -> Piece:
        piece = Piece(self._data[self._at : end], count, self._expected)
        self._at = end
        self._left -= count
        if not self._left:
            self._check_end()
        return piece

    def _check_end(self) -> None:
        if self._at < len(self._data) or any(len(piece) for piece in self._pieces):
            raise CorruptRecordError("Bytes are left over after the last record.")
        self._data = memoryview(b"")

    def _next_size(self) -> int:
        """Return the size of the next record.

        If it is not known yet, return one byte more than has been decompressed.
        """
        try:
            length, position = read_varint(self._data, self._at)
        except IndexError:
            return len(self._data) - self._at + 1
        return position - self._at + length

    def _decompress_until(self, need: int) -> None:
        """Decompress until at least `need` bytes are available."""
        rest = self._data[self._at :]
        joined = bytearray()
        size = len(rest)
        while size < need:
            piece = next(self._pieces, None)
            if piece is None:
                raise CorruptRecordError("The records reach past the end of the batch.")
            if not size:
                rest = memoryview(piece)
            else:
                joined += piece if joined else b"".join((rest, piece))
            size += len(piece)
        self._data, self._at = memoryview(joined) if joined else rest, 0
