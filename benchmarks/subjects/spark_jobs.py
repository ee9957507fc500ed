"""The session, the broker, the topics, and the jobs of the measurements of Spark."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from measuring.runner import RunFailedError

from aiokclient import Admin, Client, Consumer, Producer, TopicPartition

if TYPE_CHECKING:
    from kafka_harness import KafkaCluster
    from pyspark.sql import SparkSession

CONNECTOR, OWN, MEMORY = SOURCES = ("kafka", "aiokclient", "in_memory")
"""The formats: Spark's own connector, this library, and `MemorySource`, which is the lower bound.

The last one is not called `memory`, because Spark itself has a format with that name.
"""
PARTITIONS = 2


class World:
    """A session, a broker, and their topics. Files are in `folder`."""

    def __init__(self, spark: SparkSession, kafka: KafkaCluster, folder: Path) -> None:
        self.spark, self.kafka = spark, kafka
        self.servers = {"kafka.bootstrap.servers": kafka.bootstrap}
        self._folder, self._numbers = folder, itertools.count()
        self._filled: dict[tuple[int, int], str] = {}

    def filled(self, rows: int, size: int) -> str:
        """Return a topic with `rows` values of `size` bytes. It is filled only once."""
        if (rows, size) not in self._filled:
            topic = self._filled[rows, size] = self.kafka.create_topic(None, PARTITIONS)
            self.send(topic, rows, size)
        return self._filled[rows, size]

    def send(self, topic: str, rows: int, size: int) -> None:
        async def send() -> None:
            servers = self.kafka.bootstrap
            async with Producer(bootstrap_servers=servers, batch_size=1 << 18) as producer:
                await producer.send_all(topic, (b"v" * size for _ in range(rows)))

        asyncio.run(send())

    @contextmanager
    def output(self, rows: int) -> Iterator[str]:
        """Provide a topic, check that it has exactly `rows` rows at the end, and delete it."""
        topic = self.kafka.create_topic(None, PARTITIONS)
        yield topic
        found = asyncio.run(self._count(topic))
        if found != rows:
            raise RunFailedError(f"{found} rows were written instead of {rows}.")

    async def _count(self, topic: str) -> int:
        """Return the number of committed rows in a topic, and delete the topic."""
        count, servers = 0, self.kafka.bootstrap
        async with Client(bootstrap_servers=servers) as client, Admin(client=client) as admin:
            partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
            async with Consumer(client=client) as consumer:
                ends = await consumer.end_offsets(partitions)
            for tp, end in ends.items():
                batches = client.read_range(
                    tp, 0, end, columns=["offset"], isolation_level="read_committed"
                )
                count += sum([batch.num_rows async for batch in batches])
            (await admin.delete_topics([topic])).raise_for_errors()
        return count

    def new_folder(self) -> str:
        """Return a folder that does not exist yet."""
        return str(self._folder / str(next(self._numbers)))


@dataclass(frozen=True)
class Job:
    """A task for Spark, which several subjects execute one after the other."""

    name: str
    start: Callable[[World, str, int], AbstractContextManager[Callable[[], object]]]
    """A function that prepares the job for a subject and a number of rows, provides the call to
    measure, and checks its result."""
    subjects: tuple[str, ...] = SOURCES
    rows: int | None = None
    """The number of rows, if it does not depend on the command line."""
    share: float = 1.0
    """The fraction of the usual number of rows, for jobs with large rows."""

    def count(self, rows: int) -> int:
        """Return the number of rows of this job. `rows` is the usual number."""
        return self.rows or max(1, int(rows * self.share))
