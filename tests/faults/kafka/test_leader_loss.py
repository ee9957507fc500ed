"""Brokers are killed, hang, and shut down while producers write, and no payload is lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from driver import Writer, partitions_of, read_to_the_end
from kafka_harness import KafkaCluster
from ledger import Ledger

from aiokclient import Producer

IN_SYNC = {"min.insync.replicas": 2}

pytestmark = pytest.mark.timeout(600)
"""The timeout is long: to restart brokers one after the other takes over a minute on a busy
machine."""


@asynccontextmanager
async def producing(kafka: KafkaCluster, ledger: Ledger, topic: str) -> AsyncIterator[None]:
    """Run two producers that write to three partitions during the block.

    Then read and check all records.
    """
    wanted = partitions_of({topic: 3})
    async with (
        Producer(bootstrap_servers=kafka.bootstrap, linger_ms=1) as one,
        Producer(bootstrap_servers=kafka.bootstrap, batch_size=500) as other,
    ):
        writers = [
            Writer(producer, ledger, wanted, number=number, pause=0.001)
            for number, producer in enumerate((one, other))
        ]
        async with asyncio.TaskGroup() as group:
            for writer in writers:
                group.create_task(writer.run())
            try:
                await ledger.until(200)
                yield
            finally:
                for writer in writers:
                    writer.stopped = True
        await one.flush()
        await other.flush()
    await read_to_the_end(ledger, kafka.bootstrap, wanted)
    ledger.check()
    assert not ledger.failed, ledger.summary()


async def further(ledger: Ledger, count: int = 300) -> None:
    """Wait until `count` more records are acknowledged."""
    await ledger.until(len(ledger.acknowledged) + count)


async def in_thread(function: object, *arguments: object) -> object:
    assert callable(function)
    return await asyncio.to_thread(function, *arguments)


@pytest.mark.fault(1, 14)
@pytest.mark.parametrize(("breaking", "mending"), [("kill", "start"), ("pause", "resume")])
async def test_no_record_is_lost_when_a_leader_dies_and_returns(
    kafka3: KafkaCluster, breaking: str, mending: str
) -> None:
    topic = kafka3.create_topic(partitions=3, replication=3, configs=IN_SYNC)
    ledger = Ledger()
    async with producing(kafka3, ledger, topic):
        leader = kafka3.leader(topic)
        await in_thread(getattr(kafka3, breaking), leader)
        await in_thread(lambda: kafka3.await_leader(topic, other_than=leader))
        await further(ledger)
        await in_thread(getattr(kafka3, mending), leader)
        await in_thread(kafka3.await_in_sync, topic)
        await further(ledger)


@pytest.mark.fault(3)
async def test_no_record_is_lost_when_leaders_move(kafka3: KafkaCluster) -> None:
    topic = kafka3.create_topic(partitions=3, replication=3, configs=IN_SYNC)
    ledger = Ledger()
    async with producing(kafka3, ledger, topic):
        for _ in range(2):
            leader = kafka3.leader(topic)
            await in_thread(kafka3.stop, leader)
            await further(ledger)
            await in_thread(kafka3.start, leader)
            await in_thread(kafka3.await_in_sync, topic)
            await further(ledger)


@pytest.mark.fault(1)
async def test_no_record_is_lost_when_all_brokers_die_in_turn(kafka3: KafkaCluster) -> None:
    topic = kafka3.create_topic(partitions=3, replication=3, configs=IN_SYNC)
    ledger = Ledger()
    async with producing(kafka3, ledger, topic):
        for node in (1, 2, 3):
            await in_thread(kafka3.kill, node)
            await further(ledger)
            await in_thread(kafka3.start, node)
            await in_thread(kafka3.await_in_sync, topic)
