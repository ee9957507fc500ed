"""Tests that full batches are written within the call that fills them, as far as permitted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from world import World, simulate

from aiokclient import Producer
from aiokclient.errors import KafkaError, NotLeaderOrFollowerError
from aiokclient.producer.batching.accumulator import Accumulator
from aiokclient.producer.batching.batch import ProducerBatch
from aiokclient.producer.sending.sender import Sender
from aiokclient.producer.transaction.ending import LONGEST_S
from aiokclient.protocol import ApiKey

SIZE = 1000
LINGER: dict[str, Any] = {"linger_ms": 10_000, "batch_size": SIZE}
LARGE = b"x" * 900
"""A value of which one fits into a batch."""


def sender_of(producer: Producer[Any, Any]) -> Sender:
    assert producer._engine is not None
    return producer._engine.senders[1]


def fill(producer: Producer[Any, Any], count: int, **arguments: Any) -> list[Any]:
    """Send records, each of which but the first fills the batch before it."""
    return [producer.send("t", b"%03d" % n + LARGE, **arguments) for n in range(count)]


def values(world: World) -> list[bytes | None]:
    return [record.value[:3] for record in world.cluster.records("t") if record.value]


def numbers(count: int) -> list[bytes]:
    return [b"%03d" % n for n in range(count)]


def test_full_batches_are_written_in_the_call_until_five_are_in_flight() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(**LINGER) as producer:
            await producer.send("t", b"first")
            sender = sender_of(producer)
            counts = []
            for _ in range(10):
                producer.send("t", LARGE)
                counts.append(sender.in_flight)
            assert counts == [0, 1, 1, 2, 3, 4, 5, 5, 5, 5]

    simulate(scenario)


def test_full_batches_of_send_many_are_written_in_the_call() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(**LINGER) as producer:
            await producer.send("t", b"first")
            producer.send_many("t", [LARGE] * 4)
            assert sender_of(producer).in_flight == 2
            producer.send_many("t", [(b"k", LARGE)] * 2)
            assert sender_of(producer).in_flight == 4

    simulate(scenario)


def sizes_of(world: World, since: float) -> list[int]:
    """Return the number of batches in each produce request."""
    return [
        sum(len(topic.partition_data) for topic in request.message.topic_data)
        for request in world.requests(ApiKey.PRODUCE, since=since)
    ]


def test_the_first_full_batch_leaves_alone_and_the_next_ones_leave_together() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(**LINGER) as producer:
            await producer.send("t", b"first")
            since = world.now
            for partition in range(20):
                fill(producer, 2, partition=partition)
            await producer.flush()
        assert sizes_of(world, since)[:6] == [1, 3, 3, 3, 3, 7]

    simulate(scenario, topics={"t": 20})


def test_full_batches_that_are_few_leave_together_in_the_next_iteration_of_the_loop() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(**LINGER) as producer:
            await producer.send("t", b"first")
            since, sender = world.now, sender_of(producer)
            for partition in range(3):
                fill(producer, 2, partition=partition)
            assert sender.in_flight == 1
            await asyncio.sleep(0)
            assert sender.in_flight == 2
            await producer.flush()
        assert sizes_of(world, since)[:2] == [1, 2]

    simulate(scenario, topics={"t": 20})


def test_full_batches_of_a_lost_partition_do_not_leave() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(**LINGER) as producer:
            await producer.send("t", b"first")
            sender = sender_of(producer)
            for partition in range(2):
                fill(producer, 2, partition=partition)
            sender.lose_queue(producer._topics["t"].queues[1])
            for partition in (2, 3):
                fill(producer, 2, partition=partition)
            assert sender.in_flight == 1, "the two that are left are too few"
            sender.gain_queue(producer._topics["t"].queues[1])
            await producer.flush()

    simulate(scenario, topics={"t": 20})


def test_a_full_batch_leaves_while_other_batches_still_fill() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(linger_ms=0, batch_size=SIZE) as producer:
            await producer.send("t", b"first", partition=0)
            producer.send("t", b"at once", partition=0)
            producer.send("t", b"fills", partition=1)
            fill(producer, 3, partition=2)
            assert sender_of(producer).in_flight == 2
            assert producer._topics["t"].queues[1].open is not None

    simulate(scenario, topics={"t": 3})


def test_a_full_batch_waits_for_an_earlier_one_that_is_sent_again() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(**LINGER, retry_backoff_ms=1000) as producer:
            await producer.send("t", b"000")
            with world.cluster.fail(ApiKey.PRODUCE, NotLeaderOrFollowerError, times=1):
                deliveries = fill(producer, 2)
                queue = producer._topics["t"].queues[0]
                await world.cluster.until(lambda: queue.blocked, timeout=5)
            deliveries += fill(producer, 3)
            assert sender_of(producer).in_flight == 0
            await producer.gather(deliveries)
        assert values(world) == [b"000", b"000", b"001", b"000", b"001", b"002"]

    simulate(scenario)


def test_records_sent_while_a_response_is_handled_are_written_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[int] = []
    filled: list[Producer[Any, Any]] = []

    class SendingMore(Accumulator):
        def complete_batch(self, *arguments: Any) -> None:
            super().complete_batch(*arguments)
            if filled and not seen:
                fill(filled[0], 3)
                seen.append(sender_of(filled[0]).in_flight)

    monkeypatch.setattr("aiokclient.producer.engine.Accumulator", SendingMore)

    async def scenario(world: World) -> None:
        async with world.producer(**LINGER) as producer:
            await producer.send("t", b"first")
            sender = sender_of(producer)
            filled.append(producer)
            delivery = producer.send("t", b"v")
            await delivery
            assert seen == [0]
            assert sender.in_flight == 2, "what the handling of the response left is sent after it"

    simulate(scenario)


def test_sends_go_on_after_an_interrupt_while_a_response_is_handled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    armed: list[Producer[Any, Any]] = []
    interrupted: list[BaseException] = []

    class Interrupting(Accumulator):
        def complete_batch(self, *arguments: Any) -> None:
            super().complete_batch(*arguments)
            if armed and not interrupted:
                fill(armed[0], 2)
                raise KeyboardInterrupt

    class Interrupted(Sender):
        def on_response(self, *arguments: Any) -> None:
            try:  # The simulation must not end.
                super().on_response(*arguments)
            except KeyboardInterrupt as error:
                interrupted.append(error)

    monkeypatch.setattr("aiokclient.producer.engine.Accumulator", Interrupting)
    monkeypatch.setattr("aiokclient.producer.engine.Sender", Interrupted)

    async def scenario(world: World) -> None:
        async with world.producer(**LINGER) as producer:
            await producer.send("t", b"000")
            sender = sender_of(producer)
            armed.append(producer)
            await producer.send("t", b"000")
            assert interrupted
            await world.cluster.until(lambda: sender.in_flight, timeout=5)
            await producer.gather(fill(producer, 5))
        assert values(world) == [b"000", b"000", *numbers(2), *numbers(5)]

    simulate(scenario)


def test_a_full_batch_is_compressed_in_a_thread_from_the_call_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    in_flight: list[int] = []

    class Watched(Accumulator):
        def _on_compressed(self, batch: ProducerBatch, work: asyncio.Future[int]) -> None:
            super()._on_compressed(batch, work)
            assert batch.queue.sender is not None
            in_flight.append(batch.queue.sender.in_flight)

    monkeypatch.setattr("aiokclient.producer.engine.Accumulator", Watched)

    async def scenario(world: World) -> None:
        options: dict[str, Any] = {"linger_ms": 10_000, "compression_type": "gzip"}
        async with world.producer(**options, batch_size=200_000) as producer:
            await producer.send("t", b"first")
            assert not in_flight
            for _ in range(2):
                producer.send("t", bytes(150_000))
            (batch,) = producer._topics["t"].queues[0].closed
            assert batch.compressing
            await producer.flush()
            assert in_flight[0] == 1

    simulate(scenario)


@pytest.mark.parametrize("linger_ms", [0, 10_000])
def test_a_connection_that_closes_reaches_the_deliveries_and_not_the_caller(linger_ms: int) -> None:
    async def scenario(world: World) -> None:
        async with world.producer(linger_ms=linger_ms, batch_size=SIZE) as producer:
            await producer.send("t", b"000")
            connection = sender_of(producer)._connection.current
            assert connection is not None
            assert connection._transport is not None
            connection._transport.abort()
            await producer.gather(fill(producer, 10))
        assert values(world) == [b"000", *numbers(10)]

    simulate(scenario)


def test_a_throttle_time_reaches_the_deliveries_and_not_the_caller() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(**LINGER) as producer:
            with world.cluster.throttle(ApiKey.PRODUCE, 3.0, times=1):
                await producer.send("t", b"000")
            began = world.now
            deliveries = fill(producer, 10)
            assert sender_of(producer).in_flight == 5
            await producer.gather(deliveries)
            assert world.now - began >= 2.9
        assert values(world) == [b"000", *numbers(10)]

    simulate(scenario)


def test_a_bug_while_a_full_batch_is_written_reaches_the_deliveries_and_not_the_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[bool] = []

    class Broken(Sender):
        def _send_request(self, *arguments: Any) -> None:
            if begun:
                raise ValueError("a bug")
            super()._send_request(*arguments)

    monkeypatch.setattr("aiokclient.producer.engine.Sender", Broken)

    async def scenario(world: World) -> None:
        producer = await world.producer(**LINGER)
        await producer.send("t", b"first")
        begun.append(True)
        deliveries = fill(producer, 3)
        results = await producer.gather(deliveries, return_exceptions=True)
        assert all(isinstance(result, KafkaError) for result in results)
        with pytest.raises(ValueError, match="a bug"):
            producer.send("t", b"v")
        await producer.close()

    simulate(scenario)


def test_an_interrupt_while_a_full_batch_is_written_loses_nothing() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(**LINGER) as producer:
            await producer.send("t", b"000")
            connection = sender_of(producer)._connection.current
            assert connection is not None
            transport: Any = connection._transport
            write = transport.write

            def interrupt(data: bytes) -> None:
                transport.write = write
                raise KeyboardInterrupt

            transport.write = interrupt
            deliveries = fill(producer, 1)
            with pytest.raises(KeyboardInterrupt):
                producer.send("t", b"001" + LARGE)
            deliveries += fill(producer, 4)
            await producer.gather(deliveries)
        assert values(world) == [b"000", b"000", *numbers(4)]

    simulate(scenario)


def test_a_full_batch_waits_for_the_end_of_the_pause_of_a_transaction() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(**LINGER, transactional_id="t-1") as producer:
            async with producer.transaction() as tx:
                tx.send("t", b"v")
            engine: Any = producer._engine
            pause = engine.transactions.pause
            async with producer.transaction() as tx:
                pause.length_s = LONGEST_S
                pause.on_transaction_end(world.now)
                for _ in range(3):
                    tx.send("t", LARGE)
                assert sender_of(producer).in_flight == 0
                await asyncio.sleep(LONGEST_S + 0.001)
                assert pause.is_used

    simulate(scenario, transaction_version=2)
