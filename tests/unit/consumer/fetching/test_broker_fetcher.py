"""Tests that a consumer recovers when brokers refuse, move, lag, or stop, without busy retries."""

import asyncio
from typing import Any

import pytest
from world import World, simulate

from aiokclient import Consumer, TopicPartition
from aiokclient.errors import (
    FencedLeaderEpochError,
    InvalidFetchSizeError,
    KafkaStorageError,
    LogTruncationError,
    NotLeaderOrFollowerError,
    OffsetNotAvailableError,
    TopicAuthorizationError,
    UnknownLeaderEpochError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
)
from aiokclient.protocol import ApiKey
from aiokclient.protocol.messages.fetch import EpochEndOffset

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def fill(world: World, count: int = 10, partition: int = 0) -> None:
    world.cluster.produce("t", [b"%d" % i for i in range(count)], partition=partition)


async def offsets(consumer: Consumer[Any, Any], count: int) -> list[int]:
    found: list[int] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found += [r.offset for r in await consumer.poll(max_records=count - len(found))]
    return found


@pytest.mark.parametrize(
    "error",
    [
        NotLeaderOrFollowerError,
        UnknownTopicOrPartitionError,
        KafkaStorageError,
        FencedLeaderEpochError,
        UnknownLeaderEpochError,
        OffsetNotAvailableError,
        UnknownServerError,
    ],
)
def test_a_temporary_fetch_error_is_retried_silently(error: Any) -> None:
    """The fetch is retried with an increasing backoff, and the application sees no error."""

    async def scenario(world: World) -> None:
        fill(world)
        async with world.consumer("t") as consumer:
            with world.cluster.fail(ApiKey.FETCH, error):
                began = world.now
                assert await consumer.poll(timeout=20.0) == []
                assert len(world.requests(ApiKey.FETCH, since=began)) < 40
            assert await offsets(consumer, 10) == list(range(10))

    simulate(scenario, brokers=3)


@pytest.mark.parametrize("error", [TopicAuthorizationError, InvalidFetchSizeError])
@pytest.mark.parametrize("api", [ApiKey.FETCH, ApiKey.LIST_OFFSETS])
def test_a_lasting_fetch_error_is_raised_repeatedly(error: Any, api: ApiKey) -> None:
    """The error is raised at most once per second. When its cause is gone, reading continues."""

    async def scenario(world: World) -> None:
        fill(world)
        with world.cluster.fail(api, error):
            async with world.consumer("t") as consumer:
                for _ in range(3):
                    with pytest.raises(error) as raised:
                        await consumer.poll(timeout=30.0)
                    assert raised.value.topic_partition == T0
                assert len(world.requests(api)) < 10
                world.cluster.reset()
                assert await offsets(consumer, 10) == list(range(10))

    simulate(scenario)


def test_metadata_that_refuses_a_topic_raises_at_the_next_poll() -> None:
    def forbid(request: Any, response: Any) -> Any:
        for topic in response.topics:
            topic.error_code, topic.partitions = 29, []
        return response

    async def scenario(world: World) -> None:
        with world.cluster.alter(ApiKey.METADATA, forbid):
            async with world.consumer("t") as consumer:
                with pytest.raises(TopicAuthorizationError):
                    await consumer.poll(timeout=30.0)

    simulate(scenario)


def test_a_leader_that_is_named_is_used_at_once() -> None:
    """With KIP-951, the consumer waits for neither a metadata refresh nor a backoff."""

    async def scenario(world: World) -> None:
        fill(world)
        async with world.consumer("t") as consumer:
            assert await offsets(consumer, 10) == list(range(10))
            world.cluster.move_leader("t")
            fill(world)
            began = world.now
            assert await offsets(consumer, 10) == list(range(10, 20))
            assert world.now - began < 0.09

    simulate(scenario, brokers=3)


async def read_from_one_leader_after_another(world: World, consumer: Any) -> None:
    for first in range(0, 40, 10):
        fill(world)
        assert await offsets(consumer, 10) == list(range(first, first + 10))
        world.cluster.move_leader("t")


@pytest.mark.parametrize("limits", [(4, 4), (4, 11), (4, 12), (13, 15), (16, 18)])
def test_every_way_to_name_topics_and_leaders(limits: tuple[int, int]) -> None:
    async def scenario(world: World) -> None:
        world.cluster.limit_versions({ApiKey.FETCH: limits})
        async with world.consumer("t", metadata_max_age_ms=1_000) as consumer:
            await read_from_one_leader_after_another(world, consumer)
            assert {r.version for r in world.requests(ApiKey.FETCH)} == {limits[1]}

    simulate(scenario, brokers=3)


@pytest.mark.parametrize("offered", [None, (0, 2), (2, 2), (3, 2)])
def test_brokers_that_cannot_say_where_epochs_end(offered: tuple[int, int] | None) -> None:
    """If a broker cannot say where epochs end, reading continues without validation."""

    async def scenario(world: World) -> None:
        world.cluster.limit_versions({ApiKey.OFFSET_FOR_LEADER_EPOCH: offered})
        async with world.consumer("t", metadata_max_age_ms=1_000) as consumer:
            await read_from_one_leader_after_another(world, consumer)
            assert world.requests(ApiKey.OFFSET_FOR_LEADER_EPOCH) == []

    simulate(scenario, brokers=3)


def test_a_broker_that_is_gone_holds_up_no_other() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        fill(world, partition=1)
        dead = world.cluster.leader("t", 1)
        assert dead != world.cluster.leader("t", 0)
        async with world.consumer("t", request_timeout_ms=5_000) as consumer:
            await offsets(consumer, 20)
            world.cluster.pause(dead)
            for first in range(10, 50, 10):
                fill(world)
                began = world.now
                assert await offsets(consumer, 10) == list(range(first, first + 10))
                assert world.now - began < 1
                await asyncio.sleep(3)
            fill(world, partition=1)
            world.cluster.resume(dead)
            assert await offsets(consumer, 10) == list(range(10, 20))

    simulate(scenario, brokers=2, topics={"t": 2}, replication=1)


def test_a_start_does_not_wait_long_for_a_broker_that_is_gone() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        world.cluster.pause(world.cluster.leader("t", 1))
        consumer = world.consumer(
            "t", bootstrap_servers=world.address(world.cluster.leader("t", 0))
        )
        began = world.now
        async with consumer:
            assert world.now - began < 6
            assert await offsets(consumer, 10) == list(range(10))
            world.cluster.resume(world.cluster.leader("t", 1))

    simulate(scenario, brokers=2, topics={"t": 2}, replication=1)


def test_what_is_sent_after_the_start_is_read_from_latest() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        with world.cluster.delay(ApiKey.LIST_OFFSETS, 1.0):
            async with world.consumer("t", auto_offset_reset="latest") as consumer:
                fill(world, 5)
                assert await offsets(consumer, 5) == list(range(10, 15))

    simulate(scenario)


@pytest.mark.fault(21)
def test_a_truncated_log_with_a_reset_policy(caplog: pytest.LogCaptureFixture) -> None:
    """The position is reset to the offset where the logs diverge, and the new records are read."""

    async def scenario(world: World) -> None:
        for _ in range(10):
            fill(world)
        async with world.consumer("t", metadata_max_age_ms=1_000) as consumer:
            await offsets(consumer, 100)
            world.cluster.truncate("t", to=50)
            world.cluster.produce("t", [b"another"] * 100)
            records = await consumer.poll(timeout=10.0)
            assert (records[0].offset, records[0].value) == (50, b"another")
            assert consumer.metrics()["consumer.truncations{topic=t}"] == 1

    simulate(scenario, brokers=3)
    assert "goes back from 100 to 50" in caplog.text


@pytest.mark.fault(21)
def test_a_truncation_below_what_is_buffered() -> None:
    """Records that were fetched from the old log but not yet delivered are discarded."""

    async def scenario(world: World) -> None:
        for _ in range(10):
            fill(world)
        async with world.consumer("t", auto_offset_reset="none") as consumer:
            consumer.seek(T0, 0)
            await offsets(consumer, 60)
            await asyncio.sleep(1)
            world.cluster.truncate("t", to=50)
            world.cluster.produce("t", [b"another"] * 100)
            await asyncio.sleep(5)
            with pytest.raises(LogTruncationError) as raised:
                await offsets(consumer, 1)
            assert raised.value.offset == 60
            assert raised.value.diverging_offset == 50

    simulate(scenario, brokers=3)


@pytest.mark.fault(21)
def test_a_leader_change_without_truncation_is_confirmed() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        async with world.consumer("t") as consumer:
            await offsets(consumer, 5)
            world.cluster.move_leader("t")
            fill(world)
            assert await offsets(consumer, 15) == list(range(5, 20))
            assert world.requests(ApiKey.OFFSET_FOR_LEADER_EPOCH)

    simulate(scenario, brokers=3)


def test_a_leader_change_in_the_middle_of_a_list() -> None:
    """Records of the current list that have been delivered are not delivered again."""

    async def scenario(world: World) -> None:
        fill(world, 40)
        async with world.consumer("t", metadata_max_age_ms=300) as consumer:
            seen: list[int] = []
            async for record in consumer:
                seen.append(record.offset)
                if record.offset in (7, 20):
                    world.cluster.move_leader("t")
                    await asyncio.sleep(2)
                if record.offset == 39:
                    break
            assert seen == list(range(40))

    simulate(scenario, brokers=3)


@pytest.mark.fault(38)
def test_what_is_buffered_of_a_thousand_partitions_is_bounded() -> None:
    async def scenario(world: World) -> None:
        for partition in range(1_000):
            world.cluster.produce("t", [bytes(200)] * 10, partition=partition)
        async with world.consumer("t", fetch_max_bytes=100_000) as consumer:
            assert consumer._engine is not None
            buffer, largest, seen = consumer._engine.buffer, 0, 0
            consumer.pause([TopicPartition("t", i) for i in range(0, 1_000, 3)])
            while seen < 6_660:
                await asyncio.sleep(1)
                largest = max(largest, buffer.size)
                seen += len(await consumer.poll(timeout=5.0))
            # The limit is two responses for each broker, and `fetch_max_bytes` for paused
            # partitions. A response may exceed `fetch_max_bytes` by one batch.
            assert 0 < largest <= 3 * 2 * 103_000 + 100_000
            consumer.resume(consumer.paused())
            while seen < 10_000:
                seen += len(await consumer.poll(timeout=5.0))

    simulate(scenario, brokers=3, topics={"t": 1_000})


@pytest.mark.fault(21)
@pytest.mark.parametrize("policy", ["none", "earliest"])
def test_a_diverging_epoch_in_a_response_resets_the_position(policy: str) -> None:
    def diverge(request: Any, response: Any) -> Any:
        for topic in response.responses:
            for partition in topic.partitions:
                partition.records = b""
                partition.diverging_epoch = EpochEndOffset(epoch=0, end_offset=4)
        return response

    async def scenario(world: World) -> None:
        fill(world)
        async with world.consumer(auto_offset_reset=policy) as consumer:
            consumer.assign([T0])
            consumer.seek(T0, 8)
            with world.cluster.alter(ApiKey.FETCH, diverge, times=1):
                if policy == "none":
                    with pytest.raises(LogTruncationError):
                        await consumer.poll(timeout=5.0)
                else:
                    assert await offsets(consumer, 6) == list(range(4, 10))

    simulate(scenario)


RACKS = {"brokers": 3, "racks": ["a", "b", "c"]}


def readers(world: World) -> dict[int, int]:
    """Return the number of fetch requests to each broker."""
    counts: dict[int, int] = {}
    for request in world.requests(ApiKey.FETCH):
        if request.message.session_epoch < 0:
            continue  # This fetch request only closes the session.
        counts[request.broker] = counts.get(request.broker, 0) + 1
    return counts


def follower(world: World) -> tuple[int, str]:
    leader = world.cluster.leader("t")
    node = next(b for b in world.cluster.replicas("t") if b != leader)
    return node, "abc"[node - 1]


def test_the_replica_in_the_same_rack_is_read() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        node, rack = follower(world)
        async with world.consumer("t", client_rack=rack) as consumer:
            assert await offsets(consumer, 10) == list(range(10))
            for _ in range(5):
                fill(world)
                await offsets(consumer, 10)
            assert readers(world)[world.cluster.leader("t")] == 1
            assert readers(world)[node] >= 5

    simulate(scenario, **RACKS)


@pytest.mark.fault(54)
def test_a_replica_that_dies_is_left_for_the_leader() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        node, rack = follower(world)
        async with world.consumer("t", client_rack=rack) as consumer:
            await offsets(consumer, 10)
            world.cluster.stop(node)
            for _ in range(5):
                fill(world)
                began = world.now
                await offsets(consumer, 10)
                assert world.now - began < 5
            assert sum(readers(world).values()) < 40

    simulate(scenario, **RACKS)


@pytest.mark.fault(54)
def test_a_replica_that_lags_does_not_reset_the_position() -> None:
    """OFFSET_OUT_OF_RANGE from a follower does not prove that the leader's log lacks the offset."""

    async def scenario(world: World) -> None:
        fill(world)
        node, rack = follower(world)

        def out_of_range(request: Any, response: Any) -> Any:
            for topic in response.responses:
                for partition in topic.partitions:
                    partition.error_code, partition.records = 1, b""
            return response

        with world.cluster.alter(ApiKey.FETCH, out_of_range, broker=node):
            async with world.consumer("t", client_rack=rack, auto_offset_reset="none") as consumer:
                consumer.seek(T0, 2)
                assert await offsets(consumer, 8) == list(range(2, 10))
                fill(world)
                assert await offsets(consumer, 10) == list(range(10, 20))
        assert sum(readers(world).values()) < 20

    simulate(scenario, **RACKS)


@pytest.mark.fault(19)
def test_an_unexpected_correlation_id_in_a_fetch() -> None:
    async def scenario(world: World) -> None:
        fill(world, 50)
        armed = [3]

        def tamper(connection: Any, to_server: bool, data: memoryview) -> bytes | memoryview:
            large = not to_server and len(data) > 1_000
            if not large or not armed[0]:
                return data
            armed[0] -= 1
            return bytes(data[:4]) + b"\x7f\xff\xff\xff" + bytes(data[8:])

        async with world.consumer("t", max_partition_fetch_bytes=2_000) as consumer:
            world.network.tamper = tamper
            fill(world, 50)
            assert await offsets(consumer, 100) == list(range(100))

    simulate(scenario)


def test_the_session_ends_with_the_consumer() -> None:
    async def scenario(world: World) -> None:
        async with world.consumer("t") as consumer:
            fill(world)
            await offsets(consumer, 10)
            consumer.pause([T0])
            await asyncio.sleep(2)
        await asyncio.sleep(1)
        assert world.requests(ApiKey.FETCH)[-1].message.session_epoch == -1

    simulate(scenario)
