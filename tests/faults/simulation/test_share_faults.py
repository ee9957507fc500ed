"""Share groups in spite of faults of leaders, coordinators, connections, and of the process."""

import asyncio
import base64
from typing import Any

import pytest
from share_work import GROUP, ShareWork
from thinned import in_turns, one_in
from world import World, simulate

from aiokclient.errors import LockLostError
from aiokclient.protocol import ApiKey
from aiokclient.testing.simulation.network import Weather

COUNT = 90


async def begin(world: World, *, members: int = 2, lock_ms: int = 15_000, **options: Any) -> Any:
    """Return the work of a group that has a part of its records behind it."""
    work = ShareWork(world)
    await work.create_group(lock_ms=lock_ms)
    produce(world, COUNT)
    await work.start(members, **options)
    await work.wait_for(COUNT // 6, seconds=30.0)
    return work


def produce(world: World, count: int) -> None:
    partitions = world.cluster.topics["t"]
    for number in range(count):
        world.cluster.produce("t", [b"%d" % number], partition=number % partitions)


async def end(world: World, work: ShareWork, *, seconds: float = 120.0) -> None:
    """Check that all records, and one more, are accepted, and close the members."""
    produce(world, 1)
    await work.wait_until_done(COUNT + 1, seconds=seconds)
    await work.close()


def reasons_of(work: ShareWork) -> set[str]:
    return {error.reason for error in work.errors if isinstance(error, LockLostError)}


@pytest.mark.fault(1)
@pytest.mark.parametrize("seed", one_in(4, range(4)))
def test_records_of_a_killed_leader_come_again_from_another(seed: int) -> None:
    async def scenario(world: World) -> None:
        work = await begin(world, handle_s=0.3)
        leader = world.cluster.leader("t", 0)
        world.cluster.stop(leader)
        await asyncio.sleep(world.sim.rng.uniform(0.0, 5.0))
        world.cluster.start(leader)
        await end(world, work)
        assert reasons_of(work) <= {"disconnected", "moved"}

    simulate(scenario, brokers=3, topics={"t": 3}, seed=seed)


@pytest.mark.fault(3)
@pytest.mark.parametrize("seed", one_in(4, range(4)))
def test_a_moved_leader_ends_its_handlers_and_no_others(seed: int) -> None:
    async def scenario(world: World) -> None:
        work = await begin(world, handle_s=0.4)
        for _ in range(5):
            partition = world.sim.rng.randrange(3)
            world.cluster.move_leader("t", partition)
            work.moved_at = world.now
            await asyncio.sleep(world.sim.rng.uniform(0.0, 1.0))
        await end(world, work)
        assert reasons_of(work) <= {"moved", "refused"}

    simulate(scenario, brokers=3, topics={"t": 3}, seed=seed)


@pytest.mark.fault(3)
def test_a_handler_is_cancelled_within_a_second_of_a_move() -> None:
    async def scenario(world: World) -> None:
        work = ShareWork(world)
        await work.create_group()
        produce(world, 1)
        async with work.new_consumer() as consumer:
            record = await consumer.get(10.0)
            moved_at = world.now
            world.cluster.move_leader("t", 0)
            with pytest.raises(LockLostError) as caught:
                async with consumer.processing(record):
                    await asyncio.Event().wait()
            assert caught.value.reason == "moved"
            assert world.now - moved_at < 1.0

    simulate(scenario, brokers=2)


@pytest.mark.fault(11)
def test_an_iteration_delivers_no_record_whose_lock_is_lost() -> None:
    """Though it takes records for 10 ms without asking anything else for them."""

    async def scenario(world: World) -> None:
        work = ShareWork(world)
        await work.create_group()
        world.cluster.produce("t", [b"x"] * 50)
        async with work.new_consumer() as consumer:
            seen: list[tuple[int, int]] = []
            begun_at = 0.0
            async for record in consumer:
                assert not record.lock_lost
                seen.append((record.offset, record.delivery_count))
                if len(seen) == 3:
                    begun_at = world.now
                    world.network.cut()
                    await consumer.lock_lost(record)
                    assert record.lock_lost
                    assert world.now < begun_at + 0.005
                if record.offset == 49:
                    break
            assert seen[:3] == [(0, 1), (1, 1), (2, 1)]
            again = seen[3:]
            assert {offset for offset, _ in again} >= set(range(2, 50))
            assert {count for _, count in again} <= {1, 2}

    simulate(scenario, brokers=2)


@pytest.mark.fault(3)
@pytest.mark.parametrize(("is_fetching", "seed"), in_turns(4, [True, False], range(4)))
def test_moves_are_noticed_by_fetches_and_only_without_them_by_metadata(
    is_fetching: bool, seed: int
) -> None:
    async def scenario(world: World) -> None:
        work = ShareWork(world)
        await work.create_group()
        produce(world, 1)
        async with work.new_consumer() as consumer:
            (record,) = await consumer.poll(10.0, tracked=True)
            reading = asyncio.create_task(consumer.poll(60.0, tracked=True))
            if not is_fetching:
                reading.cancel()
                consumer.stop()
            await asyncio.sleep(5.0)
            since = world.now
            await asyncio.sleep(world.sim.rng.uniform(9.0, 10.0))
            metadata = len(world.requests(ApiKey.METADATA, since))
            fetches = len(world.requests(ApiKey.SHARE_FETCH, since))
            if is_fetching:
                assert metadata <= 2  # None, unless it is time just when a renewal is sent.
                assert 17 <= fetches <= 21
            else:
                assert 15 <= metadata <= 21
                assert fetches == 0
            moved_at = world.now
            world.cluster.move_leader("t", 0)
            await consumer.lock_lost(record)
            assert record.lock_lost
            assert world.now - moved_at < 1.0
            reading.cancel()
            await asyncio.wait([reading])

    simulate(scenario, brokers=2, seed=seed)


@pytest.mark.fault(5)
@pytest.mark.parametrize("seed", range(2))
def test_a_moved_coordinator_disturbs_no_lock(seed: int) -> None:
    async def scenario(world: World) -> None:
        work = await begin(world)
        for _ in range(3):
            world.cluster.move_coordinator(GROUP)
            await asyncio.sleep(1.0)
        await end(world, work)
        assert work.errors == []

    simulate(scenario, brokers=3, topics={"t": 3}, seed=seed)


@pytest.mark.fault(6)
@pytest.mark.parametrize("code", [14, 15])
def test_a_coordinator_that_is_not_ready_disturbs_no_lock(code: int) -> None:
    async def scenario(world: World) -> None:
        work = await begin(world)
        world.cluster.fail(ApiKey.SHARE_GROUP_HEARTBEAT, code, times=10)
        world.cluster.fail(ApiKey.FIND_COORDINATOR, code, times=3)
        # The coordinator of the share state is not ready, either.
        world.cluster.fail(ApiKey.SHARE_ACKNOWLEDGE, code, times=10)
        await end(world, work)
        assert work.errors == []

    simulate(scenario, brokers=3, topics={"t": 3})


@pytest.mark.fault(11)
@pytest.mark.parametrize(("side", "step"), [("requests", 17), ("responses", 71)])
def test_a_reset_at_any_byte_loses_no_record(side: str, step: int) -> None:
    async def scenario(world: World, byte: int) -> bool:
        work = ShareWork(world)
        await work.create_group()
        world.cluster.produce("t", [b"x"] * 3)
        async with work.new_consumer() as consumer:
            cut_before = world.network.connections_cut
            world.network.cut_next(**{side: byte})
            values: set[int] = set()
            while len(values) < 3:  # The connection to the leader is opened by the first request.
                records = await consumer.poll(10.0, tracked=True)
                assert records
                assert not values & {record.offset for record in records}
                consumer.done(records)
                outcomes = await consumer.commit(records, 10.0, return_exceptions=True)
                values |= {each.offset for each, error in outcomes.items() if error is None}
                for error in outcomes.values():
                    assert error is None or error.reason == "disconnected"
                finished = {each.offset for each, error in outcomes.items() if error is not None}
                if finished and set((await consumer.lag()).values()) == {0}:
                    # It was applied, and only the answer was lost.
                    assert {error.confirmed for error in outcomes.values() if error} == {None}
                    values |= finished
            assert set((await consumer.lag()).values()) == {0}
            return world.network.connections_cut > cut_before

    cuts = 0
    for byte in range(0, 5000, step):
        if not simulate(lambda world, byte=byte: scenario(world, byte), seed=byte):
            break
        cuts += 1
    assert cuts > 10


@pytest.mark.fault(13)
def test_locks_end_when_the_broker_vanishes_and_later_records_arrive() -> None:
    async def scenario(world: World) -> None:
        work = ShareWork(world)
        await work.create_group()
        produce(world, 4)
        async with work.new_consumer() as consumer:
            records = await consumer.poll(10.0, 4, tracked=True)
            assert len(records) == 4
            world.network.part({"client"}, {world.address(1)})
            consumer.done(records[0])
            await asyncio.sleep(0.1)
            consumer.done(records[1])  # The first is in flight, and this one waits.
            outcomes = await consumer.commit(records[:2], 60.0, return_exceptions=True)
            found = [(each.reason, each.confirmed) for each in outcomes.values()]
            assert found == [("disconnected", None), ("disconnected", False)]
            assert all(record.lock_lost for record in records[2:])
            world.network.heal()
            again: set[int] = set()
            while len(again) < 3:
                again |= {each.offset for each in await consumer.poll(10.0, tracked=True)}
            assert again >= {records[1].offset, records[2].offset, records[3].offset}

    simulate(scenario)


@pytest.mark.fault(14)
@pytest.mark.parametrize("seconds", [1.0, 20.0, 120.0])
@pytest.mark.parametrize("way", ["stopped", "hanging"])
def test_work_goes_on_after_a_broker_was_away(seconds: float, way: str) -> None:
    async def scenario(world: World) -> None:
        work = await begin(world, handle_s=0.2)
        if way == "stopped":
            world.cluster.stop(1)
        else:
            world.cluster.pause(1)
        await asyncio.sleep(seconds)
        if way == "stopped":
            world.cluster.start(1)
        else:
            world.cluster.resume(1)
        await end(world, work, seconds=180)
        assert reasons_of(work) <= {"disconnected", "moved", "expired"}

    simulate(scenario, brokers=1, topics={"t": 3})


@pytest.mark.fault(18)
@pytest.mark.parametrize("seed", range(3))
def test_a_suspended_process_loses_its_locks_and_settles_nothing_of_theirs(seed: int) -> None:
    async def scenario(world: World) -> None:
        work = await begin(world, handle_s=0.5)
        held = list(work.held.values())
        assert held
        sent = len(world.requests(ApiKey.SHARE_ACKNOWLEDGE))
        world.sim.loop.leap(600.0)
        assert all(record.lock_lost for record in held)
        await asyncio.sleep(0)
        assert len(world.requests(ApiKey.SHARE_ACKNOWLEDGE)) == sent
        await end(world, work)
        assert reasons_of(work) <= {"expired", "disconnected", "session"}

    simulate(scenario, brokers=2, topics={"t": 3}, seed=seed)


@pytest.mark.fault(37)
def test_a_stalled_loop_loses_locks_only_if_it_stalls_for_longer_than_half_of_them() -> None:
    async def scenario(world: World) -> None:
        work = ShareWork(world)
        await work.create_group()
        produce(world, 2)
        async with work.new_consumer() as consumer:
            records = await consumer.poll(10.0, 2, tracked=True)
            assert len(records) == 2
            world.sim.loop.leap(7.0)  # The lock is 15 s long, and is renewed at its half.
            await asyncio.sleep(1.0)
            assert not any(record.lock_lost for record in records)
            assert consumer.done(records[0])
            assert await consumer.commit() == {records[0]: None}
            await asyncio.sleep(10.0)
            assert not records[1].lock_lost
            sent = len(world.requests(ApiKey.SHARE_ACKNOWLEDGE))
            world.sim.loop.leap(60.0)
            assert records[1].lock_lost
            assert not consumer.done(records[1])
            await asyncio.sleep(0.1)
            # Nothing was sent for it, neither a renewal nor the settlement.
            assert len(world.requests(ApiKey.SHARE_ACKNOWLEDGE)) == sent
            assert [each.reason for each in work.errors] == ["expired"]
            (again,) = await consumer.poll(10.0, tracked=True)
            assert again.delivery_count == 2
            assert consumer.done(again)

    simulate(scenario)


@pytest.mark.fault(38)
def test_a_slow_consumer_of_a_thousand_partitions_acquires_little() -> None:
    async def scenario(world: World) -> None:
        work = ShareWork(world)
        await work.create_group()
        for partition in range(1000):
            world.cluster.produce("t", [b"x"] * 3, partition=partition)
        async with work.new_consumer(max_poll_records=100) as consumer:
            since, engine = world.now, consumer._engine
            assert engine is not None
            for _ in range(4):
                record = await consumer.get(10.0)
                assert record is not None
                assert record.delivery_count == 1
                assert not record.lock_lost
                await asyncio.sleep(5.0)
                assert engine.settlements.count_held() == 1
            beats = world.requests(ApiKey.SHARE_GROUP_HEARTBEAT, since)
            assert len(beats) >= 3
            assert sum(leader.count_waiting() for leader in engine.list_leaders()) <= 100

    simulate(scenario, topics={"t": 1000})


@pytest.mark.fault(49)
def test_a_throttled_member_waits_without_losing_locks() -> None:
    async def scenario(world: World) -> None:
        work = ShareWork(world)
        await work.create_group()
        produce(world, 3)
        async with work.new_consumer() as consumer:
            records = await consumer.poll(10.0, 3, tracked=True)
            assert len(records) == 3
            with world.cluster.throttle(ApiKey.SHARE_ACKNOWLEDGE, 3.0, times=1):
                consumer.done(records[0])
                assert await consumer.commit() == {records[0]: None}
            since = world.now
            consumer.done(records[1])
            assert await consumer.commit() == {records[1]: None}
            assert world.now - since >= 2.9
            # A lock that ends during the throttle time is told in time, and nothing is sent for it.
            produce(world, 1)
            (more,) = await consumer.poll(10.0, tracked=True)
            consumer.stop()
            await asyncio.sleep(1.0)
            with world.cluster.throttle(ApiKey.SHARE_ACKNOWLEDGE, 30.0, times=1):
                consumer.done(more)
                assert await consumer.commit() == {more: None}
            consumer.done(records[2])
            sent = len(world.requests(ApiKey.SHARE_ACKNOWLEDGE))
            outcomes = await consumer.commit(timeout=60.0, return_exceptions=True)
            assert [(e.reason, e.confirmed) for e in outcomes.values()] == [("expired", False)]
            assert world.now <= records[2].lock_deadline + 0.1
            assert len(world.requests(ApiKey.SHARE_ACKNOWLEDGE)) == sent

    simulate(scenario)


def test_members_have_ids_in_the_form_of_uuids_that_brokers_decode() -> None:
    async def scenario(world: World) -> None:
        work = ShareWork(world)
        await work.create_group()
        produce(world, 20)
        for _ in range(20):
            async with work.new_consumer() as consumer:
                assert await consumer.get(10.0) is not None
        ids = {each.message.member_id for each in world.requests(ApiKey.SHARE_FETCH)}
        assert len(ids) == 20
        for member_id in ids:
            assert not member_id.startswith("-")
            assert len(base64.urlsafe_b64decode(f"{member_id}==")) == 16

    simulate(scenario)


@pytest.mark.fault(18, 37)
@pytest.mark.timeout(120)  # Without time that passes, a loop does not end.
def test_the_event_loop_goes_on_when_all_locks_ended_during_a_suspension() -> None:
    async def scenario(world: World) -> None:
        work = ShareWork(world)
        await work.create_group()
        produce(world, 3)
        async with work.new_consumer() as consumer:
            records = await consumer.poll(10.0, 3, tracked=True)
            await asyncio.sleep(1.0)
            world.sim.loop.leap(20.0)
            consumer.stop()  # It wakes the task of the leader before that which loses the locks.
            await asyncio.sleep(0.1)
            assert all(record.lock_lost for record in records)
            assert not any(map(consumer.done, records))

    simulate(scenario)


@pytest.mark.fault(49)
@pytest.mark.timeout(120)
def test_the_event_loop_goes_on_while_a_renewal_waits_for_a_throttle_time() -> None:
    async def scenario(world: World) -> None:
        work = ShareWork(world)
        await work.create_group()
        produce(world, 2)
        async with work.new_consumer() as consumer:
            first, second = await consumer.poll(10.0, 2, tracked=True)
            consumer.stop()
            await asyncio.sleep(1.0)
            with world.cluster.throttle(ApiKey.SHARE_ACKNOWLEDGE, 10.0, times=1):
                consumer.done(first)
                assert await consumer.commit() == {first: None}
            deadline = second.lock_deadline
            await asyncio.sleep(12.0)
            assert second.lock_deadline > deadline
            assert consumer.done(second)
            assert await consumer.commit() == {second: None}

    simulate(scenario)


@pytest.mark.parametrize("seed", one_in(3, range(6)))
def test_work_goes_on_over_a_network_that_loses_connections(seed: int) -> None:
    async def scenario(world: World) -> None:
        world.network.weather = Weather(latency_s=(0.0005, 0.05), loss=0.02, slicing=0.3)
        work = await begin(world, members=3, handle_s=0.1)
        world.network.weather = Weather()
        await end(world, work)

    simulate(scenario, brokers=3, topics={"t": 3}, seed=seed)
