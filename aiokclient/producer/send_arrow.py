"""The implementation of `send_arrow`, which sends all rows of an Arrow record batch or none.

`ArrowRecords` checks the schema of a batch. `send_columns` then sends its rows from the buffers of
the columns, without an object for each row: it chooses the partition of each row, adds up what each
partition needs, and encodes the rows only if there is room for all. If a row may be wrong, it asks
`ArrowRecords.row` and the producer for the error, so that native code and Python refuse the same
rows with the same texts. Without native code, or if the partitions of a topic are not known, rows
become objects, which are sent in the same way as the records of `send_many`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any

from aiokclient._native import twin
from aiokclient.errors import InvalidTopicError, SerializationError
from aiokclient.errors.local import ArgumentTypeError, RecordTypeError, TopicTypeError
from aiokclient.producer.batching.batch import record_size
from aiokclient.producer.send_many import PARTITIONS, send_prepared
from aiokclient.types import Headers, TopicPartition, is_topic_name
from aiokclient.types.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokclient.producer.batching.queue import Topic
    from aiokclient.producer.delivery.deliveries import Deliveries
    from aiokclient.producer.delivery.delivery import Delivery
    from aiokclient.producer.producer import Producer

CONVERTED = 1024
"""Number of rows that are converted to objects at a time."""
LARGEST_TIME = (1 << 63) - 1

TIMES = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}
"""The factor and the divisor that convert timestamps to milliseconds, by their unit."""

COLUMNS = {
    "topic": "strings",
    "partition": "integers",
    "timestamp": "timestamps, or int64 for milliseconds since the epoch",
    "key": "strings or binary",
    "value": "strings or binary",
    "headers": "lists of struct<key: string, value: binary>",
}
"""The columns that a batch may have, and the types that they may have."""

Buffers = tuple[int, int, int, Any, Any, Any]
"""An array for native code: the size in bytes of each offset (0 for a column of int64), the length
of the array, the index of its first item in its buffers, and its buffers with the validity, the
offsets, and the data."""


@twin("producer")
def send_columns(
    producer: Producer[Any, Any],
    targets: Sequence[Topic],
    records: ArrowRecords,
) -> Deliveries | None:
    """Send all rows to known topics.

    If Python code must send them instead, change nothing and return None.
    """
    return None


class ArrowRow(NamedTuple):
    """One row, as the objects that `send` takes. `target` is the index of its topic."""

    row: int
    target: int
    key: bytes | None
    value: bytes | None
    partition: int | None
    timestamp: int | None
    headers: Headers


class ArrowRecords:
    """The rows of an Arrow record batch, with a checked schema."""

    def __init__(self, topic: str | None, batch: Any) -> None:
        """Check the type of the batch, and its columns.

        Raises ArgumentTypeError if it is not a RecordBatch, and RecordTypeError for a wrong column.
        """
        self._pyarrow = pyarrow = _pyarrow()
        if not isinstance(batch, pyarrow.RecordBatch):
            raise ArgumentTypeError(
                f"send_arrow() takes a pyarrow.RecordBatch, not {type(batch).__name__}. Call it "
                "for each batch of table.to_batches()."
            )
        self.count = batch.num_rows
        columns = self._check_columns(topic, batch)
        self._key = self._check_content("key", columns.get("key"))
        self._value = self._check_content("value", columns["value"])
        self._partition = self._check_partitions(columns.get("partition"))
        self.factor, self.divisor = 1, 1
        self._timestamp = self._check_times(columns.get("timestamp"))
        self._headers = self._convert_headers(columns.get("headers"))
        self._which: Any = None
        self.topics: list[str] = [] if topic is None else [topic]
        """The topics of the rows, each once."""
        if topic is None:
            self._find_topics(columns["topic"])

    # -- the schema

    def _check_columns(self, topic: str | None, batch: Any) -> dict[str, Any]:
        allowed = [name for name in COLUMNS if topic is None or name != "topic"]
        names = batch.schema.names
        for name in names:
            if name not in allowed:
                why = ""
                if name == "topic":
                    why = " The topic is an argument already; pass None to use the column."
                raise RecordTypeError(
                    f"Column {name!r} is not allowed.{why} The columns of a batch are "
                    f"{', '.join(allowed)}."
                )
            if names.count(name) > 1:
                raise RecordTypeError(f"Column {name!r} occurs {names.count(name)} times.")
        if "value" not in names:
            raise RecordTypeError(
                "Column 'value' is missing. To send records without a value, add it with nulls."
            )
        if topic is None and "topic" not in names:
            raise RecordTypeError("Column 'topic' is missing, and the argument topic is None.")
        return dict(zip(names, batch.columns, strict=True))

    def _type_error(self, name: str, kind: object) -> RecordTypeError:
        return RecordTypeError(f"Column {name!r} has the type {kind}. Allowed are {COLUMNS[name]}.")

    def _is_content(self, kind: Any) -> bool:
        return str(kind) in ("string", "large_string", "binary", "large_binary")

    def _is_null(self, column: Any) -> bool:
        return column is None or self._pyarrow.types.is_null(column.type)

    def _check_content(self, name: str, column: Any) -> Any:
        if self._is_null(column):
            return None
        if not self._is_content(column.type):
            raise self._type_error(name, column.type)
        return column

    def _check_partitions(self, column: Any) -> Any:
        if self._is_null(column):
            return None
        if not self._pyarrow.types.is_integer(column.type):
            raise self._type_error("partition", column.type)
        try:
            return column.cast(self._pyarrow.int64())
        except self._pyarrow.ArrowInvalid as error:
            raise SerializationError(
                "Column 'partition' has numbers beyond 64 bits. Partitions are numbered from 0."
            ) from error

    def _check_times(self, column: Any) -> Any:
        if self._is_null(column):
            return None
        if self._pyarrow.types.is_timestamp(column.type):
            self.factor, self.divisor = TIMES[column.type.unit]
        elif not self._pyarrow.types.is_int64(column.type):
            raise self._type_error("timestamp", column.type)
        return column.cast(self._pyarrow.int64())

    def _convert_headers(self, column: Any) -> Any:
        if self._is_null(column):
            return None
        types, kind = self._pyarrow.types, column.type
        if types.is_list(kind) or types.is_large_list(kind):
            if types.is_null(kind.value_type) and not len(column.flatten()):
                return None
            pair = kind.value_type
            if types.is_struct(pair) and sorted(field.name for field in pair) == ["key", "value"]:
                name, content = pair.field("key").type, pair.field("value").type
                fits = self._is_content(content) or types.is_null(content)
                if fits and (types.is_string(name) or types.is_large_string(name)):
                    return column
        raise self._type_error("headers", kind)

    def _find_topics(self, column: Any) -> None:
        types = self._pyarrow.types
        is_text = types.is_string(column.type) or types.is_large_string(column.type)
        if not (is_text or types.is_null(column.type)):
            raise self._type_error("topic", column.type)
        if column.null_count:
            row = column.is_null().index(True).as_py()
            raise TopicTypeError(
                f"Column 'topic' is null in row {row}. Each row needs the name of a topic."
            )
        found = column.dictionary_encode()
        self.topics = found.dictionary.to_pylist()
        self._which = found.indices.cast(self._pyarrow.int64())
        for number, name in enumerate(self.topics):
            if not is_topic_name(name):
                row = self._which.index(number).as_py()
                raise InvalidTopicError(f"Column 'topic' has {name!r} in row {row}.")

    # -- for native code

    def make_buffers(self) -> tuple[Buffers | None, ...]:
        """Return the columns for topic indices, keys, values, partitions, times, and headers.

        Headers have four columns: the lists, the validity of their items (as a column of integers,
        of which only the validity counts), the names, and the contents.
        """
        return (
            _integers(self._which),
            _contents(self._key),
            _contents(self._value),
            _integers(self._partition),
            _integers(self._timestamp),
            *self._header_buffers(),
        )

    def _header_buffers(self) -> tuple[Buffers | None, ...]:
        lists = self._headers
        if lists is None:
            return None, None, None, None
        width = 8 if self._pyarrow.types.is_large_list(lists.type) else 4
        validity, ends = lists.buffers()[:2]
        pairs = lists.values
        names, contents = self._header_fields(pairs)
        return (
            (width, len(lists), lists.offset, validity, ends, None),
            (0, len(pairs), pairs.offset, pairs.buffers()[0], None, None),
            _contents(names),
            _contents(None if self._is_null(contents) else contents),
        )

    def _header_fields(self, pairs: Any) -> tuple[Any, Any]:
        at = pairs.type.get_field_index("key")
        return pairs.field(at), pairs.field(1 - at)

    # -- for Python

    def read_rows(self, start: int = 0, stop: int | None = None) -> Iterator[ArrowRow]:
        """Yield the rows as objects. Raise the error of a row whose headers or time are wrong."""
        stop = self.count if stop is None else stop
        for first in range(start, stop, CONVERTED):
            count = min(CONVERTED, stop - first)
            columns = zip(
                range(first, first + count),
                _objects(self._which, first, count, 0),
                self._read_bytes(self._key, first, count),
                self._read_bytes(self._value, first, count),
                _objects(self._partition, first, count),
                _objects(self._timestamp, first, count),
                self._read_headers(first, count),
                strict=False,
            )
            for row, target, key, value, partition, timestamp, headers in columns:
                time = None if timestamp is None else self._convert_time(row, timestamp)
                yield ArrowRow(row, target, key, value, partition, time, headers)

    def read_row(self, index: int) -> ArrowRow:
        """Return one row as objects. Raise its error if its headers or its time are wrong."""
        return next(self.read_rows(index, index + 1))

    def check_row(
        self,
        producer: Producer[Any, Any],
        targets: Sequence[Topic],
        index: int,
        row: ArrowRow | None = None,
    ) -> int:
        """Return an upper bound of the size of a row. Raise an error if the row cannot be sent."""
        _, number, key, value, partition, _, headers = row or self.read_row(index)
        target = targets[number]
        size = record_size(key, value, headers)
        if size > producer._largest:
            producer._check_record_size(f"{target.name}, row {index}", key, value, headers)
        if partition is not None and not 0 <= partition < PARTITIONS:
            raise producer._send_errors().unknown_partition(
                f"Column 'partition' has {partition} in row {index}. Partitions are numbered from "
                "0; null lets the producer choose.",
                topic_partition=TopicPartition(target.name, partition),
            )
        return size

    def _read_bytes(self, column: Any, first: int, count: int) -> Any:
        if column is None:
            return repeat(None)
        return column.slice(first, count).cast(self._pyarrow.large_binary()).to_pylist()

    def _convert_time(self, row: int, timestamp: int) -> int:
        time = timestamp * self.factor // self.divisor
        if timestamp < 0 or time > LARGEST_TIME:
            raise SerializationError(
                f"Column 'timestamp' has {timestamp} in row {row}. A timestamp is not before 1970, "
                "and its milliseconds fit into 64 bits; null means now."
            )
        return time

    def _read_headers(self, first: int, count: int) -> Iterator[Headers]:
        if self._headers is None:
            yield from repeat((), count)
            return
        lists = self._headers.slice(first, count)
        pairs = lists.flatten()
        names, contents = self._header_fields(pairs)
        found = zip(
            pairs.is_valid().to_pylist(),
            self._read_bytes(names, 0, len(pairs)),
            self._read_bytes(None if self._is_null(contents) else contents, 0, len(pairs)),
            strict=False,
        )
        for row, length in enumerate(lists.value_lengths().to_pylist(), first):
            yield [self._read_header(row, *pair) for pair in islice(found, length or 0)]

    def _read_header(
        self, row: int, valid: bool, name: bytes | None, content: bytes | None
    ) -> tuple[str, bytes | None]:
        if not valid or name is None:
            raise RecordTypeError(
                f"Column 'headers' has a header without a name in row {row}. Only the value of a "
                "header may be null."
            )
        try:
            return name.decode(), content
        except UnicodeDecodeError as error:
            raise SerializationError(
                f"Column 'headers' has the name {name!r} in row {row}, which is not UTF-8."
            ) from error


def _objects(column: Any, first: int, count: int, default: Any = None) -> Any:
    return repeat(default) if column is None else column.slice(first, count).to_pylist()


def _integers(column: Any) -> Buffers | None:
    if column is None:
        return None
    validity, data = column.buffers()
    return 0, len(column), column.offset, validity, None, data


def _contents(column: Any) -> Buffers | None:
    if column is None:
        return None
    validity, ends, data = column.buffers()
    width = 8 if str(column.type).startswith("large") else 4
    return width, len(column), column.offset, validity, ends, data


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError(
            "send_arrow() needs pyarrow, which is not installed. Run pip install "
            "'aiokclient[arrow]'."
        ) from error
    return pyarrow


def send_rows(producer: Producer[Any, Any], topic: str | None, batch: Any) -> Sequence[Delivery]:
    """See `Producer.send_arrow`."""
    producer._require_usable()
    engine = producer._require_engine()
    if topic is not None:
        producer._find_topic(topic)
    records = ArrowRecords(topic, batch)
    targets = [producer._find_topic(name) for name in records.topics]
    if not records.count:
        return []
    deliveries = None
    if producer._chooses and all(target.known for target in targets):
        deliveries = send_columns(producer, targets, records)
    if deliveries is None:
        rows = [
            (row, records.check_row(producer, targets, row.row, row)) for row in records.read_rows()
        ]
        # As in native code, no partition is chosen before all rows are known to be correct,
        # and all rows without a timestamp get the same one.
        now = producer._clock.time_ms()
        prepared = [
            producer._place_record(
                targets[row.target],
                row.key,
                row.value,
                row.partition,
                now if row.timestamp is None else row.timestamp,
                row.headers,
                size,
            )
            for row, size in rows
        ]
        deliveries = send_prepared(prepared, engine.accumulator, are_rows=True)
    producer._last = deliveries[-1]
    return deliveries
