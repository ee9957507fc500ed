"""Leader epochs that go back, because an unclean leader announced a higher one and died."""

import asyncio
from typing import Any

import pytest
from world import World, simulate

from aiokclient import Consumer
from aiokclient.errors import NotLeaderOrFollowerError
from aiokclient.protocol import ApiKey
from aiokclient.protocol.messages.produce import NodeEndpoint
from aiokclient.types import State

HIGH = 99
BOUND_S = 10.0
"""Seconds after which the client must follow what all brokers say."""


def leads(world: World, leader: int, epoch: int) -> Any:
    """Let all brokers name this leader and epoch in metadata, until the fault ends."""

    def name(request: Any, response: Any) -> Any:
        for topic in response.topics:
            for partition in topic.partitions:
                partition.leader_id, partition.leader_epoch = leader, epoch
        return response

    return world.cluster.alter(ApiKey.METADATA, name)


async def learns(client: Any, leader: int) -> None:
    """Wait until the client knows the announced leader."""
    cluster = client._cluster
    await cluster.updater.refresh(["t"], timeout=30)
    assert cluster.metadata.find_leader_epoch("t", 0) == HIGH
    assert cluster.metadata.find_leader("t", 0) == leader


@pytest.mark.parametrize("dead", [True, False], ids=["dead", "alive"])
@pytest.mark.parametrize("brokers", [2, 3, 5])
def test_delivery_and_reading_continue_after_a_leader_epoch_went_back(
    brokers: int, dead: bool
) -> None:
    async def scenario(world: World) -> None:
        world.cluster.move_leader("t", to=1)
        async with world.producer() as producer, world.consumer("t") as consumer:
            await producer.send("t", b"1")
            assert [r.value for r in await read(consumer, 1)] == [b"1"]
            announced = brokers if dead else 1
            with leads(world, announced, HIGH):
                await learns(producer, announced)
                await learns(consumer, announced)
            if dead:
                world.cluster.stop(announced)
            began = world.now
            await producer.send("t", b"2")
            assert [r.value for r in await read(consumer, 1)] == [b"2"]
            assert world.now - began < BOUND_S
            await asyncio.sleep(5.0)
            assert consumer.health().state is State.RUNNING
            assert producer.health().state is State.RUNNING
            # The next epoch is still below the announced one.
            world.cluster.bump_epoch("t") if brokers == 2 else world.cluster.move_leader("t")
            began = world.now
            await producer.send("t", b"3")
            assert [r.value for r in await read(consumer, 1)] == [b"3"]
            assert world.now - began < 3.0

    simulate(scenario, brokers=brokers)


def test_delivery_continues_after_an_answer_to_produce_named_a_leader_that_died() -> None:
    """KIP-951: the epoch comes from a response of another API."""

    async def scenario(world: World) -> None:
        world.cluster.move_leader("t", to=1)
        address = world.cluster.address(3)

        def hint(request: Any, response: Any) -> Any:
            for topic in response.responses:
                for partition in topic.partition_responses:
                    partition.error_code = NotLeaderOrFollowerError.code
                    partition.current_leader.leader_id = 3
                    partition.current_leader.leader_epoch = HIGH
            host, port = address
            response.node_endpoints = [NodeEndpoint(node_id=3, host=host, port=port)]
            return response

        async with world.producer() as producer:
            await producer.send("t", b"1")
            with world.cluster.alter(ApiKey.PRODUCE, hint, times=1):
                began = world.now
                delivery = producer.send("t", b"2")
                await world.cluster.until(
                    lambda: producer._cluster.metadata.find_leader_epoch("t", 0) == HIGH, 10
                )
                world.cluster.stop(3)
                await delivery
            assert world.now - began < BOUND_S

    simulate(scenario, brokers=3)


def test_one_broker_with_older_metadata_moves_no_leader() -> None:
    async def scenario(world: World) -> None:
        world.cluster.move_leader("t", to=2)

        def older(request: Any, response: Any) -> Any:
            for topic in response.topics:
                for partition in topic.partitions:
                    partition.leader_id, partition.leader_epoch = 1, partition.leader_epoch - 1
            return response

        async with world.producer() as producer:
            await producer.send("t", b"1")
            cluster = producer._cluster
            with world.cluster.alter(ApiKey.METADATA, older, broker=1):
                for _ in range(100):
                    cluster.updater.request_update(["t"])
                    await asyncio.sleep(0.3)
                    assert cluster.metadata.find_leader("t", 0) == 2

    simulate(scenario, brokers=3)


async def read(consumer: Consumer[Any, Any], count: int) -> list[Any]:
    found: list[Any] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found += await consumer.poll()
    return found
