"""Static members that return with other topics or after a change of partitions, also on Kafka."""

import asyncio
import uuid
from typing import Any

import pytest

from aiokclient import Admin, Consumer, NewTopic, Producer, TopicPartition

STRATEGIES = ["range", "cooperative-sticky"]


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_static_members_that_return_get_their_topics_and_new_partitions(
    cluster_servers: Any, strategy: str
) -> None:
    suffix = uuid.uuid4().hex[:8]
    a, b = f"static-a-{suffix}", f"static-b-{suffix}"
    servers = {"bootstrap_servers": cluster_servers.bootstrap}

    def make(name: str, *topics: str) -> Consumer[Any, Any]:
        return Consumer(
            *topics,
            group_id=f"static-{suffix}",
            group_instance_id=name,
            partition_assignment_strategy=strategy,
            heartbeat_interval_ms=200,
            metadata_max_age_ms=500,
            auto_offset_reset="earliest",
            **servers,
        )

    async with Admin(**servers) as admin, Producer(**servers) as producer:
        (await admin.create_topics([NewTopic(a, 2, 1), NewTopic(b, 2, 1)])).raise_for_errors()
        members = {"m0": make("m0", a), "m1": make("m1", a)}
        for member in members.values():
            await member.start()
        try:
            await owned(members, {a: 2})
            for name, topics, counts in (
                ("m1", [a, b], {a: 2, b: 2}),  # the follower
                ("m0", [b], {a: 2, b: 2}),  # the leader
                ("m1", [a], {a: 2, b: 2}),
            ):
                await members[name].close()
                members[name] = make(name, *topics)
                await members[name].start()
                await owned(members, counts)
            (await admin.create_partitions({a: 4})).raise_for_errors()
            await owned(members, {a: 4, b: 2})
            await read(members, producer, {a: 4, b: 2})
        finally:
            for member in members.values():
                await member.close()


async def owned(members: dict[str, Consumer[Any, Any]], counts: dict[str, int]) -> None:
    """Wait until each partition has one owner."""
    wanted = sorted((topic, n) for topic, count in counts.items() for n in range(count))
    tasks = [asyncio.create_task(keep_polling(each)) for each in members.values()]
    try:
        async with asyncio.timeout(60):
            while sorted(tp for each in members.values() for tp in each.assignment()) != wanted:
                await asyncio.wait(tasks, timeout=0.05)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def keep_polling(member: Consumer[Any, Any]) -> None:
    while True:
        await member.poll(timeout=0.1)


async def read(
    members: dict[str, Consumer[Any, Any]], producer: Producer[Any, Any], counts: dict[str, int]
) -> None:
    """Write a record into each partition, and wait until all of them are read."""
    unread = {TopicPartition(topic, n) for topic, count in counts.items() for n in range(count)}
    for tp in unread:
        await producer.send(tp.topic, b"x", partition=tp.partition)
    async with asyncio.timeout(60):
        while unread:
            for member in members.values():
                for record in await member.poll(timeout=0.1):
                    unread.discard(TopicPartition(record.topic, record.partition))
