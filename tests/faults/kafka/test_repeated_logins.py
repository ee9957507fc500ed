"""Logins on a real Kafka that are repeated every five seconds, while many records are in flight."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from kerberos_peers import MISSING
from secured_kafka import REAUTH_MS, SecuredKafka

from aiokclient import Admin, Client, Consumer, NewTopic, Producer, TopicPartition
from aiokclient.events import Authenticated, Disconnected

SECONDS = 60
RATE = 5_000
"""Records per second of the first login. The others share one tenth of that."""
PAUSE_S = 0.02
LOGINS = [
    "SCRAM-SHA-512",
    "SCRAM-SHA-256",
    "PLAIN",
    "unsecured token",
    "delegation token",
    *([] if MISSING else ["GSSAPI"]),
]


class Traffic:
    """A producer and a consumer of one partition, on one client."""

    def __init__(self, options: dict[str, Any], topic: str, partition: int, rate: float) -> None:
        self._options = options
        self._topic, self._partition = topic, partition
        self._rate = rate
        self.sent = self.read = 0
        self.events: list[Any] = []

    async def run(self) -> None:
        """Send numbered records for SECONDS, and check that they are read in their order."""
        async with Client(**self._options) as client:
            events = client.events()
            consumer = Consumer(client=client, auto_offset_reset="earliest")
            consumer.assign([TopicPartition(self._topic, self._partition)])
            producer = Producer(client=client, linger_ms=5)
            async with producer, consumer, asyncio.TaskGroup() as group:
                group.create_task(self._read(consumer))
                group.create_task(self._send(producer))
        self.events = [event async for event in events]

    async def _send(self, producer: Producer) -> None:
        time = asyncio.get_running_loop().time
        began, total = time(), int(self._rate * SECONDS)
        while self.sent < total:
            due = min(total, int(self._rate * (time() - began)))
            deliveries = [
                producer.send(self._topic, b"%d" % number, partition=self._partition)
                for number in range(self.sent, due)
            ]
            first, self.sent = self.sent, due
            if deliveries:
                found = await producer.gather(deliveries)
                assert [each.offset for each in found] == list(range(first, due))
            await asyncio.sleep(PAUSE_S)

    async def _read(self, consumer: Consumer) -> None:
        while self.read < int(self._rate * SECONDS):
            for record in await consumer.poll(PAUSE_S):
                assert record.value == b"%d" % self.read
                assert record.offset == self.read
                self.read += 1


@pytest.mark.slow
@pytest.mark.fault(46)
async def test_logins_repeated_for_a_minute_under_load_lose_and_reorder_nothing(
    secured: SecuredKafka,
) -> None:
    topic = f"again-{uuid.uuid4().hex[:8]}"
    async with Admin(bootstrap_servers=secured.cluster.bootstrap) as admin:
        (await admin.create_topics([NewTopic(topic, len(LOGINS), 1)])).raise_for_errors()
    every = {}
    for partition, login in enumerate(LOGINS):
        options = (await secured.way(login, "REAUTH")).options
        rate = RATE / (10 * (len(LOGINS) - 1)) if partition else RATE
        every[login] = Traffic(options, topic, partition, rate)
    async with asyncio.TaskGroup() as group:
        for traffic in every.values():
            group.create_task(traffic.run())
    assert every[LOGINS[0]].read >= SECONDS * RATE
    for login, traffic in every.items():
        assert traffic.read == traffic.sent
        again = [e for e in traffic.events if isinstance(e, Authenticated) and e.again]
        lost = [e for e in traffic.events if isinstance(e, Disconnected) and e.cause is not None]
        # The client has connections to produce and to fetch, which are both in use all the time.
        assert len(again) >= 2 * (SECONDS * 1000 // REAUTH_MS - 2), login
        assert all(0 < event.lifetime_ms <= REAUTH_MS for event in again), login
        # Where a process gets no processor for long, a session may end before its repetition.
        assert len(lost) <= len(again) // 5, (login, lost)
