"""The trace context in the headers of records, by the propagators that the application has set.

A record carries its creation context: that of the span which sent it. By the conventions, a context
that the application has put into the headers is kept. There is one exception. If the application
passes on the headers of a record that it is processing, the new record gets its own context.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import propagate, trace
from opentelemetry.context import Context, create_key, get_value, set_value
from opentelemetry.propagators.textmap import Getter, Setter
from opentelemetry.trace import Link, SpanContext

from aiokclient.types import Headers

if TYPE_CHECKING:
    import pyarrow as pa

Pair = tuple[str, bytes | None]
Key = tuple[int, int]

PROCESSED: Final = create_key("aiokclient-processed")
"""The key under which a context has the creation contexts of the records processed in it."""


class _Reading(Getter[Headers]):
    def get(self, carrier: Headers, key: str) -> list[str] | None:
        found = [text for name, text in carrier if name == key and isinstance(text, bytes)]
        return [text.decode("ascii", "replace") for text in found] or None

    def keys(self, carrier: Headers) -> list[str]:
        return [name for name, _ in carrier]


class _Writing(Setter[list[Pair]]):
    def set(self, carrier: list[Pair], key: str, value: str) -> None:
        carrier.append((key, value.encode()))


READING: Final = _Reading()
WRITING: Final = _Writing()


class Carried:
    """The context that a send adds to the headers of its records."""

    def __init__(self, context: Context) -> None:
        self._own: list[Pair] = []
        propagate.inject(self._own, context, WRITING)
        self._processed = get_value(PROCESSED, context) or frozenset()

    def add_to_headers(self, headers: Headers) -> Headers:
        """Return the headers with the context added.

        If the application has put a context of its own into the headers, return them as they are.
        """
        if not self._own:
            return headers
        kept: Sequence[Pair] = headers
        if headers:
            fields = propagate.get_global_textmap().fields
            if any(name in fields for name, _ in headers):
                creation = creation_of(extracted(headers, Context()))
                if creation is not None and _key(creation) not in self._processed:  # type: ignore[operator]
                    return headers
                kept = [pair for pair in headers if pair[0] not in fields]
        return [*map(_as_pair, kept), *self._own]


def _as_pair(pair: Pair) -> Pair:
    return pair if type(pair) is tuple else (pair[0], pair[1])


def extracted(headers: Headers, context: Context) -> Context:
    """Return the context, extended by the context in the headers."""
    return propagate.extract(headers, context, READING) if headers else context


def creation_of(context: Context) -> SpanContext | None:
    """Return the span context in a context, or None if there is none."""
    found = trace.get_current_span(context).get_span_context()
    return found if found.is_valid else None


def injected(headers: Headers) -> SpanContext | None:
    """Return the creation context of a record, or None."""
    return creation_of(extracted(headers, Context())) if headers else None


def links_to(creations: Iterable[SpanContext | None]) -> list[Link]:
    """Return one link to each creation context, with its number of messages if it is above 1."""
    counts: dict[Key, int] = {}
    found: dict[Key, SpanContext] = {}
    for creation in creations:
        if creation is not None:
            key = _key(creation)
            counts[key] = counts.get(key, 0) + 1
            found[key] = creation
    return [
        Link(creation, {"messaging.batch.message_count": counts[key]} if counts[key] > 1 else None)
        for key, creation in found.items()
    ]


def with_processed(context: Context, links: Iterable[Link]) -> Context:
    """Return a copy of the context, with the records of these links marked as being processed."""
    return set_value(PROCESSED, frozenset(_key(link.context) for link in links), context)


def _key(context: SpanContext) -> Key:
    return context.trace_id, context.span_id


COLUMN = "headers"


class ArrowHeaders:
    """The headers of the rows that `send_arrow` sends.

    If `send_arrow` would refuse the batch, there are no headers, and the batch is not changed.
    """

    def __init__(self, batch: pa.RecordBatch) -> None:
        import pyarrow

        self._pyarrow = pyarrow
        self._batch = batch
        self.topics: set[str] = set()
        """The names in the column `topic`."""
        self.rows: list[Headers] = []
        """The headers of each row. It is an empty list without a usable column of headers."""
        self._usable = isinstance(batch, pyarrow.RecordBatch)
        if self._usable:
            self._read_columns(batch.schema.names)

    def _read_columns(self, names: list[str]) -> None:
        """Read the columns. The batch is not usable if `send_arrow` would refuse it."""
        if len(set(names)) < len(names):
            self._usable = False
            return
        if "topic" in names:
            self.topics = set(map(str, self._batch.column("topic").unique().to_pylist()))
        if COLUMN not in names:
            return
        try:
            found = self._batch.column(COLUMN).to_pylist()
            self.rows = [[_pair(each) for each in row or ()] for row in found]
        except (KeyError, TypeError, ValueError):
            self._usable, self.rows = False, []

    def with_context(self, carried: Carried) -> pa.RecordBatch:
        """Return the batch with the context added to the headers of its rows."""
        if not self._usable:
            return self._batch
        rows = self.rows or [()] * self._batch.num_rows
        text, content = self._pyarrow.string(), self._pyarrow.binary()
        kind = self._pyarrow.list_(self._pyarrow.struct([("key", text), ("value", content)]))
        added = [[_item(*pair) for pair in carried.add_to_headers(headers)] for headers in rows]
        columns = dict(zip(self._batch.schema.names, self._batch.columns, strict=True))
        columns[COLUMN] = self._pyarrow.array(added, kind)
        return self._pyarrow.RecordBatch.from_pydict(columns)


def _pair(item: Any) -> tuple[str, bytes | None]:
    name, content = item["key"], item["value"]
    if not isinstance(name, str):
        raise TypeError(f"{name!r} is not the name of a header.")
    return name, content.encode() if isinstance(content, str) else content


def _item(name: str, content: bytes | None) -> dict[str, Any]:
    return {"key": name, "value": content}
