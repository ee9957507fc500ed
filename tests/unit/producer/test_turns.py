"""Tests of the loop iterations that an awaited send costs.

A callback reads the response, and the waiting task continues in it. In pure Python, the task
continues in the next iteration, because it waits for a future of asyncio.
"""

import time
from typing import Any

import pytest
from loop_time import held_times

from aiokclient import Producer
from aiokclient._native import in_use

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
