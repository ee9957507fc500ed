"""Code that a type checker must refuse, with the error code of each line. It is never run."""

import aiokclient
import aiokclient.admin
from aiokclient import AnyBroker, Client, Consumer, Producer
from aiokclient.protocol import messages
from aiokclient.schema import AvroSerializer, SchemaRegistry
from aiokclient.worker import Worker


async def refused(servers: str) -> None:
    Producer(bootstrap_servers=servers, linger=5)  # refused: call-arg
    Producer(bootstrap_servers=servers, linger_ms="5")  # refused: arg-type
    Producer(bootstrap_servers=servers, group_id="g")  # refused: call-arg
    Producer(bootstrap_servers=servers, value_serializer=5)  # refused: arg-type
    Producer(bootstrap_servers=servers, value_serializer=len)  # refused: arg-type
    Producer(bootstrap_servers=servers, value_serializer=lambda: b"")  # refused: arg-type
    Producer(bootstrap_servers=servers, key_serializer=lambda key: str(key))  # refused: arg-type
    Producer[bytes, int](value_serializer=str.encode)  # refused: arg-type
    Consumer("orders", bootstrap_servers=servers, acks=1)  # refused: call-arg
    Consumer(7, bootstrap_servers=servers)  # refused: arg-type
    Client(bootstrap_servers=9092)  # refused: arg-type

    producer = Producer(bootstrap_servers=servers, value_serializer=str.encode)
    producer.send("orders", b"bytes")  # refused: arg-type
    producer.send("orders", "text", key="text")  # refused: arg-type
    producer.send(7, "text")  # refused: arg-type
    json_values = Producer(bootstrap_servers=servers, value_serializer=lambda value: bytes(value))
    json_values.send("orders", {"item": "tea"}, key="text")  # refused: arg-type
    Producer(bootstrap_servers=servers).send("orders", "text")  # refused: arg-type
    producer.send("orders", "text", headers=[("name", "text")])  # refused: list-item
    producer.flush()  # refused: unused-coroutine
    producer.nonsense()  # refused: attr-defined
    aiokclient.Prodcuer()  # refused: attr-defined
    aiokclient.admin.NewTopics  # refused: attr-defined

    consumer = Consumer("orders", bootstrap_servers=servers, value_deserializer=bytes.decode)
    async for record in consumer:
        record.value.upper()  # refused: union-attr
    for _ in consumer:  # refused: attr-defined
        pass
    consumer.assign([("orders", 0)])  # refused: list-item
    await consumer.subscribe(["orders"])  # refused: func-returns-value
    aiokclient.transform(consumer, "producer")  # refused: arg-type

    client = Client(bootstrap_servers=servers)
    answer = await client.request(messages.MetadataRequest(), AnyBroker())
    answer.groups  # refused: attr-defined
    await client.request(messages.MetadataResponse(), AnyBroker())  # refused: arg-type
    await client.request(messages.MetadataRequest(topicz=None), AnyBroker())  # refused: call-arg


async def handle_number(record: int) -> None: ...


async def handle_three(record: object, worker: Worker, third: int) -> None: ...


async def refused_handlers(consumer: Consumer[bytes, str], registry: SchemaRegistry) -> None:
    Worker(consumer, "handle")  # refused: arg-type
    Worker(consumer, handle_number)  # refused: arg-type
    await consumer.run(handle_three)  # refused: arg-type
    AvroSerializer(registry, "{}", "TOPIC")  # refused: call-arg
    AvroSerializer(registry, "{}", register=False)  # refused: call-arg
    AvroSerializer(registry, "{}", schema_id_in="nowhere")  # refused: arg-type
