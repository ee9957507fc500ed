"""Members with deliberate defects, each of which the audit of a group finds and names.

These tests verify the audit that the churn tests use.
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
    """A member that commits offsets of records it has not processed."""

    async def work(self, record: Any) -> None:
        tp = TopicPartition(record.topic, record.partition)
        await self.consumer.commit({tp: record.offset + 5})
        self.tell("holding", *tp)
        await self.go.wait()


class Hoarder(OurMember):
    """A member that keeps delivered records, and begins to process them after the revocation."""

    async def take(self, records: Sequence[Any], asked: float) -> None:
        self.stock = [*getattr(self, "stock", ()), *records]
        self.tell("holding", len(self.stock))

    def on_revoked(self, tps: Sequence[TopicPartition]) -> None:
        super().on_revoked(tps)
        self.report_delivered(now(), self.stock)


class Claimant(OurMember):
    """A member that reads partitions which the group has assigned to others."""

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
    # The session timeout is long, so that a member that stalls briefly stays in the group.
    settings = Settings(bootstrap, topic, PARTITIONS, group_id, options, session_ms=30_000)
    async with Crowd("a faulty member", settings) as crowd:
        yield crowd


async def join(crowd: Crowd, make: Callable[..., OurMember], what: str) -> str:
    """Add a member, wait until its log has the given event, and return its name."""
    name = crowd.join("task", "iterate", make=make)
    await crowd.until(lambda: crowd.log.of(name, what))
    return name


def found(crowd: Crowd, what: str) -> None:
    with pytest.raises(BrokenOwnershipError, match=what):
        crowd.audit().check()


async def test_the_audit_finds_a_commit_of_unprocessed_records(crowd: Crowd) -> None:
    await join(crowd, Ahead, "holding")
    await crowd.look()
    found(crowd, r"5 is committed, but 0 was not processed")


async def test_the_audit_finds_a_record_processed_after_the_revocation(crowd: Crowd) -> None:
    name = await join(crowd, Hoarder, "holding")
    await join(crowd, OurMember, "assigned")
    await crowd.until(lambda: crowd.log.of(name, "delivered"))
    found(crowd, rf"{name} received .*, which it does not own")


async def test_the_audit_finds_a_reader_of_another_members_partition(crowd: Crowd) -> None:
    honest = await join(crowd, OurMember, "assigned")
    name = await join(crowd, Claimant, "assigned")
    await crowd.settled()
    crowd.audit().check()
    crowd.order(name, "go")
    await crowd.until(lambda: len(crowd.log.of(name, "assigned")) == 2)
    found(crowd, rf"two members own a partition: .* of {honest}: .*; .* of {name}: ")
