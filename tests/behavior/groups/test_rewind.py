"""`rewind_group` in a running group, on the embedded cluster and on a real Kafka."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from aiokclient import Admin, Consumer, Producer, ProducerRecord, TopicPartition
from aiokclient.errors import ApiTimeoutError, IllegalStateError

STRATEGIES = {"eager": "range", "cooperative": "cooperative-sticky"}


class Site:
    """A topic of three partitions with ten records each, and members that count what they read."""

    def __init__(self, servers: Any, topic: str) -> None:
        self.bootstrap, self.topic = str(servers.bootstrap), topic
        self.seen: Counter[tuple[int, int]] = Counter()
        self.changed = asyncio.Event()

    def on_assigned(self, partitions: list[TopicPartition]) -> None:
        self.changed.set()

    on_revoked = on_lost = on_assigned

    def member(self, **options: Any) -> Consumer[Any, Any]:
        return Consumer(
            self.topic,
            listener=self,
            group_id=f"group-of-{self.topic}",
            bootstrap_servers=self.bootstrap,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=100,
            auto_commit_interval_ms=50,
            **options,
        )

    async def fill(self) -> None:
        async with Producer(bootstrap_servers=self.bootstrap) as producer:
            records = [ProducerRecord(self.topic, b"", partition=i % 3) for i in range(30)]
            await producer.gather(producer.send_many(self.topic, records))

    async def read(self, consumer: Consumer[Any, Any]) -> None:
        async for record in consumer:
            self.seen[record.partition, record.offset] += 1
            self.changed.set()

    async def until(self, times: dict[int, int]) -> None:
        """Wait until records 0 to 9 of each given partition were read the given number of times."""
        await self.so_that(
            lambda: all(self.seen[p, o] >= n for p, n in times.items() for o in range(10))
        )

    async def so_that(self, right: Callable[[], bool]) -> None:
        """Wait until a condition is true.

        It is checked after each record and each change of the assignment.
        """
        async with asyncio.timeout(60):
            while not right():
                self.changed.clear()
                await self.changed.wait()

    async def committed(self, consumer: Consumer[Any, Any], offset: int) -> None:
        """Wait until the group has committed the offset for each partition."""
        async with asyncio.timeout(60):
            while True:
                stored = await consumer.committed([self.tp(p) for p in range(3)])
                if [s and s.offset for s in stored.values()] == [offset] * 3:
                    return
                await asyncio.sleep(0.05)  # The group's committed offsets can only be polled.

    def tp(self, partition: int) -> TopicPartition:
        return TopicPartition(self.topic, partition)


@pytest.fixture
async def site(cluster_servers: Any) -> Site:
    site = Site(cluster_servers, await cluster_servers.new_topic(partitions=3))
    await site.fill()
    return site


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
async def test_rewind_group_moves_all_owners_back_once(site: Site, strategy: str) -> None:
    consumers = [site.member(partition_assignment_strategy=strategy) for _ in range(2)]
    async with consumers[0], consumers[1], asyncio.TaskGroup() as tasks:
        for consumer in consumers:
            tasks.create_task(site.read(consumer))
        await site.until({0: 1, 1: 1, 2: 1})
        await consumers[0].commit()
        await consumers[1].commit()
        await consumers[0].rewind_group({site.tp(0): 0, site.tp(1): 5, site.tp(2): 0})
        await site.until({0: 2, 2: 2})
        await site.so_that(lambda: all(site.seen[1, o] == 2 for o in range(5, 10)))
        # A rebalance that follows does not repeat the rewind.
        third = site.member(partition_assignment_strategy=strategy)
        async with third:
            tasks.create_task(site.read(third))
            members = (*consumers, third)
            await site.so_that(lambda: all(len(c.assignment()) == 1 for c in members))
            await site.committed(third, 10)
        for consumer in consumers:
            consumer.stop()
    again = {o: site.seen[1, o] for o in range(10)}
    assert again == {o: 1 if o < 5 else 2 for o in range(10)}
    assert all(site.seen[p, o] == 2 for p in (0, 2) for o in range(10))


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
async def test_rewind_group_returns_where_each_partition_continues(
    site: Site, strategy: str
) -> None:
    """An offset outside the log is replaced by the log start offset or the end offset.

    The nearer one is used, and the group continues there.
    """
    async with Admin(bootstrap_servers=site.bootstrap) as admin:
        (await admin.delete_records({site.tp(1): 4})).raise_for_errors()
    consumers = [site.member(partition_assignment_strategy=strategy) for _ in range(2)]
    async with consumers[0], consumers[1], asyncio.TaskGroup() as tasks:
        for consumer in consumers:
            tasks.create_task(site.read(consumer))
        await site.so_that(lambda: sum(site.seen.values()) == 26)
        await site.committed(consumers[0], 10)
        actual = await consumers[0].rewind_group(
            {site.tp(0): 999, site.tp(1): 1, site.tp(2): 7}, timeout=30
        )
        assert actual == {site.tp(0): 10, site.tp(1): 4, site.tp(2): 7}
        await site.so_that(lambda: sum(site.seen.values()) == 26 + 6 + 3)
        # The next record of the partition whose offset was too high is read, too.
        async with Producer(bootstrap_servers=site.bootstrap) as producer:
            await producer.send(site.topic, b"", partition=0)
        await site.so_that(lambda: site.seen[0, 10] == 1)
        for consumer in consumers:
            consumer.stop()
    again = {p: [site.seen[p, o] for o in range(10)] for p in range(3)}
    assert again == {0: [1] * 10, 1: [0] * 4 + [2] * 6, 2: [1] * 7 + [2] * 3}


async def test_rewind_group_refuses_groups_with_other_libraries(site: Site) -> None:
    from confluent_kafka import Consumer as Foreign

    foreign = Foreign(
        {
            "bootstrap.servers": site.bootstrap,
            "group.id": f"group-of-{site.topic}",
            "client.id": "stranger",
            "heartbeat.interval.ms": 100,
        }
    )
    foreign.subscribe([site.topic])
    loop = asyncio.get_running_loop()
    async with site.member(partition_assignment_strategy="range") as consumer:
        async with asyncio.timeout(60):
            # The foreign consumer takes part in rebalances only while it is polled.
            while not (foreign.assignment() and consumer.assignment()):
                await loop.run_in_executor(None, foreign.poll, 0.1)
                await consumer.poll(timeout=0)
        with pytest.raises(IllegalStateError, match=r"client .stranger.* uses another library"):
            await consumer.rewind_group({site.tp(0): 0}, timeout=30)
        await loop.run_in_executor(None, foreign.close)


async def test_rewind_group_names_partitions_without_an_owner(site: Site) -> None:
    async with site.member() as consumer:
        await site.so_that(lambda: len(consumer.assignment()) == 3)
        with pytest.raises(ApiTimeoutError, match=rf"not rewound within .*: {site.topic}-7"):
            await consumer.rewind_group({site.tp(0): 0, site.tp(7): 0}, timeout=5.0)
