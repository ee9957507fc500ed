"""The streaming source: the reader that Spark calls on the driver and in the tasks.

Spark gives a Python source neither the path of the checkpoint nor the id of the query, and repeats
a planned batch after a crash with a new initial offset. So the offsets contain everything that a
repeated batch needs (see `offsets`). The decisions are in `stream_batches`; this module connects
them with Spark on one side and with the cluster on the other.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from aiokclient import Admin, Client, TopicPartition
from aiokclient.errors import KafkaError
from aiokclient.spark import clients
from aiokclient.spark.source import topics
from aiokclient.spark.source.continuity import Logs
from aiokclient.spark.source.offsets import Positions, StreamOffsets, parse
from aiokclient.spark.source.options import SourceOptions
from aiokclient.spark.source.planning import split
from aiokclient.spark.source.reading import Split, read
from aiokclient.spark.source.schema import check_schema
from aiokclient.spark.source.stream_batches import StreamBatches

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log = logging.getLogger("aiokclient.spark")


def stream_reader(options: Mapping[str, str], schema: StructType) -> StreamReader:
    """Return the reader of a streaming query with these options."""
    parsed = SourceOptions.parse(options, streaming=True)
    check_schema(schema, parsed.include_headers)
    return StreamReader(parsed, schema)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a streaming query. A process on the driver keeps one; tasks use only `read`."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._cluster = StreamCluster(options)
        self._batches = StreamBatches(options, self._cluster)
        self._committed: Positions = {}
        self._cluster.set_gauges(
            {
                "spark.stream.lag.total": self._batches.compute_total_lag,
                "spark.stream.lag.max": self._batches.compute_highest_lag,
                "spark.stream.batches": self._batches.count_planned,
            }
        )

    def initialOffset(self) -> dict[str, Any]:
        """Return a placeholder for the start of the query. The first plan stores the offsets."""
        return StreamOffsets.beginning().as_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit for each batch, as the options define it."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next batch; `start` if there is nothing to read."""
        begin = parse(start)
        # The start is the end of a completed batch, so it is committed here, too: Spark does not
        # call `commit` after the last batch of an availableNow query, but it calls this.
        self._commit_offsets(begin)
        end = self._batches.plan_end(
            begin,
            maximum=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
            bounded=not isinstance(limit, ReadAllAvailable),
        )
        return start if end is begin else end.as_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the end offsets of the logs, for the query's progress."""
        latest = self._batches.get_latest()
        return None if latest is None else latest.as_json()

    def prepareForTriggerAvailableNow(self) -> None:
        """Read only the records that exist now, and none that are added later."""
        self._batches.stop_at_present_end()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the parts of a planned batch. Spark may request them again after a crash."""
        ranges = self._batches.plan_ranges(parse(start), parse(end))
        return [
            Split(part)
            for part in split(
                ranges,
                min_partitions=self._options.min_partitions,
                max_records=self._options.max_records_per_partition,
            )
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the records of one part of a batch. Spark calls this in a task on an executor."""
        return read(self._options, self._schema, partition.value)

    def commit(self, end: dict[str, Any]) -> None:
        """Commit the end of a batch that Spark has completed, if the options name a group."""
        self._commit_offsets(parse(end))

    def _commit_offsets(self, done: StreamOffsets) -> None:
        group = self._options.commit_group
        if group is not None and done.offsets and done.offsets != self._committed:
            self._cluster.commit_offsets(group, done.offsets)
            self._committed = done.offsets


class StreamCluster:
    """The state of the cluster, which the process on the driver requests. Tasks do not use it."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._logs: tuple[float, Logs] | None = None
        self._gauges: Mapping[str, Callable[[], float]] = {}
        self._measured: Client | None = None

    def set_gauges(self, gauges: Mapping[str, Callable[[], float]]) -> None:
        """Push these metrics with those of the client (KIP-714, KIP-1076)."""
        self._gauges = gauges

    def fetch_logs(self, max_age_s: float) -> Logs:
        """Return the topics and end offsets, which are at most `max_age_s` old."""
        now = time.monotonic()
        if self._logs is None or now - self._logs[0] >= max_age_s:
            self._logs = now, clients.run(self._options.properties, self._fetch_logs)
        return self._logs[1]

    def fetch_first_offsets(self, partitions: Iterable[TopicPartition]) -> Positions:
        """Return the first offset of each partition."""
        wanted = list(partitions)
        return clients.run(self._options.properties, lambda client: topics.earliest(client, wanted))

    def fetch_log_ends(self, partitions: Iterable[TopicPartition]) -> Positions:
        """Return the end offset of each log, including the records of open transactions."""
        wanted = list(partitions)
        return clients.run(
            self._options.properties,
            lambda client: topics.latest(client, wanted, "read_uncommitted"),
        )

    def fetch_starts(self, partitions: Iterable[TopicPartition]) -> Positions:
        """Return the starting offset of each partition, as the options define it."""
        options, wanted = self._options, list(partitions)
        return clients.run(
            options.properties,
            lambda client: topics.resolve(client, options, options.starting, wanted),
        )

    def commit_offsets(self, group: str, offsets: Positions) -> None:
        """Commit offsets for tools that show lag. A failure is only logged."""

        async def ask(client: Client) -> None:
            async with Admin(client=client) as admin:
                results = await admin.alter_consumer_group_offsets(
                    group, dict(offsets), check=False
                )
                results.raise_for_errors()

        try:
            clients.run(self._options.properties, ask)
        except KafkaError as error:
            log.warning(
                "The offsets of the batch were not committed to the group %s: %s The query "
                "continues.",
                group,
                error,
            )

    async def _fetch_logs(self, client: Client) -> Logs:
        if client is not self._measured:  # The previous client was idle and was closed.
            self._measured = client
            for name, gauge in self._gauges.items():
                client.register_metric(name, gauge)
        found = await topics.find(client, self._options)
        partitions = [
            TopicPartition(name, partition)
            for name, topic in found.items()
            for partition in topic.partitions
        ]
        ends = await topics.latest(client, partitions, self._options.isolation_level)
        return Logs({name: topic.topic_id for name, topic in found.items()}, ends)
