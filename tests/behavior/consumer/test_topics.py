"""Subscriptions by name and by pattern to topics that appear, are deleted, or do not exist."""

import asyncio
import re
from typing import Any

import pytest
from world import World, simulate

from aiokclient import Consumer, State, TopicPartition
from aiokclient.errors import ConfigError, InvalidTopicError, TopicAuthorizationError
from aiokclient.protocol import ApiKey

SOON = {"metadata_max_age_ms": 500}
T0 = TopicPartition("t", 0)


def fill(world: World, count: int, topic: str = "t", partition: int = 0) -> None:
    start = world.cluster.offsets(topic, partition)[1]
    values = [b"%s:%d:%d" % (topic.encode(), partition, start + i) for i in range(count)]
    world.cluster.produce(topic, values, partition)


async def read(consumer: Consumer[Any, Any], count: int) -> dict[tuple[str, int], list[int]]:
    """Read exactly `count` records, and return their offsets by topic and partition."""
    found: dict[tuple[str, int], list[int]] = {}
    got = 0
    async with asyncio.timeout(60):
        while got < count:
            for record in await consumer.poll(timeout=5.0):
                tp = (record.topic, record.partition)
                assert record.value == b"%s:%d:%d" % (
                    record.topic.encode(),
                    record.partition,
                    record.offset,
                )
                found.setdefault(tp, []).append(record.offset)
                got += 1
    assert await consumer.poll(timeout=2.0) == []
    return found


class TestWhatAppears:
    @pytest.mark.parametrize("reset", ["latest", "earliest", "none", "by_duration:PT1S"])
    def test_a_new_partition_is_read_from_its_first_offset(self, reset: str) -> None:
        async def scenario(world: World) -> None:
            fill(world, 5)
            async with world.consumer("t", auto_offset_reset=reset, **SOON) as consumer:
                if reset == "none":
                    consumer.seek_to_end()
                await read(consumer, 5 if reset != "latest" and reset != "none" else 0)
                world.cluster.add_partitions("t", 3)
                fill(world, 7, "t", 1)
                fill(world, 4, "t", 2)
                assert await read(consumer, 11) == {
                    ("t", 1): list(range(7)),
                    ("t", 2): list(range(4)),
                }
                assert consumer.assignment() == {TopicPartition("t", i) for i in range(3)}

        simulate(scenario)

    @pytest.mark.parametrize("names", ["named", "pattern"])
    def test_a_new_topic_is_read_from_its_first_offset(self, names: str) -> None:
        async def scenario(world: World) -> None:
            fill(world, 5)
            topics: Any = ["t", "t-late"] if names == "named" else [re.compile("t.*")]
            async with world.consumer(*topics, auto_offset_reset="latest", **SOON) as consumer:
                world.cluster.create_topic("t-late", 2)
                fill(world, 6, "t-late", 1)
                fill(world, 2, "t")
                assert await read(consumer, 8) == {
                    ("t-late", 1): list(range(6)),
                    ("t", 0): [5, 6],
                }

        simulate(scenario)

    def test_new_partitions_reset_begins_by_auto_offset_reset_without_a_group(self) -> None:
        async def scenario(world: World) -> None:
            options = {"auto_offset_reset": "latest", "new_partitions": "reset", **SOON}
            async with world.consumer("t", **options) as consumer:
                world.cluster.add_partitions("t", 2)
                fill(world, 7, "t", 1)
                assert await read(consumer, 0) == {}
                fill(world, 1, "t", 1)
                assert await read(consumer, 1) == {("t", 1): [7]}

        simulate(scenario)

    def test_a_partition_known_at_the_subscription_is_not_new(self) -> None:
        """A partition is new only if the metadata did not contain it at the subscription."""

        async def scenario(world: World) -> None:
            async with world.consumer(auto_offset_reset="latest", **SOON) as consumer:
                world.cluster.create_topic("t-2")
                fill(world, 5, "t-2")
                consumer.subscribe(["t-2"])
                assert await read(consumer, 0) == {}
                fill(world, 1, "t-2")
                assert await read(consumer, 1) == {("t-2", 0): [5]}

        simulate(scenario)

    def test_an_assigned_partition_is_read_from_its_creation_on(self) -> None:
        """All records sent after the assignment are read, with `auto_offset_reset="latest"` too."""

        async def scenario(world: World) -> None:
            async with world.consumer(auto_offset_reset="latest", **SOON) as consumer:
                consumer.assign([TopicPartition("late", 0), TopicPartition("t", 1)])
                await asyncio.sleep(2)
                world.cluster.create_topic("late")
                fill(world, 3, "late")
                world.cluster.add_partitions("t", 2)
                fill(world, 4, "t", 1)
                assert await read(consumer, 7) == {
                    ("late", 0): [0, 1, 2],
                    ("t", 1): [0, 1, 2, 3],
                }

        simulate(scenario)

    def test_topics_created_one_by_one_are_read(self) -> None:
        async def scenario(world: World) -> None:
            options = {"auto_offset_reset": "latest", **SOON}
            async with world.consumer(re.compile("n-[0-9]+"), **options) as consumer:  # type: ignore[arg-type]
                for number in range(10):
                    world.cluster.create_topic(f"n-{number}", 3)
                    for partition in range(3):
                        fill(world, 2, f"n-{number}", partition)
                    await asyncio.sleep(0.3)
                world.cluster.create_topic("n-x")
                fill(world, 1, "n-x")
                found = await read(consumer, 60)
                assert len(found) == 30
                assert all(offsets == [0, 1] for offsets in found.values())

        simulate(scenario)


class TestPatterns:
    def test_a_pattern_must_match_the_whole_name(self) -> None:
        async def scenario(world: World) -> None:
            for topic in ("a", "ab", "xa", "__consumer_offsets"):
                world.cluster.create_topic(topic)
            for pattern, topics in (("a", ["a"]), ("a.*", ["a", "ab"]), (".*a", ["a", "xa"])):
                async with world.consumer(re.compile(pattern)) as consumer:  # type: ignore[arg-type]
                    assert {tp.topic for tp in consumer.assignment()} == set(topics)
            async with world.consumer(re.compile(".*")) as consumer:  # type: ignore[arg-type]
                assert {tp.topic for tp in consumer.assignment()} == {"a", "ab", "xa"}

        simulate(scenario, topics={})

    @pytest.mark.parametrize("topics", [(re.compile("a"), "b"), (re.compile("a"), re.compile("b"))])
    def test_subscribe_takes_one_pattern_or_names(self, topics: Any) -> None:
        with pytest.raises(ConfigError, match="pattern"):
            Consumer(*topics, bootstrap_servers="localhost:1")


class TestWhatGoes:
    def test_a_topic_recreated_with_other_partitions_is_read_from_its_first_offset(self) -> None:
        """A topic that was deleted and created again is read from its first offset."""

        async def scenario(world: World) -> None:
            fill(world, 50)
            async with world.consumer("t", auto_offset_reset="latest", **SOON) as consumer:
                fill(world, 5)
                assert await read(consumer, 5) == {("t", 0): list(range(50, 55))}
                for count in (70, 3):
                    world.cluster.delete_topic("t")
                    world.cluster.create_topic("t", 2)
                    fill(world, count)
                    fill(world, 2, "t", 1)
                    assert await read(consumer, count + 2) == {
                        ("t", 0): list(range(count)),
                        ("t", 1): [0, 1],
                    }

        simulate(scenario)

    def test_a_topic_that_was_deleted_for_a_while_is_read_again(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 5)
            async with world.consumer("t", "u", **SOON) as consumer:
                await read(consumer, 5)
                world.cluster.delete_topic("t")
                await asyncio.sleep(20)
                fill(world, 5, "u")
                assert await read(consumer, 5) == {("u", 0): list(range(5))}
                world.cluster.create_topic("t")
                fill(world, 3)
                assert await read(consumer, 3) == {("t", 0): list(range(3))}

        simulate(scenario, topics={"t": 1, "u": 1})

    def test_unsubscribing_in_a_loop_ends_the_delivery(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 20)
            async with world.consumer("t") as consumer:
                seen = []
                async for record in consumer:
                    seen.append(record.offset)
                    if record.offset == 4:
                        consumer.unsubscribe()
                        asyncio.get_running_loop().call_later(5, consumer.stop)
                assert seen == [0, 1, 2, 3, 4]

        simulate(scenario)


class TestWhatIsNotThere:
    @pytest.mark.parametrize(
        "tp", [TopicPartition("nope", 0), TopicPartition("t", 9)], ids=["topic", "partition"]
    )
    def test_a_partition_that_does_not_exist_is_reported(
        self, tp: TopicPartition, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def scenario(world: World) -> None:
            async with world.consumer() as consumer:
                assert consumer.state is State.RUNNING
                consumer.assign([tp, T0])
                fill(world, 3)
                assert await read(consumer, 3) == {("t", 0): [0, 1, 2]}
                await asyncio.sleep(10)
                assert any(str(tp) in reason for reason in consumer.health().reasons)
                assert not any(str(T0) in reason for reason in consumer.health().reasons)
                assert consumer.state is State.DEGRADED
                consumer.assign([T0])
                assert consumer.health().reasons == ()
                assert consumer.state is State.RUNNING

        simulate(scenario)
        assert sum(str(tp) in message for message in caplog.messages) == 1

    def test_a_missing_subscribed_topic_is_waited_for(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def scenario(world: World) -> None:
            async with world.consumer("nope", "t") as consumer:
                fill(world, 3)
                assert await read(consumer, 3) == {("t", 0): [0, 1, 2]}
                assert any("nope" in reason for reason in consumer.health().reasons)
                assert consumer.state is State.DEGRADED
                world.cluster.create_topic("nope")
                fill(world, 1, "nope")
                assert await read(consumer, 1) == {("nope", 0): [0]}
                assert consumer.health().reasons == ()

        simulate(scenario)
        assert sum("nope" in message for message in caplog.messages) == 1

    def test_partitions_without_a_leader_delay_no_others(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 3)
            async with world.consumer("t") as consumer:
                await read(consumer, 3)
                leader = world.cluster.leader("t")
                world.cluster.stop(leader)
                await asyncio.sleep(10)
                assert any("t-0" in reason for reason in consumer.health().reasons)
                with pytest.raises(ValueError, match="no leader"):
                    fill(world, 1)
                world.cluster.start(leader)
                fill(world, 3)
                assert await read(consumer, 3) == {("t", 0): [3, 4, 5]}
                assert consumer.health().reasons == ()

        simulate(scenario, brokers=2, replication=1)

    @pytest.mark.parametrize("name", ["", "a b", "ä", ".", "..", "x" * 250])
    def test_subscribe_refuses_names_that_no_topic_can_have(self, name: str) -> None:
        with pytest.raises(InvalidTopicError):
            Consumer(name, bootstrap_servers="localhost:1")
        consumer = Consumer(bootstrap_servers="localhost:1")
        with pytest.raises(InvalidTopicError):
            consumer.subscribe(["good", name])
        with pytest.raises(InvalidTopicError):
            consumer.assign([TopicPartition(name, 0)])
        assert consumer.assignment() == set()

    def test_fetches_of_a_topic_without_permission_raise_until_it_is_granted(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 3)
            async with world.consumer("t") as consumer:
                with world.cluster.fail(ApiKey.FETCH, TopicAuthorizationError):
                    for _ in range(2):
                        with pytest.raises(TopicAuthorizationError) as raised:
                            await consumer.poll(timeout=30)
                        assert raised.value.topic_partition == T0
                assert await read(consumer, 3) == {("t", 0): [0, 1, 2]}

        simulate(scenario)
