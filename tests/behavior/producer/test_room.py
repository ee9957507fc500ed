"""Backpressure: the buffer, the overflow queue, `full`, `drain`, and records without a leader."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import anyio
import pytest

from aiokclient import Producer, ProducerRecord
from aiokclient.errors import (
    BufferExhaustedError,
    ClosedError,
    SerializationError,
    TopicAuthorizationError,
)
from aiokclient.protocol import ApiKey
from aiokclient.testing import EmbeddedCluster

Make = Callable[..., Producer[Any, Any]]
MEMORY = 100_000
VALUE = bytes(950)


@pytest.fixture
async def small(make: Make, topic: str) -> AsyncIterator[Producer[Any, Any]]:
    async with make(buffer_memory=MEMORY, linger_ms=0) as producer:
        await producer.send(topic, b"warm up")
        yield producer


def fill(producer: Producer[Any, Any], topic: str, **options: Any) -> tuple[list[Any], list[Any]]:
    """Send until `send` raises.

    Return the deliveries in the buffer and those in the overflow queue.
    """
    taken: list[Any] = []
    overflowing: list[Any] = []
    while True:
        try:
            delivery = producer.send(topic, VALUE, **options)
        except BufferExhaustedError:
            return taken, overflowing
        (overflowing if producer.full else taken).append(delivery)
        assert not (overflowing and delivery in taken), (
            "no record may enter the buffer before the overflow queue"
        )


class TestRoom:
    async def test_send_raises_after_the_buffer_and_the_overflow_queue_are_full(
        self, small: Producer[Any, Any], topic: str, cluster: EmbeddedCluster
    ) -> None:
        cluster.pause(1)
        taken, overflowing = fill(small, topic)
        # A record takes a little less than a thousand bytes.
        assert 90 <= len(taken) <= 105
        assert 90 <= len(overflowing) <= 105
        with pytest.raises(BufferExhaustedError, match=r"drain\(\)"):
            small.send(topic, VALUE)
        assert small.full, "the last record must still be in the overflow queue"
        cluster.resume(1)
        results = await small.gather(taken + overflowing)
        assert [metadata.offset for metadata in results] == [*range(1, len(results) + 1)]
        assert not small.full

    async def test_drain_waits_for_the_overflow_queue_only(
        self, small: Producer[Any, Any], topic: str, cluster: EmbeddedCluster
    ) -> None:
        cluster.pause(1)
        _, overflowing = fill(small, topic)
        draining = asyncio.create_task(small.drain())
        await asyncio.sleep(0.01)
        assert not draining.done()
        cluster.resume(1)
        await draining
        assert not small.full
        await small.drain()
        await small.gather(overflowing)

    async def test_drain_returns_immediately_when_no_record_is_queued(
        self, small: Producer[Any, Any], topic: str, cluster: EmbeddedCluster
    ) -> None:
        cluster.pause(1)
        delivery = small.send(topic, b"v")
        assert not small.full
        await asyncio.wait_for(small.drain(), 5)
        assert not delivery.done()
        cluster.resume(1)
        await delivery

    @pytest.mark.parametrize("how", ["asyncio", "anyio"])
    async def test_drain_can_be_cancelled(
        self, small: Producer[Any, Any], topic: str, cluster: EmbeddedCluster, how: str
    ) -> None:
        cluster.pause(1)
        taken, overflowing = fill(small, topic)
        if how == "asyncio":
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(small.drain(), 0.01)
        else:
            with anyio.move_on_after(0.01) as scope:
                await small.drain()
            assert scope.cancelled_caught
        assert small.full
        cluster.resume(1)
        await small.gather(taken + overflowing)

    async def test_drain_ends_when_the_record_has_its_outcome(
        self, make: Make, topic: str, cluster: EmbeddedCluster
    ) -> None:
        producer = make(buffer_memory=MEMORY, linger_ms=0, on_delivery_error=lambda each: None)
        await producer.start()
        await producer.send(topic, b"warm up")
        cluster.pause(1)
        fill(producer, topic)
        draining = asyncio.create_task(producer.drain())
        await asyncio.sleep(0)
        await producer.close(0)
        with pytest.raises(ClosedError):
            await draining

    async def test_a_loop_of_sends_and_drains_delivers_all_records(
        self, small: Producer[Any, Any], topic: str, cluster: EmbeddedCluster
    ) -> None:
        deliveries = []
        with cluster.delay(ApiKey.PRODUCE, 0.005):
            for _ in range(600):
                deliveries.append(small.send(topic, VALUE))
                if small.full:
                    await small.drain()
            results = await small.gather(deliveries)
        assert [metadata.offset for metadata in results] == [*range(1, 601)]

    async def test_tasks_that_send_and_drain_keep_their_order(
        self, small: Producer[Any, Any], topic: str, cluster: EmbeddedCluster
    ) -> None:
        async def work() -> list[Any]:
            mine = []
            for _ in range(30):
                mine.append(small.send(topic, VALUE))
                await small.drain()
            return [metadata.offset for metadata in await small.gather(mine)]

        with cluster.delay(ApiKey.PRODUCE, 0.005):
            found = await asyncio.gather(*(work() for _ in range(20)))
        assert all(offsets == sorted(offsets) for offsets in found)
        assert sorted(offset for offsets in found for offset in offsets) == [*range(1, 601)]

    async def test_drain_yields_to_the_loop(self, small: Producer[Any, Any], topic: str) -> None:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        loop = asyncio.get_running_loop()
        for _ in range(10):
            until = loop.time() + 0.011
            while loop.time() < until:
                pass
            before = turns
            await small.drain()
            assert turns > before
        counting.cancel()


class TestSendMany:
    @pytest.mark.parametrize("keyed", [True, False])
    async def test_send_many_sends_all_or_nothing(
        self, small: Producer[Any, Any], topic: str, cluster: EmbeddedCluster, keyed: bool
    ) -> None:
        many: list[Any] = [(b"k", VALUE) if keyed else VALUE] * 300
        with pytest.raises(BufferExhaustedError, match="send_all"):
            small.send_many(topic, many)
        results = await small.gather(small.send_many(topic, many[:50]))
        assert [metadata.offset for metadata in results] == [*range(1, 51)]
        assert len(cluster.records(topic)) == 51

    async def test_send_many_uses_the_overflow_queue(
        self, small: Producer[Any, Any], topic: str, cluster: EmbeddedCluster
    ) -> None:
        cluster.pause(1)
        deliveries = small.send_many(topic, [VALUE] * 150)
        assert small.full
        with pytest.raises(BufferExhaustedError, match="send_all"):
            small.send_many(topic, [VALUE] * 100)
        cluster.resume(1)
        await small.drain()
        results = await small.gather(deliveries)
        assert [metadata.offset for metadata in results] == [*range(1, 151)]

    async def test_send_many_keeps_the_order_with_single_sends(
        self, small: Producer[Any, Any], topic: str, values: Any
    ) -> None:
        small.send(topic, b"1")
        small.send_many(topic, [b"2", (b"k", b"3"), ProducerRecord(topic, b"4")])
        small.send(topic, b"5")
        small.send_many(topic, [b"6", b"7"])
        await small.flush()
        assert values(topic) == [b"warm up", *(b"%d" % i for i in range(1, 8))]


class TestSendAll:
    @pytest.mark.parametrize("kind", ["list", "generator", "async", "pairs"])
    async def test_send_all_waits_for_room(
        self, small: Producer[Any, Any], topic: str, kind: str, values: Any
    ) -> None:
        async def stream() -> AsyncIterator[bytes]:
            for i in range(500):
                yield b"%d" % i + VALUE

        items: Any = [b"%d" % i + VALUE for i in range(500)]
        given = {
            "list": items,
            "generator": (item for item in items),
            "async": stream(),
            "pairs": [(None, item) for item in items],
        }[kind]
        assert await small.send_all(topic, given) == 500
        assert values(topic)[1:] == items, "send_all must return after all acknowledgements"

    async def test_send_all_stops_after_the_first_failure(
        self, make: Make, topic: str, cluster: EmbeddedCluster
    ) -> None:
        taken = 0

        def endless() -> Iterator[bytes]:
            nonlocal taken
            while True:
                taken += 1
                yield b"x" * 1000

        cluster.fail(ApiKey.PRODUCE, TopicAuthorizationError)
        producer = await make(buffer_memory=MEMORY, on_delivery_error=lambda each: None)
        with pytest.raises(TopicAuthorizationError):
            await producer.send_all(topic, endless())
        before, sent = taken, cluster.requests_total
        await producer.close()
        assert taken == before < 1000
        assert sent >= 1
        assert not cluster.records(topic)

    async def test_a_failure_ends_the_wait_of_send_all_for_the_next_item(
        self, make: Make, topic: str, cluster: EmbeddedCluster
    ) -> None:
        async def stuck() -> AsyncIterator[bytes]:
            yield b"v"
            await asyncio.Event().wait()

        cluster.fail(ApiKey.PRODUCE, TopicAuthorizationError)
        async with make() as producer:
            with pytest.raises(TopicAuthorizationError):
                await asyncio.wait_for(producer.send_all(topic, stuck()), 20)

    async def test_close_ends_the_wait_of_send_all_for_the_next_item(
        self, make: Make, topic: str
    ) -> None:
        begun = asyncio.Event()

        async def stuck() -> AsyncIterator[bytes]:
            yield b"v"
            begun.set()
            await asyncio.Event().wait()

        async with make() as producer:
            sending = asyncio.create_task(producer.send_all(topic, stuck()))
            await begun.wait()
        with pytest.raises(ClosedError):
            await asyncio.wait_for(sending, 20)

    async def test_send_all_ignores_failures_of_other_calls(
        self, make: Make, topic: str, wide: str, cluster: EmbeddedCluster
    ) -> None:
        cluster.fail(ApiKey.PRODUCE, TopicAuthorizationError, topic=wide)
        async with make() as producer:

            async def stream() -> AsyncIterator[bytes]:
                for _ in range(10):
                    with pytest.raises(TopicAuthorizationError):
                        await producer.send(wide, b"v")
                    yield b"v"

            assert await producer.send_all(topic, stream()) == 10

    async def test_send_all_raises_the_error_of_its_source(
        self, small: Producer[Any, Any], topic: str, values: Any
    ) -> None:
        def source() -> Iterator[Any]:
            yield b"a"
            raise LookupError("no more")

        with pytest.raises(LookupError):
            await small.send_all(topic, source())
        with pytest.raises(SerializationError):
            await small.send_all(topic, [b"b", 5, b"never"])
        with pytest.raises(TypeError):
            await small.send_all(topic, 5)  # type: ignore[arg-type]  # on purpose
        await small.flush()
        assert b"never" not in values(topic)

    @pytest.mark.parametrize("how", ["asyncio", "anyio"])
    async def test_send_all_can_be_cancelled(
        self, small: Producer[Any, Any], topic: str, cluster: EmbeddedCluster, how: str
    ) -> None:
        cluster.pause(1)
        many = [VALUE] * 1000
        if how == "asyncio":
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(small.send_all(topic, many), 0.02)
        else:
            with anyio.move_on_after(0.02) as scope:
                await small.send_all(topic, many)
            assert scope.cancelled_caught
        cluster.resume(1)
        await small.flush()
        assert len(cluster.records(topic)) < 300


class TestWhatCannotBeSent:
    async def test_unsendable_partitions_hold_at_most_a_quarter_each_and_half_together(
        self, make: Make, cluster: EmbeddedCluster
    ) -> None:
        """Each unsendable partition may use a quarter of the buffer, and all of them together half.

        The same limits apply to the overflow queue. A partition is unsendable if its topic does not
        exist or if it has no leader.
        """
        async with make(buffer_memory=MEMORY, close_timeout_ms=0) as producer:
            taken, overflowing = fill(producer, "not-there-1")
            assert 18 <= len(taken) <= 26, "a quarter of the buffer"
            assert 18 <= len(overflowing) <= 26, "a quarter of the overflow queue"
            fill(producer, "not-there-2")
            taken, overflowing = fill(producer, "not-there-3")
            assert len(taken) + len(overflowing) <= 4, (
                "the first two topics must hold the permitted half"
            )
            with pytest.raises(BufferExhaustedError, match=r"drain\(\)"):
                producer.send("not-there-4", VALUE)
            await producer.close(0)
            everything = await asyncio.gather(producer.flush(), return_exceptions=True)
            assert isinstance(everything[0], ClosedError)
            raise_nothing(producer)

    async def test_sendable_partitions_continue_beside_unsendable_ones(
        self, make: Make, topic: str
    ) -> None:
        producer = await make(buffer_memory=MEMORY, on_delivery_error=lambda each: None)
        await producer.prepare(topic)
        for i in range(8):
            fill(producer, f"not-there-{i}")
        for _ in range(20):
            deliveries = [producer.send(topic, VALUE) for _ in range(20)]
            assert not producer.full
            await producer.gather(deliveries)
        await producer.close(0)


def raise_nothing(producer: Any) -> None:
    """Prevent the end of `async with` from raising failures that the test already knows of."""
    producer._engine.failures.unretrieved = 0
