"""The session of the tests: Spark finds both this data source and its own connector."""

import gc
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from aiokclient.spark import KafkaDataSource
from aiokclient.testing import EmbeddedCluster


def test_spark_finds_the_format_without_registration(spark: SparkSession) -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders"}
    ours = spark.read.format("aiokclient").options(**options).load()
    theirs = spark.read.format("kafka").options(**options).load()
    assert ours.schema == theirs.schema
    ours = spark.read.format("aiokclient").options(includeHeaders=True, **options).load()
    theirs = spark.read.format("kafka").options(includeHeaders=True, **options).load()
    assert ours.schema == theirs.schema


def test_workers_exclude_long_lived_objects_from_garbage_collections(
    spark: SparkSession, brokers: EmbeddedCluster
) -> None:
    brokers.create_topic("garbage", 1)
    brokers.produce("garbage", [b"value"])

    # Spark serializes local classes with their code, so that its workers need not import this file.
    class CountingReader(DataSourceReader):
        """A reader whose offsets are all the number of objects that the worker has excluded."""

        def __init__(self, reader: DataSourceReader) -> None:
            self._reader = reader

        def partitions(self) -> Sequence[InputPartition]:
            found: Sequence[InputPartition] = self._reader.partitions()
            return found

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            for batch in self._reader.read(partition):
                yield pa.RecordBatch.from_pydict(
                    {"offset": [gc.get_freeze_count()] * batch.num_rows}, schema=batch.schema
                )

    class Counting(KafkaDataSource):
        @classmethod
        def name(cls) -> str:
            return "counting"

        def reader(self, schema: StructType) -> Any:
            return CountingReader(KafkaDataSource.reader(self, schema))

    spark.dataSource.register(Counting)
    options = {"kafka.bootstrap.servers": brokers.bootstrap_servers, "subscribe": "garbage"}
    frame = spark.read.format("counting").schema("offset bigint").options(**options).load()
    counts: list[int] = []
    while len(counts) < 20 and not any(counts):
        counts += [row.offset for row in frame.collect()]
    assert max(counts) > 10_000
