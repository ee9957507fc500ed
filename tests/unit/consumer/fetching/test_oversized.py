"""Tests of batches that are beyond `receive_message_max_bytes`."""

import asyncio
import math
from typing import Any

import pytest
from world import World, simulate

from aiokclient import Consumer, TopicPartition
from aiokclient.errors import ConfigError, ResponseTooLargeError
from aiokclient.protocol import ApiKey
from aiokclient.types import State

T0 = TopicPartition("t", 0)
LIMIT = 20_000
SMALL: Any = {"receive_message_max_bytes": LIMIT, "fetch_max_bytes": 10_000}


def fill(world: World, *sizes: int, topic: str = "t", partition: int = 0) -> None:
    for size in sizes:
        world.cluster.produce(topic, [b"x" * size], partition=partition)


async def poll(consumer: Consumer[Any, Any]) -> list[int]:
    return [r.offset for r in await consumer.poll(timeout=5.0)]


async def get(consumer: Consumer[Any, Any]) -> list[int]:
    record = await consumer.get(timeout=5.0)
    return [] if record is None else [record.offset]


async def iterate(consumer: Consumer[Any, Any]) -> list[int]:
    async for record in consumer:
        return [record.offset]
    return []


async def batches(consumer: Consumer[Any, Any]) -> list[int]:
    async for batch in consumer.batches():
        return [r.offset for r in batch]
    return []


async def until_end(consumer: Consumer[Any, Any]) -> list[int]:
    async for record in consumer.until_end():
        return [record.offset]
    return []


async def tracked(consumer: Consumer[Any, Any]) -> list[int]:
    async for record in consumer.tracked():
        consumer.done(record)
        return [record.offset]
    return []


async def arrow(consumer: Consumer[Any, Any]) -> list[int]:
    async for batch in consumer.arrow_batches():
        offsets: list[int] = batch.column("offset").to_pylist()
        return offsets
    return []


READERS = [poll, get, iterate, batches, until_end, tracked, arrow]


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
def test_a_record_beyond_the_limit_raises_at_every_request_until_a_seek(read: Any) -> None:
    async def scenario(world: World) -> None:
        fill(world, 10, 20, 2 * LIMIT, 30)
        async with asyncio.timeout(60), world.consumer("t", **SMALL) as consumer:
            found: list[int] = []
            while len(found) < 2:
                found += await read(consumer)
            assert found == [0, 1]
            for _ in range(5):
                with pytest.raises(ResponseTooLargeError) as raised:
                    await read(consumer)
                assert raised.value.topic_partition == T0
                assert raised.value.offset == 2
                assert "receive_message_max_bytes" in str(raised.value)
                assert "t-0" in str(raised.value)
                await asyncio.sleep(0.7)
            assert any("t-0" in reason for reason in consumer.health().reasons)
            consumer.seek(T0, 3)
            assert await read(consumer) == [3]
            assert consumer.health().state is State.RUNNING

    simulate(scenario)


def test_partitions_beside_a_record_beyond_the_limit_are_read_when_it_is_paused() -> None:
    async def scenario(world: World) -> None:
        for partition in range(20):
            fill(world, 10, 2 * LIMIT if partition in (7, 13) else 10, partition=partition)
        async with asyncio.timeout(60), world.consumer("t", **SMALL) as consumer:
            found: set[tuple[int, int]] = set()
            refused: set[Any] = set()
            while len(found) < 38 or len(refused) < 2:
                try:
                    found |= {(r.partition, r.offset) for r in await consumer.poll(timeout=1.0)}
                except ResponseTooLargeError as error:
                    refused.add((error.topic_partition, error.offset))
                    consumer.pause(tp for tp, _ in refused)
            assert refused == {(TopicPartition("t", 7), 1), (TopicPartition("t", 13), 1)}
            await consumer.poll(timeout=2.0)
            connected = len(world.requests(ApiKey.API_VERSIONS))
            fill(world, *[10] * 50, partition=3)
            count = 0
            while count < 50:
                count += len(await consumer.poll(timeout=1.0))
            assert len(world.requests(ApiKey.API_VERSIONS)) == connected

    simulate(scenario, brokers=2, topics={"t": 20})


def test_reading_continues_when_a_record_beyond_the_limit_was_deleted() -> None:
    async def scenario(world: World) -> None:
        fill(world, 2 * LIMIT, 10)
        async with asyncio.timeout(60), world.consumer("t", **SMALL) as consumer:
            for _ in range(3):
                with pytest.raises(ResponseTooLargeError):
                    await consumer.poll(timeout=5.0)
            async with world.client() as client:
                from aiokclient import Admin

                async with Admin(client=client) as admin:
                    (await admin.delete_records({T0: 1})).raise_for_errors()
            found: list[int] = []
            while not found:
                try:
                    found += await poll(consumer)
                except ResponseTooLargeError:
                    await asyncio.sleep(0.2)
            assert found == [1]

    simulate(scenario)


def test_a_backlog_larger_than_the_limit_is_read() -> None:
    """The records, together with what else is in a response, do not fit into the limit."""

    async def scenario(world: World) -> None:
        for partition in range(40):
            fill(world, *[300] * 30, partition=partition)
        options: Any = {"receive_message_max_bytes": LIMIT, "fetch_max_bytes": LIMIT - 512}
        async with asyncio.timeout(600), world.consumer("t", **options) as consumer:
            found: set[tuple[int, int]] = set()
            while len(found) < 1200:
                found |= {(r.partition, r.offset) for r in await consumer.poll(timeout=5.0)}

    simulate(scenario, topics={"t": 40})


def test_fetch_max_bytes_above_the_limit_is_refused() -> None:
    options: Any = {"bootstrap_servers": "localhost:1"}
    for more in (
        {"fetch_max_bytes": 2_000_000, "receive_message_max_bytes": 1_000_000},
        {"fetch_max_bytes": 1_000_000, "receive_message_max_bytes": 1_000_000},
        {"fetch_max_bytes": 200_000_000},
        {"receive_message_max_bytes": 1_000_000},
    ):
        with pytest.raises(ConfigError) as raised:
            Consumer("t", **options, **more)
        assert "fetch_max_bytes" in str(raised.value)
        assert "receive_message_max_bytes" in str(raised.value)
    Consumer("t", **options, fetch_max_bytes=1_000_000, receive_message_max_bytes=1_000_512)


def test_fetch_max_bytes_above_the_limit_of_a_shared_client_is_refused() -> None:
    async def scenario(world: World) -> None:
        async with world.client(receive_message_max_bytes=1_000_000) as client:
            with pytest.raises(ConfigError, match="receive_message_max_bytes"):
                Consumer("t", client=client, fetch_max_bytes=2_000_000)

    simulate(scenario)


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_range_with_a_record_beyond_the_limit_raises(isolation: str) -> None:
    async def scenario(world: World) -> None:
        fill(world, 10, 20, 2 * LIMIT, 30)
        async with asyncio.timeout(60), world.client(receive_message_max_bytes=LIMIT) as client:
            found: list[int] = []

            async def read() -> None:
                async for batch in client.read_range(T0, 0, 4, isolation_level=isolation):
                    found.extend(batch.column("offset").to_pylist())

            with pytest.raises(ResponseTooLargeError) as raised:
                await read()
            assert found == [0, 1]
            assert raised.value.topic_partition == T0
            assert raised.value.offset == 2
            assert "receive_message_max_bytes" in str(raised.value)
            rest = [b async for b in client.read_range(T0, 3, 4)]
            assert rest[0].column("offset").to_pylist() == [3]

    simulate(scenario)


def test_a_range_larger_than_the_limit_is_read() -> None:
    async def scenario(world: World) -> None:
        fill(world, *[1_000] * 300)
        async with asyncio.timeout(60), world.client(receive_message_max_bytes=LIMIT) as client:
            found: list[int] = []
            async for batch in client.read_range(T0, 0, 300):
                found += batch.column("offset").to_pylist()
            assert found == list(range(300))

    simulate(scenario)


def test_other_calls_raise_at_once_if_their_responses_are_beyond_the_limit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(world: World) -> None:
        from aiokclient import Admin

        options = world.options(receive_message_max_bytes=1024)
        async with asyncio.timeout(20), Admin(**options) as admin:
            for _ in range(3):
                with pytest.raises(ResponseTooLargeError, match="receive_message_max_bytes"):
                    await admin.list_topics(timeout=math.inf)

    simulate(scenario, topics={f"topic-{n:03}": 1 for n in range(100)})
    told = [record for record in caplog.records if record.__dict__["event"] == "response_too_large"]
    assert [record.__dict__["api"] for record in told] == ["Metadata"], "once for each API"
