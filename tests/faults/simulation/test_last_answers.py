"""Errors at a deadline have what the brokers said last, and say whether a record was written."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import pytest
from world import World, simulate

from aiokclient import Admin, Producer, State, TopicPartition
from aiokclient.errors import (
    ApiTimeoutError,
    BootstrapError,
    ClusterAuthorizationError,
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    DeliveryTimeoutError,
    KafkaError,
    NotCoordinatorError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
)
from aiokclient.protocol import ApiKey

OPTIONS: dict[str, Any] = {"delivery_timeout_ms": 8000, "request_timeout_ms": 2000}


@pytest.mark.parametrize("many", [1, 3])
def test_record_that_was_refused_each_time_was_not_written_and_names_the_refusal(
    many: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        async with world.producer(on_delivery_error=id, **OPTIONS) as producer:
            await producer.send("t", b"first")
            world.cluster.fail(ApiKey.PRODUCE, NotEnoughReplicasError)
            caplog.clear()
            deliveries = [producer.send("t", b"v") for _ in range(many)]
            for delivery in deliveries:
                with pytest.raises(DeliveryTimeoutError, match="not written") as raised:
                    await delivery
                assert isinstance(raised.value.__cause__, NotEnoughReplicasError)
                assert "NOT_ENOUGH_REPLICAS (19)" in str(raised.value)
                assert "may have been written" not in str(raised.value)
            lines = [r for r in caplog.records if r.levelno == logging.WARNING]
            assert len(lines) == 1
            assert "NOT_ENOUGH_REPLICAS" in lines[0].getMessage()
        assert len(world.cluster.records("t")) == 1

    caplog.set_level(logging.INFO, "aiokclient")
    simulate(scenario)


@pytest.mark.parametrize("error", [NotEnoughReplicasAfterAppendError, NotLeaderOrFollowerError])
def test_record_that_may_be_in_the_log_says_so_and_names_the_last_error(
    error: type[KafkaError],
) -> None:
    async def scenario(world: World) -> None:
        async with world.producer(on_delivery_error=id, **OPTIONS) as producer:
            await producer.send("t", b"first")
            world.cluster.fail(ApiKey.PRODUCE, error)
            with pytest.raises(DeliveryTimeoutError, match="may have been written") as raised:
                await producer.send("t", b"v")
            assert isinstance(raised.value.__cause__, error)
            assert f"{error.name} ({error.code})" in str(raised.value)
            assert "not written" not in str(raised.value)

    simulate(scenario)


def test_record_that_is_in_flight_at_its_deadline_may_have_been_written() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(on_delivery_error=id, **OPTIONS) as producer:
            await producer.send("t", b"first")
            world.cluster.fail(ApiKey.PRODUCE, NotEnoughReplicasError)
            delivery = producer.send("t", b"v")
            await asyncio.sleep(2)
            world.cluster.pause(1)
            with pytest.raises(DeliveryTimeoutError, match="may have been written") as raised:
                await delivery
            assert raised.value.__cause__ is not None
            world.cluster.resume(1)

    simulate(scenario)


@pytest.mark.parametrize("refused", [CoordinatorNotAvailableError, ClusterAuthorizationError])
def test_record_without_a_producer_id_names_the_refusal(refused: type[KafkaError]) -> None:
    async def scenario(world: World) -> None:
        world.cluster.fail(ApiKey.INIT_PRODUCER_ID, refused)
        async with world.producer(on_delivery_error=id, **OPTIONS) as producer:
            with pytest.raises(KafkaError) as raised:
                await producer.send("t", b"v")
            chain = [raised.value, raised.value.__cause__]
            assert any(isinstance(error, refused) for error in chain)
            assert str(refused.name) in str(raised.value)

    simulate(scenario)


def test_call_that_times_out_has_the_last_refusal_as_its_cause_and_in_its_text() -> None:
    async def scenario(world: World) -> None:
        world.cluster.fail(ApiKey.FIND_COORDINATOR, CoordinatorNotAvailableError)
        async with world.consumer(group_id="g", default_api_timeout_ms=3000) as consumer:
            with pytest.raises(ApiTimeoutError, match="COORDINATOR_NOT_AVAILABLE") as raised:
                await consumer.committed([TopicPartition("t", 0)])
            assert isinstance(raised.value.__cause__, CoordinatorNotAvailableError)

    simulate(scenario)


@pytest.mark.parametrize("api", [ApiKey.FIND_COORDINATOR, ApiKey.INIT_PRODUCER_ID])
@pytest.mark.parametrize(
    "refused",
    [
        CoordinatorNotAvailableError,
        NotCoordinatorError,
        CoordinatorLoadInProgressError,
        ConcurrentTransactionsError,
    ],
)
@pytest.mark.parametrize("shared", [False, True])
def test_transactional_start_that_is_refused_until_its_deadline_names_the_refusal(
    api: ApiKey, refused: type[KafkaError], shared: bool
) -> None:
    async def scenario(world: World) -> None:
        world.cluster.fail(api, refused)
        limits: dict[str, Any] = {"default_api_timeout_ms": 5000}
        async with contextlib.AsyncExitStack() as stack:
            if shared:
                client = await stack.enter_async_context(world.client(**limits))
                producer = Producer(client=client, transactional_id="t-1")
            else:
                producer = world.producer(transactional_id="t-1", **limits)
            with pytest.raises(BootstrapError) as raised:
                await producer.start()
        assert isinstance(raised.value.__cause__, refused)
        assert f"{refused.name} ({refused.code})" in str(raised.value)
        assert "advertised.listeners" not in str(raised.value)

    simulate(scenario)


def test_transactional_start_that_nobody_answers_names_the_addresses() -> None:
    async def scenario(world: World) -> None:
        with world.cluster.delay(ApiKey.INIT_PRODUCER_ID, 60):
            producer = world.producer(transactional_id="t-1", default_api_timeout_ms=5000)
            with pytest.raises(BootstrapError, match=r"advertised\.listeners") as raised:
                await producer.start()
        assert raised.value.attempts

    simulate(scenario)


@pytest.mark.parametrize("silent", [False, True])
def test_coordinator_search_is_logged_once_and_its_refusal_outlives_silence(
    silent: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        world.cluster.fail(ApiKey.FIND_COORDINATOR, CoordinatorNotAvailableError)
        async with Admin(**world.options(request_timeout_ms=2000)) as admin:

            async def ask() -> None:
                (await admin.describe_groups(["g"], timeout=9)).raise_for_errors()

            asking = asyncio.ensure_future(ask())
            async with world.consumer(group_id="g", request_timeout_ms=2000) as consumer:
                wanted = [TopicPartition("t", 0)]
                reading = asyncio.ensure_future(consumer.committed(wanted, timeout=9))
                await asyncio.sleep(3)
                if silent:
                    world.cluster.pause(1)
                for call in (asking, reading):
                    with pytest.raises(
                        ApiTimeoutError, match="COORDINATOR_NOT_AVAILABLE"
                    ) as raised:
                        await call
                    assert isinstance(raised.value.__cause__, CoordinatorNotAvailableError)
                world.cluster.resume(1)
        lines = [r for r in caplog.records if getattr(r, "event", "") == "request_refused"]
        assert [r.levelno for r in lines] == [logging.WARNING] * 2, caplog.text
        assert all("COORDINATOR_NOT_AVAILABLE (15)" in r.getMessage() for r in lines)

    caplog.set_level(logging.INFO, "aiokclient")
    simulate(scenario)


def test_refusals_of_a_request_are_one_line_if_they_persist(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(world: World) -> None:
        async with world.consumer(group_id="g") as consumer:
            world.cluster.fail(ApiKey.OFFSET_FETCH, CoordinatorLoadInProgressError, times=2)
            await consumer.committed([TopicPartition("t", 0)])
            assert "OffsetFetch" not in caplog.text
            world.cluster.fail(ApiKey.OFFSET_FETCH, CoordinatorLoadInProgressError)
            with pytest.raises(ApiTimeoutError, match="COORDINATOR_LOAD_IN_PROGRESS"):
                await consumer.committed([TopicPartition("t", 0)], timeout=8)
            world.cluster.reset()

    caplog.set_level(logging.INFO, "aiokclient")
    simulate(scenario)


@pytest.mark.parametrize("resets", [False, True])
def test_partition_that_refuses_each_record_is_a_reason_after_a_second(resets: bool) -> None:
    async def scenario(world: World) -> None:
        async with world.producer(on_delivery_error=id, **OPTIONS) as producer:
            await producer.send("t", b"first")
            assert producer.health().reasons == ()
            if resets:
                world.cluster.drop(ApiKey.PRODUCE)
            else:
                world.cluster.fail(ApiKey.PRODUCE, NotEnoughReplicasError)
            delivery = producer.send("t", b"v")
            seen = 0
            for _ in range(20):
                await asyncio.sleep(0.25)
                seen += producer.state is State.DEGRADED
            assert seen >= 12
            (reason,) = [r for r in producer.health().reasons if "cannot be written" in r]
            assert reason.startswith("t-0 cannot be written: ")
            assert ("The connection failed" if resets else "NOT_ENOUGH_REPLICAS (19)") in reason
            world.cluster.reset()
            await delivery
            assert producer.state is State.RUNNING

    simulate(scenario)
