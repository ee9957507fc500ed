"""The part of a serializer that is the same for all formats: subject, id, and preparation.

`prepare(topic)` does all that needs the registry. It finds the subject, registers the schema or
looks it up, refuses rules, and lets the format make a function that writes values. `serialize` then
is one lookup of that function by topic, and its call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Generic,
    Literal,
    TypeAlias,
    TypeVar,
    overload,
)

from aiokclient.errors import ConfigError, SerializationError
from aiokclient.schema.rules import WRITING, rules_problem
from aiokclient.schema.schema import RegisteredSchema, Schema
from aiokclient.schema.wire_format import encode_guid, encode_id, header_name
from aiokclient.types import Headers, Serialized

if TYPE_CHECKING:
    # Only type checkers need this package. Without `to_dict`, nothing tells the type of values.
    from typing_extensions import TypeVar as TypeVarWithDefault

    from aiokclient.schema.registry import SchemaRegistry

    V_contra = TypeVarWithDefault("V_contra", contravariant=True, default=Any)
else:
    V_contra = TypeVar("V_contra", contravariant=True)

Write: TypeAlias = Callable[[Any], bytes]
"""A function that returns the bytes of a value, after a prefix that it knows."""
Refuse: TypeAlias = Callable[[BaseException], SerializationError]
"""A function of the reason why a value or bytes were refused. It returns the error to raise."""

SubjectStrategy: TypeAlias = (
    Literal["TOPIC", "RECORD", "TOPIC_RECORD", "ASSOCIATED"]
    | Callable[[str, str, "str | None"], str]
)
"""The name of a strategy, or a function of topic, part ("key" or "value"), and record name."""

_STRATEGIES: Final = ("TOPIC", "RECORD", "TOPIC_RECORD", "ASSOCIATED")

_MAX_TOPICS: Final = 10_000


class SchemaSerializer(Generic[V_contra]):
    """A serializer for values of a schema that a registry knows.

    A serializer belongs to the keys or to the values of records, not to both.
    """

    schema_type: ClassVar[str]
    """The registry's name of the format."""

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: Schema | None,
        *,
        record_name: str | None,
        subject: SubjectStrategy,
        auto_register: bool | None,
        use_latest_version: bool,
        normalize: bool,
        schema_id_in: Literal["prefix", "header"],
        strict: bool,
    ) -> None:
        if schema is None and (auto_register or not use_latest_version):
            raise ConfigError(
                f"{type(self).__name__} needs a schema. Give one, or set use_latest_version=True "
                "to use the latest one of the subject."
            )
        if schema_id_in not in ("prefix", "header"):
            raise ConfigError(f'schema_id_in={schema_id_in!r}: use "prefix" or "header".')
        require_strategy(subject, record_name, has_schema=schema is not None)
        self._subject: SubjectStrategy = subject
        self._registry = registry
        self._schema = schema
        self._record_name = record_name
        self._auto_register = not use_latest_version if auto_register is None else auto_register
        self._use_latest_version = use_latest_version
        self._normalize = normalize
        self._in_header = schema_id_in == "header"
        self._strict = strict
        self._part: str | None = None
        self._writers: dict[str, Callable[[Any], bytes | Serialized]] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._registry!r}, subject={self._subject!r})"

    def bind(self, part: str) -> None:
        """Set whether this serializes the "key" or the "value" of records.

        The producer calls it. Raises ConfigError if the serializer is used for the other part.
        """
        self._part = require_part(self, self._part, part)

    async def prepare(self, topic: str) -> None:
        """Find the subject and the id of the schema for a topic.

        Only the first call for a topic asks the registry. `producer.prepare(topic)` and
        `producer.send_all(topic, ...)` call it. Raises SchemaRegistryError if the registry refuses
        the schema or does not know it, SchemaRegistryUnavailableError if the registry cannot be
        reached, and SerializationError if values cannot be written with the schema. If it is
        cancelled, the schema may have been registered.
        """
        if topic in self._writers:
            return
        part = self._part or "value"
        subject = await self._find_subject(topic, part)
        registered = await self._find_schema(subject)
        where = (
            f"the {part}s of topic {topic} (subject {subject}, schema id {registered.id} of "
            f"{name_registry(self._registry)})"
        )
        for schema in (registered.schema, self._schema or registered.schema):
            problem = rules_problem(schema.rule_set, WRITING)
            if problem:
                raise SerializationError(f"The schema for {where} cannot be used. {problem}")
        writer = await self._prepare_writer(registered, part, where)
        while len(self._writers) >= _MAX_TOPICS:
            self._writers.pop(next(iter(self._writers)))
        self._writers[topic] = writer

    @overload
    def serialize(
        self, topic: str, value: V_contra, headers: Headers = ()
    ) -> bytes | Serialized: ...

    @overload
    def serialize(self, topic: str, value: None, headers: Headers = ()) -> None: ...

    def serialize(
        self, topic: str, value: V_contra | None, headers: Headers = ()
    ) -> bytes | Serialized | None:
        """Return the bytes of a value, or None for None, which is a tombstone.

        With `schema_id_in="header"`, it returns them with the record header that has the GUID.
        Raises SerializationError if the topic is not prepared, or if the value does not match the
        schema.
        """
        if value is None:
            return None
        write = self._writers.get(topic)
        if write is None:
            raise SerializationError(
                f"The {self._part or 'value'} serializer is not prepared for topic {topic}. Call "
                f"`await producer.prepare({topic!r})` before the first send, or use send_all()."
            )
        return write(value)

    async def _find_subject(self, topic: str, part: str) -> str:
        if self._subject == "ASSOCIATED":
            subject = await self._registry.associated_subject(topic, part)
            if subject is not None:
                return subject
        return name_subject(self._subject, topic, part, self._record_name)

    async def _find_schema(self, subject: str) -> RegisteredSchema:
        """Register the schema or look it up. Return it with the rules of the registry."""
        registry, registered = self._registry, None
        if self._auto_register:
            own = await self._complete_schema()
            registered = await registry.register(subject, own, normalize=self._normalize)
        if self._use_latest_version:
            return await registry.latest(subject)
        if registered is None:
            own = await self._complete_schema()
            registered = await registry.lookup(subject, own, normalize=self._normalize)
        assert registered.id is not None  # Only a schema found by its GUID has none.
        # The answer to a registration may lack the GUID, and rules that the registry has added.
        known = await registry.by_id(registered.id, subject=subject)
        guid = registered.guid or known.guid
        return RegisteredSchema(registered.id, guid, subject, registered.version, known.schema)

    async def _prepare_writer(
        self, registered: RegisteredSchema, part: str, where: str
    ) -> Callable[[Any], bytes | Serialized]:
        def refuse(error: BaseException) -> SerializationError:
            return SerializationError(
                f"An object for {where} does not match the schema: "
                f"{describe_error(error)} Correct the object, or change the schema."
            )

        schema = registered.schema if self._use_latest_version else self._schema
        assert schema is not None
        require_type(self, schema.type, where)
        suffix = self._encode_suffix(schema)
        references = await self._registry.resolve(schema, subject=registered.subject)
        if not self._in_header:
            assert registered.id is not None  # Only a schema found by its GUID has none.
            prefix = encode_id(registered.id) + suffix
            return self._make_writer(schema, references, prefix, refuse)
        if registered.guid is None:
            raise SerializationError(
                f"The registry has no GUID of the schema for {where}, which "
                'schema_id_in="header" needs. Set schema_id_in="prefix", or update the registry.'
            )
        write = self._make_writer(schema, references, b"", refuse)
        headers = ((header_name(part), encode_guid(registered.guid) + suffix),)
        return lambda value: Serialized(write(value), headers)

    async def _complete_schema(self) -> Schema:
        """Return the schema to register or to look up, with its references."""
        assert self._schema is not None  # The constructor has checked it.
        return self._schema

    def _encode_suffix(self, schema: Schema) -> bytes:
        """Return the bytes that stand between the id and the payload."""
        return b""

    def _make_writer(
        self, schema: Schema, references: Mapping[str, Schema], prefix: bytes, refuse: Refuse
    ) -> Write:
        """Return a function that writes values with a schema, after a prefix."""
        raise NotImplementedError


def require_strategy(strategy: object, record_name: str | None, *, has_schema: bool) -> None:
    """Raise ConfigError if there is no such strategy, or the schema lacks the name it needs."""
    if callable(strategy):
        return
    if strategy not in _STRATEGIES:
        raise ConfigError(
            f"subject={strategy!r} is no strategy. Give one of {', '.join(_STRATEGIES)}, or a "
            "function of the topic, the part, and the name of the record that returns a subject."
        )
    if strategy in ("RECORD", "TOPIC_RECORD") and record_name is None:
        why = (
            "the schema has none. Name it (a record in Avro, the title in JSON Schema)"
            if has_schema
            else "it needs a schema. Give one"
        )
        raise ConfigError(
            f'subject="{strategy}" takes the name of the record, and {why}, or use another '
            "strategy."
        )


def name_subject(strategy: SubjectStrategy, topic: str, part: str, record_name: str | None) -> str:
    """Return the subject of a topic. For ASSOCIATED, this is the one without an association."""
    if callable(strategy):
        subject = strategy(topic, part, record_name)
        if not isinstance(subject, str) or not subject:
            raise ConfigError(
                f"The function for subjects returned {subject!r} for the {part}s of topic {topic}. "
                "It must return the name of a subject."
            )
        return subject
    if strategy == "RECORD" and record_name is not None:
        return record_name
    if strategy == "TOPIC_RECORD" and record_name is not None:
        return f"{topic}-{record_name}"
    return f"{topic}-{part}"


def name_registry(registry: SchemaRegistry) -> str:
    """Return the URLs of a registry for an error message."""
    return ", ".join(registry.urls)


def require_part(owner: object, earlier: str | None, part: str) -> str:
    """Return the part to which a serializer or deserializer is bound.

    Raises ConfigError if it was bound to the other part before.
    """
    if part not in ("key", "value"):
        raise ConfigError(f'{type(owner).__name__}.bind({part!r}): give "key" or "value".')
    if earlier not in (None, part):
        raise ConfigError(
            f"One {type(owner).__name__} is used for keys and for values, which have different "
            "subjects and headers. Create one for each."
        )
    return part


def require_type(owner: Any, schema_type: str, where: str) -> None:
    """Raise SerializationError if a schema is of another format."""
    if schema_type != owner.schema_type:
        raise SerializationError(
            f"The schema for {where} is of type {schema_type}. {type(owner).__name__} needs "
            f"{owner.schema_type}: use the class for {schema_type}."
        )


def describe_error(error: BaseException) -> str:
    """Return the text of an error as a sentence, with the name of its class if that says more."""
    text = str(error).strip().rstrip(".")
    name = type(error).__name__
    return f"{name}: {text}." if text and not isinstance(error, ValueError) else f"{text or name}."


def needed_extra(user: str, package: str, extra: str) -> ImportError:
    """Return the error for a package that is not installed."""
    return ImportError(
        f"{user} needs {package}. Install it with: pip install 'aiokclient[{extra}]'", name=package
    )
