"""The reader of a batch query. The driver plans the ranges once, and tasks read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader

from aiokclient.spark.options import SourceOptions
from aiokclient.spark.reading import Split, read

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["BatchReader"]


class BatchReader(DataSourceReader):
    """The reader of one batch query."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[Split]:
        """Return the ranges to read, planned with the offsets that the brokers have now."""
        raise NotImplementedError

    def read(self, partition: Split) -> Iterator[pa.RecordBatch]:
        """Yield the records of one range."""
        if partition.value is not None:
            yield from read(self._options, self._schema, partition.value)
