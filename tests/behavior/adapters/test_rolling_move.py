"""Members of aiokafka and of the adapter in one group, replaced one by one, and back."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import ModuleType
from typing import Any

import aiokafka

from aiokclient.adapters import aiokafka as adapter

PARTITIONS = 4
BETWEEN = 30
"""The records that the group reads between two replacements."""


class Ledger:
    """The records that were sent, and how often each was read."""

    def __init__(self) -> None:
        self.sent: dict[bytes, int] = {}
        self.read: Counter[bytes] = Counter()
        self.last: dict[bytes, int] = {}
        self.disordered: list[bytes] = []
        self.changed = asyncio.Condition()

    async def note_read(self, records: list[Any]) -> None:
        async with self.changed:
            for each in records:
                if int(each.value) < self.last.get(each.key, 0):
                    self.disordered.append(each.value)
                self.last[each.key] = int(each.value)
            self.read.update(each.value for each in records)
            self.changed.notify_all()

    async def await_progress(self, count: int) -> None:
        """Wait until `count` more records were read."""
        async with self.changed:
            goal = self.read.total() + count
            await self.changed.wait_for(lambda: self.read.total() >= goal)

    async def await_all(self) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: self.read.keys() >= self.sent.keys())


class Member:
    """A consumer of the group, which commits what it has read, with metadata."""

    def __init__(self, kafka: ModuleType, servers: str, topic: str, ledger: Ledger) -> None:
        member = self

        class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc,name-defined]
            async def on_partitions_revoked(self, revoked: Any) -> None:
                if revoked:
                    await member.consumer.commit()

            def on_partitions_assigned(self, assigned: Any) -> None:
                pass

        self._ledger, self._stopping = ledger, False
        self.consumer = kafka.AIOKafkaConsumer(
            bootstrap_servers=servers,
            group_id=f"{topic}-movers",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=100,
        )
        self.consumer.subscribe([topic], listener=Listener())

    async def start(self) -> Member:
        await self.consumer.start()
        self._reading = asyncio.create_task(self._read())
        return self

    async def _read(self) -> None:
        while not self._stopping:
            found = await self.consumer.getmany(timeout_ms=100, max_records=20)
            for records in found.values():
                await self._ledger.note_read(records)
            if found:
                offsets = {tp: (records[-1].offset + 1, "read") for tp, records in found.items()}
                await self.consumer.commit(offsets)

    async def stop(self) -> None:
        self._stopping = True
        await self._reading
        await self.consumer.stop()


async def send_until(stopped: asyncio.Event, servers: str, topic: str, ledger: Ledger) -> None:
    """Send keyed records by both libraries in turn, which choose the same partitions."""
    partitions: dict[bytes, int] = {}
    async with (
        aiokafka.AIOKafkaProducer(bootstrap_servers=servers) as theirs,
        adapter.AIOKafkaProducer(bootstrap_servers=servers) as ours,
    ):
        while not stopped.is_set():
            for producer in (theirs, ours):
                value = b"%d" % len(ledger.sent)
                key = b"key-%d" % (len(ledger.sent) % 25)
                ledger.sent[value] = 0
                metadata = await producer.send_and_wait(topic, value, key=key)
                assert partitions.setdefault(key, metadata.partition) == metadata.partition


async def test_group_moves_to_the_adapter_and_back_without_loss_or_repetition(
    cluster_servers: Any,
) -> None:
    topic = await cluster_servers.new_topic(PARTITIONS)
    servers, ledger, stopped = cluster_servers.bootstrap, Ledger(), asyncio.Event()
    sending = asyncio.create_task(send_until(stopped, servers, topic, ledger))
    members = [await Member(aiokafka, servers, topic, ledger).start() for _ in range(2)]
    for kafka in (adapter, aiokafka):
        for index in range(len(members)):
            await ledger.await_progress(BETWEEN)
            await members[index].stop()
            members[index] = await Member(kafka, servers, topic, ledger).start()
    await ledger.await_progress(BETWEEN)
    stopped.set()
    await sending
    await ledger.await_all()
    async with adapter.AIOKafkaConsumer(
        bootstrap_servers=servers, group_id=f"{topic}-movers"
    ) as consumer:
        partitions = [adapter.TopicPartition(topic, index) for index in range(PARTITIONS)]
        ends = await consumer.end_offsets(partitions)
        for member in members:
            await member.stop()
        assert {tp: await consumer.committed(tp) or 0 for tp in partitions} == ends
    assert [value for value, count in ledger.read.items() if count > 1] == []
    assert ledger.disordered == []
    assert ledger.read.keys() == ledger.sent.keys()
