"""Tests of start, end, threads, event loops, shared clients, and failure.

They run on simulated and embedded clusters.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from loop_time import check_held, held_times, measured
from world import World, simulate

from aiokclient import Client, Producer, State
from aiokclient.errors import (
    ClosedError,
    ClusterAuthorizationError,
    ConfigError,
    DeliveryErrors,
    DeliveryTimeoutError,
    KafkaError,
    RecordTooLargeError,
    UnsupportedVersionError,
    WrongThreadError,
)
from aiokclient.protocol import ApiKey
from aiokclient.testing import EmbeddedCluster


def test_leaving_by_an_exception_flushes_within_the_bound_and_raises_it() -> None:
    async def scenario(world: World) -> None:
        delivered: list[Any] = []
        with pytest.raises(ZeroDivisionError):
            await leave_by(world, ZeroDivisionError(), delivered)
        assert delivered[0].offset == 1
        producer = await world.producer(close_timeout_ms=2000)
        await producer.send("t", b"x")
        world.cluster.pause(1)
        began = world.now
        lost = producer.send("t", b"lost")
        await producer.__aexit__(ZeroDivisionError, ZeroDivisionError(), None)
        assert 1.999 < world.now - began < 3.5  # The lower bound allows for the rounding of floats.
        assert isinstance(lost.exception(), ClosedError)
        world.cluster.resume(1)

    simulate(scenario)


async def leave_by(world: World, error: Exception, delivered: list[Any]) -> None:
    async with world.producer() as producer:
        await producer.send("t", b"x")
        delivered.append(producer.send("t", b"y"))
        raise error


def test_close_is_bounded_and_raises_nothing_for_deliveries() -> None:
    async def scenario(world: World) -> None:
        producer = await world.producer()
        await producer.send("t", b"x")
        world.cluster.pause(1)
        delivery = producer.send("t", b"y")
        waiting = asyncio.ensure_future(
            asyncio.gather(producer.flush(), delivery, return_exceptions=True)
        )
        await asyncio.sleep(0)
        began = world.now
        await producer.close(timeout=3)
        assert 3 <= world.now - began < 4.5
        flushed, outcome = await waiting
        assert flushed is None
        assert isinstance(outcome, ClosedError)
        await producer.close()
        world.cluster.resume(1)

    simulate(scenario)


async def wait(delivery: Any) -> Any:
    return await delivery


def test_an_unretrieved_failure_at_close_is_not_raised_but_by_async_with() -> None:
    async def scenario(world: World) -> None:
        producer = await world.producer(delivery_timeout_ms=1000)
        await producer.send("t", b"x")
        world.cluster.pause(1)
        producer.send("t", b"y")
        await producer.close()
        with pytest.raises(DeliveryErrors, match="delivery that was never retrieved") as caught:
            await producer.__aexit__(None, None, None)
        assert isinstance(caught.value.exceptions[0], DeliveryTimeoutError)
        world.cluster.resume(1)

    simulate(scenario)


def test_producers_can_share_a_client() -> None:
    async def scenario(world: World) -> None:
        async with world.client() as client:
            one = await Producer(client=client, linger_ms=60_000)
            async with Producer(client=client) as two:
                await two.send("t", b"x")
            delivery = one.send("t", b"y")
            with pytest.raises(ConfigError, match="option of the client"):
                Producer(client=client, bootstrap_servers="h:1")
        assert delivery.done(), "closing the client closes its producers, which flush"
        assert one.state is State.CLOSED
        assert len(world.cluster.records("t")) == 2

    simulate(scenario)


def test_a_producer_that_may_not_be_idempotent() -> None:
    async def scenario(world: World) -> None:
        async with world.producer() as producer:
            await producer.send("t", b"x")
        with world.cluster.fail(ApiKey.INIT_PRODUCER_ID, ClusterAuthorizationError) as fault:
            async with world.producer() as producer:
                with pytest.raises(ClusterAuthorizationError):
                    await asyncio.wait_for(producer.send("t", b"x"), 5)
                fault.remove()
                assert (await producer.send("t", b"y")).offset == 1

    simulate(scenario)


def test_brokers_without_idempotent_producers() -> None:
    async def scenario(world: World) -> None:
        world.cluster.limit_versions({ApiKey.INIT_PRODUCER_ID: None})
        async with world.producer() as producer:
            with pytest.raises(UnsupportedVersionError, match="enable_idempotence=False"):
                await asyncio.wait_for(producer.send("t", b"x"), 5)
        async with world.producer(enable_idempotence=False) as producer:
            assert (await producer.send("t", b"y")).offset == 0

    simulate(scenario)


def test_what_fails_a_producer_fails_all_that_waits() -> None:
    async def scenario(world: World) -> None:
        producer = await world.producer()
        await producer.send("t", b"x")
        world.cluster.pause(1)
        delivery = producer.send("t", b"y")
        waiting = asyncio.ensure_future(wait(delivery))
        await asyncio.sleep(0)

        async def dies() -> None:
            raise ZeroDivisionError("a bug")

        producer._supervisor.spawn(dies, name="dies")
        with pytest.raises(KafkaError, match="a bug"):
            await waiting
        assert producer.state is State.FAILED
        for use in (lambda: producer.send("t", b"z"), lambda: producer.send_many("t", [b"z"])):
            with pytest.raises(ZeroDivisionError):
                use()
        with pytest.raises(ZeroDivisionError):
            await producer.drain()
        world.cluster.resume(1)
        await producer.close()

    simulate(scenario)


@pytest.fixture(scope="module")
def cluster() -> Any:
    with EmbeddedCluster(brokers=1, topics={"t": 2}) as cluster:
        yield cluster


async def test_send_threadsafe_keeps_the_order_of_a_thread_in_which_send_raises(
    cluster: EmbeddedCluster,
) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:

        def work() -> list[int]:
            with pytest.raises(WrongThreadError, match="send_threadsafe"):
                producer.send("t", b"x")
            with pytest.raises(WrongThreadError):
                producer.send_many("t", [b"x"])
            futures = [producer.send_threadsafe("t", b"%d" % i, partition=1) for i in range(100)]
            with pytest.raises(RecordTooLargeError):
                producer.send_threadsafe("t", b"x" * 2_000_000).result(10)
            return [future.result(10).offset for future in futures]

        offsets = await asyncio.to_thread(work)
        assert offsets == list(range(100)), "records keep the order in which the thread sent them"

        def other_loop() -> None:
            async def send() -> None:
                producer.send("t", b"x")

            with pytest.raises(WrongThreadError):
                asyncio.run(send())

        await asyncio.to_thread(other_loop)


@measured
@pytest.mark.parametrize("known", [True, False])
def test_sends_never_block_the_loop_for_long(cluster: EmbeddedCluster, known: bool) -> None:
    async def work() -> None:
        failed: list[Any] = []
        options: Any = {"batch_size": 1_000_000, "compression_type": "gzip"}
        async with (
            Client(bootstrap_servers=cluster.bootstrap_servers) as client,
            Producer(client=client, **options) as producer,
            Producer(
                client=client, on_delivery_error=failed.append, max_block_ms=300, **options
            ) as failing,
        ):
            if known:
                await producer.prepare("t")
            deliveries: list[Any] = []
            lost: list[Any] = []
            for _ in range(100):
                deliveries += producer.send_many("t", [b"v"] * 300)
                lost += failing.send_many("nowhere", [b"v"] * 300)
                await asyncio.sleep(0)
            assert len(await producer.gather(deliveries)) == 30_000
            results = await failing.gather(lost, return_exceptions=True)
            assert sum(isinstance(result, KafkaError) for result in results) == 30_000
            await asyncio.sleep(0)
        assert len(failed) == 30_000

    with held_times() as times:
        asyncio.run(work())
    check_held(times)
