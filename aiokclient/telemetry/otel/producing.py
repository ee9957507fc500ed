"""The spans of a producer: of each send, until its outcome, and of each commit of a transaction.

`send_many` and `send_arrow` have one span for all their records, and each record carries the span's
context. `send_and_wait`, `send_all`, `send_threadsafe`, and the sends of transactions are traced,
too, because they call traced methods.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from opentelemetry.trace import Link, Span, set_span_in_context

from aiokclient.telemetry.otel.classes import with_methods
from aiokclient.telemetry.otel.headers import ArrowHeaders, Carried, injected, links_to
from aiokclient.telemetry.otel.spans import COMMIT, COUNT, SEND, Spans, being, ended, fail, located
from aiokclient.types import Headers, ProducerRecord

Method = Callable[..., Any]


class ProducerTracing:
    """The traced methods of one producer."""

    def __init__(self, spans: Spans, kind: Any) -> None:
        self._spans = spans
        self._kind = kind
        """The class of the producer, which has the methods that are traced."""
        self._context = contextvars.Context()
        """An empty context in which spans end, so that none keeps the context of the send alive."""
        self._undo: Callable[[], None] | None = None

    def make_methods(self) -> dict[str, Method]:
        """Return the methods that replace those of the producer."""

        def send(
            producer: Any,
            topic: str,
            value: Any = None,
            key: Any = None,
            partition: int | None = None,
            timestamp: int | None = None,
            headers: Headers = (),
        ) -> Any:
            record = ProducerRecord(topic, value, key, partition, timestamp, headers)
            return self.send(producer, record)

        def send_many(producer: Any, topic: str, values: Sequence[Any]) -> Any:
            return self.send_many(producer, topic, values)

        def send_arrow(producer: Any, topic: str | None, batch: Any) -> Any:
            return self.send_arrow(producer, topic, batch)

        async def _open(producer: Any, wait: bool) -> None:
            await self._kind._open(producer, wait)
            self.on_open(producer)

        sends: dict[str, Method] = {"send": send, "send_many": send_many, "send_arrow": send_arrow}
        return {**sends, "_open": _open}

    def on_open(self, producer: Any) -> None:
        """Trace the transactions of a producer, which must be started."""
        self.undo_tracing()
        transactions = None if producer._engine is None else producer._engine.transactions
        if transactions is not None and self._spans.is_active:
            commit: Method = type(transactions.ends).commit
            self._undo = with_methods(transactions.ends, {"commit": self._trace_commit(commit)})

    def undo_tracing(self) -> None:
        """Stop tracing transactions."""
        if self._undo is not None:
            self._undo()
            self._undo = None

    # -- sends

    def send(self, producer: Any, record: ProducerRecord) -> Any:
        attributes = {} if record.value is not None else {"messaging.kafka.message.tombstone": True}
        span, carried = self._start_span(record.topic, [record], attributes)
        try:
            delivery = self._kind.send(producer, *_with_context(carried, record))
        except BaseException as error:
            self._end_span(span, error)
            raise
        self._follow_deliveries(span, [delivery], _addresses(producer))
        return delivery

    def send_many(self, producer: Any, topic: str, values: Sequence[Any]) -> Any:
        if not isinstance(values, Sequence) or not values:
            return self._kind.send_many(producer, topic, values)
        records = [_as_record(topic, item) for item in values]
        span, carried = self._start_span(topic, records, {COUNT: len(records)})
        try:
            sent = [_with_context(carried, record) for record in records]
            deliveries = self._kind.send_many(producer, topic, sent)
        except BaseException as error:
            self._end_span(span, error)
            raise
        self._follow_deliveries(span, deliveries, None)
        return deliveries

    def send_arrow(self, producer: Any, topic: str | None, batch: Any) -> Any:
        if not getattr(batch, "num_rows", 0):
            return self._kind.send_arrow(producer, topic, batch)
        headers = ArrowHeaders(batch)
        topics = headers.topics if topic is None else {str(topic)}
        links = links_to(map(injected, headers.rows))
        span = self._spans.start_span(SEND, topics, {COUNT: batch.num_rows}, links=links)
        try:
            carried = Carried(set_span_in_context(span))
            deliveries = self._kind.send_arrow(producer, topic, headers.with_context(carried))
        except BaseException as error:
            self._end_span(span, error)
            raise
        self._follow_deliveries(span, deliveries, None)
        return deliveries

    def _start_span(
        self, topic: Any, records: Sequence[ProducerRecord], attributes: dict[str, Any]
    ) -> tuple[Span, Carried]:
        topics = {str(record.topic) for record in records}
        links = _links(records)
        if not isinstance(topic, str):
            topics = set()  # The send refuses this topic.
        span = self._spans.start_span(SEND, topics, attributes, links=links)
        return span, Carried(set_span_in_context(span))

    def _follow_deliveries(
        self,
        span: Span,
        deliveries: Sequence[Any],
        address: Callable[[Any], Any] | None,
        index: int = 0,
        error: Exception | None = None,
    ) -> None:
        """End the span when all deliveries, beginning with this index, have an outcome."""
        while index < len(deliveries):
            delivery = deliveries[index]
            if not delivery.done():
                follow = partial(self._on_delivery, span, deliveries, address, index, error)
                delivery.add_done_callback(follow, context=self._context)
                return
            error = error or delivery.locate_record()[0].error
            index += 1
        if error is None and address is not None:
            (delivery,) = deliveries
            located(span, delivery.partition, delivery.offset, address(delivery))
        self._end_span(span, error)

    def _on_delivery(self, *state: Any) -> None:
        """Call `_follow_deliveries` again, without the last argument, which is the delivery."""
        self._follow_deliveries(*state[:-1])

    def _end_span(self, span: Span, error: BaseException | None) -> None:
        if error is not None:
            fail(span, error)
        span.end()

    # -- commits

    def _trace_commit(self, original: Method) -> Method:
        spans = self._spans

        async def commit(ends: Any, *args: Any, **named: Any) -> None:
            if not spans.is_active:
                await original(ends, *args, **named)
                return
            span = spans.start_span(COMMIT, ())
            with ended(span), being(set_span_in_context(span)):
                await original(ends, *args, **named)

        return commit


def _links(records: Iterable[ProducerRecord]) -> list[Link]:
    """Return links to the contexts that the application has put into the headers."""
    try:
        return links_to([injected(record.headers) for record in records if record.headers])
    except (TypeError, ValueError):
        return []  # The send refuses these headers.


def _as_record(topic: str, item: Any) -> ProducerRecord:
    """Return an item of `send_many` as a record, by the same rules as `send_many`."""
    if isinstance(item, ProducerRecord):
        return item
    if type(item) is tuple and len(item) == 2:
        return ProducerRecord(topic, value=item[1], key=item[0])
    return ProducerRecord(topic, value=item)


def _with_context(carried: Carried, record: ProducerRecord) -> ProducerRecord:
    try:
        return record._replace(headers=carried.add_to_headers(record.headers))
    except (TypeError, ValueError):
        return record  # The send refuses these headers.


def _addresses(producer: Any) -> Callable[[Any], Any]:
    """Return a function that takes a delivery, and returns the present leader of its partition.

    The function returns None if there is no leader.
    """
    cluster = producer._own_cluster if producer._client is None else producer._client.cluster

    def address(delivery: Any) -> Any:
        metadata, partition = cluster.metadata, delivery.partition
        leader = -1 if partition is None else metadata.find_leader(delivery.topic, partition)
        return metadata.brokers.get(leader)

    return address
