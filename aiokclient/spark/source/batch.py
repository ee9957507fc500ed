"""The reader of a batch query. The driver plans the ranges once, and tasks read them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader

from aiokclient import Client, KafkaError, TopicPartition
from aiokclient.errors import ConfigError
from aiokclient.spark import clients
from aiokclient.spark.source import topics
from aiokclient.spark.source.filters import Pushed
from aiokclient.spark.source.options import LATEST, SourceOptions
from aiokclient.spark.source.planning import RangePartition, split
from aiokclient.spark.source.reading import Split, read

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

PUSHING = "pyspark.sql.worker.data_source_pushdown_filters"
"""The module of Spark that calls `pushFilters`. It runs in processes of its own."""


class BatchReader(DataSourceReader):
    """The reader of one batch query."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._pushed = Pushed()

    def partitions(self) -> list[Split]:
        """Return the ranges to read, planned with the offsets that the brokers have now."""
        ranges = clients.run(
            self._options.properties, lambda client: _plan(client, self._options, self._pushed)
        )
        return [Split(one) for one in ranges]

    def read(self, partition: Split) -> Iterator[pa.RecordBatch]:
        """Yield the records of one range."""
        # If there are no ranges, Spark calls this with a partition without a range.
        if partition.value is not None:
            yield from read(self._options, self._schema, partition.value)


class FilteringReader(BatchReader):
    """A reader to which Spark pushes filters."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        """Apply the filters. Yield those that Spark must check again."""
        for each in filters:
            if not self._pushed.push_filter(each):
                yield each


def batch_reader(options: SourceOptions, schema: StructType) -> BatchReader:
    """Return the reader of a batch query.

    Spark refuses a reader with `pushFilters` if spark.sql.python.filterPushdown.enabled is false.
    Only in a process that runs `PUSHING` is the setting known to be true. So the reader has
    `pushFilters` only there.
    """
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    pushes = PUSHING in sys.modules or getattr(main, "name", None) == PUSHING
    return (FilteringReader if pushes else BatchReader)(options, schema)


async def _plan(client: Client, options: SourceOptions, pushed: Pushed) -> list[RangePartition]:
    found = await _topics(client, options)
    partitions = [
        TopicPartition(name, number) for name, topic in found.items() for number in topic.partitions
    ]
    _check_order(options, partitions)
    starts, ends = await _bounds(client, options, partitions)
    if "offsets" in (options.starting.kind, options.ending.kind):
        await _check_log(client, options, starts, ends)
    ranges = pushed.limit_ranges(
        RangePartition(tp.topic, found[tp.topic].topic_id, tp.partition, starts[tp], ends[tp])
        for tp in partitions
    )
    ranges = [one for one in ranges if one.size]
    if pushed.timestamp is not None:
        ranges = await _not_before(client, pushed.timestamp, ranges)
    wanted = options.min_partitions
    known: Mapping[TopicPartition, float] = {}
    if wanted is not None and len(ranges) > 1 and wanted > len(ranges):
        known = await topics.bytes_per_offset(client, [one.tp for one in ranges])
    return split(
        ranges,
        min_partitions=wanted,
        max_records=options.max_records_per_partition,
        bytes_per_offset=known,
    )


async def _topics(client: Client, options: SourceOptions) -> dict[str, topics.Topic]:
    """Return the topics that the options select. Raises ConfigError if one does not exist."""
    text: str | None = None
    for look in range(topics.LOOKS):
        await asyncio.sleep(topics.LOOK_S if look else 0)
        found = await topics.find(client, options)
        text = _missing(options, found)
        if text is None:
            return found
    raise ConfigError(str(text))


def _missing(options: SourceOptions, found: Mapping[str, topics.Topic]) -> str | None:
    """Return the text about a topic or partition that does not exist, or None."""
    missing = [name for name in options.topics if name not in found]
    if missing:
        return f"subscribe: the topic {missing[0]} does not exist. Name only topics that exist."
    for tp in options.partitions:
        if tp.topic not in found or tp.partition not in found[tp.topic].partitions:
            return f"assign: the partition {tp} does not exist. Name only partitions that exist."
    return None


async def _bounds(
    client: Client, options: SourceOptions, partitions: list[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Return the starts and the ends of the ranges.

    If a log seems to end before them, its broker may lag, so the brokers are asked again.
    """
    starts, ends = dict[TopicPartition, int](), dict[TopicPartition, int]()
    named = {tp for tp, offset in options.ending.values if offset != LATEST}
    for look in range(topics.LOOKS):
        await asyncio.sleep(topics.LOOK_S if look else 0)
        starts = await topics.resolve(client, options, options.starting, partitions)
        ends = await topics.resolve(client, options, options.ending, partitions)
        if "offsets" in (options.starting.kind, options.ending.kind):
            last = await topics.latest(client, partitions, "read_uncommitted")
        else:
            last = {tp: max(starts[tp], ends[tp]) for tp in partitions}
        if all(
            max(starts[tp], ends[tp]) <= last[tp] and (tp in named or starts[tp] <= ends[tp])
            for tp in partitions
        ):
            break
    return starts, ends


async def _check_log(
    client: Client,
    options: SourceOptions,
    starts: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
) -> None:
    """Check that the logs have the offsets that the program has named.

    Raises KafkaError for missing offsets. With failOnDataLoss=false, the bounds in `starts` and
    `ends` are moved to offsets that exist instead.
    """
    first = await topics.earliest(client, starts)
    last = await topics.latest(client, starts, "read_uncommitted")
    named = {tp for tp, offset in options.ending.values if offset != LATEST}
    for tp in starts:
        start, end = starts[tp], ends[tp]
        # With read_committed, "latest" is at most the start of an open transaction. That may be
        # before the start of the range, which is not an error.
        ordered = start <= end or options.ending.kind != "offsets" or tp not in named
        if first[tp] <= start <= last[tp] and end <= last[tp] and ordered:
            continue
        if options.fail_on_data_loss:
            given = f"The offsets {start} to {end} of {tp} cannot all be read."
            if start > last[tp]:
                given = f"startingOffsets: the start of {tp} is {start}."
            elif not ordered:
                given = f"endingOffsets: the end of {tp} is {end}."
            raise KafkaError(
                f"{given} Its log has the offsets {first[tp]} to {last[tp]}. Correct "
                "startingOffsets or endingOffsets, or set failOnDataLoss to false to read the "
                "remaining records."
            )
        starts[tp] = min(max(start, first[tp]), last[tp])
        ends[tp] = max(min(end, last[tp]), starts[tp])


def _check_order(options: SourceOptions, partitions: Iterable[TopicPartition]) -> None:
    """Raise ConfigError if the program has given an end that is before the start.

    Only two offsets or two timestamps can be compared here. With other bounds, nothing is read if
    the end is before the start.
    """
    start, end = options.starting, options.ending
    for kinds, word in ((("offsets",), "offset"), (("timestamp", "timestamps"), "timestamp")):
        if start.kind not in kinds or end.kind not in kinds:
            continue
        starts, ends = dict(start.values), dict(end.values)
        for tp in partitions:
            first = starts.get(tp, start.timestamp or 0)
            last = ends.get(tp, end.timestamp or 0)
            if first > last >= 0:
                raise ConfigError(
                    f"{end.option}: the end of {tp} is the {word} {last}, "
                    f"before its start at {first} ({start.option}). It must not be before the "
                    "start."
                )


async def _not_before(
    client: Client, timestamp: int, ranges: list[RangePartition]
) -> list[RangePartition]:
    """Let each range start at its first record whose timestamp is not below `timestamp`.

    Ranges without such a record are left out.
    """
    found = await topics.at_times(client, {one.tp: timestamp for one in ranges})
    return [replace(one, start=max(one.start, found[one.tp])) for one in ranges if one.tp in found]
