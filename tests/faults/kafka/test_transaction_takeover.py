"""A producer dies within a transaction on a real Kafka, and another one takes over."""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from kafka_harness import KafkaCluster
from open_transactions import none_open
from transaction_levels import set_level

import aiokclient
from aiokclient import Consumer, GroupMetadata, Producer, TopicPartition, TransactionOutcome
from aiokclient.errors import ApplicationRecoverableError

PROGRAM = Path(__file__).resolve().parents[2] / "harness" / "dying_producer.py"
IN_SYNC = {"min.insync.replicas": 2}
DEADLINE = 60.0
CASES = [
    pytest.param(2, True, id="2-killed"),
    pytest.param(0, False, id="0-still running"),
    *(
        [pytest.param(2, False, id="2-still running"), pytest.param(0, True, id="0-killed")]
        if os.environ.get("AIOKCLIENT_EXPLORE")
        else []
    ),
]
"""The level of transaction.version, and whether the process dies. The levels take turns."""
BUSY = "client.request.retries{api=InitProducerId,error=CONCURRENT_TRANSACTIONS}"


@asynccontextmanager
async def open_transaction(*arguments: str) -> AsyncIterator[Process]:
    """Run a process that has an open transaction with records and offsets."""
    env = {**os.environ, "PYTHONPATH": str(Path(aiokclient.__file__).parents[1])}
    command = [sys.executable, str(PROGRAM), *arguments]
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, env=env)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(DEADLINE):
            assert await process.stdout.readline() == b"written\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.fixture(params=[2, 0])
async def level(request: pytest.FixtureRequest, kafka3: KafkaCluster) -> AsyncIterator[int]:
    """The level of transaction.version, which is 2 again after the test."""
    if request.param != 2:
        await set_level(kafka3, request.param)
    yield request.param
    if request.param != 2:
        await asyncio.to_thread(kafka3.heal)
        await set_level(kafka3, 2)


async def committed_values(kafka: KafkaCluster, topic: str) -> list[list[bytes | None]]:
    """Return the committed values of each partition, after all transactions have ended."""
    await none_open(kafka.bootstrap, topic, range(3))
    values: list[list[bytes | None]] = [[], [], []]
    options = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    async with (
        Consumer(bootstrap_servers=kafka.bootstrap, **options) as consumer,  # type: ignore[arg-type]
        asyncio.timeout(DEADLINE),
    ):
        consumer.assign([TopicPartition(topic, partition) for partition in range(3)])
        async for record in consumer.until_end():
            values[record.partition].append(record.value)
    return values


@pytest.mark.fault(51)
@pytest.mark.parametrize(("level", "dies"), CASES, indirect=["level"])
async def test_nothing_is_seen_of_a_producer_that_another_one_replaced(
    kafka3: KafkaCluster, level: int, dies: bool
) -> None:
    """The first producer is never closed: its process is killed, or keeps its connections."""
    topic = await asyncio.to_thread(kafka3.create_topic, None, 3, 3, IN_SYNC)
    name = group = f"takeover-{uuid.uuid4().hex[:12]}"
    offset = TopicPartition(topic, 0)
    async with open_transaction(kafka3.bootstrap, name, topic, group) as process:
        if dies:
            process.kill()
            await process.wait()
        following = Producer(bootstrap_servers=kafka3.bootstrap, transactional_id=name)
        async with following, asyncio.timeout(DEADLINE):
            # Until the first transaction is aborted, the response is CONCURRENT_TRANSACTIONS.
            assert following.metrics().get(BUSY, 0) > 0
            async with following.transaction() as tx:
                for partition in range(3):
                    tx.send(topic, b"next", partition=partition)
                await tx.send_offsets({offset: 7}, GroupMetadata(group))
            assert tx.outcome is TransactionOutcome.COMMITTED
    assert await committed_values(kafka3, topic) == [[b"kept", b"next"], [b"next"], [b"next"]]
    async with Consumer(bootstrap_servers=kafka3.bootstrap, group_id=group) as consumer:
        found = (await consumer.committed([offset], timeout=DEADLINE))[offset]
        assert found is not None
        assert found.offset == 7


@pytest.mark.fault(51)
async def test_a_producer_that_was_replaced_cannot_commit(kafka3: KafkaCluster, level: int) -> None:
    topic = await asyncio.to_thread(kafka3.create_topic, None, 3, 3, IN_SYNC)
    name = f"takeover-{uuid.uuid4().hex[:12]}"
    options = {"bootstrap_servers": kafka3.bootstrap, "transactional_id": name}
    async with Producer(**options) as first, asyncio.timeout(DEADLINE):  # type: ignore[arg-type]
        await first.begin_transaction()
        await first.send(topic, b"lost", partition=0)
        async with Producer(**options) as second:  # type: ignore[arg-type]
            with pytest.raises(ApplicationRecoverableError):
                await first.commit_transaction()
            async with second.transaction() as tx:
                tx.send(topic, b"next", partition=1)
            assert tx.outcome is TransactionOutcome.COMMITTED
        await first.restart()
        async with first.transaction() as tx:
            tx.send(topic, b"last", partition=0)
        assert tx.outcome is TransactionOutcome.COMMITTED
    assert await committed_values(kafka3, topic) == [[b"last"], [b"next"], []]
