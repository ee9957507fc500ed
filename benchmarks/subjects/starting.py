"""The start of a program: import, start of a producer, and one send."""

from __future__ import annotations

import asyncio
import os
import time
from abc import abstractmethod
from pathlib import Path
from typing import ClassVar

from measuring.spec import Counts, Spec
from measuring.subject import Meter, PythonSubject

MIB = 1 << 20


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


class Start(PythonSubject):
    warming: ClassVar[float] = 0.0

    def run(self, spec: Spec) -> Counts:
        meter = Meter()
        before = resident_mib()
        self.work(spec, meter)
        figures = meter.counts.figures
        figures["memory_mib"] = resident_mib()
        figures["more_mib"] = figures["memory_mib"] - before
        return meter.counts

    def work(self, spec: Spec, meter: Meter) -> None:
        figures = meter.counts.figures
        with meter:
            began, cpu = time.perf_counter(), time.process_time()
            self.bring_in()
            figures["import_ms"] = (time.perf_counter() - began) * 1e3
            figures["import_cpu_ms"] = (time.process_time() - cpu) * 1e3
            self.send(spec.bootstrap, spec.topic, b"first")
            figures["first_message_ms"] = (time.perf_counter() - began) * 1e3
            figures["first_message_cpu_ms"] = (time.process_time() - cpu) * 1e3
        meter.counts.messages = 1

    @abstractmethod
    def bring_in(self) -> None:
        """Import the modules of a producer."""

    @abstractmethod
    def send(self, bootstrap: str, topic: str, value: bytes) -> None:
        """Start a producer, send one message, and wait for its outcome."""


class Own(Start):
    name = "aiokclient"
    family = "aiokclient"
    requires = "aiokclient"

    def bring_in(self) -> None:
        from aiokclient import Producer  # noqa: F401  (only its cost)

    def send(self, bootstrap: str, topic: str, value: bytes) -> None:
        asyncio.run(self._send(bootstrap, topic, value))

    async def _send(self, bootstrap: str, topic: str, value: bytes) -> None:
        from aiokclient import Producer

        async with Producer(bootstrap_servers=bootstrap) as producer:
            await producer.send(topic, value)


class Confluent(Start):
    name = "confluent-kafka"
    family = "confluent-kafka"
    requires = "confluent_kafka"

    def bring_in(self) -> None:
        import confluent_kafka  # noqa: F401  (only its cost)

    def send(self, bootstrap: str, topic: str, value: bytes) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": bootstrap, "log_level": 3})
        failed: list[object] = []
        producer.produce(topic, value, on_delivery=lambda error, _: failed.append(error))
        if producer.flush(10) or failed != [None]:
            raise RuntimeError("The message was not delivered.")


class Aiokafka(Start):
    name = "aiokafka"
    family = "aiokafka"
    requires = "aiokafka"

    def bring_in(self) -> None:
        import aiokafka  # noqa: F401  (only its cost)

    def send(self, bootstrap: str, topic: str, value: bytes) -> None:
        asyncio.run(self._send(bootstrap, topic, value))

    async def _send(self, bootstrap: str, topic: str, value: bytes) -> None:
        from aiokafka import AIOKafkaProducer

        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            await producer.send_and_wait(topic, value)


class KafkaPython(Start):
    name = "kafka-python"
    family = "kafka-python"
    requires = "kafka"

    def bring_in(self) -> None:
        import kafka  # noqa: F401  (only its cost)

    def send(self, bootstrap: str, topic: str, value: bytes) -> None:
        from kafka import KafkaProducer

        producer = KafkaProducer(bootstrap_servers=bootstrap)
        producer.send(topic, value).get(10)
        producer.close()


STARTS = (Own(), Confluent(), Aiokafka(), KafkaPython())
