"""Readers with read_committed, and what brokers say about aborted transactions."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from thinned import one_in
from world import World, simulate

from aiokclient import Consumer, TopicPartition
from aiokclient.protocol import ApiKey

TP = TopicPartition("t", 0)
PRODUCERS = range(1, 6)
STEPS = 120
READINGS = ["iteration", "lists", "polls", "records"]
if importlib.util.find_spec("pyarrow") is not None:
    READINGS.append("Arrow")


class Log:
    """A log in which transactions of several producers overlap, and what a reader must see."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self._world, self._rng = world, rng
        self._sequences = dict.fromkeys(PRODUCERS, 0)
        self._open: dict[int, list[int]] = {}
        self.committed: set[int] = set()
        self.aborted: set[int] = set()
        for _ in range(STEPS):
            self._step()
        for producer_id in list(self._open):
            self._end(producer_id)

    def _step(self) -> None:
        producer_id = self._rng.choice([0, *PRODUCERS])
        if producer_id in self._open and self._rng.random() < 0.4:
            return self._end(producer_id)
        values = [b"v" * 20] * self._rng.randint(1, 6)
        if producer_id == 0:  # These records belong to no transaction.
            written = self._world.cluster.produce("t", values)
            self.committed.update(each.offset for each in written)
            return None
        written = self._world.cluster.produce(
            "t",
            values,
            producer_id=producer_id,
            base_sequence=self._sequences[producer_id],
            transactional=True,
            compression=self._rng.choice(["none", "gzip"]),
        )
        self._sequences[producer_id] += len(values)
        self._open.setdefault(producer_id, []).extend(each.offset for each in written)
        return None

    def _end(self, producer_id: int) -> None:
        commit = self._rng.random() < 0.5
        offsets = self._open.pop(producer_id)
        (self.committed if commit else self.aborted).update(offsets)
        self._world.cluster.end_transaction("t", producer_id=producer_id, commit=commit)


class Disorder:
    """A broker that lists aborted transactions in random order, and some of them twice."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.unsorted = 0

    def change(self, request: Any, response: Any) -> Any:
        for topic in response.responses:
            for partition in topic.partitions:
                listed = list(partition.aborted_transactions or ())
                listed += self._rng.sample(listed, len(listed) // 3)
                self._rng.shuffle(listed)
                first = [each.first_offset for each in listed]
                self.unsorted += first != sorted(first)
                partition.aborted_transactions = listed or partition.aborted_transactions
        return response


async def offsets_of(consumer: Consumer[Any, Any], reading: str) -> AsyncIterator[int]:
    """Read up to the end of the log in one of the ways."""
    end = (await consumer.end_offsets([TP]))[TP]
    if reading == "iteration":
        async for record in consumer.until_end():
            yield record.offset
    elif reading == "lists":
        async for records in consumer.batches(max_records=7, until_end=True):
            for record in records:
                yield record.offset
    elif reading == "Arrow":
        async for table in consumer.arrow_batches():
            for offset in table.column("offset").to_pylist():
                yield offset
            if await consumer.position(TP) >= end:
                return
    else:
        while await consumer.position(TP) < end:
            if reading == "polls":
                for record in await consumer.poll(timeout=5.0, max_records=3):
                    yield record.offset
            elif (one := await consumer.get(timeout=5.0)) is not None:
                yield one.offset


@pytest.mark.fault(52)
@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("size", [100, 700, 1 << 20])
@pytest.mark.parametrize("seed", one_in(4, range(4)))
def test_only_committed_records_are_read_whatever_the_order_of_aborted_transactions(
    seed: int, size: int, reading: str
) -> None:
    """Reads begin at the start of the log, and at any offset within a transaction."""

    async def scenario(world: World) -> None:
        rng = random.Random(seed)
        log = Log(world, rng)
        assert log.aborted
        disorder = Disorder(rng)
        options: Any = {"isolation_level": "read_committed", "max_partition_fetch_bytes": size}
        with world.cluster.alter(ApiKey.FETCH, disorder.change):
            async with world.consumer("t", **options) as consumer:
                for start in (0, *rng.sample(range(max(log.committed)), 3)):
                    consumer.seek(TP, start)
                    expected = sorted(offset for offset in log.committed if offset >= start)
                    found = []
                    async for offset in offsets_of(consumer, reading):
                        found.append(offset)
                        if reading == "Arrow" and offset == expected[-1]:
                            break
                    assert found == expected
        if size > 100:  # One batch per response has too few aborted transactions.
            assert disorder.unsorted > 0
        async with world.consumer("t") as consumer:
            everything = [record.offset async for record in consumer.until_end()]
            assert everything == sorted(log.committed | log.aborted)

    simulate(scenario, seed=seed, topics={"t": 1})
