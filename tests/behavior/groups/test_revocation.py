"""The revocation of partitions, and the waits, commits, and listener calls before it."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from group_world import Diary, committed, fill, member, part
from world import World, simulate

from aiokclient import Consumer, State, TopicPartition
from aiokclient.errors import CommitFailedError, IllegalStateError

STRATEGIES = {"eager": "range", "cooperative": "cooperative-sticky"}
both = pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)


class TestInProgress:
    @both
    def test_a_revocation_waits_until_the_next_record_is_requested(self, strategy: str) -> None:
        async def scenario(world: World) -> None:
            fill(world, 5, 2)
            first, second = Diary(), Diary()
            options = {"partition_assignment_strategy": strategy}
            async with member(world, first, **options) as one:
                assert len(await one.poll()) == 10
                two = member(world, second, **options)
                joining = asyncio.create_task(two.start())
                await asyncio.sleep(20)
                assert [what for what, _ in first.pages] == ["assigned"]
                assert not second.owned
                assert await one.get(timeout=0) is None or len(first.owned) == 2
                await second.until(lambda: len(second.owned) == 1)
                await joining
                # By then, the record in progress was processed and committed.
                given_up = [committed(world, tp.partition) for tp in second.owned]
                assert given_up == [5]
                await two.close()

        simulate(scenario, topics={"t": 2})

    def test_a_revocation_does_not_wait_when_no_record_is_in_progress(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 5, 2)
            first, second = Diary(), Diary()
            async with member(world, first) as one:
                async for _ in one.until_end():
                    pass
                began = world.now
                async with member(world, second):
                    await second.until(lambda: len(second.owned) == 1)
                    assert world.now - began < 2
                assert committed(world, 0) == committed(world, 1) == 5

        simulate(scenario, topics={"t": 2})

    def test_a_revocation_that_times_out_loses_the_partition_without_a_commit(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 5, 2)
            first, second = Diary(), Diary()
            options = {"max_poll_interval_ms": 10_000, "auto_commit_interval_ms": 1_000_000}
            # At the end, a record is not processed, and keeps its partition.
            options["checked"] = False
            one = member(world, first, **options)
            async with one:
                record = await one.get()
                async with member(world, second, name="other", **options) as two:
                    reading = asyncio.create_task(two.get(timeout=20))
                    await second.until(lambda: len(second.owned) == 2)
                    assert first.pages == [("assigned", [0, 1]), ("lost", [0, 1])]
                    assert committed(world, 0) == committed(world, 1) == 0
                    assert one.assignment() == set()
                    with pytest.raises(CommitFailedError):
                        await one.commit(record)
                    # The member joins again as soon as the program requests records.
                    assert await reading
                    assert await two.get()
                    while len(first.owned) != 1:
                        await one.get(timeout=1)
                        await two.poll(timeout=0)

        simulate(scenario, topics={"t": 2})

    def test_no_record_is_delivered_of_a_partition_to_be_revoked(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 50, 1)
            first, second = Diary(), Diary()
            seen: list[int] = []
            async with member(world, first) as one:

                async def read() -> None:
                    async for record in one:
                        assert record.topic == "t"
                        seen.append(record.offset)
                        if len(seen) == 3:
                            await asyncio.sleep(5)
                            assert seen == [0, 1, 2]
                        else:
                            await asyncio.sleep(0)

                reading = asyncio.create_task(read())
                two = member(world, second)
                joining = asyncio.create_task(two.start())
                await asyncio.sleep(4)
                # The rebalance has begun, and it waits for the record in progress.
                assert first.pages == [("assigned", [0])]
                assert not second.owned
                await joining
                await first.until(lambda: ("revoked", [0]) in first.pages)
                one.stop()
                await reading
                assert seen[:3] == [0, 1, 2]
                await two.close()

        simulate(scenario, topics={"t": 1})


class TestListener:
    def test_a_listener_may_commit_and_seek_but_not_read(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 5, 1)
            raised: list[type[Exception]] = []

            class Listener(Diary):
                async def on_assigned(self, tps: Sequence[TopicPartition]) -> None:  # type: ignore[override]
                    assert await consumer.position(tps[0]) == 0
                    consumer.seek(tps[0], 3)
                    for call in (consumer.poll, consumer.get):
                        with pytest.raises(IllegalStateError) as info:
                            await call(timeout=0)
                        raised.append(info.type)
                    super().on_assigned(tps)

                async def on_revoked(self, tps: Sequence[TopicPartition]) -> None:  # type: ignore[override]
                    await consumer.commit()
                    super().on_revoked(tps)

            consumer = member(world, Listener(), enable_auto_commit=False)
            async with consumer:
                record = await consumer.get()
                assert record is not None
                assert record.offset == 3
                await consumer.get()
            assert raised == [IllegalStateError, IllegalStateError]
            assert committed(world) == 5

        simulate(scenario, topics={"t": 1})

    @pytest.mark.parametrize("method", ["on_assigned", "on_revoked", "on_lost"])
    def test_an_exception_in_a_listener_fails_the_consumer(self, method: str) -> None:
        class Mine(Exception):
            pass

        async def scenario(world: World) -> None:
            fill(world, 5, 1)

            class Listener:
                pass

            async def fail(tps: Sequence[TopicPartition]) -> None:
                raise Mine

            listener = Listener()
            setattr(listener, method, fail)
            consumer = member(world, None, listener=listener, name="m")
            try:
                await consumer.start()
                if method == "on_revoked":
                    consumer.subscribe(["other"], listener)
                elif method == "on_lost":
                    part(world, "m")
                    await asyncio.sleep(10)
                    world.network.heal()
                async with asyncio.timeout(60):
                    while True:
                        await consumer.poll(timeout=1)
            except Mine:
                pass
            assert consumer.state in (State.FAILED, State.NEW)
            with pytest.raises((Mine, IllegalStateError)):
                await consumer.commit()
            await consumer.close()
            assert not world.cluster.groups["g"].members

        simulate(scenario, topics={"t": 1, "other": 1})


class TestUnconfirmed:
    @pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
    def test_nothing_is_delivered_after_the_session_timeout(self, strategy: str) -> None:
        async def scenario(world: World) -> None:
            fill(world, 1000, 1)
            diary = Diary()
            times: list[float] = []
            consumer = member(world, diary, name="m", partition_assignment_strategy=strategy)
            async with consumer:

                async def read() -> None:
                    async for _ in consumer:
                        times.append(world.now)
                        await asyncio.sleep(0.1)

                reading = asyncio.create_task(read())
                await asyncio.sleep(2)
                part(world, "m")
                parted = world.now
                await asyncio.sleep(30)
                # The member still had fetched records, and did not deliver them.
                assert parted + 4.5 < times[-1] < parted + 6.1
                count = len(times)
                assert not diary.pages[1:]
                assert consumer.assignment()
                world.network.heal()
                await diary.until(lambda: ("lost", [0]) in diary.pages)
                await asyncio.sleep(10)
                assert len(times) > count
                consumer.stop()
                await reading

        simulate(scenario, topics={"t": 1})

    def test_a_heartbeat_response_in_time_resumes_without_a_loss(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 1000, 1)
            diary = Diary()
            consumer = member(world, diary, name="m")
            async with consumer:
                await consumer.get()
                part(world, "m")
                await asyncio.sleep(4)
                world.network.heal()
                offsets = [record.offset for record in await consumer.poll(max_records=10)]
                assert offsets == list(range(1, 11))
                assert diary.pages == [("assigned", [0])]

        simulate(scenario, topics={"t": 1})

    def test_a_record_of_a_lost_partition_cannot_be_committed(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 10, 1)
            diary, other = Diary(), Diary()
            consumer: Consumer[Any, Any] = member(world, diary, name="m")
            async with consumer:
                record = await consumer.get()
                part(world, "m")
                async with member(world, other, name="n") as second:
                    await other.until(lambda: other.owned)
                    await second.poll()
                    await second.commit()
                    world.network.heal()
                    with pytest.raises(CommitFailedError):
                        await consumer.commit(record)
                    assert committed(world) == 10
                    await diary.until(lambda: ("lost", [0]) in diary.pages)
                    with pytest.raises(CommitFailedError):
                        await consumer.commit(record)

        simulate(scenario, topics={"t": 1})
