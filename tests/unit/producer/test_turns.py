"""Tests of the loop iterations that an awaited send costs.

A callback reads the response, and then the waiting task continues.
"""

from typing import Any

import pytest
from loop_time import held_times

from aiokclient import Producer

SENDS = 100


@pytest.mark.parametrize("linger_ms", [0, 5])
async def test_callbacks_of_an_awaited_send(
    kafka_cluster: Any, kafka_topic: str, linger_ms: int
) -> None:
    servers = kafka_cluster.bootstrap_servers
    async with Producer(bootstrap_servers=servers, linger_ms=linger_ms) as producer:
        await producer.send(kafka_topic, b"first")
        with held_times() as times:
            for _ in range(SENDS):
                await producer.send(kafka_topic, b"v")
        # With a linger time, the await or the timer triggers the send in a later iteration.
        each = 2 if not linger_ms else 4
        assert len(times) <= each * SENDS + 10
