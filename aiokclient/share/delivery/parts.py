"""Fetched records on their way from leaders to the application.

A `FetchedPart` is one partition of an answer. Its batches are decoded into slices, each of one
acquisition. An iteration over single records takes them from an `Exposure` without calling the
reader, which finds out later how many it has taken.
"""

from __future__ import annotations

import asyncio
import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from operator import attrgetter, length_hint
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from aiokclient.decoding.batches import Loaded
from aiokclient.decoding.preparation import Preparation
from aiokclient.record.batch import RecordBatch
from aiokclient.share.delivery.record import ShareRecord
from aiokclient.share.locks import LEFT_AT_DELIVERY, Acquisition, LockState, Run
from aiokclient.types import ConsumerRecord

if TYPE_CHECKING:
    from aiokclient.record.stream import RecordStream
    from aiokclient.share.delivery.iterators import ShareIterator
    from aiokclient.share.partition import SharePartition

RawRecord: TypeAlias = "ConsumerRecord[Any, Any]"

EXPOSED_S: Final = 0.01
"""The seconds for which a loop takes records without calling the reader."""


class Slice:
    """Decoded records of one acquisition, of which those from `index` on are not delivered."""

    __slots__ = ("acquisition", "index", "is_kept", "is_ready", "preparation", "records")

    def __init__(
        self,
        acquisition: Acquisition,
        records: Sequence[RawRecord],
        *,
        is_ready: bool = False,
        is_kept: bool = False,
    ) -> None:
        self.acquisition = acquisition
        self.records = records
        self.index = 0
        self.is_ready = is_ready
        """Whether the records are deserialized, and have their locks."""
        self.is_kept = is_kept
        """Whether the locks are renewed before the delivery, for a preparation."""
        self.preparation: Preparation | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether the next record must be prepared first."""
        return self.preparation is not None and not self.preparation.has_ended

    def move_to(self, offset: int) -> None:
        """Go on at the first record from this offset on."""
        self.index = bisect_left(self.records, offset, key=attrgetter("offset"))

    def count_kept(self) -> int:
        """Return the number of records that are kept, and whose locks are not lost."""
        if not self.is_kept or self.index >= len(self.records):
            return 0
        first = self.acquisition.first
        start, stop = self.records[self.index].offset - first, self.records[-1].offset - first + 1
        return self.acquisition.states.count(LockState.HELD, start, stop)


class FetchedPart:
    """One partition of an answer: record batches, and the acquired offsets in them."""

    __slots__ = ("acquired", "batches", "job", "partition", "position", "rest", "slices")

    def __init__(
        self, partition: SharePartition, batches: list[RecordBatch], acquired: list[Acquisition]
    ) -> None:
        self.partition = partition
        self.acquired = acquired
        self.batches = deque(batches)
        """The batches that are not decoded."""
        self.slices: deque[Slice] = deque()
        self.job: asyncio.Future[Loaded] | None = None
        """The thread that reads the next batch, or the next part of it."""
        self.rest: RecordStream | None = None
        """The rest of a batch that is read in parts."""
        self.position = 0
        """The offset from which the next batch is not decoded."""

    def end_batch(self) -> None:
        """Go on with the next batch."""
        self.position = self.batches.popleft().next_offset
        self.rest = None

    def find_acquired(self, first: int, last: int) -> Iterator[Run]:
        """Yield the acquired offsets from `first` to `last`."""
        for acquisition in self.acquired:
            start = max(first - acquisition.first, 0)
            stop = min(last - acquisition.first + 1, len(acquisition.states))
            if start < stop:
                yield Run(acquisition, start, stop)


class Exposure:
    """Records of one acquisition that an iterator takes without calling the reader."""

    __slots__ = ("_offsets", "acquisition", "is_kept", "passed")

    is_tracked = False
    """Whether each record is settled on its own."""

    def __init__(
        self, acquisition: Acquisition, records: list[ShareRecord[Any, Any]], *, is_kept: bool
    ) -> None:
        self.acquisition = acquisition
        self.is_kept = is_kept
        """Whether the locks were renewed before the delivery, for a preparation."""
        self.passed = 0
        """The number of records that are known to be delivered."""
        self._offsets: Sequence[int] = range(records[0].offset, records[-1].offset + 1)
        if len(self._offsets) != len(records):
            self._offsets = [record.offset for record in records]

    def find_index(self, number: int) -> int:
        """Return the index of a record in the acquisition."""
        return self._offsets[number] - self.acquisition.first

    def count_kept(self) -> int:
        """Return the number of records that are kept and not passed, with locks."""
        if not self.is_kept or self.passed == len(self._offsets):
            return 0
        start, stop = self.find_index(self.passed), self.find_index(-1) + 1
        return self.acquisition.states.count(LockState.HELD, start, stop)

    def count_passed(self) -> int:
        """Return the number of records that the iterator has taken."""
        raise NotImplementedError

    def mark_passed(self, count: int) -> None:
        """Record how many records are known to be delivered."""
        self.passed = count

    def take_rest(self) -> list[ShareRecord[Any, Any]]:
        """Take the records that are not passed; the iterator calls the reader for its next one."""
        raise NotImplementedError

    def interrupt(self) -> None:
        """Make the iterator call the reader for its next record. Safe in any thread."""
        raise NotImplementedError


class LoopExposure(Exposure):
    """Records for a loop over the consumer, which accepts a record by requesting the next one."""

    __slots__ = ("_cursor", "_iterator", "_kept", "_records")

    def __init__(
        self,
        acquisition: Acquisition,
        records: list[ShareRecord[Any, Any]],
        cursor: ShareIterator[Any, Any],
        *,
        is_kept: bool,
    ) -> None:
        super().__init__(acquisition, records, is_kept=is_kept)
        self._cursor = cursor
        self._records = records
        self._iterator = iter(records)
        self._kept: list[ShareRecord[Any, Any]] = []
        acquisition.keep_records(self._kept)
        cursor.expose(self._iterator, EXPOSED_S)

    def take_first(self) -> ShareRecord[Any, Any]:
        """Take the first record, for the iterator."""
        return next(self._iterator)

    def count_passed(self) -> int:
        return len(self._records) - length_hint(self._iterator)

    def mark_passed(self, count: int) -> None:
        self._kept += self._records[self.passed : count]
        self.passed = count

    def take_rest(self) -> list[ShareRecord[Any, Any]]:
        self._cursor.expose(iter(()), 0.0)
        return self._records[self.passed :]

    def interrupt(self) -> None:
        self._cursor.interrupt()


class TrackedExposure(Exposure):
    """Records for concurrent handlers. Nothing else refers to them before they are taken."""

    __slots__ = ("_count", "left", "until")

    is_tracked = True

    def __init__(
        self, acquisition: Acquisition, records: list[ShareRecord[Any, Any]], *, is_kept: bool
    ) -> None:
        super().__init__(acquisition, records, is_kept=is_kept)
        self._count = len(records)
        self.left = records[::-1]
        """The records that are not taken, in reverse order."""
        kept_s = acquisition.lock_s * LEFT_AT_DELIVERY
        self.until = math.inf if is_kept else acquisition.deadline - kept_s
        """The time until which they may be delivered."""

    def count_passed(self) -> int:
        return self._count - len(self.left)

    def take_rest(self) -> list[ShareRecord[Any, Any]]:
        rest = self.left[::-1]
        self.left.clear()
        return rest

    def interrupt(self) -> None:
        self.until = -math.inf
