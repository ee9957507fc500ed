"""Tests of a consumer in a transaction: its offsets, its identity, and its rewind after aborts."""

import asyncio
from typing import Any

import pytest
from group_world import PROTOCOLS, Diary, committed, every_protocol, fill, member
from owned import until
from world import World, simulate

from aiokclient import Consumer, TopicPartition
from aiokclient.consumer.transactional import TransactionalReads
from aiokclient.errors import (
    IllegalGenerationError,
    IllegalStateError,
    KafkaError,
    StaleMemberEpochError,
    UnknownMemberIdError,
)
from aiokclient.protocol import ApiKey

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
OWN = {"enable_auto_commit": False, "auto_offset_reset": "earliest"}
REFUSALS = (IllegalGenerationError, StaleMemberEpochError, UnknownMemberIdError)


def begin(consumer: Consumer[Any, Any], ago: float = 0.0) -> TransactionalReads:
    """Return the reads of a transaction that began `ago` seconds before."""
    return consumer._for_transaction(asyncio.get_running_loop().time() - ago)


async def commit(
    consumer: Consumer[Any, Any], reads: TransactionalReads
) -> dict[TopicPartition, KafkaError]:
    """Commit as a producer does: once, with exactly these offsets and this identity."""
    group = consumer._running.group
    assert group is not None
    errors = await group.commits._send_commit(reads.get_offsets(), reads.find_group_metadata())
    if not errors:
        reads.on_committed()
    return errors


async def offsets(consumer: Consumer[Any, Any], count: int) -> list[int]:
    """Read `count` records, and return their offsets."""
    found: list[int] = []
    while len(found) < count:
        found += [record.offset for record in await consumer.poll(max_records=count - len(found))]
    return found


class TestRefusals:
    def test_a_consumer_without_a_group_is_refused(self) -> None:
        async def scenario(world: World) -> None:
            async with world.consumer("t") as consumer:
                with pytest.raises(IllegalStateError, match="no group_id"):
                    begin(consumer)

        simulate(scenario)

    def test_a_consumer_that_commits_automatically_is_refused(self) -> None:
        async def scenario(world: World) -> None:
            async with member(world) as consumer:
                with pytest.raises(IllegalStateError, match="enable_auto_commit=False"):
                    begin(consumer)

        simulate(scenario)


class TestCommit:
    @every_protocol
    def test_the_offsets_are_what_was_consumed_and_not_yet_committed(self, protocol: str) -> None:
        async def scenario(world: World) -> None:
            fill(world, 10, 2)
            async with member(world, **OWN, **PROTOCOLS[protocol]) as consumer:
                reads = begin(consumer)
                await offsets(consumer, 20)
                assert {tp: to.offset for tp, to in reads.get_offsets().items()} == {T0: 10, T1: 10}
                assert reads.get_offsets() == consumer.consumed()
                assert reads.find_group_metadata() == consumer.group_metadata()
                assert await commit(consumer, reads) == {}
                assert (committed(world, 0), committed(world, 1)) == (10, 10)
                assert begin(consumer).get_offsets() == {}
                world.cluster.produce("t", [b"more"], 1)
                await offsets(consumer, 1)
                assert {tp: to.offset for tp, to in begin(consumer).get_offsets().items()} == {
                    T1: 11
                }

        simulate(scenario, topics={"t": 2})

    def test_a_committed_transaction_counts_as_a_commit(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 10)
            async with member(world, **OWN) as consumer:
                reads = begin(consumer)
                await offsets(consumer, 4)
                assert await commit(consumer, reads) == {}
                await begin(consumer).rewind_and_wait(10)
                assert await consumer.position(T0) == 4

        simulate(scenario)

    @every_protocol
    def test_reads_can_be_committed_amid_a_rebalance_that_takes_nothing_away(
        self, protocol: str
    ) -> None:
        async def scenario(world: World) -> None:
            fill(world, 5, 1)
            async with member(world, **OWN, **PROTOCOLS[protocol]) as one:
                before = one.group_metadata()
                diary = Diary()
                reads = begin(one)
                await offsets(one, 5)
                idle = member(world, diary, name="two", **OWN, **PROTOCOLS[protocol])
                joining = asyncio.create_task(idle.start())
                if protocol != "eager":
                    # The only partition keeps its owner, in a new generation or epoch.
                    await until(lambda: diary.pages and one.group_metadata() != before)
                    assert one.assignment() == {T0}
                assert reads.find_group_metadata() == one.group_metadata()
                assert await commit(one, reads) == {}
                assert committed(world) == 5
                await one.poll(timeout=1)
                await joining
                await idle.close()

        simulate(scenario, topics={"t": 1})


class TestTakenAway:
    @every_protocol
    def test_a_commit_is_refused_after_a_partition_was_revoked(self, protocol: str) -> None:
        async def scenario(world: World) -> None:
            fill(world, 5, 2)
            diary = Diary()
            # The last records are not processed, and keep their partition.
            options = {**OWN, **PROTOCOLS[protocol], "checked": False}
            async with member(world, **options) as one:
                reads = begin(one)
                await offsets(one, 10)
                two = member(world, diary, name="two", **OWN, **PROTOCOLS[protocol])
                joining = asyncio.create_task(two.start())
                while len(diary.owned) < 1 or len(one.assignment()) != 1:
                    await one.poll(timeout=0.5)
                errors = await commit(one, reads)
                assert errors
                assert all(isinstance(error, REFUSALS) for error in errors.values())
                assert (committed(world, 0), committed(world, 1)) == (None, None)
                await joining
                # The next transaction is not affected.
                await reads.rewind_and_wait(10)
                world.cluster.produce("t", [b"more"], 0)
                world.cluster.produce("t", [b"more"], 1)
                following = begin(one)
                assert len(await offsets(one, 6)) == 6
                assert await commit(one, following) == {}
                (kept,) = one.assignment()
                assert committed(world, kept.partition) == 6
                await two.close()

        simulate(scenario, topics={"t": 2})

    @pytest.mark.parametrize("protocol", ["cooperative", "kip848"])
    def test_a_commit_is_refused_between_the_revocation_and_the_next_generation(
        self, protocol: str
    ) -> None:
        async def scenario(world: World) -> None:
            fill(world, 5, 2)
            async with member(world, **OWN, **PROTOCOLS[protocol]) as one:
                reads = begin(one)
                await offsets(one, 10)
                both = one.assignment()
                two = member(world, name="two", **OWN, **PROTOCOLS[protocol])
                joining = asyncio.create_task(two.start())
                changed = asyncio.Event()
                one._subscription.add_change_listener(changed.set)
                polling = asyncio.create_task(one.poll(timeout=60))
                while one.assignment() == both:
                    await changed.wait()
                    changed.clear()
                errors = list((await commit(one, reads)).values())
                assert errors
                assert isinstance(errors[0], REFUSALS)
                polling.cancel()
                await joining
                await two.close()

        simulate(scenario, topics={"t": 2})

    @every_protocol
    def test_a_former_member_never_commits_as_a_consumer_without_a_group(
        self, protocol: str
    ) -> None:
        async def scenario(world: World) -> None:
            fill(world, 5, 1)
            lost = Diary()
            limits = {**PROTOCOLS[protocol], "max_poll_interval_ms": 10_000}
            if limits.get("group_protocol") == "consumer":
                limits["max_poll_interval_ms"] = 60_000
            async with member(world, lost, **OWN, **limits) as one:
                reads = begin(one)
                await offsets(one, 5)
                # The application does not request records, so the member leaves the group.
                await lost.until(lambda: ("lost", [0]) in lost.pages)
                await until(lambda: world.cluster.groups["g"].members == {})
                assert one.group_metadata().member_id == ""
                (error,) = (await commit(one, reads)).values()
                assert isinstance(error, REFUSALS)
                assert committed(world) is None
                # Records that are still being processed belong to the next transaction as well.
                late = begin(one)
                assert late.get_offsets()[T0].offset == 5
                (error,) = (await commit(one, late)).values()
                assert isinstance(error, REFUSALS)
                assert await offsets(one, 5) == [0, 1, 2, 3, 4]
                assert await commit(one, begin(one)) == {}
                assert committed(world) == 5

        simulate(scenario, topics={"t": 1})


class TestGoingBack:
    @every_protocol
    def test_an_abort_goes_back_to_the_committed_offset(self, protocol: str) -> None:
        async def scenario(world: World) -> None:
            fill(world, 20)
            async with member(world, **OWN, **PROTOCOLS[protocol]) as consumer:
                await offsets(consumer, 3)
                await consumer.commit()
                reads = begin(consumer)
                assert await offsets(consumer, 5) == [3, 4, 5, 6, 7]
                await reads.rewind_and_wait(10)
                assert consumer.consumed()[T0].offset == 3
                assert await offsets(consumer, 17) == list(range(3, 20))

        simulate(scenario)

    def test_an_abort_without_a_committed_offset_goes_back_to_the_position_at_the_begin(
        self,
    ) -> None:
        async def scenario(world: World) -> None:
            fill(world, 20)
            async with member(world, **OWN) as consumer:
                await offsets(consumer, 3)
                await asyncio.sleep(1)
                reads = begin(consumer)
                assert await offsets(consumer, 5) == [3, 4, 5, 6, 7]
                await reads.rewind_and_wait(10)
                assert await offsets(consumer, 17) == list(range(3, 20))

        simulate(scenario)

    def test_records_that_are_in_progress_at_the_begin_belong_to_the_transaction(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 20)
            async with member(world, **OWN) as consumer:
                assert await offsets(consumer, 3) == [0, 1, 2]
                await asyncio.sleep(1)
                await begin(consumer).rewind_and_wait(10)
                assert await offsets(consumer, 3) == [0, 1, 2]

        simulate(scenario)

    def test_partitions_that_were_not_read_stay_where_they_are(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 4, 2)
            async with member(world, **OWN) as consumer:
                await offsets(consumer, 8)
                await consumer.commit()
                consumer.seek(T1, 2)
                consumer.pause([T1])
                reads = begin(consumer)
                world.cluster.produce("t", [b"more"], 0)
                await offsets(consumer, 1)
                await reads.rewind_and_wait(10)
                found = consumer.consumed()
                assert (found[T0].offset, found[T1].offset) == (4, 2)
                assert consumer.paused() == {T1}

        simulate(scenario, topics={"t": 2})

    def test_without_an_answer_it_returns_in_time_and_nothing_is_skipped(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 5)
            async with member(world, **OWN) as consumer:
                reads = begin(consumer)
                await offsets(consumer, 2)
                with world.cluster.delay(ApiKey.OFFSET_FETCH, 20):
                    began = world.now
                    await reads.rewind_and_wait(3)
                    assert world.now - began == pytest.approx(3, abs=0.1)
                    assert await consumer.poll(timeout=5) == []
                assert await offsets(consumer, 5) == [0, 1, 2, 3, 4]

        simulate(scenario)

    def test_a_cancellation_skips_nothing(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 5)
            async with member(world, **OWN) as consumer:
                reads = begin(consumer)
                await offsets(consumer, 2)
                with world.cluster.delay(ApiKey.OFFSET_FETCH, 20), pytest.raises(TimeoutError):
                    async with asyncio.timeout(1):
                        await reads.rewind_and_wait(30)
                assert await offsets(consumer, 5) == [0, 1, 2, 3, 4]

        simulate(scenario)

    def test_closing_the_consumer_ends_it(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 5)
            consumer = member(world, **OWN)
            async with consumer:
                reads = begin(consumer)
                await offsets(consumer, 2)
                with world.cluster.delay(ApiKey.OFFSET_FETCH, 100):
                    going = asyncio.create_task(reads.rewind_and_wait(90))
                    await asyncio.sleep(1)
                    began = world.now
                    await consumer.close(timeout=5)
                    await going
                    assert world.now - began < 10

        simulate(scenario)
