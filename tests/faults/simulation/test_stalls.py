"""What health and log say while a client makes no progress."""

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Any

import pytest
from world import World, simulate

from aiokclient import TopicPartition
from aiokclient.errors import CoordinatorNotAvailableError
from aiokclient.protocol import ApiKey
from aiokclient.types import State

T0 = TopicPartition("t", 0)


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [getattr(record, "event", "") for record in caplog.records]
    return [event for event in found if event in ("reading_stalled", "reading_continues")]


def silence(world: World, leader: int) -> None:
    """Let a broker answer nothing on its open and new connections."""
    for api in (ApiKey.FETCH, ApiKey.PRODUCE, ApiKey.LIST_OFFSETS):
        world.cluster.delay(api, 10_000.0, broker=leader)


async def polls(consumer: Any) -> None:
    async for _ in consumer:
        pass


def test_a_silent_leader_is_a_reason_after_a_second(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        world.cluster.move_leader("t", to=2)
        async with world.consumer("t") as consumer, world.producer() as producer:
            await producer.send("t", b"1")
            assert await consumer.get(timeout=10)
            reading = asyncio.create_task(polls(consumer))
            await asyncio.sleep(30)
            assert consumer.health().state is State.RUNNING, "an idle topic is no reason"
            silence(world, 2)
            producer.send("t", b"2").add_done_callback(lambda delivery: None)
            await asyncio.sleep(2.6)
            for client in (consumer, producer):
                assert client.health().state is State.DEGRADED, client
                reasons = client.health().reasons
                assert any("t-0" in each and "broker 2" in each for each in reasons), reasons
            await asyncio.sleep(8)
            assert events(caplog) == ["reading_stalled"]
            await asyncio.sleep(60)
            assert events(caplog) == ["reading_stalled"], "one line for each stall"
            world.cluster.reset()
            await asyncio.sleep(60)
            assert consumer.health().state is State.RUNNING
            assert producer.health().state is State.RUNNING
            assert events(caplog) == ["reading_stalled", "reading_continues"]
            reading.cancel()
            await asyncio.wait([reading])

    with caplog.at_level(logging.WARNING, logger="aiokclient"):
        simulate(scenario, brokers=3, topics={"t": 1})


def test_a_silent_leader_is_a_reason_while_the_position_is_looked_up() -> None:
    async def scenario(world: World) -> None:
        silence(world, 1)
        async with world.consumer("t") as consumer:
            await asyncio.sleep(3)
            assert consumer.health().state is State.DEGRADED
            assert any("t-0" in each for each in consumer.health().reasons)

    simulate(scenario)


def test_a_partition_without_leader_is_a_reason_for_the_producer() -> None:
    async def scenario(world: World) -> None:
        async with world.producer() as producer:
            await producer.send("t", b"0")
            leader = producer._cluster.metadata.find_leader("t", 0)
            world.cluster.stop(leader)
            delivery = producer.send("t", b"1")
            await asyncio.sleep(3)
            assert producer.health().state is State.DEGRADED
            assert any("t-0" in each for each in producer.health().reasons)
            world.cluster.start(leader)
            await delivery
            assert producer.health().state is State.RUNNING

    simulate(scenario, brokers=2, replication=1)


@pytest.mark.parametrize("way", ["iteration", "poll"])
def test_a_response_beyond_the_limit_is_logged_once(
    caplog: pytest.LogCaptureFixture, way: str
) -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"x" * 40_000])
        options: Any = {"receive_message_max_bytes": 20_000, "fetch_max_bytes": 10_000}
        async with world.consumer("t", **options) as consumer:
            for _ in range(20):
                with pytest.raises(Exception, match="receive_message_max_bytes"):
                    await (consumer.poll() if way == "poll" else anext(aiter(consumer)))
                await asyncio.sleep(1)
            assert consumer.health().state is State.DEGRADED

    with caplog.at_level(logging.WARNING, logger="aiokclient"):
        simulate(scenario)
    named = [r for r in caplog.records if "receive_message_max_bytes" in r.getMessage()]
    assert len(named) == 1


def test_the_log_names_a_partition_without_leader_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"1"])
        async with world.consumer("t") as consumer:
            assert await consumer.get(timeout=10)
            world.cluster.stop(1)
            for _ in range(30):
                assert not await consumer.poll(timeout=1.0)
            assert events(caplog) == ["reading_stalled"]
            world.cluster.start(1)
            world.cluster.produce("t", [b"2"])
            while not await consumer.poll(timeout=1.0):
                pass
            await asyncio.sleep(2)
            assert events(caplog) == ["reading_stalled", "reading_continues"]
            for _ in range(30):
                await consumer.poll(timeout=1.0)
            assert events(caplog) == ["reading_stalled", "reading_continues"]

    with caplog.at_level(logging.WARNING, logger="aiokclient"):
        simulate(scenario)


def stall_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [r for r in caplog.records if getattr(r, "event", "") == "reading_stalled"]
    return [line.getMessage() for line in lines]


async def read(consumer: Any) -> None:
    """Read until a record is delivered, and some seconds more."""
    while not await consumer.poll(timeout=1.0):
        pass
    for _ in range(5):
        await consumer.poll(timeout=1.0)


GROUP_APIS = (
    ApiKey.JOIN_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
)
NO_COORDINATOR: dict[str, tuple[Callable[[World], object], str]] = {
    "refused": (
        lambda world: world.cluster.fail(ApiKey.FIND_COORDINATOR, CoordinatorNotAvailableError),
        "the coordinator of the group is not known: COORDINATOR_NOT_AVAILABLE (15)",
    ),
    "unanswered": (
        lambda world: world.cluster.delay(ApiKey.FIND_COORDINATOR, 10_000.0),
        "the coordinator of the group is not known",
    ),
    "silent": (
        lambda world: [world.cluster.delay(api, 10_000.0) for api in GROUP_APIS],
        "the coordinator of the group, broker 1, did not respond for ",
    ),
}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("fault", NO_COORDINATOR)
def test_a_group_without_a_coordinator_is_named_in_the_log_and_in_health(
    caplog: pytest.LogCaptureFixture, fault: str, protocol: str
) -> None:
    begin, reason = NO_COORDINATOR[fault]

    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"1"])
        async with world.consumer(group_id="g", group_protocol=protocol) as consumer:
            begin(world)
            consumer.subscribe(["t"])
            for _ in range(9):
                assert not await consumer.poll(timeout=1.0)
            assert consumer.health().state is State.DEGRADED
            assert any(reason in each for each in consumer.health().reasons)
            for _ in range(60):
                assert not await consumer.poll(timeout=1.0)
            (line,) = stall_lines(caplog)
            assert reason in line
            world.cluster.reset()
            await read(consumer)
            assert events(caplog) == ["reading_stalled", "reading_continues"]
            assert consumer.health().state is State.RUNNING

    with caplog.at_level(logging.WARNING, logger="aiokclient"):
        simulate(scenario)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_that_loses_its_coordinator_is_named_once_its_session_has_ended(
    caplog: pytest.LogCaptureFixture, protocol: str
) -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"1"])
        async with world.consumer("t", group_id="g", group_protocol=protocol) as consumer:
            await read(consumer)
            for api in (*GROUP_APIS, ApiKey.FIND_COORDINATOR):
                world.cluster.delay(api, 10_000.0)
            for _ in range(90):
                await consumer.poll(timeout=1.0)
            assert consumer.health().state is State.DEGRADED
            assert any("coordinator of group g" in each for each in consumer.health().reasons)
            (line,) = stall_lines(caplog)
            assert "coordinator of group g has not answered" in line
            world.cluster.reset()
            world.cluster.produce("t", [b"2"])
            await read(consumer)
            assert events(caplog) == ["reading_stalled", "reading_continues"]
            assert consumer.health().state is State.RUNNING

    with caplog.at_level(logging.WARNING, logger="aiokclient"):
        simulate(scenario)


MEMBERSHIPS: dict[str, dict[str, Any]] = {
    "no group": {},
    "classic": {"group_id": "g", "group_protocol": "classic"},
    "consumer": {"group_id": "g", "group_protocol": "consumer"},
}


@pytest.mark.parametrize("membership", MEMBERSHIPS)
def test_a_pattern_that_matches_nothing_is_named_until_a_topic_matches(
    caplog: pytest.LogCaptureFixture, membership: str
) -> None:
    async def scenario(world: World) -> None:
        options = {"metadata_max_age_ms": 5_000, **MEMBERSHIPS[membership]}
        async with world.consumer(**options) as consumer, world.producer() as producer:
            consumer.subscribe(re.compile("orders-.*"))
            for _ in range(20):
                assert not await consumer.poll(timeout=1.0)
            assert consumer.health().state is State.DEGRADED
            (reason,) = consumer.health().reasons
            assert "matches the pattern 'orders-.*'" in reason
            (line,) = stall_lines(caplog)
            assert reason in line
            world.cluster.create_topic("orders-1", 1)
            await producer.send("orders-1", b"1")
            await read(consumer)
            assert events(caplog) == ["reading_stalled", "reading_continues"]
            assert consumer.health().state is State.RUNNING

    with caplog.at_level(logging.WARNING, logger="aiokclient"):
        simulate(scenario)


@pytest.mark.parametrize("membership", MEMBERSHIPS)
def test_a_pattern_that_matches_only_internal_topics_names_the_option(membership: str) -> None:
    async def scenario(world: World) -> None:
        world.cluster.create_topic("__consumer_offsets", 1)
        async with world.consumer(**MEMBERSHIPS[membership]) as consumer:
            consumer.subscribe(re.compile("__consumer_.*"))
            for _ in range(5):
                assert not await consumer.poll(timeout=1.0)
            (reason,) = consumer.health().reasons
            assert "exclude_internal_topics is set" in reason
            consumer.subscribe(["t"])
            for _ in range(8):
                await consumer.poll(timeout=1.0)
            assert consumer.health().state is State.RUNNING

    simulate(scenario)


@pytest.mark.parametrize("membership", MEMBERSHIPS)
def test_a_consumer_that_matches_topics_or_subscribes_to_nothing_has_no_reason(
    membership: str,
) -> None:
    async def scenario(world: World) -> None:
        async with (
            world.consumer(**MEMBERSHIPS[membership]) as first,
            world.consumer(**MEMBERSHIPS[membership]) as second,
        ):
            first.subscribe(re.compile("t"))
            second.subscribe(re.compile("t"))
            for _ in range(15):
                await asyncio.gather(first.poll(timeout=1.0), second.poll(timeout=1.0))
            # One member of a group owns the only partition, and the other one owns nothing.
            assert [each.health().reasons for each in (first, second)] == [(), ()]
            first.subscribe(re.compile("x"))
            first.unsubscribe()
            await asyncio.sleep(10)
            assert first.health().reasons == ()

    simulate(scenario)


def test_metadata_that_no_broker_returns_is_named_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"1"])
        async with world.consumer() as consumer:
            world.cluster.delay(ApiKey.METADATA, 10_000.0)
            consumer.subscribe(["t"])
            for _ in range(30):
                assert not await consumer.poll(timeout=1.0)
            (line,) = stall_lines(caplog)
            assert "metadata cannot be refreshed" in line
            world.cluster.reset()
            await read(consumer)
            assert events(caplog) == ["reading_stalled", "reading_continues"]
            assert consumer.health().state is State.RUNNING

    with caplog.at_level(logging.WARNING, logger="aiokclient"):
        simulate(scenario)


def test_a_stall_is_logged_only_while_the_program_requests_records(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(world: World) -> None:
        async with world.consumer() as consumer:
            consumer.subscribe(re.compile("x"))
            assert not await consumer.poll(timeout=2.0)
            await asyncio.sleep(60)
            assert events(caplog) == []
            for _ in range(3):  # Short requests with long pauses count, too.
                assert not await consumer.poll(timeout=0.01)
                await asyncio.sleep(5)
            assert events(caplog) == ["reading_stalled"]

    with caplog.at_level(logging.WARNING, logger="aiokclient"):
        simulate(scenario)
