"""Schemas, as programs give them and as registries return them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final
from uuid import UUID

from aiokclient.errors import ConfigError
from aiokclient.types import public_in
from aiokclient.types.frozen import fresh, frozen

AVRO: Final = "AVRO"
JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"


@public_in("aiokclient.schema")
@frozen
class SchemaReference:
    """A reference of a schema to another one, which is a version of a subject.

    `name` is how the text of the schema names it: the full name of an Avro type, the path in an
    import of Protobuf, or the URL in a `$ref` of JSON Schema. Version -1 is the latest one.
    """

    name: str
    subject: str
    version: int


@public_in("aiokclient.schema")
class Schema:
    """A schema: its text, its type, and the schemas that it refers to.

    The type is "AVRO", "JSON", "PROTOBUF", or another one that the registry knows. `metadata` and
    `rule_set` are the objects of those names in the registry, or None. Two schemas are equal if
    their texts and everything else are, however their formats read them.
    """

    __slots__ = ("_hash", "metadata", "references", "rule_set", "text", "type")
    __match_args__ = ("text", "type", "references", "metadata", "rule_set")

    text: str
    """The text that is sent to the registry, or that it has returned."""
    type: str
    """The type, in upper case."""
    references: tuple[SchemaReference, ...]
    """The references, in the order of the registry."""
    metadata: Mapping[str, Any] | None
    """Tags, properties, and the names of sensitive properties, or None."""
    rule_set: Mapping[str, Any] | None
    """The rules of the schema (`domainRules` and so on), or None."""

    def __init__(
        self,
        text: str,
        type: str = AVRO,
        references: Iterable[SchemaReference] = (),
        *,
        metadata: Mapping[str, Any] | None = None,
        rule_set: Mapping[str, Any] | None = None,
    ) -> None:
        references = tuple(references)
        _check_arguments(text, type, references, metadata, rule_set)
        given = (text, type.upper(), references, metadata, rule_set)
        for name, value in zip(self.__match_args__, given, strict=True):
            object.__setattr__(self, name, value)
        # Schemas are keys of caches on the way of each registration, and their texts may be long.
        object.__setattr__(self, "_hash", hash(given[:3]))

    def __setattr__(self, name: str, value: object) -> None:
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schema):
            return NotImplemented
        return self is other or all(
            getattr(self, name) == getattr(other, name) for name in self.__match_args__
        )

    def __hash__(self) -> int:
        hashed: int = object.__getattribute__(self, "_hash")
        return hashed

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= 100 else f"{self.text[:100]}..."
        references = f", references={self.references!r}" if self.references else ""
        return f"Schema({text!r}, {self.type!r}{references})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.text, self.type, self.references, self.metadata, self.rule_set)


def _restored(
    text: str,
    type: str,
    references: tuple[SchemaReference, ...],
    metadata: Mapping[str, Any] | None,
    rule_set: Mapping[str, Any] | None,
) -> Schema:
    return Schema(text, type, references, metadata=metadata, rule_set=rule_set)


def _check_arguments(
    text: object, type: object, references: tuple[object, ...], metadata: object, rule_set: object
) -> None:
    if not isinstance(text, str):
        raise ConfigError(
            f"Schema: text must be a string, not {text.__class__.__name__}. Give the schema as the "
            "text that a registry stores, for example by json.dumps()."
        )
    if not (isinstance(type, str) and type):
        raise ConfigError('Schema: type must be a string such as "AVRO", "JSON", or "PROTOBUF".')
    if not all(isinstance(each, SchemaReference) for each in references):
        raise ConfigError("Schema: references must be SchemaReference objects.")
    for name, value in (("metadata", metadata), ("rule_set", rule_set)):
        if not isinstance(value, Mapping | None):
            raise ConfigError(f"Schema: {name} must be a mapping or None.")


@public_in("aiokclient.schema")
@frozen
class RegisteredSchema:
    """A schema in a registry.

    `id` is its number within a context, and `guid` identifies it in all contexts. A call sets what
    the registry has answered: `id` is None for a schema found by its GUID, `guid` is None if the
    registry has no GUIDs, and `subject` and `version` are None for a schema found by its id, which
    may be in several subjects. Some registries return no version when a schema is registered.
    """

    id: int | None
    guid: UUID | None
    subject: str | None
    version: int | None
    schema: Schema


@public_in("aiokclient.schema")
@frozen
class CompatibilityCheck:
    """The result of `SchemaRegistry.check`. It is true if the schema is compatible.

    `messages` says why it is not. The texts are those of the registry, each of which has its own.
    """

    is_compatible: bool
    messages: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.is_compatible


@public_in("aiokclient.schema")
@frozen
class RegistryConfig:
    """The configuration of a subject, or of the whole registry.

    `compatibility` is "NONE", "BACKWARD", "FORWARD", "FULL", or one of the last three with
    "_TRANSITIVE". `normalize` is whether schemas are normalized when they are registered, and
    `alias` another name of the subject. Both are None if the registry does not say. `others` has
    everything else that the registry returns, by its names, such as `compatibilityGroup`.
    """

    compatibility: str | None
    normalize: bool | None = None
    alias: str | None = None
    others: Mapping[str, Any] = fresh(default_factory=dict)


def schema_body(schema: Schema) -> dict[str, Any]:
    """Return a schema as the body of a request."""
    body: dict[str, Any] = {"schema": schema.text}
    if schema.type != AVRO:  # Old registries know no other type, and refuse the field.
        body["schemaType"] = schema.type
    if schema.references:
        body["references"] = [
            {"name": each.name, "subject": each.subject, "version": each.version}
            for each in schema.references
        ]
    if schema.metadata is not None:
        body["metadata"] = schema.metadata
    if schema.rule_set is not None:
        body["ruleSet"] = schema.rule_set
    return body


def schema_of(body: Mapping[str, Any]) -> Schema:
    """Return the schema in a registry's answer. Raises ValueError or TypeError if it has none."""
    references = body.get("references") or ()
    text = body["schema"]
    if not isinstance(text, str):
        raise TypeError("the schema is not a string")
    return Schema(
        text,
        body.get("schemaType") or AVRO,
        [
            SchemaReference(
                require_text(each["name"]),
                require_text(each["subject"]),
                require_number(each["version"]),
            )
            for each in references
        ],
        metadata=body.get("metadata"),
        rule_set=body.get("ruleSet"),
    )


def registered_of(
    body: Mapping[str, Any],
    *,
    schema: Schema | None = None,
    id: int | None = None,
    subject: str | None = None,
) -> RegisteredSchema:
    """Return a registered schema of a registry's answer.

    `schema`, `id`, and `subject` stand for what the answer leaves out. Raises ValueError, KeyError,
    or TypeError if something has the wrong type.
    """
    found_id, guid, version = body.get("id"), body.get("guid"), body.get("version")
    return RegisteredSchema(
        id if found_id is None else require_number(found_id),
        None if guid is None else UUID(require_text(guid)),
        subject if body.get("subject") is None else require_text(body["subject"]),
        None if version is None else require_number(version),
        schema_of(body) if schema is None else schema,
    )


def require_number(value: object) -> int:
    """Return an integer as it is. Raises TypeError for anything else."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{json.dumps(value, default=repr)[:50]} is not an integer")
    return value


def require_text(value: object) -> str:
    """Return a string as it is. Raises TypeError for anything else."""
    if not isinstance(value, str):
        raise TypeError(f"{json.dumps(value, default=repr)[:50]} is not a string")
    return value
