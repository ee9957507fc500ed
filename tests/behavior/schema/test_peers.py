"""confluent-kafka's serializers with the same registry, and Apicurio Registry with a real Kafka.

tests/unit/schema/test_interop.py compares the bytes of many schemas and values without HTTP.
"""

from __future__ import annotations

import asyncio
import uuid
from contextlib import closing
from typing import Any

import pytest
from kafka_harness import ExternalKafka
from schema_pairs import AVRO, JSON, MESSAGE, NAMES, TEA, pair

from aiokclient import Consumer, Producer
from aiokclient.errors import SchemaRegistryError
from aiokclient.schema import AvroSerializer, ProtobufDeserializer, Schema, SchemaRegistry

pytest.importorskip("confluent_kafka.schema_registry", reason="a peer of the newest Python only")


def theirs(name: str, client: Any) -> tuple[Any, Any]:
    """Return a serializer and a deserializer of confluent-kafka."""
    from confluent_kafka.schema_registry import avro, json_schema, protobuf

    if name == "avro":
        return avro.AvroSerializer(client, AVRO), avro.AvroDeserializer(client)
    if name == "json":
        return (
            json_schema.JSONSerializer(JSON, client),
            json_schema.JSONDeserializer(None, schema_registry_client=client),
        )
    return (
        protobuf.ProtobufSerializer(MESSAGE, client),
        protobuf.ProtobufDeserializer(MESSAGE, {}, client),
    )


@pytest.mark.parametrize("name", ["avro", "json", "protobuf"])
async def test_both_clients_register_the_same_schema_and_write_the_same_bytes(
    name: str, any_registry: SchemaRegistry
) -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.serialization import MessageField, SerializationContext

    topic = f"peers-{uuid.uuid4().hex[:12]}"
    context = SerializationContext(topic, MessageField.VALUE, [])
    serializer, deserializer, value = pair(name, any_registry, "prefix")
    with closing(SchemaRegistryClient({"url": any_registry.urls[0]})) as client:
        their_serializer, their_deserializer = theirs(name, client)
        # It blocks, and the stub runs in this loop.
        written = await asyncio.to_thread(their_serializer, value, context)
        await serializer.prepare(topic)
        assert serializer.serialize(topic, value, ()) == written
        assert await any_registry.versions(f"{topic}-value") == [1]
        await deserializer.prepare(topic, [(written, ())])
        assert deserializer.deserialize(topic, written, ()) == value
        assert await asyncio.to_thread(their_deserializer, written, context) == value


@pytest.mark.kafka
@pytest.mark.registry
@pytest.mark.parametrize("name", NAMES)
async def test_records_of_schemas_pass_a_real_broker_and_a_real_registry(
    name: str, kafka: ExternalKafka, apicurio: Any
) -> None:
    topic = kafka.create_topic(partitions=1)
    async with SchemaRegistry(apicurio.url, timeout=30.0) as registry:
        key_writer, _, value = pair(name, registry, "prefix")
        value_writer, _, _ = pair(name, registry, "prefix")
        async with Producer(
            bootstrap_servers=kafka.bootstrap,
            key_serializer=key_writer,
            value_serializer=value_writer,
        ) as producer:
            count = await producer.send_all(topic, [(value, value)] * 100)
        # Nothing is cached: each schema is asked for by its id.
        async with (
            SchemaRegistry(apicurio.url, timeout=30.0) as other,
            Consumer(
                topic,
                bootstrap_servers=kafka.bootstrap,
                auto_offset_reset="earliest",
                key_deserializer=pair(name, other, "prefix")[1],
                value_deserializer=pair(name, other, "prefix")[1],
            ) as consumer,
        ):
            records = [record async for record in consumer.until_end()]
    assert count == 100
    assert [(record.key, record.value) for record in records] == [(value, value)] * 100


@pytest.mark.registry
async def test_incompatible_schema_is_refused_with_the_registrys_reason(apicurio: Any) -> None:
    topic = f"evolving-{uuid.uuid4().hex[:12]}"
    async with SchemaRegistry(apicurio.url, timeout=30.0) as registry:
        await registry.register(f"{topic}-value", Schema(AVRO))
        await registry.set_config(f"{topic}-value", "BACKWARD")
        changed = AVRO.replace('"count"', '"number"').replace(', "default": 1', "")
        serializer = AvroSerializer[Any](registry, changed)
        with pytest.raises(SchemaRegistryError, match="not compatible"):
            await serializer.prepare(topic)


@pytest.mark.registry
async def test_messages_of_a_proto_text_are_read_without_a_class(
    any_registry: SchemaRegistry,
) -> None:
    subject = f"text-{uuid.uuid4().hex[:12]}-value"
    text = 'syntax = "proto3"; package shop; message Order { string item = 1; int32 count = 2; }'
    registered = await any_registry.register(subject, Schema(text, "PROTOBUF"))
    assert registered.id is not None
    data = b"\x00" + registered.id.to_bytes(4, "big") + b"\x00\x0a\x03tea\x10\x02"
    deserializer: Any = ProtobufDeserializer(any_registry)
    await deserializer.prepare("text", [(data, ())])
    message = deserializer.deserialize("text", data, ())
    assert (message.item, message.count) == (TEA["item"], TEA["count"])
