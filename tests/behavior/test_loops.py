"""The main calls in each kind of event loop, on the embedded cluster and on a real Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from aiokclient import Consumer, Producer
from aiokclient.errors import ClosedError, KafkaError

LOOPS = ["asyncio", "uvloop"]
Run = Callable[[Callable[[Any], Awaitable[None]]], None]


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest, cluster_servers: Any) -> Run:
    """Run `main(servers)` in an event loop of its own, and fail on errors that the loop reports."""
    factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    if request.param == "uvloop":
        factory = pytest.importorskip("uvloop").new_event_loop
    complaints: list[dict[str, Any]] = []

    async def watched(main: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, about: complaints.append(about))
        await main(cluster_servers)

    def in_a_loop(main: Any) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(watched(main))
        assert complaints == []

    return in_a_loop


def producer(servers: Any, **options: Any) -> Producer[bytes, bytes]:
    return Producer(bootstrap_servers=servers.bootstrap, **options)


def consumer(servers: Any, topic: str, **options: Any) -> Consumer[bytes, bytes]:
    options.setdefault("auto_offset_reset", "earliest")
    return Consumer(topic, bootstrap_servers=servers.bootstrap, **options)


def test_all_ways_of_sending_and_reading_work_on_each_loop(run: Run) -> None:
    async def main(servers: Any) -> None:
        topic = await servers.new_topic(partitions=3)
        async with producer(servers) as sender:
            for number in range(20):
                assert (await sender.send(topic, b"%d" % number)).topic == topic
            await sender.gather([sender.send(topic, b"v") for _ in range(1_000)])
            await sender.gather(sender.send_many(topic, [b"w"] * 5_000))
        async with consumer(servers, topic) as reader:
            assert len([record async for record in reader.until_end()]) == 6_020
            reader.seek_to_beginning()
            lists = [len(each) async for each in reader.batches(until_end=True)]
            assert sum(lists) == 6_020
            reader.seek_to_beginning()
            assert await reader.get(timeout=30) is not None

    run(main)


def test_many_tasks_can_await_their_sends_on_each_loop(run: Run) -> None:
    async def main(servers: Any) -> None:
        topic = await servers.new_topic(partitions=3)
        async with producer(servers, linger_ms=0) as sender:

            async def task() -> list[int]:
                return [(await sender.send(topic, b"v", partition=0)).offset for _ in range(5)]

            found = await asyncio.gather(*(task() for _ in range(200)))
        assert all(offsets == sorted(offsets) for offsets in found)
        assert sorted(offset for offsets in found for offset in offsets) == list(range(1_000))

    run(main)


def test_large_frames_are_written_completely_on_each_loop(run: Run) -> None:
    async def main(servers: Any) -> None:
        topic = await servers.new_topic(partitions=2)
        values = [bytes([number]) * 900_000 for number in range(12)]
        async with producer(servers) as sender:
            await sender.gather([sender.send(topic, value, b"key") for value in values])
        async with consumer(servers, topic) as reader:
            assert [record.value async for record in reader.until_end()] == values

    run(main)


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_batches_compressed_in_threads_are_delivered_on_each_loop(
    run: Run, compression: str
) -> None:
    async def main(servers: Any) -> None:
        topic = await servers.new_topic()
        options = {"compression_type": compression, "batch_size": 500_000}
        async with producer(servers, **options) as sender:
            await sender.gather(sender.send_many(topic, [b"%050d" % n for n in range(20_000)]))
        async with consumer(servers, topic) as reader:
            found = [record.value async for record in reader.until_end()]
        assert found == [b"%050d" % n for n in range(20_000)]

    run(main)


def test_leaving_during_work_leaves_nothing_open_on_each_loop(run: Run) -> None:
    async def main(servers: Any) -> None:
        topic = await servers.new_topic()
        sender = producer(servers, close_timeout_ms=0, linger_ms=60_000)
        lost: list[Any] = []

        async def leave() -> None:
            async with sender:
                await sender.send(topic, b"there")
                lost.extend(sender.send(topic, b"v") for _ in range(100))
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await leave()
        errors = [delivery.exception() for delivery in lost]
        assert all(error is None or isinstance(error, KafkaError) for error in errors)
        with pytest.raises(ClosedError):
            sender.send(topic, b"late")
        async with consumer(servers, topic) as reader:
            async for record in reader:
                assert record.value == b"there"
                break

    run(main)


def test_a_cancelled_reader_loses_no_record_on_each_loop(run: Run) -> None:
    async def main(servers: Any) -> None:
        topic = await servers.new_topic()
        waiting = asyncio.Event()

        async def read() -> None:
            async with consumer(servers, topic) as reader:
                waiting.set()
                async for _ in reader:
                    pass

        task = asyncio.create_task(read())
        await waiting.wait()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main)
