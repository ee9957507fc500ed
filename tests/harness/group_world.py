"""Members of a group in a simulation, each with a listener that records its calls."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from world import World

from aiokclient import Consumer, TopicPartition
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
