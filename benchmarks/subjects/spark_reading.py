"""Batch queries over a topic, or over rows from memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from subjects.spark_functions import compute, touch
from subjects.spark_jobs import CONNECTOR, MEMORY, PARTITIONS, Job, World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["READING"]

FIXED_ROWS = 5_010


def query(
    name: str,
    run: Callable[[DataFrame], object],
    *,
    size: int = 100,
    rows: int | None = None,
    share: float = 1.0,
    schema: str | None = None,
) -> Job:
    """Return a job that queries values of `size` bytes.

    `schema` has the columns that are requested from a source. The connector accepts no schema.
    """

    @contextmanager
    def start(world: World, subject: str, rows: int) -> Iterator[Callable[[], object]]:
        reader = world.spark.read.format(subject)
        if schema is not None and subject != CONNECTOR:
            reader = reader.schema(schema)
        if subject == MEMORY:
            reader = reader.options(rows=rows, size=size, partitions=PARTITIONS)
        else:
            reader = reader.options(**world.servers, subscribe=world.filled(rows, size))
        yield lambda: run(reader.load())

    return Job(name, start, rows=rows, share=share)


def mapped(function: Callable[[Iterator[Any]], Iterator[Any]], frame: DataFrame) -> object:
    return frame.mapInArrow(function, "n long").agg(f.sum("n")).collect()


READING = (
    query("count", lambda frame: frame.count()),
    query("sum", lambda frame: frame.agg(f.sum(f.length("value"))).collect()),
    query("mapInArrow, each row touched", partial(mapped, touch)),
    query("mapInArrow, pyarrow.compute", partial(mapped, compute)),
    query("mapInArrow, pyarrow.compute, 1 KB", partial(mapped, compute), size=1000, share=0.5),
    query("toArrow, value", lambda frame: frame.select("value").toArrow()),
    query(
        "toArrow, schema of value alone",
        lambda frame: frame.select("value").toArrow(),
        schema="value binary",
    ),
    query("toArrow, all columns", lambda frame: frame.toArrow()),
    query("count of 5,010 rows", lambda frame: frame.count(), rows=FIXED_ROWS),
)
