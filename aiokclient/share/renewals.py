"""The renewal of locks: by the consumer itself at half of their time, or asked for by `renew`.

Held records are renewed until `max_processing_ms` after their delivery. Renewals to one leader
travel together, in a request of their own. A renewal is certain only if its answer came before the
former deadline: brokers confirm anything below the start offset of the group.

A group can refuse renewals, and brokers before Kafka 4.2 have none. Then the consumer warns once,
and reports `LockExpiring` at three quarters of a lock. But brokers refuse renewals with the same
code if one lock of the partition has ended: see `RefusedRenewals`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from aiokclient.errors import AcknowledgeError, InvalidRecordStateError, KafkaError
from aiokclient.share.delivery.record import ShareRecord
from aiokclient.share.locks import Acquisition, LockState, Reason, Run
from aiokclient.share.partition import clip_runs, halve_runs, split_by_deadline
from aiokclient.share.settlements import lock_of, make_lost_error

if TYPE_CHECKING:
    from aiokclient.share.engine import ShareEngine
    from aiokclient.share.leader import ShareLeader
    from aiokclient.share.leader_partitions import LeaderPartitions
    from aiokclient.share.partition import SharePartition

RENEWED_AT: Final = 0.5
"""The part of a lock that is left when it is renewed."""

TOGETHER: Final = 0.125
"""The part of a lock by which a renewal may be early, so that others can travel with it."""

TOLD_AT: Final = 0.25
"""The part of a lock that is left when the application is told that it will end."""

NOT_RENEWED: Final = (
    "Locks of share group %s cannot be renewed: %s. A handler that takes longer than %.1f s loses "
    "its record."
)

TOO_LONG: Final = (
    "%s-%d at offset %d was not settled within max_processing_ms (%d). Its lock is not renewed any "
    "more, so that it will be delivered again."
)


class RefusedRenewals:
    """Renewals of a partition that were refused together, and are sent again in halves.

    A broker refuses all of them because of one lock that has ended, or because the group allows
    none. Once some are renewed, the group allows them, and a record that is refused alone has lost
    its lock. If the first record and then the last one are refused alone, and none was renewed, the
    group is taken to allow none: to send each record alone would take as long as there are records.
    """

    def __init__(self, *, is_allowed: bool) -> None:
        self.is_allowed = is_allowed
        """Whether the group is known to allow renewals."""
        self.suspects: list[Run] = []
        """The records that were refused alone while that is not known."""
        self._pieces: deque[list[Run]] = deque()

    def find_next(self, now: float) -> list[Run]:
        """Return what is to be sent next of it, [] if nothing is left."""
        while self._pieces:
            runs = self._pieces[self._index]
            found = [part for run in runs for part in _find_certain(run.acquisition, now, run)]
            if found:
                return found
            self.drop_next()
        return []

    @property
    def _index(self) -> int:
        return -1 if self.suspects else 0

    def drop_next(self) -> None:
        """Forget what was sent."""
        if self._pieces:
            del self._pieces[self._index]

    def add_halves(self, runs: Sequence[Run]) -> None:
        """Add the halves of what was refused."""
        halves = halve_runs(runs)
        if self.suspects:
            self._pieces.extend(halves)
        else:
            self._pieces.extendleft(reversed(halves))

    def take_suspects(self) -> list[Run]:
        """Return the suspects, which are none any more."""
        found, self.suspects = self.suspects, []
        return found


class Renewals:
    """The renewals of one consumer."""

    def __init__(self, engine: ShareEngine) -> None:
        self._engine = engine
        self._clock = engine.cluster.clock
        self._config = engine.config
        self._refusal: str | None = None
        """Why locks could not be renewed the last time, or None if they could."""
        self._forbidden_until = -math.inf
        """The time before which no lock is renewed, because the group does not allow it."""
        self._asked: dict[tuple[int, int], ShareRecord[Any, Any]] = {}
        """The records that the application wants to be renewed, without an outcome yet."""
        self._refused: dict[SharePartition, RefusedRenewals] = {}
        self._overdue: set[int] = set()
        """The acquisitions about which a warning was logged, by id."""

    @property
    def are_possible(self) -> bool:
        """Whether brokers and group allow renewals, as far as is known."""
        return self._forbidden_until <= self._clock.monotonic()

    @property
    def are_refused(self) -> bool:
        """Whether locks could not be renewed the last time."""
        return self._refusal is not None

    # -- when

    def check_held(self, leader: ShareLeader, acquisition: Acquisition, now: float) -> float:
        """Act on the locks of held records; return the time of the next check."""
        deadline = self._engine.settlements.lose_expired(acquisition, LockState.HELD, now)
        if deadline == math.inf:
            return math.inf
        if self._is_renewed(acquisition, now):
            due = deadline - acquisition.lock_s * RENEWED_AT
            if due > now:
                return due
            leader.wake.set()
        tell_at = deadline - acquisition.lock_s * TOLD_AT
        if tell_at > now:
            return tell_at
        self._tell_expiry(acquisition, now)
        return deadline

    def _is_renewed(self, acquisition: Acquisition, now: float) -> bool:
        """Return whether the consumer renews these locks by itself."""
        if not self._config.renew_locks or not self.are_possible:
            return False
        return now - acquisition.delivered_at < self._config.max_processing_ms / 1000

    def _tell_expiry(self, acquisition: Acquisition, now: float) -> None:
        if acquisition.is_expiry_told:
            return
        acquisition.is_expiry_told = True
        records = self._engine.settlements.list_held_records(acquisition)
        for record in records:
            self._engine.meters.emit_expiring(record)
        over = now - acquisition.delivered_at >= self._config.max_processing_ms / 1000
        if over and self._config.renew_locks and records:
            record, most = records[0], self._config.max_processing_ms
            extra = {"event": "share_processing_overdue"}
            name = record.topic, record.partition, record.offset
            self._engine.log.warning(TOO_LONG, *name, most, extra=extra)

    def find_due(self, partition: SharePartition, now: float) -> list[Run]:
        """Return the records of a partition whose locks are to be renewed now, in their order."""
        found: list[Run] = []
        if not self.are_possible:
            return found
        if partition in self._refused:
            if found := self._refused[partition].find_next(now):
                return found
            self._end_refused(partition)
        for acquisition in partition.acquisitions:
            automatic = self._is_renewed(acquisition, now)
            early = acquisition.lock_s * (RENEWED_AT + TOGETHER)
            for run in _find_certain(acquisition, now):
                if acquisition.is_doubted or (
                    automatic and acquisition.find_first_deadline(LockState.HELD) - early <= now
                ):
                    found.append(run)
                elif self._asked:
                    found += self._find_asked(run)
        found.sort(key=lambda run: run.acquisition.first + run.start)
        return found if self._has_due(found, now) else []

    def _has_due(self, runs: Iterable[Run], now: float) -> bool:
        """Return whether any of these renewals cannot wait for others."""
        return any(
            run.acquisition.is_doubted
            or run.acquisition.find_first_deadline(LockState.HELD)
            - run.acquisition.lock_s * RENEWED_AT
            <= now
            or any(self._key(run.acquisition, each) in self._asked for each in run.list_offsets())
            for run in runs
        )

    def _find_asked(self, run: Run) -> list[Run]:
        return [
            Run(run.acquisition, offset - run.acquisition.first, offset - run.acquisition.first + 1)
            for offset in run.list_offsets()
            if self._key(run.acquisition, offset) in self._asked
        ]

    def find_next_time(self, partitions: LeaderPartitions) -> float:
        """Return the time at which locks at a leader are to be renewed."""
        now = self._clock.monotonic()
        if not self.are_possible:
            return math.inf
        found = math.inf
        for acquisition in partitions.list_acquisitions():
            if acquisition.has_state(LockState.HELD) and self._is_renewed(acquisition, now):
                deadline = acquisition.find_first_deadline(LockState.HELD)
                if deadline <= now:
                    continue  # `LockWatch` did not come to lose it yet.
                due = deadline - acquisition.lock_s * RENEWED_AT
                found = min(found, max(due, acquisition.partition.renew_at))
        return found

    # -- asked for

    def _key(self, acquisition: Acquisition, offset: int) -> tuple[int, int]:
        return id(acquisition), offset

    def ask(self, record: ShareRecord[Any, Any]) -> None:
        """Renew the lock of a held record by the next request. Synchronous."""
        self._asked[self._key(lock_of(record), record.offset)] = record
        self._engine.wake_leaders()

    def is_asked(self, record: ShareRecord[Any, Any]) -> bool:
        """Return whether a renewal that was asked for has no outcome yet.

        The renewal of a record that was settled meanwhile has the outcome of the settlement.
        """
        key = self._key(lock_of(record), record.offset)
        if key in self._asked and not self._engine.settlements.is_held(record):
            del self._asked[key]
        return key in self._asked

    def list_asked(self) -> list[ShareRecord[Any, Any]]:
        """Return the records whose renewals were asked for and have no outcome yet."""
        return [record for record in list(self._asked.values()) if self.is_asked(record)]

    def _end_asked(self, acquisition: Acquisition, offset: int, error: KafkaError | None) -> None:
        record = self._asked.pop(self._key(acquisition, offset), None)
        if record is not None:
            self._engine.settlements.report_renewal(record, error)

    # -- outcomes

    def on_renewed(
        self, partition: SharePartition, runs: Iterable[Run], sent_at: float, lock_s: float
    ) -> None:
        """Record that a leader has renewed these locks of a partition."""
        now = self._clock.monotonic()
        self._allow()
        if refused := self._refused.get(partition):
            refused.drop_next()
            refused.is_allowed = True
            self._lose_runs(refused.take_suspects(), None)
        for run in runs:
            acquisition = run.acquisition
            acquisition.is_doubted = False
            lock_s = lock_s or acquisition.lock_s
            for part in split_by_deadline(run, now):
                if acquisition.find_deadline(acquisition.first + part.start) <= now:
                    self._engine.settlements.lose_run(part, "expired", False, None)
                    continue
                acquisition.extend_locks(part, sent_at + lock_s, lock_s)
                self._engine.meters.on_renewed(part.length)
                for offset in part.list_offsets() if self._asked else ():
                    self._end_asked(acquisition, offset, None)
        self._engine.watch.changed.set()

    def on_invalid(
        self,
        partition: SharePartition,
        runs: Sequence[Run],
        error: KafkaError,
        *,
        is_allowed: bool,
    ) -> None:
        """Record that a lock of these had ended, or that the group does not allow renewals.

        `is_allowed` says that others were renewed by the same request.
        """
        refused = self._refused.get(partition)
        if refused is not None:
            refused.drop_next()
            is_allowed |= refused.is_allowed
        if sum(run.length for run in runs) > 1:
            if refused is None:
                refused = self._refused[partition] = RefusedRenewals(is_allowed=is_allowed)
            refused.is_allowed = is_allowed
            refused.add_halves(runs)
        elif is_allowed:
            self._lose_runs([*runs, *(refused.take_suspects() if refused else ())], error)
        elif refused is not None and not refused.suspects:
            refused.suspects += runs
        else:
            self._refused.pop(partition, None)
            self.on_forbidden([*(refused.suspects if refused else ()), *runs], error)

    def _end_refused(self, partition: SharePartition) -> None:
        """Take it that the group allows no renewals if one was refused alone and nothing is left.

        The others were settled meanwhile, or are lost.
        """
        if suspects := self._refused.pop(partition).suspects:
            error = InvalidRecordStateError(api="ShareAcknowledge", topic_partition=partition.tp)
            self.on_forbidden(suspects, error)

    def _lose_runs(self, runs: Iterable[Run], error: KafkaError | None) -> None:
        for run in runs:
            self._engine.settlements.lose_run(run, "refused", False, error)

    def on_forbidden(self, runs: Iterable[Run], error: KafkaError) -> None:
        """Record that the group does not allow renewals. The locks stay until their deadlines.

        The configuration of the group may change, so that they are tried again after a lock.
        """
        runs = list(runs)
        self.forbid(str(error), runs[0].acquisition.lock_s)
        self.on_refused(runs, error)

    def on_refused(self, runs: Iterable[Run], error: KafkaError) -> None:
        """Record that these renewals were refused. The locks stay until their deadlines."""
        for run in runs:
            for offset in run.list_offsets():
                record = self._asked.get(self._key(run.acquisition, offset))
                if record is not None:
                    refusal = AcknowledgeError(f"It was not renewed: {error}", record=record)
                    refusal.__cause__ = error
                    self._end_asked(run.acquisition, offset, refusal)

    def forbid(self, why: str, lock_s: float) -> None:
        """Renew no locks until a lock has passed, and warn the first time. Synchronous."""
        self._forbidden_until = self._clock.monotonic() + lock_s
        if self._refusal is None:
            self._refusal = why
            group, extra = self._engine.group_id, {"event": "share_renewal_impossible"}
            if self._config.renew_locks:
                text = why.removesuffix(".")
                self._engine.log.warning(NOT_RENEWED, group, text, lock_s, extra=extra)
            self._engine.watch.changed.set()

    def _allow(self) -> None:
        """Record that the group allows renewals."""
        self._refusal, self._forbidden_until = None, -math.inf

    def on_lost(self, records: Iterable[ShareRecord[Any, Any]], reason: Reason) -> None:
        """Give the renewals of lost records their outcome."""
        if not self._asked:
            return
        for record in records:
            key = self._key(lock_of(record), record.offset)
            if self._asked.pop(key, None) is not None:
                error = make_lost_error(record, reason)
                self._engine.settlements.report_renewal(record, error)

    def list_troubles(self) -> list[str]:
        """Return why locks cannot be renewed, as texts. Synchronous."""
        if self._refusal is None or not self._config.renew_locks:
            return []
        return [f"renewal is not possible: {self._refusal}"]


def _find_certain(acquisition: Acquisition, now: float, within: Run | None = None) -> Iterator[Run]:
    """Yield the runs of held records whose locks are certain. Others would spoil the renewal."""
    held = acquisition.find_runs(LockState.HELD)
    for run in held if within is None else clip_runs(held, within.start, within.stop):
        for part in split_by_deadline(run, now):
            if acquisition.find_deadline(acquisition.first + part.start) > now:
                yield part
