"""Tests of recovery from leader changes, sequence errors, and refusals, on a simulated cluster."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from driver import Writer
from world import World, simulate

from aiokclient.errors import (
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    RequestTimedOutError,
)
from aiokclient.producer.batching.sequences import MAX_EPOCH
from aiokclient.protocol import ApiKey
from aiokclient.record.batch import walk


def numbers(world: World, partition: int = 0) -> list[tuple[int, int, int]]:
    """Return the producer id, epoch, and first sequence of each batch in the log."""
    batches = [
        walk(buffer)[0] for _, buffer, _ in world.cluster._data._read_batches("t", partition, 0)
    ]
    return [(b.producer_id, b.producer_epoch, b.base_sequence) for b in batches]


@pytest.mark.fault(3)
def test_a_named_leader_is_used_at_once() -> None:
    """The error names the new leader (KIP-951), so no metadata request or backoff is necessary."""

    async def scenario(world: World) -> None:
        async with world.producer(linger_ms=0, retry_backoff_ms=10_000) as producer:
            await producer.send("t", b"x")
            world.cluster.move_leader("t", 0)
            began = world.now
            assert (await producer.send("t", b"y")).offset == 1
            assert world.now - began < 0.1
            assert not world.requests(ApiKey.METADATA, since=began)

    simulate(scenario, brokers=3)


@pytest.mark.fault(3, 14)
def test_what_is_in_flight_to_a_hung_leader_follows_the_next_one() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(linger_ms=0, metadata_max_age_ms=500) as producer:
            writer = Writer(producer, world.ledger, [("t", 0)], pause=0.01)
            await writer.run(20)
            leader = world.cluster.leader("t", 0)
            world.cluster.pause(leader)
            task = asyncio.create_task(writer.run(100))
            await asyncio.sleep(0.2)
            world.cluster.move_leader("t", 0)
            began = world.now
            await task
            await world.ledger.until(120)
            assert world.now - began < 5, "the call ends long before the request timeout of 30 s"
            world.cluster.resume(leader)
        world.check()

    simulate(scenario, brokers=3)


@pytest.mark.fault(8)
def test_a_lost_batch_costs_an_epoch_and_nothing_else() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(linger_ms=0, delivery_timeout_ms=2000) as producer:
            await producer.send("t", b"0")
            with (
                world.cluster.fail(ApiKey.PRODUCE, NotEnoughReplicasError),
                pytest.raises(TimeoutError),
            ):
                await producer.send("t", b"lost")
            for value in (b"1", b"2"):
                await producer.send("t", value)
        assert [record.value for record in world.cluster.records("t")] == [b"0", b"1", b"2"]
        first, second, third = numbers(world)
        assert second == (first[0], first[1] + 1, 0)
        assert third == (first[0], first[1] + 1, 1)

    simulate(scenario)


@pytest.mark.fault(8)
def test_past_the_last_epoch_comes_another_producer_id() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(linger_ms=0, delivery_timeout_ms=2000) as producer:
            await producer.send("t", b"0", partition=0)
            await producer.send("t", b"0", partition=1)
            producer._topics["t"].queues[0].sequences.epoch = MAX_EPOCH
            assert (await producer.send("t", b"1", partition=0)).offset == 1
            assert (await producer.send("t", b"1", partition=1)).offset == 1
        (old, _, _), (new, epoch, sequence) = numbers(world)
        assert new != old
        assert (epoch, sequence) == (0, 0)
        assert numbers(world, 1) == [(old, 0, 0), (old, 0, 1)], (
            "the other partitions keep their sequences"
        )

    simulate(scenario, topics={"t": 2})


@pytest.mark.fault(2)
@pytest.mark.parametrize(
    "error", [RequestTimedOutError, NotEnoughReplicasAfterAppendError, NotEnoughReplicasError]
)
def test_refusals_after_and_before_the_append(error: Any) -> None:
    async def scenario(world: World) -> None:
        code = error.code

        def appended(request: Any, response: Any) -> Any:
            response.responses[0].partition_responses[0].error_code = code
            return response

        async with world.producer(linger_ms=0, batch_size=300) as producer:
            writer = Writer(producer, world.ledger, [("t", 0)])
            await writer.run(5)
            with (
                world.cluster.alter(ApiKey.PRODUCE, appended, times=3)
                if error is not NotEnoughReplicasError
                else world.cluster.fail(ApiKey.PRODUCE, error, times=3)
            ):
                await writer.run(50)
                await producer.flush()
        assert len(world.ledger.acknowledged) == 55
        world.check()

    simulate(scenario)


def test_without_idempotence_retries_keep_the_order() -> None:
    async def scenario(world: World) -> None:
        options = {"enable_idempotence": False, "max_in_flight_requests_per_connection": 1}
        async with world.producer(linger_ms=0, batch_size=300, **options) as producer:
            writer = Writer(producer, world.ledger, [("t", 0)])
            await writer.run(5)
            world.cluster.fail(ApiKey.PRODUCE, NotEnoughReplicasError, times=3)
            await writer.run(50)
            await producer.flush()
        world.check()
        assert {each[0] for each in numbers(world)} == {-1}

    simulate(scenario)


def test_a_silent_broker_gets_no_records_without_a_key() -> None:
    async def scenario(world: World) -> None:
        of = {world.cluster.leader("t", p): p for p in range(3)}
        options = {"partitioner_availability_timeout_ms": 100, "batch_size": 100, "linger_ms": 0}
        async with world.producer(**options) as producer:
            await producer.gather([producer.send("t", b"x", partition=p) for p in range(3)])
            world.cluster.pause(2)
            producer.send("t", b"x", partition=of[2])
            await asyncio.sleep(0.2)
            deliveries = [producer.send("t", b"y" * 200) for _ in range(60)]
            chosen = {delivery.partition for delivery in deliveries}
            assert chosen == {of[1], of[3]}
            world.cluster.resume(2)
            await producer.flush()

    simulate(scenario, brokers=3, topics={"t": 3})
