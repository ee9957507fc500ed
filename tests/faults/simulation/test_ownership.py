"""The record of ownership detects members that break the rules of ownership."""

import asyncio
from typing import Any

import pytest
from group_world import QUICK, committed, fill
from ownership import BrokenOwnershipError, Member, Ownership
from world import World, simulate

from aiokclient import TopicPartition


def member(world: World, listener: Member, **options: Any) -> Any:
    return world.consumer("t", **{**QUICK, "listener": listener, **options})


def test_a_commit_of_unprocessed_records_is_detected() -> None:
    async def scenario(world: World) -> None:
        fill(world, 10)
        ownership = Ownership(lambda: world.now)
        me = ownership.member("careless")
        async with member(world, me) as consumer:
            for record in await consumer.poll(max_records=5):
                me.delivered(record)
                (me.dropped if record.offset == 2 else me.ended)(record)
            await consumer.commit()
            with pytest.raises(BrokenOwnershipError, match="5 is committed, but 2 was not"):
                ownership.check_committed(world.cluster.committed("g"))
            with pytest.raises(BrokenOwnershipError, match="t-0 of careless: 0"):
                ownership.check()

    simulate(scenario)


def test_processing_after_a_revocation_is_detected() -> None:
    async def scenario(world: World) -> None:
        fill(world, 10)
        ownership = Ownership(lambda: world.now)
        me = ownership.member("greedy")
        async with member(world, me) as consumer:
            kept = await consumer.poll(max_records=5)
            await consumer.poll(timeout=0)
            consumer.unsubscribe()
            await ownership.until(lambda: not me.owned)
            with pytest.raises(BrokenOwnershipError, match=r"greedy received t-0@0, .* not"):
                me.delivered(kept[0])

    simulate(scenario)


def test_a_handler_that_continues_after_done_is_detected() -> None:
    """A handler that keeps working after it marked its record as done is detected.

    The partition is revoked while the handler is at work.
    """

    async def scenario(world: World) -> None:
        fill(world, 10)
        ownership = Ownership(lambda: world.now)
        me = ownership.member("liar")
        consumer = member(world, me)
        await consumer.start()
        record = await anext(consumer.tracked())
        me.delivered(record)
        consumer.done(record)
        consumer.unsubscribe()
        await asyncio.sleep(1)
        with pytest.raises(BrokenOwnershipError, match="liar is still processing t-0"):
            await consumer.poll(timeout=10)
        await consumer.close()
        assert ownership.breaches

    simulate(scenario)


def test_two_owners_of_one_partition_are_detected() -> None:
    ownership = Ownership(lambda: 0.0)
    one, two = ownership.member("one"), ownership.member("two")
    tp = TopicPartition("t", 0)
    one.on_assigned([tp])
    two.on_assigned([tp])

    class Record:
        topic, partition, offset = "t", 0, 7

    with pytest.raises(BrokenOwnershipError, match="one received t-0@7; new owner: t-0 of two"):
        one.delivered(Record())
    two.delivered(Record())


def test_a_member_without_fault_passes() -> None:
    async def scenario(world: World) -> None:
        fill(world, 10)
        ownership = Ownership(lambda: world.now)
        me = ownership.member("good")
        async with member(world, me, auto_commit_interval_ms=100) as consumer:
            async for record in consumer.until_end():
                me.delivered(record)
                await asyncio.sleep(0.2)
                ownership.check_committed(world.cluster.committed("g"))
                me.ended(record)
        ownership.check_committed(world.cluster.committed("g"))
        ownership.check()
        assert committed(world) == 10
        assert str(ownership.intervals[0]).endswith("(revoked)")

    simulate(scenario)
