"""A source that drops one row, so that tests which compare rows can show that they notice it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from aiokclient.spark import KafkaDataSource
from aiokclient.spark.source.batch import BatchReader
from aiokclient.spark.source.options import SourceOptions
from aiokclient.spark.source.stream import StreamReader

__all__ = ["DroppingSource"]


class DroppingReader(BatchReader):
    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        for batch in super().read(partition):
            yield batch.slice(0, batch.num_rows - 1)


class DroppingStreamReader(StreamReader):
    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        for batch in super().read(partition):
            yield batch.slice(0, batch.num_rows - 1)


class DroppingSource(KafkaDataSource):
    @classmethod
    def name(cls) -> str:
        return "aiokclient_dropping"

    def reader(self, schema: Any) -> DroppingReader:
        return DroppingReader(SourceOptions.parse(self.options, streaming=False), schema)

    def streamReader(self, schema: Any) -> DroppingStreamReader:
        return DroppingStreamReader(SourceOptions.parse(self.options, streaming=True), schema)
