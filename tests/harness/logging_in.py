"""Helpers for tests of logins: use a secured cluster, or return the error of a refused login."""

from __future__ import annotations

import time
import uuid
from typing import Any, NamedTuple

import pytest
from loop_time import held_times

from aiokclient import Admin, Client, Consumer, NewTopic, Producer
from aiokclient.errors import KafkaError


async def round_trip(**options: Any) -> None:
    """Create a topic, send a record to it, and read the record."""
    topic = f"login-{uuid.uuid4().hex[:8]}"
    async with Client(**options) as client:
        async with Admin(client=client) as admin:
            (await admin.create_topics([NewTopic(topic, 1, 1)])).raise_for_errors()
        async with Producer(client=client) as producer:
            await producer.send(topic, b"v" * 100_000)
        async with Consumer(topic, client=client, auto_offset_reset="earliest") as consumer:
            record = await consumer.get(timeout=60)
    assert record is not None
    assert record.value == b"v" * 100_000


async def refusal(servers: str, **options: Any) -> KafkaError:
    """Return the error that the start of a client raises well before its deadline."""
    client = Client(bootstrap_servers=servers, **{"default_api_timeout_ms": 120_000, **options})
    began = time.monotonic()
    with pytest.raises(KafkaError) as caught:
        await client.start()
    assert time.monotonic() - began < 60
    await client.close()
    return caught.value


class LoginTime(NamedTuple):
    """The duration of a client's start."""

    seconds: float
    """The time until the first connection was ready and the metadata had arrived."""
    held_s: float
    """The longest CPU time for which one callback blocked the event loop."""


async def login_time(**options: Any) -> LoginTime:
    """Start a client that logs in.

    Return how long this takes, and how long it blocks the event loop.
    """
    with held_times(collecting=False) as held:
        began = time.perf_counter()
        async with Client(**options):
            seconds = time.perf_counter() - began
    return LoginTime(seconds, max(held))
