"""The object that `send` gives: a future in all that programs and asyncio do with one.

`asyncio.gather`, `wait`, `wait_for`, `shield`, `as_completed`, and `ensure_future` take it, and it
is cancelled, awaited, and called back as a future is. It is a light handle on a native delivery:
no future is made for a record unless a task waits for that record.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Generator, Sequence
from typing import Any, ClassVar

from aiokclient import Delivery, TopicPartition
from aiokclient import RecordMetadata as NativeMetadata
from aiokclient.adapters.aiokafka.error_mapping import translate
from aiokclient.adapters.aiokafka.errors import KafkaError, ProducerClosed
from aiokclient.adapters.aiokafka.structs import RecordMetadata
from aiokclient.errors import KafkaError as NativeError

Callback = Callable[[Any], object]


def convert_metadata(native: NativeMetadata) -> RecordMetadata | None:
    """Return aiokafka's metadata of a record: None if no broker has acknowledged it (acks=0)."""
    topic, partition, offset, timestamp = native
    if offset < 0:
        return None
    return RecordMetadata(
        topic,
        partition,
        TopicPartition(topic, partition),
        offset,
        timestamp,
        int(native.timestamp_type),
        native.log_start_offset,
    )


class _Call:
    """A callback of a future, until it has run. It is equal to its function."""

    __slots__ = ("context", "function", "future")

    def __init__(
        self, function: Callback, future: SentRecord, context: contextvars.Context | None
    ) -> None:
        self.function = function
        self.future = future
        self.context = context

    def __call__(self, delivery: Delivery) -> None:
        calls = self.future._calls
        if calls is not None and self in calls:
            calls.remove(self)
        self.function(self.future)


class SentRecord:
    """The outcome of a record that was sent: awaiting it gives its `RecordMetadata`.

    Cancelling it, or a task that awaits it, does not cancel the send. Like an `asyncio.Future` it
    is done and raises CancelledError after `cancel()`.
    """

    __slots__ = ("_calls", "_cancelled", "_delivery", "_loop")

    # By this attribute asyncio knows a future, and by its value whether a task awaits it. Tasks
    # wait for the delivery instead, so that it never changes.
    _asyncio_future_blocking: ClassVar[bool] = False

    def __init__(self, delivery: Delivery, loop: asyncio.AbstractEventLoop) -> None:
        self._delivery = delivery
        self._loop = loop
        self._cancelled = False
        self._calls: list[_Call] | None = None

    @property
    def native(self) -> Delivery:
        """The delivery of `aiokclient`."""
        return self._delivery

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop of the producer."""
        return self._loop

    def done(self) -> bool:
        """Return whether the record was delivered, has failed, or the future was cancelled."""
        return self._cancelled or self._delivery.done()

    def cancelled(self) -> bool:
        """Return whether `cancel` was called in time."""
        return self._cancelled

    def cancel(self, msg: object = None) -> bool:
        """Give up waiting: the record is still sent. Return whether the future was pending."""
        if self.done():
            return False
        self._cancelled = True
        calls, self._calls = self._calls or [], None
        for call in calls:
            self._delivery.remove_done_callback(call)
            self._loop.call_soon(call.function, self, context=call.context)
        return True

    def result(self) -> RecordMetadata | None:
        """Return the metadata of the record, or raise its failure.

        Raises `asyncio.InvalidStateError` while the future is pending, and CancelledError if it was
        cancelled.
        """
        if self._cancelled:
            raise asyncio.CancelledError
        try:
            return convert_metadata(self._delivery.result())
        except NativeError as error:
            raise translate(error, ProducerClosed) from error

    def exception(self) -> BaseException | None:
        """Return the failure of the record, or None if it was delivered; raises as `result`."""
        if self._cancelled:
            raise asyncio.CancelledError
        error = self._delivery.exception()
        return None if error is None else translate(error, ProducerClosed)

    def add_done_callback(
        self, fn: Callback, *, context: contextvars.Context | None = None
    ) -> None:
        """Call `fn(future)` in the event loop when the future is done."""
        if self._cancelled:
            self._loop.call_soon(fn, self, context=context)
            return
        call = _Call(fn, self, contextvars.copy_context() if context is None else context)
        if self._calls is None:
            self._calls = []
        self._calls.append(call)
        self._delivery.add_done_callback(call, context=call.context)

    def remove_done_callback(self, fn: Callback) -> int:
        """Remove all occurrences of a callback, and return how many were removed."""
        found = [call for call in self._calls or () if call.function == fn]
        for call in found:
            self._delivery.remove_done_callback(call)
            if self._calls is not None:
                self._calls.remove(call)
        return len(found)

    def __await__(self) -> Generator[Any, None, RecordMetadata | None]:
        if self._cancelled:
            raise asyncio.CancelledError
        try:
            return convert_metadata((yield from self._delivery.__await__()))
        except NativeError as error:
            raise translate(error, ProducerClosed) from error

    __iter__ = __await__

    def __repr__(self) -> str:
        state = "cancelled" if self._cancelled else repr(self._delivery)
        return f"<SentRecord {state}>"


class SentBatch(SentRecord):
    """The outcome of a batch: the metadata of its first record, once all have their outcome."""

    __slots__ = ("_deliveries",)

    def __init__(self, deliveries: Sequence[Delivery], loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(deliveries[-1], loop)
        self._deliveries = deliveries

    def result(self) -> RecordMetadata | None:
        """Return the metadata of the first record, or raise the first failure."""
        super().result()
        for delivery in self._deliveries:
            self._raise_failure(delivery)
        return convert_metadata(self._deliveries[0].result())

    def exception(self) -> BaseException | None:
        """Return the first failure of the records, or None."""
        try:
            self.result()
        except KafkaError as error:
            return error
        return None

    def __await__(self) -> Generator[Any, None, RecordMetadata | None]:
        yield from super().__await__()
        return self.result()

    __iter__ = __await__

    @staticmethod
    def _raise_failure(delivery: Delivery) -> None:
        error = delivery.exception()
        if error is not None:
            raise translate(error, ProducerClosed) from error
