"""Leaving `async with` normally, by an error, or by a cancellation; `close()`; shared Clients."""

import asyncio
import math
import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from aiokclient import Admin, AnyBroker, Client, Consumer, Producer, State
from aiokclient.errors import (
    BootstrapError,
    ClosedError,
    DeliveryErrors,
    IllegalStateError,
    KafkaError,
    TopicAuthorizationError,
)
from aiokclient.protocol import ApiKey, messages
from aiokclient.testing import EmbeddedCluster

Make = Callable[..., Producer[Any, Any]]
Values = Callable[[str], list[bytes | None]]


class Boom(Exception):
    pass


class TestLeaving:
    async def test_leaving_normally_delivers_all_records(
        self, make: Make, topic: str, values: Values
    ) -> None:
        async with make(linger_ms=60_000) as producer:
            deliveries = [producer.send(topic, b"%d" % i) for i in range(100)]
            assert producer.state is State.RUNNING
        assert producer.state is State.CLOSED
        assert all(each.done() for each in deliveries)
        assert values(topic) == [b"%d" % i for i in range(100)]

    async def test_leaving_normally_waits_longer_than_close_timeout_ms(
        self, make: Make, topic: str, cluster: EmbeddedCluster, values: Values
    ) -> None:
        async with make(close_timeout_ms=0) as producer:
            await producer.prepare(topic)
            producer.send(topic, b"v")
            cluster.delay(ApiKey.PRODUCE, 0.05, times=1)
        assert values(topic) == [b"v"]

    async def test_leaving_by_an_exception_delivers_within_the_timeout_and_raises_it(
        self, make: Make, topic: str, values: Values
    ) -> None:
        async def run() -> None:
            async with make(linger_ms=60_000) as producer:
                producer.send(topic, b"v")
                raise Boom

        with pytest.raises(Boom):
            await run()
        assert values(topic) == [b"v"]

    @pytest.mark.parametrize("how", ["exception", "task", "anyio"])
    async def test_records_left_at_the_timeout_fail_with_closed_error(
        self, make: Make, topic: str, cluster: EmbeddedCluster, how: str
    ) -> None:
        deliveries: list[Any] = []
        entered = asyncio.Event()

        async def run() -> None:
            async with make(close_timeout_ms=30) as producer:
                await producer.prepare(topic)
                cluster.pause(1)
                deliveries.append(producer.send(topic, b"v"))
                entered.set()
                if how == "exception":
                    raise Boom
                await asyncio.Event().wait()

        if how == "anyio":
            async with anyio.create_task_group() as group:
                group.start_soon(run)
                await entered.wait()
                group.cancel_scope.cancel()
        else:
            task = asyncio.create_task(run())
            await entered.wait()
            if how == "task":
                task.cancel()
            with pytest.raises(Boom if how == "exception" else asyncio.CancelledError):
                await task
        (delivery,) = deliveries
        assert isinstance(delivery.exception(), ClosedError)

    @pytest.mark.parametrize("how", ["task", "anyio"])
    async def test_leaving_by_a_cancellation_still_delivers(
        self, make: Make, topic: str, cluster: EmbeddedCluster, how: str, values: Values
    ) -> None:
        entered = asyncio.Event()

        async def run() -> None:
            async with make(linger_ms=60_000) as producer:
                await producer.prepare(topic)
                cluster.delay(ApiKey.PRODUCE, 0.05, times=1)
                producer.send(topic, b"v")
                entered.set()
                await asyncio.Event().wait()

        if how == "task":
            task = asyncio.create_task(run())
            await entered.wait()
            task.cancel()
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            async with anyio.create_task_group() as group:
                group.start_soon(run)
                await entered.wait()
                group.cancel_scope.cancel()
        assert values(topic) == [b"v"]

    async def test_the_exception_of_the_block_takes_precedence_over_failed_deliveries(
        self, make: Make, topic: str, cluster: EmbeddedCluster
    ) -> None:
        cluster.fail(ApiKey.PRODUCE, TopicAuthorizationError)

        async def run() -> None:
            async with make() as producer:
                producer.send(topic, b"v")
                raise Boom

        with pytest.raises(Boom) as caught:
            await run()
        assert not isinstance(caught.value.__cause__, DeliveryErrors)


class TestClose:
    async def test_close_delivers_as_leaving_does(
        self, make: Make, topic: str, values: Values
    ) -> None:
        producer = make(linger_ms=60_000)
        assert await producer is producer
        delivery = producer.send(topic, b"v")
        await producer.close()
        assert delivery.result().offset == 0
        assert producer.state is State.CLOSED
        assert values(topic) == [b"v"]

    async def test_close_is_idempotent(self, make: Make, topic: str) -> None:
        producer = make()
        await producer.start()
        producer.send(topic, b"v")
        await asyncio.gather(*(producer.close() for _ in range(5)))
        await producer.close()
        await producer.close(0)
        await producer.close(math.inf)

    async def test_close_is_allowed_within_the_block(self, make: Make, topic: str) -> None:
        async with make() as producer:
            await producer.send(topic, b"v")
            await producer.close()
        assert producer.state is State.CLOSED

    @pytest.mark.parametrize("timeout", [0, 0.03])
    async def test_close_of_a_producer_ends_within_its_timeout(
        self, make: Make, topic: str, cluster: EmbeddedCluster, timeout: float
    ) -> None:
        producer = await make()
        await producer.prepare(topic)
        cluster.pause(1)
        deliveries = producer.send_many(topic, [b"v"] * 1000)
        waiting_record = producer.send("not-known", b"v")
        waiting = asyncio.ensure_future(waiting_record)
        await producer.close(timeout)
        results = await producer.gather(deliveries, return_exceptions=True)
        assert {type(each) for each in results} == {ClosedError}
        with pytest.raises(ClosedError):
            await waiting

    async def test_a_second_close_of_a_producer_may_shorten_the_first(
        self, make: Make, topic: str, cluster: EmbeddedCluster
    ) -> None:
        producer = await make()
        await producer.prepare(topic)
        cluster.pause(1)
        delivery = producer.send(topic, b"v")
        closing = asyncio.create_task(producer.close(math.inf))
        await asyncio.sleep(0.01)
        assert not closing.done()
        await producer.close(0)
        await closing
        assert isinstance(delivery.exception(), ClosedError)

    async def test_calls_during_close_raise(
        self, make: Make, topic: str, cluster: EmbeddedCluster
    ) -> None:
        producer = await make()
        await producer.prepare(topic)
        cluster.delay(ApiKey.PRODUCE, 0.05, times=1)
        delivery = producer.send(topic, b"v")
        flushing = asyncio.create_task(producer.flush())
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        with pytest.raises(ClosedError):
            producer.send(topic, b"w")
        with pytest.raises(ClosedError):
            await producer.flush()
        await asyncio.gather(flushing, closing)
        assert delivery.result().offset == 0

    async def test_a_producer_that_was_never_started_can_be_closed(self, make: Make) -> None:
        producer = make()
        assert producer.state is State.NEW
        await producer.close()
        assert producer.state is State.CLOSED

    async def test_close_of_a_producer_leaves_no_task_or_thread(
        self, make: Make, topic: str
    ) -> None:
        tasks, threads = asyncio.all_tasks(), threading.active_count()
        async with make(compression_type="gzip") as producer:
            await producer.gather(producer.send_many(topic, [bytes(1000)] * 500))
        assert asyncio.all_tasks() == tasks
        assert threading.active_count() <= threads + 8, (
            "only threads of the library's thread pool may remain"
        )


class TestStarting:
    async def test_a_producer_can_be_started_in_three_ways(self, make: Make, topic: str) -> None:
        async with make() as one:
            await one.send(topic, b"1")
        two = make()
        await two.start()
        await two.start()
        await two.send(topic, b"2")
        await two.close()
        three = await make()
        await three.send(topic, b"3")
        await three.close()

    def test_a_producer_can_be_created_outside_of_a_loop(self, make: Make, topic: str) -> None:
        producer = make()
        assert producer.state is State.NEW
        assert producer.health().state is State.NEW

        async def main() -> None:
            async with producer:
                assert (await producer.send(topic, b"v")).offset == 0

        asyncio.run(main())
        assert producer.state is State.CLOSED

    async def test_start_raises_when_no_broker_is_reachable(self, unused_tcp_port: int) -> None:
        producer = Producer(
            bootstrap_servers=f"127.0.0.1:{unused_tcp_port}", default_api_timeout_ms=100
        )
        with pytest.raises(BootstrapError) as caught:
            await producer.start()
        assert isinstance(caught.value, TimeoutError)
        assert producer.state is State.NEW
        await producer.close()

    async def test_state_follows_start_and_close(
        self, make: Make, cluster: EmbeddedCluster
    ) -> None:
        producer = make(close_timeout_ms=0)
        starting = asyncio.create_task(producer.start())
        await asyncio.sleep(0)
        assert producer.state is State.STARTING
        await starting
        assert (producer.state, producer.health().reasons) == (State.RUNNING, ())
        cluster.stop(1)
        await becomes(producer, State.DEGRADED)
        assert producer.health().reasons
        cluster.start(1)
        await becomes(producer, State.RUNNING)
        await producer.close()
        assert producer.health().state is State.CLOSED


async def becomes(producer: Producer[Any, Any], state: State) -> None:
    async with asyncio.timeout(60):
        while producer.state is not state:  # noqa: ASYNC110 - no event tells of the state
            await asyncio.sleep(0.005)


class TestClient:
    async def test_a_client_closes_consumers_then_producers_then_admins(
        self, cluster: EmbeddedCluster, topic: str
    ) -> None:
        closed: list[Any] = []
        async with Client(bootstrap_servers=cluster.bootstrap_servers) as client:
            made: list[Any] = []
            for kind in (Producer, Admin, Consumer, Admin, Consumer, Producer):
                child: Any = kind(client=client)
                if kind is Consumer:
                    child.subscribe([topic])
                await child.start()
                made.append(child)
            for index, child in enumerate(made):
                watch(child, lambda index=index: closed.append(index))
        assert closed == [4, 2, 5, 0, 3, 1]
        assert {child.state for child in made} == {State.CLOSED}

    async def test_closing_a_child_leaves_the_client_open(
        self, cluster: EmbeddedCluster, topic: str
    ) -> None:
        async with Client(bootstrap_servers=cluster.bootstrap_servers) as client:
            async with Producer(client=client) as producer:
                await producer.send(topic, b"v")
            assert client.state is State.RUNNING
            async with Producer(client=client) as another:
                assert (await another.send(topic, b"v")).offset == 1
            await client.request(messages.DescribeClusterRequest(), to=AnyBroker())

    async def test_closing_a_client_delivers_the_records_of_its_producers(
        self, cluster: EmbeddedCluster, topic: str, values: Values
    ) -> None:
        async with Client(bootstrap_servers=cluster.bootstrap_servers) as client:
            producer = await Producer(client=client, linger_ms=60_000)
            delivery = producer.send(topic, b"v")
        assert delivery.result().offset == 0
        assert values(topic) == [b"v"]

    async def test_leaving_a_client_raises_unretrieved_failures_of_its_producers(
        self, cluster: EmbeddedCluster, topic: str
    ) -> None:
        cluster.fail(ApiKey.PRODUCE, TopicAuthorizationError)
        client = await Client(bootstrap_servers=cluster.bootstrap_servers)
        producer = await Producer(client=client)
        producer.send(topic, b"v")
        with pytest.raises(DeliveryErrors) as caught:
            await client.__aexit__(None, None, None)
        assert caught.value.count == 1

    @pytest.mark.parametrize("timeout", [0, 0.03])
    async def test_the_close_timeout_of_a_client_bounds_its_children(
        self, cluster: EmbeddedCluster, topic: str, timeout: float
    ) -> None:
        client = await Client(bootstrap_servers=cluster.bootstrap_servers)
        producers = [await Producer(client=client) for _ in range(3)]
        for producer in producers:
            await producer.prepare(topic)
        cluster.pause(1)
        deliveries = [producer.send(topic, b"v") for producer in producers]
        await client.close(timeout)
        assert {type(each.exception()) for each in deliveries} == {ClosedError}

    async def test_a_child_needs_an_open_client(self, cluster: EmbeddedCluster) -> None:
        client = Client(bootstrap_servers=cluster.bootstrap_servers)
        with pytest.raises(IllegalStateError):
            await Producer(client=client)
        async with client, Producer(client=client):
            pass
        with pytest.raises(ClosedError):
            await Producer(client=client)

    async def test_low_level_calls_end_with_the_client(self, cluster: EmbeddedCluster) -> None:
        client = await Client(bootstrap_servers=cluster.bootstrap_servers)
        cluster.pause(1)
        handle = client.send(messages.DescribeClusterRequest(), to=AnyBroker())
        waiting = asyncio.ensure_future(handle)
        await asyncio.sleep(0)
        await client.close(0)
        with pytest.raises(ClosedError):
            await waiting
        for call in (
            lambda: client.request(messages.DescribeClusterRequest(), to=AnyBroker()),
            lambda: client.send(messages.DescribeClusterRequest(), to=AnyBroker()),
        ):
            with pytest.raises(KafkaError):
                await call()


def watch(child: Any, closed: Callable[[], None]) -> None:
    """Call `closed` when the child has shut down."""
    shutdown = child._shutdown

    async def watched(graceful: bool, timeout: float) -> None:
        await shutdown(graceful, timeout)
        closed()

    child._shutdown = watched
