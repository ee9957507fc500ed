"""The offsets that commits cover: by hand, automatically, at close, and with `tracked`."""

import asyncio
import logging
from typing import Any

import pytest
from group_world import Diary, committed, fill, member, part
from world import World, simulate

from aiokclient import OffsetAndMetadata, TopicPartition
from aiokclient.errors import (
    ApiTimeoutError,
    ClosedError,
    CoordinatorLoadInProgressError,
    IllegalStateError,
    NotCoordinatorError,
    RebalanceInProgressError,
)
from aiokclient.protocol import ApiKey

T0 = TopicPartition("t", 0)
NEVER = {"auto_commit_interval_ms": 1_000_000}


class TestProcessed:
    def test_automatic_commits_cover_only_processed_records(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 10)
            async with member(world, auto_commit_interval_ms=100) as consumer:
                for count in range(1, 5):
                    await consumer.get()
                    await asyncio.sleep(1)
                    assert committed(world) == count - 1
                assert consumer.consumed()[T0].offset == 4
                await consumer.poll(max_records=3)
                await asyncio.sleep(1)
                assert committed(world) == 4

        simulate(scenario)

    def test_a_record_is_in_progress_while_the_loop_body_runs(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 10)
            async with member(world, auto_commit_interval_ms=100) as consumer:
                async for record in consumer:
                    await asyncio.sleep(1)
                    assert committed(world) == record.offset
                    if record.offset == 5:
                        break
                await asyncio.sleep(1)
                assert committed(world) == 5
                # A new request, after the loop was left, marks the record as processed.
                await consumer.get()
                await asyncio.sleep(1)
                assert committed(world) == 6

        simulate(scenario)

    def test_automatic_commits_do_not_undo_a_commit_of_records_in_progress(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 10)
            async with member(world, auto_commit_interval_ms=100) as consumer:
                await consumer.poll(max_records=4)
                await consumer.commit()
                assert committed(world) == 4
                await asyncio.sleep(1)
                assert committed(world) == 4
                consumer.seek(T0, 1)
                await asyncio.sleep(1)
                assert committed(world) == 1
                assert consumer.consumed()[T0].offset == 1

        simulate(scenario)

    def test_nothing_is_committed_when_enable_auto_commit_is_false(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 10)
            async with member(
                world, enable_auto_commit=False, auto_commit_interval_ms=100
            ) as consumer:
                await consumer.poll(max_records=4)
                await consumer.poll(max_records=4)
                await asyncio.sleep(1)
            assert committed(world) is None

        simulate(scenario)


class TestCommit:
    def test_commit_refuses_invalid_arguments(self) -> None:
        async def scenario(world: World) -> None:
            async with member(world) as consumer:
                bad: list[Any] = [5, {"t": 3}, {T0: -1}, {T0: "3"}, [T0, "t"], [5], {T0: True}]
                for what in bad:
                    with pytest.raises(IllegalStateError):
                        await consumer.commit(what)

        simulate(scenario)

    @pytest.mark.parametrize(
        "error",
        [NotCoordinatorError, CoordinatorLoadInProgressError, RebalanceInProgressError],
    )
    def test_commit_waits_for_the_end_of_temporary_errors(self, error: Any) -> None:
        async def scenario(world: World) -> None:
            fill(world, 10)
            async with member(world, **NEVER) as consumer:
                await consumer.poll(max_records=4)
                with world.cluster.fail(ApiKey.OFFSET_COMMIT, error, times=3):
                    await consumer.commit()
                assert committed(world) == 4

        simulate(scenario)

    def test_commit_ends_at_its_deadline_with_the_last_error(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 10)
            async with member(world, **NEVER) as consumer:
                await consumer.poll(max_records=4)
                error = CoordinatorLoadInProgressError
                with world.cluster.fail(ApiKey.OFFSET_COMMIT, error, times=1000):
                    began = world.now
                    with pytest.raises(ApiTimeoutError) as raised:
                        await consumer.commit(timeout=5)
                    assert 4.9 < world.now - began < 5.1
                    assert isinstance(raised.value.__cause__, error)
                with (
                    world.cluster.fail(ApiKey.OFFSET_FETCH, error, times=1000),
                    pytest.raises(ApiTimeoutError),
                ):
                    await consumer.committed([T0], timeout=5)

        simulate(scenario)

    def test_partitions_assigned_by_hand_share_the_offsets_of_the_group(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 10, topic="side")
            side = TopicPartition("side", 0)
            world.cluster.produce("t", [b"1"])
            for expected in (4, 8):
                async with member(world, auto_commit_interval_ms=100) as consumer:
                    consumer.assign([side])
                    await asyncio.sleep(1)
                    assert consumer.assignment() == {T0, side}
                    records = []
                    while len(records) < 4:
                        found = await consumer.poll(max_records=4 - len(records))
                        records += [r for r in found if r.topic == "side"]
                    await consumer.commit(records)
                    assert committed(world, topic="side") == expected
                    consumer.subscribe([])
                    await asyncio.sleep(2)
                    assert consumer.assignment() == {side}

        simulate(scenario, topics={"t": 1, "side": 1})

    def test_offsets_are_committed_to_an_empty_group_without_a_subscription(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 10)
            for first in (0, 4):
                consumer = world.consumer(group_id="g", auto_commit_interval_ms=100)
                consumer.assign([T0])
                async with consumer:
                    assert consumer.group_metadata().member_id == ""
                    records = await consumer.poll(max_records=4)
                    assert records[0].offset == first
                    await consumer.poll(timeout=0)
                    consumer.seek(T0, first + 4)

        simulate(scenario)

    def test_group_metadata_and_committed_describe_the_member(self) -> None:
        async def scenario(world: World) -> None:
            async with member(world, group_instance_id="a") as consumer:
                metadata = consumer.group_metadata()
                assert (metadata.group_id, metadata.group_instance_id) == ("g", "a")
                assert metadata.generation_id == 1
                await consumer.commit({T0: OffsetAndMetadata(3, "m", 0)})
                other = TopicPartition("side", 0)
                assert await consumer.committed([T0, other]) == {
                    T0: OffsetAndMetadata(3, "m", 0),
                    other: None,
                }

        simulate(scenario, topics={"t": 1, "side": 1})


class TestClosing:
    def test_close_waits_for_a_loop_in_another_task(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 10)
            diary = Diary()
            consumer = member(world, diary, **NEVER)
            await consumer.start()

            async def read() -> None:
                async for _ in consumer:
                    await asyncio.sleep(1)

            reading = asyncio.create_task(read())
            await asyncio.sleep(2.5)
            await consumer.close()
            assert reading.done()
            # Three records were delivered, and the loop has requested a fourth.
            assert committed(world) == 3
            assert diary.pages[-1] == ("revoked", [0])
            assert not world.cluster.groups["g"].members

        simulate(scenario)

    def test_close_waits_for_a_loop_no_longer_than_its_timeout(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 10)
            diary = Diary()
            consumer = member(world, diary, **NEVER)
            await consumer.start()

            async def read() -> None:
                async for record in consumer:
                    if record.offset == 2:
                        await asyncio.sleep(100)

            reading = asyncio.create_task(read())
            await asyncio.sleep(1)
            began = world.now
            await consumer.close()
            assert world.now - began < 5.1
            assert committed(world) == 2
            assert diary.pages[-1] == ("lost", [0])
            assert not world.cluster.groups["g"].members
            await reading

        simulate(scenario)

    def test_close_does_not_wait_for_a_loop_that_was_left(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 10)
            diary = Diary()
            async with member(world, diary, **NEVER) as consumer:
                async for record in consumer:
                    if record.offset == 4:
                        break
                began = world.now
            assert world.now - began < 0.5
            assert committed(world) == 4
            assert diary.pages[-1] == ("revoked", [0])

        simulate(scenario)

    @pytest.mark.parametrize("how", [RuntimeError, asyncio.CancelledError])
    def test_leaving_by_an_exception_commits_processed_records(self, how: Any) -> None:
        async def scenario(world: World) -> None:
            fill(world, 10)

            async def program() -> None:
                async with member(world, **NEVER) as consumer:
                    async for record in consumer:
                        if record.offset == 4:
                            if how is asyncio.CancelledError:
                                await asyncio.sleep(1000)
                            raise how

            task = asyncio.create_task(program())
            await asyncio.sleep(2)
            began = world.now
            task.cancel()
            await asyncio.wait([task])
            assert world.now - began < 1
            assert task.cancelled() or isinstance(task.exception(), how)
            assert committed(world) == 4
            assert not world.cluster.groups["g"].members

        simulate(scenario)

    def test_close_commits_records_of_a_poll_that_was_processed(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 10)
            consumer = member(world, **NEVER)
            await consumer.start()

            async def read() -> None:
                while True:
                    await consumer.poll(max_records=3)
                    await asyncio.sleep(1)

            reading = asyncio.create_task(read())
            await asyncio.sleep(0.5)
            await consumer.close()
            with pytest.raises(ClosedError):
                await reading
            assert committed(world) == 3

        simulate(scenario)

    def test_close_commits_nothing_of_lost_partitions(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 10)
            other = Diary()
            consumer = member(world, name="m", **NEVER)
            await consumer.start()
            await consumer.poll(max_records=5)
            await consumer.poll(timeout=0, max_records=1)
            part(world, "m")
            async with member(world, other, name="n") as second:
                await other.until(lambda: other.owned)
                await second.poll()
                await second.commit()
                world.network.heal()
                await consumer.close()
                assert committed(world) == 10

        simulate(scenario)

    def test_close_ends_in_time_when_the_coordinator_is_dead(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 10)
            consumer = member(world, name="m", **NEVER)
            await consumer.start()
            await consumer.poll(max_records=5)
            await consumer.poll(timeout=0)
            part(world, "m")
            began = world.now
            await consumer.close(timeout=2)
            assert world.now - began < 2.5

        simulate(scenario)


class TestTracked:
    def test_commit_with_tracked_covers_records_before_the_lowest_open_one(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 10)
            async with member(world, auto_commit_interval_ms=100) as consumer:
                records = consumer.tracked()
                got = [await anext(records) for _ in range(6)]
                for index in (0, 1, 3, 5):
                    consumer.done(got[index])
                await asyncio.sleep(1)
                assert committed(world) == 2
                assert consumer.consumed()[T0].offset == 2
                await consumer.commit()
                await consumer.commit(["t"])
                await consumer.commit([T0])
                assert committed(world) == 2
                await consumer.commit(got[3])
                assert committed(world) == 4
                await asyncio.sleep(1)
                assert committed(world) == 4
                consumer.done(got[2])
                consumer.done(got[4])
                await asyncio.sleep(1)
                # All records are marked as done, so the last one needs no further request.
                assert committed(world) == 6

        simulate(scenario)

    def test_tracked_waits_at_max_outstanding(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 10)
            async with member(world) as consumer:
                records = consumer.tracked(max_outstanding=3)
                got = [await anext(records) for _ in range(3)]
                fourth = asyncio.create_task(records.__anext__())
                await asyncio.sleep(5)
                assert not fourth.done()
                consumer.done(got[1])
                assert (await fourth).offset == 3
                with pytest.raises(IllegalStateError):
                    consumer.tracked(max_outstanding=0)

        simulate(scenario)

    def test_done_is_ignored_after_a_loss_or_another_delivery(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 10)
            async with member(world, auto_commit_interval_ms=100) as consumer:
                records = consumer.tracked()
                old = [await anext(records) for _ in range(3)]
                consumer.seek(old[0])
                new = [await anext(records) for _ in range(3)]
                for record in old:
                    consumer.done(record)
                await asyncio.sleep(1)
                assert committed(world) == 0
                for record in new:
                    consumer.done(record)
                await asyncio.sleep(1)
                assert committed(world) == 3
                consumer.done(new[0])

        simulate(scenario)

    def test_a_revocation_waits_until_no_record_is_outstanding(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 10)
            first, second = Diary(), Diary()
            async with member(world, first, **NEVER) as consumer:
                records = consumer.tracked()
                got = [await anext(records) for _ in range(10)]
                eleventh = asyncio.create_task(records.__anext__())
                two = member(world, second)
                joining = asyncio.create_task(two.start())
                for record in got:
                    await asyncio.sleep(1)
                    assert len(first.pages) == 1
                    consumer.done(record)
                await first.until(lambda: ("revoked", [0]) in first.pages)
                assert committed(world) == 10
                eleventh.cancel()
                await joining
                await two.close()

        simulate(scenario)

    def test_the_poll_interval_limits_the_age_of_the_oldest_outstanding_record(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def scenario(world: World) -> None:
            fill(world, 10)
            diary = Diary()
            async with member(world, diary, max_poll_interval_ms=10_000) as consumer:
                records = consumer.tracked(max_outstanding=2)
                old = await anext(records)
                with caplog.at_level(logging.ERROR, "aiokclient.consumer"):
                    for _ in range(9):
                        consumer.done(await anext(records))
                        await asyncio.sleep(1)
                    assert len(diary.pages) == 1
                    await diary.until(lambda: ("lost", [0]) in diary.pages)
                    assert 9.5 < world.now < 11
                assert "not finished a record for 10.0 s" in caplog.text
                consumer.done(old)
                again = await anext(records)
                assert again.offset == 0

        simulate(scenario)
