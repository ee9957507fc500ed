"""Sending record batches of Spark, with backpressure."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from aiokclient.errors import (
    ApiTimeoutError,
    BufferExhaustedError,
    KafkaError,
    UnknownTopicOrPartitionError,
)
from aiokclient.spark.sink.columns import check_topic, selected

if TYPE_CHECKING:
    import pyarrow as pa

    from aiokclient import Delivery, Producer

SLICE_BYTES = 2_097_152
"""The number of bytes that are sent at a time, because sending blocks the loop."""


class ArrowSends:
    """The rows that one task sends, and their first failure.

    `on_delivery_error` is the producer's option of that name.
    """

    def __init__(self, topic: str | None) -> None:
        self._topic = topic
        self._failure: KafkaError | None = None
        self._prepared: set[str] = set()

    def on_delivery_error(self, delivery: Delivery) -> None:
        """Keep the first failure."""
        error = delivery.exception()
        if self._failure is None and isinstance(error, KafkaError):
            self._failure = error

    def raise_failure(self) -> None:
        """Raise the first failure."""
        if self._failure is not None:
            raise self._failure

    async def send_all(
        self,
        producer: Producer[Any, Any],
        batches: AsyncIterator[pa.RecordBatch],
        seen: Callable[[pa.RecordBatch], None] | None = None,
    ) -> None:
        """Send the rows of all batches.

        `seen` is called with the rows of each batch before they are sent.
        """
        async for batch in batches:
            rows = selected(batch, self._topic)
            if seen is not None:
                seen(rows)
            await self._prepare_topics(producer, rows)
            size = max(1, rows.num_rows * SLICE_BYTES // max(rows.nbytes, 1))
            for start in range(0, rows.num_rows, size):
                await self._send_rows(producer, rows.slice(start, size))
                self.raise_failure()

    async def _prepare_topics(self, producer: Producer[Any, Any], rows: pa.RecordBatch) -> None:
        """Fetch the metadata of new topics. Rows for an unknown topic would be sent slowly."""
        if self._topic is not None:
            topics = {self._topic}
        else:
            topics = set(rows.column("topic").unique().to_pylist())
        for topic in topics - self._prepared:
            await self.prepare_topic(producer, topic)

    async def prepare_topic(self, producer: Producer[Any, Any], topic: str) -> None:
        """Fetch the metadata of a topic. Errors name the topic.

        If the topic does not exist, the error also says whether the option or the column names it.
        """
        if self._topic is None:
            check_topic(topic)
        try:
            await producer.prepare(topic)
        except ApiTimeoutError as error:
            error.resource = error.resource or topic
            cause = error.__cause__
            missing = UnknownTopicOrPartitionError
            if not isinstance(cause, KafkaError) or cause.code != missing.code:
                raise
            source = "column" if self._topic is None else "option"
            raise missing(
                f"The {source} topic is {topic!r}, which was not found within "
                "kafka.default.api.timeout.ms.",
                resource=topic,
            ) from None
        except KafkaError as error:
            error.resource = error.resource or topic
            raise
        self._prepared.add(topic)

    async def _send_rows(self, producer: Producer[Any, Any], rows: pa.RecordBatch) -> None:
        for waited in (False, True):
            try:
                producer.send_arrow(self._topic, rows)
            except BufferExhaustedError:
                if waited and rows.num_rows == 1:
                    raise
                # Other tasks of the worker may fill the memory again, so one flush may not be
                # enough.
                await producer.flush()
                self.raise_failure()
                continue
            if producer.full:
                await producer.drain()
            return
        half = rows.num_rows // 2
        for part in (rows.slice(0, half), rows.slice(half)):
            await self._send_rows(producer, part)
