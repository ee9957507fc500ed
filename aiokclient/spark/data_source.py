"""The data source that Spark knows as the format `aiokclient`."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql.datasource import DataSource

from aiokclient.spark import garbage
from aiokclient.spark.source.options import SourceOptions
from aiokclient.spark.source.schema import check_schema, ddl
from aiokclient.spark.versions import require_spark

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from aiokclient.spark.sink.sink import BatchWriter, StreamWriter
    from aiokclient.spark.source.batch import BatchReader


class KafkaDataSource(DataSource):
    """Kafka as a source and a sink: the format `aiokclient`.

        spark.read.format("aiokclient").option("kafka.bootstrap.servers", "localhost:9092")
            .option("subscribe", "orders").load()

    It has the options, the defaults, and the columns of Spark's Kafka connector.
    """

    __module__ = "aiokclient.spark"  # Spark pickles the class by this name.

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "aiokclient"

    def __init__(self, options: MutableMapping[str, str]) -> None:
        # Every session imports this module to find sources, so its import must not raise.
        require_spark(pyspark.__version__)
        garbage.exclude()
        super().__init__(options)

    def schema(self) -> str:
        """Return the columns of the source, in Spark's notation."""
        return ddl(SourceOptions.read_include_headers(self.options))

    def reader(self, schema: StructType) -> BatchReader:
        """Return the reader of a batch query."""
        from aiokclient.spark.source.batch import batch_reader

        garbage.exclude()
        options = SourceOptions.parse(self.options, streaming=False)
        check_schema(schema, options.include_headers)
        return batch_reader(options, schema)

    def streamReader(self, schema: StructType) -> Any:
        """Return the reader of a stream."""
        from aiokclient.spark.source.stream import stream_reader

        return stream_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return the writer of a batch query."""
        from aiokclient.spark.sink.sink import batch_writer

        garbage.exclude()
        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """Return the writer of a stream."""
        from aiokclient.spark.sink.sink import stream_writer

        garbage.exclude()
        return stream_writer(self.options, schema, overwrite)
