"""An embedded cluster in its own thread, with helpers that use only the public API."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aiokclient import Consumer, TopicPartition
from aiokclient.testing import EmbeddedCluster

_numbers = itertools.count(1)


class Stage:
    """The embedded cluster for a test, with one topic of the test's own."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self.topic = ""

    def new_topic(self, partitions: int = 1, **options: Any) -> str:
        """Create a topic, and make it the one that `topic` and `tp` refer to."""
        self.topic = f"contract-{next(_numbers)}"
        self.cluster.create_topic(self.topic, partitions, **options)
        return self.topic

    def tp(self, partition: int = 0) -> TopicPartition:
        return TopicPartition(self.topic, partition)

    def fill(self, count: int, partition: int = 0, batch: int = 100, **options: Any) -> None:
        """Write `count` records with values "partition:offset", in batches of the given size."""
        start = self.cluster.offsets(self.topic, partition)[1]
        for first in range(start, start + count, batch):
            last = min(first + batch, start + count)
            values = [b"%d:%d" % (partition, i) for i in range(first, last)]
            self.cluster.produce(self.topic, values, partition, **options)

    def consumer(self, *topics: Any, **options: Any) -> Consumer[Any, Any]:
        """Return a consumer of the test's topic, or of the given topics or assigned partitions."""
        options.setdefault("auto_offset_reset", "earliest")
        options.setdefault("bootstrap_servers", self.cluster.bootstrap_servers)
        by_hand = [topic for topic in topics if isinstance(topic, TopicPartition)]
        consumer = Consumer(*(() if by_hand else topics or (self.topic,)), **options)
        if by_hand:
            consumer.assign(by_hand)
        return consumer

    async def drain(self, consumer: Consumer[Any, Any], count: int) -> list[Any]:
        """Return `count` records from `poll`, or raise AssertionError if some do not arrive."""
        found: list[Any] = []
        while len(found) < count:
            records = await consumer.poll(timeout=20.0, max_records=count - len(found))
            assert records, f"{len(found)} of {count} records arrived"
            found += records
        return found


def check(records: Any) -> None:
    """Check that each record has the partition and offset that its value names."""
    assert all(r.value == b"%d:%d" % (r.partition, r.offset) for r in records)


@pytest.fixture(scope="session")
def contract_cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3) as cluster:
        yield cluster


@pytest.fixture
def stage(contract_cluster: EmbeddedCluster) -> Iterator[Stage]:
    stage = Stage(contract_cluster)
    stage.new_topic()
    yield stage
    contract_cluster.reset()


@pytest.fixture
def right() -> Callable[[Any], None]:
    return check
