"""Positions: assigning, seeking, pausing, and looking up offsets."""

import asyncio
import math
from typing import Any

import pytest
from world import World, simulate

from aiokclient import Consumer, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from aiokclient.errors import (
    ApiTimeoutError,
    ConfigError,
    IllegalStateError,
    KafkaError,
    NoOffsetError,
    UnknownTopicOrPartitionError,
    UsageError,
)

T0 = TopicPartition("t", 0)


class TestAssign:
    async def test_assign_replaces_the_earlier_partitions(self, stage: Any) -> None:
        stage.new_topic(3)
        for partition in range(3):
            stage.fill(10, partition)
        async with stage.consumer(stage.tp(0), stage.tp(1)) as consumer:
            assert consumer.assignment() == {stage.tp(0), stage.tp(1)}
            await stage.drain(consumer, 20)
            consumer.assign([stage.tp(1), stage.tp(2)])
            assert consumer.assignment() == {stage.tp(1), stage.tp(2)}
            assert {r.partition for r in await stage.drain(consumer, 10)} == {2}
            stage.fill(5, 1)
            assert [r.offset for r in await stage.drain(consumer, 5)] == list(range(10, 15))
            consumer.assign([])
            assert consumer.assignment() == set()
            assert consumer.consumed() == {}

    async def test_assignment_returns_a_copy(self, stage: Any) -> None:
        async with stage.consumer(stage.tp()) as consumer:
            consumer.assignment().clear()
            consumer.paused().add(stage.tp())
            consumer.consumed().clear()
            assert consumer.assignment() == {stage.tp()}
            assert consumer.paused() == set()
            assert set(consumer.consumed()) == {stage.tp()}

    async def test_assign_works_beside_a_subscription(self, stage: Any) -> None:
        other = stage.new_topic(2)
        stage.fill(3, 1)
        by_hand = stage.tp(1)
        whole = stage.new_topic(2)
        stage.fill(3, 0)
        async with stage.consumer(whole) as consumer:
            consumer.assign([by_hand])
            assert consumer.assignment() == {stage.tp(0), stage.tp(1), by_hand}
            records = await stage.drain(consumer, 6)
            assert sorted({r.topic for r in records}) == sorted([other, whole])
            consumer.subscribe([other])
            await stage.cluster.until(
                lambda: consumer.assignment() == {by_hand, TopicPartition(other, 0)}
            )
            consumer.unsubscribe()
            assert consumer.assignment() == set()

    async def test_assign_drops_fetched_records_of_unassigned_partitions(self, stage: Any) -> None:
        """Records that were fetched for a partition are not delivered once it is unassigned."""
        stage.new_topic(2)
        stage.fill(50, 0)
        async with stage.consumer(stage.tp(0)) as consumer:
            seen = []
            async for record in consumer:
                seen.append(record.offset)
                if record.offset == 4:
                    consumer.assign([stage.tp(1)])
                    stage.fill(1, 1)
                if record.partition == 1:
                    break
            assert seen == [0, 1, 2, 3, 4, 0]

    def test_synchronous_calls_work_before_the_start(self) -> None:
        consumer = Consumer(bootstrap_servers="localhost:1")
        consumer.assign([T0])
        consumer.seek(T0, 5)
        consumer.pause([T0])
        consumer.resume([T0])
        consumer.seek_to_beginning([T0])
        consumer.seek_to_end([T0])
        assert consumer.assignment() == {T0}
        assert consumer.paused() == set()
        assert consumer.consumed() == {}
        consumer.subscribe(["t"])
        consumer.unsubscribe()
        assert consumer.assignment() == set()

    async def test_calls_take_one_collection(self, stage: Any) -> None:
        async with stage.consumer(stage.tp()) as consumer:
            for tps in ([stage.tp()], (stage.tp(),), {stage.tp()}, {stage.tp(): 1}.keys()):
                consumer.pause(tps)
                assert consumer.paused() == {stage.tp()}
                consumer.resume(iter(tps))
                consumer.seek_to_beginning(tps)
                consumer.seek_to_end(tps)
                consumer.assign(tps)
                assert await consumer.end_offsets(tps) == {stage.tp(): 0}
                assert await consumer.beginning_offsets(iter(tps)) == {stage.tp(): 0}


class TestSeek:
    async def test_seek_takes_an_offset_a_record_or_metadata(self, stage: Any) -> None:
        stage.fill(30)
        async with stage.consumer(stage.tp()) as consumer:
            assert consumer.seek(stage.tp(), 10) is None
            record = await consumer.get(timeout=20)
            assert record.offset == 10
            consumer.seek(record)
            assert (await consumer.get(timeout=20)).offset == 10
            consumer.seek(stage.tp(), OffsetAndMetadata(20, "note"))
            assert (await consumer.get(timeout=20)).offset == 20
            consumer.seek_to_beginning([stage.tp()])
            assert (await consumer.get(timeout=20)).offset == 0
            consumer.seek_to_end([stage.tp()])
            assert await consumer.position(stage.tp()) == 30
            stage.fill(1)
            assert (await consumer.get(timeout=20)).offset == 30

    async def test_the_last_seek_counts(self, stage: Any) -> None:
        stage.fill(30)
        async with stage.consumer(stage.tp()) as consumer:
            consumer.seek_to_end([stage.tp()])
            consumer.seek(stage.tp(), 3)
            consumer.seek_to_beginning([stage.tp()])
            consumer.seek(stage.tp(), 7)
            assert await consumer.position(stage.tp()) == 7
            assert (await consumer.get(timeout=20)).offset == 7

    async def test_seek_refuses_invalid_positions(self, stage: Any) -> None:
        async with stage.consumer(stage.tp()) as consumer:
            other = TopicPartition("elsewhere", 0)
            for call in (
                lambda: consumer.seek(other, 0),
                lambda: consumer.seek(stage.tp(), -5),
                lambda: consumer.pause([other]),
                lambda: consumer.resume([other]),
                lambda: consumer.seek_to_end([other]),
                lambda: consumer.seek_to_beginning([other]),
            ):
                with pytest.raises(UsageError):
                    call()
            with pytest.raises(UsageError):
                await consumer.position(other)


class TestPause:
    async def test_pause_delivers_nothing_of_the_partition(self, stage: Any) -> None:
        stage.new_topic(2)
        stage.fill(100)
        stage.fill(100, 1)
        async with stage.consumer() as consumer:
            seen = []
            async for record in consumer:
                seen.append((record.partition, record.offset))
                if len(seen) == 10:
                    consumer.pause([stage.tp(record.partition)])
                    paused = record.partition
                elif len(seen) > 10:
                    assert record.partition != paused
                if len(seen) == 110:
                    break
            assert await consumer.poll(timeout=0.05) == []
            consumer.resume(consumer.paused())
            assert [r.offset for r in await stage.drain(consumer, 90)] == list(range(10, 100))

    async def test_a_seek_while_paused_applies_after_resume(self, stage: Any) -> None:
        stage.fill(20)
        async with stage.consumer() as consumer:
            await stage.drain(consumer, 10)
            consumer.pause([stage.tp()])
            consumer.seek(stage.tp(), 15)
            assert await consumer.position(stage.tp()) == 15
            assert await consumer.poll(timeout=0.05) == []
            consumer.resume([stage.tp()])
            assert (await consumer.get(timeout=20)).offset == 15


class TestResets:
    @pytest.mark.parametrize(("reset", "first"), [("earliest", 0), ("latest", 10)])
    async def test_auto_offset_reset_determines_the_first_record(
        self, stage: Any, reset: str, first: int
    ) -> None:
        stage.fill(10)
        async with stage.consumer(auto_offset_reset=reset) as consumer:
            assert await consumer.position(stage.tp()) == first
            stage.fill(1)
            assert (await consumer.get(timeout=20)).offset == first

    async def test_auto_offset_reset_is_latest_by_default(self, stage: Any) -> None:
        stage.fill(10)
        async with Consumer(
            stage.topic, bootstrap_servers=stage.cluster.bootstrap_servers
        ) as consumer:
            stage.fill(1)
            assert (await consumer.get(timeout=20)).offset == 10

    async def test_auto_offset_reset_none_raises_no_offset_error(self, stage: Any) -> None:
        stage.fill(10)
        async with stage.consumer(auto_offset_reset="none") as consumer:
            for _ in range(3):
                with pytest.raises(NoOffsetError) as raised:
                    await consumer.poll(timeout=20)
                assert raised.value.topic_partition == stage.tp()
            with pytest.raises(NoOffsetError):
                async for _ in consumer:
                    pass
            consumer.seek(stage.tp(), 4)
            assert (await consumer.get(timeout=20)).offset == 4
            consumer.seek_to_beginning([stage.tp()])
            assert (await consumer.get(timeout=20)).offset == 0

    async def test_by_duration_begins_at_the_end_without_a_young_record(self, stage: Any) -> None:
        stage.cluster.produce(stage.topic, [b"v"] * 3, timestamp=1_000)
        async with stage.consumer(auto_offset_reset="by_duration:PT1H") as consumer:
            assert await consumer.position(stage.tp()) == 3

    @pytest.mark.parametrize("value", ["sometimes", "by_duration:1h", "by_duration:"])
    def test_auto_offset_reset_refuses_other_values(self, value: str) -> None:
        with pytest.raises(ConfigError, match="auto_offset_reset") as raised:
            Consumer("t", bootstrap_servers="localhost:1", auto_offset_reset=value)
        assert isinstance(raised.value, ValueError)


class TestQuestions:
    async def test_lookups_work_for_partitions_that_are_not_assigned(self, stage: Any) -> None:
        stage.new_topic(2)
        stage.fill(10)
        stage.cluster.delete_records(stage.topic, before=4)
        tps = [stage.tp(0), stage.tp(1)]
        async with stage.consumer() as consumer:
            consumer.unsubscribe()
            assert await consumer.beginning_offsets(tps) == {tps[0]: 4, tps[1]: 0}
            assert await consumer.end_offsets(tps, timeout=math.inf) == {tps[0]: 10, tps[1]: 0}
            assert await consumer.end_offsets([]) == {}
            assert await consumer.offsets_for_times({}) == {}
            assert consumer.assignment() == set()

    async def test_offsets_for_times_returns_the_first_record_at_or_after_a_time(
        self, stage: Any
    ) -> None:
        for time in (1_000, 2_000, 3_000):
            stage.cluster.produce(stage.topic, [b"v", b"v"], timestamp=time)
        async with stage.consumer() as consumer:
            for time, offset, found in ((0, 0, 1_000), (1_001, 2, 2_000), (3_000, 4, 3_000)):
                (answer,) = (await consumer.offsets_for_times({stage.tp(): time})).values()
                assert isinstance(answer, OffsetAndTimestamp)
                assert (answer.offset, answer.timestamp) == (offset, found)
            assert await consumer.offsets_for_times({stage.tp(): 3_001}) == {stage.tp(): None}

    async def test_lag_is_the_distance_to_the_end(self, stage: Any) -> None:
        stage.new_topic(2)
        stage.fill(10)
        stage.fill(5, 1, producer_id=1, transactional=True)
        async with stage.consumer() as consumer:
            assert await consumer.lag() == {stage.tp(0): 10, stage.tp(1): 5}
            async for record in consumer:
                if (record.partition, record.offset) == (0, 3):
                    assert (await consumer.lag())[stage.tp(0)] == 6
                    break
        async with stage.consumer(isolation_level="read_committed") as consumer:
            assert await consumer.lag() == {stage.tp(0): 10, stage.tp(1): 0}

    async def test_partitions_and_topics_of_the_cluster_are_returned(self, stage: Any) -> None:
        stage.new_topic(3)
        async with stage.consumer() as consumer:
            partitions = await consumer.partitions_for(stage.topic)
            assert [each.index for each in partitions] == [0, 1, 2]
            assert [each.leader for each in partitions] == [
                stage.cluster.leader(stage.topic, i) for i in range(3)
            ]
            topics = await consumer.list_topics(timeout=math.inf)
            assert stage.topic in topics
            with pytest.raises(UnknownTopicOrPartitionError):
                await consumer.partitions_for("nowhere")
            assert "nowhere" not in stage.cluster.topics

    async def test_position_is_the_offset_of_the_next_record(self, stage: Any) -> None:
        stage.fill(10)
        async with stage.consumer() as consumer:
            for offset in range(10):
                assert await consumer.position(stage.tp()) == offset
                assert (await consumer.get(timeout=20)).offset == offset

    @pytest.mark.parametrize(
        "call",
        [
            lambda consumer, tp: consumer.position(tp, timeout=3),
            lambda consumer, tp: consumer.end_offsets([tp], timeout=3),
            lambda consumer, tp: consumer.beginning_offsets([tp], timeout=3),
            lambda consumer, tp: consumer.offsets_for_times({tp: 0}, timeout=3),
            lambda consumer, tp: consumer.lag([tp], timeout=3),
        ],
    )
    @pytest.mark.parametrize("why", ["no leader", "no such partition", "no such topic"])
    def test_lookups_end_by_their_timeout(self, call: Any, why: str) -> None:
        async def scenario(world: World) -> None:
            tp = {"no such partition": TopicPartition("t", 9), "no such topic": ("x", 0)}.get(
                why, T0
            )
            tp = TopicPartition(*tp)
            async with world.consumer() as consumer:
                if why == "no leader":
                    world.cluster.stop(world.cluster.leader("t"))
                consumer.assign([tp])
                began = world.now
                with pytest.raises(KafkaError) as raised:
                    await call(consumer, tp)
                assert world.now - began < 3.5
                if isinstance(raised.value, ApiTimeoutError):
                    assert isinstance(raised.value.__cause__, KafkaError)
                    assert str(tp) in str(raised.value)

        simulate(scenario, brokers=2, replication=1)

    def test_lookups_end_by_the_default_timeout(self) -> None:
        async def scenario(world: World) -> None:
            async with world.consumer("t", default_api_timeout_ms=5_000) as consumer:
                world.cluster.stop(world.cluster.leader("t"))
                consumer.seek_to_end()
                for call in (
                    consumer.position(T0),
                    consumer.end_offsets([T0]),
                    consumer.lag(),
                    anext(consumer.until_end()),
                ):
                    began = world.now
                    with pytest.raises(ApiTimeoutError):
                        await call
                    assert 4.5 < world.now - began < 5.5

        simulate(scenario, brokers=2, replication=1)


class TestNeedsAGroup:
    async def test_calls_for_a_group_raise_without_one_and_leave_the_position(
        self, stage: Any
    ) -> None:
        stage.fill(3)
        async with stage.consumer() as consumer:
            record = await consumer.get(timeout=20)
            for what in (None, record, [record], {stage.tp(): 1}, [stage.tp()]):
                with pytest.raises(IllegalStateError, match="group"):
                    await (consumer.commit() if what is None else consumer.commit(what))
            with pytest.raises(IllegalStateError, match="group"):
                await consumer.committed([stage.tp()])
            with pytest.raises(IllegalStateError, match="group"):
                consumer.group_metadata()
            assert (await asyncio.wait_for(consumer.get(timeout=20), 20)).offset == 1
