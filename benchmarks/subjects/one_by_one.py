"""One send at a time, each awaited before the next, and the floor under it: a blocking socket."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from measuring.spec import FIRST, Spec
from measuring.subject import Meter, PythonSubject

from subjects import aio_kafka, confluent, kafka_python, own

WAIT_S = 10.0


def at_once(spec: Spec) -> Spec:
    """No lingering: there is never a second message to wait for."""
    return replace(spec, linger_ms=0)


def tell(meter: Meter, nanoseconds: list[int]) -> None:
    ordered = sorted(nanoseconds)
    meter.counts.messages = len(ordered)
    for percent in (50, 99):
        at = min(len(ordered) - 1, len(ordered) * percent // 100)
        meter.counts.figures[f"p{percent}_us"] = ordered[at] / 1e3


def time_each(values: list[bytes], send: Callable[[bytes], object], meter: Meter) -> None:
    clock, times = time.perf_counter_ns, []
    with meter:
        for value in values:
            began = clock()
            send(value)
            times.append(clock() - began)
    tell(meter, times)


async def time_each_async(
    values: list[bytes], send: Callable[[bytes], Awaitable[object]], meter: Meter
) -> None:
    clock, times = time.perf_counter_ns, []
    with meter:
        for value in values:
            began = clock()
            await send(value)
            times.append(clock() - began)
    tell(meter, times)


class BlockingSocket(PythonSubject):
    """One Produce request written, its response read; encoded before, never looked at after."""

    name = "blocking socket"
    family = "floor"
    requires = "aiokclient"

    def work(self, spec: Spec, meter: Meter) -> None:
        host, _, port = spec.bootstrap.split(",")[0].rpartition(":")
        frames = [self.frame(spec.topic, value) for value in spec.values()]
        with socket.create_connection((host, int(port)), WAIT_S) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            answer, view = bytearray(65_536), struct.Struct(">i")

            def send(frame: bytes) -> None:
                connection.sendall(frame)
                got = connection.recv_into(answer)
                while got < 4 or got < 4 + view.unpack_from(answer)[0]:
                    got += connection.recv_into(memoryview(answer)[got:])

            send(self.frame(spec.topic, FIRST))
            time_each(frames, send, meter)

    @staticmethod
    def frame(topic: str, value: bytes) -> bytes:
        from aiokclient.protocol.framing import ClientPipeline
        from aiokclient.protocol.messages.produce import (
            PartitionProduceData,
            ProduceRequest,
            TopicProduceData,
        )
        from aiokclient.record.batch import RecordBatchBuilder

        batch = RecordBatchBuilder(limit=len(value) + 1_000)
        batch.append(int(time.time() * 1000), None, value)
        batch.close()
        records = bytes(batch.seal())
        partition = PartitionProduceData(index=0, records=records)
        data = [TopicProduceData(name=topic, partition_data=[partition])]
        request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=data)
        _, segments = ClientPipeline("floor").send(request, 9)
        return b"".join(bytes(segment) for segment in segments)


class Own(own.Own):
    name = "aiokclient"

    def work(self, spec: Spec, meter: Meter) -> None:
        self.run_loop(self.produce(at_once(spec), meter))

    async def produce(self, spec: Spec, meter: Meter) -> None:
        from aiokclient import Producer

        topic = spec.topic
        async with Producer(**own.producer_options(spec)) as producer:
            await producer.send(topic, FIRST)
            send = producer.send
            await time_each_async(spec.values(), lambda value: send(topic, value), meter)


class OwnUvloop(Own):
    name = "aiokclient, uvloop"
    uvloop = True


class Confluent(PythonSubject):
    name = "confluent-kafka produce and poll"
    family = "confluent-kafka"
    requires = "confluent_kafka"

    def work(self, spec: Spec, meter: Meter) -> None:
        from confluent_kafka import Producer

        producer = Producer(confluent.producer_settings(at_once(spec)))
        done = False

        def delivered(error: Any, message: Any) -> None:
            nonlocal done
            if error is not None:
                raise RuntimeError(str(error))
            done = True

        def send(value: bytes) -> None:
            nonlocal done
            done = False
            producer.produce(spec.topic, value, on_delivery=delivered)
            while not done:
                producer.poll(WAIT_S)

        send(FIRST)
        time_each(spec.values(), send, meter)


class AioProducer(PythonSubject):
    name = "confluent-kafka AIOProducer"
    family = "confluent-kafka"
    requires = "confluent_kafka"

    def work(self, spec: Spec, meter: Meter) -> None:
        asyncio.run(self.produce(at_once(spec), meter))

    async def produce(self, spec: Spec, meter: Meter) -> None:
        from confluent_kafka.aio import AIOProducer

        # It keeps messages back until it has so many; one is the quickest.
        producer = AIOProducer(confluent.producer_settings(spec), batch_size=1)

        async def send(value: bytes) -> None:
            await (await producer.produce(spec.topic, value))

        async with confluent.polled(producer):
            await send(FIRST)
            await time_each_async(spec.values(), send, meter)
        await producer.close()


class Aiokafka(PythonSubject):
    name = "aiokafka"
    family = "aiokafka"
    requires = "aiokafka"

    def work(self, spec: Spec, meter: Meter) -> None:
        asyncio.run(self.produce(at_once(spec), meter))

    async def produce(self, spec: Spec, meter: Meter) -> None:
        from aiokafka import AIOKafkaProducer

        topic = spec.topic
        async with AIOKafkaProducer(**aio_kafka.producer_options(spec)) as producer:
            await producer.send_and_wait(topic, FIRST)
            send = producer.send_and_wait
            await time_each_async(spec.values(), lambda value: send(topic, value), meter)


class KafkaPython(PythonSubject):
    name = "kafka-python"
    family = "kafka-python"
    requires = "kafka"

    def work(self, spec: Spec, meter: Meter) -> None:
        from kafka import KafkaProducer

        producer = KafkaProducer(**kafka_python.producer_options(at_once(spec)))
        producer.send(spec.topic, FIRST).get(WAIT_S)
        send = producer.send
        time_each(spec.values(), lambda value: send(spec.topic, value).get(WAIT_S), meter)
        producer.close()


ONE_BY_ONE = (
    BlockingSocket(),
    Own(),
    OwnUvloop(),
    Confluent(),
    AioProducer(),
    Aiokafka(),
    KafkaPython(),
)
