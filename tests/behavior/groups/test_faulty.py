"""Members that do what must not be: the audit of a group finds each of them, and says what it was.

This is what the tests of churn are tested with.
"""

import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from churn import Crowd, OurMember, Settings
from churn.events import now
from ownership import BrokenOwnershipError

from aiokclient import TopicPartition

PARTITIONS = 4


class Ahead(OurMember):
    """Commits what it has not processed."""

    async def work(self, record: Any) -> None:
        tp = TopicPartition(record.topic, record.partition)
        await self.consumer.commit({tp: record.offset + 5})
        self.tell("holding", *tp)
        await self.go.wait()


class Hoarder(OurMember):
    """Puts records aside, and begins with them when they are another's."""

    async def take(self, records: Sequence[Any], asked: float) -> None:
        self.stock = [*getattr(self, "stock", ()), *records]
        self.tell("holding", len(self.stock))

    def on_revoked(self, tps: Sequence[TopicPartition]) -> None:
        super().on_revoked(tps)
        self.hand(now(), self.stock)


class Claimant(OurMember):
    """Takes partitions that the group has given to somebody else."""

    async def iterate(self) -> None:
        await self.go.wait()
        tps = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
        others = [tp for tp in tps if tp not in self.consumer.assignment()]
        self.consumer.assign(others)
        self.on_assigned(others)


@pytest.fixture
async def crowd(cluster_servers: Any) -> AsyncIterator[Crowd]:
    topic = await cluster_servers.new_topic(partitions=PARTITIONS)
    options = {"enable_auto_commit": False}
    group_id, bootstrap = f"g-{uuid.uuid4().hex[:8]}", str(cluster_servers.bootstrap)
    # Nobody is killed: who stands still for a moment remains a member.
    settings = Settings(bootstrap, topic, PARTITIONS, group_id, options, session_ms=30_000)
    async with Crowd("a faulty member", settings) as crowd:
        yield crowd


async def join(crowd: Crowd, make: Callable[..., OurMember], what: str) -> str:
    """Such a member, once it has told this."""
    name = crowd.join("task", "iterate", make=make)
    await crowd.until(lambda: crowd.log.of(name, what))
    return name


def found(crowd: Crowd, what: str) -> None:
    with pytest.raises(BrokenOwnershipError, match=what):
        crowd.audit().check()


async def test_a_commit_ahead_of_the_work(crowd: Crowd) -> None:
    await join(crowd, Ahead, "holding")
    await crowd.look()
    found(crowd, r"5 is committed, but 0 was not processed")


async def test_a_record_delivered_after_the_revocation(crowd: Crowd) -> None:
    name = await join(crowd, Hoarder, "holding")
    await join(crowd, OurMember, "assigned")
    await crowd.until(lambda: crowd.log.of(name, "handed"))
    found(crowd, rf"{name} received .*, which it does not own")


async def test_a_partition_of_another(crowd: Crowd) -> None:
    honest = await join(crowd, OurMember, "assigned")
    name = await join(crowd, Claimant, "assigned")
    await crowd.settled()
    crowd.audit().check()
    crowd.order(name, "go")
    await crowd.until(lambda: len(crowd.log.of(name, "assigned")) == 2)
    found(crowd, rf"two members own a partition: .* of {honest}: .*; .* of {name}: ")
