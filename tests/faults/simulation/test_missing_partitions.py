"""Records for partitions that the producer's metadata lacks, or no longer has."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from world import World, simulate

from aiokclient import Admin, Producer, ProducerRecord
from aiokclient.errors import KafkaError, UnknownTopicOrPartitionError

BLOCK_S = 10.0


def sent(producer: Any, how: str, partition: int, value: bytes) -> Any:
    if how == "send":
        return producer.send("t", value, partition=partition)
    record = ProducerRecord("t", value, partition=partition)
    return producer.send_many("t", [record])[0]


@pytest.mark.parametrize("how", ["send", "send_many"])
def test_record_for_a_partition_that_was_just_created_is_written(how: str) -> None:
    async def scenario(world: World) -> None:
        async with world.client() as client, Producer(client=client) as producer:
            await producer.send("t", b"first", partition=0)
            async with Admin(client=client) as admin:
                await admin.create_partitions({"t": 4})
            began = world.now
            metadata = await sent(producer, how, 3, b"new")
            assert metadata.partition == 3
            assert world.now - began < 2
            assert await producer.send_all("t", [ProducerRecord("t", b"v", partition=3)] * 3) == 3
            assert not producer._require_engine().leaders.topics["t"].absent

    simulate(scenario, topics={"t": 3})


@pytest.mark.parametrize("how", ["send", "send_many"])
def test_record_for_a_partition_that_never_appears_fails_after_max_block_ms(how: str) -> None:
    async def scenario(world: World) -> None:
        options: dict[str, Any] = {"max_block_ms": BLOCK_S * 1000, "on_delivery_error": id}
        async with world.producer(**options) as producer:
            await producer.send("t", b"first", partition=0)
            began = world.now
            delivery = sent(producer, how, 7, b"missing")
            other = producer.send("t", b"other")
            await other
            assert world.now - began < 1
            with pytest.raises(UnknownTopicOrPartitionError, match="t-7") as raised:
                await delivery
            assert raised.value.topic_partition == ("t", 7)
            assert BLOCK_S - 0.1 <= world.now - began <= BLOCK_S + 1.5
            await asyncio.sleep(3)
            assert not producer._require_engine().leaders.topics["t"].absent
            with pytest.raises(UnknownTopicOrPartitionError):
                producer.send("t", b"v", partition=-1)
            with pytest.raises(UnknownTopicOrPartitionError):
                producer.send("t", b"v", partition=1 << 31)

    simulate(scenario, topics={"t": 3})


def test_record_for_a_partition_that_appears_later_is_written_in_order() -> None:
    async def scenario(world: World) -> None:
        async with world.producer() as producer:
            await producer.send("t", b"first", partition=0)
            deliveries = [producer.send("t", b"%d" % i, partition=3) for i in range(5)]
            await asyncio.sleep(5)
            world.cluster.add_partitions("t", 4)
            deliveries += [producer.send("t", b"%d" % i, partition=3) for i in range(5, 9)]
            results = await producer.gather(deliveries)
            assert [(each.partition, each.offset) for each in results] == [(3, i) for i in range(9)]

    simulate(scenario, topics={"t": 3})


def partitioner(key: bytes | None, partitions: Any, available: Any) -> int:
    return 0 if key is None else key[0] % len(partitions)


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("function", [None, partitioner])
@pytest.mark.parametrize("when", ["lingering", "backing off", "deleted"])
@pytest.mark.parametrize("seed", range(3))
def test_records_go_elsewhere_when_their_topic_is_recreated_without_their_partition(
    seed: int, when: str, function: Any, idempotent: bool
) -> None:
    """Only the partitions that the application chose itself are missing then."""

    async def scenario(world: World) -> None:
        rng = random.Random(seed)
        options: dict[str, Any] = {
            "linger_ms": 2000 if when == "lingering" else 0,
            "max_block_ms": BLOCK_S * 1000,
            "partitioner": function,
            "enable_idempotence": idempotent,
            "batch_size": 400,
            "metadata_max_age_ms": 1000,
            "on_delivery_error": id,
        }
        async with world.producer(**options) as producer:
            await producer.prepare("t")
            if when == "deleted":
                world.cluster.delete_topic("t")
                await asyncio.sleep(0.5)
            elif when == "backing off":
                world.cluster.pause(1)
            own: list[Any] = []
            chosen: list[Any] = []
            for number in range(200):
                value = b"%d" % number
                choice = rng.randrange(5)
                if choice == 0:
                    chosen.append(producer.send("t", value, partition=3))
                elif choice == 1:
                    items = [
                        ProducerRecord("t", value, b"k"),
                        ProducerRecord("t", value, None, 3),
                    ]
                    first, second = producer.send_many("t", items)
                    own.append(first)
                    chosen.append(second)
                else:
                    key = rng.choice([None, b"%d" % rng.randrange(9)])
                    own.append(producer.send("t", value, key=key))
            if when == "deleted":
                await asyncio.sleep(1)
            else:
                world.cluster.delete_topic("t")
            world.cluster.create_topic("t", 2)
            world.cluster.resume(1)
            outcomes = await producer.gather(own, return_exceptions=True)
            missing = [each for each in outcomes if isinstance(each, UnknownTopicOrPartitionError)]
            assert not missing
            if when != "backing off" or idempotent:
                assert not [each for each in outcomes if isinstance(each, KafkaError)]
            failed = await producer.gather(chosen, return_exceptions=True)
            assert {type(each) for each in failed} == {UnknownTopicOrPartitionError}
            values = [record.value for record in world.cluster.records("t")]
            assert len(values) == len(set(values))

    simulate(scenario, topics={"t": 4})


@pytest.mark.parametrize("partitions", [4, 5])
def test_records_of_the_application_s_choice_keep_their_order_among_others_that_move(
    partitions: int,
) -> None:
    async def scenario(world: World) -> None:
        async with world.producer(linger_ms=1000, batch_size=300) as producer:
            await producer.prepare("t")
            chosen = []
            for number in range(60):
                chosen.append(producer.send("t", b"%d" % number, partition=3))
                if number % 7 == 3:
                    producer.send_many("t", [(b"%d" % key, b"own") for key in range(20)])
            world.cluster.delete_topic("t")
            world.cluster.create_topic("t", 2)
            await asyncio.sleep(8)
            world.cluster.add_partitions("t", partitions)
            await producer.gather(chosen)
            values = [
                record.value
                for record in world.cluster.records("t")
                if record.partition == 3 and record.value != b"own"
            ]
            assert values == [b"%d" % number for number in range(60)]

    simulate(scenario, topics={"t": 4})
