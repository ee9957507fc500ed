"""The end of records whose transaction will not be committed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from transaction_runs import MEMBER, OFFSET
from world import World, simulate

from aiokclient import Delivery, Producer
from aiokclient.errors import (
    AbortableError,
    KafkaError,
    NotLeaderOrFollowerError,
    ProducerFencedError,
    TransactionAbortableError,
)
from aiokclient.protocol import ApiKey

levels = pytest.mark.parametrize("level", [0, 2])


def run(scenario: Any, level: int) -> None:
    simulate(scenario, topics={"t": 2}, transaction_version=level)


async def fail_offsets(world: World, producer: Producer[Any, Any], error: Any) -> KafkaError:
    """Send offsets that the coordinator of the group refuses, and return the error."""
    refusing = world.cluster.fail(ApiKey.TXN_OFFSET_COMMIT, error, times=1)
    with refusing, pytest.raises(KafkaError) as caught:
        await producer.send_offsets_to_transaction({OFFSET: 1}, MEMBER)
    return caught.value


async def in_flight(world: World, producer: Producer[Any, Any]) -> Delivery:
    """Send a record whose response comes after two seconds."""
    world.cluster.delay(ApiKey.PRODUCE, 2.0, when="after", times=1).__enter__()
    began, delivery = world.now, producer.send("t", b"in flight", partition=0)
    await world.cluster.until(lambda: bool(world.requests(ApiKey.PRODUCE, since=began)), 10)
    return delivery


@levels
@pytest.mark.parametrize("error", [TransactionAbortableError, ProducerFencedError])
def test_records_that_were_not_sent_fail_at_once_and_those_in_flight_have_their_outcome(
    error: type[KafkaError], level: int
) -> None:
    async def scenario(world: World) -> None:
        async with world.producer(transactional_id="t-1", linger_ms=0) as producer:
            await producer.begin_transaction()
            await producer.send("t", b"first", partition=0)
            first = await in_flight(world, producer)
            raised = await fail_offsets(world, producer, error)
            await asyncio.sleep(0.01)
            assert not first.done(), "its outcome is not known yet"
            await asyncio.wait([asyncio.ensure_future(settle(first))], timeout=5)
            assert first.done()
            assert isinstance(raised, error)

    run(scenario, level)


async def settle(delivery: Delivery) -> None:
    try:
        await delivery
    except KafkaError:
        pass


@levels
def test_a_record_that_was_not_sent_fails_with_the_error_that_breaks_the_producer(
    level: int,
) -> None:
    async def scenario(world: World) -> None:
        async with world.producer(transactional_id="t-1", linger_ms=60_000) as producer:
            await producer.begin_transaction()
            delivery = producer.send("t", b"waits", partition=0)
            began = world.now
            raised = await fail_offsets(world, producer, ProducerFencedError)
            with pytest.raises(ProducerFencedError) as caught:
                await delivery
            assert world.now - began < 1
            assert caught.value is not raised
            await producer.restart()

    run(scenario, level)


@levels
def test_a_record_that_was_not_sent_names_the_error_that_requires_an_abort(level: int) -> None:
    async def scenario(world: World) -> None:
        async with world.producer(transactional_id="t-1", linger_ms=60_000) as producer:
            await producer.begin_transaction()
            delivery = producer.send("t", b"waits", partition=0)
            began = world.now
            raised = await fail_offsets(world, producer, TransactionAbortableError)
            with pytest.raises(AbortableError, match="an earlier error requires") as caught:
                await delivery
            assert world.now - began < 1
            assert caught.value.__cause__ is raised
            await producer.abort_transaction()

    run(scenario, level)


@levels
def test_an_abort_ends_soon_after_a_record_in_flight_was_refused(level: int) -> None:
    async def scenario(world: World) -> None:
        async with world.producer(transactional_id="t-1", linger_ms=0) as producer:
            await producer.begin_transaction()
            await producer.send("t", b"first", partition=0)
            with (
                world.cluster.fail(ApiKey.PRODUCE, NotLeaderOrFollowerError, times=1),
                world.cluster.delay(ApiKey.PRODUCE, 0.5, when="after", times=1),
            ):
                began, delivery = world.now, producer.send("t", b"refused", partition=0)
                await world.cluster.until(
                    lambda: bool(world.requests(ApiKey.PRODUCE, since=began)), 10
                )
                await producer.abort_transaction()
            assert world.now - began < 0.8
            with pytest.raises(AbortableError, match="NOT_LEADER_OR_FOLLOWER"):
                await delivery

    run(scenario, level)


@levels
def test_an_abort_drops_a_record_whose_connection_is_lost_within_a_moment(level: int) -> None:
    async def scenario(world: World) -> None:
        async with world.producer(transactional_id="t-1", linger_ms=0) as producer:
            await producer.begin_transaction()
            await producer.send("t", b"first", partition=0)
            delivery = await in_flight(world, producer)
            aborting = asyncio.ensure_future(producer.abort_transaction())
            await asyncio.sleep(0.05)
            assert not aborting.done()
            began = world.now
            world.cluster.disconnect()
            await aborting
            assert world.now - began < 0.5
            with pytest.raises(AbortableError):
                await delivery

    run(scenario, level)
