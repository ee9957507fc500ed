"""Reading while brokers stop and start, while leaders move, and from the nearest replica."""

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from world import World, simulate

from aiokclient import TopicPartition
from aiokclient.errors import (
    CoordinatorNotAvailableError,
    FetchSessionIdNotFoundError,
    NotLeaderOrFollowerError,
    UnknownTopicIdError,
)
from aiokclient.protocol import ApiKey
from aiokclient.testing import EmbeddedCluster

T0 = TopicPartition("t", 0)


def numbers(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % i for i in range(start, start + count)]


class TestLeaders:
    async def test_records_are_read_in_order_while_leaders_move(
        self, stage: Any, right: Any
    ) -> None:
        stage.new_topic(3)
        seen: dict[int, list[int]] = {0: [], 1: [], 2: []}
        async with stage.consumer() as consumer:
            for turn in range(12):
                for partition in range(3):
                    stage.fill(20, partition, batch=7)
                stage.cluster.move_leader(stage.topic, turn % 3)
                records = await stage.drain(consumer, 60)
                right(records)
                for record in records:
                    seen[record.partition].append(record.offset)
        assert seen == {partition: list(range(240)) for partition in range(3)}

    async def test_records_are_read_in_order_while_brokers_stop_and_start(
        self, stage: Any, right: Any
    ) -> None:
        stage.new_topic(6)
        wanted = 0
        seen: list[Any] = []
        async with stage.consumer() as consumer:
            for broker in (1, 2, 3, 1):
                stage.cluster.stop(broker)
                for partition in range(6):
                    stage.fill(10, partition)
                wanted += 60
                seen += await stage.drain(consumer, wanted - len(seen))
                stage.cluster.start(broker)
        right(seen)
        assert len({(r.partition, r.offset) for r in seen}) == len(seen) == 240

    def test_reading_continues_when_the_only_replica_returns(self) -> None:
        async def scenario(world: World) -> None:
            world.cluster.produce("t", numbers(10))
            async with world.consumer("t") as consumer:
                leader = world.cluster.leader("t")
                seen = [r.value for r in await consumer.poll(max_records=5)]
                world.cluster.stop(leader)
                # Records that were fetched before the leader stopped are still delivered.
                seen += [r.value for r in await consumer.poll()]
                assert seen == numbers(10)
                await asyncio.sleep(60)
                world.cluster.start(leader)
                world.cluster.produce("t", numbers(10, 10))
                while len(seen) < 20:
                    seen += [r.value for r in await consumer.poll(timeout=5.0)]
                assert seen == numbers(20)

        simulate(scenario, brokers=2, replication=1)

    @pytest.mark.parametrize(
        "error",
        [
            NotLeaderOrFollowerError,
            FetchSessionIdNotFoundError,
            UnknownTopicIdError,
            CoordinatorNotAvailableError,
        ],
    )
    def test_reading_continues_after_refused_fetches(self, error: Any) -> None:
        async def scenario(world: World) -> None:
            world.cluster.produce("t", numbers(50))
            with world.cluster.fail(ApiKey.FETCH, error, times=5):
                async with world.consumer("t") as consumer:
                    seen: list[Any] = []
                    async with asyncio.timeout(60):
                        while len(seen) < 50:
                            seen += [r.value for r in await consumer.poll(timeout=10)]
                    assert seen == numbers(50)

        simulate(scenario)

    @pytest.mark.parametrize("when", ["before", "after"])
    def test_no_record_is_lost_when_connections_are_cut(self, when: Any) -> None:
        async def scenario(world: World) -> None:
            world.cluster.produce("t", numbers(50))
            with world.cluster.drop(ApiKey.FETCH, when=when, times=5):
                async with world.consumer("t") as consumer:
                    assert [r.value async for r in consumer.until_end()] == numbers(50)

        simulate(scenario)


@pytest.fixture(scope="module")
def racks_cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(3, racks=["a", "b", "c"]) as cluster:
        yield cluster


@pytest.fixture
def racks(racks_cluster: EmbeddedCluster) -> Iterator[EmbeddedCluster]:
    """A cluster with a topic "t" of three partitions.

    Their leaders are in three different racks.
    """
    racks_cluster.create_topic("t", 3)
    for partition in range(3):
        racks_cluster.produce("t", numbers(10), partition)
    yield racks_cluster
    racks_cluster.delete_topic("t")
    racks_cluster.reset()


class TestRacks:
    @pytest.mark.parametrize("rack", ["a", "b", "c"])
    async def test_a_consumer_with_a_rack_reads_the_replica_in_its_rack(
        self, stage: Any, racks: EmbeddedCluster, rack: str
    ) -> None:
        broker = "abc".index(rack) + 1
        options = {"bootstrap_servers": racks.bootstrap_servers, "client_rack": rack}
        async with stage.consumer("t", **options) as consumer:
            assert len(await stage.drain(consumer, 30)) == 30
            # Wait until the consumer fetches only from the broker in its own rack.
            await racks.until(lambda: fetched_from(racks)[-4:] == [broker] * 4)
            for partition in range(3):
                racks.produce("t", numbers(5), partition)
            assert len(await stage.drain(consumer, 15)) == 15

    async def test_a_consumer_without_a_rack_reads_the_leaders(
        self, stage: Any, racks: EmbeddedCluster
    ) -> None:
        async with stage.consumer("t", bootstrap_servers=racks.bootstrap_servers) as consumer:
            await stage.drain(consumer, 30)
            assert set(fetched_from(racks)) == {
                racks.leader("t", partition) for partition in range(3)
            }


def fetched_from(cluster: EmbeddedCluster) -> list[int]:
    return [request.broker for request in cluster.requests if request.api == ApiKey.FETCH]


class TestManyPartitions:
    async def test_a_thousand_partitions_are_read(self, stage: Any) -> None:
        stage.new_topic(1_000)
        for partition in range(1_000):
            stage.cluster.produce(stage.topic, [b"%d" % partition] * 2, partition)
        async with stage.consumer() as consumer:
            assert len(consumer.assignment()) == 1_000
            counts = dict.fromkeys(range(1_000), 0)
            async for record in consumer.until_end():
                assert record.value == b"%d" % record.partition
                assert record.offset == counts[record.partition]
                counts[record.partition] += 1
            assert set(counts.values()) == {2}
            assert set((await consumer.lag()).values()) == {0}
            stage.cluster.reset()
            for partition in range(0, 1_000, 100):
                stage.cluster.produce(stage.topic, [b"more"], partition)
            more = await stage.drain(consumer, 10)
            assert {r.partition for r in more} == set(range(0, 1_000, 100))
            named = [
                sum(len(topic.partitions) for topic in request.message.topics)
                for request in stage.cluster.requests
                if request.api == ApiKey.FETCH
            ]
            # Within a fetch session, a request names only the partitions that changed.
            assert sum(named) < 1_000

    async def test_all_partitions_are_read_when_responses_have_room_for_few(
        self, stage: Any
    ) -> None:
        """All partitions are read, even if a response has room for only a few of them."""
        stage.new_topic(50)
        for partition in range(50):
            stage.fill(20, partition, batch=5)
        options = {"fetch_max_bytes": 1_000, "max_partition_fetch_bytes": 300}
        async with stage.consumer(**options) as consumer:
            seen = [(r.partition, r.offset) async for r in consumer.until_end()]
        assert sorted(seen) == list(itertools.product(range(50), range(20)))


class TestMemory:
    def test_memory_is_bounded_when_no_records_are_requested(self) -> None:
        """The memory for fetched records that nobody reads is bounded by the fetch limits."""

        async def scenario(world: World) -> None:
            for partition in range(40):
                for _ in range(20):
                    world.cluster.produce("t", [bytes(10_000)] * 5, partition)
            sizes = {"fetch_max_bytes": 200_000, "max_partition_fetch_bytes": 60_000}
            async with world.consumer("t", **sizes) as consumer:
                await consumer.get()
                await asyncio.sleep(60)
                buffered = consumer.metrics()["consumer.buffer.bytes"]
                fetched = len(world.requests(ApiKey.FETCH))
                await asyncio.sleep(60)
                assert len(world.requests(ApiKey.FETCH)) == fetched
                assert 0 < buffered <= 3 * 2 * 260_000
                count = 1
                async for _ in consumer.until_end():
                    count += 1
                assert count == 40 * 20 * 5

        simulate(scenario, brokers=3, topics={"t": 40})
