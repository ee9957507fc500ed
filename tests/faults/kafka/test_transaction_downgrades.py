"""Transactions on three brokers while Kafka's tool changes the level of transaction.version."""

from __future__ import annotations

import asyncio
import itertools
import os
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from kafka_harness import JavaTool, KafkaCluster
from open_transactions import none_open
from transaction_levels import NAME, set_level, until_level

from aiokclient import Client, Consumer, GroupMetadata, Producer, TopicPartition
from aiokclient.errors import AbortableError, ApplicationRecoverableError

pytestmark = [pytest.mark.usefixtures("kafka_tools_jars"), pytest.mark.timeout(280)]

TOOL = "org.apache.kafka.tools.FeatureCommand"
DEADLINE = 90.0
IN_SYNC = {"min.insync.replicas": 2}
WHENS = ("between two transactions", "within a transaction")
CASES = (
    list(itertools.product(WHENS, (False, True)))
    if os.environ.get("AIOKCLIENT_EXPLORE")
    else list(zip(WHENS, (False, True), strict=True))
)
"""The time of the change, and whether offsets are sent before records. Both take turns."""


class Program:
    """A loop of transactions with a record and an offset, which handles all errors by category.

    The committed offset says which record is next, so each record must be visible exactly once.
    """

    def __init__(self, kafka: KafkaCluster, topic: str, *, offsets_first: bool) -> None:
        self.kafka, self.topic, self.offsets_first = kafka, topic, offsets_first
        self.id = self.group = f"levels-{uuid.uuid4().hex[:12]}"
        self.input = TopicPartition(topic, 2)
        self.next = 0
        self.restarts = 0
        self.failed = asyncio.Event()
        """Set at the first error that requires a restart."""
        self.running = asyncio.Event()
        self.running.set()
        self.advanced = asyncio.Event()
        self.idle = asyncio.Event()
        self.within = asyncio.Event()
        """Set while `hold` keeps a transaction open."""
        self.hold = False

    async def run(self) -> None:
        options: dict[str, Any] = {"transactional_id": self.id, "default_api_timeout_ms": 8_000}
        async with Producer(bootstrap_servers=self.kafka.bootstrap, **options) as producer:
            while True:
                self.idle.set()
                await self.running.wait()
                self.idle.clear()
                try:
                    await self.transaction(producer)
                except (AbortableError, ApplicationRecoverableError) as error:
                    await self.recover(producer, error)
                    self.next = await self.committed()
                else:
                    self.next += 1
                    self.advanced.set()

    async def transaction(self, producer: Producer[Any, Any]) -> None:
        async with producer.transaction() as tx:
            offsets = {self.input: self.next + 1}
            if self.offsets_first:
                await tx.send_offsets(offsets, GroupMetadata(self.group))
            await tx.send(self.topic, b"%d" % self.next, partition=0)
            if self.hold:
                self.within.set()
                await self.running.wait()
            if not self.offsets_first:
                await tx.send_offsets(offsets, GroupMetadata(self.group))

    async def recover(self, producer: Producer[Any, Any], error: Exception) -> None:
        while isinstance(error, ApplicationRecoverableError):
            self.restarts += 1
            self.failed.set()
            try:
                await producer.restart()
            except AbortableError:
                continue  # It is refused until another broker becomes the coordinator.
            return

    async def committed(self) -> int:
        async with Consumer(bootstrap_servers=self.kafka.bootstrap, group_id=self.group) as member:
            found = (await member.committed([self.input], timeout=DEADLINE))[self.input]
            return 0 if found is None else found.offset

    async def until(self, count: int) -> None:
        """Wait until `count` more records are committed."""
        least = self.next + count
        async with asyncio.timeout(DEADLINE):
            while self.next < least:
                self.advanced.clear()
                await self.advanced.wait()

    async def move_coordinator(self) -> None:
        async with Client(bootstrap_servers=self.kafka.bootstrap) as client:
            node = await client.cluster.coordinators.locate_coordinator("transaction", self.id)
        await asyncio.to_thread(self.kafka.kill, node)

    async def check(self) -> None:
        await none_open(self.kafka.bootstrap, self.topic, [0])
        options: dict[str, Any] = {"isolation_level": "read_committed"}
        async with Consumer(bootstrap_servers=self.kafka.bootstrap, **options) as consumer:
            consumer.assign([TopicPartition(self.topic, 0)])
            consumer.seek_to_beginning([TopicPartition(self.topic, 0)])
            values = [int(record.value or b"") async for record in consumer.until_end()]
        assert values == list(range(await self.committed()))


@pytest.fixture
async def kafka_of_levels(kafka3: KafkaCluster) -> AsyncIterator[KafkaCluster]:
    """Three brokers, whose level of transaction.version is 2 again after the test."""
    yield kafka3
    await asyncio.to_thread(kafka3.heal)
    await set_level(kafka3, 2)


async def change(kafka: KafkaCluster, *arguments: str) -> None:
    tool = JavaTool(TOOL, "--bootstrap-server", kafka.bootstrap, *arguments)
    await asyncio.to_thread(tool.run, timeout=120)


@pytest.mark.parametrize(("when", "offsets_first"), CASES)
async def test_each_record_is_committed_once_while_the_level_is_changed(
    kafka_of_levels: KafkaCluster, when: str, offsets_first: bool
) -> None:
    kafka = kafka_of_levels
    topic = await asyncio.to_thread(kafka.create_topic, None, 3, 3, IN_SYNC)
    program = Program(kafka, topic, offsets_first=offsets_first)
    running = asyncio.create_task(program.run())
    try:
        await program.until(5)
        program.hold = when == "within a transaction"
        program.running.clear()
        await (program.within if program.hold else program.idle).wait()
        await change(kafka, "downgrade", "--feature", f"{NAME}=0")
        await until_level(kafka, 0)
        program.hold = False
        program.running.set()
        # All requests of level 2 are refused until the coordinator moves.
        async with asyncio.timeout(DEADLINE):
            await program.failed.wait()
        await program.move_coordinator()
        await program.until(5)
        await asyncio.to_thread(kafka.heal)
        restarts = program.restarts
        await change(kafka, "upgrade", "--feature", f"{NAME}=2")
        await until_level(kafka, 2)
        await program.until(5)
        assert program.restarts == restarts, "The program must not notice an upgrade."
        program.running.clear()
        await program.idle.wait()
        await program.check()
        assert not running.done()
    finally:
        running.cancel()
        await asyncio.wait([running])
