"""Handlers of share groups that take longer than the lock of their record, or lose it."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from share_work import ShareWork, key_of
from world import World, simulate

from aiokclient import ShareConsumer
from aiokclient.errors import LockLostError

LOCK_S = 15.0


async def begin(world: World, count: int) -> ShareWork:
    work = ShareWork(world)
    await work.create_group(lock_ms=int(LOCK_S * 1000))
    for number in range(count):
        world.cluster.produce("t", [b"%d" % number], partition=number % 3)
    return work


async def read(consumer: ShareConsumer[Any, Any], handle: Any, outstanding: int) -> None:
    async with consumer, asyncio.TaskGroup() as tasks:
        async for record in consumer.tracked(outstanding):
            tasks.create_task(handle(consumer, record))


@pytest.mark.parametrize("count", [150, pytest.param(1000, marks=pytest.mark.share)])
def test_no_record_comes_again_while_its_handler_takes_three_locks(count: int) -> None:
    """And none is archived because members acquire more than they have handlers for."""

    async def scenario(world: World) -> None:
        work = await begin(world, count)
        delivered: Counter[Any] = Counter()
        done: set[Any] = set()
        consumers = [work.new_consumer() for _ in range(4)]

        async def handle(consumer: ShareConsumer[Any, Any], record: Any) -> None:
            delivered[key_of(record)] += 1
            async with consumer.processing(record):
                await asyncio.sleep(3.0 * LOCK_S)
            done.add(key_of(record))
            if len(done) == count:
                for each in consumers:
                    each.stop()

        async with asyncio.timeout(2000.0), asyncio.TaskGroup() as tasks:
            for consumer in consumers:
                tasks.create_task(read(consumer, handle, count // 10))
        assert len(done) == count
        assert set(delivered.values()) == {1}
        assert work.errors == []

    simulate(scenario, brokers=3, topics={"t": 3})


@pytest.mark.parametrize("way", ["tracked", "iteration", "run"])
def test_fewer_places_than_leaders_acquire_no_record_that_has_to_wait(way: str) -> None:
    """A record that waits for too long is released, and archived when that has happened often."""

    async def scenario(world: World) -> None:
        work, count = await begin(world, 24), 24
        done: list[Any] = []
        consumer = work.new_consumer()

        async def handle(record: Any) -> None:
            assert record.delivery_count == 1
            await asyncio.sleep(LOCK_S / 3)
            done.append(key_of(record))
            if len(done) == count:
                consumer.stop()

        async def process(_: ShareConsumer[Any, Any], record: Any) -> None:
            async with consumer.processing(record):
                await handle(record)

        async with asyncio.timeout(10 * LOCK_S):
            if way == "tracked":
                await read(consumer, process, 1)
            elif way == "run":
                async with consumer:
                    await consumer.run(handle, concurrency=1)
            else:
                async with consumer:
                    async for record in consumer:
                        await handle(record)
        assert len(set(done)) == len(done) == count
        assert work.errors == []

    simulate(scenario, brokers=3, topics={"t": 3})


def test_large_batches_among_small_ones_are_acquired_as_far_as_there_is_time_for_them() -> None:
    """Otherwise most of their records wait, are released, come again, and are archived at last."""

    async def scenario(world: World) -> None:
        work, counts = await begin(world, 0), Counter[int]()
        for _ in range(2):
            for _ in range(6):
                world.cluster.produce("t", [b"poison"])
            world.cluster.produce("t", [b"large"] * 60)
        consumer = work.new_consumer()
        async with asyncio.timeout(20 * LOCK_S), consumer:
            async for record in consumer:
                if record.value == b"poison":
                    consumer.release(record)
                    continue
                counts[record.delivery_count] += 1
                if counts.total() == 120:
                    break
                await asyncio.sleep(LOCK_S / 40)
        assert counts[1] + counts[2] + counts[3] > 100, counts

    simulate(scenario)


def test_a_loss_is_told_before_the_second_delivery_is_settled() -> None:
    async def scenario(world: World) -> None:
        work, count = await begin(world, 60), 60
        begun: set[Any] = set()
        told: set[Any] = set()
        done: set[Any] = set()
        consumers = [work.new_consumer(renew_locks=False) for _ in range(3)]

        async def handle(consumer: ShareConsumer[Any, Any], record: Any) -> None:
            key = key_of(record)
            if key not in begun:
                begun.add(key)
                with pytest.raises(LockLostError) as caught:
                    async with consumer.processing(record):
                        await asyncio.sleep(3.0 * LOCK_S)
                assert caught.value.reason == "expired"
                told.add(key)
                return
            assert key in told
            async with consumer.processing(record):
                pass
            done.add(key)
            if len(done) == count:
                for each in consumers:
                    each.stop()

        async with asyncio.timeout(500.0), asyncio.TaskGroup() as tasks:
            for consumer in consumers:
                tasks.create_task(read(consumer, handle, 10))
        assert told == done
        assert len(done) == count

    simulate(scenario, brokers=3, topics={"t": 3})


@pytest.mark.fault(3)
@pytest.mark.parametrize("moves", [1, 2, 3])
def test_handlers_are_cancelled_within_a_second_of_moves(moves: int) -> None:
    """With two moves, the leader is the former one again, which has no locks any more."""

    async def scenario(world: World) -> None:
        work = await begin(world, 30)
        cancelled: dict[Any, float] = {}
        held: set[Any] = set()
        all_held = asyncio.Event()

        async def handle(consumer: ShareConsumer[Any, Any], record: Any) -> None:
            held.add(key_of(record))
            if len(held) == 30:
                all_held.set()
            with pytest.raises(LockLostError) as caught:
                async with consumer.processing(record):
                    await asyncio.Event().wait()
            assert caught.value.reason == "moved"
            cancelled[key_of(record)] = world.now

        consumer = work.new_consumer()
        reading = asyncio.create_task(read(consumer, handle, 30))
        async with asyncio.timeout(30.0):
            await all_held.wait()
        await asyncio.sleep(0.5)
        consumer.stop()
        leader = world.cluster.leader("t", 1)
        other = leader % 3 + 1
        moved_at = world.now
        for number in range(moves):
            world.cluster.move_leader("t", 1, leader if number % 2 else other)
        await asyncio.sleep(5.0)
        assert cancelled.keys() == {key for key in held if key[1] == 1}
        assert max(cancelled.values()) <= moved_at + 1.0
        for partition in (0, 2):
            world.cluster.move_leader("t", partition)
        await reading

    simulate(scenario, brokers=3, topics={"t": 3})
