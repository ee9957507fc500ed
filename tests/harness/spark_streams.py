"""Streaming queries that tests run, stop, crash, and run again with one checkpoint."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

__all__ = ["Rows", "Stream", "StreamFailure"]

WAIT_S = 60.0


Rows: TypeAlias = "list[tuple[str, int, int, str]]"
"""Topic, partition, offset, and value of records, sorted."""


class StreamFailure(Exception):
    """The failure of a query. Its text is the one that Spark shows."""

    @property
    def first_line(self) -> str:
        """The line after the frames of the Python worker, which says what went wrong."""
        lines = [line for line in str(self).splitlines() if line.startswith("aiokclient.")]
        return lines[0] if lines else ""


class Stream:
    """A query that collects the rows of a source, with the checkpoint of the query."""

    def __init__(self, spark: SparkSession, checkpoint: Path, options: dict[str, str]) -> None:
        self.checkpoint = checkpoint
        self.options = {"format": "aiokclient", **options}
        self._spark = spark
        self._collected: list[Rows] = []

    def run(
        self,
        *,
        crash: bool = False,
        planned: Callable[[int], None] = lambda _: None,
        **options: str,
    ) -> Rows:
        """Read all existing records, and return them as sorted rows.

        With `crash`, the first batch fails after it was planned. `planned` is called with the
        number of each batch, after the batch was planned and before it is read.
        """
        found = self.batches(crash=crash, planned=planned, **options)
        return sorted(row for batch in found for row in batch)

    def batches(
        self,
        *,
        crash: bool = False,
        planned: Callable[[int], None] = lambda _: None,
        **options: str,
    ) -> list[Rows]:
        """Read all existing records, and return the rows of each batch that is not empty."""
        collected: list[Rows] = []

        def keep(frame: DataFrame, batch: int) -> None:
            if crash:
                raise RuntimeError("crash")
            planned(batch)
            collected.append(_rows(frame))

        self._finish(self._start(options, keep, availableNow=True))
        return [batch for batch in collected if batch]

    def table(self, **options: str) -> pa.Table:
        """Read all existing records, and return the sorted rows with all columns and types."""
        import pyarrow as pa
        from spark_results import ORDER

        collected: list[pa.Table] = []

        def keep(frame: DataFrame, batch: int) -> None:
            collected.append(frame.toArrow())

        self._finish(self._start(options, keep, availableNow=True))
        # If the query had no batch, there is no schema, so return an empty table.
        rows = pa.concat_tables(collected) if collected else pa.table({})
        return rows.sort_by([(name, "ascending") for name in ORDER]) if collected else rows

    def _finish(self, query: StreamingQuery) -> None:
        try:
            ended = query.awaitTermination(WAIT_S)
        except Exception as error:
            raise StreamFailure(str(error)) from None
        finally:
            query.stop()
        if not ended:
            raise AssertionError(
                f"The query did not end within {WAIT_S} s. Its last progress: {query.lastProgress}"
            )

    @contextmanager
    def running(self, **options: str) -> Iterator[Stream]:
        """Run the query within the block."""
        self._collected = collected = []

        def keep(frame: DataFrame, batch: int) -> None:
            collected.append(_rows(frame))

        self._query = query = self._start(options, keep, processingTime="0 seconds")
        try:
            yield self
        finally:
            query.stop()

    def wait_for(self, rows: Rows) -> None:
        """Wait until the running query has read exactly these rows, and committed their batches."""
        deadline = time.monotonic() + WAIT_S
        while (found := sorted(row for batch in self._collected for row in batch)) != rows:
            if (error := self._query.exception()) is not None:
                raise StreamFailure(str(error))
            if time.monotonic() > deadline or len(found) > len(rows):
                raise AssertionError(f"The query has read {found} instead of {rows}.")
            time.sleep(0.05)
        # Wait for the commit, because a query that is stopped before it would repeat the batch.
        self._query.processAllAvailable()

    def planned(self) -> list[int]:
        """Return the batches that were planned."""
        return self._numbers("offsets")

    def committed(self) -> list[int]:
        """Return the batches that were committed."""
        return self._numbers("commits")

    def line(self, batch: int) -> str:
        """Return the JSON of the source in the offset log."""
        return (self.checkpoint / "offsets" / str(batch)).read_text().split("\n")[2]

    def edit(self, batch: int, change: Callable[[Any], Any]) -> None:
        """Change the JSON of the source in the offset log."""
        path = self.checkpoint / "offsets" / str(batch)
        lines = path.read_text().split("\n")
        lines[2] = json.dumps(change(json.loads(lines[2])))
        path.write_text("\n".join(lines))
        for checksum in path.parent.glob(f".{batch}.*"):
            checksum.unlink()

    def _numbers(self, folder: str) -> list[int]:
        found = (self.checkpoint / folder).glob("*")
        return sorted(int(path.name) for path in found if path.name.isdigit())

    def _start(
        self, options: dict[str, str], keep: Callable[[DataFrame, int], None], **trigger: Any
    ) -> StreamingQuery:
        chosen = {**self.options, **options}
        reader = self._spark.readStream.format(chosen.pop("format")).options(**chosen)
        writer = reader.load().writeStream.foreachBatch(keep)
        return writer.option("checkpointLocation", str(self.checkpoint)).trigger(**trigger).start()


def _rows(frame: DataFrame) -> Rows:
    columns = ("topic", "partition", "offset", "CAST(value AS STRING)")
    return sorted(tuple(row) for row in frame.selectExpr(*columns).collect())
