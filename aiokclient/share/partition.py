"""A partition as its leader serves it to one member: what is acquired, and what is to be sent.

All acknowledgements of a partition in one request succeed or fail together, because of one late
record, for example. So a refused batch whose locks are certain is cut into halves, which are sent
one after the other, until the record is found that was refused. Until then, nothing else of the
partition is sent.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from aiokclient.share.locks import (
    AcknowledgeType,
    Acquisition,
    LockEvent,
    LockState,
    Reason,
    Run,
)

if TYPE_CHECKING:
    from uuid import UUID

    from aiokclient.clock import Clock
    from aiokclient.types import TopicPartition


class SharePartition:
    """The acquisitions of one partition at one leader."""

    def __init__(self, tp: TopicPartition, topic_id: UUID, clock: Clock) -> None:
        self.tp = tp
        self.clock = clock
        self.topic_id = topic_id
        self.is_assigned = True
        """Whether records are to be fetched from this leader."""
        self.retry_at = 0.0
        """The time before which nothing is fetched, after an error of the partition."""
        self.failures = 0
        """The number of consecutive fetches with an error of the partition."""
        self.has_settled = False
        """Whether there may be settled records that are not sent."""
        self.settle_at = -math.inf
        """The time before which nothing is acknowledged, after a temporary error."""
        self.settle_failures = 0
        """The number of consecutive temporary errors of acknowledgements."""
        self.renew_at = -math.inf
        """The time before which no lock is renewed, after an error."""
        self.renew_failures = 0
        """The number of consecutive errors of renewals."""
        self.leader_epoch = -1
        """The leader epoch by metadata, -1 if unknown."""
        self.requested_epoch = -1
        """The leader epoch that was known when records were requested last."""
        self.is_doubted = False
        """Whether the leader is to be asked if the topic still exists."""
        self.is_split = False
        """Whether what was taken last is a part of a refused acknowledgement."""
        self._acquisitions: list[Acquisition] = []
        self._pieces: deque[list[Run]] = deque()
        """Parts of refused acknowledgements, which are sent one by one."""

    def __repr__(self) -> str:
        return f"<SharePartition {self.tp}, {len(self._acquisitions)} acquisitions>"

    @property
    def acquisitions(self) -> Iterable[Acquisition]:
        return self._acquisitions

    def has_open(self) -> bool:
        """Return whether any record is acquired whose state is not final."""
        return any(each.has_open() for each in self._acquisitions)

    def add_acquisition(self, acquisition: Acquisition) -> None:
        """Add offsets that were acquired."""
        self._acquisitions.append(acquisition)

    def remove_finished(self) -> None:
        """Forget the acquisitions all of whose records are in final states."""
        kept: list[Acquisition] = []
        for acquisition in self._acquisitions:
            if acquisition.has_open():
                kept.append(acquisition)
            else:
                acquisition.forget_records()
        self._acquisitions = kept

    def settle_run(self, run: Run, kind: AcknowledgeType) -> None:
        """Settle those of these records that are neither settled nor lost."""
        run.acquisition.settle_run(kind, run.start, run.stop)
        self.has_settled = True

    def take_settled(self, now: float) -> tuple[list[Run], list[Run]]:
        """Return what is settled and to be sent next, and what is settled and has expired.

        The former is in the order of offsets.
        """
        due: list[Run] = []
        expired: list[Run] = []
        while self._pieces and not due:
            for run in self._pieces.popleft():
                _sort_by_deadline(_settled_in(run), now, due, expired)
        self.is_split = bool(due)
        if not due:
            expired.clear()  # They are found again.
            for acquisition in self._acquisitions:
                runs = acquisition.find_runs(LockState.SETTLED)
                _sort_by_deadline(runs, now, due, expired)
        self.has_settled = self.is_split  # Other records may have been settled meanwhile.
        due.sort(key=_first_offset)
        return due, expired

    def return_runs(self, runs: Iterable[Run], *, is_certain: bool = True) -> None:
        """Send these acknowledgements again, because they were not applied, or possibly not."""
        for run in runs:
            if not is_certain:
                run.acquisition.doubtful.update(run.list_offsets())
            run.apply_event(LockEvent.RETURN)
        self.has_settled = True

    def split_runs(self, runs: list[Run]) -> None:
        """Send these acknowledgements again in two parts, because they were refused together."""
        self.return_runs(runs)
        self._pieces.extendleft(reversed(halve_runs(runs)))

    def find_open_runs(self) -> Iterator[Run]:
        """Yield the runs of records whose state is not final."""
        for acquisition in self._acquisitions:
            yield from acquisition.find_open_runs()

    def find_open_among(self, first: int, last: int) -> list[Run]:
        """Return the runs of these offsets whose state is not final."""
        found: list[Run] = []
        for acquisition in self._acquisitions:
            start = max(first - acquisition.first, 0)
            stop = min(last - acquisition.first + 1, len(acquisition.states))
            if start < stop:
                found += clip_runs(acquisition.find_open_runs(), start, stop)
        return found

    def find_ended(self, first: int, last: int, now: float) -> list[tuple[Run, Reason]]:
        """Return the locks of these offsets that have ended, and why.

        A leader acquires again only what is not locked. A lock that ends before its deadline was
        that of an earlier leader: in the meantime, the partition has moved away and back, which no
        answer says.
        """
        parts = [
            p for run in self.find_open_among(first, last) for p in split_by_deadline(run, now)
        ]
        found: list[tuple[Run, Reason]] = []
        for part in parts:
            is_over = part.acquisition.find_deadline(part.acquisition.first + part.start) <= now
            found.append((part, "expired" if is_over else "moved"))
        return found


def halve_runs(runs: Sequence[Run]) -> tuple[list[Run], list[Run]]:
    """Return the first half and the second half of these records."""
    half = sum(run.length for run in runs) // 2
    first: list[Run] = []
    second: list[Run] = []
    for run in runs:
        cut = min(max(half, 0), run.length)
        half -= cut
        middle = run.start + cut
        if cut:
            first.append(run._replace(stop=middle))
        if middle < run.stop:
            second.append(run._replace(start=middle))
    return first, second


def split_by_sent(run: Run) -> Iterator[Run]:
    """Yield the parts of a run of open records, each of them in flight or not as a whole."""
    states = run.acquisition.states
    start = run.start
    for index in range(run.start + 1, run.stop + 1):
        if index == run.stop or (states[index] ^ states[start]) & LockState.SENT:
            yield run._replace(start=start, stop=index)
            start = index


def _settled_in(run: Run) -> Iterator[Run]:
    """Yield those parts of a run that are settled."""
    return clip_runs(run.acquisition.find_runs(LockState.SETTLED), run.start, run.stop)


def clip_runs(runs: Iterable[Run], start: int, stop: int) -> Iterator[Run]:
    """Yield the parts of these runs that are between two indexes."""
    for run in runs:
        clipped = run._replace(start=max(run.start, start), stop=min(run.stop, stop))
        if clipped.start < clipped.stop:
            yield clipped


def _sort_by_deadline(runs: Iterable[Run], now: float, due: list[Run], expired: list[Run]) -> None:
    """Add these runs to `due`, or those whose locks are not certain to `expired`."""
    for run in runs:
        for part in split_by_deadline(run, now):
            certain = part.acquisition.find_deadline(part.acquisition.first + part.start) > now
            (due if certain else expired).append(part)


def split_by_deadline(run: Run, now: float) -> Iterator[Run]:
    """Yield the parts of a run whose locks have all ended at `now`, or none of them."""
    acquisition = run.acquisition
    if not acquisition.has_own_deadlines():
        yield run
        return
    start, certain = run.start, None
    for index, offset in zip(range(run.start, run.stop), run.list_offsets(), strict=True):
        is_certain = acquisition.find_deadline(offset) > now
        if certain is not None and is_certain != certain:
            yield run._replace(start=start, stop=index)
            start = index
        certain = is_certain
    yield run._replace(start=start)


def _first_offset(run: Run) -> int:
    return run.acquisition.first + run.start
