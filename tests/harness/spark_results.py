"""Results of Spark as sorted tables, and their comparison with types."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame

__all__ = ["ORDER", "assert_same", "result"]

ORDER = ["topic", "partition", "offset"]


def result(frame: DataFrame) -> pa.Table:
    """Return all rows as a sorted table."""
    table = frame.toArrow()
    if set(ORDER) <= set(table.column_names):
        return table.sort_by([(name, "ascending") for name in ORDER])
    return table.sort_by([(name, "ascending") for name in table.column_names])


def assert_same(expected: pa.Table, found: pa.Table) -> None:
    assert found.schema == expected.schema
    if found.equals(expected):
        return
    theirs, ours = expected.to_pylist(), found.to_pylist()
    different = [pair for pair in zip(theirs, ours, strict=False) if pair[0] != pair[1]]
    raise AssertionError(
        f"{len(theirs)} rows, not {len(ours)}; the first differ by {different[:1]}"
    )
