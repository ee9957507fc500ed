"""Tests that records do not remain unsent when nothing prevents them from being sent."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest
from world import World, simulate

from aiokclient import Producer
from aiokclient.errors import (
    ClosedError,
    CoordinatorLoadInProgressError,
    DeliveryTimeoutError,
    KafkaError,
)
from aiokclient.protocol import ApiKey

MEMORY = 200_000
UNNUMBERED: dict[str, Any] = {"acks": 0, "enable_idempotence": False, "linger_ms": 0}


def test_a_connection_that_was_lost_while_nothing_waited() -> None:
    """A lost connection does not keep a large record from being sent.

    Only a send opens the connection again.
    """

    async def scenario(world: World) -> None:
        async with world.producer(buffer_memory=20_000) as producer:
            await producer.prepare("t")
            await producer.send("t", bytes(6_000))
            world.network.cut()
            await asyncio.sleep(1)
            assert (await producer.send("t", bytes(6_000))).offset == 1
            world.network.cut()
            await asyncio.sleep(1)
            (delivery,) = producer.send_many("t", [bytes(12_000)])
            assert (await delivery).offset == 2

    simulate(scenario)


def test_a_broker_whose_connection_was_lost_while_nothing_waited_gets_its_share() -> None:
    """Records without a key avoid partitions whose records cannot be sent."""

    async def scenario(world: World) -> None:
        async with world.producer(batch_size=100) as producer:
            await producer.prepare("t")
            await producer.gather([producer.send("t", b"x", partition=p) for p in range(2)])
            world.network.cut(world.address(2))
            await asyncio.sleep(1)
            sent = [await producer.send("t", bytes(100)) for _ in range(50)]
            assert {metadata.partition for metadata in sent} == {0, 1}

    simulate(scenario, brokers=2, topics={"t": 2})


def test_what_cannot_be_sent_makes_room_for_what_can() -> None:
    async def scenario(world: World) -> None:
        cluster = world.cluster
        dead = 3 - cluster.leader("alive")
        options = {"request_timeout_ms": 3_000, "delivery_timeout_ms": 5_000}
        async with world.producer(buffer_memory=MEMORY, **options) as producer:
            await producer.prepare("alive")
            await producer.prepare("dead")
            led = [index for index in range(4) if cluster.leader("dead", index) == dead]
            await producer.gather([producer.send("dead", b"x", partition=p) for p in led])
            cluster.pause(dead)
            lost = [producer.send("dead", b"x", partition=partition) for partition in led]
            await asyncio.sleep(1.5)
            for partition in led:
                lost.append(producer.send("dead", b"x", partition=partition))
                while not producer.full:
                    lost.append(producer.send("dead", bytes(950), partition=partition))
            await asyncio.sleep(2)
            delivery = producer.send("alive", bytes(MEMORY * 6 // 10))
            assert producer.full
            assert (await delivery).offset == 0
            await producer.gather(lost, return_exceptions=True)
            cluster.resume(dead)

    simulate(scenario, brokers=2, topics={"alive": 1, "dead": 4})


def test_send_all_ends_with_the_producer_though_the_client_lives_on() -> None:
    async def scenario(world: World) -> None:
        async with world.client() as client:
            producer = await Producer(client=client, buffer_memory=20_000)
            await producer.send("t", b"x")
            world.cluster.pause(1)
            producer.send("t", bytes(2_000))
            await asyncio.sleep(2)
            sending = asyncio.create_task(producer.send_all("t", [bytes(5_000)] * 20))
            await asyncio.sleep(1)
            began = world.now
            await producer.close(timeout=1)
            with pytest.raises(ClosedError):
                await sending
            assert world.now - began < 1.1
            world.cluster.resume(1)

    simulate(scenario)


@pytest.mark.parametrize("way", ["closed", "failed"])
def test_prepare_ends_with_the_producer_though_the_client_lives_on(way: str) -> None:
    async def scenario(world: World) -> None:
        async with world.client() as client:
            producer = await Producer(client=client)
            preparing = asyncio.create_task(producer.prepare("nowhere"))
            await asyncio.sleep(1)
            began = world.now
            if way == "closed":
                await producer.close()
            else:
                producer._supervisor.fail(ZeroDivisionError(), "a test")
            with pytest.raises(KafkaError, match=r"closed|ZeroDivisionError"):
                await preparing
            assert world.now - began < 0.1

    simulate(scenario)


def test_a_closed_producer_stays_with_nobody() -> None:
    async def scenario(world: World) -> None:
        async with world.client() as client:
            producer = await Producer(client=client)
            await producer.send("t", b"x")
            engine = weakref.ref(producer._engine.accumulator)  # type: ignore[union-attr]
            await producer.close()
            del producer
            await asyncio.sleep(1)
            gc.collect()
            assert engine() is None

    simulate(scenario)


def test_producer_with_acks_0_recovers_when_a_shared_connection_seemed_silent() -> None:
    """A producer with acks=0 recovers when another producer's requests made the broker seem silent.

    The two producers share a connection. The producer with acks=0 gets no responses
    that would show that the broker is alive.
    """

    async def scenario(world: World) -> None:
        async with world.client() as client:
            one = await Producer(client=client, **UNNUMBERED)
            other = await Producer(client=client, linger_ms=0)
            await one.send("t", b"x")
            await other.send("t", b"x")
            (sender,) = one._engine.senders.values()  # type: ignore[union-attr]
            with world.cluster.throttle(ApiKey.PRODUCE, 2, times=1):
                unanswered = [other.send("t", b"x") for _ in range(2)]
                await asyncio.sleep(0)
                unanswered.append(other.send("t", b"x"))
                await unanswered[0]
                held = one.send("t", b"x")
                await asyncio.sleep(1.5)
                assert sender.unsendable
                await held
            await other.gather(unanswered)
            assert not sender.unsendable

    simulate(scenario)


def test_connection_is_closed_when_writes_make_no_progress() -> None:
    async def scenario(world: World) -> None:
        options = {"request_timeout_ms": 3_000, "delivery_timeout_ms": 20_000, **UNNUMBERED}
        async with world.producer(**options) as producer:
            await producer.send("t", b"x")
            (sender,) = producer._engine.senders.values()  # type: ignore[union-attr]
            connection: Any = sender._connection.current
            world.network.part(["client"], [world.address(1)])
            for _ in range(80):
                producer.send("t", bytes(9_000))
                await asyncio.sleep(0.01)
            assert not connection.closed
            await asyncio.sleep(4)
            assert connection.closed
            assert sender.unsendable
            world.network.heal()
            await producer.flush()
            await producer.send("t", b"y")
            await asyncio.sleep(1)
        assert world.cluster.records("t")[-1].value == b"y"

    simulate(scenario)


def test_a_producer_id_is_waited_for_as_long_as_the_records_may_wait() -> None:
    async def scenario(world: World) -> None:
        with world.cluster.fail(ApiKey.INIT_PRODUCER_ID, CoordinatorLoadInProgressError) as fault:
            async with world.producer(default_api_timeout_ms=5_000) as producer:
                lost = producer.send("t", b"lost")
                await asyncio.sleep(119)
                delivery = producer.send("t", b"x")
                with pytest.raises(DeliveryTimeoutError, match="producer id"):
                    await lost
                assert 119 < world.now < 121
                await asyncio.sleep(20)
                fault.remove()
                assert (await delivery).offset == 0

    simulate(scenario)
