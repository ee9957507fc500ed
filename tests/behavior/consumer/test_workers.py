"""Workers as a program uses them: signals, threads, deserializers, several on one client."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import uuid
from typing import Any

import pytest

from aiokclient import Client, Consumer, ConsumerRecord, Producer, TopicPartition
from aiokclient.errors import IllegalStateError, RecordError
from aiokclient.testing import EmbeddedCluster
from aiokclient.worker import Retry, Worker

Record = ConsumerRecord[Any, Any]


async def run_until(worker: Worker, event: asyncio.Event) -> None:
    """Run a worker until an event, and stop it; raise the error with which it ends before."""
    running = asyncio.create_task(worker.run())
    waiting = asyncio.create_task(event.wait())
    await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    await worker.drain(5.0)
    await running


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_worker_commits_what_it_has_handled(cluster_servers: Any, protocol: str) -> None:
    topic = await cluster_servers.new_topic(3)
    group, servers = f"workers-{uuid.uuid4()}", cluster_servers.bootstrap
    async with Producer(bootstrap_servers=servers) as producer:
        await producer.gather(
            [producer.send(topic, b"%d" % n, key=b"k%d" % (n % 5)) for n in range(90)]
        )
    seen: list[tuple[int, int]] = []
    finished = asyncio.Event()

    async def handle(record: Record, worker: Worker) -> None:
        await asyncio.sleep(0.001)
        seen.append((record.partition, record.offset))
        if len(seen) == 90:
            finished.set()

    options: Any = {"group_protocol": protocol, "auto_offset_reset": "earliest"}
    client = Client(bootstrap_servers=servers)
    async with client, Consumer(topic, client=client, group_id=group, **options) as consumer:
        worker = Worker(consumer, handle, order="key", concurrency=8)
        async with asyncio.timeout(60):
            await run_until(worker, finished)
        assert worker.name == group
        tps = [TopicPartition(topic, partition) for partition in range(3)]
        stored = await consumer.committed(tps)
        ends = await consumer.end_offsets(tps)
    assert len(set(seen)) == 90
    assert {tp: each.offset for tp, each in stored.items() if each} == {
        tp: end for tp, end in ends.items() if end
    }


async def test_a_synchronous_handler_runs_in_threads(stage: Any) -> None:
    stage.new_topic(4)
    for partition in range(4):
        stage.fill(1, partition)
    out = f"{stage.topic}.out"
    stage.cluster.create_topic(out, 1)
    both = threading.Barrier(4, timeout=20)
    seen: list[str] = []
    loop, finished = asyncio.get_running_loop(), asyncio.Event()

    def handle(record: Record, worker: Worker) -> None:
        both.wait()  # All four are in threads at the same time.
        future: Any = worker.send(out, record.value)
        assert future.result(timeout=20).topic == out
        seen.append(threading.current_thread().name)
        if len(seen) == 4:
            loop.call_soon_threadsafe(finished.set)

    async with stage.consumer(group_id="threads") as consumer:
        worker = Worker(consumer, handle, concurrency=4, name="sync")
        await run_until(worker, finished)
    assert {name.partition("_")[0] for name in seen} == {"sync-handler"}


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs signals of POSIX")
async def test_the_first_signal_drains_and_the_second_cancels(stage: Any) -> None:
    stage.fill(2)
    began = asyncio.Event()
    cancelled: list[int] = []

    async def handle(record: Record) -> None:
        began.set()
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            cancelled.append(record.offset)
            raise

    before = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        async with stage.consumer(group_id="signals") as consumer:
            worker = Worker(consumer, handle, drain_timeout=60)
            running = asyncio.create_task(worker.run())
            await began.wait()
            os.kill(os.getpid(), signal.SIGTERM)
            async with asyncio.timeout(10):
                while not worker.health().reasons:  # noqa: ASYNC110 - it is no event
                    await asyncio.sleep(0.01)
            assert "draining" in worker.health().reasons[0]
            assert not running.done()
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(running, 10)
            assert cancelled == [0]
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


async def test_a_record_that_cannot_be_deserialized_is_given_up_with_its_bytes(
    stage: Any,
) -> None:
    stage.cluster.produce(stage.topic, [b"1", b"not a number", b"3"])
    dead = f"{stage.topic}.dead"
    stage.cluster.create_topic(dead, 1)
    seen: list[int] = []
    finished = asyncio.Event()

    async def handle(record: Record) -> None:
        seen.append(record.value)
        if len(seen) == 2:
            finished.set()

    async with stage.consumer(group_id="numbers", value_deserializer=int) as consumer:
        worker = Worker(consumer, handle, dead_letter=dead)
        await run_until(worker, finished)
        # The consumer deserializes again for its own readers.
        consumer.seek(stage.tp(), 0)
        record = await consumer.get(timeout=20)
        assert record is not None
        assert record.value == 1
    (letter,) = stage.cluster.records(dead)
    assert letter.value == b"not a number"
    async with stage.consumer(group_id="others", value_deserializer=int) as consumer:
        with pytest.raises(RecordError):
            await consumer.run(handle)


async def test_a_batch_of_views_and_a_worker_that_runs_twice(stage: Any) -> None:
    stage.fill(3)
    kinds: list[type] = []
    finished = asyncio.Event()

    async def handle(record: Record) -> None:
        kinds.append(type(record.value))
        if len(kinds) == 3:
            finished.set()

    async with stage.consumer(group_id="views", value_deserializer=memoryview) as consumer:
        worker = Worker(consumer, handle, retry=Retry(1))
        running = asyncio.create_task(worker.run())
        await finished.wait()
        with pytest.raises(IllegalStateError, match="already runs"):
            await worker.run()
        await worker.drain()
        await running
        finished.clear()
        kinds.clear()
        stage.fill(3)
        await run_until(worker, finished)
    assert kinds == [memoryview] * 3


@pytest.mark.parametrize("order", ["partition", "key", None])
async def test_a_gap_of_a_compacted_log_may_be_larger_than_max_ahead(order: Any) -> None:
    offsets: list[int] = []
    finished = asyncio.Event()

    async def handle(record: Record) -> None:
        offsets.append(record.offset)
        if record.value == b"newer":
            finished.set()

    async with EmbeddedCluster(brokers=1) as cluster:
        cluster.create_topic("compacted", 1, configs={"cleanup.policy": "compact"})
        for _ in range(5):
            cluster.produce("compacted", [(b"a", b"old")] * 20)
        cluster.produce("compacted", [(b"b", b"new"), (b"c", b"newer")])
        cluster.compact("compacted")
        servers = cluster.bootstrap_servers
        async with Consumer(
            "compacted", bootstrap_servers=servers, auto_offset_reset="earliest"
        ) as consumer:
            worker = Worker(consumer, handle, order=order, concurrency=1, max_ahead=10)
            async with asyncio.timeout(60):
                await run_until(worker, finished)
    assert offsets == [99, 100, 101]


@pytest.mark.parametrize(
    ("handle", "error"),
    [
        (lambda: None, TypeError),
        (lambda record, worker, more: None, TypeError),
        (lambda record, *, worker: None, TypeError),
        ("handle", TypeError),
    ],
)
async def test_a_handler_with_a_wrong_signature_is_refused(
    stage: Any, handle: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        Worker(stage.consumer(group_id="g"), handle)
