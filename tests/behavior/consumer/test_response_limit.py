"""Record batches beyond `receive_message_max_bytes`, on the embedded cluster and on Kafka."""

import asyncio
from typing import Any

import pytest

from aiokclient import Client, Consumer, Producer, TopicPartition
from aiokclient.errors import ResponseTooLargeError

LIMIT = 200_000


async def test_a_batch_beyond_the_limit_is_named_until_the_consumer_seeks_past_it(
    cluster_servers: Any,
) -> None:
    topic = await cluster_servers.new_topic(partitions=3)
    async with asyncio.timeout(60), Producer(bootstrap_servers=cluster_servers.bootstrap) as writer:
        for partition in range(3):
            await writer.send(topic, b"1", partition=partition)
        await writer.send(topic, b"2" * 300_000, partition=1)
        for partition in range(3):
            await writer.send(topic, b"3", partition=partition)
    large = TopicPartition(topic, 1)
    async with (
        asyncio.timeout(60),
        Client(
            bootstrap_servers=cluster_servers.bootstrap, receive_message_max_bytes=LIMIT
        ) as client,
    ):
        options: Any = {"auto_offset_reset": "earliest", "fetch_max_bytes": 100_000}
        async with Consumer(topic, client=client, **options) as consumer:
            found: list[tuple[int, int]] = []
            refused: Any = None
            while len(found) < 5 or refused is None:
                try:
                    found += [(r.partition, r.offset) for r in await consumer.poll()]
                except ResponseTooLargeError as error:
                    refused = (error.topic_partition, error.offset)
                    consumer.pause([large])
            assert refused == (large, 1)
            consumer.resume([large])
            for _ in range(3):
                with pytest.raises(ResponseTooLargeError, match="receive_message_max_bytes"):
                    await consumer.poll(timeout=10)
            consumer.seek(large, 2)
            while len(found) < 6:
                found += [(r.partition, r.offset) for r in await consumer.poll()]
            assert sorted(found) == [(0, 0), (0, 1), (1, 0), (1, 2), (2, 0), (2, 1)]
        with pytest.raises(ResponseTooLargeError) as raised:
            async for _ in client.read_range(large, 1, 3):
                pass
        assert (raised.value.topic_partition, raised.value.offset) == (large, 1)
