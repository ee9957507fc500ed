"""Who may hold how much of the producer's memory.

Two pools of `buffer_memory` bytes each: the *buffer*, for what can be sent, and the *parking*
beyond it, for what was sent although the buffer was full. A partition that cannot be sent now (no
leader, a leader out of reach or silent for a second, a topic not known yet) may hold a quarter of
each pool, all such partitions together a half, so that they starve nobody: what they hold beyond
their half, because they became unsendable when they held it already, does not count against the
others. Nothing that was accepted is ever dropped to make room.
"""

from __future__ import annotations

from enum import Enum, auto

from aiokclient.producer.state import QueueState

__all__ = ["Account", "Memory", "Place"]


class Place(Enum):
    """Where a record may go."""

    BUFFER = auto()
    PARKING = auto()
    NOWHERE = auto()


class Account(QueueState):
    """What one partition holds, in bytes."""

    __slots__ = ("buffered", "parked")

    def __init__(self) -> None:
        super().__init__()
        self.buffered = 0
        self.parked = 0


class Pool:
    """One of the two: what partitions hold of it, in all and those that cannot be sent."""

    __slots__ = ("free", "half", "limit", "quarter", "total", "unsendable")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.half = limit // 2
        self.quarter = limit // 4
        self.total = 0
        """All that is held."""
        self.unsendable = 0
        self.free = limit
        """What a partition that can be sent may take."""

    @property
    def in_use(self) -> int:
        """What counts against a partition that can be sent."""
        return self.limit - self.free

    def room(self, unsendable: bool, held: int) -> int:
        """How much more a partition that holds `held` bytes may take."""
        if not unsendable:
            return self.free
        shares = min(self.quarter - held, self.half - self.unsendable)
        return min(shares, self.limit - self.total)

    def add(self, unsendable: bool, size: int) -> None:
        """Account for more, or with a negative size for less."""
        self.total += size
        if unsendable:
            self.unsendable += size
            sendable = self.total - self.unsendable
            self.free = self.limit - sendable - min(self.unsendable, self.half)
        else:
            self.free -= size


class Memory:
    """The two pools of one producer."""

    __slots__ = ("buffer", "parking", "peak")

    def __init__(self, limit: int) -> None:
        self.buffer = Pool(limit)
        self.parking = Pool(limit)
        self.peak = 0

    def place(self, account: Account, size: int) -> Place:
        """Where `size` more bytes of a partition may go; behind what it has parked already."""
        if not account.parked and size <= self.buffer.room(account.unsendable, account.buffered):
            return Place.BUFFER
        # What the buffer holds beyond its limit, large batches that moved in, is not held again.
        excess = min(0, self.buffer.free)
        if size <= self.parking.room(account.unsendable, account.parked) + excess:
            return Place.PARKING
        return Place.NOWHERE

    def fits(self, account: Account, size: int) -> bool:
        """Return whether a record fits into both pools together that is too large for a share.

        The first one of all partitions that cannot be sent may have any size: its topic may just
        not be known yet.
        """
        if not account.unsendable:
            return size > self.buffer.half and size <= min(self.room(account), self.sendable_room())
        if size <= self.buffer.quarter:
            return False
        if size <= min(self.room(account), self.shared_room()):
            return True
        first = not self.buffer.unsendable and not self.parking.unsendable
        return first and size <= self.parking.limit - self.parking.total

    def room(self, account: Account) -> int:
        """How many bytes the partition may take in both pools together."""
        parking = max(0, self.parking.room(account.unsendable, account.parked))
        if account.parked:
            return parking
        return parking + max(0, self.buffer.room(account.unsendable, account.buffered))

    def sendable_room(self) -> int:
        """How many bytes partitions that can be sent may take in both pools together."""
        return self.buffer.free + self.parking.free

    def shared_room(self) -> int:
        """The same for partitions that cannot be sent, all of them together."""
        return sum(max(0, pool.half - pool.unsendable) for pool in (self.buffer, self.parking))

    def take(self, account: Account, size: int, parked: bool) -> None:
        """`size` more bytes are held."""
        if parked:
            account.parked += size
            self.parking.add(account.unsendable, size)
        else:
            account.buffered += size
            buffer = self.buffer
            if account.unsendable:
                buffer.add(True, size)
            else:  # As `add` does, without the call: every batch comes here.
                buffer.total += size
                buffer.free -= size
        total = self.buffer.total + self.parking.total
        if total > self.peak:
            self.peak = total

    def give(self, account: Account, size: int, parked: bool) -> None:
        """`size` bytes are free again."""
        self.take(account, -size, parked)

    def set_unsendable(self, account: Account, unsendable: bool) -> None:
        """The partition cannot be sent now, or it can again."""
        if account.unsendable is unsendable:
            return
        for pool, held in ((self.buffer, account.buffered), (self.parking, account.parked)):
            pool.add(account.unsendable, -held)
            pool.add(unsendable, held)
        account.unsendable = unsendable

    def may_move_in(self, account: Account, size: int, *, beyond: bool = False) -> bool:
        """Whether a parked batch of the partition may move into the buffer.

        It may when less than three quarters are in use: of the buffer, or for a partition that
        cannot be sent, of its shares of it. `beyond` lets a batch exceed the limit then; a large
        one might never find room otherwise, as partitions that cannot be sent may hold half.
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
