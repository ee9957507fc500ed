"""Transactions with a number of records each, and transforms of one topic into another.

Each client uses its topic's name as transactional id and group. A transform commits its
input offsets with the records that it writes, so that each record is written exactly once.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from measuring.spec import Spec
from measuring.subject import Meter, PythonSubject

from subjects import aio_kafka, confluent, own

WAIT_S = 30.0
RETRY_S = 0.005
TRANSFORM = "transform"


def grouped(spec: Spec) -> list[list[bytes]]:
    """Return the values of each transaction."""
    values, step = spec.all_records().values(), spec.records
    return [values[at : at + step] for at in range(0, len(values), step)]


def target_of(spec: Spec) -> str:
    """Return the topic to write to.

    The warm-up has no output topic, because the output must have only the records of the measured
    run. It writes to its input, and ends before it would read these records.
    """
    return spec.output or spec.topic


class Raw(PythonSubject):
    """The requests of a transaction, Produce and EndTxn, sent one by one with `Client.request`.

    Records are encoded by the client's builder of batches.
    """

    name = "aiokclient, raw requests"
    family = "floor"
    requires = "aiokclient"

    def work(self, spec: Spec, meter: Meter) -> None:
        asyncio.run(self.produce(spec, meter))

    async def produce(self, spec: Spec, meter: Meter) -> None:
        from aiokclient import Client, Coordinator, Leader
        from aiokclient.protocol.messages import (
            EndTxnRequest,
            InitProducerIdRequest,
            MetadataRequest,
        )
        from aiokclient.protocol.messages.metadata import MetadataRequestTopic

        leader, coordinator = Leader(spec.topic, 0), Coordinator("transaction", spec.topic)
        async with Client(bootstrap_servers=spec.bootstrap) as client:
            wanted = MetadataRequest(topics=[MetadataRequestTopic(name=spec.topic)])
            self.topic_id = (await client.request(wanted, to=leader)).topics[0].topic_id
            begin = InitProducerIdRequest(
                transactional_id=spec.topic, transaction_timeout_ms=60_000
            )
            ids = await client.request(begin, to=coordinator)
            with meter:
                for values in grouped(spec):
                    request = self.request(spec.topic, values, ids.producer_id, ids.producer_epoch)
                    while True:
                        if not self.must_repeat(await client.request(request, to=leader)):
                            break
                        await asyncio.sleep(RETRY_S)
                    end = EndTxnRequest(
                        transactional_id=spec.topic,
                        producer_id=ids.producer_id,
                        producer_epoch=ids.producer_epoch,
                        committed=True,
                    )
                    ids = await client.request(end, to=coordinator)
                    meter.counts.messages += 1

    def request(self, topic: str, values: list[bytes], producer_id: int, epoch: int) -> Any:
        from aiokclient.protocol.messages import ProduceRequest
        from aiokclient.protocol.messages.produce import PartitionProduceData, TopicProduceData
        from aiokclient.record.batch import RecordBatchBuilder

        builder = RecordBatchBuilder(limit=1 << 20)
        now_ms = int(time.time() * 1000)
        for value in values:
            builder.append(now_ms, None, value)
        builder.close()
        data = bytes(builder.seal(producer_id, epoch, 0, transactional=True))
        parts = [PartitionProduceData(index=0, records=data)]
        topics = [TopicProduceData(name=topic, topic_id=self.topic_id, partition_data=parts)]
        return ProduceRequest(transactional_id=topic, acks=-1, timeout_ms=30_000, topic_data=topics)

    def must_repeat(self, response: Any) -> bool:
        """Return whether the request was refused because the previous transaction has not ended.

        Raises any other error of the response.
        """
        from aiokclient.errors import ConcurrentTransactionsError, error_for

        error = error_for(response.responses[0].partition_responses[0].error_code)
        if error is None or isinstance(error, ConcurrentTransactionsError):
            return error is not None
        raise error


class Own(own.Own):
    name = "aiokclient"

    def work(self, spec: Spec, meter: Meter) -> None:
        run = self.transform if spec.mode == TRANSFORM else self.produce
        self.run_loop(run(spec, meter))

    async def produce(self, spec: Spec, meter: Meter) -> None:
        from aiokclient import Producer

        options = own.producer_options(spec)
        async with Producer(**options, transactional_id=spec.topic) as producer:
            with meter:
                for values in grouped(spec):
                    async with producer.transaction() as tx:
                        if len(values) == 1:
                            tx.send(spec.topic, values[0])
                        else:
                            producer.send_many(spec.topic, values)
                    meter.counts.messages += 1

    async def transform(self, spec: Spec, meter: Meter) -> None:
        from aiokclient import Consumer, Producer

        options, target = own.producer_options(spec), target_of(spec)
        async with (
            Producer(**options, transactional_id=spec.topic) as producer,
            Consumer(
                spec.topic,
                bootstrap_servers=spec.bootstrap,
                group_id=spec.topic,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level="read_committed",
            ) as consumer,
        ):
            records = await consumer.poll(WAIT_S, 1)
            with meter:
                for _ in range(spec.count):
                    async with producer.transaction() as tx:
                        tx.add(consumer)
                        missing = spec.records
                        while missing:
                            records = records or await consumer.poll(WAIT_S, missing)
                            producer.send_many(target, [each.value for each in records])
                            missing -= len(records)
                            records = ()
                    meter.counts.messages += 1


class Uvloop(Own):
    name = "aiokclient, uvloop"
    uvloop = True


class Confluent(PythonSubject):
    name = "confluent-kafka"
    family = "confluent-kafka"
    requires = "confluent_kafka"

    def work(self, spec: Spec, meter: Meter) -> None:
        from confluent_kafka import Producer

        settings = {**confluent.producer_settings(spec), "transactional.id": spec.topic}
        producer = Producer(settings)
        producer.init_transactions(WAIT_S)
        if spec.mode == TRANSFORM:
            self.transform(producer, spec, meter)
            return
        with meter:
            for values in grouped(spec):
                producer.begin_transaction()
                for value in values:
                    producer.produce(spec.topic, value)
                producer.commit_transaction(WAIT_S)
                meter.counts.messages += 1

    def transform(self, producer: Any, spec: Spec, meter: Meter) -> None:
        from confluent_kafka import Consumer

        settings = {**confluent.consumer_settings(spec), "group.id": spec.topic}
        target = target_of(spec)
        consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
        consumer.subscribe([spec.topic])
        messages = consumer.consume(1, WAIT_S)
        with meter:
            for _ in range(spec.count):
                producer.begin_transaction()
                while len(messages) < spec.records:
                    messages += consumer.consume(spec.records - len(messages), WAIT_S)
                for message in messages:
                    if message.error() is not None:
                        raise RuntimeError(str(message.error()))
                    producer.produce(target, message.value())
                places = consumer.position(consumer.assignment())
                group = consumer.consumer_group_metadata()
                producer.send_offsets_to_transaction(places, group, WAIT_S)
                producer.commit_transaction(WAIT_S)
                meter.counts.messages += 1
                messages = []
        consumer.close()


class Aiokafka(PythonSubject):
    name = "aiokafka"
    family = "aiokafka"
    requires = "aiokafka"
    share = 0.1

    def work(self, spec: Spec, meter: Meter) -> None:
        run = self.transform if spec.mode == TRANSFORM else self.produce
        asyncio.run(run(spec, meter))

    async def produce(self, spec: Spec, meter: Meter) -> None:
        from aiokafka import AIOKafkaProducer

        options = aio_kafka.producer_options(spec)
        async with AIOKafkaProducer(**options, transactional_id=spec.topic) as producer:
            with meter:
                for values in grouped(spec):
                    async with producer.transaction():
                        for value in values:
                            await producer.send(spec.topic, value)
                    meter.counts.messages += 1

    async def transform(self, spec: Spec, meter: Meter) -> None:
        from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

        options, target = aio_kafka.producer_options(spec), target_of(spec)
        place = TopicPartition(spec.topic, 0)
        async with (
            AIOKafkaProducer(**options, transactional_id=spec.topic) as producer,
            AIOKafkaConsumer(
                spec.topic,
                bootstrap_servers=spec.bootstrap,
                group_id=spec.topic,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level="read_committed",
            ) as consumer,
        ):
            await consumer.position(place)
            with meter:
                for _ in range(spec.count):
                    async with producer.transaction():
                        missing = spec.records
                        while missing:
                            fetched = await consumer.getmany(
                                timeout_ms=int(WAIT_S * 1000), max_records=missing
                            )
                            for records in fetched.values():
                                for record in records:
                                    await producer.send(target, record.value)
                                missing -= len(records)
                        position = await consumer.position(place)
                        await producer.send_offsets_to_transaction({place: position}, spec.topic)
                    meter.counts.messages += 1


TRANSACTING = (Own(), Uvloop(), Confluent(), Aiokafka())
