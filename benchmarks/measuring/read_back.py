"""Verification of a run: another client reads the produced messages and counts them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable

from measuring.runner import RunFailedError
from measuring.spec import FIRST, Spec

WAIT_S = 20.0
PAUSE_S = 0.05
"""Seconds for which a call waits for the requested number of messages."""
MORE_S = 0.3
"""Seconds to wait for records beyond the expected number."""


def check(spec: Spec, writer: str) -> None:
    """Raise RunFailedError unless the topic has each message of the run once, and no others."""
    reader = _aiokafka if writer == "confluent-kafka" else _confluent
    found: Counter[bytes] = Counter()
    for values in reader(spec):
        found.update(values)
    expected = Counter(spec.values())
    expected[FIRST] = 1
    if found != expected:
        raise RunFailedError(
            f"{writer}: read back {found.total()} messages, sent {expected.total()}; "
            f"{(expected - found).total()} missing, {(found - expected).total()} too many"
        )


def check_committed(spec: Spec, writer: str) -> None:
    """Raise RunFailedError unless the topic has each record of all transactions once, committed."""
    reader = _aiokafka_committed if writer == "confluent-kafka" else _confluent
    found: Counter[bytes] = Counter()
    for values in reader(spec):
        found.update(values)
    expected = Counter(spec.values())
    if found != expected:
        raise RunFailedError(
            f"{writer}: read back {found.total()} committed records, not {expected.total()}"
        )


def _aiokafka_committed(spec: Spec) -> Iterable[list[bytes]]:
    return [asyncio.run(_read_aiokafka_committed(spec))]


async def _read_aiokafka_committed(spec: Spec) -> list[bytes]:
    """Return all committed records, or those that arrived until none came for WAIT_S seconds."""
    from aiokafka import AIOKafkaConsumer, TopicPartition

    places = [TopicPartition(spec.topic, partition) for partition in range(spec.partitions)]
    values: list[bytes] = []
    async with AIOKafkaConsumer(
        bootstrap_servers=spec.bootstrap,
        enable_auto_commit=False,
        isolation_level="read_committed",
    ) as consumer:
        consumer.assign(places)
        await consumer.seek_to_beginning(*places)
        fetched: object = True
        while fetched:
            # When all expected records are there, check whether more records arrive.
            wait_s = WAIT_S if len(values) < spec.count else MORE_S
            fetched = found = await consumer.getmany(timeout_ms=int(wait_s * 1000))
            values += [record.value for records in found.values() for record in records]
    return values


def _confluent(spec: Spec) -> Iterable[list[bytes]]:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

    settings = {"bootstrap.servers": spec.bootstrap, "group.id": "read-back", "log_level": 0}
    settings |= {"enable.auto.commit": False, "enable.partition.eof": True}
    settings |= {"fetch.queue.backoff.ms": 1, "check.crcs": True}
    settings |= {"fetch.wait.max.ms": 10, "message.max.bytes": 1_048_588}
    consumer = Consumer(settings)
    places = [TopicPartition(spec.topic, p, OFFSET_BEGINNING) for p in range(spec.partitions)]
    consumer.assign(places)
    ended: set[int] = set()
    last = time.monotonic()
    try:
        while len(ended) < spec.partitions:
            messages = consumer.consume(5000, PAUSE_S)
            if messages:
                last = time.monotonic()
            elif time.monotonic() - last > WAIT_S:
                raise RunFailedError(f"No message was read back for {WAIT_S:.0f} s.")
            ends = [m for m in messages if m.error() is not None]
            for message in ends:
                if message.error().code() != KafkaError._PARTITION_EOF:
                    raise RunFailedError(f"Reading back has failed: {message.error()}")
                ended.add(message.partition())
            yield [m.value() for m in messages if m.error() is None]
    finally:
        consumer.close()


def _aiokafka(spec: Spec) -> Iterable[list[bytes]]:
    return [asyncio.run(_read_aiokafka(spec))]


async def _read_aiokafka(spec: Spec) -> list[bytes]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(bootstrap_servers=spec.bootstrap, enable_auto_commit=False)
    places = [TopicPartition(spec.topic, partition) for partition in range(spec.partitions)]
    values: list[bytes] = []
    await consumer.start()
    try:
        consumer.assign(places)
        await consumer.seek_to_beginning(*places)
        missing = sum((await consumer.end_offsets(places)).values())
        while missing > 0:
            fetched = await consumer.getmany(timeout_ms=int(WAIT_S * 1000))
            if not fetched:
                raise RunFailedError(f"No message was read back for {WAIT_S:.0f} s.")
            for records in fetched.values():
                values += [record.value for record in records]
                missing -= len(records)
        return values
    finally:
        await consumer.stop()


def count(bootstrap: str, topic: str, partitions: int) -> int:
    """Return the sum of the end offsets.

    This replaces a count of the messages, because it takes too long to read very many partitions.
    """
    return asyncio.run(_count(bootstrap, topic, partitions))


async def _count(bootstrap: str, topic: str, partitions: int) -> int:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    places = [TopicPartition(topic, partition) for partition in range(partitions)]
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
        return sum((await consumer.end_offsets(places)).values())
