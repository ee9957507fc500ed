"""The object that `send` gives: a future in all that programs and asyncio do with one.

`asyncio.gather`, `wait`, `wait_for`, `shield`, `as_completed`, and `ensure_future` take it, and it
is cancelled, awaited, and called back as a future is. It is a light handle on a native delivery:
no future is made for a record unless a task waits for that record.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any, ClassVar

from aiokclient import Delivery, TopicPartition
from aiokclient import RecordMetadata as NativeMetadata
from aiokclient.adapters.aiokafka.error_mapping import translate
from aiokclient.adapters.aiokafka.errors import KafkaError, ProducerClosed
from aiokclient.adapters.aiokafka.structs import RecordMetadata
from aiokclient.errors import KafkaError as NativeError

Callback = Callable[[Any], object]

_new: Any = tuple.__new__


def convert_metadata(native: NativeMetadata) -> RecordMetadata | None:
    """Return aiokafka's metadata of a record: None if no broker has acknowledged it (acks=0)."""
    topic, partition, offset, timestamp = native
    if offset < 0:
        return None
    # The constructors of named tuples are Python functions, which would take half of the time.
    tp = _new(TopicPartition, (topic, partition))
    kind, start = native.timestamp_type, native.log_start_offset
    made: RecordMetadata = _new(
        RecordMetadata, (topic, partition, tp, offset, timestamp, kind, start)
    )
    return made


class _Call:
    """A callback of a future, until it has run."""

    __slots__ = ("context", "function", "future")

    def __init__(
        self, function: Callback, future: SentRecord, context: contextvars.Context
    ) -> None:
        self.function: Callback | None = function
        """None once it has run or was removed."""
        self.future = future
        self.context = context

    def run(self) -> None:
        """Call the function, unless it was called or removed. Report what it raises."""
        function, self.function = self.function, None
        if function is None:
            return
        try:
            self.context.run(function, self.future)
        except Exception as error:
            self.future.get_loop().call_exception_handler(
                {"message": f"Exception in callback {function!r}", "exception": error}
            )

    def on_delivered(self, delivery: Delivery) -> None:
        """Run the callback."""
        self.run()


class CallbackLines:
    """The callbacks of a producer's futures, in a line for each partition.

    The records of a partition have their outcomes in the order of their sends. So only the first
    callback of a line waits for its own delivery, and then all of the line are run whose deliveries
    are done. An event of the loop for each callback would cost more than the send of its record.
    A callback for an earlier record than the last one of its line waits for its own delivery.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.last_number = 0
        """The number of the last record that was sent."""
        self._lines: dict[tuple[str, int | None], deque[_Call]] = {}

    def add_call(self, call: _Call) -> None:
        """Run a callback when the delivery of its future is done."""
        delivery = call.future.native
        place = delivery.topic, delivery.partition
        line = self._lines.get(place)
        if line is None:
            line = self._lines[place] = deque()
        if delivery.done() or (line and line[-1].future.number > call.future.number):
            delivery.add_done_callback(call.on_delivered)
            return
        line.append(call)
        if len(line) == 1:
            self._wait_for_first(line)

    def _wait_for_first(self, line: deque[_Call]) -> None:
        def run_calls(delivery: Delivery) -> None:
            while line and (line[0].function is None or line[0].future.native.done()):
                line.popleft().run()
            if line:
                self._wait_for_first(line)

        line[0].future.native.add_done_callback(run_calls)


class SentRecord:
    """The outcome of a record that was sent: awaiting it gives its `RecordMetadata`.

    Cancelling it, or a task that awaits it, does not cancel the send. Like an `asyncio.Future` it
    is done and raises CancelledError after `cancel()`.
    """

    __slots__ = ("_calls", "_cancelled", "_lines", "native", "number")

    # By this attribute asyncio knows a future, and by its value whether a task awaits it. Tasks
    # wait for the delivery instead, so that it never changes.
    _asyncio_future_blocking: ClassVar[bool] = False
    # Programs check with isinstance what `send` has given them. A property would be called for
    # each record by `asyncio.isfuture`.
    __class__ = asyncio.Future  # type: ignore[assignment]
    # asyncio.gather reads it of a future that was cancelled.
    _cancel_message: ClassVar[None] = None

    def __init__(self, delivery: Delivery, lines: CallbackLines) -> None:
        self.native = delivery
        """The delivery of `aiokclient`."""
        lines.last_number = self.number = lines.last_number + 1
        """The rank among the records of the producer."""
        self._lines = lines
        self._cancelled = False
        self._calls: tuple[_Call, ...] | None = None

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop of the producer."""
        return self._lines.loop

    def done(self) -> bool:
        """Return whether the record was delivered, has failed, or the future was cancelled."""
        return self._cancelled or self.native.done()

    def cancelled(self) -> bool:
        """Return whether `cancel` was called in time."""
        return self._cancelled

    def cancel(self, msg: object = None) -> bool:
        """Give up waiting: the record is still sent. Return whether the future was pending."""
        if self.done():
            return False
        self._cancelled = True
        calls, self._calls = self._calls or (), None
        for call in calls:
            self.get_loop().call_soon(call.run)
        return True

    def _make_cancelled_error(self) -> asyncio.CancelledError:
        """Return the error of a cancelled future, as asyncio.gather asks for it."""
        return asyncio.CancelledError()

    def result(self) -> RecordMetadata | None:
        """Return the metadata of the record, or raise its failure.

        Raises `asyncio.InvalidStateError` while the future is pending, and CancelledError if it was
        cancelled.
        """
        if self._cancelled:
            raise asyncio.CancelledError
        try:
            return convert_metadata(self.native.result())
        except NativeError as error:
            raise translate(error, ProducerClosed) from error

    def exception(self) -> BaseException | None:
        """Return the failure of the record, or None if it was delivered; raises as `result`."""
        if self._cancelled:
            raise asyncio.CancelledError
        error = self.native.exception()
        return None if error is None else translate(error, ProducerClosed)

    def add_done_callback(
        self, fn: Callback, *, context: contextvars.Context | None = None
    ) -> None:
        """Call `fn(future)` in the event loop when the future is done."""
        call = _Call(fn, self, contextvars.copy_context() if context is None else context)
        if self._cancelled:
            self.get_loop().call_soon(call.run)
            return
        self._calls = (call,) if self._calls is None else (*self._calls, call)
        self._lines.add_call(call)

    def remove_done_callback(self, fn: Callback) -> int:
        """Remove all occurrences of a callback, and return how many were removed."""
        found = [call for call in self._calls or () if call.function == fn]
        for call in found:
            call.function = None
        return len(found)

    def __await__(self) -> Generator[Any, None, RecordMetadata | None]:
        if self._cancelled:
            raise asyncio.CancelledError
        try:
            return convert_metadata((yield from self.native.__await__()))
        except NativeError as error:
            raise translate(error, ProducerClosed) from error

    __iter__ = __await__

    def __repr__(self) -> str:
        state = "cancelled" if self._cancelled else repr(self.native)
        return f"<SentRecord {state}>"


class SentBatch(SentRecord):
    """The outcome of a batch: the metadata of its first record, once all have their outcome."""

    __slots__ = ("_deliveries",)

    def __init__(self, deliveries: Sequence[Delivery], lines: CallbackLines) -> None:
        super().__init__(deliveries[-1], lines)
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
