"""The spans of one client, by the semantic conventions for messaging and Kafka.

A span contains no keys, values, or headers of records. It contains no texts of exceptions either,
because a text may quote a key or a value. Of an exception, it contains only the class, and for
Kafka's errors also the name and its meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import context as current_context
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer

from aiokclient.types.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokclient.config.client import ClientConfig

COUNT: Final = "messaging.batch.message_count"
OTHER: Final = "_OTHER"
"""The type for an error of which only the occurrence is known."""


class Operation(NamedTuple):
    """An operation that the conventions define."""

    name: str
    type: str
    kind: SpanKind


SEND: Final = Operation("send", "send", SpanKind.PRODUCER)
POLL: Final = Operation("poll", "receive", SpanKind.CLIENT)
PROCESS: Final = Operation("process", "process", SpanKind.CONSUMER)
COMMIT: Final = Operation("commit", "settle", SpanKind.CLIENT)


class Spans:
    """The spans of one client: their tracer, and the attributes that all of them have."""

    def __init__(self, tracer: Tracer, config: ClientConfig) -> None:
        self._tracer = tracer
        self.is_active = True
        """Whether spans are made. It becomes false when the instrumentation ends."""
        self._common: dict[str, Any] = {
            "messaging.system": "kafka",
            "messaging.client.id": config.client_id,
        }
        group_id = getattr(config, "group_id", None)
        if group_id is not None:
            self._common["messaging.consumer.group.name"] = group_id
        if config.initial_servers:
            host, port = config.initial_servers[0]
            self._common.update(_server(host, port))

    def start_span(
        self,
        operation: Operation,
        topics: Iterable[str],
        attributes: Mapping[str, Any] | None = None,
        *,
        context: Context | None = None,
        links: Sequence[Link] = (),
        began_ns: int | None = None,
    ) -> Span:
        """Start a span. If there is exactly one topic, the span's name contains it."""
        names = list(dict.fromkeys(topics))
        known: dict[str, Any] = {
            **self._common,
            "messaging.operation.name": operation.name,
            "messaging.operation.type": operation.type,
            **(attributes or {}),
        }
        name = operation.name
        if len(names) == 1:
            known["messaging.destination.name"] = names[0]
            name += f" {names[0]}"
        return self._tracer.start_span(
            name, context, operation.kind, known, links, began_ns, record_exception=False
        )


def located(span: Span, partition: int | None, offset: int, address: Any) -> None:
    """Record where a record was written. `address` is the broker, or None."""
    if partition is not None:
        span.set_attribute("messaging.destination.partition.id", str(partition))
    if offset >= 0:
        span.set_attribute("messaging.kafka.offset", offset)
    if address is not None:
        span.set_attributes(_server(address.host, address.port))


def _server(host: str, port: int) -> dict[str, Any]:
    return {"server.address": host, "server.port": port}


def fail(span: Span, error: BaseException | None) -> None:
    """Record that the work of a span has failed. `error` is None if it is not known.

    Exceptions that are not errors of the program, such as a cancellation, are not recorded.
    """
    if error is not None and not isinstance(error, Exception):
        return
    kind = OTHER if error is None else _name(error)
    span.set_attribute("error.type", kind)
    if error is not None:
        shown = {"exception.type": _qualified(error)}
        meaning = getattr(type(error), "what", "")
        if isinstance(meaning, str) and meaning:
            shown["exception.message"] = meaning
        span.add_event("exception", shown)
    span.set_status(Status(StatusCode.ERROR))


def _name(error: Exception) -> str:
    """Return Kafka's name of an error, or the name of its class if Kafka has no name for it."""
    name = getattr(type(error), "name", None)
    return name if isinstance(name, str) else _qualified(error)


def _qualified(error: BaseException) -> str:
    kind = type(error)
    if kind.__module__ == "builtins":
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


@contextmanager
def ended(span: Span) -> Iterator[None]:
    """End a span after the body of a `with` statement. An exception there fails the span."""
    try:
        yield
    except BaseException as error:
        fail(span, error)
        raise
    finally:
        span.end()


@contextmanager
def being(context: Context) -> Iterator[None]:
    """Make a context the current one in the body of a `with` statement."""
    before = current_context.get_current()
    current_context.attach(context)
    try:
        yield
    finally:
        # A coroutine may be closed in another context, where detaching by a token would fail.
        if current_context.get_current() is context:
            current_context.attach(before)
