"""The steps of a record, and the records that the application is processing.

A record takes these steps. The offsets below are attributes of `PartitionState`.

    buffered     It was fetched. The application has not received it.
    delivered    The application has received it, and the *position* has moved past it. Both happen
                 in one step without an await, when a list is returned or when an iteration takes
                 the record. So a cancellation before this step loses no record, and one after it
                 causes no duplicate.
    in progress  It was delivered, and the application has not requested the next record. The
                 application may still be writing to other systems, so a revocation, a rewind, and
                 `close()` wait for it.
    processed    The application has requested the next record, called `mark_processed()`, or, for a
                 record of `tracked`, called `done()`. When a loop ends by a break, an exception, or
                 a cancellation, its last records do not become processed.
    committed    The group has stored an offset after it.

The offsets that are committed:

- An automatic commit uses `processed`. It never includes records in progress, and never goes below
  the group's committed offset, except after a seek.
- `commit()` uses `consumed`, which includes all delivered records, even those in progress; with
  `tracked`, it ends before the lowest record that is not done.

A seek, a reset, and a truncation move position, processed, and consumed to the same offset.

An iteration takes records from a list iterator without calling `Reader`. The progress of the
iteration is read from that iterator when it is needed, so `Reader.update_position` must be called
before positions are read or moved. `ReadLock` knows which task reads.

A record becomes processed in one of two ways:

- A record, list, or table is processed when the next one is requested. Until then its partition is
  stored in `_held`.
- A record from `tracked` is processed when `done` is called with it, in any order. Until then it is
  in `PartitionState.outstanding`, and the lowest such offset limits `processed`.

When records have been processed, `relieved` wakes a task that waits to revoke their partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from aiokclient.background import Wakeup
from aiokclient.consumer.state.partition import PartitionState
from aiokclient.types import ConsumerRecord


class InProgress:
    """The records that are in progress in one consumer."""

    def __init__(self) -> None:
        self._held: dict[PartitionState, None] = {}
        self._worked_on: dict[PartitionState, None] = {}
        self._tracking = False
        self.full = False
        """Whether a request waits because too many records are outstanding."""
        self.relieved = Wakeup()
        self._runs: Mapping[Any, float] | None = None
        """The calls of a worker's handler, with the time at which each began, or None.

        The worker changes this mapping.
        """
        self._aside = 0

    def on_delivered(
        self, state: PartitionState, processed: int | None, *, first: bool = False
    ) -> None:
        """Record that records were delivered and that the position has moved after them.

        `processed` is the offset up to which they are already processed, or None. `first` means
        that the record before the offset `processed` was in an earlier chunk, so that its leader
        epoch may be another one.
        """
        if self._tracking:
            state.mark_all_processed()
            return
        if processed is not None:
            state.mark_processed_before(processed, epoch_known=not first)
        self._held[state] = None

    def on_skipped(self, state: PartitionState) -> None:
        """Record that the position has moved past skipped records."""
        if state not in self._held:
            state.mark_all_processed()

    def on_request(self, *, tracking: bool = False, keeps: bool = False) -> None:
        """Count the held records as processed, because the application requests more.

        With `keeps`, they remain in progress: the application gets them together with the next.
        """
        self._tracking = tracking
        if keeps or not self._held:
            return
        for state in self._held:
            state.mark_all_processed()
        self._held.clear()
        if not self.relieved.is_set:
            self.relieved.set()

    def mark_processed(self) -> None:
        """Count all delivered records as processed, including those from `tracked`."""
        states = {**self._held, **self._worked_on}
        for state in states:
            state.forget_outstanding()
            state.mark_all_processed()
        self._held.clear()
        if states:
            self.relieved.set()

    def has_records_of(self, states: Iterable[PartitionState]) -> bool:
        """Return whether records of these partitions are in progress."""
        held = {} if self._aside else self._held
        return any(state in held or state.outstanding for state in states)

    @contextmanager
    def ignore_held_records(self) -> Iterator[None]:
        """Return a context in which held records do not count as in progress.

        It is for the task that processes these records: if that task waited until none are in
        progress, it would wait for itself.
        """
        self._aside += 1
        self.relieved.set()
        try:
            yield
        finally:
            self._aside -= 1

    def may_be_busy(self, state: PartitionState, asks: bool) -> bool:
        """Return whether records of the partition may still be in progress.

        `asks` says whether the application can still request more records. If not, held records do
        not count, because no request will mark them as processed.
        """
        return bool(state.outstanding) or (asks and state in self._held)

    def end_waiting_for_room(self) -> bool:
        """Return whether a request waits for outstanding records, and reset that state."""
        waits, self.full = self.full, False
        return waits

    def __bool__(self) -> bool:
        return bool(self._held) or self.count_outstanding() > 0

    # -- one by one

    def track_partition(self, state: PartitionState) -> None:
        """Record that `tracked` is about to deliver records of a partition.

        It records each of them by `PartitionState.track_record`.
        """
        self._worked_on[state] = None

    def mark_done(self, state: PartitionState, record: ConsumerRecord[Any, Any]) -> bool:
        """Count a record as processed; return False if it is not outstanding."""
        if not state.finish_record(record):
            return False
        if not state.outstanding:
            self.relieved.set()
        return True

    def count_outstanding(self) -> int:
        """Return the number of records, or lists, that are outstanding, of all partitions."""
        return sum(len(state.outstanding) for state in self._worked_on)

    def count_records(self) -> int:
        """Return roughly how many records are in progress: gaps in the offsets count, too."""
        held = sum(max(state.position - state.processed, 0) for state in self._held)
        return held + sum(state.count_outstanding() for state in self._worked_on)

    def has_room(self, limit: int) -> bool:
        """Return whether fewer than `limit` records are outstanding. Otherwise a request waits."""
        self._worked_on = {state: None for state in self._worked_on if state.outstanding}
        self.full = self.count_outstanding() >= limit
        return not self.full

    def follow_runs(self, runs: Mapping[Any, float] | None) -> None:
        """Measure the poll interval by the calls of a worker's handler; None ends that."""
        self._runs = runs

    def on_returned(self) -> None:
        """Record that outstanding records were returned, to be delivered again."""
        self.relieved.set()

    def find_oldest_delivery(self) -> float | None:
        """Return when the oldest outstanding record was delivered, or None if there is none.

        The records of a worker wait in its lanes, for other records or for a retry. So the
        beginning of the oldest call of its handler counts instead.
        """
        if self._runs is not None:
            # The worker adds each call when it begins, so that the first one is the oldest.
            return next(iter(self._runs.values()), None)
        states = [state for state in self._worked_on if state.outstanding]
        return min((next(iter(s.outstanding.values()))[1] for s in states), default=None)
