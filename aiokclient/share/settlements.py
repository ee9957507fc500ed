"""The outcomes of settlements, and those who wait for them or are told of them.

A settlement ends as confirmed, lost, or refused. A `commit` that was called before waits for it and
gives its outcome. The error of a settlement for which no `commit` waits is reported: to
`on_acknowledge_error`, or else to the log.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from aiokclient.clock import get_loop_clock
from aiokclient.errors import (
    AcknowledgeError,
    AcknowledgeErrors,
    ApiTimeoutError,
    IllegalStateError,
    KafkaError,
    LockLostError,
)
from aiokclient.share.delivery.record import ShareRecord
from aiokclient.share.locks import AcknowledgeType, Acquisition, LockEvent, LockState, Reason, Run
from aiokclient.share.partition import split_by_deadline

if TYPE_CHECKING:
    from aiokclient.share.engine import ShareEngine
    from aiokclient.share.meters import ShareMeters


def make_lost_error(
    record: ShareRecord[Any, Any], reason: Reason, confirmed: bool | None = False
) -> LockLostError:
    """Return the error for a record whose lock was lost."""
    return LockLostError(record=record, reason=reason, confirmed=confirmed)


def lock_of(record: ShareRecord[Any, Any]) -> Acquisition:
    """Return the lock of a record. Raises IllegalStateError if it never had one."""
    if record._acquisition is None:
        raise IllegalStateError(
            f"The record of {record.topic}-{record.partition} at offset {record.offset} has no "
            "lock: no ShareConsumer has delivered it."
        )
    return record._acquisition


DROPPED = (
    "A tracked record of %s-%d at offset %d was garbage collected without being settled. It is "
    "released. Settle each record: by done(), release(), or reject(), or use processing()."
)


class Pending:
    """The outcomes for which one call of `commit` waits."""

    def __init__(self, records: Iterable[ShareRecord[Any, Any]]) -> None:
        self.records = list(records)
        self.outcomes: dict[ShareRecord[Any, Any], KafkaError | None] = {}
        self._waiting = {_key(record) for record in self.records}

    def covers(self, record: ShareRecord[Any, Any]) -> bool:
        """Return whether the call waits for this record."""
        return _key(record) in self._waiting


def _key(record: ShareRecord[Any, Any]) -> tuple[int, int]:
    return id(record._acquisition), record.offset


class Settlements:
    """The settlements of one consumer."""

    def __init__(self, engine: ShareEngine) -> None:
        self._engine = engine
        self._meters: ShareMeters = engine.meters
        self._pending: list[Pending] = []
        self._changed = engine.new_wakeup()
        self.lost = engine.new_wakeup()
        """A flag that is set when locks were lost."""
        self.get_time = get_loop_clock()
        """The loop's clock, in seconds."""

    # -- settling, for the application

    def settle(self, record: ShareRecord[Any, Any], kind: AcknowledgeType) -> bool:
        """Settle a delivered record; return whether its lock was still held. Synchronous.

        Raises IllegalStateError if the record is settled already, or was not delivered by this
        consumer.
        """
        if self.settle_held(record, kind):
            return True
        acquisition, offset = lock_of(record), record.offset
        if self.is_held(record):
            index = offset - acquisition.first
            self.lose_run(Run(acquisition, index, index + 1), "expired", False, None)
        state = acquisition.get_state(offset)
        if state is LockState.LOST and record.offset not in acquisition.settled_late:
            acquisition.settled_late.add(record.offset)
            reason = acquisition.find_reason(record.offset)
            self._report(record, make_lost_error(record, reason))
            return False
        raise IllegalStateError(
            f"{record.topic}-{record.partition} at offset {record.offset} is settled already. "
            "Settle each record once: by done(), release(), or reject()."
        )

    def settle_held(self, record: ShareRecord[Any, Any], kind: AcknowledgeType) -> bool:
        """Settle a record if it is held and its lock is certain; return whether it was so."""
        acquisition = record._acquisition or lock_of(record)
        left_s = acquisition.settle_record(record, kind, self.get_time())
        if not left_s:
            return False
        engine = self._engine
        self._meters.on_record_settled(kind, left_s)
        engine.wake_leaders()
        # Most settlements follow another one, after which nothing has waited yet.
        room, lost = engine.reader.room, self.lost
        if not room.is_set:
            room.set()
        if not lost.is_set:
            lost.set()
        return True

    def end_handling(self, record: ShareRecord[Any, Any], kind: AcknowledgeType) -> None:
        """Settle a record after its handler, unless that has settled it or the lock is lost."""
        if not self.settle_held(record, kind) and self.is_held(record):
            self.settle(record, kind)  # The lock is over, which is reported.

    def ask_renewal(self, record: ShareRecord[Any, Any]) -> bool:
        """Have the lock of a held record renewed; return whether it was still held. Synchronous.

        Raises IllegalStateError if the record is settled.
        """
        acquisition = lock_of(record)
        is_lost = acquisition.is_lost(record.offset)
        if acquisition.get_state(record.offset) is LockState.HELD and not is_lost:
            self._engine.renewals.ask(record)
            return True
        if not is_lost:
            raise IllegalStateError(
                f"{record.topic}-{record.partition} at offset {record.offset} is not held, so its "
                "lock cannot be renewed."
            )
        self._report(record, self.take_lost_error(record, acquisition.find_reason(record.offset)))
        return False

    # -- outcomes, for leaders

    def confirm_run(self, run: Run) -> None:
        """Record that a broker has applied these settlements in time."""
        run.apply_event(LockEvent.CONFIRM)
        for pending in self._pending:
            for record in run.acquisition.find_records(run):
                if pending.covers(record):
                    pending.outcomes[record] = None
        self._changed.set()

    def lose_run(
        self, run: Run, reason: Reason, confirmed: bool | None, cause: KafkaError | None
    ) -> None:
        """Record that the locks of these records are lost."""
        acquisition = run.acquisition
        self._engine.reader.on_lost(acquisition)
        held: list[ShareRecord[Any, Any]] = []
        settled: list[ShareRecord[Any, Any]] = []
        for record in run.acquisition.find_records(run):
            state = acquisition.get_state(record.offset)
            if state is LockState.HELD:
                held.append(record)
            elif state in (LockState.SETTLED, LockState.SENT):
                settled.append(record)
        run.apply_event(LockEvent.LOSE)
        acquisition.note_reason(run, reason)
        self._meters.on_lost(reason, len(held) + len(settled), confirmed)
        for record in settled:
            acquisition.settled_late.add(record.offset)
            in_doubt = confirmed is False and record.offset in acquisition.doubtful
            error = make_lost_error(record, reason, None if in_doubt else confirmed)
            error.__cause__ = cause
            self._report(record, error)
        for record in held:
            self._meters.emit_lost(record, reason)
            scope = acquisition.scopes.get(record.offset)
            if scope is not None:
                scope.on_lost(reason)
        self._engine.renewals.on_lost(held, reason)
        self.lost.set()
        self._engine.reader.on_settled()
        self._changed.set()

    def lose_expired(self, acquisition: Acquisition, state: LockState, now: float) -> float:
        """Lose the locks of records in a state that have ended; return when the next one ends."""
        for run in list(acquisition.find_runs(state)):
            for part in split_by_deadline(run, now):
                if acquisition.find_deadline(acquisition.first + part.start) <= now:
                    self.lose_run(part, "expired", False, None)
        return acquisition.find_first_deadline(state)

    def refuse_run(self, run: Run, error: KafkaError) -> None:
        """Record that a broker refuses these settlements."""
        run.apply_event(LockEvent.REFUSE)
        for record in run.acquisition.find_records(run):
            refusal = AcknowledgeError(str(error), record=record)
            refusal.__cause__ = error
            self._report(record, refusal)
        self._changed.set()

    def count_held(self) -> int:
        """Return the number of records that are delivered and not settled."""
        self._engine.settle_passed()
        held = sum(leader.count_state(LockState.HELD) for leader in self._engine.list_leaders())
        return held - self._engine.reader.count_kept()

    def is_held(self, record: ShareRecord[Any, Any]) -> bool:
        """Return whether a record is delivered and not settled, and its lock not known as lost."""
        # It may wait to be known as delivered; see `ShareReader.settle_passed`.
        return lock_of(record).get_state(record.offset) in (LockState.WAITING, LockState.HELD)

    def list_held_records(self, acquisition: Acquisition) -> list[ShareRecord[Any, Any]]:
        """Return the records of an acquisition that are delivered and not settled."""
        return [
            record
            for run in acquisition.find_runs(LockState.HELD)
            for record in run.acquisition.find_records(run)
        ]

    def note_drop(self, acquisition: Acquisition, _: Any) -> None:
        """Release a tracked record that was garbage collected. Called at any moment."""
        if not acquisition.is_drop_noted:
            acquisition.is_drop_noted = True
            self._engine.call_soon(self._release_dropped, acquisition)

    def _release_dropped(self, acquisition: Acquisition) -> None:
        acquisition.is_drop_noted = False
        self._engine.settle_passed()
        dropped = [
            offset
            for offset in acquisition.take_dropped()
            if acquisition.get_state(offset) is LockState.HELD
        ]
        for offset in dropped:
            index = offset - acquisition.first
            run = Run(acquisition, index, index + 1)
            acquisition.partition.settle_run(run, AcknowledgeType.RELEASE)
            text, extra = DROPPED, {"event": "share_record_dropped"}
            self._engine.limited_log.write(
                logging.WARNING, "dropped", text, *acquisition.partition.tp, offset, extra=extra
            )
        if dropped:
            self._engine.reader.on_settled()
            self._engine.wake_leaders()

    def take_lost_error(self, record: ShareRecord[Any, Any], reason: Reason) -> LockLostError:
        """Return the error of a lost record, which the caller raises or reports."""
        lock_of(record).settled_late.add(record.offset)
        return make_lost_error(record, reason)

    def report_lost(self, record: ShareRecord[Any, Any], error: LockLostError) -> None:
        """Report the loss of a record that nothing raises."""
        self._report(record, error)

    def _report(self, record: ShareRecord[Any, Any], error: KafkaError) -> None:
        covered = False
        for pending in self._pending:
            if pending.covers(record):
                pending.outcomes[record] = error
                covered = True
        self._meters.on_acknowledge_error(error)
        self._changed.set()
        if not covered:
            self._tell(error)

    def _tell(self, error: KafkaError) -> None:
        handler = self._engine.on_acknowledge_error.get()
        if handler is not None:
            self._engine.supervisor.callbacks.call_soon(handler, error)
            return
        text, extra = "A settlement failed: %s", {"event": "share_settlement_failed"}
        self._engine.limited_log.write(
            logging.WARNING, ("settlement", type(error).__name__), text, error, extra=extra
        )

    # -- commit

    def find_unconfirmed(self) -> list[ShareRecord[Any, Any]]:
        """Return the records that are settled and not confirmed, and those to be renewed."""
        found: dict[tuple[int, int], ShareRecord[Any, Any]] = {}
        for leader in self._engine.list_leaders():
            for acquisition in leader.list_acquisitions():
                for state in (LockState.SETTLED, LockState.SENT):
                    for run in acquisition.find_runs(state):
                        for record in run.acquisition.find_records(run):
                            found[_key(record)] = record
        for record in self._engine.renewals.list_asked():
            found[_key(record)] = record
        return list(found.values())

    async def wait_for_outcomes(
        self, records: Iterable[ShareRecord[Any, Any]], timeout: float, *, return_exceptions: bool
    ) -> dict[ShareRecord[Any, Any], KafkaError | None]:
        """Wait until these settlements and renewals have outcomes, and return them.

        Raises AcknowledgeErrors unless `return_exceptions`, and ApiTimeoutError after `timeout`
        seconds.
        """
        pending = Pending(records)
        clock = self._engine.cluster.clock
        until = clock.monotonic() + timeout
        self._pending.append(pending)
        try:
            while not self._is_complete(pending):
                failure = self._engine.get_failure(raised=True)
                if failure is not None:
                    raise failure
                if not await self._changed.wait(until):
                    raise ApiTimeoutError(
                        f"Settlements had no outcome within {timeout:.1f} s. They go on; a commit "
                        "later waits for them again."
                    )
            self._changed.set()  # Another call may wait.
        finally:
            self._pending.remove(pending)
        errors = [error for error in pending.outcomes.values() if error is not None]
        if errors and not return_exceptions:
            raise AcknowledgeErrors(f"{len(errors)} settlements have failed", errors)
        return pending.outcomes

    def _is_complete(self, pending: Pending) -> bool:
        for record in pending.records:
            if record in pending.outcomes:
                continue
            acquisition = lock_of(record)
            state = acquisition.get_state(record.offset)
            if state in (LockState.SETTLED, LockState.SENT) or self._engine.renewals.is_asked(
                record
            ):
                return False
            if state is LockState.LOST:
                reason = acquisition.find_reason(record.offset)
                pending.outcomes[record] = make_lost_error(record, reason)
            else:
                pending.outcomes[record] = None
        return True

    def wake_waiting(self) -> None:
        """Wake all waiting calls. Synchronous."""
        self._changed.set()
        self.lost.set()

    async def wait_for_change(self) -> None:
        """Wait until a record was settled or lost."""
        await self.lost.wait()

    async def wait_until_drained(self, timeout: float | None) -> None:
        """Wait until no record is held, and all settlements have outcomes."""
        clock = self._engine.cluster.clock
        until = math.inf if timeout is None else clock.monotonic() + timeout
        while self.count_held() or self._engine.has_unsent():
            failure = self._engine.get_failure(raised=True)
            if failure is not None:
                raise failure
            if not await self._changed.wait(until):
                raise ApiTimeoutError(
                    f"{self.count_held()} records are still held after {timeout:.1f} s."
                )
        self._changed.set()

    def report_renewal(self, record: ShareRecord[Any, Any], error: KafkaError | None) -> None:
        """Record the outcome of a renewal that the application has asked for."""
        for pending in self._pending:
            if pending.covers(record) and record not in pending.outcomes:
                pending.outcomes[record] = error
        self._changed.set()

    # -- bodies of `processing`

    def add_scope(self, record: ShareRecord[Any, Any], scope: Any) -> None:
        """Tell this scope when the lock of the record is lost."""
        lock_of(record).scopes[record.offset] = scope

    def remove_scope(self, record: ShareRecord[Any, Any]) -> None:
        """Tell no scope about the record any more."""
        lock_of(record).scopes.pop(record.offset, None)
