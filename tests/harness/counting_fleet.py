"""Clients on an embedded cluster that count what they do, while they push their metrics.

One client is slow, one has records refused, and the records of all pushes are kept. Tests of the
pipeline on Spark compare the sums in its tables with the counts of the clients.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import NamedTuple

from aiokclient import (
    Admin,
    ConfigResource,
    Consumer,
    KafkaError,
    NewTopic,
    Producer,
)
from aiokclient.protocol import ApiKey
from aiokclient.testing import EmbeddedCluster, TopicTelemetryReceiver

TOPIC = "client-metrics"
INTERVAL_MS = 200
SHOPS = ("shop-1", "shop-2", "shop-3", "quiet")
SLOW = "ledger"
FAILING = "depot"
GROUP = "billing"
MEMBERS = ("member-1", "member-2")
CLIENTS = len(SHOPS) + 2 + len(MEMBERS)
PAUSE_S = 0.02
DELAY_S = 0.6


class Pushed(NamedTuple):
    """One record of the topic into which the metrics are pushed."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int


class Counted(NamedTuple):
    """The pushes of a fleet, in the order in which they arrived, and what the clients counted."""

    records: list[Pushed]
    sent: dict[str, int]
    """Records that were acknowledged, by client."""
    failed: dict[str, int]
    """Records that were refused, by client."""


class Fleet:
    """The clients, which work until `end` is called."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._end = asyncio.Event()
        self.sent: dict[str, int] = {}
        self.failed: dict[str, int] = {}

    def end(self) -> None:
        self._end.set()

    async def produce(
        self, name: str, size: int = 100, transactional_id: str | None = None
    ) -> None:
        """Produce until the end, and count acknowledged and refused records."""
        self.sent[name] = self.failed[name] = 0
        async with Producer(
            bootstrap_servers=self._servers,
            client_id=name,
            linger_ms=0,
            transactional_id=transactional_id,
        ) as producer:
            while not self._end.is_set():
                if transactional_id is None:
                    await self._send(producer, name, size)
                else:
                    async with producer.transaction() as transaction:
                        transaction.send("payments", b"5 EUR")
                    self.sent[name] += 1
                await asyncio.sleep(PAUSE_S)

    async def _send(self, producer: Producer[bytes, bytes], name: str, size: int) -> None:
        try:
            await producer.send("orders", bytes(size))
        except KafkaError:
            self.failed[name] += 1
        else:
            self.sent[name] += 1

    async def consume(self, name: str) -> None:
        """Consume as a member of the group until the end."""
        consumer: Consumer[bytes, bytes] = Consumer(
            "orders", bootstrap_servers=self._servers, client_id=name, group_id=GROUP
        )
        async with consumer:
            ending = asyncio.create_task(self._end.wait())
            ending.add_done_callback(lambda _: consumer.stop())
            async for _ in consumer:
                pass


async def run_fleet(pushes: int) -> Counted:
    """Run the clients until each of them has pushed its metrics `pushes` times."""
    async with EmbeddedCluster(telemetry=TopicTelemetryReceiver(TOPIC)) as cluster:
        servers = cluster.bootstrap_servers
        async with Admin(bootstrap_servers=servers, enable_metrics_push=False) as admin:
            orders = NewTopic("orders", 2, configs={"max.message.bytes": "2000"})
            (await admin.create_topics([orders, NewTopic("payments", 1)])).raise_for_errors()
            every = ConfigResource.client_metrics("every")
            changes: dict[str, str | int] = {"metrics": "*", "interval.ms": INTERVAL_MS}
            (await admin.alter_configs({every: changes})).raise_for_errors()
            fleet = Fleet(servers)
            with cluster.delay(ApiKey.PRODUCE, DELAY_S, where=lambda it: bool(it.transactional_id)):
                async with asyncio.TaskGroup() as tasks:
                    for name in SHOPS:
                        tasks.create_task(fleet.produce(name))
                    tasks.create_task(fleet.produce(FAILING, size=5_000))
                    tasks.create_task(fleet.produce(SLOW, transactional_id=SLOW))
                    for name in MEMBERS:
                        tasks.create_task(fleet.consume(name))
                    counts: Counter[bytes | None] = Counter()
                    while len(counts) < CLIENTS or min(counts.values()) < pushes:
                        await asyncio.sleep(0.2)
                        records = await asyncio.to_thread(cluster.records, TOPIC)
                        counts = Counter(record.key for record in records)
                    fleet.end()
        records = await asyncio.to_thread(cluster.records, TOPIC)
    pushed = [Pushed(each.key, each.value, tuple(each.headers), each.timestamp) for each in records]
    return Counted(pushed, fleet.sent, fleet.failed)
