"""Tests of synchronous calls: processed records, the subscription, and known cluster metadata."""

import asyncio
import re
from typing import Any

import pytest
from world import World, simulate

from aiokclient import Consumer, TopicPartition
from aiokclient.errors import ClosedError

T0 = TopicPartition("t", 0)


def committed(world: World) -> int | None:
    found = world.cluster.committed("g").get(T0)
    return None if found is None else found.offset


def grouped(world: World, **more: Any) -> Consumer[Any, Any]:
    return world.consumer("t", group_id="g", auto_commit_interval_ms=100, **more)


def test_mark_processed_counts_the_record_in_the_loop_body() -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"0", b"1", b"2", b"3"])
        async with grouped(world) as consumer:
            seen = 0
            async for record in consumer:
                seen += 1
                await asyncio.sleep(1)
                assert committed(world) == record.offset
                consumer.mark_processed()
                await asyncio.sleep(1)
                assert committed(world) == record.offset + 1
                if seen == 3:
                    break

    simulate(scenario)


def test_mark_processed_counts_a_whole_list() -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"0", b"1", b"2"])
        async with grouped(world) as consumer:
            records = await consumer.poll(timeout=10)
            assert len(records) == 3
            await asyncio.sleep(1)
            assert committed(world) == 0
            consumer.mark_processed()
            await asyncio.sleep(1)
            assert committed(world) == 3

    simulate(scenario)


def test_mark_processed_counts_what_tracked_delivered_and_makes_room() -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"0", b"1", b"2"])
        async with grouped(world) as consumer:
            seen: list[Any] = []

            async def follow() -> None:
                async for record in consumer.tracked(max_outstanding=2):
                    seen.append(record)

            reading = asyncio.create_task(follow())
            await asyncio.sleep(5)
            assert len(seen) == 2
            consumer.mark_processed()
            await asyncio.sleep(1)
            assert len(seen) == 3
            assert committed(world) == 2
            consumer.done(seen[0])
            consumer.done(seen[2])
            await asyncio.sleep(1)
            assert committed(world) == 3
            consumer.stop()
            await reading

    simulate(scenario)


def test_mark_processed_lets_a_revocation_continue() -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"0", b"1"])
        async with grouped(world, max_poll_interval_ms=600_000) as consumer:
            async for _ in consumer:
                consumer.mark_processed()
                begun = world.now
                await consumer.close()
                assert world.now - begun < 1
                break
        assert committed(world) == 1
        with pytest.raises(ClosedError):
            consumer.mark_processed()

    simulate(scenario)


def test_subscription_names_the_topics_or_those_that_match() -> None:
    async def scenario(world: World) -> None:
        consumer = world.consumer("t", "u")
        assert consumer.subscription() == {"t", "u"}
        async with consumer:
            assert consumer.subscription() == {"t", "u"}
            consumer.subscribe(re.compile("[tv]"))
            await consumer.poll(timeout=1)
            assert consumer.subscription() == {"t", "v"}
            consumer.unsubscribe()
            assert consumer.subscription() == set()
        async with world.consumer(re.compile("u|v"), group_id="g") as other:
            assert other.subscription() == {"u", "v"}

    simulate(scenario, topics={"t": 1, "u": 1, "v": 1})


def test_the_last_stable_offset_is_known_without_a_request() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(transactional_id="x") as producer:
            async with producer.transaction():
                await producer.send("t", b"0", partition=0)
            tx = await producer.begin_transaction()
            await producer.send("t", b"1", partition=0)
            for isolation, count in (("read_uncommitted", 2), ("read_committed", 1)):
                consumer = world.consumer("t", isolation_level=isolation)
                assert consumer.last_stable_offset(T0) is None
                async with consumer:
                    assert len(await consumer.poll(timeout=10, max_records=count)) == count
                    assert consumer.last_stable_offset(T0) == 2
                    assert consumer.highwater(T0) == 3
                    assert consumer.last_stable_offset(TopicPartition("other", 0)) is None
            del tx
            await producer.abort_transaction()

    simulate(scenario, topics={"t": 1, "other": 1})


def test_known_partitions_and_high_watermarks_need_no_request() -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"0", b"1", b"2"])
        consumer = world.consumer("t")
        assert consumer.partitions_for_topic("t") is None
        assert consumer.highwater(T0) is None
        async with consumer:
            assert consumer.partitions_for_topic("t") == {0, 1}
            assert consumer.partitions_for_topic("other") is None
            assert len(await consumer.poll(timeout=10)) == 3
            assert consumer.highwater(T0) == 3
            assert consumer.highwater(TopicPartition("other", 0)) is None

    simulate(scenario, topics={"t": 2, "other": 1})
