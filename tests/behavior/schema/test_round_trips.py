"""Keys and values of schemas through a producer, an embedded cluster, and a consumer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from registry_stub import RegistryStub
from schema_pairs import AVRO, FIELDS, MESSAGE, NAMES, TEA, pair

from aiokclient import Consumer, Producer, TopicPartition
from aiokclient.errors import (
    RecordError,
    SchemaNotFoundError,
    SchemaRegistryUnavailableError,
    SerializationError,
)
from aiokclient.schema import (
    AvroDeserializer,
    AvroSerializer,
    ProtobufDeserializer,
    Schema,
    SchemaRegistry,
)
from aiokclient.testing import EmbeddedCluster


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    topics = [f"{name}-{place}" for name in NAMES for place in ("prefix", "header")]
    topics += [f"columns-{name}" for name in NAMES]
    topics += ["unprepared", "unknown", "outage", "secret", "evolution"]
    with EmbeddedCluster(topics=dict.fromkeys(topics, 1)) as cluster:
        yield cluster.bootstrap_servers


@pytest.mark.parametrize("place", ["prefix", "header"])
@pytest.mark.parametrize("name", NAMES)
async def test_keys_and_values_come_back_as_they_were_sent(
    name: str, place: str, registry: SchemaRegistry, stub: RegistryStub, servers: str
) -> None:
    topic = f"{name}-{place}"
    writers = [pair(name, registry, place) for _ in range(2)]
    (key_writer, key_reader, value), (value_writer, value_reader, _) = writers
    async with Producer(
        bootstrap_servers=servers, key_serializer=key_writer, value_serializer=value_writer
    ) as producer:
        # The headers of a record that is sent on, for example, are replaced.
        old: Any = [("__value_schema_id", b"\x00\x00\x00\x00\x63"), ("trace", b"1")]
        headers = old if place == "header" else []
        await producer.prepare(topic)
        asked = len(stub.requests)
        await producer.send(topic, value, key=value, headers=headers)
        await producer.send(topic, None, key=value)
        assert len(stub.requests) == asked
        assert await producer.send_all(topic, [(value, value)]) == 1
    consumer: Consumer[Any, Any] = Consumer(
        topic,
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        key_deserializer=key_reader,
        value_deserializer=value_reader,
    )
    async with consumer:
        records = [record async for record in consumer.until_end()]
    assert [(record.key, record.value) for record in records] == [
        (value, value),
        (value, None),
        (value, value),
    ]
    names = sorted(name for name, _ in records[0].headers)
    expected = ["__key_schema_id", "__value_schema_id", "trace"] if place == "header" else []
    assert names == expected
    assert (await registry.subjects()) == [f"{topic}-key", f"{topic}-value"]


async def test_send_without_preparation_names_prepare(
    registry: SchemaRegistry, servers: str
) -> None:
    serializer = AvroSerializer[Any](registry, AVRO)
    async with Producer(bootstrap_servers=servers, value_serializer=serializer) as producer:
        with pytest.raises(SerializationError, match=r"producer\.prepare\('unprepared'\)"):
            producer.send("unprepared", TEA)


async def test_record_with_an_unknown_id_is_an_error_of_that_record(
    registry: SchemaRegistry, servers: str, stub: RegistryStub
) -> None:
    serializer = AvroSerializer[Any](registry, AVRO)
    await serializer.prepare("unknown")
    good: Any = serializer.serialize("unknown", TEA)
    async with Producer(bootstrap_servers=servers) as producer:
        await producer.gather(
            producer.send_many("unknown", [good, b"\x00\x00\x00\x00\x63\x00", b"{}", good])
        )
    async with (
        SchemaRegistry(stub.url) as own,
        Consumer(
            "unknown",
            bootstrap_servers=servers,
            auto_offset_reset="earliest",
            value_deserializer=AvroDeserializer[Any](own),
        ) as consumer,
    ):
        assert (await consumer.get(timeout=20)).value == TEA  # type: ignore[union-attr]
        with pytest.raises(RecordError) as info:
            await consumer.get(timeout=20)
        text = str(info.value.__cause__)
        assert "id 99" in text
        assert f"{stub.url}/schemas/ids/99" in text
        assert isinstance(info.value.__cause__.__cause__, SchemaNotFoundError)  # type: ignore[union-attr]
        with pytest.raises(RecordError) as info:
            await consumer.get(timeout=20)
        assert "no schema id" in str(info.value.__cause__)
        assert (await consumer.get(timeout=20)).value == TEA  # type: ignore[union-attr]


async def test_record_waits_while_the_registry_is_down(
    registry: SchemaRegistry, servers: str, stub: RegistryStub
) -> None:
    serializer = AvroSerializer[Any](registry, AVRO)
    async with Producer(bootstrap_servers=servers, value_serializer=serializer) as producer:
        await producer.prepare("outage")
        await producer.send("outage", TEA)
    await stub.stop()
    async with (
        SchemaRegistry(stub.url, timeout=0.2) as own,
        Consumer(
            "outage",
            bootstrap_servers=servers,
            auto_offset_reset="earliest",
            value_deserializer=AvroDeserializer[Any](own),
            default_api_timeout_ms=500,
            request_timeout_ms=500,
        ) as consumer,
    ):
        with pytest.raises(SchemaRegistryUnavailableError):
            await consumer.get(timeout=20)
        await stub.start()
        record = None
        while record is None:
            # Half a second may be too short for the first request, too, on a busy machine.
            with contextlib.suppress(SchemaRegistryUnavailableError):
                record = await consumer.get(timeout=20)
        assert (record.offset, record.value) == (0, TEA)


async def test_schema_with_encryption_is_refused_by_both_sides(
    registry: SchemaRegistry, servers: str
) -> None:
    rules = {
        "domainRules": [
            {"name": "hide", "kind": "TRANSFORM", "type": "ENCRYPT", "mode": "WRITEREAD"}
        ]
    }
    secret = Schema(AVRO, rule_set=rules)
    registered = await registry.register("secret-value", secret)
    serializer = AvroSerializer[Any](registry, use_latest_version=True)
    async with Producer(bootstrap_servers=servers, value_serializer=serializer) as producer:
        with pytest.raises(SerializationError, match=r"hide \(ENCRYPT"):
            await producer.prepare("secret")
    assert registered.id is not None
    async with Producer(bootstrap_servers=servers) as plain:
        await plain.send("secret", b"\x00" + registered.id.to_bytes(4, "big") + b"\x06tea\x04")
    async with Consumer(
        "secret",
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        value_deserializer=AvroDeserializer[Any](registry),
    ) as consumer:
        with pytest.raises(RecordError) as info:
            await consumer.get(timeout=20)
        assert "hide (ENCRYPT" in str(info.value.__cause__)


@pytest.mark.parametrize("name", ["avro", "protobuf"])
async def test_arrow_batches_decode_values_into_columns(
    name: str, registry: SchemaRegistry, servers: str
) -> None:
    serializer, _, value = pair(name, registry, "prefix")
    topic = f"columns-{name}"
    async with Producer(bootstrap_servers=servers, value_serializer=serializer) as producer:
        await producer.send_all(topic, [value, value])
        await producer.send(topic, None)
    decoder: Any = (
        AvroDeserializer(registry, AVRO)
        if name == "avro"
        else ProtobufDeserializer(registry, MESSAGE)
    )
    tables = []
    async with Consumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        async for table in consumer.arrow_batches(until_end=True, value_schema=decoder):
            tables.append(table)
    found = [row for table in tables for row in table.column("value").to_pylist()]
    assert found == [TEA, TEA, None]
    assert str(tables[0].schema.field("value").type) == "struct<item: string, count: int32>"


async def test_new_reader_reads_what_an_old_writer_wrote(
    registry: SchemaRegistry, servers: str
) -> None:
    serializer = AvroSerializer[Any](registry, AVRO)
    async with Producer(bootstrap_servers=servers, value_serializer=serializer) as producer:
        await producer.send_all("evolution", [TEA])
    newer = [FIELDS[0], {"name": "unit", "type": "string", "default": "bag"}]
    schema = {"type": "record", "name": "Order", "fields": newer}
    deserializer = AvroDeserializer[Any](registry, schema)
    async with Consumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", value_deserializer=deserializer
    ) as consumer:
        consumer.assign([TopicPartition("evolution", 0)])
        consumer.seek_to_beginning()
        record = await consumer.get(timeout=20)
    assert record is not None
    assert record.value == {"item": "tea", "unit": "bag"}
