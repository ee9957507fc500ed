"""The part of `send` that runs for every record; `producer.send` has the less frequent steps.

`send` checks its arguments, finds the topic, serializes key and value, and appends the record to a
batch. The native twin appends the record itself if the topic is known, key and value are bytes, and
the open batch has room. In all other cases, it calls the same `_put` as this module.
"""

from __future__ import annotations

import asyncio
from asyncio import _get_running_loop
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from aiokclient.clock import Clock
from aiokclient.producer.delivery.deliveries import Deliveries
from aiokclient.producer.delivery.delivery import Delivery
from aiokclient.types import Headers

if TYPE_CHECKING:
    # These type variables have defaults, so that a type checker infers Producer[bytes, bytes] for
    # `Producer(...)` without serializers.
    from typing_extensions import TypeVar as DefaultTypeVar

    from aiokclient.producer.batching.queue import Topic

    K = DefaultTypeVar("K", default=bytes)
    V = DefaultTypeVar("V", default=bytes)
else:
    K = TypeVar("K")
    V = TypeVar("V")

__all__ = ["K", "SendPath", "V"]


class SendPath(Generic[K, V]):
    """The part of a producer that runs for every record."""

    _usable: bool
    _loop: asyncio.AbstractEventLoop | None
    _clock: Clock
    _real_time: bool
    """Whether the producer uses the system's clock."""
    _topics: dict[str, Topic]
    _raw: bool
    """Whether the producer has no serializers."""
    _largest: int
    """The largest permitted size of a record, in bytes."""
    _hashes: bool
    """Whether the key of a record determines its partition."""
    _chooses: bool
    """Whether the application did not set `partitioner`."""
    _append: Callable[..., Any]
    """The method `Accumulator.append`."""
    _advance: Callable[..., Any]
    """The method `Partitioner.advance`."""
    _reserve: Callable[[Any], None]
    """The function `require_room`, with the accumulator bound as its argument."""
    _send_values: Callable[..., Deliveries]
    """The function `send_values`, with the accumulator and the partitioner bound as arguments."""
    _deliveries: type[Deliveries]
    _last: Delivery | None = None

    if TYPE_CHECKING:

        def _check(self) -> None: ...
        def _topic(self, name: str) -> Topic: ...
        def _serialized(
            self, topic: str, key: K | None, value: V | None, headers: Headers
        ) -> tuple[Any, Any]: ...
        def _put(
            self,
            topic: Topic,
            key: Any,
            value: Any,
            partition: int | None,
            timestamp: int | None,
            headers: Headers,
        ) -> Delivery: ...
        def _send_many(self, topic: str, values: Sequence[Any]) -> Sequence[Delivery]: ...

    def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> Delivery:
        """Send a record, and return its delivery immediately.

        Await the `Delivery` for the acknowledgement, which takes at most `delivery_timeout_ms`. If
        that wait is cancelled, the record is still sent. `timestamp` is in milliseconds since the
        epoch; None means now. In a loop, use `if producer.full: await producer.drain()` for
        backpressure.

        `send` itself raises these errors, and does not send the record then: ClosedError or the
        error that failed the producer, SerializationError, RecordTooLargeError
        (`max_request_size`), InvalidTopicError, UnknownTopicOrPartitionError for a partition that
        a known topic does not have, BufferExhaustedError if the overflow queue is full,
        WrongThreadError, and WrongLoopError. The delivery raises all other errors.
        """
        if not self._usable or _get_running_loop() is not self._loop:
            self._check()
        try:
            target = self._topics.get(topic)
        except TypeError:  # It has no hash, so it is no topic.
            target = None
        if target is None:
            target = self._topic(topic)
        raw_key: Any = key
        raw_value: Any = value
        if not self._raw:
            raw_key, raw_value = self._serialized(topic, key, value, headers)
        return self._put(target, raw_key, raw_value, partition, timestamp, headers)

    def send_many(self, topic: str, values: Sequence[Any]) -> Sequence[Delivery]:
        """Send all records of a sequence or none, and return their deliveries in the same order.

        An item is a value, a (key, value) tuple, or a `ProducerRecord`, which may name another
        topic. Raises the errors of `send`, and BufferExhaustedError if there is not enough room
        for all records; `send_all()` waits for room instead.
        """
        return self._send_many(topic, values)

    @property
    def full(self) -> bool:
        """Whether the record sent last is in the overflow queue.

        `drain()` waits until it has left the queue.
        """
        return self._last is not None and self._last.located()[0].in_overflow
