"""Commits after partitions were lost, and commits in listeners."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from group_world import PROTOCOLS, Diary, committed, every_protocol, fill, heartbeat_api, member
from owned import until
from world import World, simulate

from aiokclient import Consumer, TopicPartition
from aiokclient.errors import CommitFailedError, IllegalStateError, KafkaError, UnknownMemberIdError
from aiokclient.protocol import ApiKey

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
BY_HAND = TopicPartition("hand", 0)


def manual(world: World, diary: Any, protocol: str, **options: Any) -> Consumer[Any, Any]:
    return member(world, diary, **{**PROTOCOLS[protocol], "enable_auto_commit": False, **options})


async def remove(world: World, protocol: str, diary: Diary) -> None:
    """Let the next heartbeat fail with UnknownMemberIdError, and wait for the loss."""
    with world.cluster.fail(heartbeat_api(protocol), UnknownMemberIdError, times=1):
        await diary.until(lambda: ("lost", [0]) in diary.pages)


@every_protocol
def test_commit_raises_after_the_member_was_removed_and_records_were_not_committed(
    protocol: str,
) -> None:
    async def scenario(world: World) -> None:
        fill(world, 10)
        diary = Diary()
        async with manual(world, diary, protocol) as consumer:
            assert len(await consumer.poll(timeout=10)) == 10
            await remove(world, protocol, diary)
            # Wait until the member has joined again and owns the partition.
            await diary.until(lambda: diary.owned)
            for _ in range(2):  # The second commit must fail, too.
                with pytest.raises(CommitFailedError, match="no longer owns") as caught:
                    await consumer.commit()
                assert caught.value.partitions == (T0,)
            assert not committed(world)
            assert len(await consumer.poll(timeout=10)) == 10  # The records are delivered again.
            await consumer.commit()
            assert committed(world) == 10

    simulate(scenario)


@every_protocol
def test_commit_raises_after_max_poll_interval_until_records_are_requested(protocol: str) -> None:
    async def scenario(world: World) -> None:
        fill(world, 10)
        diary = Diary()
        async with manual(world, diary, protocol, max_poll_interval_ms=10_000) as consumer:
            (record, *_) = await consumer.poll(timeout=10)
            await diary.until(lambda: ("lost", [0]) in diary.pages)
            began = world.now
            forms: list[Any] = [None, record, [record], {T0: 3}, "t", ["t"], [T0]]
            for what in forms:
                with pytest.raises(CommitFailedError) as caught:
                    await consumer.commit(what)
                assert caught.value.partitions == (T0,)
                assert world.now - began < 1
            assert not committed(world)
            assert len(await consumer.poll(timeout=30)) == 10
            await consumer.commit()
            assert committed(world) == 10

    simulate(scenario)


@every_protocol
def test_commit_while_the_member_leaves_for_max_poll_interval_raises_and_stores_nothing(
    protocol: str,
) -> None:
    async def scenario(world: World) -> None:
        fill(world, 10)
        diary = Diary()
        async with manual(world, diary, protocol, max_poll_interval_ms=10_000) as consumer:
            await consumer.poll(timeout=10)
            raised: list[KafkaError] = []
            while ("lost", [0]) not in diary.pages:
                try:
                    await consumer.commit({T0: 5})
                except CommitFailedError as error:
                    raised.append(error)
                await asyncio.sleep(0.003)
            stored = world.requests(ApiKey.OFFSET_COMMIT)
            assert all(request.message.member_id for request in stored)

    simulate(scenario)


@every_protocol
def test_commit_succeeds_after_a_loss_when_everything_delivered_was_committed(
    protocol: str,
) -> None:
    async def scenario(world: World) -> None:
        fill(world, 10)
        diary = Diary()
        async with manual(world, diary, protocol) as consumer:
            await consumer.poll(timeout=10)
            await consumer.commit()
            await remove(world, protocol, diary)
            await diary.until(lambda: diary.owned)
            await consumer.commit()

    simulate(scenario)


def test_commit_of_a_refused_member_has_the_brokers_error_as_its_cause() -> None:
    async def scenario(world: World) -> None:
        fill(world, 10)
        async with manual(world, None, "eager") as consumer:
            await consumer.poll(timeout=10)
            with (
                world.cluster.fail(ApiKey.OFFSET_COMMIT, UnknownMemberIdError),
                pytest.raises(CommitFailedError) as caught,
            ):
                await consumer.commit()
            assert isinstance(caught.value.__cause__, UnknownMemberIdError)
            assert caught.value.partitions == (T0,)

    simulate(scenario)


@every_protocol
def test_commit_of_records_of_a_topic_that_is_not_subscribed_any_more_raises(
    protocol: str,
) -> None:
    async def scenario(world: World) -> None:
        fill(world, 10)
        diary = Diary()
        async with manual(world, diary, protocol) as consumer:
            records = await consumer.poll(timeout=10)
            consumer.subscribe(["other"], diary)
            while ("revoked", [0]) not in diary.pages:
                await consumer.poll(timeout=0.1)
            with pytest.raises(CommitFailedError):
                await consumer.commit(records)
            assert not committed(world)

    simulate(scenario, topics={"t": 1, "other": 1})


class CommitsWhenLost(Diary):
    """A listener whose `on_lost` commits a partition that was assigned by hand."""

    consumer: Consumer[Any, Any]
    took: float = -1.0
    error: Exception | None = None

    async def on_lost(self, tps: Sequence[TopicPartition]) -> None:  # type: ignore[override]
        began = asyncio.get_running_loop().time()
        try:
            await self.consumer.commit({BY_HAND: 7})
        except CommitFailedError as error:
            self.error = error
        self.took = asyncio.get_running_loop().time() - began
        super().on_lost(tps)


@every_protocol
@pytest.mark.parametrize("late", [False, True], ids=["removed", "max poll interval"])
def test_commit_of_a_partition_by_hand_in_on_lost_does_not_wait_for_the_rejoin(
    protocol: str, late: bool
) -> None:
    async def scenario(world: World) -> None:
        fill(world, 10)
        listener = CommitsWhenLost()
        consumer = manual(world, listener, protocol, max_poll_interval_ms=20_000)
        listener.consumer = consumer
        async with consumer:
            consumer.assign([BY_HAND])
            await consumer.poll(timeout=10)
            if late:
                await listener.until(lambda: ("lost", [0]) in listener.pages)
            else:
                await remove(world, protocol, listener)
            assert 0 <= listener.took < 2
            async with asyncio.timeout(60):
                while T0 not in consumer.assignment():
                    await consumer.poll(timeout=0.5)
            await consumer.commit({BY_HAND: 8})
            assert committed(world, topic="hand") == 8

    simulate(scenario, topics={"t": 1, "hand": 1})


@every_protocol
def test_commit_of_a_partition_by_hand_ends_without_a_listener_after_max_poll_interval(
    protocol: str,
) -> None:
    async def scenario(world: World) -> None:
        fill(world, 10)
        consumer = manual(world, None, protocol, max_poll_interval_ms=10_000)
        async with consumer:
            consumer.assign([BY_HAND])
            await consumer.poll(timeout=10)
            await until(lambda: T0 not in consumer.assignment())
            began = world.now
            both = [consumer.commit({BY_HAND: offset}) for offset in (5, 6)]
            outcomes = await asyncio.gather(*both, return_exceptions=True)
            assert world.now - began < 2
            stored = committed(world, topic="hand")
            for outcome in outcomes:
                assert outcome is None or isinstance(outcome, CommitFailedError)
            assert stored == (6 if None in outcomes else None)

    simulate(scenario, topics={"t": 1, "hand": 1})


@every_protocol
def test_commits_made_while_the_member_joins_are_stored_in_their_order(protocol: str) -> None:
    async def scenario(world: World) -> None:
        fill(world, 10)
        diary = Diary()
        async with manual(world, diary, protocol) as consumer:
            consumer.assign([BY_HAND])
            await consumer.poll(timeout=10)
            await remove(world, protocol, diary)
            await asyncio.gather(*(consumer.commit({BY_HAND: i}) for i in range(1, 6)))
            assert committed(world, topic="hand") == 5

    simulate(scenario, topics={"t": 1, "hand": 1})


class Asks(Diary):
    """A listener that makes its calls in tasks."""

    consumer: Consumer[Any, Any]

    async def on_assigned(self, tps: Sequence[TopicPartition]) -> None:  # type: ignore[override]
        consumer = self.consumer
        await asyncio.gather(
            consumer.committed(list(tps)),
            consumer.end_offsets(list(tps)),
            consumer.position(tps[0]),
            consumer.commit(dict.fromkeys(tps, 3)),
            self.seek(tps),
        )
        reading = asyncio.create_task(self.read())
        with pytest.raises(IllegalStateError, match="must not read"):
            await reading
        super().on_assigned(tps)

    async def seek(self, tps: Sequence[TopicPartition]) -> None:
        for tp in tps:
            self.consumer.seek(tp, 4)

    async def read(self) -> None:
        await self.consumer.get(timeout=0)


@every_protocol
def test_a_listener_may_use_tasks_in_its_first_call_and_in_later_ones(protocol: str) -> None:
    async def scenario(world: World) -> None:
        fill(world, 10)
        listener = Asks()
        listener.consumer = consumer = manual(world, listener, protocol)
        async with consumer:
            await listener.until(lambda: listener.owned)
            assert committed(world) == 3
            record = await consumer.get(timeout=10)
            assert record is not None
            assert record.offset == 4
            await remove(world, protocol, listener)
            await listener.until(lambda: listener.owned)

    simulate(scenario)


def test_a_task_that_outlives_the_listener_call_that_started_it_may_read() -> None:
    class Starts(Diary):
        async def on_assigned(self, tps: Sequence[TopicPartition]) -> None:  # type: ignore[override]
            self.reading = asyncio.create_task(self.read())
            super().on_assigned(tps)

        async def read(self) -> Any:
            await started.wait()
            return await consumer.get(timeout=10)

    async def scenario(world: World) -> None:
        nonlocal consumer
        fill(world, 1)
        listener = Starts()
        consumer = manual(world, listener, "eager")
        async with consumer:
            await listener.until(lambda: listener.owned)
            started.set()
            assert (await listener.reading).offset == 0

    consumer: Any = None
    started = asyncio.Event()
    simulate(scenario)
