"""What every send goes through; `sends` picks this or the native twin, and has all the rest.

`send` checks, looks the topic up, has key and value serialized, and puts the record into a batch.
The native twin puts it there itself while the topic is known, key and value are bytes and the open
batch has room, and leaves everything else to the same `_put`.
"""

from __future__ import annotations

import asyncio
from asyncio import _get_running_loop
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from aiokclient.clock import Clock
from aiokclient.cluster.tracebacks import let_go
from aiokclient.producer.delivery.deliveries import Deliveries
from aiokclient.producer.delivery.delivery import Delivery
from aiokclient.types import Headers

if TYPE_CHECKING:
    # The default makes `Producer(...)` without serializers a Producer[bytes, bytes].
    from typing_extensions import TypeVar as DefaultTypeVar

    from aiokclient.producer.batching.topic import Topic

    K = DefaultTypeVar("K", default=bytes)
    V = DefaultTypeVar("V", default=bytes)
else:
    K = TypeVar("K")
    V = TypeVar("V")

__all__ = ["K", "SendPath", "V"]


class SendPath(Generic[K, V]):
    """The part of a producer that sees every record."""

    _usable: bool
    _loop: asyncio.AbstractEventLoop | None
    _clock: Clock
    _real_time: bool
    """The clock is the machine's."""
    _topics: dict[str, Topic]
    _raw: bool
    """There are no serializers."""
    _largest: int
    """What a record may take at most, in bytes."""
    _hashes: bool
    """Keys choose partitions."""
    _chooses: bool
    """The user gave no function that does."""
    _append: Callable[..., Any]
    """`Accumulator.append`."""
    _advance: Callable[..., Any]
    """`Partitioner.advance`."""
    _reserve: Callable[[Any], None]
    """`bulk.require_room` of the accumulator."""
    _send_values: Callable[..., Deliveries]
    """`bulk.send_values` of the accumulator and the partitioner."""
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
        """Take a record to be sent; plain, it returns at once.

        Awaiting the `Delivery` waits for the acknowledgement, at most `delivery_timeout_ms`;
        cancelling that wait leaves the record on its way. `timestamp` is in milliseconds since the
        epoch, now if left out. In a loop of sends `if producer.full: await producer.drain()` is
        the backpressure.

        Raises at once, and keeps nothing of the record: ClosedError or what failed the producer,
        SerializationError, RecordTooLargeError (`max_request_size`), InvalidTopicError,
        UnknownTopicOrPartitionError for a partition that a known topic does not have,
        BufferExhaustedError beyond the parking, WrongThreadError and WrongLoopError. All else comes
        through the delivery.
        """
        try:
            if not self._usable or _get_running_loop() is not self._loop:
                self._check()
            target = self._topics.get(topic)
            if target is None:
                target = self._topic(topic)
            raw_key: Any = key
            raw_value: Any = value
            if not self._raw:
                raw_key, raw_value = self._serialized(topic, key, value, headers)
            return self._put(target, raw_key, raw_value, partition, timestamp, headers)
        except BaseException as error:
            let_go(error, self)
            del self
            raise

    def send_many(self, topic: str, values: Sequence[Any]) -> Sequence[Delivery]:
        """Send all of a sequence, or nothing of it; plain. The deliveries come in its order.

        An item is a value, a (key, value), or a `ProducerRecord`, which may name another topic.
        Raises what `send` raises; BufferExhaustedError, when they do not all fit, names
        `send_all()`, which waits for room.
        """
        try:
            return self._send_many(topic, values)
        except BaseException as error:
            let_go(error, self)
            del self
            raise

    @property
    def full(self) -> bool:
        """The record sent last is parked: time to await `drain()`."""
        return self._last is not None and self._last.located()[0].parked
