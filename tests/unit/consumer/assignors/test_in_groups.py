"""Tests of assignors in groups of running consumers."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from aiokclient import (
    AssignmentCluster,
    Assignor,
    Consumer,
    MemberAssignment,
    MemberSubscription,
    TopicPartition,
    errors,
)
from aiokclient.consumer.assignors.co_partitioned import CoPartitioned
from aiokclient.consumer.assignors.redundant import Redundant
from aiokclient.consumer.assignors.strategy import RoundRobin
from aiokclient.testing import EmbeddedCluster
from aiokclient.types import GroupMetadata

TOPICS = {"orders": 4, "payments": 4}
PARTITIONS = [TopicPartition(topic, index) for topic in TOPICS for index in range(4)]


@pytest.fixture
def embedded() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(topics=TOPICS) as cluster:
        yield cluster


class Group:
    """The consumers of one group, and the partitions that they own."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self._changed = asyncio.Event()
        self.members: list[Consumer[Any, Any]] = []
        self.revocations: list[list[TopicPartition]] = []

    @asynccontextmanager
    async def member(self, strategy: Any, *topics: str) -> AsyncIterator[Consumer[Any, Any]]:
        consumer = Consumer[Any, Any](
            *(topics or TOPICS),
            group_id="group",
            bootstrap_servers=self._cluster.bootstrap_servers,
            heartbeat_interval_ms=50,
            retry_backoff_ms=20,
            partition_assignment_strategy=strategy,
            listener=self,
        )
        async with consumer:
            self.members.append(consumer)
            try:
                yield consumer
            finally:
                self.members.remove(consumer)

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._changed.set()

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.revocations.append(sorted(partitions))
        self._changed.set()

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._changed.set()

    @property
    def held(self) -> list[set[TopicPartition]]:
        return [set(consumer.assignment()) for consumer in self.members]

    async def until(self, right: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not right():
                # The assignment is complete when the callback has returned.
                self._changed.clear()
                waiting = asyncio.ensure_future(self._changed.wait())
                await asyncio.wait([waiting], timeout=0.05)
                waiting.cancel()

    async def shared(self, members: int) -> None:
        """Wait until this number of members own partitions, and every partition has one owner."""
        await self.until(
            lambda: (
                len(self.held) == members
                and all(self.held)
                and sorted(one for some in self.held for one in some) == PARTITIONS
            )
        )


async def test_co_partitioned_topics_are_assigned_together(embedded: EmbeddedCluster) -> None:
    group = Group(embedded)
    async with AsyncExitStack() as stack:
        for count in range(1, 4):
            await stack.enter_async_context(group.member(CoPartitioned("orders", "payments")))
            await group.shared(count)
            for some in group.held:
                numbers = [{index for topic, index in some if topic == one} for one in TOPICS]
                assert numbers[0] == numbers[1]
    assert all(len(some) < len(PARTITIONS) for some in group.revocations[:2]), (
        "no member had to revoke all its partitions"
    )


async def test_each_partition_is_assigned_to_two_members(embedded: EmbeddedCluster) -> None:
    group = Group(embedded)
    async with AsyncExitStack() as stack:
        for _ in range(4):
            await stack.enter_async_context(group.member(Redundant(2)))
        await group.until(lambda: [len(some) for some in group.held] == [4, 4, 4, 4])
        copies = sorted(one for some in group.held for one in some)
        assert copies == sorted(PARTITIONS * 2)


class Weighted(Assignor):
    """An assignor that assigns partitions in proportion to weights.

    Each member sends its own weight, and each one receives the sum of all weights.
    """

    name = "weighted"

    def __init__(self, weight: int) -> None:
        self.weight = weight
        self.told: bytes | None = None
        self.generation = -1

    def user_data(self, topics: Sequence[str]) -> bytes:
        return b"%d" % self.weight

    def assign(
        self, cluster: AssignmentCluster, members: Mapping[str, MemberSubscription]
    ) -> dict[str, MemberAssignment]:
        every = [one for topic in cluster.topics for one in cluster.partitions(topic)]
        weights = {name: int(member.user_data or b"1") for name, member in members.items()}
        total = sum(weights.values())
        given, start, summed = {}, 0, 0
        for name in sorted(members, key=lambda name: weights[name]):
            summed += weights[name]
            end = len(every) * summed // total
            given[name] = MemberAssignment(tuple(every[start:end]), b"of %d" % total)
            start = end
        return given

    def on_assignment(self, assignment: MemberAssignment, metadata: GroupMetadata) -> None:
        self.told, self.generation = assignment.user_data, metadata.generation_id


async def test_user_data_is_sent_in_both_directions(embedded: EmbeddedCluster) -> None:
    group, light, heavy = Group(embedded), Weighted(1), Weighted(3)
    async with group.member(light), group.member(heavy) as second:
        await group.until(lambda: [len(some) for some in group.held] == [2, 6])
        assert light.told == heavy.told == b"of 4"
        assert light.generation == heavy.generation == second.group_metadata().generation_id


async def test_a_strategy_is_replaced_while_the_group_goes_on(embedded: EmbeddedCluster) -> None:
    """Two rounds of restarts lead from the eager to the cooperative protocol.

    Each round restarts one member at a time.
    """
    steps = [["range"], ["cooperative-sticky", "range"], ["cooperative-sticky"]]
    group = Group(embedded)
    first, second = AsyncExitStack(), AsyncExitStack()
    await first.enter_async_context(group.member(steps[0]))
    await second.enter_async_context(group.member(steps[0]))
    async with first, second:
        await group.shared(2)
        for step in steps[1:]:
            for stack in (first, second):
                await stack.aclose()
                await group.shared(1)
                await stack.enter_async_context(group.member(step))
                await group.shared(2)
        group.revocations.clear()
        async with group.member(steps[-1]):
            await group.shared(3)
            assert max(map(len, group.revocations)) < 4, "only partitions that move are revoked"


class Wrong(RoundRobin):
    """An assignor that also assigns a partition which does not exist."""

    name = "wrong"

    def assign(
        self, cluster: AssignmentCluster, members: Mapping[str, MemberSubscription]
    ) -> dict[str, MemberAssignment]:
        return {name: MemberAssignment((TopicPartition("orders", 9),)) for name in members}


async def test_an_assignment_that_cannot_be_is_said(embedded: EmbeddedCluster) -> None:
    group = Group(embedded)
    with pytest.raises(errors.AssignmentFailedError, match=r"'wrong'.*orders-9") as caught:
        async with group.member(Wrong()):
            pytest.fail("start() returned although the first assignment failed")
    assert "has 4 partitions" in str(caught.value)
