"""Members of a group in a simulation, each with a listener that records its calls."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from world import World

from aiokclient import Consumer, TopicPartition
from aiokclient.consumer.assignors import decode_assignment
from aiokclient.protocol import ApiKey

QUICK = {
    "group_id": "g",
    "heartbeat_interval_ms": 500,
    "session_timeout_ms": 6000,
    "max_poll_interval_ms": 60_000,
}

# The coordinator determines the timeouts of these members.
KIP848: dict[str, Any] = {
    "group_protocol": "consumer",
    "session_timeout_ms": 45_000,
    "heartbeat_interval_ms": 3000,
}

PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {"partition_assignment_strategy": "range"},
    "cooperative": {"partition_assignment_strategy": "cooperative-sticky"},
    "kip848": KIP848,
}
"""The options of a member, by protocol."""

MARK = b"written when nothing changes any more"

every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


class Diary:
    """A listener that records its calls; `until` waits for a condition about them."""

    def __init__(self) -> None:
        self.pages: list[tuple[str, list[int]]] = []
        self.owned: set[TopicPartition] = set()
        self._written = asyncio.Event()

    def _write(self, what: str, tps: Sequence[TopicPartition]) -> None:
        self.pages.append((what, sorted(tp.partition for tp in tps)))
        self._written.set()

    def on_assigned(self, tps: Sequence[TopicPartition]) -> None:
        self.owned.update(tps)
        self._write("assigned", tps)

    def on_revoked(self, tps: Sequence[TopicPartition]) -> None:
        self.owned.difference_update(tps)
        self._write("revoked", tps)

    def on_lost(self, tps: Sequence[TopicPartition]) -> None:
        self.owned.difference_update(tps)
        self._write("lost", tps)

    async def until(self, right: Callable[[], object], timeout: float = 300.0) -> None:
        async with asyncio.timeout(timeout):
            while not right():
                self._written.clear()
                await self._written.wait()


async def until(right: Callable[[], object], timeout: float = 300.0) -> None:
    """Poll until a condition is true.

    Use this for a condition that depends on more than the calls of one listener.
    """
    for _ in range(int(timeout * 10)):
        if right():
            return
        await asyncio.sleep(0.1)
    raise TimeoutError


def fill(world: World, count: int, partitions: int = 1, topic: str = "t") -> None:
    """Write `count` records to each partition."""
    for partition in range(partitions):
        world.cluster.produce(topic, [b"%d" % i for i in range(count)], partition)


def member(
    world: World, diary: Diary | None = None, name: str = "client", **options: Any
) -> Consumer[Any, Any]:
    """Return a member of group "g" that reads topic "t", with short timeouts."""
    connector = world.network.connector(name)
    return world.consumer("t", **{**QUICK, "listener": diary, "connector": connector, **options})


def heartbeat_api(protocol: str) -> ApiKey:
    """Return the API of a heartbeat in this protocol."""
    return ApiKey.CONSUMER_GROUP_HEARTBEAT if protocol == "kip848" else ApiKey.HEARTBEAT


def join_api(protocol: str) -> ApiKey:
    """Return the API with which a member of this protocol joins."""
    return ApiKey.CONSUMER_GROUP_HEARTBEAT if protocol == "kip848" else ApiKey.JOIN_GROUP


@asynccontextmanager
async def reading(consumer: Consumer[Any, Any]) -> AsyncIterator[list[Any]]:
    """Read in the background within the block, and yield the list to which records are added."""
    records: list[Any] = []

    async def read() -> None:
        async for record in consumer:
            records.append(record)

    task = asyncio.create_task(read())
    try:
        yield records
    finally:
        task.cancel()
        await asyncio.wait([task])


def committed(world: World, partition: int = 0, topic: str = "t") -> int | None:
    """Return the offset that the group has committed, or None."""
    stored = world.cluster.committed("g").get(TopicPartition(topic, partition))
    return None if stored is None else stored.offset


def part(world: World, name: str) -> None:
    """Separate the member with this name from all brokers until the network heals."""
    world.network.part([name], [world.address(broker) for broker in world.cluster.brokers])


def owners(world: World, group: str = "g") -> dict[TopicPartition, list[str]]:
    """Return the member ids to which each partition is assigned, by the coordinator's view."""
    found: dict[TopicPartition, list[str]] = {}
    for member_id, view in world.cluster.groups[group].members.items():
        for tp in decode_assignment(view.assignment).partitions:
            found.setdefault(tp, []).append(member_id)
    return found


def misowned(world: World, consumers: Sequence[Consumer[Any, Any]], group: str = "g") -> list[str]:
    """Return the partitions of the members' subscriptions that are not owned once, as texts.

    Both views are compared: the coordinator's and the members'.
    """
    told = owners(world, group)
    found = []
    for topic, count in world.cluster.topics.items():
        reads = [each for each in consumers if topic in each.subscription()]
        for tp in (TopicPartition(topic, index) for index in range(count)):
            have = [each.group_metadata().member_id for each in consumers if is_owned(each, tp)]
            if len(have) != min(len(reads), 1) or have != told.get(tp, []):
                found.append(f"{tp}: owned by {have}, assigned to {told.get(tp, [])}")
            elif have and not any(have[0] == each.group_metadata().member_id for each in reads):
                found.append(f"{tp}: owned by {have}, which does not subscribe to it")
    return found


def is_owned(consumer: Consumer[Any, Any], tp: TopicPartition) -> bool:
    """Return whether a member owns a partition that the group has assigned to it."""
    return tp in consumer._subscription.subscribed()


async def check_owned_and_read(
    world: World,
    consumers: Sequence[Consumer[Any, Any]],
    *,
    group: str = "g",
    within_s: float = 60.0,
) -> None:
    """Check that the partitions of the members' subscriptions are owned once, and read.

    Call it when nothing changes any more and no other task reads. It writes a record into each of
    these partitions, and waits until the owner has read it. Partitions that members have assigned
    by hand must not be among them.
    """
    read: dict[tuple[str, int, Any], int] = {}

    async def poll(consumer: Consumer[Any, Any]) -> None:
        while True:
            for record in await consumer.poll(timeout=0.2):
                assert record.topic in consumer.subscription(), f"{record.topic} is delivered"
                key = record.topic, record.partition, record.value
                read[key] = read.get(key, 0) + 1

    async with asyncio.timeout(within_s + 60), asyncio.TaskGroup() as tasks:
        polls = [tasks.create_task(poll(each)) for each in consumers]
        try:
            await until(lambda: not misowned(world, consumers, group), within_s)
            for each in consumers:
                each.resume(each.assignment())
            named = {topic for each in consumers for topic in each.subscription()}
            parts = [(topic, n) for topic in named for n in range(world.cluster.topics[topic])]
            for topic, partition in parts:
                world.cluster.produce(topic, [MARK], partition)
            await until(lambda: all(read.get((*part, MARK)) for part in parts), within_s)
        except TimeoutError:
            unread = (
                [part for part in parts if not read.get((*part, MARK))]
                if not misowned(world, consumers, group)
                else []
            )
            states = [each.health() for each in consumers]
            raise AssertionError(
                f"not owned once: {misowned(world, consumers, group)}; not read: {unread}; {states}"
            ) from None
        finally:
            for task in polls:
                task.cancel()
