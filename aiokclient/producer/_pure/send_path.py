"""The part of a producer that runs for every record, in Python. It has a native twin."""

from __future__ import annotations

import asyncio
from asyncio import _get_running_loop
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from aiokclient.clock import Clock
from aiokclient.producer.delivery.deliveries import Deliveries
from aiokclient.producer.delivery.delivery import Delivery
from aiokclient.types import Headers

if TYPE_CHECKING:
    # These type variables have defaults, so that a type checker infers Producer[bytes, bytes] for
    # `Producer(...)` without serializers.
    from typing_extensions import TypeVar as DefaultTypeVar

    from aiokclient.producer.batching.accumulator import Accumulator
    from aiokclient.producer.batching.partitioner import Partitioner
    from aiokclient.producer.batching.queue import Topic

    K = DefaultTypeVar("K", default=bytes)
    V = DefaultTypeVar("V", default=bytes)
else:
    K = TypeVar("K")
    V = TypeVar("V")
C = TypeVar("C", bound=type)


class SendPath(Generic[K, V]):
    """The part of a producer that runs for every record, in Python.

    `send` checks its arguments, finds the topic, serializes key and value, and appends the record
    to a batch. The native twin takes the place of this class, so that no Python function runs
    between the application and the batch. It appends the record itself if the topic is known, key
    and value are bytes, and the open batch has room. In all other cases, it calls the same
    `_append_record` as this class.
    """

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
    _accumulator: Accumulator
    _partitioner: Partitioner
    _deliveries: type[Deliveries]
    _last: Delivery | None = None

    if TYPE_CHECKING:

        def _require_usable(self) -> None: ...
        def _find_topic(self, name: str) -> Topic: ...
        def _serialize_record(
            self, topic: str, key: K | None, value: V | None, headers: Headers
        ) -> tuple[Any, Any]: ...
        def _append_record(
            self,
            topic: Topic,
            key: Any,
            value: Any,
            partition: int | None,
            timestamp: int | None,
            headers: Headers,
        ) -> Delivery: ...
        def _send_values(
            self, topic: Topic, values: Sequence[bytes | None], total: int, timestamp: int
        ) -> Deliveries: ...
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
            self._require_usable()
        try:
            target = self._topics.get(topic)
        except TypeError:  # It has no hash, so it is no topic.
            target = None
        if target is None:
            target = self._find_topic(topic)
        raw_key: Any = key
        raw_value: Any = value
        if not self._raw:
            raw_key, raw_value = self._serialize_record(topic, key, value, headers)
        return self._append_record(target, raw_key, raw_value, partition, timestamp, headers)

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
        return self._last is not None and self._last.locate_record()[0].in_overflow


def with_own_send(owner: C) -> C:
    """Return the class. The native twin gives it a descriptor of its own for the native `send`.

    CPython calls a native method directly only if the class of the object defines it.
    """
    return owner
