"""Functions over the rows of a source, in a module that workers can import quickly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["compute", "touch"]


def touch(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield the total length of the values of each batch, read as Python objects."""
    import pyarrow as pa

    for batch in batches:
        lengths = [len(value) for value in batch.column("value").to_pylist()]
        yield pa.RecordBatch.from_pydict({"n": [sum(lengths)]}, pa.schema([("n", pa.int64())]))


def compute(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield the total length of the values of each batch, computed by functions of Arrow."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for batch in batches:
        total = pc.sum(pc.binary_length(batch.column("value"))).cast(pa.int64())
        yield pa.RecordBatch.from_arrays([pa.array([total.as_py()], pa.int64())], names=["n"])
