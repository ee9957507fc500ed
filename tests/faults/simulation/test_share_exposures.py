"""Records that an iteration over a share consumer takes without asking whether they are locked."""

import asyncio
import sys
from typing import Any

import pytest
from share_work import ShareWork
from world import World, simulate

from aiokclient.errors import LockLostError

LOCK_S = 15.0


async def begin(world: World, count: int) -> ShareWork:
    work = ShareWork(world)
    await work.create_group(lock_ms=int(LOCK_S * 1000))
    world.cluster.produce("t", [b"x"] * count)
    return work


@pytest.mark.fault(37)
def test_tracked_records_that_nothing_takes_go_to_another_member() -> None:
    async def scenario(world: World) -> None:
        work = await begin(world, 10)
        async with work.new_consumer() as consumer, work.new_consumer() as other:
            record = await anext(consumer.tracked(10))
            again: list[Any] = []
            async with asyncio.timeout(LOCK_S / 2):
                while len(again) < 9:
                    again += await other.poll(1.0, tracked=True)
            assert {each.offset for each in again} == set(range(1, 10))
            assert {each.delivery_count for each in again} == {2}
            assert not record.lock_lost
            assert consumer.done(record)

    simulate(scenario)


@pytest.mark.fault(37)
def test_a_stalled_loop_delivers_no_tracked_record_of_which_half_the_lock_is_over() -> None:
    async def scenario(world: World) -> None:
        work = await begin(world, 10)
        async with work.new_consumer() as consumer:
            records = consumer.tracked(10)
            held = [await anext(records), await anext(records)]
            world.sim.loop.leap(LOCK_S * 0.6)
            async with asyncio.timeout(LOCK_S):
                while len(held) < 10:
                    record = await anext(records)
                    assert record.lock_deadline - world.now > LOCK_S / 2
                    held.append(record)
            assert [each.delivery_count for each in held] == [1] * 2 + [2] * 8

    simulate(scenario)


@pytest.mark.fault(11)
def test_all_handlers_of_tracked_records_are_cancelled_when_the_connection_is_lost() -> None:
    """Though the consumer does not count how many records were taken before it is asked."""

    async def scenario(world: World) -> None:
        work = await begin(world, 50)
        async with work.new_consumer() as consumer:
            reasons: list[str] = []

            async def handle(record: Any) -> None:
                with pytest.raises(LockLostError) as caught:
                    async with consumer.processing(record):
                        await asyncio.Event().wait()
                reasons.append(caught.value.reason)

            async with asyncio.TaskGroup() as tasks:
                seen = 0
                async for record in consumer.tracked(50):
                    assert not record.lock_lost
                    seen += 1
                    if record.delivery_count > 1:
                        break  # Leaving the block closes the consumer, which releases the record.
                    tasks.create_task(handle(record))
                    if seen == 20:
                        await asyncio.sleep(0)  # The handlers begin.
                        world.network.cut()
                        await consumer.lock_lost(record)
            assert reasons == ["disconnected"] * 20
            assert seen == 21

    simulate(scenario)


@pytest.mark.parametrize("limit", [1, 3])
def test_no_more_tracked_records_are_held_than_allowed(limit: int) -> None:
    async def scenario(world: World) -> None:
        work = await begin(world, 30)
        async with work.new_consumer() as consumer:
            held: list[Any] = []
            done = 0
            async for record in consumer.tracked(limit):
                held.append(record)
                assert len(held) <= limit
                if len(held) == limit:
                    consumer.done(held.pop())
                    done += 1
                if done == 30 - limit + 1:
                    break
            assert len(held) == limit - 1

    simulate(scenario)


def test_a_handler_of_a_record_takes_few_calls() -> None:
    """Each record costs these calls, beside those of its task."""

    async def scenario(world: World) -> None:
        work = await begin(world, 5)
        calls: list[str] = []

        def on_event(frame: Any, event: str, argument: object) -> None:
            if event == "call" and "/aiokclient/share/" in frame.f_code.co_filename:
                calls.append(frame.f_code.co_name)

        async with work.new_consumer() as consumer:
            async for record in consumer.tracked(5):
                calls.clear()
                sys.setprofile(on_event)
                try:
                    async with consumer.processing(record):
                        pass
                finally:
                    sys.setprofile(None)
                if record.offset == 4:
                    break
        assert 0 < len(calls) <= 9, calls

    simulate(scenario)
