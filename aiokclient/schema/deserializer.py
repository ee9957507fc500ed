"""The part of a deserializer that is the same for all formats: ids, and preparation.

`prepare(topic, items)` asks the registry for the schemas of all items that are not known yet, and
lets the format make a function for each that reads values. `deserialize` then is one lookup of that
function by the bytes of the id, and its call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Generic,
    NoReturn,
    TypeAlias,
    TypeVar,
    overload,
)
from uuid import UUID

from aiokclient.errors import (
    ConfigError,
    SchemaNotFoundError,
    SchemaRegistryError,
    SerializationError,
)
from aiokclient.schema.rules import READING, rules_problem
from aiokclient.schema.serializer import (
    Refuse,
    describe_error,
    name_registry,
    require_part,
    require_type,
)
from aiokclient.schema.wire_format import PREFIX_SIZE, decode_key, header_name, key_of_header
from aiokclient.types import Headers

if TYPE_CHECKING:
    # Only type checkers need this package. Without `from_dict`, nothing tells the type of values.
    from typing_extensions import TypeVar as TypeVarWithDefault

    from aiokclient.schema.registry import SchemaRegistry
    from aiokclient.schema.schema import RegisteredSchema, Schema

    T_co = TypeVarWithDefault("T_co", covariant=True, default=Any)
else:
    T_co = TypeVar("T_co", covariant=True)

Read: TypeAlias = Callable[[bytes, bytes | None], Any]
"""A function of the bytes of a key or value, and of the header with its id, if it has one."""

_MAX_SCHEMAS: Final = 1000


class SchemaDeserializer(Generic[T_co]):
    """A deserializer for values of schemas that a registry knows."""

    schema_type: ClassVar[str]
    """The registry's name of the format."""

    def __init__(
        self, registry: SchemaRegistry, schema: Schema | None, subject: str | None
    ) -> None:
        self._registry = registry
        self._schema = schema
        self._subject = require_subject(self, subject)
        self._part: str | None = None
        self._header = header_name("value")
        self._readers: dict[bytes, Read] = {}
        self._unknown: dict[bytes, SchemaRegistryError] = {}
        self._has_answered = False
        """Whether the registry has answered a call that every registry has."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._registry!r})"

    def bind(self, part: str) -> None:
        """Set whether this deserializes the "key" or the "value" of records.

        The consumer calls it. Raises ConfigError if the deserializer is used for the other part.
        """
        self._part = require_part(self, self._part, part)
        self._header = header_name(part)

    def is_prepared(self, data: bytes | None, headers: Headers = ()) -> bool:
        """Return whether a key or value can be deserialized without `prepare`.

        This includes bytes that have no id of a schema, of which no registry knows more.
        """
        if data is None:
            return True
        key = data[:PREFIX_SIZE] if not headers else self._find_key(data, headers)[0]
        return key in self._readers or decode_key(key) is None

    async def prepare(self, topic: str, items: Iterable[tuple[bytes | None, Headers]]) -> None:
        """Find the schemas with which keys or values were written.

        The consumer calls it for the records that it is about to deliver. An id that the registry
        does not know, a GUID if the registry has no GUIDs, and a schema that cannot be used are no
        errors here: `deserialize` raises them, for the records that have the id. Raises
        SchemaRegistryUnavailableError if the registry cannot be reached, and SchemaRegistryError if
        it refuses the request. If it fails or is cancelled, the schemas found before are known.
        """
        needed: set[bytes] = set()
        for data, headers in items:
            if data is not None:
                needed.add(self._find_key(data, headers)[0])
        for key in needed:
            identifier = decode_key(key)
            if identifier is not None and key not in self._readers:
                await self._find_reader(topic, key, identifier)
        for known in (self._readers, self._unknown):
            if len(known) > _MAX_SCHEMAS:
                surplus = [key for key in known if key not in needed]
                for key in surplus[: len(known) - _MAX_SCHEMAS]:
                    known.pop(key, None)

    @overload
    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> T_co: ...

    @overload
    def deserialize(self, topic: str, data: None, headers: Headers = ()) -> None: ...

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = ()) -> T_co | None:
        """Return the value of the bytes, or None for None.

        Raises SerializationError if the bytes have no id, or one that is unknown or not prepared,
        and if they do not match the schema.
        """
        if data is None:
            return None
        if headers:
            key, header = self._find_key(data, headers)
        else:
            key, header = data[:PREFIX_SIZE], None
        read = self._readers.get(key)
        if read is None:
            self._refuse_unprepared(topic, data, headers)
        return read(data, header)  # type: ignore[no-any-return]

    def _find_key(self, data: bytes, headers: Headers) -> tuple[bytes, bytes | None]:
        """Return the bytes that identify the schema, and the header in which they stand.

        If there are several headers, the last one counts.
        """
        header = None
        for name, content in headers:
            if name == self._header and content:
                header = content
        return (data[:PREFIX_SIZE] if header is None else key_of_header(header)), header

    async def _find_reader(self, topic: str, key: bytes, identifier: int | UUID) -> None:
        try:
            if isinstance(identifier, int):
                registered = await self._registry.by_id(identifier, self._subject)
            else:
                registered = await self._registry.by_guid(identifier)
        except SchemaNotFoundError as error:
            self._unknown[key] = error
            return
        except SchemaRegistryError as error:
            # A registry without GUIDs does not know the call, and never will have the schema. But
            # so answers what is no registry at all, of which no record is to blame.
            if isinstance(identifier, int) or error.status != 404:
                raise
            if not self._has_answered:
                await self._registry.types()
                self._has_answered = True
            self._unknown[key] = error
            return
        self._unknown.pop(key, None)
        self._readers[key] = await self._prepare_reader(topic, identifier, registered)

    async def _prepare_reader(
        self, topic: str, identifier: int | UUID, registered: RegisteredSchema
    ) -> Read:
        where = f"schema {_named(identifier)} of {name_registry(self._registry)}"

        def refuse(error: BaseException) -> SerializationError:
            return SerializationError(
                f"The {self._part or 'value'} does not match {where}: {describe_error(error)} "
                "Check that the schema is the one with which it was written."
            )

        try:
            problem = rules_problem(registered.schema.rule_set, READING)
            if problem:
                raise SerializationError(f"{where.capitalize()} cannot be used. {problem}")
            require_type(self, registered.schema.type, where)
            return await self._make_reader(registered.schema, where, refuse)
        except (SerializationError, SchemaNotFoundError) as error:
            return _refusing(str(error), error)

    async def _resolve(self, schema: Schema) -> Mapping[str, Schema]:
        """Return the schemas to which a schema refers, by the names of the references."""
        return await self._registry.resolve(schema, self._subject)

    async def _make_reader(self, schema: Schema, where: str, refuse: Refuse) -> Read:
        """Return a function that reads what was written with a schema.

        Raises SerializationError if the schema cannot be used.
        """
        raise NotImplementedError

    def _refuse_unprepared(self, topic: str, data: bytes, headers: Headers) -> NoReturn:
        """Raise the error for bytes for which there is no function."""
        key, header = self._find_key(data, headers)
        identifier = decode_key(key)
        what = f"The {self._part or 'value'} of a record of topic {topic}"
        if identifier is None:
            start = f"its header {self._header}" if header else "it"
            raise SerializationError(
                f"{what} has no schema id: {start} starts with {(header or data)[:8]!r}. It was "
                "not written with a schema registry. Use a deserializer for its own format."
            )
        where = f"schema {_named(identifier)}"
        unknown = self._unknown.get(key)
        if unknown is not None:
            lacks = f"which {unknown.url} does not have"
            if not isinstance(unknown, SchemaNotFoundError):
                lacks = f"and the registry has no GUIDs ({unknown.url})"
            raise SerializationError(
                f"{what} was written with {where}, {lacks}. Check that the registry is the one of "
                "the producer."
            ) from unknown
        raise SerializationError(
            f"{what} was written with {where}, for which the deserializer is not prepared. Await "
            "its prepare() first, as a Consumer does."
        )


def require_subject(user: object, subject: str | None) -> str | None:
    """Return the subject that a deserializer was given. Raises ConfigError if it cannot be one."""
    if subject is None or (isinstance(subject, str) and subject):
        return subject
    raise ConfigError(
        f"{type(user).__name__}: subject must be the name of a subject, such as "
        '":.context:orders-value", or None.'
    )


def _named(identifier: int | UUID) -> str:
    return f"id {identifier}" if isinstance(identifier, int) else f"GUID {identifier}"


def _refusing(text: str, cause: BaseException) -> Read:
    """Return a function that raises an error for each record, with a traceback of its own."""

    def read(data: bytes, header: bytes | None) -> NoReturn:
        raise SerializationError(text) from cause

    return read
