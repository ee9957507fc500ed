"""Commits that need no task.

Most commits only wait for two responses: to the last records, and to EndTxn. A task for that, with
its timeouts and cancel scopes, costs more than the two requests. Therefore the callback of the
first response sends EndTxn, and the callback of the second one ends the operation. In the following
cases, `go_on` starts a task for the remaining work:

- before EndTxn was sent: a record failed, callbacks of deliveries are still to be called, offsets
  are to be committed, the coordinator is not connected, or the deadline has passed. The task does
  the whole commit from its beginning, because it does no harm to wait for the records once more.
- after EndTxn was sent: the attempt failed. The task continues with the error of that attempt.

One timer serves the deadlines of all commits. It is rarely set again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from aiokclient.errors import KafkaError
from aiokclient.network.wake_timer import WakeTimer
from aiokclient.producer.batching.accumulator import Accumulator
from aiokclient.producer.transaction.offsets import ConsumerReads, Offsets
from aiokclient.producer.transaction.operation import Operation
from aiokclient.producer.transaction.requests import TransactionRequests
from aiokclient.producer.transaction.states import TransactionState
from aiokclient.producer.transaction.status import (
    CurrentTransaction,
    ProducerIdentity,
    TransactionStatus,
)

if TYPE_CHECKING:
    from aiokclient.clock import Clock

__all__ = ["Commit", "CommitEnds", "DirectCommit", "LastOffsets"]

LastOffsets = Callable[[], Iterable[tuple[Offsets, ConsumerReads]]]
"""A function that is called when all records of the transaction are written. It returns the offsets
to add to the transaction.
"""


class Commit:
    """One commit, with its times on the monotonic clock."""

    __slots__ = ("began", "current", "deadline", "last_offsets", "operation", "timeout")

    def __init__(
        self,
        current: CurrentTransaction,
        began: float,
        timeout: float | None,
        flush_s: float,
        last_offsets: LastOffsets | None,
    ) -> None:
        """`timeout` limits the whole commit, and `flush_s` the wait for the records."""
        self.operation = Operation()
        self.current = current
        self.began = began
        self.timeout = timeout
        self.deadline = began + (flush_s if timeout is None else min(flush_s, timeout))
        """The deadline for the records. After them, `end_by` sets it to the deadline for EndTxn."""
        self.last_offsets = last_offsets

    def end_by(self, deadline: float) -> None:
        """Set the deadline of the requests after the records, unless the call has a timeout."""
        self.deadline = deadline if self.timeout is None else self.began + self.timeout


class CommitEnds(Protocol):
    """The owner of a commit, which ends it or continues with it in a task."""

    def committed(self, commit: Commit, following: ProducerIdentity) -> None:
        """Handle a successful commit. `following` is the next identity."""

    def go_on(self, commit: Commit, earlier: KafkaError | None = None) -> None:
        """Continue in a task. `earlier` is the error of the first EndTxn, if that was sent."""

    def late(self, commit: Commit) -> None:
        """Handle the deadline of a commit whose EndTxn request has no response yet."""


class DirectCommit:
    """The commit in progress, while it needs no task."""

    def __init__(
        self,
        accumulator: Accumulator,
        clock: Clock,
        status: TransactionStatus,
        requests: TransactionRequests,
        ends: CommitEnds,
        end_s: float,
    ) -> None:
        """Begin with no commit in progress. `end_s` is the time in seconds for EndTxn."""
        self._accumulator = accumulator
        self._clock = clock
        self._status = status
        self._requests = requests
        self._ends = ends
        self._end_s = end_s
        self._commit: Commit | None = None
        self._sent = False
        """Whether EndTxn was sent."""
        callbacks = accumulator.callbacks
        self._timer = WakeTimer(accumulator.loop, callbacks.guard(self._expire))
        self._answered = callbacks.bound(self._handle)

    def begin(self, commit: Commit) -> None:
        """Send the records of a commit, and later EndTxn. Never raises."""
        self._commit, self._sent = commit, False
        self._timer.wake_at(commit.deadline)
        self._accumulator.demand_all()
        if not self._accumulator.pending:
            self._accumulator.callbacks.run(self.advance)

    def advance(self) -> None:
        """Send EndTxn if all records have their outcome. Called after each produce response."""
        commit = self._commit
        if commit is None or self._sent or self._accumulator.pending:
            return
        if commit.operation.over:
            self._commit = None
        elif (
            commit.last_offsets is not None
            or self._status.state is not TransactionState.COMMITTING
            or self._accumulator.calling
        ):
            self.leave()
        elif not commit.current.written:
            self._commit = None
            self._end(commit, commit.current.identity)
        else:
            self._send(commit)

    def _send(self, commit: Commit) -> None:
        self._sent = True
        commit.end_by(self._clock.monotonic() + self._end_s)
        self._timer.wake_at(commit.deadline)
        answered = partial(self._answered, commit)
        if not self._requests.commit_now(commit.current, commit.current.identity, answered):
            self._sent = False
            self.leave()

    def leave(self) -> None:
        """Let a task do the commit, unless EndTxn was sent already."""
        commit = self._commit
        if commit is not None and not self._sent:
            self._commit = None
            self._ends.go_on(commit)

    def stop(self) -> None:
        """Stop the timer, because the producer is being closed.

        If EndTxn is in flight, it fails when the connection to the coordinator is closed.
        """
        self._timer.cancel()
        self.leave()

    def _handle(
        self, commit: Commit, following: ProducerIdentity | None, error: KafkaError | None
    ) -> None:
        if self._commit is not commit:
            return  # The deadline of this commit has passed.
        self._commit = None
        if commit.operation.over:
            return  # A restart or a change of the cluster has cancelled the commit.
        if following is None:
            self._ends.go_on(commit, error)
        else:
            commit.current.note_decided()
            self._end(commit, following)

    def _end(self, commit: Commit, following: ProducerIdentity) -> None:
        try:
            self._ends.committed(commit, following)
        except Exception as error:
            commit.operation.end(error)
            raise
        commit.operation.end(None)

    def _expire(self, due: float) -> None:
        commit = self._commit
        if commit is None or commit.operation.over:
            return
        if self._clock.monotonic() < commit.deadline:
            self._timer.wake_at(commit.deadline)
        elif not self._sent:
            self.leave()
        else:
            self._commit = None
            self._ends.late(commit)
