"""Tests of members and consumers under KIP-848, on the embedded cluster and on a real Kafka."""

import asyncio
import re
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from kip848_member import Member, Owners, configure, until, until_assigned

from aiokclient import Consumer, Producer, TopicPartition
from aiokclient.consumer.membership.kip848.states import Kip848State
from aiokclient.errors import (
    FencedInstanceIdError,
    InvalidRegularExpressionError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
)

PARTITIONS = 12
HEARTBEAT_MS = 100
SHORT_MS = 1000
"""A session timeout that is short, but longer than the pauses of a busy machine."""
LONG_MS = 60_000
"""A session timeout that never ends in a test, so that a silent member stays in the group."""


class Group:
    """The members of a new group.

    It checks that no two members own the same partition.
    """

    def __init__(self, servers: Any, session_ms: int) -> None:
        self.servers, self.owners = servers, Owners()
        self.id = f"g-{uuid.uuid4().hex[:8]}"
        self.members: list[Member] = []
        self._session_ms = session_ms
        self._stack = AsyncExitStack()
        self._count = 0

    async def __aenter__(self) -> "Group":
        await configure(
            self.servers.bootstrap,
            self.id,
            session_timeout_ms=self._session_ms,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self.report()
        await self._stack.aclose()
        assert self.owners.breaches == []

    async def join(self, *topics: Any, **options: Any) -> Member:
        self._count += 1
        settings = {
            "bootstrap_servers": self.servers.bootstrap,
            "group_id": self.id,
            "metadata_max_age_ms": 500,
            **options,
        }
        member = Member(settings, self.owners, f"m{self._count}")
        await self._stack.enter_async_context(member)
        await member.subscribe(*topics)
        self.members.append(member)
        return member

    async def leave(self, member: Member) -> None:
        self.members.remove(member)
        await member.close()

    async def kill(self, member: Member) -> None:
        self.members.remove(member)
        await member.kill()

    async def even(self, count: int = PARTITIONS) -> None:
        await until_assigned(self.members, count)
        assert self.owners.breaches == []

    def report(self) -> None:
        for each in self.members:
            print(each.reading.name, "epoch", each.epoch, "has", each.has)  # noqa: T201
            for what, tps in each.reading.log:
                print("   ", what, [tp.partition for tp in tps])  # noqa: T201


@pytest.fixture
async def group(cluster_servers: Any) -> AsyncIterator[Group]:
    async with Group(cluster_servers, LONG_MS) as group:
        yield group


@pytest.mark.fault(41)
async def test_partitions_are_taken_over_when_members_are_killed(cluster_servers: Any) -> None:
    async with Group(cluster_servers, SHORT_MS) as group:
        topic = await cluster_servers.new_topic(PARTITIONS)
        for _ in range(4):
            await group.join(topic)
        await group.even()
        for _ in range(2):
            await group.kill(group.members[0])
            await group.even()


@pytest.mark.fault(41)
async def test_no_partition_has_two_owners_while_members_come_and_go(group: Group) -> None:
    """Up to eight members join, leave, and return as static members."""
    topic = await group.servers.new_topic(PARTITIONS)
    first = await group.join(topic)
    await group.even()
    for _ in range(3):
        await group.join(topic)
    await group.even()
    static = await group.join(topic, group_instance_id="i")
    for _ in range(3):
        await group.join(topic)
    await group.even()
    await group.leave(first)
    await group.leave(group.members[0])
    await group.even()
    had, logs = static.has, [list(each.reading.log) for each in group.members if each is not static]
    await group.leave(static)
    static = await group.join(topic, group_instance_id="i")
    await static.until(lambda: static.has == had)
    assert [each.reading.log for each in group.members if each is not static] == logs
    while len(group.members) > 1:
        await group.leave(group.members[0])
    await group.even()


@pytest.mark.fault(43)
async def test_a_matching_topic_created_later_is_assigned(group: Group) -> None:
    prefix = f"late-{uuid.uuid4().hex[:6]}"
    create = group.servers.kafka.create_topic
    await asyncio.to_thread(create, f"{prefix}-1", 2)
    pattern = re.compile(f"{prefix.upper()}-.", re.IGNORECASE)
    first, second = await group.join(pattern), await group.join(pattern)
    await group.even(2)
    await asyncio.to_thread(create, f"{prefix}-2", 2)
    await group.even(4)
    for each in (first, second):
        assert "lose" not in [what for what, _ in each.reading.log]


@pytest.mark.fault(43)
async def test_a_partition_that_is_not_released_is_not_assigned(group: Group) -> None:
    topic = await group.servers.new_topic(4)
    first = await group.join(topic)
    await group.even(4)
    first.reading.hold.clear()
    second = await group.join(topic)
    await first.reading.revoking.wait()
    await second.until(lambda: second.membership.member.state is Kip848State.STABLE)
    beats = second.changes
    await second.until(lambda: second.changes > beats + 3)
    assert second.has == []
    first.reading.hold.set()
    await group.even(4)


async def leave(member: Member) -> None:
    """Send the request that removes this member from its group, without the member's knowledge."""
    membership = member.membership
    request = membership._builder.build_last(membership.member.member_id)
    await membership._connection.send_heartbeat(request, 5.0)


@pytest.mark.fault(43)
async def test_a_removed_member_loses_its_partitions_and_joins_again(group: Group) -> None:
    """A member that another process removed loses its partitions and joins again."""
    topic = await group.servers.new_topic(4)
    first = await group.join(topic)
    await group.even(4)
    await leave(first)
    await first.until(lambda: [what for what, _ in first.reading.log][-2:] == ["lose", "assign"])
    await group.even(4)


@pytest.mark.parametrize("assignor", ["uniform", "range"])
async def test_assignors_of_the_brokers_can_be_selected(group: Group, assignor: str) -> None:
    topics = [await group.servers.new_topic(3) for _ in range(2)]
    for _ in range(2):
        await group.join(*topics, group_remote_assignor=assignor)
    await until(
        lambda: (
            sorted(len(each.has) for each in group.members)
            == ([2, 4] if assignor == "range" else [3, 3])
        ),
        group.members,
    )


@pytest.mark.fault(44)
async def test_errors_that_only_the_application_can_resolve_are_raised(group: Group) -> None:
    topic = await group.servers.new_topic(2)
    await group.join(topic, group_instance_id="i")
    await group.even(2)
    for topics, options, error in (
        ((topic,), {"group_instance_id": "i"}, UnreleasedInstanceIdError),
        ((topic,), {"group_remote_assignor": "mine"}, UnsupportedAssignorError),
        ((re.compile("(?=a)b"),), {}, InvalidRegularExpressionError),
    ):
        member = await group.join(*topics, **options)
        await member.until(lambda member=member: member.failure is not None)
        assert isinstance(member.failure, error)
        group.members.remove(member)
    await group.even(2)


async def test_an_instance_that_another_took_over(group: Group) -> None:
    """The second member uses the instance id while the first one is not in the group."""
    topic = await group.servers.new_topic(2)
    first = await group.join(topic, group_instance_id="i")
    await group.even(2)
    await leave(first)
    second = Member(
        {"bootstrap_servers": group.servers.bootstrap, "group_id": group.id}, Owners(), "second",
        group_instance_id="i",
    )  # fmt: skip
    async with second:
        await second.subscribe(topic)
        await until(lambda: first.failure is not None or second.failure is not None, [second])
        # The member that joins again first keeps the instance id.
        errors = [each.failure for each in (first, second) if each.failure is not None]
        assert isinstance(errors[0], FencedInstanceIdError | UnreleasedInstanceIdError)


def values(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


class Reader:
    """A consumer that records the values which it has processed."""

    def __init__(self, consumer: Consumer[Any, Any], seen: list[bytes]) -> None:
        self.consumer, self.seen = consumer, seen
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for record in self.consumer:
            self.seen.append(record.value)

    async def stop(self) -> None:
        self.consumer.stop()
        await self.task
        await self.consumer.close()


@pytest.fixture
async def read(cluster_servers: Any) -> AsyncIterator[Callable[..., Any]]:
    """A function that starts a reader of a group.

    Its arguments are the topic and the list to which the reader appends what it reads.

    All readers are stopped at the end of the test.
    """
    readers: list[Reader] = []
    group_id = f"g-{uuid.uuid4().hex[:8]}"
    await configure(cluster_servers.bootstrap, group_id, heartbeat_interval_ms=HEARTBEAT_MS)

    async def make(topic: Any, seen: list[bytes], **options: Any) -> Reader:
        settings: dict[str, Any] = {
            "bootstrap_servers": cluster_servers.bootstrap,
            "group_id": group_id,
            "group_protocol": "consumer",
            "auto_offset_reset": "earliest",
            **options,
        }
        consumer: Consumer[Any, Any] = Consumer(topic, **settings)
        await consumer.start()
        readers.append(Reader(consumer, seen))
        return readers[-1]

    yield make
    for each in readers:
        await each.stop()


async def eventually(check: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not check():  # noqa: ASYNC110  # No event signals this condition.
            await asyncio.sleep(0.02)


async def written(servers: Any, topic: str, numbers: list[bytes], partitions: int) -> None:
    async with Producer(bootstrap_servers=servers.bootstrap) as producer:
        for number in numbers:
            producer.send(topic, number, partition=int(number) % partitions)


async def test_consumers_read_everything_and_go_on_where_others_were(
    cluster_servers: Any, read: Any
) -> None:
    topic, seen = await cluster_servers.new_topic(4), []
    numbers = values(400)
    await written(cluster_servers, topic, numbers[:200], 4)
    first = await read(topic, seen)
    await eventually(lambda: len(seen) >= 200)
    second = await read(topic, seen)
    await eventually(lambda: len(second.consumer.assignment()) == 2)
    await written(cluster_servers, topic, numbers[200:300], 4)
    await eventually(lambda: len(set(seen)) == 300)
    await first.stop()
    await eventually(lambda: len(second.consumer.assignment()) == 4)
    await written(cluster_servers, topic, numbers[300:], 4)
    await eventually(lambda: len(set(seen)) == 400)
    assert sorted(seen, key=int) == numbers
    committed = await second.consumer.committed([TopicPartition(topic, 0)])
    assert committed[TopicPartition(topic, 0)].offset <= 100


async def test_a_live_group_goes_over_to_the_new_protocol_and_back(
    cluster_servers: Any, read: Any
) -> None:
    """The members are replaced one by one. No record is missed or read twice."""
    topic, seen = await cluster_servers.new_topic(4), []
    numbers = iter(values(500))
    expected: list[bytes] = []

    async def more() -> None:
        new = [next(numbers) for _ in range(40)]
        expected.extend(new)
        await written(cluster_servers, topic, new, 4)
        await eventually(lambda: len(set(seen)) == len(expected))

    async def join(protocol: str) -> Reader:
        classic = {
            "partition_assignment_strategy": ["cooperative-sticky"],
            "heartbeat_interval_ms": HEARTBEAT_MS,
        }
        reader: Reader = await read(
            topic, seen, group_protocol=protocol, **(classic if protocol == "classic" else {})
        )
        await eventually(lambda: bool(reader.consumer.assignment()))
        return reader

    members = [await join("classic"), await join("classic")]
    await more()
    for protocol in ("consumer", "consumer", "classic", "classic"):
        members.append(await join(protocol))
        await more()
        await members.pop(0).stop()
        await more()
    assert sorted(seen, key=int) == expected
