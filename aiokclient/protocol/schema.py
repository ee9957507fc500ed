"""Messages as classes, each declared once for all versions and both directions.

    class TopicProduceData(Struct):
        name: str = string("0-12")
        topic_id: UUID = uuid("13+")
        partitions: list[PartitionProduceData] = array(PartitionProduceData)

    class ProduceRequest(Request["ProduceResponse"], key=0, versions="3-13", flexible="9+",
                         route=Route.LEADER):
        transactional_id: str | None = string(null="3+", default=None)
        topics: list[TopicProduceData] = array(TopicProduceData)

    class ProduceResponse(Response, request=ProduceRequest):
        ...

Names, versions, defaults and tags are Kafka's. A field without versions exists
in all versions of its struct, and ``null="0+"`` means that the field is nullable
in all versions in which it exists.

The classes have slots, ``==``, ``repr``, and a constructor that takes each field
as an optional keyword argument. An import only creates the classes. The
constructor is compiled when the first object is created, and the codec of a
version when it is first used.
"""

from __future__ import annotations

from enum import Enum
from struct import Struct as Layout
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, dataclass_transform

from aiokclient.errors import ProtocolError, UnsupportedVersionError
from aiokclient.memory import structs_are
from aiokclient.protocol import codec
from aiokclient.protocol.api import ApiKey
from aiokclient.protocol.fields import (
    NONE,
    Field,
    array,
    boolean,
    bytes_,
    float64,
    int8,
    int16,
    int32,
    int64,
    parse_versions,
    records,
    string,
    struct,
    uint16,
    uint32,
    uuid,
)

if TYPE_CHECKING:
    from aiokclient.protocol.fields import Buffer, Records

__all__ = [
    "Field",
    "Message",
    "Records",
    "Request",
    "Response",
    "Route",
    "Struct",
    "array",
    "boolean",
    "bytes_",
    "float64",
    "int16",
    "int32",
    "int64",
    "int8",
    "records",
    "string",
    "struct",
    "uint16",
    "uint32",
    "uuid",
]

LENGTH = Layout(">i")
"""The length that each frame begins with. It counts the bytes after it."""
_SHOWN_BYTES = 32
_MISSING: Any = object()


class Route(Enum):
    """The kind of broker to which a request is sent."""

    ANY = "any broker"
    LEADER = "the leader of its partitions"
    CONTROLLER = "the controller"
    GROUP_COORDINATOR = "the coordinator of its group"
    TRANSACTION_COORDINATOR = "the coordinator of its transactional id"
    BROKER = "one broker that the sender has in mind"


class _Tagged:
    """A base class that keeps the tagged fields that a message does not declare."""

    __slots__ = ("_tags",)

    _tags: dict[int, bytes] | None

    @property
    def unknown_tags(self) -> dict[int, bytes]:
        """Unknown tagged fields by tag, which are kept when the message is encoded."""
        if self._tags is None:
            self._tags = {}
        return self._tags

    @unknown_tags.setter
    def unknown_tags(self, tags: dict[int, bytes]) -> None:
        self._tags = tags


@dataclass_transform(kw_only_default=True)
class _StructMeta(type):
    """A metaclass that turns the fields of a class body into slots."""

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> _StructMeta:
        fields = []
        for key, value in list(namespace.items()):
            if type(value) is Field:
                value.name = key
                fields.append(value)
                del namespace[key]
        namespace["_fields"] = tuple(fields)
        namespace.setdefault("__slots__", tuple([field.name for field in fields]))
        return super().__new__(mcs, name, bases, namespace, **options)

    def __init__(cls, *args: Any, **options: Any) -> None:
        super().__init__(*args)


class Struct(_Tagged, metaclass=_StructMeta):
    """A group of fields in a message, or a message."""

    _fields: ClassVar[tuple[Field, ...]]

    def __init__(self, **values: Any) -> None:
        _compile_constructor(type(self))
        self.__init__(**values)  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return (self._tags or None) == (other._tags or None) and all(
            getattr(self, field.name) == getattr(other, field.name) for field in self._fields
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = [
            f"{field.name}={_show(field, getattr(self, field.name))}" for field in self._fields
        ]
        if self._tags:
            # Unknown tagged fields may be secret.
            sizes = {tag: f"<{len(value)} bytes>" for tag, value in self._tags.items()}
            shown.append(f"unknown_tags={sizes}")
        return f"{type(self).__name__}({', '.join(shown)})"


def _show(field: Field, value: Any) -> str:
    if field.secret and value:
        return "<hidden>"
    if isinstance(value, (bytes, bytearray, memoryview)):
        if field.kind == "records" or len(value) > _SHOWN_BYTES:
            return f"<{len(value)} bytes>"
    elif not field.shows and not _is_shape(field, value):
        # A value of a wrong type cannot hide its own secrets.
        return "<hidden>" if value else repr(value)
    return repr(value)


def _is_shape(field: Field, value: Any) -> bool:
    """Return whether a value has only structs, which hide their own secrets."""
    if field.kind == "array":
        return isinstance(value, list) and all(isinstance(item, Struct) for item in value)
    return isinstance(value, Struct)


def _compile_constructor(cls: type[Struct]) -> None:
    """Compile an ``__init__`` for a class, with a parameter and a default for each field."""
    scope: dict[str, Any] = {"_MISSING": _MISSING}
    parameters, lines = [], []
    for field in cls._fields:
        default = field.new_default()
        value = field.name
        if isinstance(default, (list, Struct)):
            made = "[]" if isinstance(default, list) else f"_{field.name}_()"
            scope[f"_{field.name}_"] = field.element
            value = f"{made} if {field.name} is _MISSING else {field.name}"
            default = _MISSING
        scope[f"_{field.name}"] = default
        parameters.append(f"{field.name}=_{field.name}")
        lines.append(f"    self.{field.name} = {value}\n")
    star = "*, " if parameters else ""
    source = f"def __init__(self, {star}{', '.join(parameters)}):\n{''.join(lines)}"
    exec(f"{source}    self._tags = None\n", scope)
    function = scope["__init__"]
    function.__qualname__ = f"{cls.__qualname__}.__init__"
    cls.__init__ = function  # type: ignore[method-assign]


structs_are(Struct)


class Message(Struct):
    """The base class of requests and responses.

    min_version, max_version: the first and last version that the client uses
    max_known_version: the last version that can be encoded; above max_version
        if Kafka marks the latest version as unstable
    flexible_from: the first version with compact lengths and tagged fields, or None

    Small messages are decoded from bytes, which is fastest. A message that has
    records, or that is ``in_front`` of another one in a frame, is decoded from a
    view, so that a large frame is never copied.
    """

    min_version: ClassVar[int]
    max_version: ClassVar[int]
    max_known_version: ClassVar[int]
    flexible_from: ClassVar[int | None]
    _decoders: ClassVar[dict[int, codec.Decoder]]
    _encoders: ClassVar[dict[int, codec.Encoder]]
    _reads_views: ClassVar[bool | None]

    def __init_subclass__(
        cls,
        *,
        versions: str = "",
        flexible: str = "",
        unstable: bool = False,
        in_front: bool = False,
        **options: Any,
    ) -> None:
        super().__init_subclass__(**options)
        if versions:
            cls.min_version, cls.max_known_version = parse_versions(versions)
            cls.max_version = cls.max_known_version - unstable
            cls.flexible_from = None if flexible == NONE else parse_versions(flexible)[0]
        cls._decoders = {}
        cls._encoders = {}
        cls._reads_views = True if in_front else None

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        """Return whether a version has compact lengths and tagged fields (KIP-482)."""
        return cls.flexible_from is not None and version >= cls.flexible_from

    def encode(self, version: int) -> list[Buffer]:
        """Return the encoded message as segments. Records are separate segments.

        Raises UnsupportedVersionError if the message does not have the version,
        or if the version has no field for a value that is set. Raises
        ProtocolError for a value that does not fit its field.
        """
        segments: list[Buffer] = []
        tail = self.encode_into(version, bytearray(), segments)
        if tail or not segments:
            segments.append(tail)
        return segments

    def encode_into(self, version: int, out: bytearray, segments: list[Buffer]) -> bytearray:
        """Append the encoded message to ``out``. Return the buffer for further bytes.

        At a field of records, ``out`` and the records are appended to
        ``segments``, and a new buffer begins.
        """
        encoder = self._encoders.get(version)
        if encoder is None:
            self._require_version(version)
            encoder = self._encoders[version] = codec.compile_encoder(type(self), version)
        return encoder(self, out, segments)

    def encode_frame(self, version: int, head: bytes) -> list[Buffer]:
        """Return the segments of a frame. `head` begins with room for the frame's length."""
        segments: list[Buffer] = []
        start = bytearray(head)
        out = self.encode_into(version, start, segments)
        if out or not segments:
            segments.append(out)
        LENGTH.pack_into(start, 0, sum(map(len, segments)) - LENGTH.size)
        return segments

    @classmethod
    def decode(cls, data: Buffer, version: int) -> Self:
        """Decode a message that fills ``data``. Its records are views into ``data``.

        Raises ProtocolError if ``data`` is malformed or longer than the message.
        """
        message, position = cls.decode_from(data, 0, version)
        if position != len(data):
            raise ProtocolError(
                f"{cls.__name__} version {version} is followed by {len(data) - position} more "
                "bytes."
            )
        return message

    @classmethod
    def decode_from(cls, data: Buffer, position: int, version: int) -> tuple[Self, int]:
        """Return the message that begins at a position, and the position after it."""
        decoder = cls._decoders.get(version)
        if decoder is None:
            cls._require_version(version)
            cls.has_records()
            decoder = cls._decoders[version] = codec.compile_decoder(cls, version)
        if cls._reads_views:
            return decoder(memoryview(data), position)
        return decoder(data if type(data) is bytes else bytes(data), position)

    @classmethod
    def has_records(cls) -> bool:
        """Return whether the message may have records, which are views of the encoded bytes."""
        if cls._reads_views is None:
            cls._reads_views = codec.holds_records(cls)
        return cls._reads_views

    @classmethod
    def _require_version(cls, version: int) -> None:
        if not cls.min_version <= version <= cls.max_known_version:
            raise UnsupportedVersionError(
                f"{cls.__name__} has versions {cls.min_version} to {cls.max_known_version},"
                f" but not {version}."
            )


class Response(Message):
    """The response of a broker, declared with ``request=``."""

    api_key: ClassVar[ApiKey]
    request_class: ClassVar[type[Request[Any]]]

    def __init_subclass__(
        cls, *, request: type[Request[Any]] | None = None, **options: Any
    ) -> None:
        super().__init_subclass__(**options)
        if request is None:
            return
        for name in ("api_key", "min_version", "max_version", "max_known_version", "flexible_from"):
            setattr(cls, name, getattr(request, name))
        cls.request_class = request
        request.response_class = cls

    @classmethod
    def header_version(cls, version: int) -> int:
        """Return the version of the response header before this message."""
        flexible_from = cls.flexible_from  # The same as `is_flexible`, without another call.
        return 1 if flexible_from is not None and version >= flexible_from else 0


R = TypeVar("R", bound=Response, covariant=True)


class Request(Message, Generic[R]):
    """A request to a broker, declared with the class of its response."""

    api_key: ClassVar[ApiKey]
    route: ClassVar[Route]
    response_class: ClassVar[type[Response]]

    def __init_subclass__(
        cls, *, key: int | None = None, route: Route = Route.ANY, **options: Any
    ) -> None:
        super().__init_subclass__(**options)
        if key is not None:
            cls.api_key = ApiKey(key)
            cls.route = route

    @classmethod
    def header_version(cls, version: int) -> int:
        """Return the version of the request header before this message."""
        flexible_from = cls.flexible_from
        return 2 if flexible_from is not None and version >= flexible_from else 1

    def read_response(self, frame: Buffer, position: int, version: int) -> tuple[Any, int]:
        """Return the response that begins at a position, and the position after it."""
        return self.response_class.decode_from(frame, position, version)
