"""Dead letters and retry records: the records that stand for one whose handler failed.

Both have the key, the value, the timestamp, and the headers of the failed record as bytes, whether
they could be deserialized or not. After these headers come others that the worker adds, whose names
begin with `aiokclient.`, and whose values are UTF-8:

    aiokclient.origin.topic, .partition, .offset, .timestamp, .group
                                 where the record was read first, and by which group. Retries,
                                 replays, and later dead letters leave them as they are.
    aiokclient.error.type, .message, .traceback
                                 the error of the last run. Retry records have no traceback.
    aiokclient.attempts          the number of runs in all, over all retry topics
    aiokclient.failed_at         the time of the last failure
    aiokclient.due               the time of the next run; only of retry records
    aiokclient.replays           how often the record was put back from a topic of dead letters
    aiokclient.dropped           the parts that a dead letter lacks because it was too large

Times are in milliseconds since the epoch, by the clock of the worker. Numbers are decimal, as in
the headers of Kafka itself, so that any tool shows them. Spring writes binary numbers; what it
reads is added if `DeadLetter(headers="spring")` asks for it.
"""

from __future__ import annotations

import traceback
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from aiokclient.errors import (
    InvalidTimestampError,
    KafkaError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
)
from aiokclient.errors.local import ArgumentTypeError, ArgumentValueError
from aiokclient.producer.producer import require_topic
from aiokclient.types import (
    ConsumerRecord,
    Headers,
    ProducerRecord,
    TimestampType,
    is_integer,
    public_in,
)
from aiokclient.types.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokclient.worker.retry import Failure

RawRecord = ConsumerRecord[bytes | None, bytes | None]

PREFIX: Final = "aiokclient."
ORIGIN_TOPIC: Final = "aiokclient.origin.topic"
ORIGIN_PARTITION: Final = "aiokclient.origin.partition"
ORIGIN_OFFSET: Final = "aiokclient.origin.offset"
ORIGIN_TIMESTAMP: Final = "aiokclient.origin.timestamp"
ORIGIN_GROUP: Final = "aiokclient.origin.group"
ERROR_TYPE: Final = "aiokclient.error.type"
ERROR_MESSAGE: Final = "aiokclient.error.message"
ERROR_TRACEBACK: Final = "aiokclient.error.traceback"
ATTEMPTS: Final = "aiokclient.attempts"
FAILED_AT: Final = "aiokclient.failed_at"
DUE: Final = "aiokclient.due"
REPLAYS: Final = "aiokclient.replays"
DROPPED: Final = "aiokclient.dropped"

ORIGIN: Final = (ORIGIN_TOPIC, ORIGIN_PARTITION, ORIGIN_OFFSET, ORIGIN_TIMESTAMP, ORIGIN_GROUP)
OF_FAILURE: Final = frozenset(
    (ERROR_TYPE, ERROR_MESSAGE, ERROR_TRACEBACK, ATTEMPTS, FAILED_AT, DUE, DROPPED)
)
"""The headers that each failure writes anew, and that a replay takes away."""

SPRING: Final = "kafka_dlt-"
SPRING_ORIGIN: Final = "kafka_dlt-original-"
SPRING_RETRY: Final = "retry_topic-"

MESSAGE_BYTES: Final = 1024
"""The size of an error's message in a header, at most."""
NOTE_BYTES: Final = 48
"""The size of the note about the frames that a traceback lacks, at most."""
NUMBER_BYTES: Final = 20
"""The size of a number in a header, at most. A longer one is no number of these headers."""
ELLIPSIS: Final = "\u2026".encode()
LARGEST_INT32: Final = (1 << 31) - 1
LARGEST_INT64: Final = (1 << 63) - 1


@public_in("aiokclient.worker")
@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The topic for records whose handler has failed for good, and the form of its records.

    `partition="same"` writes each record to the partition with the number that it was read from
    first, modulo the number of partitions of the topic. With None, the partitioner chooses by the
    key. `traceback_bytes` limits the traceback in the headers, of which the newest frames are kept;
    0 leaves it out. `headers="spring"` adds the headers of Spring Kafka in their binary form.

    The topic must exist when the worker starts. With `create=True`, the worker creates it, with as
    many partitions and replicas as the topic that it reads.

    A record that is too large for the topic lacks its traceback, and if that is not enough, its
    value. Its header `aiokclient.dropped` says so. Raises ArgumentTypeError or ArgumentValueError
    for a wrong argument, and InvalidTopicError for a topic name that Kafka does not permit.
    """

    topic: str
    partition: Literal["same"] | None = "same"
    traceback_bytes: int = 4096
    headers: Literal["aiokclient", "spring"] = "aiokclient"
    create: bool = False

    def __post_init__(self) -> None:
        require_topic(self.topic)
        if self.partition not in ("same", None):
            raise ArgumentValueError(
                f'partition={self.partition!r} is neither "same" nor None. With None, the '
                "partitioner chooses."
            )
        if not is_integer(self.traceback_bytes):
            raise ArgumentTypeError(f"traceback_bytes={self.traceback_bytes!r} is not an int.")
        if self.traceback_bytes < 0:
            raise ArgumentValueError(
                f"traceback_bytes={self.traceback_bytes} is negative. 0 leaves tracebacks out."
            )
        if self.headers not in ("aiokclient", "spring"):
            raise ArgumentValueError(
                f'headers={self.headers!r} is neither "aiokclient" nor "spring".'
            )
        if not isinstance(self.create, bool):
            raise ArgumentTypeError(f"create={self.create!r} is not a bool.")


def as_dead_letter(given: Any) -> DeadLetter:
    """Return the topic for dead letters that an argument names. Raises ArgumentTypeError."""
    if isinstance(given, DeadLetter):
        return given
    if isinstance(given, str):
        return DeadLetter(given)
    raise ArgumentTypeError(
        f"{given!r} is no topic for dead letters. Pass its name, or a DeadLetter."
    )


@public_in("aiokclient.worker")
class DeadLetterInfo(typing.NamedTuple):
    """The contents of the headers of a dead letter, or of a record in a retry topic.

    `origin_topic` and the fields after it say where the record was read first. `attempts` counts
    runs, and `replays` how often the record was put back. Times are in milliseconds since the
    epoch. `dropped` names the parts that were left out because the record was too large:
    "traceback", "value". A field is None, 0, or empty if there is no such header.
    """

    origin_topic: str | None
    origin_partition: int | None
    origin_offset: int | None
    origin_timestamp: int | None
    origin_group: str | None
    error_type: str | None
    error_message: str | None
    traceback: str | None
    attempts: int
    failed_at: int | None
    replays: int
    dropped: tuple[str, ...]

    @classmethod
    def of(cls, record: ConsumerRecord[Any, Any]) -> DeadLetterInfo:
        """Return what the headers of a record say. Headers of Spring name the origin, too."""
        headers = _by_name(record.headers)
        origin = _find_origin(headers)
        return cls(
            origin_topic=origin and origin.topic,
            origin_partition=origin and origin.partition,
            origin_offset=origin and origin.offset,
            origin_timestamp=origin and origin.timestamp,
            origin_group=origin and origin.group,
            error_type=_text(headers.get(ERROR_TYPE)),
            error_message=_text(headers.get(ERROR_MESSAGE)),
            traceback=_text(headers.get(ERROR_TRACEBACK)),
            attempts=_number(headers.get(ATTEMPTS)) or 0,
            failed_at=_number(headers.get(FAILED_AT)),
            replays=_number(headers.get(REPLAYS)) or 0,
            dropped=tuple(filter(None, (_text(headers.get(DROPPED)) or "").split(","))),
        )


class Origin(NamedTuple):
    """The place where a record was read first. The timestamp is None if the record had none."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    group: str | None

    def list_headers(self) -> list[tuple[str, bytes | None]]:
        """Return the headers that say so."""
        values = (self.topic, self.partition, self.offset, self.timestamp, self.group)
        return [
            (name, str(value).encode())
            for name, value in zip(ORIGIN, values, strict=True)
            if value is not None
        ]


def origin_of(record: ConsumerRecord[Any, Any], group_id: str | None = None) -> Origin:
    """Return where a record was read first: what its headers say, or where it was read now."""
    found = _find_origin(_by_name(record.headers))
    if found is not None:
        return found
    timestamp = record.timestamp if record.timestamp >= 0 else None
    return Origin(record.topic, record.partition, record.offset, timestamp, group_id)


def find_origin(record: ConsumerRecord[Any, Any]) -> Origin | None:
    """Return where the headers of a record say that it was read first, or None."""
    return _find_origin(_by_name(record.headers))


def attempts_of(record: ConsumerRecord[Any, Any]) -> int:
    """Return the number of runs that a record of a retry topic has had."""
    return _number(_by_name(record.headers).get(ATTEMPTS)) or 0


def due_ms_of(record: ConsumerRecord[Any, Any]) -> int | None:
    """Return when a record of a retry topic is due, in milliseconds since the epoch, or None."""
    return _number(_by_name(record.headers).get(DUE))


# -- writing


def dead_letter_of(
    record: RawRecord, failure: Failure, to: DeadLetter, partitions: int | None = None
) -> ProducerRecord:
    """Return the dead letter of a record with bytes as key and value.

    `failure.attempts` are the runs in all. `partitions` is the number of partitions of the topic;
    without it, the partition has the number of the origin.
    """
    origin = origin_of(record, failure.group_id)
    stripped = _spring_stripped(record.headers) if to.headers == "spring" else record.headers
    headers = [*_kept(stripped), *origin.list_headers(), *_error_headers(failure)]
    if shown := traceback_text(failure.error, to.traceback_bytes):
        headers.append((ERROR_TRACEBACK, shown))
    if to.headers == "spring":
        headers += _spring_headers(record, failure, origin, shown)
    partition = None
    if to.partition == "same":
        partition = origin.partition % partitions if partitions else origin.partition
    return ProducerRecord(
        to.topic, record.value, record.key, partition, _timestamp(record, origin), headers
    )


def retry_record(
    record: RawRecord,
    failure: Failure,
    topic: str,
    due_ms: int,
    partitions: int | None = None,
) -> ProducerRecord:
    """Return the record that runs again from a retry topic when it is due.

    Its partition has the number of the record's modulo `partitions`, so that the records of a key
    keep their order there.
    """
    origin = origin_of(record, failure.group_id)
    headers = [*_kept(record.headers), *origin.list_headers(), *_error_headers(failure)]
    headers.append((DUE, b"%d" % due_ms))
    partition = origin.partition % partitions if partitions else origin.partition
    return ProducerRecord(
        topic, record.value, record.key, partition, _timestamp(record, origin), headers
    )


def replayed_record(record: RawRecord, topic: str, partition: int | None) -> ProducerRecord:
    """Return the record that a replay puts back: the original one, with its origin."""
    origin = find_origin(record)
    headers = [each for each in _kept(record.headers) if _is_kept_by_replay(each[0])]
    timestamp: int | None = record.timestamp if record.timestamp >= 0 else None
    if origin is not None:
        headers += origin.list_headers()
        timestamp = _timestamp(record, origin)
    replays = _number(_by_name(record.headers).get(REPLAYS)) or 0
    headers.append((REPLAYS, b"%d" % (replays + 1)))
    return ProducerRecord(topic, record.value, record.key, partition, timestamp, headers)


def _is_kept_by_replay(name: str) -> bool:
    if name == REPLAYS or name.startswith(SPRING_RETRY):
        return False
    return name.startswith(SPRING_ORIGIN) or not name.startswith(SPRING)


def is_too_large(error: KafkaError) -> bool:
    """Return whether a record was refused because of its size."""
    return error.code in (RecordTooLargeError.code, RecordBatchTooLargeError.code)


def adapt_letter(letter: ProducerRecord, error: KafkaError) -> ProducerRecord | None:
    """Return what to write instead of a record that was refused, or None.

    A record that is too old for the topic is written without its time, which the headers have. A
    dead letter that is too large loses its traceback, and then its value.
    """
    if error.code == InvalidTimestampError.code and letter.timestamp is not None:
        return letter._replace(timestamp=None)
    is_retry = any(name == DUE for name, _ in letter.headers)
    return shrink_dead_letter(letter) if is_too_large(error) and not is_retry else None


def shrink_dead_letter(letter: ProducerRecord) -> ProducerRecord | None:
    """Return a dead letter without its traceback, or else without its value, or else None.

    Its header says what is missing.
    """
    names = [name for name, _ in letter.headers]
    tracebacks = [n for n in names if n == ERROR_TRACEBACK or n.endswith("-exception-stacktrace")]
    if tracebacks:
        kept = [each for each in letter.headers if each[0] not in tracebacks]
        return letter._replace(headers=[*kept, (DROPPED, b"traceback")])
    dropped = _text(_by_name(letter.headers).get(DROPPED)) or ""
    if letter.value is None:
        return None
    kept = [each for each in letter.headers if each[0] != DROPPED]
    said = ",".join(filter(None, (dropped, "value")))
    return letter._replace(value=None, headers=[*kept, (DROPPED, said.encode())])


def _kept(headers: Headers) -> Iterator[tuple[str, bytes | None]]:
    """Yield the headers that a failure does not write anew."""
    for name, value in headers:
        if name not in OF_FAILURE and name not in ORIGIN:
            yield name, value


def _timestamp(record: RawRecord, origin: Origin) -> int | None:
    """Return the timestamp of the original record. That of a retry topic may be the broker's."""
    if origin.timestamp is not None:
        return origin.timestamp
    return record.timestamp if record.timestamp >= 0 else None


def _error_headers(failure: Failure) -> list[tuple[str, bytes | None]]:
    return [
        (ERROR_TYPE, _encoded(type_name(failure.error))),
        (ERROR_MESSAGE, shortened_text(message_of(failure.error), MESSAGE_BYTES)),
        (ATTEMPTS, b"%d" % failure.attempts),
        (FAILED_AT, b"%d" % failure.failed_at_ms),
    ]


def type_name(error: BaseException) -> str:
    """Return the full name of an error's class, without the module of Python's own errors."""
    owner = type(error)
    if owner.__module__ == "builtins":
        return owner.__qualname__
    return f"{owner.__module__}.{owner.__qualname__}"


def message_of(error: BaseException) -> str:
    """Return the text of an error, whatever its class does."""
    try:
        return str(error)
    except Exception as failure:
        return f"(str() of this error raises {type_name(failure)})"


def traceback_text(error: BaseException, limit: int) -> bytes:
    """Return the traceback of an error, in at most `limit` bytes, of which it keeps the newest.

    The text of the error itself is at its end, and has at most `MESSAGE_BYTES`.
    """
    if not limit:
        return b""
    try:
        described = traceback.TracebackException.from_exception(error)
        _drop_columns(described)
        parts = list(described.format())
    except Exception:  # The class of the error, or of one of its causes, has no text.
        parts = ["Traceback (most recent call last):\n", *traceback.format_tb(error.__traceback__)]
        parts.append(f"{type_name(error)}: {message_of(error)}\n")
    last = shortened_text(parts.pop(), min(MESSAGE_BYTES, limit))
    contents = [_encoded(part) for part in parts]
    if sum(map(len, contents)) + len(last) <= limit:
        return b"".join([*contents, last])
    kept, room = [last], limit - len(last) - NOTE_BYTES
    while contents and len(contents[-1]) <= room:
        room -= len(contents[-1])
        kept.append(contents.pop())
    if room >= 0:
        kept.append(b"(%d earlier lines are left out)\n" % sum(c.count(b"\n") for c in contents))
    return b"".join(reversed(kept))


def _drop_columns(described: traceback.TracebackException) -> None:
    """Drop the columns of all frames: lines of carets take room, and a parser for each frame."""
    pending: list[traceback.TracebackException | None] = [described]
    while pending:
        each = pending.pop()
        if each is None:
            continue
        for frame in each.stack:
            frame.colno = None
        pending += [each.__cause__, each.__context__, *(each.exceptions or ())]


def shortened_text(text: str, limit: int) -> bytes:
    """Return the start of a text in UTF-8, in at most `limit` bytes, without half a character."""
    content = _encoded(text)
    if len(content) <= limit:
        return content
    mark = ELLIPSIS if limit > len(ELLIPSIS) else b""
    return content[: limit - len(mark)].decode(errors="ignore").encode() + mark


def _encoded(text: str) -> bytes:
    return text.encode(errors="backslashreplace")


# -- reading


def _by_name(headers: Headers) -> dict[str, bytes | None]:
    """Return the last value of each header."""
    return dict(headers)


def _text(value: bytes | None) -> str | None:
    return None if value is None else bytes(value).decode(errors="replace")


def _number(value: bytes | None, limit: int = LARGEST_INT64) -> int | None:
    """Return a decimal number from 0 to `limit`, or None for what another program has written."""
    if value is None or len(value) > NUMBER_BYTES:
        return None
    try:
        number = int(value)
    except ValueError:
        return None
    return number if 0 <= number <= limit else None


def _find_origin(headers: Mapping[str, bytes | None]) -> Origin | None:
    topic = _text(headers.get(ORIGIN_TOPIC))
    partition = _number(headers.get(ORIGIN_PARTITION), LARGEST_INT32)
    offset = _number(headers.get(ORIGIN_OFFSET))
    if topic and partition is not None and offset is not None:
        timestamp = _number(headers.get(ORIGIN_TIMESTAMP))
        return Origin(topic, partition, offset, timestamp, _text(headers.get(ORIGIN_GROUP)))
    topic = _text(headers.get(f"{SPRING_ORIGIN}topic"))
    partition = _binary(headers.get(f"{SPRING_ORIGIN}partition"), 4)
    offset = _binary(headers.get(f"{SPRING_ORIGIN}offset"), 8)
    if topic and partition is not None and offset is not None:
        timestamp = _binary(headers.get(f"{SPRING_ORIGIN}timestamp"), 8)
        group = _text(headers.get(f"{SPRING_ORIGIN}consumer-group"))
        return Origin(topic, partition, offset, timestamp, group)
    return None


def _binary(value: bytes | None, size: int) -> int | None:
    """Return a number as Java writes it, big endian, or None if it is negative."""
    if value is None or len(value) != size:
        return None
    number = int.from_bytes(value, "big", signed=True)
    return number if number >= 0 else None


# -- Spring


def _spring_stripped(headers: Headers) -> Sequence[tuple[str, bytes | None]]:
    return [each for each in headers if not each[0].startswith((SPRING, SPRING_RETRY))]


def _spring_headers(
    record: RawRecord, failure: Failure, origin: Origin, shown: bytes
) -> list[tuple[str, bytes | None]]:
    """Return the headers of Spring Kafka 4.0, whose numbers are binary."""
    timestamp = -1 if origin.timestamp is None else origin.timestamp
    is_of_broker = record.timestamp_type == TimestampType.LOG_APPEND_TIME
    named: dict[str, bytes | None] = {
        "original-topic": origin.topic.encode(),
        "original-partition": origin.partition.to_bytes(4, "big", signed=True),
        "original-offset": origin.offset.to_bytes(8, "big", signed=True),
        "original-timestamp": timestamp.to_bytes(8, "big", signed=True),
        "original-timestamp-type": b"LogAppendTime" if is_of_broker else b"CreateTime",
        "original-consumer-group": None if origin.group is None else origin.group.encode(),
        "exception-fqcn": _encoded(type_name(failure.error)),
        "exception-message": shortened_text(message_of(failure.error), MESSAGE_BYTES),
        "exception-stacktrace": shown or None,
    }
    if failure.error.__cause__ is not None:
        named["exception-cause-fqcn"] = _encoded(type_name(failure.error.__cause__))
    headers: list[tuple[str, bytes | None]] = [
        (f"{SPRING}{name}", value) for name, value in named.items() if value is not None
    ]
    headers.append((f"{SPRING_RETRY}attempts", failure.attempts.to_bytes(4, "big", signed=True)))
    if origin.timestamp is not None:
        headers.append((f"{SPRING_RETRY}original-timestamp", _big_integer(origin.timestamp)))
    return headers


def _big_integer(number: int) -> bytes:
    """Return the bytes of Java's BigInteger: the shortest two's complement, big endian."""
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)
