"""Errors at a deadline have what the brokers said last, and say whether a record was written."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import pytest
from world import World, simulate

from aiokclient import Producer, TopicPartition
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
