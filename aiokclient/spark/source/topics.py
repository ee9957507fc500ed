"""The partitions that a source reads, and the offsets at which it starts and ends."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aiokclient import Admin, Client, Consumer, TopicPartition
from aiokclient.errors import ConfigError, UnknownTopicOrPartitionError
from aiokclient.spark.source.options import EARLIEST, LATEST, Bound, SourceOptions

Offsets = dict[TopicPartition, int]
SHOWN = 20
"""The maximum number of partitions that an error message lists."""
LOOKS = 3
"""The number of times that a query looks before it says that something does not exist. A broker
may lag for a moment. Spark's connector does the same."""
LOOK_S = 1.0
"""Seconds between two looks."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that exists, and those of its partitions that are read."""

    topic_id: str | None
    partitions: tuple[int, ...]


async def find(client: Client, options: SourceOptions) -> dict[str, Topic]:
    """Return the topics and partitions that the options select, if they exist."""
    assigned = dict[str, list[int]]()
    for topic, partition in options.partitions:
        assigned.setdefault(topic, []).append(partition)
    async with Admin(client=client) as admin:
        if options.pattern is None:
            names: Iterable[str] = options.topics or assigned
        else:
            pattern = re.compile(options.pattern)
            names = [name for name in await admin.list_topics() if pattern.search(name)]
        described = await admin.describe_topics(names)
        if described.errors:
            # The caller decides about topics that do not exist. Other errors are raised here. A
            # topic that was created in between is found when the caller looks again.
            existing = await admin.list_topics(internal=True)
            for item, error in described.errors.items():
                if item in existing and error.code != UnknownTopicOrPartitionError.code:
                    raise error
    found = {}
    for description in sorted(described.succeeded.values(), key=lambda topic: topic.name):
        numbers = tuple(partition.index for partition in description.partitions)
        if assigned:
            numbers = tuple(number for number in numbers if number in assigned[description.name])
        topic_id = None if description.topic_id is None else str(description.topic_id)
        found[description.name] = Topic(topic_id, numbers)
    return found


async def earliest(client: Client, partitions: Iterable[TopicPartition]) -> Offsets:
    """Return the first offset of each partition."""
    async with Consumer(client=client) as consumer:
        return await consumer.beginning_offsets(list(partitions))


async def latest(
    client: Client, partitions: Iterable[TopicPartition], isolation_level: str
) -> Offsets:
    """Return the end offset of each partition."""
    async with Consumer(client=client, isolation_level=isolation_level) as consumer:
        return await consumer.end_offsets(list(partitions))


async def resolve(
    client: Client, options: SourceOptions, bound: Bound, partitions: Iterable[TopicPartition]
) -> Offsets:
    """Return the offset in each partition that a start or end option stands for.

    Offsets that the program has named are returned as they are, even if the log does not have them.
    Raises ConfigError if the program has not named exactly these partitions. Also raises it if no
    record has the starting timestamp or a later one, unless `starting_strategy` is `latest`.
    """
    wanted = list(partitions)
    values = dict(bound.values)
    if bound.kind in ("offsets", "timestamps"):
        _require_same(bound.option, values, wanted)
    if bound.kind in ("timestamp", "timestamps"):
        times = {tp: values.get(tp, bound.timestamp or 0) for tp in wanted}
        return await _at_times(client, options, bound, times)
    word = {"earliest": EARLIEST, "latest": LATEST}.get(bound.kind)
    offsets = {tp: values[tp] if word is None else word for tp in wanted}
    first = [tp for tp, offset in offsets.items() if offset == EARLIEST]
    last = [tp for tp, offset in offsets.items() if offset == LATEST]
    if first:
        offsets |= await earliest(client, first)
    if last:
        offsets |= await latest(client, last, options.isolation_level)
    return offsets


def _require_same(
    option: str, named: Mapping[TopicPartition, int], wanted: Iterable[TopicPartition]
) -> None:
    missing = sorted(set(wanted) - set(named))
    if missing:
        raise ConfigError(
            f"{option} does not name {_listed(missing)}. It must name all partitions that are read."
        )
    others = sorted(set(named) - set(wanted))
    if others:
        raise ConfigError(
            f"{option} names {_listed(others)}, which the source does not read. It must name the "
            "partitions of the selected topics that exist."
        )


def _listed(partitions: list[TopicPartition]) -> str:
    more = f" and {len(partitions) - SHOWN} more" if len(partitions) > SHOWN else ""
    return ", ".join(map(str, partitions[:SHOWN])) + more


async def at_times(client: Client, times: Mapping[TopicPartition, int]) -> Offsets:
    """Return the offset of the first record at or after a time, for partitions that have one."""
    async with Consumer(client=client) as consumer:
        found = await consumer.offsets_for_times(times)
    return {tp: at.offset for tp, at in found.items() if at is not None}


async def _at_times(
    client: Client, options: SourceOptions, bound: Bound, times: Mapping[TopicPartition, int]
) -> Offsets:
    is_required = bound.option.startswith("starting") and options.starting_strategy == "error"
    offsets, without = Offsets(), list[TopicPartition]()
    for look in range(LOOKS if is_required else 1):
        await asyncio.sleep(LOOK_S if look else 0)
        offsets = await at_times(client, times)
        without = sorted(set(times) - set(offsets))
        if not without:
            break
    if without and is_required:
        tp = without[0]
        raise ConfigError(
            f"{bound.option}: no record of {_listed(without)} has the timestamp {times[tp]} or a "
            "later one. Set startingOffsetsByTimestampStrategy to latest to start at the end."
        )
    if without:
        offsets |= await latest(client, without, options.isolation_level)
    return offsets


async def bytes_per_offset(
    client: Client, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, float]:
    """Return the mean number of bytes for each offset of a partition.

    The result has the partitions for which the brokers return a size. It is empty if the user may
    not describe the log folders of the brokers.
    """
    wanted = set(partitions)
    sizes = dict[TopicPartition, int]()
    async with Admin(client=client) as admin:
        described = await admin.describe_log_dirs(topics={tp.topic for tp in wanted})
        for folders in described.succeeded.values():
            for folder in folders:
                for tp, replica in folder.replicas.items():
                    sizes[tp] = max(replica.size, sizes.get(tp, 0))
    first = await earliest(client, wanted)
    last = await latest(client, wanted, "read_uncommitted")
    return {
        tp: sizes[tp] / (last[tp] - first[tp])
        for tp in wanted
        if sizes.get(tp) and last[tp] > first[tp]
    }
