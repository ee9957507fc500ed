"""The brokers of a share group, real or embedded, with the faults that befall them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from kafka_harness import ExternalKafka, KafkaCluster, Probe

from aiokclient import Admin, TopicPartition
from aiokclient.admin import ElectionType
from aiokclient.errors import KafkaError
from aiokclient.testing import EmbeddedCluster

LOOK_S = 0.2


class Site(ABC):
    """Three brokers, one of which is away at a time at most."""

    def __init__(self, kafka: ExternalKafka) -> None:
        self.kafka, self.bootstrap = kafka, kafka.bootstrap
        self.brokers = (1, 2, 3)
        self.paused: set[int] = set()

    @abstractmethod
    def kill(self, broker: int) -> None:
        """End a broker without a warning."""

    @abstractmethod
    def start(self, broker: int) -> None:
        """Start a broker that was killed, and wait until it serves requests."""

    @abstractmethod
    def pause(self, broker: int) -> None:
        """Suspend a broker. Its connections stay open."""

    @abstractmethod
    def resume(self, broker: int) -> None:
        """Let a broker go on."""

    @abstractmethod
    def addresses(self) -> Iterable[tuple[str, int]]:
        """Return the addresses of the brokers that answer."""

    @abstractmethod
    async def move_leader(self, topic: str, partition: int, to: int) -> None:
        """Move the leader of a partition to a broker, if that is possible now."""


class RealSite(Site):
    """Three brokers of Kafka and a controller."""

    def __init__(self, cluster: KafkaCluster) -> None:
        super().__init__(cluster)
        self.cluster = cluster

    def kill(self, broker: int) -> None:
        self.cluster.kill(broker)

    def start(self, broker: int) -> None:
        self.cluster.start(broker)

    def pause(self, broker: int) -> None:
        self.paused.add(broker)
        self.cluster.pause(broker)

    def resume(self, broker: int) -> None:
        self.cluster.resume(broker)
        self.paused.discard(broker)

    def addresses(self) -> Iterable[tuple[str, int]]:
        awake = [each for each in self.brokers if each not in self.paused]
        return [self.cluster.address(each) for each in awake if self.cluster.nodes[each].alive]

    async def move_leader(self, topic: str, partition: int, to: int) -> None:
        tp = TopicPartition(topic, partition)
        replicas = [to, *(each for each in self.brokers if each != to)]
        with contextlib.suppress(KafkaError):  # A broker is away.
            async with Admin(bootstrap_servers=self.bootstrap, request_timeout_ms=3000) as admin:
                await admin.alter_partition_reassignments({tp: replicas}, timeout=10.0)
                await admin.elect_leaders(ElectionType.PREFERRED, [tp], timeout=10.0)


class EmbeddedSite(Site):
    """Three brokers of an embedded cluster."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        super().__init__(ExternalKafka(cluster.bootstrap_servers))
        self.cluster = cluster
        self._stopped: set[int] = set()

    def kill(self, broker: int) -> None:
        self._stopped.add(broker)
        self.cluster.stop(broker)

    def start(self, broker: int) -> None:
        self.cluster.start(broker)
        self._stopped.discard(broker)

    def pause(self, broker: int) -> None:
        self.paused.add(broker)
        self.cluster.pause(broker)

    def resume(self, broker: int) -> None:
        self.cluster.resume(broker)
        self.paused.discard(broker)

    def addresses(self) -> Iterable[tuple[str, int]]:
        away = self._stopped | self.paused
        return [self.cluster.address(each) for each in self.brokers if each not in away]

    async def move_leader(self, topic: str, partition: int, to: int) -> None:
        if to not in self._stopped | self.paused:
            await asyncio.to_thread(self.cluster.move_leader, topic, partition, to)


class Change(NamedTuple):
    """A change of a partition's leader, which has happened between two times."""

    after: float
    before: float


class LeaderWatch:
    """The changes of the leaders of a topic, by the metadata of all brokers that answer."""

    def __init__(self, site: Site, topic: str) -> None:
        self.changes: dict[int, list[Change]] = defaultdict(list)
        self._site, self._topic = site, topic
        self._epochs: dict[int, tuple[int, int]] = {}
        self._looked_at = time.monotonic()

    async def run(self) -> None:
        while True:
            await asyncio.to_thread(self.look)
            await asyncio.sleep(LOOK_S)

    def look(self) -> None:
        """Find the leaders and their epochs, and record those that have changed."""
        began, found = time.monotonic(), dict(self._epochs)
        for host, port in self._site.addresses():
            with contextlib.suppress(OSError):
                picture = Probe(host, port, timeout=2).metadata([self._topic])
                for index, each in picture.topics.get(self._topic, {}).items():
                    found[index] = max(found.get(index, (-1, -1)), (each.epoch, each.leader))
        for index, epoch in found.items():
            if index in self._epochs and epoch != self._epochs[index]:
                self.changes[index].append(Change(self._looked_at, time.monotonic()))
        self._epochs, self._looked_at = found, began
