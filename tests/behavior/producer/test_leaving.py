"""Tests of the moment at which a batch is sent.

It is sent when it is full, when its linger time has passed, or when the program awaits one of its
records while no request is in flight.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aiokclient import Producer
from aiokclient.protocol import ApiKey
from aiokclient.testing import EmbeddedCluster

Make = Callable[..., Producer[Any, Any]]
LONG = {"linger_ms": 60_000}


def produced(cluster: EmbeddedCluster) -> int:
    """Return how many produce requests the cluster has received."""
    return sum(request.api is ApiKey.PRODUCE for request in cluster.requests)


@contextlib.contextmanager
def answers_held(cluster: EmbeddedCluster) -> Iterator[None]:
    """Pause the broker at the next produce request, before it responds, until the block ends."""

    def hold(request: Any, response: Any) -> Any:
        cluster.pause(1)
        return response

    with cluster.alter(ApiKey.PRODUCE, hold, times=1):
        yield
    cluster.resume(1)


def unanswered(cluster: EmbeddedCluster) -> int:
    """Return how many requests have no response yet, including the one whose response is held."""
    connections = cluster._state.brokers[1]._connections
    return 1 + cluster._runner.call_in_loop(lambda: sum(len(each._waiting) for each in connections))


async def turns(count: int = 20) -> None:
    """Let the event loop run by sleeping `count` times for a millisecond."""
    for _ in range(count):
        await asyncio.sleep(0.001)


async def by_await(producer: Producer[Any, Any], delivery: Any) -> None:
    await delivery


async def by_gather(producer: Producer[Any, Any], delivery: Any) -> None:
    await producer.gather([delivery])


async def by_flush(producer: Producer[Any, Any], delivery: Any) -> None:
    await producer.flush()


async def by_send_all(producer: Producer[Any, Any], delivery: Any) -> None:
    await producer.send_all(delivery.topic, [b"more"])


async def by_close(producer: Producer[Any, Any], delivery: Any) -> None:
    await producer.close()


@pytest.mark.parametrize("ask", [by_await, by_gather, by_flush, by_send_all, by_close])
async def test_an_awaited_batch_is_sent_without_lingering(make: Make, topic: str, ask: Any) -> None:
    async with make(**LONG) as producer:
        await producer.prepare(topic)
        delivery = producer.send(topic, b"v")
        await asyncio.wait_for(ask(producer, delivery), 30)
        assert delivery.done()


async def test_a_batch_lingers_when_no_task_awaits_it(
    make: Make, topic: str, cluster: EmbeddedCluster
) -> None:
    async with make(**LONG) as producer:
        await producer.send(topic, b"connected")
        cluster.reset()
        delivery = producer.send(topic, b"v")
        delivery.add_done_callback(lambda each: None)
        assert delivery.partition == 0
        await turns()
        assert produced(cluster) == 0
        assert not delivery.done()


async def test_an_awaited_record_sends_its_whole_batch(
    make: Make, topic: str, cluster: EmbeddedCluster
) -> None:
    async with make(**LONG) as producer:
        await producer.send(topic, b"connected")
        cluster.reset()
        deliveries = [producer.send(topic, b"v") for _ in range(100)]
        await deliveries[50]
        assert all(each.done() for each in deliveries)
        assert produced(cluster) == 1


async def test_a_batch_is_sent_after_linger_ms(make: Make, topic: str) -> None:
    done = asyncio.Event()
    async with make(linger_ms=20) as producer:
        producer.send(topic, b"v").add_done_callback(lambda each: done.set())
        await asyncio.wait_for(done.wait(), 30)


async def test_a_full_batch_is_sent_immediately(
    make: Make, topic: str, cluster: EmbeddedCluster
) -> None:
    done = asyncio.Event()
    async with make(**LONG, batch_size=1000) as producer:
        first = producer.send(topic, bytes(400))
        first.add_done_callback(lambda each: done.set())
        last = [producer.send(topic, bytes(400)) for _ in range(2)][-1]
        await asyncio.wait_for(done.wait(), 30)
        await turns()
        assert not last.done()


async def test_an_awaited_batch_waits_while_a_request_is_in_flight(
    make: Make, topic: str, cluster: EmbeddedCluster
) -> None:
    """Records that are sent while a request is in flight leave together in the next request."""
    async with make(**LONG) as producer:
        await producer.send(topic, b"connected")
        cluster.reset()
        with answers_held(cluster):
            first = asyncio.ensure_future(producer.send(topic, b"first"))
            await cluster.until(lambda: produced(cluster) == 1)
            rest = [asyncio.ensure_future(producer.send(topic, b"v")) for _ in range(50)]
            await turns(5)
            assert unanswered(cluster) == 1
        await asyncio.gather(first, *rest)
        assert produced(cluster) == 2


async def test_many_awaiting_tasks_share_requests(
    make: Make, topic: str, cluster: EmbeddedCluster
) -> None:
    async def work() -> None:
        for _ in range(10):
            await producer.send(topic, b"v")

    async with make() as producer:
        await producer.send(topic, b"connected")
        cluster.reset()
        await asyncio.gather(*(work() for _ in range(100)))
        assert produced(cluster) <= 40, "a thousand records must share few requests"


async def test_at_most_five_requests_are_in_flight(
    make: Make, topic: str, cluster: EmbeddedCluster
) -> None:
    async with make(linger_ms=0, batch_size=100) as producer:
        await producer.send(topic, b"connected")
        cluster.reset()
        with answers_held(cluster):
            deliveries = [producer.send(topic, bytes(60)) for _ in range(30)]
            await cluster.until(lambda: unanswered(cluster) == 5)
            await turns(5)
            assert unanswered(cluster) == 5
        results = await producer.gather(deliveries)
    assert [metadata.offset for metadata in results] == list(range(1, 31))


class TestNoLinger:
    async def test_a_batch_is_sent_at_once_with_linger_zero_when_nothing_is_in_flight(
        self, make: Make, topic: str, cluster: EmbeddedCluster
    ) -> None:
        async with make(linger_ms=0) as producer:
            await producer.send(topic, b"connected")
            cluster.reset()
            deliveries = [producer.send(topic, b"v") for _ in range(10)]
            await producer.gather(deliveries)
            sizes = [
                request.message.topic_data[0].partition_data[0].records
                for request in cluster.requests
                if request.api is ApiKey.PRODUCE
            ]
            assert len(sizes) == 2, "one batch with the first record, one with the rest"
            assert len(sizes[0]) < len(sizes[1])

    async def test_a_batch_is_sent_with_linger_zero_without_an_await(
        self, make: Make, topic: str
    ) -> None:
        done = asyncio.Event()
        async with make(linger_ms=0) as producer:
            producer.send(topic, b"v").add_done_callback(lambda each: done.set())
            await asyncio.wait_for(done.wait(), 30)


class TestFlush:
    async def test_flush_waits_for_all_records_sent_before(
        self, make: Make, wide: str, topic: str
    ) -> None:
        async with make(**LONG) as producer:
            deliveries = [producer.send(wide, b"v") for _ in range(500)]
            deliveries += producer.send_many(topic, [b"v"] * 500)
            await producer.flush()
            assert all(each.done() for each in deliveries)
            await producer.flush()

    async def test_flush_does_not_wait_for_records_sent_after(
        self, make: Make, topic: str, cluster: EmbeddedCluster
    ) -> None:
        async with make(linger_ms=0, batch_size=1) as producer:
            await producer.prepare(topic)
            before = producer.send(topic, b"before")
            flushing = asyncio.create_task(producer.flush())
            await asyncio.sleep(0)
            await cluster.until(lambda: produced(cluster) >= 1)
            await before
            cluster.pause(1)
            after = producer.send(topic, b"after")
            await asyncio.wait_for(flushing, 30)
            assert not after.done()
            cluster.resume(1)
            await after

    async def test_flush_can_be_cancelled(
        self, make: Make, topic: str, cluster: EmbeddedCluster
    ) -> None:
        async with make() as producer:
            await producer.prepare(topic)
            cluster.pause(1)
            delivery = producer.send(topic, b"v")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(producer.flush(), 0.01)
            assert not delivery.done()
            cluster.resume(1)
            await producer.flush()
            assert delivery.done()


async def test_full_batches_leave_when_records_without_keys_fill_one_after_another(
    make: Make, wide: str
) -> None:
    async with make(**LONG, batch_size=2_000) as producer:
        await producer.send(wide, b"first")
        # A record takes fewer bytes than its batch reserves for it, so that a partition could be
        # left while there is room in its batch, which would wait for its linger time.
        deliveries = [producer.send(wide, b"x" * 50) for _ in range(1_000)]
        done: asyncio.Queue[Any] = asyncio.Queue()
        for delivery in deliveries:
            delivery.add_done_callback(done.put_nowait)
        # One batch with fewer than 40 records may be open.
        partitions = {(await done.get()).partition for _ in range(1_000 - 2_000 // 50)}
        assert len(partitions) > 1
