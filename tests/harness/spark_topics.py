"""Topics with everything that a partition can have, for comparisons of Spark's sources.

A topic is described by `Step` objects, which Hypothesis can make: records of one producer, in
a transaction or not, in one codec.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st
from kafka_harness.probe import wait_until

from aiokclient import Admin, Consumer, Producer, TopicPartition

__all__ = ["EVERYTHING", "Sent", "Step", "compacted", "count", "fill", "steps", "trimmed"]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True)
class Sent:
    """A record."""

    partition: int
    key: bytes | None = None
    value: bytes | None = None
    timestamp: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True)
class Step:
    """Records that one producer sends. `commit` is None outside of a transaction."""

    records: tuple[Sent, ...]
    codec: str = "none"
    commit: bool | None = None
    batch_size: int = field(default=16384)


EVERYTHING = (
    Step((Sent(0), Sent(0, b"", b""), Sent(0, b"k", None), Sent(0, None, b"v", 0))),
    Step((Sent(0, b"k", b"v", 5, (("a", b"1"), ("a", b"2"), ("b", None), ("", b""))),)),
    *(Step(tuple(Sent(1, bytes([n]), b"v" * 100) for n in range(50)), codec) for codec in CODECS),
    Step((Sent(1, None, os.urandom(1 << 20)), Sent(1, None, os.urandom(1 << 20))), "zstd"),
    Step((Sent(0, b"committed", b"1"), Sent(2, b"committed", b"2")), commit=True),
    Step((Sent(0, b"aborted", b"1"), Sent(2, b"aborted", b"2")), "lz4", commit=False),
    Step((Sent(2, b"after", b"3"),)),
)
"""A topic of four partitions, the last of which is empty."""


def steps(partitions: int) -> st.SearchStrategy[list[Step]]:
    """Return a strategy for topics with this number of partitions."""
    data = st.none() | st.binary(max_size=40)
    name = st.sampled_from(["a", "b", "", "clé"])
    record = st.builds(
        Sent,
        partition=st.integers(0, partitions - 1),
        key=data,
        value=data | st.binary(min_size=2000, max_size=2000),
        # Brokers refuse times over an hour from now in the future.
        timestamp=st.none() | st.integers(0, 1_750_000_000_000),
        headers=st.lists(st.tuples(name, data), max_size=3).map(tuple),
    )
    step = st.builds(
        Step,
        records=st.lists(record, min_size=1, max_size=12).map(tuple),
        codec=st.sampled_from(CODECS),
        commit=st.sampled_from([None, True, False]),
        batch_size=st.sampled_from([1, 500, 16384]),
    )
    return st.lists(step, max_size=6)


async def _send(bootstrap: str, topic: str, step: Step) -> None:
    transactional_id = None if step.commit is None else str(uuid.uuid4())
    async with Producer(
        bootstrap_servers=bootstrap,
        compression_type=step.codec,
        batch_size=step.batch_size,
        max_request_size=4 << 20,
        transactional_id=transactional_id,
    ) as producer:
        if step.commit is not None:
            await producer.begin_transaction()
        for record in step.records:
            producer.send(
                topic,
                record.value,
                key=record.key,
                partition=record.partition,
                timestamp=record.timestamp,
                headers=list(record.headers),
            )
        await producer.flush()
        if step.commit:
            await producer.commit_transaction()
        elif step.commit is False:
            await producer.abort_transaction()


def fill(bootstrap: str, topic: str, steps: Sequence[Step]) -> None:
    """Write the steps to a topic, one after the other."""

    async def send() -> None:
        for step in steps:
            await _send(bootstrap, topic, step)

    asyncio.run(send())


def trimmed(bootstrap: str, topic: str, partition: int, offset: int) -> None:
    """Delete the records of a partition before an offset."""

    async def delete() -> None:
        async with Admin(bootstrap_servers=bootstrap) as admin:
            results = await admin.delete_records({TopicPartition(topic, partition): offset})
            results.raise_for_errors()

    asyncio.run(delete())


async def _count(bootstrap: str, topic: str) -> int:
    async with Consumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as reader:
        return len([record async for record in reader.until_end()])


def count(bootstrap: str, topic: str) -> int:
    """Return the number of records of a topic."""
    return asyncio.run(_count(bootstrap, topic))


def compacted(bootstrap: str, topic: str, records: int) -> int:
    """Wait until compaction has left fewer than `records` in a topic. Return their number."""
    wait_until(f"compaction of {topic}", lambda: count(bootstrap, topic) < records, 60)
    return count(bootstrap, topic)
