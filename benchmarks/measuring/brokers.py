"""The Kafka cluster for the benchmarks: one real broker on loopback, or the user's cluster."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

from measuring.payloads import write_pool

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "harness"))

from kafka_harness import KAFKA, ExternalKafka, KafkaCluster

JVM = ("-XX:TieredStopAtLevel=4", "-Xmx1g")
"""JVM options that replace those of the tests, whose heap is small and whose JIT is limited."""
PROPERTIES = {"log.initial.task.delay.ms": 1000}
"""Options that remove the files of deleted topics early, because they would fill the disk."""
STEP = 2_000
"""Number of partitions per CreateTopics request. A controller refuses requests for many more."""
WAIT_S = 300
OPEN_FILES = 65_536
TICKS = os.sysconf("SC_CLK_TCK")


class Brokers:
    """The topics of a cluster, and the CPU seconds of its processes if they are known."""

    def __init__(self, kafka: ExternalKafka, pids: list[int], folder: Path, version: str) -> None:
        self.bootstrap, self.version = kafka.bootstrap, version
        self._kafka, self._pids, self.folder = kafka, pids, folder
        self._topics: list[str] = []

    def payloads(self, size: int) -> Path:
        return write_pool(self.folder, size)

    def new_topic(self, partitions: int, configs: Mapping[str, object] | None = None) -> str:
        name = f"bench-{uuid.uuid4().hex[:12]}"
        self._topics.append(name)
        self._kafka.create_topic(name, min(partitions, STEP), 1, configs)
        for total in range(2 * STEP, partitions + STEP, STEP):
            self._widen(name, min(total, partitions))
        self._until_led(name, partitions)
        return name

    def _until_led(self, topic: str, partitions: int) -> None:
        """Wait until the brokers lead all partitions of a topic.

        The metadata may list a partition before its broker leads it. The broker refuses requests
        that arrive too early and accepts the next ones, so that an idempotent client may lose its
        first records.
        """
        from confluent_kafka import KafkaException, TopicPartition
        from confluent_kafka.admin import AdminClient, OffsetSpec

        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        wanted = {TopicPartition(topic, each): OffsetSpec.latest() for each in range(partitions)}
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                for found in admin.list_offsets(wanted).values():
                    found.result(WAIT_S)
                return
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def _widen(self, topic: str, total: int) -> None:
        from confluent_kafka.admin import AdminClient, NewPartitions

        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        admin.create_partitions([NewPartitions(topic, total)])[topic].result(WAIT_S)
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            known = self._kafka.metadata([topic]).topics.get(topic, {})
            if len(known) == total and all(each.leader >= 0 for each in known.values()):
                return
            time.sleep(1)
        raise TimeoutError(
            f"Brokers did not lead all {total} partitions of {topic} after {WAIT_S} s."
        )

    def delete(self, *topics: str) -> None:
        """Delete topics, so that disks do not fill and the broker does not slow down."""
        from confluent_kafka.admin import AdminClient

        if not topics:
            return
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        for future in admin.delete_topics(list(topics)).values():
            future.result(WAIT_S)
        self._topics = [topic for topic in self._topics if topic not in topics]

    def delete_all(self) -> None:
        self.delete(*self._topics)

    def cpu_s(self) -> float | None:
        """Return the CPU seconds of the brokers so far, or None if their processes are unknown."""
        try:
            return sum(map(_cpu_s, self._pids)) if self._pids else None
        except OSError:
            return None


def _cpu_s(pid: int) -> float:
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / TICKS


def raise_open_files() -> int:
    """Raise the limit of open files for the broker, which needs three per partition.

    Returns the new limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (max(hard, OPEN_FILES), hard):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(hard, wanted)))
            return wanted
    return soft


@contextlib.contextmanager
def running(bootstrap: str | None) -> Iterator[Brokers]:
    """Provide a new Kafka cluster, or the one at `bootstrap`.

    The new topics of the cluster at `bootstrap` are deleted at the end.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        if bootstrap is not None:
            brokers = Brokers(ExternalKafka(bootstrap), [], folder, "the cluster at --bootstrap")
            stack.callback(brokers.delete_all)
        else:
            raise_open_files()
            cluster = stack.enter_context(KafkaCluster(KAFKA, jvm=JVM, properties=PROPERTIES))
            pids = [node.pid for node in cluster.nodes.values()]
            brokers = Brokers(cluster, pids, folder, f"Apache Kafka {KAFKA.version}, one node")
        yield brokers


@contextlib.contextmanager
def nowhere() -> Iterator[Brokers]:
    """Provide a folder for benchmarks that need values but no Kafka."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        yield Brokers(ExternalKafka(""), [], Path(name), "none")
