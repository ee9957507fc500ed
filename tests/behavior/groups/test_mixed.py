"""A group with members of this library, librdkafka, and Java. Each of them leads the group once."""

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kafka_harness.tools import JavaTool

from aiokclient import Admin, Consumer, Producer, ProducerRecord

JAVA = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}


class Site:
    def __init__(self, servers: Any, topic: str) -> None:
        self.bootstrap, self.topic = str(servers.bootstrap), topic
        self.group = f"mixed-{topic}"

    def ours(self, strategy: str) -> Consumer[Any, Any]:
        return Consumer(
            self.topic,
            group_id=self.group,
            bootstrap_servers=self.bootstrap,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=200,
            partition_assignment_strategy=strategy,
        )

    async def fill(self) -> None:
        async with Producer(bootstrap_servers=self.bootstrap) as producer:
            records = [ProducerRecord(self.topic, b"%d" % i, partition=i % 4) for i in range(40)]
            await producer.gather(producer.send_many(self.topic, records))

    @contextmanager
    def java(self, strategy: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run Kafka's console consumer as a member of the group until the end of the block."""
        settings = {
            "group.id": self.group,
            "heartbeat.interval.ms": "200",
            "partition.assignment.strategy": JAVA[strategy],
        }
        pairs = [f"--command-property={name}={value}" for name, value in settings.items()]
        arguments = ["--bootstrap-server", self.bootstrap, "--topic", self.topic, *pairs]
        command = JavaTool("console-consumer", *arguments).command
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            try:
                yield process
            finally:
                process.terminate()

    async def until_members(self, count: int) -> None:
        async with Admin(bootstrap_servers=self.bootstrap) as admin, asyncio.timeout(60):
            while True:
                found = await admin.describe_groups([self.group])
                described = found.get(self.group)
                if len(getattr(described, "members", ())) == count:
                    return
                await asyncio.sleep(0.05)


@pytest.fixture
async def site(cluster_servers: Any) -> Site:
    site = Site(cluster_servers, await cluster_servers.new_topic(partitions=4))
    await site.fill()
    return site


async def half_each(consumer: Consumer[Any, Any]) -> list[Any]:
    """Read until the member owns two of the four partitions and has read all their records."""
    records: list[Any] = []
    async with asyncio.timeout(60):
        while len(consumer.assignment()) != 2:
            records += await consumer.poll(timeout=0.1)
        while records_left(consumer, records):
            records += await consumer.poll(timeout=0.1)
    return records


def records_left(consumer: Consumer[Any, Any], records: list[Any]) -> bool:
    consumed = consumer.consumed()
    return any(tp not in consumed or consumed[tp].offset < 10 for tp in consumer.assignment())


@pytest.mark.java
@pytest.mark.parametrize(
    ("strategy", "leader"),
    [("range", "java"), ("cooperative-sticky", "java"), ("cooperative-sticky", "ours")],
)
async def test_java_and_this_library_share_a_group(site: Site, strategy: str, leader: str) -> None:
    if leader == "java":
        with site.java(strategy):
            await site.until_members(1)
            async with site.ours(strategy) as consumer:
                assert await half_each(consumer) is not None
                assert len(consumer.assignment()) == 2
    else:
        async with site.ours(strategy) as consumer:
            await consumer.poll(timeout=0)
            with site.java(strategy):
                assert await half_each(consumer) is not None
            async with asyncio.timeout(60):
                # The Java consumer leaves the group when it is terminated.
                while len(consumer.assignment()) != 4:
                    await consumer.poll(timeout=0.1)


@pytest.mark.parametrize("strategy", JAVA)
async def test_librdkafka_and_this_library_share_a_classic_group(site: Site, strategy: str) -> None:
    from confluent_kafka import Consumer as Foreign

    foreign = Foreign(
        {
            "bootstrap.servers": site.bootstrap,
            "group.id": site.group,
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 200,
            "partition.assignment.strategy": strategy,
        }
    )
    foreign.subscribe([site.topic])
    loop = asyncio.get_running_loop()

    async def run(until: Any) -> None:
        while not until():
            await loop.run_in_executor(None, foreign.poll, 0.05)

    async with asyncio.timeout(60):
        await run(lambda: len(foreign.assignment()) == 4)
        async with site.ours(strategy) as consumer:
            reading = asyncio.create_task(half_each(consumer))
            await run(lambda: reading.done() and len(foreign.assignment()) == 2)
            assert reading.result() is not None
        await run(lambda: len(foreign.assignment()) == 4)
    await loop.run_in_executor(None, foreign.close)
