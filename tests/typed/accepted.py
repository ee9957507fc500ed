"""Code as users write it, and the types that a checker must infer. It is never run."""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, assert_type

from aiokclient import (
    Admin,
    AnyBroker,
    Client,
    Consumer,
    ConsumerRecord,
    DetachedTransaction,
    GroupMember,
    GroupProtocol,
    NewTopic,
    Producer,
    RecordMetadata,
    TopicPartition,
    TransactionOutcome,
    single_writer,
    work_pool,
)
from aiokclient.errors import KafkaError
from aiokclient.protocol import messages
from aiokclient.schema import AvroDeserializer, AvroSerializer, JsonSchemaSerializer, SchemaRegistry
from aiokclient.types import Headers
from aiokclient.worker import Batch, Worker


@dataclass
class Order:
    item: str

    def dump(self) -> bytes:
        return self.item.encode()


def load(data: bytes) -> Order:
    return Order(data.decode())


class OrderSerializer:
    async def prepare(self, topic: str) -> None: ...

    def serialize(self, topic: str, value: Order, headers: Headers) -> bytes:
        return value.dump()


class OrderDeserializer:
    def deserialize(self, topic: str, data: bytes, headers: Headers) -> Order:
        return load(data)


async def produce(servers: str) -> None:
    async with Producer(
        bootstrap_servers=servers, key_serializer=str.encode, value_serializer=Order.dump
    ) as producer:
        assert_type(producer, Producer[str, Order])
        assert_type(await producer.send("orders", Order("tea"), key="customer-7"), RecordMetadata)
        assert_type(await producer.send("orders", None, headers=[("h", b"v")]), RecordMetadata)
        assert_type(await producer.send_and_wait("orders", Order("tea")), RecordMetadata)
        deliveries = producer.send_many("orders", [Order("tea"), Order("milk")])
        assert_type(await producer.gather(deliveries), Sequence[RecordMetadata])
        both = await producer.gather(deliveries, return_exceptions=True)
        assert_type(both, Sequence[RecordMetadata | KafkaError])
        assert_type(await producer.send_all("orders", (Order(n) for n in "abc")), int)
        assert_type(producer.send_threadsafe("orders", Order("tea")), Future[RecordMetadata])
        delivery = producer.send("orders", Order("tea"))
        assert_type(delivery.offset, int)
        assert_type(delivery.partition, int | None)
        assert_type(producer.full, bool)


async def leave_a_transaction(producer: Producer, client: Client) -> None:
    async with producer.transaction() as tx:
        tx.send("orders", b"tea")
        handle = await tx.detach()
        assert_type(handle, DetachedTransaction)
    outcome = await client.end_transaction(handle, commit=True, timeout=5.0)
    assert_type(outcome, TransactionOutcome)


async def produce_by_object(client: Client) -> None:
    annotated: Producer[str, Order] = Producer(
        client=client, key_serializer=str.encode, value_serializer=OrderSerializer()
    )
    async with annotated as producer:
        await producer.prepare("orders")
        await producer.send("orders", Order("tea"), "customer-7")


def dump_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def dump_optional(value: Order | None, indent: int = 0) -> bytes:
    return b"" if value is None else value.dump()


async def produce_by_lambda(servers: str, options: dict[str, Any]) -> None:
    async with Producer(
        bootstrap_servers=servers, value_serializer=lambda value: json.dumps(value).encode()
    ) as producer:
        assert_type(producer, Producer[bytes, Any])
        await producer.send("orders", {"item": "tea"}, key=b"customer-7")
        producer.send_many("orders", [{"item": "tea"}, {"item": "milk"}])
        await producer.send_all("orders", ({"item": item} for item in "abc"))
    both = Producer(
        bootstrap_servers=servers,
        key_serializer=lambda key: key.encode(),
        value_serializer=lambda order: json.dumps(asdict(order)).encode(),
    )
    assert_type(both, Producer[Any, Any])
    assert_type(await both.send("orders", Order("tea"), "customer-7"), RecordMetadata)
    mixed = await Producer(
        bootstrap_servers=servers,
        key_serializer=str.encode,
        value_serializer=lambda value: b"null" if value is None else value.dump(),
        serialize_none=True,
    )
    assert_type(mixed, Producer[str, Any])
    assert_type(Producer(value_serializer=dump_json), Producer[bytes, Any])
    assert_type(Producer(key_serializer=dump_json), Producer[Any, bytes])
    assert_type(Producer(value_serializer=dump_optional), Producer[bytes, Order | None])
    assert_type(Producer(value_serializer=None), Producer[bytes, bytes])
    assert_type(Producer(value_serializer=Order.dump, **options), Producer[Any, Order])
    assert_type(partial(Producer, bootstrap_servers=servers)(), Producer[bytes, bytes])


def declare_producers(servers: str) -> list[Producer[str, dict[str, int]]]:
    by_class = Producer[str, dict[str, int]](
        bootstrap_servers=servers,
        key_serializer=str.encode,
        value_serializer=lambda value: json.dumps(value).encode(),
    )
    declared: Producer[str, dict[str, int]] = Producer(
        bootstrap_servers=servers, key_serializer=str.encode, value_serializer=dump_json
    )
    declared.send("orders", {"tea": 2}, "customer-7")
    return [
        by_class,
        declared,
        Producer(key_serializer=str.encode, value_serializer=lambda value: bytes(value["tea"])),
    ]


async def produce_by_properties(path: str) -> None:
    async with Producer.from_properties(path) as plain:
        assert_type(plain, Producer[bytes, bytes])
    made = Producer[str, Any].from_properties(
        path, key_serializer=str.encode, value_serializer=dump_json
    )
    async with made as producer:
        assert_type(producer, Producer[str, Any])
        producer.send("orders", {"item": "tea"}, "customer-7")
    async with Consumer[bytes, Order].from_properties(
        path, "orders", value_deserializer=load
    ) as consumer:
        assert_type(consumer, Consumer[bytes, Order])


class OrderProducer(Producer[str, Order]):
    def __init__(self, servers: str) -> None:
        super().__init__(
            bootstrap_servers=servers,
            key_serializer=str.encode,
            value_serializer=lambda order: order.dump(),
        )


class JsonProducer(Producer[bytes, Any]): ...


async def produce_by_subclass(servers: str) -> None:
    async with OrderProducer(servers) as producer:
        assert_type(producer, OrderProducer)
        producer.send("orders", Order("tea"), "customer-7")
    async with JsonProducer(value_serializer=lambda value: json.dumps(value).encode()) as other:
        assert_type(other, JsonProducer)
        other.send("orders", {"item": "tea"})


async def produce_bytes(servers: str) -> None:
    producer = await Producer(bootstrap_servers=servers, acks="all", linger_ms=0)
    assert_type(producer, Producer[bytes, bytes])
    assert_type(await producer.send("orders", b"tea"), RecordMetadata)
    await producer.close()


async def consume(servers: str) -> None:
    async with Consumer(
        "orders",
        bootstrap_servers=servers,
        key_deserializer=bytes.decode,
        value_deserializer=load,
    ) as consumer:
        assert_type(consumer, Consumer[str, Order])
        async for record in consumer:
            assert_type(record, ConsumerRecord[str, Order])
            assert_type(record.value, Order | None)
            assert_type(record.key, str | None)
            assert_type(record.offset, int)
            consumer.seek(record)
        async for records in consumer.batches(max_records=10):
            assert_type(records[0], ConsumerRecord[str, Order])
        async for record in consumer.until_end():
            assert_type(record.value, Order | None)
        polled: Sequence[ConsumerRecord[str, Order]] = await consumer.poll(timeout=1.0)
        assert polled
        assert_type(await consumer.get(), ConsumerRecord[str, Order] | None)
        ends = await consumer.end_offsets([TopicPartition("orders", 0)])
        assert_type(ends, dict[TopicPartition, int])


async def consume_by_object(client: Client) -> None:
    annotated: Consumer[bytes, Order] = Consumer(
        "orders", client=client, value_deserializer=OrderDeserializer()
    )
    async with annotated as consumer:
        async for record in consumer:
            assert_type(record.value, Order | None)


async def consume_by_lambda(servers: str) -> None:
    async with Consumer(
        "orders", bootstrap_servers=servers, value_deserializer=lambda data: json.loads(data)
    ) as consumer:
        assert_type(consumer, Consumer[bytes, Any])
        async for record in consumer:
            assert_type(record.key, bytes | None)
    async with Consumer(
        "orders",
        bootstrap_servers=servers,
        key_deserializer=lambda data: data.decode(),
        value_deserializer=lambda data: len(data),
    ) as sizes:
        assert_type(sizes, Consumer[str, int])
    assert_type(Consumer("orders", value_deserializer=json.loads), Consumer[bytes, Any])


async def consume_views(servers: str) -> None:
    views: Consumer[bytes, memoryview] = Consumer(
        "orders", bootstrap_servers=servers, value_deserializer=memoryview
    )
    async with views as consumer:
        async for record in consumer:
            assert_type(record.key, bytes | None)
            assert_type(record.value, memoryview | None)


async def consume_bytes(servers: str) -> None:
    async with Consumer("orders", bootstrap_servers=servers) as consumer:
        assert_type(consumer, Consumer[bytes, bytes])
        async for record in consumer:
            assert_type(record, ConsumerRecord[bytes, bytes])


async def ask(servers: str) -> None:
    async with Client(bootstrap_servers=servers) as client:
        metadata = await client.request(messages.MetadataRequest(), to=AnyBroker())
        assert_type(metadata, messages.MetadataResponse)
        assert_type(metadata.brokers[0].node_id, int)
        handle = client.send(messages.ListGroupsRequest(), AnyBroker())
        assert_type(await handle, messages.ListGroupsResponse)


async def administer(servers: str) -> None:
    async with Admin(bootstrap_servers=servers) as admin:
        created = await admin.create_topics([NewTopic("orders", 6, 3)])
        for topic in created.raise_for_errors().values():
            assert_type(topic.name, str)
        assert_type((await admin.describe_cluster()).cluster_id, str | None)


class Leases(GroupProtocol):
    name = "leases-v1"

    def metadata(self) -> bytes:
        return b""

    async def assign(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        return members


async def share(servers: str) -> None:
    async with GroupMember(
        "workers", protocol_type="leases", protocols=[Leases()], bootstrap_servers=servers
    ) as member:
        async for generation in member.generations():
            async with generation as mine:
                assert_type(mine.assignment, bytes)
                assert_type(mine.is_leader, bool)
        member.rejoin("something has changed")
    async with single_writer("ledger", bootstrap_servers=servers, acks="all") as producer:
        await producer.send("ledger", b"v")
    async for items in work_pool("crawlers", {"a": 1, "b": 2.5}, bootstrap_servers=servers):
        async with items as names:
            assert_type(names, tuple[str, ...])


async def handle_order(record: ConsumerRecord[bytes, Order]) -> None: ...


async def answer_order(record: ConsumerRecord[bytes, Order], worker: Worker) -> None:
    worker.send("answers", record.key)


async def handle_orders(records: list[ConsumerRecord[bytes, Order]]) -> None: ...


async def answer_orders(records: Sequence[ConsumerRecord[bytes, Order]], worker: Worker) -> int:
    return len(records)


def handle_in_thread(record: ConsumerRecord[bytes, Order]) -> str:
    return record.topic


def answer_in_thread(record: ConsumerRecord[bytes, Order], worker: Worker) -> None: ...


async def handle_any(record: ConsumerRecord[Any, Any]) -> None: ...


async def handle_with(table: dict[str, int], record: ConsumerRecord[bytes, Order]) -> None: ...


class Shop:
    async def take(self, record: ConsumerRecord[bytes, Order]) -> None: ...

    async def __call__(self, record: ConsumerRecord[bytes, Order], worker: Worker) -> None: ...


async def work(consumer: Consumer[bytes, Order], given: Any, seen: list[Any]) -> None:
    await consumer.run(handle_order, concurrency=50, dead_letter="orders.dead")
    await consumer.run(answer_order)
    await consumer.run(handle_orders, batch=Batch(500, max_wait=0.1))
    await consumer.run(answer_orders, batch=Batch(500))
    await consumer.run(handle_in_thread)
    await consumer.run(handle_any)
    await consumer.run(given)
    await consumer.run(Shop().take)
    await consumer.run(Shop())
    await consumer.run(partial(handle_with, {}))
    await consumer.run(lambda record: seen.append(record.value))
    worker = Worker(consumer, answer_in_thread, order="key")
    assert_type(worker, Worker)
    Worker(consumer, handle_order)
    Worker(consumer, answer_orders, batch=Batch(500))
    Worker(consumer, lambda record, worker: worker.send("answers", record.key))
    Worker(consumer, Shop().take)
    Worker(consumer, Shop())
    Worker(consumer, partial(handle_with, {}))
    Worker(consumer, given)
    Worker(Consumer("orders", value_deserializer=load), handle_order)
    Worker(Consumer("orders", group_id="billing"), handle_any)


async def with_schemas(registry: SchemaRegistry, schema: str) -> None:
    plain = AvroSerializer(registry, schema)
    assert_type(plain, AvroSerializer[Any])
    converting = AvroSerializer(
        registry, schema, subject="RECORD", schema_id_in="header", to_dict=dump_fields
    )
    assert_type(converting, AvroSerializer[Order])
    latest = JsonSchemaSerializer[Order](registry, use_latest_version=True, to_dict=asdict)
    named = AvroSerializer(registry, schema, subject=lambda topic, part, name: f"{topic}.{part}")
    assert_type(named, AvroSerializer[Any])
    async with Producer(key_serializer=latest, value_serializer=converting) as producer:
        assert_type(producer, Producer[Order, Order])
        await producer.prepare("orders")
        await producer.send("orders", Order("tea"))
    reading = AvroDeserializer(registry, schema, from_dict=lambda fields: Order(**fields))
    assert_type(reading, AvroDeserializer[Order])
    assert_type(AvroDeserializer(registry), AvroDeserializer[Any])
    async with Consumer("orders", value_deserializer=reading) as consumer:
        assert_type(consumer, Consumer[bytes, Order])


def dump_fields(order: Order) -> dict[str, str]:
    return {"item": order.item}
