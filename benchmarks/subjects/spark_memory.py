"""A Spark source with rows from memory, and a sink without effect: the lower bound of the API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, SupportsTriggerAvailableNow

__all__ = ["MemorySource"]

ROWS = 10_000
# A copy of the library's schema, because the import of the library takes time.
SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int"
)


class MemorySource(DataSource):
    """A source of `rows` rows with values of `size` bytes, in `partitions` partitions."""

    @classmethod
    def name(cls) -> str:
        return "in_memory"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: Any) -> MemoryReader:
        return MemoryReader(self.options, to_arrow_schema(schema, timezone="UTC"))

    def streamReader(self, schema: Any) -> MemoryStreamReader:
        return MemoryStreamReader(self.reader(schema), endless=bool(self.options.get("endless")))

    def writer(self, schema: Any, overwrite: bool) -> MemoryWriter:
        return MemoryWriter()

    def streamWriter(self, schema: Any, overwrite: bool) -> MemoryStreamWriter:
        return MemoryStreamWriter()


class MemoryReader(DataSourceReader):
    def __init__(self, options: Any, schema: pa.Schema) -> None:
        self._options, self._schema = options, schema

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(index) for index in range(int(self._options["partitions"]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        rows = int(self._options["rows"]) // int(self._options["partitions"])
        value = b"v" * int(self._options["size"])
        columns = {
            "key": [None] * ROWS,
            "value": [value] * ROWS,
            "topic": ["topic"] * ROWS,
            "partition": [partition.value] * ROWS,
            "offset": list(range(ROWS)),
            "timestamp": [0] * ROWS,
            "timestampType": [0] * ROWS,
        }
        arrays = [pa.array(columns[field.name], field.type) for field in self._schema]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        for start in range(0, rows, ROWS):
            yield batch.slice(0, min(ROWS, rows - start))


class MemoryStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream with all rows in its first batch. If it is endless, it repeats that batch."""

    def __init__(self, reader: MemoryReader, endless: bool) -> None:
        self._reader, self._endless = reader, endless

    def initialOffset(self) -> dict[str, int]:
        return {"batch": 0}

    def getDefaultReadLimit(self) -> ReadAllAvailable:
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        return {"batch": start["batch"] + 1 if self._endless else 1}

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return self._reader.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reader.read(partition)


def consume(iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
    for _ in iterator:
        pass
    return WriterCommitMessage()


class MemoryWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return consume(iterator)


class MemoryStreamWriter(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return consume(iterator)
