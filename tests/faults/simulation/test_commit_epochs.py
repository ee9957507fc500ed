"""The leader epochs of commits, and deliveries after a conversion that outlasts the session."""

import asyncio
from typing import Any

import pytest
from group_world import fill, member, part
from world import World, simulate

from aiokclient import OffsetAndMetadata, TopicPartition
from aiokclient.protocol import ApiKey

T0 = TopicPartition("t", 0)


def fill_two_epochs(world: World) -> tuple[int, int]:
    """Write five records before a change of the leader, and five after it.

    Return both leader epochs.
    """
    fill(world, 5)
    world.cluster.move_leader("t", 0)
    fill(world, 5)
    older, newer = (world.cluster.records("t", 0)[index].leader_epoch for index in (0, 9))
    assert older is not None
    assert newer is not None
    assert older < newer
    return older, newer


def epochs_of_commits(world: World) -> dict[int, int]:
    """Return the leader epoch of each committed offset, from the OffsetCommit requests."""
    return {
        partition.committed_offset: partition.committed_leader_epoch
        for request in world.requests(ApiKey.OFFSET_COMMIT)
        for topic in request.message.topics
        for partition in topic.partitions
    }


async def by_poll(consumer: Any) -> None:
    for _ in range(2):
        assert len(await consumer.poll(timeout=10, max_records=5)) == 5


async def by_iteration(consumer: Any) -> None:
    async for record in consumer:
        if record.offset == 5:
            return


async def by_get(consumer: Any) -> None:
    for _ in range(6):
        assert await consumer.get(timeout=10)


@pytest.mark.parametrize("read", [by_poll, by_iteration, by_get])
def test_an_automatic_commit_names_the_epoch_of_the_processed_record(read: Any) -> None:
    """A commit names the epoch of the last processed record.

    The record in progress belongs to the next batch, which has a newer epoch.
    """

    async def scenario(world: World) -> None:
        older, _ = fill_two_epochs(world)
        async with member(world, auto_commit_interval_ms=1000) as consumer:
            await read(consumer)
            await asyncio.sleep(3)
            assert epochs_of_commits(world)[5] == older

    simulate(scenario, brokers=2)


def test_a_commit_names_the_epoch_of_the_delivered_record() -> None:
    async def scenario(world: World) -> None:
        older, newer = fill_two_epochs(world)
        async with member(world, enable_auto_commit=False) as consumer:
            for offset, epoch in ((5, older), (7, newer), (10, newer)):
                position = await consumer.position(T0)
                await consumer.poll(timeout=10, max_records=offset - position)
                assert consumer.consumed() == {T0: OffsetAndMetadata(offset, "", epoch)}
                await consumer.commit()
            assert epochs_of_commits(world) == {5: older, 7: newer, 10: newer}

    simulate(scenario, brokers=2)


def test_tracked_never_commits_an_offset_with_an_older_epoch_than_its_record() -> None:
    async def scenario(world: World) -> None:
        older, newer = fill_two_epochs(world)
        async with member(world, enable_auto_commit=False) as consumer:
            taken: list[Any] = []
            async for record in consumer.tracked():
                taken.append(record)
                if len(taken) == 10:
                    break
            told = []
            for record in taken:
                told.append(consumer.consumed()[T0])
                consumer.done(record)
            assert [(to.offset, to.leader_epoch) for to in told] == [
                (offset, older if offset < 5 else newer) for offset in range(10)
            ]
            assert consumer.consumed() == {T0: OffsetAndMetadata(10, "", newer)}

    simulate(scenario, brokers=2)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_arrow_batches_deliver_nothing_when_the_conversion_outlasts_the_session(
    protocol: str,
) -> None:
    options: dict[str, Any] = {"group_protocol": protocol, "session_timeout_ms": 45_000}
    options["heartbeat_interval_ms"] = 3000

    async def scenario(world: World) -> None:
        fill(world, 10)
        async with member(world, name="m", max_poll_interval_ms=600_000, **options) as consumer:
            batches = consumer.arrow_batches()
            converter = batches._converter
            convert = converter.convert_next

            async def slow(*args: Any, **kwargs: Any) -> Any:
                converted = await convert(*args, **kwargs)
                part(world, "m")
                world.sim.loop.leap(100)
                return converted

            converter.convert_next = slow  # type: ignore[method-assign]
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(batches), 60)
            converter.convert_next = convert  # type: ignore[method-assign]
            world.network.heal()
            table = await asyncio.wait_for(anext(batches), 60)
            assert table.num_rows == 10

    simulate(scenario)


def test_an_automatic_commit_names_the_epoch_of_what_was_marked_as_processed() -> None:
    async def scenario(world: World) -> None:
        older, _ = fill_two_epochs(world)
        async with member(world, auto_commit_interval_ms=1000) as consumer:
            await consumer.poll(timeout=10, max_records=3)
            consumer.mark_processed()
            assert await consumer.get(timeout=10)
            await asyncio.sleep(3)
            assert epochs_of_commits(world)[3] == older

    simulate(scenario, brokers=2)


def test_an_automatic_commit_names_no_epoch_of_records_before_a_seek() -> None:
    async def scenario(world: World) -> None:
        _, newer = fill_two_epochs(world)
        async with member(world, auto_commit_interval_ms=1000) as consumer:
            await consumer.poll(timeout=10, max_records=7)
            consumer.mark_processed()
            consumer.seek(T0, 3)
            assert await consumer.get(timeout=10)
            await asyncio.sleep(3)
            assert epochs_of_commits(world)[3] != newer

    simulate(scenario, brokers=2)
