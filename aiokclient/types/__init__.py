"""The types of values that applications pass to the library and get from it.

Timestamps are integer milliseconds since the Unix epoch. Header values are bytes or None. Keys and
values are bytes unless a serializer or deserializer is given. A value of None is a tombstone.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, IntEnum
from reprlib import Repr
from typing import (
    Any,
    Final,
    ForwardRef,
    Generic,
    Protocol,
    TypeAlias,
    TypeVar,
    overload,
    runtime_checkable,
)

from aiokclient._native import twin
from aiokclient.types.named_tuple import NamedTuple

C = TypeVar("C", bound=type)
T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
W = TypeVar("W")
T_contra = TypeVar("T_contra", contravariant=True)
T_co = TypeVar("T_co", covariant=True)


def public_in(package: str) -> Callable[[C], C]:
    """Return a decorator for a class that a package exports. It sets the class's `__module__`.

    A pickle names the module of a class, so it can be loaded after the class has moved to another
    module of the package. Annotations still mean the names of the module that defines the class:
    `typing.get_type_hints`, and libraries such as pydantic, would look for them in the package.
    """

    def publish(owner: C) -> C:
        annotations = owner.__annotations__
        for name, annotation in annotations.items():
            if isinstance(annotation, ForwardRef):
                annotation = annotation.__forward_arg__
            if isinstance(annotation, str):
                annotations[name] = ForwardRef(
                    annotation, is_argument=False, module=owner.__module__, is_class=True
                )
        # Those of a class of `frozen` are made of its annotations when they are first used.
        described = vars(owner).get("__dataclass_fields__")
        if isinstance(described, dict):
            for field in described.values():
                field.type = annotations.get(field.name, field.type)
        owner.__module__ = package
        return owner

    return publish


Headers: TypeAlias = Sequence[tuple[str, bytes | None]]
"""Header names with their values, in order. A name may occur more than once."""


class Serialized(NamedTuple):
    """A serialized key or value with headers, which a serializer may return in place of bytes.

    The headers replace those of the same name in the record. `data` is None only for None.
    """

    data: bytes | None
    headers: Sequence[tuple[str, bytes]] = ()


@runtime_checkable
class Serializer(Protocol[T_contra]):
    """An object that serializes keys or values.

    It may have further methods:

    - `async prepare(topic)` gets what the records of a topic need, for example a schema.
      `Producer.prepare` awaits it, and `send_all` does so for each topic of its records.
    - `bind(part)` is called once by each producer, when it is created, with "key" or "value": the
      part of the records that this object serializes. One object may serve several producers, and
      both parts, for which it is called twice. If it serializes them differently, it must raise
      ConfigError when it is told the other part.
    """

    def serialize(self, topic: str, value: T_contra, headers: Headers) -> bytes | Serialized:
        """Return the bytes of a key or value that is not None, or `Serialized` to set headers too.

        `headers` are those of the call of `send`, without those of the other serializer. If both
        serializers set a header, the value's replaces the key's.
        """
        ...


class LambdaSerializer(Protocol[T_contra]):
    """A function of a key or value that returns bytes, such as a lambda. Only for type checkers."""

    @overload
    def __call__(self, value: T_contra, /) -> bytes: ...

    @overload
    def __call__(self, value: Any, /) -> bytes: ...


# A type checker cannot infer the type of a lambda's parameter from `Callable[[T], bytes]`: it
# takes the default of T, bytes, and refuses `send("orders", {"item": "tea"})`. It must infer Any
# from a lambda, and the annotated type from a function. Mypy does so if a union has two callables,
# so that it expects neither of them. Pyright does so if a member of the union also takes Any, which
# must mention T, as mypy infers T only from unions whose members agree. Overloads of `__init__`
# leave T unknown in pyright, and in mypy the error for a wrong option would list all others.
SerializerFunction: TypeAlias = (
    Callable[[T], bytes] | Callable[[T | Any], bytes] | LambdaSerializer[T]
)
"""A function of a key or value that returns bytes."""


@runtime_checkable
class Deserializer(Protocol[T_co]):
    """An object that deserializes keys or values. It also gets the topic and the headers.

    It may have further methods:

    - `is_prepared(data, headers)` returns whether `deserialize` can be called now. It is called for
      each record, so it must be fast, and must not block. Then `prepare` must exist, too.
    - `async prepare(topic, items)` gets what is missing, for example by a request to a schema
      registry. `items` are pairs of data and headers. It is awaited before records are delivered
      whose answer of `is_prepared` was no. Other records are not delayed, and the timeouts and
      cancellations of requests for records do not concern it.
    - `bind(part)` is called once by each consumer, when it is created, with "key" or "value", as
      that of a serializer.

    If `prepare` raises a retriable KafkaError, or OSError such as ConnectionError, or takes longer
    than `default_api_timeout_ms`, it is called again after a backoff, and the consumer is DEGRADED.
    After `default_api_timeout_ms`, a request for records raises SchemaRegistryUnavailableError, and
    the record counts as not delivered. SchemaNotFoundError, SerializationError, and exceptions that
    are no KafkaError are the fault of the record, and become the cause of its RecordError. If there
    were several items, `prepare` is called again with the first one alone before that. Any other
    KafkaError is raised by a request for records, and the record counts as not delivered. After
    `prepare` has returned, `deserialize` is called for the first item, whatever `is_prepared` says.
    """

    def deserialize(self, topic: str, data: bytes, headers: Headers) -> T_co:
        """Return the key or value. This is not called for None."""
        ...


def bind_to_part(converter: Any, part: str) -> None:
    """Tell a serializer or deserializer its part, "key" or "value", if it has `bind`."""
    bind = getattr(converter, "bind", None)
    if callable(bind):
        bind(part)


_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_topic_name(name: str) -> bool:
    """Return whether Kafka allows this name: up to 249 letters, digits, `.`, `_` and `-`."""
    return _TOPIC_NAME.fullmatch(name) is not None and name not in (".", "..")


MAX_TEXT_BYTES: Final = 0x7FFF
"""The largest size of a text in a request, in UTF-8. Kafka's lengths of texts have 16 bits."""


def text_problem(text: str) -> str:
    """Return why a text cannot be sent to a broker, as a sentence, or "" if it can be sent."""
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        return "It contains half of a surrogate pair, as os.fsdecode() returns it for other bytes."
    if size > MAX_TEXT_BYTES:
        return f"It has {size:,} bytes in UTF-8. Kafka allows {MAX_TEXT_BYTES:,}."
    return ""


_SHORT: Final = Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 100


def shortened(value: object) -> str:
    """Return the repr of a value for an error message, of about 100 characters at most."""
    return _SHORT.repr(value)


def is_integer(value: Any) -> bool:
    """Return whether a value is an int and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def to_integer(value: Any) -> int | None:
    """Return an integer of any type, such as one of numpy, as an int, or None for anything else.

    A bool is no integer here. Those of numpy have __index__, which older versions deprecate.
    """
    if type(value).__name__ in ("bool", "bool_") or not hasattr(value, "__index__"):
        return None
    return operator.index(value)


def is_offset(value: Any) -> bool:
    """Return whether a value is an integer in the range of offsets and timestamps."""
    return is_integer(value) and 0 <= value < 2**63


def seconds(given: Any, name: str = "timeout") -> float:
    """Return the caller's timeout in seconds. Raises TypeError if it is NaN or not a number."""
    if isinstance(given, int | float) and not isinstance(given, bool) and given == given:
        return given
    raise TypeError(
        f"{name}={given!r} is not a number of seconds. Use math.inf to wait without a limit."
    )


class TopicPartition(NamedTuple):
    """A partition of a topic. As text, it is `orders-3`, for example, as in Kafka's own tools."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetAndMetadata(NamedTuple):
    """A position to commit: the offset of the next record to read, and a text stored with it.

    `leader_epoch` is the leader epoch of the last record that was read, or None. A consumer that
    continues at this position uses it to detect a truncated log (KIP-320).
    """

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


class OffsetAndTimestamp(NamedTuple):
    """The first offset at or after a time, and the timestamp of its record in milliseconds."""

    offset: int
    timestamp: int
    leader_epoch: int | None = None


class GroupMetadata(NamedTuple):
    """The identity of a member of a group, which is part of its commits (KIP-447).

    `generation_id` is the generation, or with KIP-848 the member epoch. While the consumer is not a
    member, `generation_id` is -1 and `member_id` is empty.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


@twin("ground")
def untracked_tuple(kind: type[T]) -> type[T]:
    """Return a class that behaves like the given named tuple class.

    If the native modules are in use, the garbage collector does not track its instances.
    """
    return kind


class ProducerRecord(NamedTuple):
    """A record to send.

    If `partition` is None, the partitioner chooses one. If `timestamp` is None, it is the time of
    the send.
    """

    topic: str
    value: Any = None
    key: Any = None
    partition: int | None = None
    timestamp: int | None = None
    headers: Headers = ()


class AssignorLike(Protocol):
    """The interface of `aiokclient.Assignor`, without the types of its arguments."""

    name: str
    overlapping: bool
    cooperative: bool
    version: int

    def user_data(self, topics: Sequence[str]) -> bytes | None: ...

    def assign(self, cluster: Any, members: Any) -> Mapping[str, Any]: ...

    def on_assignment(self, assignment: Any, metadata: GroupMetadata) -> None: ...


class TimestampType(IntEnum):
    """The source of a record's timestamp: its producer, or the broker that appended it."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


# To call the enumeration for a value takes five times as long.
_TIMESTAMP_TYPES: Final = tuple(TimestampType)


class _RecordPosition(NamedTuple):
    """The fields of `RecordMetadata`."""

    topic: str
    partition: int
    offset: int
    timestamp: int


@untracked_tuple
class RecordMetadata(_RecordPosition):
    """The position of an acknowledged record. `offset` is -1 with `acks=0`.

    It is a tuple of the fields `topic`, `partition`, `offset`, and `timestamp`.
    """

    _answer: int = 0
    """Two values of the produce response: `log_start_offset + 1` in the upper bits, and in the
    lowest one whether `timestamp` is the broker's. It is no item of the tuple. For the library's
    own use."""

    @property
    def timestamp_type(self) -> TimestampType:
        """The source of `timestamp`: the producer, or the broker (LogAppendTime)."""
        return _TIMESTAMP_TYPES[self._answer & 1]

    @property
    def log_start_offset(self) -> int:
        """The first offset of the log when the record was written, or -1 if it is not known."""
        return (self._answer >> 1) - 1

    def __getstate__(self) -> object:
        """Return what a copy must have besides the items."""
        return None, {"_answer": self._answer}


RECORD_FIELDS: Final = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_type",
    "key",
    "value",
    "headers",
    "leader_epoch",
)
"""The names of a record's fields, in the order of its constructor's arguments."""


def size_of(part: object) -> int:
    """Return the size of bytes or of a view of them, and -1 for None and any other object."""
    if isinstance(part, memoryview):
        return part.nbytes
    return len(part) if isinstance(part, bytes | bytearray) else -1


# The native class accepts only 64-bit integers as offset and timestamp. The garbage collector does
# not track the native records that a consumer creates from bytes. If the application later stores
# an object in such a record and so creates a reference cycle, the cycle is never collected. All
# other records are tracked.
@twin("ground")
class ConsumerRecord(Generic[K, V]):
    """A record that a consumer has read."""

    __slots__ = (
        "_sizes",
        "headers",
        "key",
        "leader_epoch",
        "offset",
        "partition",
        "timestamp",
        "timestamp_type",
        "topic",
        "value",
    )
    _sizes: tuple[int, int]

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp: int,
        timestamp_type: TimestampType,
        key: K | None,
        value: V | None,
        headers: Headers = (),
        leader_epoch: int | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp = timestamp
        self.timestamp_type = timestamp_type
        self.key = key
        self.value = value
        self.headers = headers
        self.leader_epoch = leader_epoch

    @property
    def serialized_key_size(self) -> int:
        """The size of the key in the log, in bytes; -1 if it is null.

        Of a record that the program has created, it is -1 unless the key is bytes.
        """
        return size_of(self.key) if (sizes := self._found_sizes()) is None else sizes[0]

    @property
    def serialized_value_size(self) -> int:
        """The size of the value in the log, in bytes; -1 if it is null.

        Of a record that the program has created, it is -1 unless the value is bytes.
        """
        return size_of(self.value) if (sizes := self._found_sizes()) is None else sizes[1]

    def _found_sizes(self) -> tuple[int, int] | None:
        return getattr(self, "_sizes", None)

    def _note_sizes(self, key: Any, value: Any) -> None:
        """Keep the sizes of the serialized key and value."""
        self._sizes = size_of(key), size_of(value)

    def _fields(self) -> tuple[object, ...]:
        return (
            self.topic,
            self.partition,
            self.offset,
            self.timestamp,
            self.timestamp_type,
            self.key,
            self.value,
            tuple(self.headers),
            self.leader_epoch,
        )

    def _asdict(self) -> dict[str, Any]:
        """Return the fields by name, in the order of the constructor's arguments."""
        return dict(zip(RECORD_FIELDS, self._fields(), strict=True))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConsumerRecord):
            return NotImplemented
        return self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash((self.topic, self.partition, self.offset))

    def __repr__(self) -> str:
        return (
            f"ConsumerRecord(topic={self.topic!r}, partition={self.partition}, "
            f"offset={self.offset}, timestamp={self.timestamp}, "
            f"timestamp_type={self.timestamp_type!r}, key={self.key!r}, value={self.value!r}, "
            f"headers={self.headers!r}, leader_epoch={self.leader_epoch})"
        )


class Skip(Enum):
    """The type of `SKIP`."""

    SKIP = "SKIP"

    def __repr__(self) -> str:
        return "SKIP"


SKIP: Final = Skip.SKIP
"""The value that `on_record_error` returns to skip a record."""


class RecordChoice(Enum):
    """The type of `RELEASE` and `REJECT`."""

    RELEASE = "RELEASE"
    REJECT = "REJECT"

    def __repr__(self) -> str:
        return self.value


RELEASE: Final = RecordChoice.RELEASE
"""The value that `on_record_error` of a share consumer returns to have a record delivered again."""
REJECT: Final = RecordChoice.REJECT
"""The value that `on_record_error` of a share consumer returns to never see a record again.

It goes to the dead letter topic of the group, if there is one (KIP-1191).
"""


class State(Enum):
    """The state of a client. A DEGRADED client works only in part. A FAILED one never recovers."""

    NEW = "new"
    STARTING = "starting"
    RUNNING = "running"
    DEGRADED = "degraded"
    FAILED = "failed"
    CLOSED = "closed"


Handle: TypeAlias = (
    Callable[[ConsumerRecord[K, V]], object]
    | Callable[[ConsumerRecord[K, V], W], object]
    | Callable[[list[ConsumerRecord[K, V]]], object]
    | Callable[[list[ConsumerRecord[K, V]], W], object]
)
"""A handler of a worker: a function or coroutine function of a record, or of a list of records with
`batch`. It may also take the worker.
"""
