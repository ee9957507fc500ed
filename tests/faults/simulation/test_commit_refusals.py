"""The text of CommitFailedError when the cause is not a rebalance."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from group_world import Diary, committed, fill, member, part
from world import World, simulate

from aiokclient import Consumer, TopicPartition
from aiokclient.errors import CommitFailedError, CoordinatorNotAvailableError, UnknownMemberIdError
from aiokclient.protocol import ApiKey

T0 = TopicPartition("t", 0)
BY_HAND = TopicPartition("hand", 0)
PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {"partition_assignment_strategy": "range"},
    "cooperative": {"partition_assignment_strategy": "cooperative-sticky"},
    "kip848": {
        "group_protocol": "consumer",
        "session_timeout_ms": 45_000,
        "heartbeat_interval_ms": 3000,
    },
}
every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


def explains(error: CommitFailedError, *parts: str) -> None:
    """Check that the text has these parts, and does not name a rebalance as the cause."""
    text = str(error)
    for part_of_text in parts:
        assert part_of_text in text
    for wrong in ("no longer owns", "max_poll_interval_ms", "rejoin", "rebalance"):
        assert wrong not in text


@every_protocol
def test_commit_by_hand_is_refused_with_its_reason_when_the_group_has_members(
    protocol: str,
) -> None:
    async def scenario(world: World) -> None:
        fill(world, 10)
        fill(world, 10, topic="hand")
        diary = Diary()
        async with (
            member(world, diary, **PROTOCOLS[protocol]),
            world.consumer(group_id="g", enable_auto_commit=False) as alone,
        ):
            await diary.until(lambda: diary.owned)
            alone.assign([BY_HAND])
            records = await alone.poll(timeout=10)
            forms: list[Any] = [None, records, {BY_HAND: 3}, ["hand"], [BY_HAND]]
            for what in forms:
                with pytest.raises(CommitFailedError) as caught:
                    await alone.commit(what)
                explains(caught.value, "does not have this consumer as a member", "group_id")
                assert caught.value.partitions == (BY_HAND,)
                assert caught.value.__cause__ is not None
        assert not committed(world, topic="hand")

    simulate(scenario, topics={"t": 1, "hand": 1})


@every_protocol
def test_commit_of_a_subscribed_partition_that_was_never_assigned_says_so(protocol: str) -> None:
    async def scenario(world: World) -> None:
        fill(world, 10)
        refused = world.cluster.fail(
            ApiKey.FIND_COORDINATOR, CoordinatorNotAvailableError, times=10_000
        )
        with refused:
            # Its group has no coordinator, so that it never owns a partition.
            async with member(world, checked=False, **PROTOCOLS[protocol]) as consumer:
                forms: list[Any] = [T0, [T0], {T0: 3}]
                for what in forms:
                    with pytest.raises(CommitFailedError) as caught:
                        await consumer.commit(what)
                    explains(caught.value, "has not assigned the partitions", "assignment()")

    simulate(scenario)


def test_commit_by_hand_is_stored_when_the_group_has_no_members() -> None:
    async def scenario(world: World) -> None:
        fill(world, 10, topic="hand")
        async with world.consumer(group_id="g", enable_auto_commit=False) as alone:
            alone.assign([BY_HAND])
            assert len(await alone.poll(timeout=10)) == 10
            await alone.commit()
        assert committed(world, topic="hand") == 10

    simulate(scenario, topics={"hand": 1})


def test_commit_of_a_partition_that_was_never_assigned_says_so() -> None:
    async def scenario(world: World) -> None:
        async with world.consumer(group_id="g") as consumer:
            consumer.assign([BY_HAND])
            consumer.assign([T0])
            with pytest.raises(CommitFailedError) as caught:
                await consumer.commit([BY_HAND])
            explains(caught.value, "not assigned to this consumer")

    simulate(scenario, topics={"t": 1, "hand": 1})


class CommitsWhenLost(Diary):
    """A listener whose `on_lost` tries every form of a commit of the lost partition."""

    consumer: Consumer[Any, Any]
    records: list[Any]
    before: Callable[[], None]
    took: float = -1.0

    def __init__(self) -> None:
        super().__init__()
        self.outcomes: list[Any] = []
        self.before = lambda: None

    async def on_lost(self, tps: Sequence[TopicPartition]) -> None:  # type: ignore[override]
        self.before()
        began = asyncio.get_running_loop().time()
        forms: list[Any] = [None, self.records, self.records[0], {T0: 3}, "t", ["t"], [T0]]
        for what in forms:
            try:
                await self.consumer.commit(what)
            except CommitFailedError as error:
                self.outcomes.append(error)
            else:
                self.outcomes.append(what)
        self.took = asyncio.get_running_loop().time() - began
        super().on_lost(tps)


@every_protocol
@pytest.mark.parametrize("why", ["removed", "late", "unreachable", "unknown", "closed"])
def test_commit_in_on_lost_raises_for_the_lost_partitions(protocol: str, why: str) -> None:
    async def scenario(world: World) -> None:
        fill(world, 10)
        listener = CommitsWhenLost()
        options = {**PROTOCOLS[protocol], "enable_auto_commit": False}
        consumer = member(world, listener, max_poll_interval_ms=20_000, **options)
        listener.consumer = consumer
        kip848 = protocol == "kip848"
        api = ApiKey.CONSUMER_GROUP_HEARTBEAT if kip848 else ApiKey.HEARTBEAT
        await consumer.start()

        def forget() -> None:
            """Remove the topic from the metadata, and cut the client off from all brokers."""
            part(world, "client")
            updater = consumer._cluster.updater
            updater.snapshot = updater.snapshot._replace(topics={})

        if why == "unknown":
            listener.before = forget
        listener.records = await consumer.poll(timeout=10)
        if why == "removed":
            with world.cluster.fail(api, UnknownMemberIdError, times=1):
                await listener.until(lambda: ("lost", [0]) in listener.pages)
        elif why in ("late", "unknown"):
            await listener.until(lambda: ("lost", [0]) in listener.pages)
        elif why == "unreachable":
            part(world, "client")
            world.cluster.rebalance("g")
            await listener.until(lambda: ("lost", [0]) in listener.pages)
        world.network.heal()
        await consumer.close()
        if ("lost", [0]) in listener.pages:
            assert [type(outcome) for outcome in listener.outcomes] == [CommitFailedError] * 7
            assert all(outcome.partitions == (T0,) for outcome in listener.outcomes)
            assert 0 <= listener.took < 1
        else:
            assert why == "closed"
        assert not committed(world)

    simulate(scenario)
