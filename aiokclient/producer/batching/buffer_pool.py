"""The limits for the memory that each partition of a producer may hold.

There are two pools of `buffer_memory` bytes each: the *buffer*, for records that can be sent, and
the *overflow queue*, for records that the application sent although the buffer was full. A
partition is *unsendable* if its topic is not known yet, if it has no leader, or if its leader is
unreachable or has been silent for a second. One unsendable partition may hold a quarter of each
pool, and all unsendable partitions together may hold half of each, so that they do not block the
sendable ones. If partitions already hold more when they become unsendable, they get no more, and
the bytes beyond that half do not reduce the room of the sendable partitions, until the pool holds
one and a half times its limit. That is the real bound: it is reached only if partitions fill a pool
before they become unsendable. Records that were accepted are never dropped to make room.
"""

from __future__ import annotations

from enum import Enum, auto

from aiokclient.producer.state import QueueState

__all__ = ["Account", "Memory", "Room"]


class Room(Enum):
    """The pool that has room for a record, if any."""

    BUFFER = auto()
    OVERFLOW = auto()
    NOWHERE = auto()


class Account(QueueState):
    """The bytes that one partition holds in each pool."""

    __slots__ = ("buffered", "overflowed")

    def __init__(self) -> None:
        super().__init__()
        self.buffered = 0
        self.overflowed = 0


class Pool:
    """One of the two pools: its limit, and the bytes that partitions hold in it."""

    __slots__ = ("free", "half", "limit", "quarter", "total", "unsendable")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.half = limit // 2
        self.quarter = limit // 4
        self.total = 0
        """Bytes that all partitions hold."""
        self.unsendable = 0
        self.free = limit
        """Bytes that a sendable partition may still take."""

    @property
    def in_use(self) -> int:
        """Bytes in use from the point of view of a sendable partition."""
        return self.limit - self.free

    def room(self, unsendable: bool, held: int) -> int:
        """Return how many more bytes a partition that holds `held` bytes may take."""
        if not unsendable:
            return self.free
        shares = min(self.quarter - held, self.half - self.unsendable)
        return min(shares, self.limit - self.total)

    def add(self, unsendable: bool, size: int) -> None:
        """Add `size` bytes to those in use. A negative size releases bytes."""
        self.total += size
        if unsendable:
            self.unsendable += size
            sendable = self.total - self.unsendable
            self.free = min(
                self.limit - sendable - min(self.unsendable, self.half),
                self.limit + self.half - self.total,
            )
        else:
            self.free -= size


class Memory:
    """The two pools of one producer."""

    __slots__ = ("buffer", "overflow")

    def __init__(self, limit: int) -> None:
        self.buffer = Pool(limit)
        self.overflow = Pool(limit)

    def where(self, account: Account, size: int) -> Room:
        """Return the pool to which `size` more bytes of a partition may go.

        If the partition has batches in the overflow queue, new bytes go there too, to keep the
        order.
        """
        if not account.overflowed and size <= self.buffer.room(
            account.unsendable, account.buffered
        ):
            return Room.BUFFER
        # Batches may exceed the limit of the buffer (see `may_move_in`). The excess bytes reduce
        # the room in the overflow queue, so that both pools together do not exceed their limits.
        excess = min(0, self.buffer.free)
        if size <= self.overflow.room(account.unsendable, account.overflowed) + excess:
            return Room.OVERFLOW
        return Room.NOWHERE

    def fits(self, account: Account, size: int) -> bool:
        """Return whether a record that is too large for one pool fits into both pools together.

        The limits for unsendable partitions do not apply if no unsendable partition holds memory
        yet: the topic of the record may simply not be known so far. The record then fits if the
        overflow queue has room for it.
        """
        if not account.unsendable:
            return size > self.buffer.half and size <= min(self.room(account), self.sendable_room())
        if size <= self.buffer.quarter:
            return False
        if size <= min(self.room(account), self.shared_room()):
            return True
        first = not self.buffer.unsendable and not self.overflow.unsendable
        return first and size <= self.overflow.limit - self.overflow.total

    def room(self, account: Account) -> int:
        """Return how many bytes the partition may take in both pools together."""
        overflow = max(0, self.overflow.room(account.unsendable, account.overflowed))
        if account.overflowed:
            return overflow
        return overflow + max(0, self.buffer.room(account.unsendable, account.buffered))

    def sendable_room(self) -> int:
        """Return how many bytes sendable partitions may take in both pools together."""
        return self.buffer.free + self.overflow.free

    def shared_room(self) -> int:
        """Return how many bytes all unsendable partitions may take in both pools together."""
        return sum(max(0, pool.half - pool.unsendable) for pool in (self.buffer, self.overflow))

    def take(self, account: Account, size: int, in_overflow: bool) -> None:
        """Account for `size` more bytes of a partition."""
        if in_overflow:
            account.overflowed += size
            self.overflow.add(account.unsendable, size)
        else:
            account.buffered += size
            buffer = self.buffer
            if account.unsendable:
                buffer.add(True, size)
            else:  # The same as `add`, inlined because this runs for every batch.
                buffer.total += size
                buffer.free -= size

    def give(self, account: Account, size: int, in_overflow: bool) -> None:
        """Release `size` bytes of a partition."""
        self.take(account, -size, in_overflow)

    def set_unsendable(self, account: Account, unsendable: bool) -> None:
        """Set whether the batches of the partition cannot be sent now."""
        if account.unsendable is unsendable:
            return
        for pool, held in ((self.buffer, account.buffered), (self.overflow, account.overflowed)):
            pool.add(account.unsendable, -held)
            pool.add(unsendable, held)
        account.unsendable = unsendable

    def may_move_in(self, account: Account, size: int, *, beyond: bool = False) -> bool:
        """Return whether a batch in the overflow queue may move into the buffer.

        A batch of a sendable partition may move if it fits and less than three quarters of the
        buffer are in use. With `beyond`, the batch need not fit: a large batch might never find
        room, because unsendable partitions may hold half of the buffer.

        One unsendable partition may hold a quarter of the buffer, and all of them together may hold
        half. A batch of an unsendable partition may move if it fits, and if less than three
        quarters of that quarter and less than three quarters of that half are in use.
        """
        buffer = self.buffer
        if not account.unsendable:
            in_use = buffer.in_use
            fits = beyond or in_use + size <= buffer.limit or not in_use
            return fits and in_use * 4 < buffer.limit * 3
        if size > buffer.room(True, account.buffered):
            return False
        own, shared = account.buffered, buffer.unsendable
        return own * 4 < buffer.quarter * 3 and shared * 4 < buffer.half * 3
