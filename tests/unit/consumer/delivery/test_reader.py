"""Tests of reading one by one, in lists, and as Arrow tables, and of stop and close.

They also cover records in progress, and that there is only one reader.
"""

import asyncio
import re
import threading
from typing import Any

import pytest
from world import World, simulate

from aiokclient import Consumer, TopicPartition
from aiokclient.consumer.state.partition import PartitionState
from aiokclient.consumer.state.subscription import SubscriptionState
from aiokclient.errors import (
    ApiTimeoutError,
    ClosedError,
    ConcurrentReadError,
    CoordinatorLoadInProgressError,
    IllegalStateError,
)
from aiokclient.protocol import ApiKey

T0, T1, T2 = (TopicPartition("t", i) for i in range(3))
THREE = {"t": 3}


def fill(world: World, count: int = 10, partition: int = 0, batch: int = 4) -> None:
    """Produce values "partition:offset" in small batches."""
    start = world.cluster.offsets("t", partition)[1]
    for first in range(start, start + count, batch):
        values = [
            b"%d:%d" % (partition, i) for i in range(first, min(first + batch, start + count))
        ]
        world.cluster.produce("t", values, partition=partition)


def check(records: Any) -> None:
    """Check that the value of each record names its partition and offset."""
    assert all(r.value == b"%d:%d" % (r.partition, r.offset) for r in records)


def test_reading_one_by_one_ends_at_the_end_offsets() -> None:
    async def scenario(world: World) -> None:
        for partition in range(3):
            fill(world, 50, partition)
        async with world.consumer("t") as consumer:
            records = [record async for record in consumer.until_end()]
            check(records)
            assert len(records) == 150
            assert {tp: o.offset for tp, o in consumer.consumed().items()} == dict.fromkeys(
                (T0, T1, T2), 50
            )
            assert [record async for record in consumer.until_end()] == []

    simulate(scenario, brokers=3, topics=THREE)


def test_until_end_uses_the_end_offsets_of_its_start() -> None:
    """Records that are written during `until_end()` are left to a later iteration.

    None of them is lost.
    """

    async def scenario(world: World) -> None:
        fill(world, 10)
        fill(world, 10, 1)
        async with world.consumer("t") as consumer:
            seen = []
            async for record in consumer.until_end():
                if not seen:
                    fill(world, 10, batch=10)
                    fill(world, 2_000, 1, batch=500)
                seen.append(record)
            assert len(seen) == 20
            rest: list[Any] = []
            while len(rest) < 2_010:
                rest += await consumer.poll()
            check(rest)
            assert sorted({r.offset for r in rest if r.partition == 0}) == list(range(10, 20))

    simulate(scenario, brokers=3, topics=THREE)


def test_until_end_follows_a_seek_back() -> None:
    async def scenario(world: World) -> None:
        fill(world, 10)
        fill(world, 10, 1)
        async with world.consumer("t") as consumer:
            seen = []
            async for record in consumer.until_end():
                seen.append((record.partition, record.offset))
                if len(seen) == 15:
                    consumer.seek(TopicPartition("t", seen[0][0]), 5)
            assert len(seen) == 25
            assert sorted(set(seen)) == [(p, i) for p in (0, 1) for i in range(10)]

    simulate(scenario, topics={"t": 2})


def test_a_thousand_partitions_to_their_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of passes over all partitions does not grow with the number of partitions.

    One partition is rewound during the iteration, and is read again.
    """
    partitions = 1_000
    looks = 0
    stopped: set[PartitionState] = set()
    hold = SubscriptionState.withhold_at_end

    def counting(self: SubscriptionState, states: Any, held: bool) -> None:
        nonlocal looks
        looks += 1
        stopped.update(states if held else ())
        hold(self, states, held)

    async def scenario(world: World) -> None:
        for partition in range(partitions):
            fill(world, 2, partition)
        async with world.consumer("t") as consumer:
            seen = []
            async for record in consumer.until_end():
                seen.append((record.partition, record.offset))
                if len(seen) == partitions:
                    consumer.seek(TopicPartition("t", seen[0][0]), 1)
            assert len(seen) == partitions * 2 + 1
            assert sorted(set(seen)) == [(p, i) for p in range(partitions) for i in range(2)]
            assert not any(state.is_at_end for state in consumer._subscription.partitions.values())

    monkeypatch.setattr(SubscriptionState, "withhold_at_end", counting)
    simulate(scenario, topics={"t": partitions})
    assert len(stopped) == partitions
    assert looks < partitions / 5


def test_to_the_end_from_the_end_and_of_nothing() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        async with world.consumer("t", auto_offset_reset="latest") as consumer:
            assert [r async for r in consumer.until_end()] == []
            consumer.unsubscribe()
            assert [r async for r in consumer.until_end()] == []

    simulate(scenario, topics=THREE)


GROUPS: list[dict[str, Any]] = [
    {},
    {"group_id": "g"},
    {"group_id": "g", "group_protocol": "consumer"},
]


@pytest.mark.parametrize("group", GROUPS)
def test_to_the_end_of_what_was_subscribed_a_moment_before(group: dict[str, Any]) -> None:
    """`until_end()` also waits for partitions of a subscription or group that was just added.

    Partitions that were assigned by hand are not enough.
    """

    async def scenario(world: World) -> None:
        fill(world)
        world.cluster.produce("u", [b"0:0"])
        async with world.consumer(**group) as consumer:
            consumer.subscribe(["t"])
            assert len([r async for r in consumer.until_end()]) == 10
            consumer.unsubscribe()
            consumer.subscribe(re.compile("[tv]"))
            consumer.assign([TopicPartition("u", 0)])
            topics = {r.topic async for r in consumer.until_end()}
            assert topics == {"u"}, "t stays subscribed, but all its records have been read"

    simulate(scenario, topics={"t": 1, "u": 1})


def test_until_end_waits_for_the_partitions_of_the_group() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        options: dict[str, Any] = {"group_id": "g", "default_api_timeout_ms": 5_000}
        async with world.consumer(**options) as consumer:
            with world.cluster.fail(ApiKey.FIND_COORDINATOR, CoordinatorLoadInProgressError):
                consumer.subscribe(["t"])
                with pytest.raises(ApiTimeoutError, match="The group assigned no partitions"):
                    await anext(consumer.until_end())
            assert len([r async for r in consumer.until_end()]) == 10

    simulate(scenario)


def test_lists_have_the_records_in_order() -> None:
    async def scenario(world: World) -> None:
        for partition in range(3):
            fill(world, 30, partition)
        async with world.consumer("t") as consumer:
            lists = [rs async for rs in consumer.batches(max_records=7, until_end=True)]
            assert all(1 <= len(rs) <= 7 for rs in lists)
            assert sum(map(len, lists)) == 90
            for rs in lists:
                check(rs)
            consumer.seek_to_beginning()
            lists = [rs async for rs in consumer.batches(7, by_partition=True, until_end=True)]
            assert all(len(rs.by_partition()) == 1 for rs in lists)
            assert sum(map(len, lists)) == 90

    simulate(scenario, brokers=3, topics=THREE)


def test_lists_wait_for_more_records() -> None:
    async def scenario(world: World) -> None:
        fill(world, 2)
        async with world.consumer("t") as consumer:
            began = world.now
            asyncio.get_running_loop().call_later(0.5, fill, world, 3)
            async for records in consumer.batches(max_records=100, max_wait=2.0):
                assert len(records) == 5
                assert 1.9 < world.now - began < 2.5
                break
            asyncio.get_running_loop().call_later(0.5, fill, world, 3)
            began = world.now
            async for records in consumer.batches(max_records=3, max_wait=9.0):
                assert len(records) == 3
                assert world.now - began < 1.5
                break

    simulate(scenario)


def test_poll_and_get_return_the_next_records() -> None:
    async def scenario(world: World) -> None:
        async with world.consumer("t", max_poll_records=6) as consumer:
            began = world.now
            assert await consumer.poll(timeout=3.0) == []
            assert 2.9 < world.now - began < 3.1
            assert await consumer.get(timeout=0.1) is None
            fill(world, 10)
            assert len(await consumer.poll()) <= 6
            record = await consumer.get()
            assert record is not None
            check([record])
            while record.offset < 9:
                record = await consumer.get()
                assert record is not None
            assert await consumer.poll(timeout=0.0) == []
            with pytest.raises(IllegalStateError):
                await consumer.poll(max_records=0)

    simulate(scenario)


def test_arrow_batches_of_several_partitions_respect_a_seek() -> None:
    pytest.importorskip("pyarrow")

    async def scenario(world: World) -> None:
        for partition in range(3):
            fill(world, 30, partition)
        async with world.consumer("t") as consumer:
            consumer.seek(T1, 13)
            seen: list[tuple[int, int, bytes]] = []
            async for table in consumer.arrow_batches():
                columns = (
                    table.column(name).to_pylist() for name in ("partition", "offset", "value")
                )
                seen += zip(*columns, strict=True)
                assert table.num_rows
                if len(seen) == 77:
                    break
            assert all(value == b"%d:%d" % (partition, at) for partition, at, value in seen)
            assert consumer.consumed()[T1].offset == 30
            assert min(at for partition, at, _ in seen if partition == 1) == 13

    simulate(scenario, brokers=3, topics=THREE)


def test_ways_of_reading_follow_each_other() -> None:
    """No record is lost when a program changes its way of reading in the middle of a list."""
    pytest.importorskip("pyarrow")

    async def scenario(world: World) -> None:
        fill(world, 100, batch=50)
        async with world.consumer("t") as consumer:
            offsets: list[int] = []
            for _ in range(3):
                async for record in consumer:
                    offsets.append(record.offset)
                    if len(offsets) % 7 == 0:
                        break
                record = await consumer.get()
                assert record is not None
                offsets.append(record.offset)
                offsets += [r.offset for r in await consumer.poll(max_records=5)]
                async for records in consumer.batches(max_records=3):
                    offsets += [r.offset for r in records]
                    break
            async for table in consumer.arrow_batches():
                offsets += table.column("offset").to_pylist()
                if len(offsets) >= 100:
                    break
            assert offsets == list(range(100))

    simulate(scenario)


def processed(consumer: Consumer[Any, Any]) -> int:
    consumer.consumed()
    return consumer._subscription[T0].processed


async def failing(consumer: Consumer[Any, Any]) -> None:
    async for _ in consumer:
        raise ZeroDivisionError


def test_a_record_is_processed_once_the_next_is_asked_for() -> None:
    async def scenario(world: World) -> None:
        fill(world, 20)
        async with world.consumer("t") as consumer:
            async for record in consumer:
                assert processed(consumer) == record.offset
                assert consumer.consumed()[T0].offset == record.offset + 1
                assert await consumer.position(T0) == record.offset + 1
                if record.offset == 9:
                    break
            assert processed(consumer) == 9
            assert len(await consumer.poll(max_records=4)) == 4
            assert processed(consumer) == 10
            assert consumer.consumed()[T0].offset == 14
            with pytest.raises(ZeroDivisionError):
                await failing(consumer)
            assert processed(consumer) == 14
            consumer.seek(T0, 14)
            assert processed(consumer) == 14
            record = await consumer.get()
            assert record is not None
            assert record.offset == processed(consumer) == 14

    simulate(scenario)


def test_one_reader_at_a_time() -> None:
    async def scenario(world: World) -> None:
        async with world.consumer("t") as consumer:
            waiting = asyncio.create_task(consumer.poll(timeout=5.0))
            await asyncio.sleep(0.1)
            for second in (consumer.poll(), consumer.get(), anext(consumer.__aiter__())):
                with pytest.raises(ConcurrentReadError, match="Another task"):
                    await second
            fill(world, 1)
            assert len(await waiting) == 1

            entered, go_on = asyncio.Event(), asyncio.Event()

            async def loop() -> None:
                async for _ in consumer:
                    entered.set()
                    await go_on.wait()
                    return

            looping = asyncio.create_task(loop())
            fill(world, 2)
            await entered.wait()
            with pytest.raises(ConcurrentReadError):
                await consumer.poll()
            with pytest.raises(ConcurrentReadError):
                await anext(aiter(consumer.batches()))
            go_on.set()
            await looping
            assert len(await consumer.poll()) == 1

    simulate(scenario)


def test_stop_ends_what_is_running_after_what_is_being_processed() -> None:
    async def scenario(world: World) -> None:
        fill(world, 10, batch=10)
        async with world.consumer("t") as consumer:
            offsets = []
            async for record in consumer:
                offsets.append(record.offset)
                if record.offset == 3:
                    consumer.stop()
            assert offsets == [0, 1, 2, 3]
            assert await consumer.poll(timeout=50) == []
            assert [rs async for rs in consumer.batches()] == []
            assert [r async for r in consumer] == []

    simulate(scenario)


async def test_stop_works_from_another_thread(kafka_cluster: Any, kafka_topic: str) -> None:
    servers = kafka_cluster.bootstrap_servers
    async with Consumer(kafka_topic, bootstrap_servers=servers) as consumer:
        waiting = asyncio.create_task(consumer.poll(timeout=60))
        await asyncio.sleep(0)
        thread = threading.Thread(target=consumer.stop)
        thread.start()
        assert await waiting == []
        thread.join()


def test_close_ends_a_running_loop() -> None:
    async def scenario(world: World) -> None:
        fill(world, 3)
        consumer = await world.consumer("t")
        offsets: list[int] = []
        caught_up = asyncio.Event()

        async def loop() -> None:
            async for record in consumer:
                offsets.append(record.offset)
                if record.offset == 2:
                    caught_up.set()

        looping = asyncio.create_task(loop())
        await caught_up.wait()
        await asyncio.sleep(1)
        await consumer.close()
        await looping
        assert offsets == [0, 1, 2]
        with pytest.raises(ClosedError):
            await consumer.poll()
        with pytest.raises(ClosedError):
            aiter(consumer)
        consumer.stop()
        await consumer.close()

    simulate(scenario)


def test_close_causes_no_metadata_request() -> None:
    """The cancelled fetch is no sign that the leader is unavailable.

    So it causes no metadata request.
    """

    async def scenario(world: World) -> None:
        fill(world, 3)
        async with world.client() as client:
            for _ in range(3):
                consumer = Consumer("t", client=client, auto_offset_reset="earliest")
                await consumer.start()
                assert len(await consumer.poll()) == 3
                await asyncio.sleep(1)
                closing = world.now
                await consumer.close()
                await asyncio.sleep(5)
                assert {r.api for r in world.cluster.requests if r.at > closing} <= {ApiKey.FETCH}

    simulate(scenario)


def test_reading_before_the_start_raises() -> None:
    async def scenario(world: World) -> None:
        consumer = world.consumer()
        consumer.assign([T0])
        consumer.seek(T0, 2)
        consumer.pause([T0])
        assert consumer.assignment() == consumer.paused() == {T0}
        with pytest.raises(IllegalStateError, match="not started"):
            await consumer.poll()
        fill(world, 5)
        async with consumer:
            assert await consumer.poll() == []
            consumer.resume([T0])
            assert next(r.offset for r in await consumer.poll()) == 2

    simulate(scenario)
