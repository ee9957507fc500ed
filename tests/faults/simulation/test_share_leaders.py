"""Locks of share groups whose topic is deleted, or whose leader has moved unseen."""

import asyncio

import pytest
from share_work import ShareWork
from world import World, simulate

from aiokclient.errors import LockLostError, UnknownTopicOrPartitionError
from aiokclient.protocol import ApiKey


async def begin(world: World, count: int = 1, **configs: str) -> ShareWork:
    """Return the work of a group whose topic has this number of records."""
    work = ShareWork(world)
    await work.create_group(lock_ms=30_000, **configs)
    for number in range(count):
        world.cluster.produce("t", [b"%d" % number])
    return work


@pytest.mark.fault(24)
@pytest.mark.parametrize("is_fetching", [True, False])
@pytest.mark.parametrize("is_recreated", [True, False])
def test_a_handler_is_cancelled_within_a_second_of_the_deletion_of_its_topic(
    is_recreated: bool, is_fetching: bool
) -> None:
    async def scenario(world: World) -> None:
        work = await begin(world, share_renew_acknowledge_enable="false")
        async with work.new_consumer() as consumer:
            (record,) = await consumer.poll(10.0, tracked=True)
            reading = asyncio.create_task(consumer.poll(60.0, tracked=True))
            if not is_fetching:
                reading.cancel()
                consumer.stop()
            await asyncio.sleep(world.sim.rng.uniform(1.0, 2.0))
            deleted_at = world.now
            world.cluster.delete_topic("t")
            if is_recreated:
                world.cluster.create_topic("t")
            with pytest.raises(LockLostError) as caught:
                async with consumer.processing(record):
                    await asyncio.Event().wait()
            assert caught.value.reason == "moved"
            assert world.now - deleted_at < 1.0
            reading.cancel()
            await asyncio.wait([reading])

    simulate(scenario)  # Of several brokers, another one may lead the new topic.


@pytest.mark.fault(24)
def test_brokers_without_renewals_let_a_handler_end_once_its_topic_is_not_assigned() -> None:
    """Kafka 4.1 answers no fetch with a topic that is gone, so that it is not asked."""

    async def scenario(world: World) -> None:
        apis = (ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE)
        world.cluster.limit_versions(dict.fromkeys(apis, (1, 1)))
        work = await begin(world)
        async with work.new_consumer() as consumer:
            (record,) = await consumer.poll(10.0, tracked=True)
            consumer.stop()
            await asyncio.sleep(1.0)
            deleted_at = world.now
            world.cluster.delete_topic("t")
            await consumer.lock_lost(record)
            assert 0.5 < world.now - deleted_at < 6.0  # Heartbeats are sent each 5 s.
            assert world.requests(ApiKey.SHARE_ACKNOWLEDGE, deleted_at) == []

    simulate(scenario, brokers=2)


@pytest.mark.fault(24)
def test_locks_stay_while_a_broker_that_is_asked_does_not_know_their_topic() -> None:
    async def scenario(world: World) -> None:
        work = await begin(world)
        async with work.new_consumer() as consumer:
            (record,) = await consumer.poll(10.0, tracked=True)
            consumer.stop()
            fault = world.cluster.fail(ApiKey.METADATA, UnknownTopicOrPartitionError, topic="t")
            await asyncio.sleep(5.0)
            assert fault.hits > 3
            assert not record.lock_lost
            fault.remove()
            assert consumer.done(record)
            assert await consumer.commit() == {record: None}
            assert work.errors == []

    simulate(scenario, brokers=2)


@pytest.mark.fault(3)
@pytest.mark.parametrize("when", ["before", "after"])
def test_two_moves_are_told_though_no_metadata_was_requested_between_the_lock_and_them(
    when: str,
) -> None:
    """Metadata shows the same if both were before the lock, so the leader is asked once."""

    async def scenario(world: World) -> None:
        work = await begin(world, 0)
        leader = world.cluster.leader("t", 0)

        def move() -> None:
            for node in (leader % 2 + 1, leader):
                world.cluster.move_leader("t", 0, node)

        async with work.new_consumer() as consumer:
            if when == "before":
                move()
            reading = asyncio.create_task(consumer.get(10.0))
            await asyncio.sleep(1.0)
            world.cluster.produce("t", [b"1"])
            record = await reading
            consumer.stop()
            since = world.now
            if when == "after":
                move()
                await asyncio.wait_for(consumer.lock_lost(record), 1.0)
                assert record.lock_lost
                assert len(world.requests(ApiKey.METADATA, since)) == 1
                assert len(world.requests(ApiKey.SHARE_ACKNOWLEDGE, since)) == 1
            else:
                await asyncio.sleep(5.0)
                assert len(world.requests(ApiKey.SHARE_ACKNOWLEDGE, since)) == 1
                assert not record.lock_lost
                assert consumer.done(record)
                assert await consumer.commit() == {record: None}
                assert work.errors == []

    simulate(scenario, brokers=2)


@pytest.mark.fault(3)
def test_two_moves_are_told_by_metadata_alone_if_brokers_renew_no_locks() -> None:
    async def scenario(world: World) -> None:
        apis = (ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE)
        world.cluster.limit_versions(dict.fromkeys(apis, (1, 1)))
        work = await begin(world)
        leader = world.cluster.leader("t", 0)
        async with work.new_consumer() as consumer:
            (record,) = await consumer.poll(10.0, tracked=True)
            consumer.stop()
            await asyncio.sleep(1.0)
            for node in (leader % 2 + 1, leader):
                world.cluster.move_leader("t", 0, node)
            await asyncio.wait_for(consumer.lock_lost(record), 1.0)
            assert record.lock_lost

    simulate(scenario, brokers=2)


@pytest.mark.fault(3)
def test_two_moves_during_one_fetch_are_told_though_another_member_has_the_record() -> None:
    async def scenario(world: World) -> None:
        work = await begin(world)
        leader = world.cluster.leader("t", 0)
        async with work.new_consumer() as consumer, work.new_consumer() as other:
            (record,) = await consumer.poll(10.0, tracked=True)
            # It goes on to fetch, so that it does not look at metadata twice a second.
            reading = asyncio.create_task(consumer.poll(60.0, tracked=True))
            await asyncio.sleep(6.2)
            for node in (leader % 2 + 1, leader):
                world.cluster.move_leader("t", 0, node)
            taken = await other.poll(5.0, tracked=True)
            assert [each.offset for each in taken] == [0]
            await asyncio.wait_for(consumer.lock_lost(record), 7.0)
            assert record.lock_lost
            assert not taken[0].lock_lost
            consumer.stop()
            assert await reading == []

    simulate(scenario, brokers=2)


@pytest.mark.fault(3)
def test_locks_stay_after_two_moves_before_them_though_the_group_renews_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(world: World) -> None:
        work = await begin(world, share_renew_acknowledge_enable="false")
        leader = world.cluster.leader("t", 0)
        async with work.new_consumer() as consumer:
            (record,) = await consumer.poll(10.0, tracked=True)
            await asyncio.sleep(20.0)
            assert world.requests(ApiKey.SHARE_ACKNOWLEDGE)  # Its renewal was refused.
            (warning,) = [text for text in caplog.messages if "cannot be renewed" in text]
            assert "not enabled for the group" in warning
            assert ".." not in warning
            assert consumer.done(record)
            assert await consumer.commit() == {record: None}
            await asyncio.sleep(35.0)  # Renewals are tried again.
            for node in (leader % 2 + 1, leader):
                world.cluster.move_leader("t", 0, node)
            reading = asyncio.create_task(consumer.get(10.0))
            await asyncio.sleep(1.0)
            world.cluster.produce("t", [b"1"])
            record = await reading  # type: ignore[assignment]
            consumer.stop()
            since = world.now
            await asyncio.sleep(5.0)
            assert len(world.requests(ApiKey.SHARE_ACKNOWLEDGE, since)) == 1
            assert not record.lock_lost
            assert consumer.done(record)
            assert await consumer.commit() == {record: None}
            assert work.errors == []

    simulate(scenario, brokers=2)
