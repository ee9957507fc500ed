"""Reading a range of offsets as the Arrow batches that Spark expects, in a worker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING
from uuid import UUID

from pyspark.sql.datasource import InputPartition

from aiokclient import Client, KafkaError
from aiokclient.spark import clients
from aiokclient.spark.options import SourceOptions
from aiokclient.spark.planning import RangePartition
from aiokclient.spark.schema import converter, range_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["Split", "read"]


class Split(InputPartition):
    """A range of offsets that one task reads."""

    def __init__(self, value: RangePartition) -> None:
        super().__init__(value)


def read(
    options: SourceOptions, schema: StructType, partition: RangePartition
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range, with the columns of `schema`.

    Where a part of the range does not exist any more, an error names it, or with
    `fail_on_data_loss=False` the rest is read.
    """
    convert = converter(schema)
    columns = range_columns(schema.fieldNames())

    def batches(client: Client) -> AsyncIterator[pa.RecordBatch]:
        return _remaining(client, options, partition, columns)

    for batch in clients.stream(options.properties, batches):
        yield convert(batch)


async def _remaining(
    client: Client, options: SourceOptions, partition: RangePartition, columns: list[str]
) -> AsyncIterator[pa.RecordBatch]:
    start, end = partition.start, partition.end
    topic_id = None if partition.topic_id is None else UUID(partition.topic_id)
    while start < end:
        batches = client.read_range(
            partition.tp,
            start,
            end,
            columns=columns,
            isolation_level=options.isolation_level,
            fetch_max_bytes=options.fetch_max_bytes,
            topic_id=topic_id,
        )
        try:
            async for batch in batches:
                yield batch
            return
        except KafkaError as error:
            after = getattr(error, "missing_end", None)
            if after is None or options.fail_on_data_loss or after <= start:
                raise
            start = after
