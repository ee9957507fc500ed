"""The records that a share consumer delivers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from aiokclient._native import twin
from aiokclient.types import ConsumerRecord, Headers, TimestampType, public_in

if TYPE_CHECKING:
    from aiokclient.share.locks import Acquisition

    TrackedRecord = ConsumerRecord
else:
    # The class of records that the program creates, which is tracked by the garbage collector.
    TrackedRecord = type(ConsumerRecord("", 0, 0, 0, TimestampType.CREATE_TIME, None, None))

K = TypeVar("K")
V = TypeVar("V")
W = TypeVar("W")
R = TypeVar("R")


@twin("ground")
def light_class(kind: type[R]) -> type[R]:
    """Make the records of a class cheap to create and to delete, and return the class."""
    return kind


@light_class
@public_in("aiokclient")
class ShareRecord(TrackedRecord[K, V]):
    """A record that a `ShareConsumer` has acquired and delivered, with its lock (KIP-932).

    The consumer holds the record alone until it is settled, or until its lock is lost. One that a
    program creates, or that was pickled, has no lock. Two deliveries of a record are not equal.
    """

    __slots__ = ("__weakref__", "_acquisition", "_count")

    if TYPE_CHECKING:
        _acquisition: Acquisition | None

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp: int,
        timestamp_type: TimestampType,
        key: K | None,
        value: V | None,
        headers: Headers = (),
        leader_epoch: int | None = None,
        delivery_count: int = 1,
    ) -> None:
        super().__init__(
            topic,
            partition,
            offset,
            timestamp,
            timestamp_type,
            key,
            value,
            headers,
            leader_epoch,
        )
        self._acquisition = None
        self._count = delivery_count

    @property
    def delivery_count(self) -> int:
        """The number of times that a member of the group has acquired the record, 1 at first."""
        acquisition = self._acquisition
        return self._count if acquisition is None else acquisition.delivery_count

    @property
    def lock_deadline(self) -> float:
        """The time until which the lock is certain, on the event loop's clock, in seconds.

        It is the sending of the request that acquired or renewed it, plus the duration of locks.
        Without a lock it is minus infinity.
        """
        acquisition = self._acquisition
        return -math.inf if acquisition is None else acquisition.find_deadline(self.offset)

    @property
    def lock_lost(self) -> bool:
        """Whether the lock was lost before the record was settled. A lost lock never comes back."""
        acquisition = self._acquisition
        return acquisition is None or acquisition.is_lost(self.offset)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ShareRecord):
            return NotImplemented
        return (
            self._acquisition is other._acquisition
            and self.delivery_count == other.delivery_count
            and self._fields() == other._fields()
        )

    def __ne__(self, other: object) -> bool:
        return not self == other  # The native base class has its own.

    __hash__ = ConsumerRecord.__hash__

    def __repr__(self) -> str:
        text = super().__repr__().removeprefix("ConsumerRecord(").removesuffix(")")
        return f"ShareRecord({text}, delivery_count={self.delivery_count})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (*self._fields(), self.delivery_count)


ShareHandle: TypeAlias = (
    Callable[[ShareRecord[K, V]], object] | Callable[[ShareRecord[K, V], W], object]
)
"""A handler of a worker over a share consumer: a function or coroutine function of a record, and
optionally of the worker.
"""


@twin("ground")
def lock_records(
    records: list[ConsumerRecord[Any, Any]],
    kind: type[ShareRecord[Any, Any]],
    lock: Acquisition,
) -> list[ShareRecord[Any, Any]]:
    """Return the records as objects of `kind`, with their lock."""
    locked = []
    for record in records:
        make: Any = kind
        made: ShareRecord[Any, Any] = make(*record._fields(), lock.delivery_count)
        sizes = record._found_sizes()
        if sizes is not None:
            made._sizes = sizes
        made._acquisition = lock
        locked.append(made)
    return locked


@twin("ground")
def set_locks(
    records: list[ShareRecord[Any, Any]],
    kind: type[ShareRecord[Any, Any]],
    lock: Acquisition,
) -> None:
    """Give their lock to records that the decoder has created as objects of `kind`."""
    for record in records:
        if type(record) is not kind:
            raise TypeError("The record is of another class.")
        record._acquisition = lock
