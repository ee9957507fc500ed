"""A registry in memory with the coroutines that serializers call, without HTTP."""

from __future__ import annotations

import json
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

from aiokclient.errors import SchemaNotFoundError
from aiokclient.schema.schema import RegisteredSchema, Schema


class RegistryInMemory:
    """A registry that counts its calls. `rule_set` is added to each schema that is registered."""

    urls = ("http://registry:8081",)

    def __init__(self, *, has_guids: bool = True, rule_set: Any = None) -> None:
        self.subjects: dict[str, list[RegisteredSchema]] = {}
        self.associations: dict[tuple[str, str], str] = {}
        self.calls: list[tuple[Any, ...]] = []
        self._ids: dict[Schema, int] = {}
        self._has_guids = has_guids
        self._rule_set = rule_set

    async def register(
        self, subject: str, schema: Schema, normalize: bool = False
    ) -> RegisteredSchema:
        self.calls.append(("register", subject))
        versions = self.subjects.setdefault(subject, [])
        for known in versions:
            if known.schema.text == schema.text:
                return known
        schema_id = self._ids.setdefault(schema, len(self._ids) + 1)
        guid = uuid5(NAMESPACE_OID, schema.text) if self._has_guids else None
        kept = Schema(schema.text, schema.type, schema.references, rule_set=self._rule_set)
        versions.append(RegisteredSchema(schema_id, guid, subject, len(versions) + 1, kept))
        return versions[-1]

    async def lookup(
        self, subject: str, schema: Schema, normalize: bool = False
    ) -> RegisteredSchema:
        self.calls.append(("lookup", subject))
        for known in self.subjects.get(subject, ()):
            if known.schema.text == schema.text:
                return known
        raise self._not_found(f"/subjects/{subject}", 40403)

    async def latest(self, subject: str) -> RegisteredSchema:
        self.calls.append(("latest", subject))
        if subject not in self.subjects:
            raise self._not_found(f"/subjects/{subject}/versions/latest", 40401)
        return self.subjects[subject][-1]

    async def version(self, subject: str, version: int) -> RegisteredSchema:
        return self.subjects[subject][version - 1]

    async def by_id(self, schema_id: int, subject: str | None = None) -> RegisteredSchema:
        self.calls.append(("by_id", schema_id))
        for known in self._all():
            if known.id == schema_id:
                return known
        raise self._not_found(f"/schemas/ids/{schema_id}", 40403)

    async def by_guid(self, guid: UUID) -> RegisteredSchema:
        self.calls.append(("by_guid", guid))
        for known in self._all():
            if known.guid == guid:
                return known
        raise self._not_found(f"/schemas/guids/{guid}", 40403)

    async def resolve(self, schema: Schema, subject: str | None = None) -> dict[str, Schema]:
        found: dict[str, Schema] = {}
        for reference in schema.references:
            referenced = (await self.version(reference.subject, reference.version)).schema
            found |= await self.resolve(referenced)
            found[reference.name] = referenced
        return found

    async def associated_subject(self, topic: str, part: str) -> str | None:
        self.calls.append(("associated_subject", topic))
        return self.associations.get((topic, part))

    def _all(self) -> list[RegisteredSchema]:
        return [known for versions in self.subjects.values() for known in versions]

    def _not_found(self, path: str, code: int) -> SchemaNotFoundError:
        return SchemaNotFoundError(
            "Not found.", status=404, error_code=code, url=self.urls[0] + path
        )


FakeRegistry: Any = RegistryInMemory
"""The class, as type checkers accept it in place of a client of a registry."""


def avro_text(**fields: Any) -> str:
    """Return the text of an Avro record `shop.Order` with these fields and their types."""
    listed = [{"name": name, "type": kind} for name, kind in fields.items()]
    return json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": listed})


async def read_back(deserializer: Any, data: Any, headers: Any = ()) -> Any:
    """Return what a deserializer makes of bytes, after it was prepared for them."""
    await deserializer.prepare("orders", [(data, headers)])
    return deserializer.deserialize("orders", data, headers)
