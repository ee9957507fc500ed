"""Groups of the KIP-848 protocol on a real Kafka.

Coordinators are killed and hang, members are fenced, and a topic that matches a pattern appears
late. No committed offset is beyond the processed records, no record is delivered after its
partition was revoked (promises F and G of `tests/faults.md`), and every record is read.
"""

import asyncio
import re
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from kafka_harness import KafkaCluster
from kip848_member import configure
from ownership import Member, Ownership

from aiokclient import Client, Consumer, Producer, TopicPartition
from aiokclient.cluster.targets import AnyBroker, Coordinator
from aiokclient.errors import UnsupportedVersionError
from aiokclient.protocol.messages import ConsumerGroupHeartbeatRequest, FindCoordinatorRequest

PARTITIONS = 6
PATIENCE_S = 90.0


class Group:
    """Consumers of a new group, and their recorded ownership. `written` counts all records."""

    def __init__(self, kafka: KafkaCluster) -> None:
        self.kafka = kafka
        self.id = f"g-{uuid.uuid4().hex[:8]}"
        self.ownership = Ownership(time.monotonic)
        self.consumers: list[Consumer[Any, Any]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.written = 0

    async def join(self, topics: Any) -> Member:
        member = self.ownership.member(f"m{len(self._tasks) + 1}")
        consumer: Consumer[Any, Any] = Consumer(
            topics,
            bootstrap_servers=self.kafka.bootstrap,
            group_id=self.id,
            group_protocol="consumer",
            auto_offset_reset="earliest",
            auto_commit_interval_ms=200,
            metadata_max_age_ms=1000,
            request_timeout_ms=3000,
            listener=member,
        )
        await consumer.start()
        self.consumers.append(consumer)
        self._tasks.append(asyncio.create_task(self._work(consumer, member)))
        return member

    async def _work(self, consumer: Consumer[Any, Any], member: Member) -> None:
        async for record in consumer:
            member.delivered(record)
            await asyncio.sleep(0.001)
            member.ended(record)

    async def write(self, topic: str, count: int = 60, partitions: int = PARTITIONS) -> None:
        async with Producer(bootstrap_servers=self.kafka.bootstrap) as producer:
            for number in range(count):
                producer.send(topic, b"%d" % number, partition=number % partitions)
        self.written += count

    async def read(self) -> None:
        """Wait until all records that were written have been read."""
        await self.ownership.until(lambda: self.ownership.count() >= self.written, PATIENCE_S)
        self.ownership.check()

    async def until(self, right: Any) -> None:
        await self.ownership.until(right, PATIENCE_S)

    async def end(self) -> None:
        for consumer, task in zip(self.consumers, self._tasks, strict=True):
            consumer.stop()
            await task
            await consumer.close()
        async with Consumer[Any, Any](
            bootstrap_servers=self.kafka.bootstrap, group_id=self.id
        ) as consumer:
            tps = [TopicPartition(*each) for each in self.ownership.processed]
            committed = await consumer.committed(tps)
        self.ownership.check_committed({tp: at for tp, at in committed.items() if at is not None})
        self.ownership.check()


@asynccontextmanager
async def group_on(kafka: KafkaCluster, **configs: int) -> AsyncIterator[Group]:
    group = Group(kafka)
    await configure(kafka.bootstrap, group.id, heartbeat_interval_ms=200, **configs)
    yield group
    await group.end()


async def coordinator(group: Group) -> int:
    """Return the broker that coordinates the group."""
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group.id])
    async with Client(bootstrap_servers=group.kafka.bootstrap) as client:
        answer = await client.request(request, to=AnyBroker())
    return int(answer.coordinators[0].node_id)


@pytest.mark.fault(5)
@pytest.mark.parametrize(("breaking", "mending"), [("kill", "start"), ("pause", "resume")])
async def test_kip848_members_continue_when_the_coordinator_dies_and_returns(
    kafka3: KafkaCluster, breaking: str, mending: str
) -> None:
    topic = await asyncio.to_thread(kafka3.create_topic, None, PARTITIONS, 3)
    async with group_on(kafka3) as group:
        members = [await group.join(topic) for _ in range(2)]
        await group.until(lambda: all(len(each.owned) == 3 for each in members))
        await group.write(topic)
        await group.read()
        node = await coordinator(group)
        await asyncio.to_thread(getattr(kafka3, breaking), node)
        members.append(await group.join(topic))
        await group.until(lambda: all(len(each.owned) == 2 for each in members))
        await group.write(topic)
        await group.read()
        await asyncio.to_thread(getattr(kafka3, mending), node)
        await group.write(topic)
        await group.read()


@pytest.mark.fault(43)
async def test_partitions_of_a_removed_member_are_lost_and_soon_read_again(
    kafka3: KafkaCluster,
) -> None:
    """A member loses its partitions if another client removes it from the group.

    The partitions are soon read again, by this member or another.
    """
    topic = await asyncio.to_thread(kafka3.create_topic, None, PARTITIONS, 3)
    async with group_on(kafka3) as group:
        members = [await group.join(topic) for _ in range(2)]
        await group.until(lambda: all(len(each.owned) == 3 for each in members))
        for consumer, member in zip(group.consumers, members, strict=True):
            # The member has no record in progress. Another member may own its partitions before
            # this one learns of its removal.
            request = ConsumerGroupHeartbeatRequest(
                group_id=group.id, member_id=consumer.group_metadata().member_id, member_epoch=-1
            )
            async with Client(bootstrap_servers=kafka3.bootstrap) as client:
                await client.request(request, to=Coordinator("group", group.id))
            await group.until(lambda member=member: "lost" in dict(member.told))
            await group.write(topic)
            await group.until(lambda: all(len(each.owned) == 3 for each in members))
            await group.read()


@pytest.mark.fault(43)
async def test_a_matching_topic_created_later_is_read(kafka3: KafkaCluster) -> None:
    prefix = f"late-{uuid.uuid4().hex[:6]}"
    await asyncio.to_thread(kafka3.create_topic, f"{prefix}-1", 2, 3)
    async with group_on(kafka3) as group:
        members = [await group.join(re.compile(f"{prefix}-.*")) for _ in range(2)]
        await group.until(lambda: all(each.owned for each in members))
        await group.write(f"{prefix}-1", partitions=2)
        await group.read()
        await asyncio.to_thread(kafka3.create_topic, f"{prefix}-2", 2, 3)
        await group.write(f"{prefix}-2", partitions=2)
        await group.read()
        assert all(len(each.owned) == 2 for each in members)


async def test_an_old_kafka_refuses_the_protocol_with_a_clear_error(
    kafka_old: KafkaCluster,
) -> None:
    """An old Kafka lists the heartbeat of KIP-848 in ApiVersions, and then refuses it."""
    topic = await asyncio.to_thread(kafka_old.create_topic)
    consumer: Consumer[Any, Any] = Consumer(
        topic, bootstrap_servers=kafka_old.bootstrap, group_id="g", group_protocol="consumer"
    )
    with pytest.raises(UnsupportedVersionError, match="group_protocol='classic'"):
        async with consumer:
            await consumer.poll(timeout=30.0)


@pytest.mark.fault(41)
@pytest.mark.parametrize("ours", [{0}, {1, 2}], ids=["one of ours", "two of ours"])
def test_librdkafka_and_this_library_share_a_kip848_group(
    kafka3: KafkaCluster, ours: set[int]
) -> None:
    peers = pytest.importorskip("kip848_peers")
    topic = kafka3.create_topic(None, PARTITIONS, 3)
    group = f"g-{uuid.uuid4().hex[:8]}"
    asyncio.run(configure(kafka3.bootstrap, group, heartbeat_interval_ms=200))
    with peers.closing([]) as readers:
        for number in range(3):
            kind = peers.Ours if number in ours else peers.Reader
            readers.append(kind(kafka3.bootstrap, topic, group=group))
            peers.drive(readers, lambda: peers.even(readers, PARTITIONS))
        values = [b"%d" % number for number in range(120)]
        asyncio.run(produce(kafka3, topic, values))
        peers.drive(readers, lambda: peers.have(readers, values))
        gone = readers.pop(0)
        gone.close()
        peers.drive(readers, lambda: peers.even(readers, PARTITIONS))
        more = [b"%d" % number for number in range(120, 240)]
        asyncio.run(produce(kafka3, topic, more))
        peers.drive(readers, lambda: peers.have(readers, more))
        assert len(gone.values) + sum(len(each.values) for each in readers) == 240


async def produce(kafka: KafkaCluster, topic: str, values: list[bytes]) -> None:
    async with Producer(bootstrap_servers=kafka.bootstrap) as producer:
        for number, value in enumerate(values):
            producer.send(topic, value, partition=number % PARTITIONS)
