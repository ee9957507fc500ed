"""Reading a range of offsets as the Arrow batches that Spark expects, in a worker."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING
from uuid import UUID

from pyspark.sql.datasource import InputPartition

from aiokclient import Client, KafkaError
from aiokclient.errors import UnknownTopicIdError, UnknownTopicOrPartitionError
from aiokclient.spark import clients, garbage
from aiokclient.spark.attempts import require_brokers
from aiokclient.spark.source.options import SourceOptions
from aiokclient.spark.source.planning import RangePartition
from aiokclient.spark.source.schema import converter, range_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log = logging.getLogger("aiokclient.spark")

REPLACED = (
    "The topic was deleted, or created again under its name, after the query was planned. Run the "
    "query again. A stream that is started again continues as failOnDataLoss says."
)
ADVICE: dict[type[KafkaError], str] = {
    UnknownTopicIdError: REPLACED,
    UnknownTopicOrPartitionError: REPLACED,
}
"""Hints for errors that have a more specific meaning in a planned range than elsewhere."""
FIRST_BYTES = 1024 * 1024
"""Bytes of the first range in a process that Spark gets at once."""
FIRST_S = 0.2
"""Seconds in which Spark gets no more than that."""
LOST = "Set failOnDataLoss to false to read the remaining records."


class Split(InputPartition):
    """A range of offsets that one task reads."""

    def __init__(self, value: RangePartition) -> None:
        super().__init__(value)


def read(
    options: SourceOptions, schema: StructType, partition: RangePartition
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range, with the columns of `schema`.

    If some of its records do not exist any more, an error names their offsets. With
    `fail_on_data_loss=False`, the other records are read instead.
    """
    convert = converter(schema)
    columns = range_columns(schema.fieldNames())

    def batches(client: Client) -> AsyncIterator[pa.RecordBatch]:
        return _remaining(client, options, partition, columns)

    garbage.exclude()
    require_brokers(options.properties)
    start = _FirstRange() if _FirstRange.is_next else None
    for batch in clients.stream(options.properties, batches):
        if start is not None and start.wait_for_demand(batch.nbytes):
            start = None
        try:
            converted = convert(batch)
        except KafkaError as error:
            name = f"{partition.topic}-{partition.partition}"
            error.message = f"{name}: {_task(partition)} {error.message}"
            raise
        yield converted


class _FirstRange:
    """The beginning of the first range that this process reads.

    Spark's virtual machine compiles its code while it reads the first rows. A limit that these
    reach then stops the task late, and the buffers of the socket to it take some megabytes. So the
    first range pauses once. That costs a worker process, which takes longer to start, `FIRST_S` at
    most.
    """

    is_next = True

    def __init__(self) -> None:
        _FirstRange.is_next = False
        self._bytes = 0
        self._ends = 0.0

    def wait_for_demand(self, size: int) -> bool:
        """Wait if Spark has enough for the moment. Return whether it may have the rest."""
        now = time.monotonic()
        self._ends = self._ends or now + FIRST_S
        self._bytes += size
        if self._bytes <= FIRST_BYTES:
            return False
        time.sleep(max(self._ends - now, 0.0))
        return True


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
            # A copy, because other tasks may get the same error.
            named = error.with_partition(partition.tp)
            after = getattr(error, "missing_end", None)
            if after is None:
                named.message = f"{_task(partition)} {error.message}".rstrip()
                named.hint = ADVICE.get(type(error), error.hint)
                raise named from error.__cause__
            if options.fail_on_data_loss or after <= start:
                named.hint = LOST
                raise named from error.__cause__
            log.warning(
                "%s-%d: %s The task continues, as failOnDataLoss is false.",
                *partition.tp,
                error.message,
            )
            start = after


def _task(partition: RangePartition) -> str:
    return f"The task reads the offsets {partition.start} to {partition.end - 1}."
