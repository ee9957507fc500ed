"""Consumer groups, which behave the same on the embedded cluster and on a real Kafka."""

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from aiokclient import Consumer, OffsetAndMetadata, Producer, ProducerRecord, TopicPartition
from aiokclient.errors import CommitFailedError

STRATEGIES = {"eager": "range", "cooperative": "cooperative-sticky"}


class Site:
    """A cluster with a topic of four partitions, and helpers for the tests."""

    def __init__(self, servers: Any, topic: str) -> None:
        self.servers, self.topic = servers, topic
        self.group = f"group-of-{topic}"

    @property
    def tps(self) -> list[TopicPartition]:
        return [TopicPartition(self.topic, index) for index in range(4)]

    def member(self, *topics: str, **options: Any) -> Consumer[Any, Any]:
        options = {
            "group_id": self.group,
            "auto_offset_reset": "earliest",
            "heartbeat_interval_ms": 100,
            "bootstrap_servers": str(self.servers.bootstrap),
            **options,
        }
        return Consumer(*(topics or (self.topic,)), **options)

    async def fill(self, count: int, partitions: Sequence[int] = range(4)) -> None:
        """Write `count` records to each partition.

        Their values are the numbers from 0 to `count - 1`.
        """
        async with Producer(bootstrap_servers=str(self.servers.bootstrap)) as producer:
            records = [
                ProducerRecord(self.topic, b"%d" % i, partition=partition)
                for partition in partitions
                for i in range(count)
            ]
            await producer.gather(producer.send_many(self.topic, records))


@pytest.fixture
async def site(cluster_servers: Any) -> Site:
    return Site(cluster_servers, await cluster_servers.new_topic(partitions=4))


class Diary:
    """A listener that records its calls, and wakes the task that waits for them."""

    def __init__(self) -> None:
        self.pages: list[tuple[str, list[TopicPartition]]] = []
        self.owned: set[TopicPartition] = set()
        self._written = asyncio.Event()

    def _write(self, what: str, tps: Sequence[TopicPartition]) -> None:
        self.pages.append((what, sorted(tps)))
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

    async def until(self, right: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not right():
                self._written.clear()
                await self._written.wait()


async def take(consumer: Consumer[Any, Any], count: int) -> list[Any]:
    records: list[Any] = []
    async with asyncio.timeout(60):
        while len(records) < count:
            records += await consumer.poll(max_records=count - len(records))
    return records


async def test_a_lone_member_reads_all_and_the_next_one_continues(site: Site) -> None:
    await site.fill(10)
    async with site.member() as consumer:
        records = await take(consumer, 25)
        await consumer.commit()
        again = await consumer.committed(site.tps)
        assert sum(stored.offset for stored in again.values() if stored) == 25
        metadata = consumer.group_metadata()
        assert metadata.group_id == site.group
        assert metadata.generation_id >= 1
        assert metadata.member_id
    async with site.member() as consumer:
        records += await take(consumer, 15)
    assert sorted((r.partition, r.offset) for r in records) == [
        (partition, offset) for partition in range(4) for offset in range(10)
    ]


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
async def test_two_members_share_the_partitions_and_one_takes_over(
    site: Site, strategy: str
) -> None:
    diaries = [Diary(), Diary()]
    options = {"partition_assignment_strategy": strategy}
    async with site.member(listener=diaries[0], **options) as first:
        await diaries[0].until(lambda: len(diaries[0].owned) == 4)
        async with site.member(listener=diaries[1], **options) as second:
            await diaries[1].until(lambda: len(diaries[1].owned) == 2)
            await diaries[0].until(lambda: len(diaries[0].owned) == 2)
            assert diaries[0].owned | diaries[1].owned == set(site.tps)
            assert first.assignment() == diaries[0].owned
            assert second.assignment() == diaries[1].owned
            await site.fill(5)
            found = await take(first, 10) + await take(second, 10)
            assert len({(r.partition, r.offset) for r in found}) == 20
            # The request for the next records marks the earlier ones as processed.
            assert await first.poll(timeout=0) == await second.poll(timeout=0) == []
        await diaries[0].until(lambda: len(diaries[0].owned) == 4)
        revoked = [tps for what, tps in diaries[0].pages if what == "revoked"]
        assert [len(tps) for tps in revoked] == ([4, 2] if strategy == "range" else [2])
        await first.commit()
        stored = await first.committed(site.tps)
        assert all(s is not None and s.offset == 5 for s in stored.values())
    assert not diaries[0].owned
    assert [what for what, _ in diaries[0].pages].count("lost") == 0


async def test_commit_takes_records_offsets_and_metadata(site: Site) -> None:
    await site.fill(10)
    async with site.member(enable_auto_commit=False) as consumer:
        records = await take(consumer, 40)
        zero, one, two, three = site.tps
        of_zero = [record for record in records if record.partition == 0]
        await consumer.commit(of_zero[3])
        assert (await consumer.committed([zero]))[zero] == OffsetAndMetadata(4, "", 0)
        await consumer.commit(of_zero[:7])
        await consumer.commit({one: 3, two: OffsetAndMetadata(4, "why", 0)})
        stored = await consumer.committed(site.tps)
        assert [s and (s.offset, s.metadata) for s in stored.values()] == [
            (7, ""),
            (3, ""),
            (4, "why"),
            None,
        ]
        await consumer.commit([three])
        assert (await consumer.committed([three, one]))[three] == OffsetAndMetadata(10, "", 0)
        await consumer.commit([site.topic])
        assert all(s and s.offset == 10 for s in (await consumer.committed(site.tps)).values())


async def test_a_commit_for_a_partition_of_another_member_is_refused(site: Site) -> None:
    await site.fill(5)
    diary = Diary()
    async with site.member(listener=diary) as first:
        records = await take(first, 20)
        async with site.member() as second:
            while len(first.assignment()) != 2 or len(second.assignment()) != 2:
                await first.poll(timeout=0.05)
                await second.poll(timeout=0.05)
            lost = next(r for r in records if r.partition not in {t.partition for t in diary.owned})
            with pytest.raises(CommitFailedError, match="no longer owns"):
                await first.commit(lost)


async def test_a_member_of_kip848_owns_a_topic_soon_after_a_pattern_for_internal_topics(
    site: Site,
) -> None:
    """The coordinator waits until the member has released them, though it has ignored them."""
    options = {"group_id": site.group, "group_protocol": "consumer"}
    servers = site.servers.bootstrap
    async with Consumer[Any, Any](bootstrap_servers=servers, **options) as consumer:
        await consumer.committed(site.tps)  # The topic of offsets exists.
        consumer.subscribe(re.compile("__consumer_.*"))
        async with asyncio.timeout(30):
            while consumer.group_metadata().generation_id < 1:
                await consumer.poll(timeout=0.1)
        await consumer.poll(timeout=6.0)
        consumer.subscribe([site.topic])
        async with asyncio.timeout(30):  # The rebalance timeout is five minutes.
            while consumer.assignment() != set(site.tps):
                await consumer.poll(timeout=0.1)
