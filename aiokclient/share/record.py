"""The records that a share consumer delivers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeVar

from aiokclient.types import ConsumerRecord, Headers, TimestampType, public_in

if TYPE_CHECKING:
    from aiokclient.share.locks import Acquisition

K = TypeVar("K")
V = TypeVar("V")


@public_in("aiokclient")
class ShareRecord(ConsumerRecord[K, V]):
    """A record that a `ShareConsumer` has acquired and delivered, with its lock (KIP-932).

    The consumer holds the record alone until it is settled, or until its lock is lost. One that a
    program creates, or that was pickled, has no lock.
    """

    __slots__ = ("__weakref__", "_acquisition", "_count")

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
        _acquisition: Any = None,
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
        self._acquisition = _acquisition
        self._count = delivery_count

    @property
    def delivery_count(self) -> int:
        """How many times the record was acquired by a member of the group, 1 the first time."""
        return self._count

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

    def __repr__(self) -> str:
        text = super().__repr__().removeprefix("ConsumerRecord(").removesuffix(")")
        return f"ShareRecord({text}, delivery_count={self._count})"

    def __reduce__(self) -> tuple[Any, ...]:
        fields = self._fields()
        return type(self), (*fields, self._count)
