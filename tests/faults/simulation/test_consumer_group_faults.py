"""Faults that consumers in a group meet, each with the number of its row in faults.md."""

import asyncio
from typing import Any

import pytest
from group_world import (
    PROTOCOLS,
    Diary,
    committed,
    every_protocol,
    fill,
    join_api,
    member,
    part,
)
from owned import check_owned_and_read
from world import World, simulate

from aiokclient import TopicPartition
from aiokclient.errors import NotCoordinatorError, RebalanceInProgressError
from aiokclient.protocol import ApiKey
from aiokclient.testing.broker.faults import When

STRATEGIES = {"eager": "range", "cooperative": "cooperative-sticky"}
both = pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)


async def read(consumer: Any, offsets: list[int]) -> None:
    async for record in consumer:
        offsets.append(record.offset)


@pytest.mark.fault(5)
@both
def test_commits_survive_a_move_of_the_coordinator(strategy: str) -> None:
    async def scenario(world: World) -> None:
        fill(world, 500)
        options = {"partition_assignment_strategy": strategy}
        async with member(world, enable_auto_commit=False, **options) as consumer:
            for i in range(20):
                await consumer.poll(max_records=10)
                world.cluster.move_coordinator("g")
                await consumer.commit()
                assert committed(world) == 10 * (i + 1)

    simulate(scenario, brokers=3)


@both
@pytest.mark.parametrize("by_hand", [False, True])
def test_a_rebalance_does_not_wait_for_refused_commits(strategy: str, by_hand: bool) -> None:
    """The member must not repeat the commit, because the rebalance waits for the member."""

    class Committing(Diary):
        async def on_revoked(self, tps: Any) -> None:  # type: ignore[override]
            super().on_revoked(tps)
            if by_hand and refusals:
                refusals.pop()
                with pytest.raises(RebalanceInProgressError):
                    await consumer.commit()

    diary, other, refusals = Committing(), Diary(), [1]

    async def scenario(world: World) -> None:
        nonlocal consumer
        fill(world, 20, 2)
        options = {"partition_assignment_strategy": strategy, "enable_auto_commit": not by_hand}
        async with member(world, diary, **options) as consumer:
            await consumer.poll(max_records=10)
            await consumer.poll(max_records=10)
            with world.cluster.fail(ApiKey.OFFSET_COMMIT, RebalanceInProgressError):
                reading = asyncio.create_task(read(consumer, []))
                began = world.now
                async with member(world, other, **options):
                    await other.until(lambda: len(other.owned) == 1)
                    await diary.until(lambda: len(diary.owned) == 1)
                assert world.now - began < 10
                assert "lost" not in [what for what, _ in diary.pages]
            consumer.stop()
            await reading

    consumer: Any = None
    simulate(scenario, topics={"t": 2})


@pytest.mark.fault(6)
@both
def test_consumers_wait_while_the_coordinator_is_loading(strategy: str) -> None:
    async def scenario(world: World) -> None:
        fill(world, 50)
        diary = Diary()
        options = {"partition_assignment_strategy": strategy, "session_timeout_ms": 30_000}
        async with member(world, diary, **options) as consumer:
            await consumer.poll(max_records=10)
            with world.cluster.hold_loading("g"):
                commit = asyncio.create_task(consumer.commit())
                stored = asyncio.create_task(consumer.committed([TopicPartition("t", 0)]))
                await asyncio.sleep(10)
                assert not commit.done()
            await commit
            await stored
            assert committed(world) == 10
            assert len(await consumer.poll()) == 40
            assert diary.pages == [("assigned", [0])]

    simulate(scenario, brokers=2)


@pytest.mark.fault(18)
@both
def test_a_suspended_process_delivers_nothing_before_a_heartbeat_response(strategy: str) -> None:
    """A suspended process delivers nothing until the coordinator has confirmed its membership."""

    async def scenario(world: World) -> None:
        fill(world, 2000, 2)
        diary, other = Diary(), Diary()
        options = {"partition_assignment_strategy": strategy}
        async with member(world, diary, **options) as consumer:
            offsets: list[int] = []
            reading = asyncio.create_task(read(consumer, offsets))
            await asyncio.sleep(1)
            fill(world, 2000, 2)
            world.sim.loop.leap(600)
            before = len(offsets)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            # At most one record may still be delivered: its delivery had begun before the
            # suspension.
            assert len(offsets) <= before + 1
            await diary.until(lambda: ("lost", [0, 1]) in diary.pages)
            async with member(world, other, **options):
                await other.until(lambda: len(other.owned) == 1)
            await diary.until(lambda: len(diary.owned) == 2)
            consumer.stop()
            await reading

    simulate(scenario, topics={"t": 2})


@pytest.mark.fault(37)
@pytest.mark.parametrize("seconds", [3, 60])
def test_a_blocked_loop_is_reported_and_the_member_recovers(
    seconds: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        fill(world, 500)
        diary = Diary()
        offsets: list[int] = []
        consumer = member(world, diary, max_poll_interval_ms=300_000)
        async with consumer:
            async for record in consumer:
                offsets.append(record.offset)
                if offsets.count(100) == 1 and record.offset == 100:
                    await asyncio.sleep(1)
                    world.sim.loop.leap(seconds)
                if record.offset == 499:
                    break
        assert list(dict.fromkeys(offsets)) == list(range(500))
        assert ("lost" in [what for what, _ in diary.pages]) is (seconds > 6)
        assert "the event loop stood still for" in caplog.text

    with caplog.at_level("WARNING"):
        simulate(scenario)


@pytest.mark.fault(38)
def test_heartbeats_continue_while_a_slow_consumer_reads() -> None:
    """Heartbeats continue, and the fetched bytes stay within their limit."""

    async def scenario(world: World) -> None:
        for partition in range(0, 1000, 5):
            world.cluster.produce("t", [b"x" * 1000] * 20, partition)
        diary = Diary()
        options = {"fetch_max_bytes": 200_000, "max_poll_interval_ms": 100_000}
        async with member(world, diary, **options) as consumer:
            began, count = world.now, 0
            async for _ in consumer:
                await asyncio.sleep(0.5)
                count += 1
                # The buffer may hold two responses from each of the three brokers.
                assert consumer.metrics()["consumer.buffer.bytes"] <= 3 * 2 * 210_000
                if count == 200:
                    break
            beats = world.requests(ApiKey.HEARTBEAT, since=began)
            assert len(beats) >= 2 * (world.now - began) - 5
            assert [what for what, _ in diary.pages] == ["assigned"]

    simulate(scenario, brokers=3, topics={"t": 1000})


@pytest.mark.fault(40)
@both
def test_a_commit_during_a_rebalance_is_stored_or_raises(strategy: str) -> None:
    """Each commit that is made while other members join and leave is stored, or raises an error."""

    async def scenario(world: World) -> None:
        fill(world, 400, 2)
        diary = Diary()
        options = {"partition_assignment_strategy": strategy, "enable_auto_commit": False}
        async with member(world, diary, **options) as consumer:
            for _ in range(12):
                await diary.until(lambda: bool(diary.owned))
                records = await consumer.poll(max_records=20)
                commit = asyncio.create_task(consumer.commit())
                world.cluster.rebalance("g")
                await commit
                for tp, to in records.offsets().items():
                    assert committed(world, tp.partition) == to.offset
            with world.cluster.fail(ApiKey.OFFSET_COMMIT, NotCoordinatorError, times=3):
                await consumer.poll(max_records=20)
                world.cluster.rebalance("g")
                await consumer.commit()

    simulate(scenario, topics={"t": 2})


@pytest.mark.fault(42)
@both
def test_a_handler_beyond_the_poll_interval_loses_its_partitions(strategy: str) -> None:
    async def scenario(world: World) -> None:
        fill(world, 20)
        diary, other = Diary(), Diary()
        options = {
            "partition_assignment_strategy": strategy,
            "max_poll_interval_ms": 10_000,
            "auto_commit_interval_ms": 500,
        }
        offsets: list[int] = []
        async with member(world, diary, **options) as consumer:
            for _ in range(5):
                await consumer.get()
            async with member(world, other, **options) as second:
                reading = asyncio.create_task(read(second, offsets))
                await asyncio.sleep(30)  # The handler of the fifth record is slow.
                assert diary.pages[-1] == ("lost", [0])
                assert offsets == list(range(4, 20))
                assert committed(world) == 20
                record = await consumer.get(timeout=1)
                assert record is None
                second.stop()
                await reading

    simulate(scenario)


@pytest.mark.fault(49)
def test_throttled_commits_cost_no_membership() -> None:
    async def scenario(world: World) -> None:
        fill(world, 2000)
        diary = Diary()
        world.cluster.throttle(ApiKey.OFFSET_FETCH, 3.0)
        world.cluster.throttle(ApiKey.FETCH, 3.0)
        async with member(world, diary) as consumer:
            offsets: list[int] = []
            reading = asyncio.create_task(read(consumer, offsets))
            await asyncio.sleep(60)
            assert len(offsets) == 2000
            assert [what for what, _ in diary.pages] == ["assigned"]
            consumer.stop()
            await reading

    simulate(scenario)


@pytest.mark.fault(41)
def test_a_member_that_is_cut_off_repeatedly_recovers() -> None:
    async def scenario(world: World) -> None:
        fill(world, 300, 2)
        diaries = {"a": Diary(), "b": Diary()}
        seen: dict[str, list[int]] = {"a": [], "b": []}
        members = {n: member(world, d, name=n) for n, d in diaries.items()}
        async with members["a"], members["b"]:
            tasks = [asyncio.create_task(read(m, seen[n])) for n, m in members.items()]
            for _ in range(5):
                part(world, "a")
                await asyncio.sleep(12)
                world.network.heal()
                await asyncio.sleep(8)
                fill(world, 50, 2)
            await diaries["a"].until(lambda: len(diaries["a"].owned) == 1)
            await asyncio.sleep(10)
            assert committed(world, 0) == committed(world, 1) == 550
            for m, task in zip(members.values(), tasks, strict=True):
                m.stop()
                await task

    simulate(scenario, topics={"t": 2})


@pytest.mark.parametrize("instance", [None, "i"], ids=["dynamic", "static"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("unanswered", [1, 3])
@every_protocol
def test_a_member_joins_after_its_first_requests_were_never_answered(
    protocol: str, instance: str | None, when: When, unanswered: int
) -> None:
    """The connection stays open, and the coordinator may have processed the requests."""

    async def scenario(world: World) -> None:
        world.cluster.delay(join_api(protocol), 1e6, when=when, times=unanswered)
        options = {"request_timeout_ms": 4000, "max_poll_interval_ms": 5000}
        consumer = member(
            world, None, **{**PROTOCOLS[protocol], **options}, group_instance_id=instance
        )
        await consumer.start(wait=False)
        try:
            await check_owned_and_read(world, [consumer], within_s=60)
        finally:
            await consumer.close()

    simulate(scenario, topics={"t": 3})
