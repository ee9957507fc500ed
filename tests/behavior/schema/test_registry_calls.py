"""The calls of a registry that only Confluent's has, and what the client keeps."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from registry_stub import RegistryStub

from aiokclient.errors import (
    ClosedError,
    ConfigError,
    SchemaNotFoundError,
    SchemaRegistryError,
    SerializationError,
)
from aiokclient.schema import (
    AvroDeserializer,
    JsonSchemaDeserializer,
    ProtobufDeserializer,
    Schema,
    SchemaReference,
    SchemaRegistry,
)

STRING = Schema('"string"')
LONG = Schema('"long"')


async def test_a_schema_is_found_by_its_guid_in_all_contexts(
    registry: SchemaRegistry, stub: RegistryStub
) -> None:
    first = await registry.register("orders", STRING)
    second = await registry.register(":.other:orders", STRING)
    assert first.guid is not None
    assert first.guid == second.guid
    found = await registry.by_guid(str(first.guid))
    assert (found.schema, found.guid, found.id) == (STRING, first.guid, None)
    assert await registry.by_guid(first.guid) is found
    assert stub.targets().count(f"GET /schemas/guids/{first.guid}") == 1


async def test_ids_count_within_a_context(registry: SchemaRegistry, stub: RegistryStub) -> None:
    await registry.register("orders", STRING)
    other = await registry.register(":.other:orders", LONG)
    assert other.id == 1
    assert (await registry.by_id(1)).schema == STRING
    assert (await registry.by_id(1, ":.other:anything")).schema == LONG
    assert stub.targets()[-2:] == [
        "GET /schemas/ids/1",
        "GET /schemas/ids/1?subject=%3A.other%3Aanything",
    ]
    assert (await registry.by_id(1, ":.:orders")).schema == STRING  # The default context.
    assert len(stub.requests) == 4
    assert await registry.contexts() == [":.:", ":.other:"]
    assert await registry.subjects() == ["orders"]
    assert await registry.subjects(":.other:") == [":.other:orders"]
    assert await registry.subjects(":*:ord") == [":.other:orders", "orders"]


async def test_a_context_in_the_path_of_the_url_is_kept(stub: RegistryStub) -> None:
    async with SchemaRegistry(f"{stub.url}/contexts/.other/") as registry:
        registered = await registry.register("orders", STRING)
        assert registered.subject == ":.other:orders"
        assert stub.targets() == ["POST /contexts/.other/subjects/orders/versions"]
        assert repr(registry) == f"SchemaRegistry('{stub.url}/contexts/.other')"


async def test_a_context_is_deleted_once_it_has_no_subjects(registry: SchemaRegistry) -> None:
    await registry.register(":.other:orders", STRING)
    with pytest.raises(SchemaRegistryError, match="CONTEXT_NOT_EMPTY"):
        await registry.delete_context(".other")
    await registry.delete_subject(":.other:orders")
    await registry.delete_subject(":.other:orders", permanent=True)
    await registry.delete_context(".other")
    assert await registry.contexts() == [":.:"]


async def test_metadata_and_rules_are_kept_and_returned(registry: SchemaRegistry) -> None:
    rules = {"domainRules": [{"name": "r", "kind": "CONDITION", "type": "CEL", "mode": "WRITE"}]}
    schema = Schema('"string"', metadata={"properties": {"owner": "sales"}}, rule_set=rules)
    registered = await registry.register("orders", schema)
    assert registered.id is not None
    found = await registry.by_id(registered.id)
    assert found.schema == schema
    assert found.schema.rule_set == rules
    assert found.schema != STRING


async def test_modes_are_set_and_deleted(registry: SchemaRegistry) -> None:
    assert await registry.mode() == "READWRITE"
    assert await registry.set_mode("orders", "READONLY") == "READONLY"
    assert await registry.mode("orders") == "READONLY"
    with pytest.raises(SchemaRegistryError) as caught:
        await registry.register("orders", STRING)
    assert (caught.value.status, caught.value.error_code) == (422, 42205)
    assert caught.value.name == "OPERATION_NOT_PERMITTED"
    await registry.delete_mode("orders")
    assert await registry.mode("orders") == "READWRITE"
    with pytest.raises(SchemaRegistryError, match="SUBJECT_MODE_NOT_CONFIGURED"):
        await registry.mode("orders", default_to_global=False)
    with pytest.raises(SchemaRegistryError, match="INVALID_MODE"):
        await registry.set_mode(None, "WRONG")
    await registry.register("orders", STRING)
    with pytest.raises(SchemaRegistryError, match="OPERATION_NOT_PERMITTED"):
        await registry.set_mode(None, "IMPORT")
    assert await registry.set_mode(None, "IMPORT", force=True) == "IMPORT"


async def test_the_configuration_of_a_subject_replaces_that_of_the_registry(
    registry: SchemaRegistry,
) -> None:
    assert (await registry.config()).compatibility == "BACKWARD"
    await registry.set_config("orders", "FULL", normalize=True, compatibilityGroup="version")
    found = await registry.config("orders")
    assert (found.compatibility, found.normalize) == ("FULL", True)
    assert found.others == {"compatibilityGroup": "version"}
    assert (await registry.config("others")).compatibility == "BACKWARD"
    with pytest.raises(SchemaRegistryError) as caught:
        await registry.config("others", default_to_global=False)
    assert caught.value.error_code == 40408
    await registry.delete_config("orders")
    assert (await registry.config("orders")).compatibility == "BACKWARD"
    with pytest.raises(SchemaRegistryError, match="INVALID_COMPATIBILITY_LEVEL"):
        await registry.set_config(None, "WRONG")


async def test_an_association_names_the_subject_of_a_topic(
    registry: SchemaRegistry, stub: RegistryStub
) -> None:
    stub.associations["orders", "value"] = ["order-values"]
    stub.associations["users", "value"] = ["one", "two"]
    assert await registry.associated_subject("orders", "value") == "order-values"
    assert await registry.associated_subject("orders", "key") is None
    with pytest.raises(SerializationError, match="one, two"):
        await registry.associated_subject("users", "value")


async def test_one_request_serves_all_who_ask_for_the_same_id(
    registry: SchemaRegistry, stub: RegistryStub
) -> None:
    await registry.register("orders", STRING)
    release = asyncio.Event()
    stub.answer(delay=release, matches="/ids/1")
    waiting = [asyncio.create_task(registry.by_id(1)) for _ in range(5)]
    await stub.until_requests(2)
    waiting[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting[0]
    release.set()
    found = await asyncio.gather(*waiting[1:])
    assert {each.schema for each in found} == {STRING}
    assert stub.targets().count("GET /schemas/ids/1") == 1


async def test_one_registration_serves_all_who_register_the_same_schema(
    registry: SchemaRegistry, stub: RegistryStub
) -> None:
    found = await asyncio.gather(*(registry.register("orders", STRING) for _ in range(5)))
    assert {each.id for each in found} == {1}
    assert await registry.register("orders", Schema('"string"')) is found[0]
    await registry.register("orders", STRING, normalize=True)
    assert stub.targets() == [
        "POST /subjects/orders/versions",
        "POST /subjects/orders/versions?normalize=true",
    ]


async def test_a_deletion_makes_the_client_register_again(
    registry: SchemaRegistry, stub: RegistryStub
) -> None:
    await registry.register("orders", STRING)
    await registry.version("orders", 1)
    assert await registry.delete_version("orders", 1) == 1
    assert (await registry.register("orders", STRING)).version == 2
    with pytest.raises(SchemaNotFoundError, match="VERSION_NOT_FOUND"):
        await registry.version("orders", 1)
    assert (await registry.version("orders", 1, deleted=True)).schema == STRING


async def test_an_id_that_does_not_exist_is_requested_once_in_five_seconds(
    stub: RegistryStub,
) -> None:
    now = 0.0

    class Clock:
        from random import Random

        rng = Random(0)

        def monotonic(self) -> float:
            return now

        def time_ms(self) -> int:
            return int(now * 1000)

    async with SchemaRegistry(stub.url, clock=Clock()) as registry:
        errors = []
        for _ in range(3):
            with pytest.raises(SchemaNotFoundError) as caught:
                await registry.by_id(7)
            errors.append(caught.value)
        assert len(set(map(id, errors))) == 3
        assert {str(error) for error in errors} == {str(errors[0])}
        assert len(stub.requests) == 1
        now = 5.1
        with pytest.raises(SchemaNotFoundError):
            await registry.by_id(7)
        assert len(stub.requests) == 2
        with pytest.raises(SchemaNotFoundError):
            await registry.by_guid(uuid4())


async def test_a_new_registration_ends_the_memory_of_what_did_not_exist(
    registry: SchemaRegistry,
) -> None:
    with pytest.raises(SchemaNotFoundError):
        await registry.by_id(1)
    await registry.register("orders", STRING)
    assert (await registry.by_id(1)).schema == STRING


async def test_caches_are_bounded(stub: RegistryStub) -> None:
    async with SchemaRegistry(stub.url, cache_size=2) as registry:
        for number in range(3):
            await registry.register("orders", Schema(f'"{number}"'))
        for id in (1, 3, 5, 3, 1):
            await registry.by_id(id)
    # 1 was dropped for 5, and is requested again.
    assert [t for t in stub.targets() if "/ids/" in t] == [
        f"GET /schemas/ids/{id}" for id in (1, 3, 5, 1)
    ]


async def test_references_are_resolved_before_what_refers_to_them(
    registry: SchemaRegistry,
) -> None:
    await registry.register("a", Schema("A"))
    b = Schema("B", references=[SchemaReference("A", "a", 1)])
    await registry.register("b", b)
    c = Schema("C", references=[SchemaReference("B", "b", 1), SchemaReference("A", "a", 1)])
    assert list((await registry.resolve(c)).items()) == [("A", Schema("A")), ("B", b)]
    assert await registry.resolve(Schema("A")) == {}
    assert await registry.referenced_by("a", 1) == [3]


async def test_references_stay_in_the_context_of_the_subject(registry: SchemaRegistry) -> None:
    await registry.register(":.other:a", Schema("A"))
    schema = Schema("B", references=[SchemaReference("A", "a", 1)])
    assert await registry.resolve(schema, ":.other:b") == {"A": Schema("A")}
    with pytest.raises(SchemaNotFoundError):
        await registry.resolve(schema)


def _refers_to(stub: RegistryStub, subject: str, *names: str) -> None:
    references = [{"name": name, "subject": name, "version": 1} for name in names]
    body = {"subject": subject, "version": 1, "id": 1, "schema": subject, "references": references}
    stub.answer(body, times=100, matches=f"/subjects/{subject}/versions/1")


async def test_references_in_a_circle_are_refused(
    registry: SchemaRegistry, stub: RegistryStub
) -> None:
    _refers_to(stub, "b", "c")
    _refers_to(stub, "c", "b")
    schema = Schema("A", references=[SchemaReference("b", "b", 1)])
    with pytest.raises(SerializationError, match="in a circle: b -> c -> b"):
        await registry.resolve(schema)


async def test_references_are_bounded_in_depth(
    registry: SchemaRegistry, stub: RegistryStub
) -> None:
    for number in range(10, 50):
        _refers_to(stub, f"s{number}", f"s{number + 1}")
    schema = Schema("A", references=[SchemaReference("s10", "s10", 1)])
    with pytest.raises(SerializationError, match="Over 32 schemas"):
        await registry.resolve(schema)


async def test_one_name_for_two_schemas_is_refused(registry: SchemaRegistry) -> None:
    await registry.register("a", Schema("A"))
    await registry.register("b", Schema("B"))
    references = [SchemaReference("same", "a", 1), SchemaReference("same", "b", 1)]
    with pytest.raises(SerializationError, match="two different schemas same"):
        await registry.resolve(Schema("C", references=references))


async def test_a_closed_client_raises_closed_error_and_leaves_nothing(stub: RegistryStub) -> None:
    registry = SchemaRegistry(stub.url)
    stub.silence()
    waiting = asyncio.create_task(registry.by_id(1))
    await stub.until_requests(1)
    before = asyncio.all_tasks()
    await registry.close()
    with pytest.raises(ClosedError):
        await waiting
    with pytest.raises(ClosedError):
        await registry.by_id(1)
    await registry.close()
    mine = [task for task in before & asyncio.all_tasks() if "schema registry" in task.get_name()]
    assert mine == []


async def test_a_deserializer_looks_up_ids_in_the_context_of_its_subject(
    registry: SchemaRegistry,
) -> None:
    await registry.register("orders-value", LONG)
    base = Schema('{"type": "fixed", "name": "Base", "size": 1}')
    await registry.register(":.other:base", base)
    reference = SchemaReference("Base", ":.other:base", 1)
    text = '{"type": "record", "name": "Order", "fields": [{"name": "a", "type": "Base"}]}'
    schema = Schema(text, references=(reference,))
    other = await registry.register(":.other:orders-value", schema)
    assert other.id is not None
    data = b"\x00" + other.id.to_bytes(4, "big") + b"\x07"
    default = AvroDeserializer[Any](registry)
    in_context = AvroDeserializer[Any](registry, subject=":.other:orders-value")
    for deserializer in (default, in_context):
        await deserializer.prepare("orders", [(data, ())])
    assert in_context.deserialize("orders", data) == {"a": b"\x07"}
    with pytest.raises(SerializationError, match="does not have"):
        default.deserialize("orders", data)


@pytest.mark.parametrize("kind", [AvroDeserializer, JsonSchemaDeserializer, ProtobufDeserializer])
async def test_a_deserializer_refuses_a_subject_that_is_no_name(
    registry: SchemaRegistry, kind: Any
) -> None:
    for subject in ("", 7, lambda topic, part, record: topic):
        with pytest.raises(ConfigError, match="subject must be the name of a subject"):
            kind(registry, subject=subject)


async def test_a_record_with_a_guid_is_at_fault_when_the_registry_has_no_guids(
    registry: SchemaRegistry, stub: RegistryStub
) -> None:
    stub.has_guids = False
    deserializer = AvroDeserializer[Any](registry)
    headers = [("__value_schema_id", b"\x01" + uuid4().bytes)]
    for _ in range(3):
        assert not deserializer.is_prepared(b"\x02x", headers)
        await deserializer.prepare("orders", [(b"\x02x", headers)])
        with pytest.raises(SerializationError, match="registry has no GUIDs") as caught:
            deserializer.deserialize("orders", b"\x02x", headers)
        assert isinstance(caught.value.__cause__, SchemaRegistryError)
    assert len(stub.requests) == 2  # Whether it is a registry is asked once.


async def test_no_record_is_at_fault_when_the_url_is_not_that_of_a_registry(
    stub: RegistryStub,
) -> None:
    async with SchemaRegistry(f"{stub.url}/elsewhere", timeout=5.0) as registry:
        deserializer = AvroDeserializer[Any](registry)
        headers = [("__value_schema_id", b"\x01" + uuid4().bytes)]
        with pytest.raises(SchemaRegistryError) as caught:
            await deserializer.prepare("orders", [(b"\x02x", headers)])
        assert caught.value.status == 404
        with pytest.raises(SchemaRegistryError):
            await deserializer.prepare("orders", [(b"\x00\x00\x00\x00\x01x", ())])
