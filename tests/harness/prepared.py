"""Records and committed offsets that a test needs beforehand. For tests that are not coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from aiokclient import Admin, Producer, TopicPartition


def write_records(
    bootstrap: str, topic: str, timestamps: Mapping[int, Iterable[int | None]]
) -> None:
    """Write a record for each timestamp, in the partitions that are the keys."""

    async def write() -> None:
        async with Producer(bootstrap_servers=bootstrap) as producer:
            for partition, times in timestamps.items():
                for timestamp in times:
                    await producer.send(topic, b"v", partition=partition, timestamp=timestamp)

    asyncio.run(write())


def commit_offsets(bootstrap: str, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit offsets of a group without members."""

    async def commit() -> None:
        async with Admin(bootstrap_servers=bootstrap) as admin:
            (await admin.alter_consumer_group_offsets(group, offsets)).raise_for_errors()

    asyncio.run(commit())
