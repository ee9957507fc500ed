"""Serializers of this library and of confluent-kafka, with one Apicurio Registry between them."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from google.protobuf import descriptor_pool, message_factory
from kafka_harness.apicurio import ApicurioRegistry
from registry_fake import read_back

from aiokclient.errors import SerializationError
from aiokclient.schema import (
    AvroDeserializer,
    AvroSerializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    Schema,
    SchemaReference,
    SchemaRegistry,
)
from aiokclient.schema.proto.files import parse_proto

pytest.importorskip("confluent_kafka.schema_registry", reason="a peer of the newest Python only")

from confluent_kafka.schema_registry import SchemaRegistryClient, topic_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroDeserializer as TheirAvroDeserializer
from confluent_kafka.schema_registry.avro import AvroSerializer as TheirAvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer as TheirDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer as TheirSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

pytestmark = pytest.mark.registry

CONF = {"subject.name.strategy": topic_subject_name_strategy}
ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "item", "type": "string"},
            {"name": "count", "type": ["null", "int"], "default": None},
        ],
    }
)
JSON_ORDER = json.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Order",
        "type": "object",
        "properties": {"item": {"type": "string"}, "count": {"type": "integer"}},
        "required": ["item"],
    }
)
VALUE = {"item": "tée", "count": 2}


@pytest.fixture
async def registry(apicurio: ApicurioRegistry) -> AsyncIterator[SchemaRegistry]:
    async with SchemaRegistry(apicurio.url, timeout=30.0) as client:
        yield client


@pytest.fixture
def theirs(apicurio: ApicurioRegistry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": apicurio.url}) as client:
        yield client


@pytest.fixture
def topic() -> str:
    return f"orders-{uuid.uuid4().hex[:12]}"


def context(topic: str) -> Any:
    return SerializationContext(topic, MessageField.VALUE)


async def exchange(topic: str, ours: Any, mine: Any, write: Any, read: Any, value: Any) -> None:
    """Write and read a value with both libraries, and compare."""
    await ours.prepare(topic)
    data = ours.serialize(topic, value)
    assert await asyncio.to_thread(write, value, context(topic)) == data
    assert await asyncio.to_thread(read, data, context(topic)) == value
    assert await read_back(mine, data) == value


async def test_avro_values_are_exchanged_with_confluent_kafka(
    registry: SchemaRegistry, theirs: SchemaRegistryClient, topic: str
) -> None:
    await exchange(
        topic,
        AvroSerializer(registry, ORDER),
        AvroDeserializer(registry),
        TheirAvroSerializer(theirs, ORDER, conf=CONF),
        TheirAvroDeserializer(theirs, conf=CONF),
        VALUE,
    )


async def test_avro_values_with_references_are_exchanged_with_confluent_kafka(
    registry: SchemaRegistry, theirs: SchemaRegistryClient, topic: str
) -> None:
    await registry.register(f"{topic}-order", Schema(ORDER))
    fields = [{"name": "order", "type": "Order"}]
    text = json.dumps({"type": "record", "name": "Sale", "fields": fields})
    sale = Schema(text, references=[SchemaReference("Order", f"{topic}-order", 1)])
    serializer: AvroSerializer[Any] = AvroSerializer(registry, sale)
    await serializer.prepare(topic)
    data: Any = serializer.serialize(topic, {"order": VALUE})
    read: Any = TheirAvroDeserializer(theirs, conf=CONF)
    assert await asyncio.to_thread(read, data, context(topic)) == {"order": VALUE}
    assert await read_back(AvroDeserializer(registry), data) == {"order": VALUE}


async def test_json_values_are_exchanged_with_confluent_kafka(
    registry: SchemaRegistry, theirs: SchemaRegistryClient, topic: str
) -> None:
    await exchange(
        topic,
        JsonSchemaSerializer(registry, JSON_ORDER),
        JsonSchemaDeserializer(registry),
        JSONSerializer(JSON_ORDER, theirs, conf=CONF),
        JSONDeserializer(JSON_ORDER, schema_registry_client=theirs, conf=CONF),
        VALUE,
    )


async def test_protobuf_messages_are_exchanged_with_confluent_kafka(
    registry: SchemaRegistry, theirs: SchemaRegistryClient, topic: str
) -> None:
    pool = descriptor_pool.DescriptorPool()
    name = f"order_{uuid.uuid4().hex[:8]}.proto"
    text = 'syntax = "proto3"; package shop; message Order { string item = 1; int32 count = 2; }'
    pool.Add(parse_proto(text, name))  # type: ignore[no-untyped-call]
    order: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))  # type: ignore[no-untyped-call]
    await exchange(
        topic,
        ProtobufSerializer(registry, order),
        ProtobufDeserializer(registry, order),
        TheirSerializer(order, theirs, conf=CONF),
        TheirDeserializer(order, CONF, theirs),
        order(**VALUE),
    )


async def test_ids_in_headers_need_a_registry_with_guids(
    registry: SchemaRegistry, topic: str
) -> None:
    serializer: AvroSerializer[Any] = AvroSerializer(registry, ORDER, schema_id_in="header")
    with pytest.raises(SerializationError, match='schema_id_in="prefix"'):
        await serializer.prepare(topic)
