"""The calls of every registry, with the stub and with Apicurio Registry."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest
from kafka_harness.apicurio import ApicurioRegistry

from aiokclient.errors import SchemaNotFoundError, SchemaRegistryError
from aiokclient.schema import Schema, SchemaReference, SchemaRegistry


def record(name: str, /, **fields: Any) -> Schema:
    """Return the Avro schema of a record with these types of fields."""
    listed = [{"name": field, "type": kind} for field, kind in fields.items()]
    return Schema(json.dumps({"type": "record", "name": name, "fields": listed}))


def optional(name: str, field: str, kind: str) -> Schema:
    found = json.loads(record(name, a="string").text)
    found["fields"].append({"name": field, "type": ["null", kind], "default": None})
    return Schema(json.dumps(found))


async def test_a_schema_is_registered_and_found_in_every_way(
    any_registry: SchemaRegistry, subject: str
) -> None:
    schema = record("Order", a="string")
    registered = await any_registry.register(subject, schema)
    assert registered.subject == subject
    assert registered.schema == schema
    assert registered.id is not None
    found = await any_registry.lookup(subject, schema)
    assert (found.id, found.version) == (registered.id, 1)
    assert (await any_registry.by_id(registered.id)).schema == schema
    latest = await any_registry.latest(subject)
    assert (latest.id, latest.version, latest.schema) == (registered.id, 1, schema)
    assert (await any_registry.version(subject, 1)).schema == schema
    assert await any_registry.versions(subject) == [1]
    assert await any_registry.subjects(subject) == [subject]
    assert (subject, 1) in await any_registry.versions_of_id(registered.id)
    assert {"AVRO", "JSON", "PROTOBUF"} <= set(await any_registry.types())


async def test_versions_grow_and_equal_schemas_have_one(
    any_registry: SchemaRegistry, subject: str
) -> None:
    first = await any_registry.register(subject, record("Order", a="string"))
    second = await any_registry.register(subject, optional("Order", "b", "int"))
    assert first.id != second.id
    again = SchemaRegistry(any_registry.urls[0], timeout=30.0)
    assert (await again.register(subject, record("Order", a="string"))).id == first.id
    await again.close()
    assert await any_registry.versions(subject) == [1, 2]
    assert (await any_registry.latest(subject)).id == second.id


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("JSON", '{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}'),
        ("PROTOBUF", 'syntax = "proto3";\nmessage M {\n  int32 a = 1;\n}\n'),
    ],
)
async def test_schemas_have_types(
    any_registry: SchemaRegistry, subject: str, kind: str, text: str
) -> None:
    registered = await any_registry.register(subject, Schema(text, kind))
    assert registered.id is not None
    found = await any_registry.by_id(registered.id)
    assert found.schema.type == kind


async def test_deletion_has_two_steps(any_registry: SchemaRegistry, subject: str) -> None:
    schema = record("Order", a="string")
    registered = await any_registry.register(subject, schema)
    assert registered.id is not None
    with pytest.raises(SchemaRegistryError) as caught:
        await any_registry.delete_version(subject, 1, permanent=True)
    assert caught.value.error_code == 40407
    assert caught.value.name == "VERSION_NOT_SOFT_DELETED"
    assert await any_registry.delete_version(subject, 1) == 1
    assert (await any_registry.by_id(registered.id)).schema == schema
    with pytest.raises(SchemaNotFoundError):
        await any_registry.lookup(subject, schema)
    registered = await any_registry.register(subject, schema)
    found = await any_registry.latest(subject)
    assert (found.id, found.version) == (registered.id, 2)
    assert await any_registry.delete_subject(subject) == [2]
    with pytest.raises(SchemaNotFoundError):
        await any_registry.latest(subject)
    assert subject not in await any_registry.subjects()
    with pytest.raises(SchemaNotFoundError) as caught:
        await any_registry.delete_subject(subject)
    assert caught.value.name == "SUBJECT_SOFT_DELETED"


async def test_what_does_not_exist_is_not_found(any_registry: SchemaRegistry, subject: str) -> None:
    with pytest.raises(SchemaNotFoundError) as caught:
        await any_registry.by_id(987_654)
    assert (caught.value.status, caught.value.error_code) == (404, 40403)
    assert caught.value.url.endswith("/schemas/ids/987654")
    with pytest.raises(SchemaNotFoundError, match="SUBJECT_NOT_FOUND"):
        await any_registry.latest(subject)
    await any_registry.register(subject, record("Order", a="string"))
    with pytest.raises(SchemaNotFoundError, match="VERSION_NOT_FOUND"):
        await any_registry.version(subject, 7)
    with pytest.raises(SchemaNotFoundError, match="SCHEMA_NOT_FOUND"):
        await any_registry.lookup(subject, record("Other", a="string"))


async def test_references_are_registered_and_resolved(
    any_registry: SchemaRegistry, subject: str
) -> None:
    user = record("User", name="string")
    await any_registry.register(f"{subject}-user", user)
    reference = SchemaReference("User", f"{subject}-user", 1)
    fields = [{"name": "user", "type": "User"}]
    text = json.dumps({"type": "record", "name": "Order", "fields": fields})
    order = Schema(text, references=[reference])
    registered = await any_registry.register(subject, order)
    assert registered.id is not None
    found = (await any_registry.by_id(registered.id)).schema
    assert found.references == (reference,)
    assert await any_registry.resolve(found) == {"User": user}
    assert registered.id in await any_registry.referenced_by(f"{subject}-user", 1)
    with pytest.raises(SchemaRegistryError) as caught:
        await any_registry.delete_version(f"{subject}-user", 1)
    assert (caught.value.status, caught.value.name) == (422, "REFERENCE_EXISTS")
    missing = Schema(text, references=[SchemaReference("User", f"{subject}-none", 1)])
    with pytest.raises(SchemaRegistryError, match="INVALID_SCHEMA"):
        await any_registry.register(f"{subject}-2", missing)


async def test_the_compatibility_level_of_a_subject_is_kept(
    any_registry: SchemaRegistry, subject: str
) -> None:
    await any_registry.register(subject, record("Order", a="string"))
    assert (await any_registry.set_config(subject, "FULL")).compatibility == "FULL"
    assert (await any_registry.config(subject)).compatibility == "FULL"
    assert await any_registry.check(subject, optional("Order", "b", "int"))
    await any_registry.delete_config(subject)
    assert (await any_registry.config(subject)).compatibility != "FULL"


@pytest.mark.registry
async def test_apicurio_says_why_a_schema_is_not_compatible(
    apicurio: ApicurioRegistry, subject: str
) -> None:
    async with SchemaRegistry(apicurio.url, timeout=30.0) as registry:
        await registry.register(subject, record("Order", a="string"))
        await registry.set_config(subject, "BACKWARD")
        changed = record("Order", a="int")
        checked = await registry.check(subject, changed)
        assert not checked
        assert checked.messages
        assert not await registry.check(subject, changed, version=None)
        with pytest.raises(SchemaRegistryError) as caught:
            await registry.register(subject, changed)
        assert (caught.value.status, caught.value.error_code) == (409, 409)
        assert caught.value.name == "INCOMPATIBLE_SCHEMA"


@pytest.mark.registry
async def test_apicurio_answers_wrong_requests_in_its_own_way(
    apicurio: ApicurioRegistry, subject: str
) -> None:
    async with SchemaRegistry(apicurio.url, timeout=30.0) as registry:
        # 500 without a code is a defect: the same request would meet it again.
        with pytest.raises(SchemaRegistryError) as caught:
            await registry.register(subject, Schema("x", "UNKNOWN"))
        assert caught.value.status == 500
        # The answer to a wrong level is no JSON.
        await registry.register(subject, record("Order", a="string"))
        with pytest.raises(SchemaRegistryError) as caught:
            await registry.set_config(subject, "WRONG")
        assert caught.value.status in (400, 422)
        with pytest.raises(SchemaRegistryError, match="INVALID_SCHEMA"):
            await registry.register(subject, Schema("{", "AVRO"))


@pytest.mark.registry
async def test_a_call_that_is_missing_is_no_unknown_schema(apicurio: ApicurioRegistry) -> None:
    async with SchemaRegistry(apicurio.url, timeout=30.0) as registry:
        for missing in (registry.mode(), registry.by_guid(uuid4())):
            with pytest.raises(SchemaRegistryError, match="does not have this call") as caught:
                await missing
            assert not isinstance(caught.value, SchemaNotFoundError)
            assert (caught.value.status, caught.value.error_code) == (404, 0)
        assert await registry.associated_subject("orders", "value") is None


@pytest.mark.registry
async def test_a_registry_that_dies_is_back_with_other_schemas(java: str, subject: str) -> None:
    with ApicurioRegistry() as server:
        async with SchemaRegistry(server.url, timeout=60.0) as registry:
            registered = await registry.register(subject, record("Order", a="string"))
            assert registered.id is not None
            server.kill()
            # What is known needs no registry.
            assert await registry.register(subject, record("Order", a="string")) == registered
            server.start()
            with pytest.raises(SchemaNotFoundError):
                await registry.by_id(registered.id)
