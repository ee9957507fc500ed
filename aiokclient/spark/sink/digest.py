"""A digest of rows that depends neither on their order nor on how they are split into batches.

Spark repeats a task with the same rows, but not always in the same order, because the blocks of a
shuffle arrive in any order. So each row has a checksum, and the digest contains their sum.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import TYPE_CHECKING, Any
from zlib import crc32

if TYPE_CHECKING:
    import pyarrow as pa

MASK = (1 << 64) - 1
SEEDS = {"topic": 1, "partition": 2, "timestamp": 3, "headers": 4, "key": 5, "value": 6}
ABSENT = 0x9E3779B9
"""The number with which each null changes the checksum of its row (by XOR)."""


class RowDigest:
    """A digest of the columns that a sink writes. Columns that it ignores do not count."""

    def __init__(self) -> None:
        self.rows = 0
        self._sum = 0
        self._lengths = 0

    def update(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch."""
        names = batch.schema.names
        sums: Iterable[int] | None = None
        for name, seed in SEEDS.items():
            if name in names:
                sums = self._hash_column(batch.column(names.index(name)), seed, sums)
        self.rows += batch.num_rows
        self._sum = self._sum + sum(sums or ()) & MASK

    def _hash_column(self, column: Any, seed: int, sums: Iterable[int] | None) -> Iterable[int]:
        import pyarrow as pa
        import pyarrow.compute as pc

        kind = column.type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            column = column.cast(pa.binary() if pa.types.is_string(kind) else pa.large_binary())
        elif not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
            if pa.types.is_timestamp(kind):
                # The text of a time would depend on the time zone of the session.
                column = column.cast(pa.int64())
            texts = (repr(value).encode() for value in column.to_pylist())
            return map(crc32, texts, sums or repeat(seed))
        # The checksum of a row does not depend on where its key ends and its value begins, so the
        # digest also contains the total lengths.
        self._lengths += seed * (pc.sum(pc.binary_length(column)).as_py() or 0)
        values = column.to_pylist()
        if not column.null_count:
            return map(crc32, values, sums or repeat(seed))
        return (
            crc32(value, start) if value is not None else start ^ ABSENT
            for value, start in zip(values, sums or repeat(seed), strict=False)
        )

    def hexdigest(self) -> str:
        """Return the digest of all rows that were added."""
        rest = repr((self._lengths, self.rows)).encode()
        return f"{self._sum:016x}{crc32(rest):08x}"
