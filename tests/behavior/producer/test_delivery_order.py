"""The order of callbacks and waiters of a producer, and calls from other threads and loops."""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest
from loops import eager

from aiokclient import AnyBroker, Client, Producer, State
from aiokclient.errors import (
    ConfigError,
    TopicAuthorizationError,
    WrongLoopError,
    WrongThreadError,
)
from aiokclient.protocol import ApiKey, messages
from aiokclient.testing import EmbeddedCluster

Make = Callable[..., Producer[Any, Any]]
KINDS = ["lazy", "eager"] if sys.version_info >= (3, 12) else ["lazy"]


@pytest.fixture(params=KINDS)
async def factory(request: pytest.FixtureRequest) -> None:
    """Set the loop's task factory: lazy or eager."""
    loop = asyncio.get_running_loop()
    if request.param == "eager":
        eager(loop)
    else:
        loop.set_task_factory(None)


@pytest.mark.usefixtures("factory")
class TestFlush:
    @pytest.mark.parametrize("fails", [False, True])
    async def test_flush_returns_after_the_callbacks_of_all_partitions(
        self, make: Make, wide: str, cluster: EmbeddedCluster, fails: bool
    ) -> None:
        called: list[Any] = []
        async with make(linger_ms=1000, on_delivery_error=lambda delivery: None) as producer:
            for known in (False, True):
                if fails:
                    cluster.fail(ApiKey.PRODUCE, TopicAuthorizationError)
                deliveries = [
                    producer.send(wide, b"v", partition=number % 4) for number in range(40)
                ]
                for delivery in deliveries:
                    delivery.add_done_callback(called.append)
                await producer.flush()
                assert set(called) == set(deliveries), known
                assert all(isinstance(d.exception(), Exception) is fails for d in deliveries)
                called.clear()
                cluster.reset()

    async def test_flush_returns_after_the_callbacks_of_completed_deliveries(
        self, make: Make, topic: str
    ) -> None:
        called: list[Any] = []
        async with make() as producer:
            delivery = await_done = producer.send(topic, b"v")
            await await_done
            delivery.add_done_callback(called.append)
            await producer.flush()
            assert called == [delivery]

    async def test_each_way_to_wait_returns_after_the_callbacks(
        self, make: Make, wide: str
    ) -> None:
        called: list[Any] = []
        async with make() as producer:
            for known in (False, True):
                for wait in (
                    producer.gather,
                    lambda all_of: asyncio.gather(*all_of),
                    lambda all_of: asyncio.wait(all_of),
                ):
                    deliveries = [producer.send(wide, b"v", partition=n % 4) for n in range(20)]
                    for delivery in deliveries:
                        delivery.add_done_callback(called.append)
                    await wait(deliveries)
                    assert set(called) == set(deliveries), known
                    called.clear()

    async def test_callbacks_have_run_when_the_producer_is_closed(
        self, make: Make, topic: str, cluster: EmbeddedCluster
    ) -> None:
        called: list[Any] = []
        producer = await make()
        await producer.prepare(topic)
        cluster.pause(1)
        delivery = producer.send(topic, b"v")
        delivery.add_done_callback(called.append)
        await producer.close(0.01)
        assert called == [delivery]


@pytest.mark.parametrize("debug", [False, True])
def test_an_await_in_another_thread_is_refused_without_effect(
    make: Make, topic: str, debug: bool
) -> None:
    async def main() -> None:
        async with make(linger_ms=60_000) as producer:
            await producer.send(topic, b"connected")
            delivery = producer.send(topic, b"v")

            async def wait() -> None:
                await delivery

            async def gather() -> None:
                await producer.gather([delivery])

            async def add() -> None:
                delivery.add_done_callback(print)

            def elsewhere() -> None:
                for use in (wait, gather, add):
                    with pytest.raises((WrongLoopError, WrongThreadError), match="send_threadsafe"):
                        asyncio.run(use(), debug=debug)
                with pytest.raises(WrongThreadError, match="send_threadsafe"):
                    delivery.add_done_callback(print)

            await asyncio.to_thread(elsewhere)
            assert not delivery.done()
            assert (await asyncio.wait_for(delivery, 30)).offset == 1
            assert (await asyncio.wait_for(producer.send(topic, b"w"), 30)).offset == 2

    asyncio.run(main(), debug=debug)


@pytest.mark.parametrize("debug", [False, True])
def test_an_await_in_another_loop_of_the_thread_is_refused_without_effect(
    make: Make, topic: str, debug: bool
) -> None:
    with asyncio.Runner(debug=debug) as home, asyncio.Runner(debug=debug) as other:
        producer = make(linger_ms=60_000)
        home.run(producer.start())

        async def send() -> Any:
            await producer.send(topic, b"connected")
            return producer.send(topic, b"v")

        delivery = home.run(send())

        async def wait() -> Any:
            return await asyncio.wait_for(delivery, 30)

        with pytest.raises(WrongLoopError):
            other.run(wait())
        assert home.run(wait()).offset == 1
        home.run(producer.close())


async def test_asyncio_wait_works_on_the_handle_of_a_request(cluster: EmbeddedCluster) -> None:
    async with Client(bootstrap_servers=cluster.bootstrap_servers) as client:
        handle = client.send(messages.DescribeClusterRequest(), to=AnyBroker())
        called: list[Any] = []
        for _ in range(2):
            handle.add_done_callback(called.append)
        assert handle.remove_done_callback(called.append) == 2
        handle.add_done_callback(called.append)
        done, pending = await asyncio.wait([handle], timeout=30)
        assert (done, pending) == ({handle}, set())
        assert not handle.cancelled()
        assert called == [handle]


def test_a_delivery_timeout_below_linger_is_refused() -> None:
    options: dict[str, Any] = {"bootstrap_servers": "localhost:9092", "linger_ms": 20}
    with pytest.raises(ConfigError, match=r"delivery_timeout_ms.* below linger_ms"):
        Producer(**options, delivery_timeout_ms=19)
    assert Producer(**options, delivery_timeout_ms=20).state is State.NEW
