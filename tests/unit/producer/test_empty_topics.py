"""Tests of responses that list a topic without partitions."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from typing import Any

import pytest
from world import World, simulate

from aiokclient import Admin, TopicPartition
from aiokclient.errors import KafkaError
from aiokclient.protocol import ApiKey


def emptied(request: Any, response: Any) -> Any:
    """Remove all partitions from the topics of the response."""
    for topic in response.topics:
        topic.partitions = []
    return response


def recreated(request: Any, response: Any) -> Any:
    """Remove all partitions from the topics of the response, and replace the topic ids."""
    for topic in response.topics:
        topic.topic_id, topic.partitions = uuid.UUID(int=7), []
    return response


@pytest.mark.parametrize("alter", [emptied, recreated])
@pytest.mark.parametrize("known", [False, True])
def test_a_producer_waits_until_a_response_lists_the_partitions(known: bool, alter: Any) -> None:
    async def scenario(world: World) -> None:
        async with world.producer(metadata_max_age_ms=100) as producer:
            if known:
                await producer.send("t", b"0")
            with world.cluster.alter(ApiKey.METADATA, alter):
                await asyncio.sleep(0.5)
                deliveries = [
                    producer.send("t", b"1"),
                    producer.send("t", b"2", key=b"k"),
                    *producer.send_many("t", [b"3", (b"k", b"4")]),
                ]
                await asyncio.sleep(0.5)
            await producer.gather(deliveries)
        values = {record.value for record in world.cluster.records("t")}
        assert values >= {b"1", b"2", b"3", b"4"}

    simulate(scenario, topics={"t": 2})


@pytest.mark.parametrize("alter", [emptied, recreated])
@pytest.mark.parametrize("group", [None, "g"])
def test_consumers_and_admins_bear_topics_without_partitions(group: Any, alter: Any) -> None:
    async def scenario(world: World) -> None:
        tp = TopicPartition("t", 0)
        options = {"metadata_max_age_ms": 100, "default_api_timeout_ms": 1000, "group_id": group}
        consumer = await world.consumer("t", **options)
        await consumer.poll(1)
        async with Admin(**world.options(default_api_timeout_ms=1000)) as admin:
            with world.cluster.alter(ApiKey.METADATA, alter):
                await asyncio.sleep(0.5)
                fresh = world.consumer("t", **{**options, "group_id": None})
                for call in (
                    fresh.start,
                    lambda: fresh.poll(0.5),
                    lambda: consumer.poll(0.5),
                    lambda: consumer.position(tp),
                    lambda: consumer.end_offsets([tp]),
                    lambda: consumer.offsets_for_times({tp: 1}),
                    lambda: consumer.partitions_for("t"),
                    lambda: consumer.list_topics(),
                    lambda: consumer.lag(),
                    lambda: admin.describe_topics(["t"]),
                    lambda: admin.list_topics(),
                    lambda: admin.delete_records({tp: 0}),
                    fresh.close,
                ):
                    with contextlib.suppress(KafkaError):
                        await call()
        assert consumer._failure is None
        await consumer.close()

    simulate(scenario, topics={"t": 2})
