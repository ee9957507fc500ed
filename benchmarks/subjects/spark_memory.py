"""A Spark source whose rows come from memory: the most that Spark's API for Python allows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from aiokclient.spark.schema import ddl

__all__ = ["MemorySource"]

ROWS = 10_000


class MemorySource(DataSource):
    """`rows` rows with values of `size` bytes, in as many partitions as `partitions`."""

    @classmethod
    def name(cls) -> str:
        return "memory"

    def schema(self) -> str:
        return ddl(False)

    def reader(self, schema: Any) -> MemoryReader:
        return MemoryReader(self.options, to_arrow_schema(schema, timezone="UTC"))


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
