"""Tests of the loop iterations that an awaited send costs.

A callback reads the response, and the waiting task continues in it. In pure Python, the task
continues in the next iteration, because it waits for a future of asyncio.
"""

import asyncio
import time
from typing import Any

import pytest
from loop_time import held_times

from aiokclient import Producer
from aiokclient._native import in_use
from aiokclient.metrics import Metrics, OwnMetrics
from aiokclient.producer.batching.meters import NOTED, ProducerMeters

SENDS = 100


@pytest.mark.parametrize("linger_ms", [0, 5])
async def test_callbacks_of_an_awaited_send(
    kafka_cluster: Any, kafka_topic: str, linger_ms: int
) -> None:
    servers = kafka_cluster.bootstrap_servers
    async with Producer(bootstrap_servers=servers, linger_ms=linger_ms) as producer:
        await producer.send(kafka_topic, b"first")
        began = time.monotonic()
        with held_times() as times:
            for _ in range(SENDS):
                await producer.send(kafka_topic, b"v")
        # The timer of the linger time and what it schedules.
        lingering = (time.monotonic() - began) * 1000 // linger_ms if linger_ms else 0
        each = 1 if in_use() else 2
        assert len(times) <= each * SENDS + 2 * lingering + 10


@pytest.mark.skipif(not in_use(), reason="Only native waiters continue within the read.")
async def test_awaited_sends_set_no_timer_for_their_linger_time(
    kafka_cluster: Any, kafka_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, timers = asyncio.get_running_loop(), []
    call_at = loop.call_at

    def count_timer(when: float, callback: Any, *args: Any, **options: Any) -> Any:
        timers.extend(each.__qualname__ for each in args if hasattr(each, "__qualname__"))
        return call_at(when, callback, *args, **options)

    servers = kafka_cluster.bootstrap_servers
    async with Producer(bootstrap_servers=servers, linger_ms=1) as producer:
        await producer.send(kafka_topic, b"first")
        monkeypatch.setattr(loop, "call_at", count_timer)
        for _ in range(SENDS):
            await producer.send(kafka_topic, b"v")
        # A stall of the machine may let a task continue in the loop's next iteration.
        assert timers.count("Accumulator._on_linger_timer") <= SENDS // 20


async def test_send_after_an_awaited_one_leaves_after_its_linger_time(
    kafka_cluster: Any, kafka_topic: str
) -> None:
    servers = kafka_cluster.bootstrap_servers
    async with Producer(bootstrap_servers=servers, linger_ms=1) as producer:
        for _ in range(3):
            await producer.send(kafka_topic, b"awaited")
            written = asyncio.Event()
            # A callback does not end the linger time, as an `await` does.
            producer.send(kafka_topic, b"v").add_done_callback(lambda _, event=written: event.set())
            await asyncio.wait_for(written.wait(), 60)


def test_batches_are_counted_after_a_request_not_while_a_task_waits_for_a_response() -> None:
    metrics = Metrics()
    own = OwnMetrics(metrics)
    meters = ProducerMeters(own)
    sizes = metrics.histogram("producer.batch.bytes", unit="By")
    for _ in range(3 * NOTED):
        meters.count_written("t", count=2, size=50, queued_s=0.5, plain_size=60)
    assert sizes._count == 0
    meters.on_request_sent()
    assert sizes._count == 3 * NOTED
    assert own.counter("produce.requests").value == 1
