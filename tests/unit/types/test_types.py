"""Tests of the values that users pass and receive, and of the clock."""

from __future__ import annotations

import asyncio
import pickle
import random
import time

from aiokclient.clock import SystemClock
from aiokclient.types import (
    SKIP,
    ConsumerRecord,
    OffsetAndMetadata,
    ProducerRecord,
    TimestampType,
    TopicPartition,
)


def record(offset: int = 5) -> ConsumerRecord[bytes, bytes]:
    return ConsumerRecord(
        "orders", 3, offset, 1_000, TimestampType.CREATE_TIME, b"k", b"v", [("h", None)], 7
    )


def test_a_partition_is_written_as_kafka_writes_it() -> None:
    assert str(TopicPartition("orders", 3)) == "orders-3"
    assert TopicPartition("orders", 3) == ("orders", 3)


def test_records_compare_and_show_all_they_hold() -> None:
    assert record() == record()
    assert record() != record(6)
    assert record() != "record"
    assert len({record(), record(), record(6)}) == 2
    assert repr(record()) == (
        "ConsumerRecord(topic='orders', partition=3, offset=5, timestamp=1000, "
        "timestamp_type=<TimestampType.CREATE_TIME: 0>, key=b'k', value=b'v', "
        "headers=[('h', None)], leader_epoch=7)"
    )
    assert pickle.loads(pickle.dumps(record())) == record()


def test_defaults() -> None:
    assert OffsetAndMetadata(5) == (5, "", None)
    assert ProducerRecord("t") == ("t", None, None, None, None, ())
    assert repr(SKIP) == "SKIP"
    assert pickle.loads(pickle.dumps(SKIP)) is SKIP


async def test_the_clock_is_the_loops() -> None:
    clock = SystemClock(random.Random(1))
    before = asyncio.get_running_loop().time()
    assert before <= clock.monotonic() <= asyncio.get_running_loop().time()
    assert clock.rng.random() == random.Random(1).random()


def test_the_clock_outside_a_loop() -> None:
    clock = SystemClock()
    assert clock.monotonic() <= time.monotonic()
    assert abs(clock.time_ms() / 1000 - time.time()) < 60
