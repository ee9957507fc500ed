"""Members of a group, each of which reports when a record was sent and when it was received."""

from __future__ import annotations

import asyncio
import sys
import time
from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

from measuring.group import COMMIT_MS, HEARTBEAT_MS, SESSION_MS
from measuring.spec import Counts, Spec
from measuring.subject import PythonSubject

PROTOCOLS = EAGER, COOPERATIVE, KIP_848 = "eager", "cooperative", "KIP-848"
WAIT_S = 0.5


def tell(records: Iterable[tuple[int, int, bytes]]) -> None:
    """Report partition, offset and value of records that were just received."""
    now = time.monotonic_ns()
    lines = [f"{partition} {offset} {int(value)} {now}\n" for partition, offset, value in records]
    sys.stdout.write("".join(lines))
    sys.stdout.flush()


class GroupMember(PythonSubject):
    """A member, which the parent kills at the end. `spec.mode` is the group protocol."""

    protocols: ClassVar[tuple[str, ...]] = PROTOCOLS

    def run(self, spec: Spec) -> Counts:
        self.bring_in()
        print("ready", flush=True)
        if sys.stdin.readline():
            print("joins", time.monotonic_ns(), flush=True)
            self.read(spec)
        return Counts()

    def work(self, spec: Spec, meter: Any) -> None:
        raise NotImplementedError

    @abstractmethod
    def bring_in(self) -> None:
        """Import the modules of a consumer."""

    @abstractmethod
    def read(self, spec: Spec) -> None:
        """Join the group, and report each record that is read, until the process is killed."""


class Own(GroupMember):
    name = "aiokclient"
    family = "aiokclient"
    requires = "aiokclient"

    options: ClassVar[dict[str, dict[str, Any]]] = {
        EAGER: {"partition_assignment_strategy": "range"},
        COOPERATIVE: {"partition_assignment_strategy": "cooperative-sticky"},
        KIP_848: {"group_protocol": "consumer"},
    }

    def bring_in(self) -> None:
        from aiokclient import Consumer  # noqa: F401  (only its cost)

    def read(self, spec: Spec) -> None:
        asyncio.run(self._read(spec))

    async def _read(self, spec: Spec) -> None:
        from aiokclient import Consumer

        options = dict(self.options[spec.mode])
        if spec.mode != KIP_848:
            options |= {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": HEARTBEAT_MS}
        async with Consumer(
            spec.topic,
            bootstrap_servers=spec.bootstrap,
            group_id=spec.group,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=COMMIT_MS,
            **options,
        ) as consumer:
            async for records in consumer.batches():
                tell((each.partition, each.offset, each.value or b"0") for each in records)


class Confluent(GroupMember):
    name = "confluent-kafka"
    family = "confluent-kafka"
    requires = "confluent_kafka"

    settings: ClassVar[dict[str, dict[str, Any]]] = {
        EAGER: {"partition.assignment.strategy": "range"},
        COOPERATIVE: {"partition.assignment.strategy": "cooperative-sticky"},
        KIP_848: {"group.protocol": "consumer"},
    }

    def bring_in(self) -> None:
        import confluent_kafka  # noqa: F401  (only its cost)

    def read(self, spec: Spec) -> None:
        from confluent_kafka import Consumer

        settings = {"bootstrap.servers": spec.bootstrap, "group.id": spec.group, "log_level": 3}
        settings |= {"auto.offset.reset": "earliest", "auto.commit.interval.ms": COMMIT_MS}
        settings |= self.settings[spec.mode]
        if spec.mode != KIP_848:
            settings |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
        consumer = Consumer(settings)
        consumer.subscribe([spec.topic])
        while True:
            message = consumer.poll(WAIT_S)
            if message is not None and message.error() is None:
                tell([(message.partition(), message.offset(), message.value())])


class Aiokafka(GroupMember):
    name = "aiokafka"
    family = "aiokafka"
    requires = "aiokafka"
    protocols = (EAGER,)

    def bring_in(self) -> None:
        import aiokafka  # noqa: F401  (only its cost)

    def read(self, spec: Spec) -> None:
        asyncio.run(self._read(spec))

    async def _read(self, spec: Spec) -> None:
        from aiokafka import AIOKafkaConsumer
        from aiokafka.coordinator.assignors.range import RangePartitionAssignor

        consumer = AIOKafkaConsumer(
            spec.topic,
            bootstrap_servers=spec.bootstrap,
            group_id=spec.group,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=COMMIT_MS,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            partition_assignment_strategy=(RangePartitionAssignor,),
        )
        await consumer.start()
        while True:
            fetched = await consumer.getmany(timeout_ms=int(WAIT_S * 1000))
            tell(
                (each.partition, each.offset, each.value)
                for all in fetched.values()
                for each in all
            )


MEMBERS = (Own(), Confluent(), Aiokafka())
