"""The end of a transaction: operations in progress, commits without a task, and what follows them.

A commit or an abort is an `Operation` that its caller waits for, and that a cancellation of the
caller does not stop.

Most commits only wait for two responses: to the last records, and to EndTxn. With a task for that,
its timeouts, and its cancel scopes, a transaction of one record takes 59% more instructions
(measured by callgrind: 908,000 instead of 572,000). Therefore the callback of the first response
sends EndTxn, and the callback of the second one ends the operation. In the following cases,
`TransactionManager.continue_commit` starts a task for the remaining work:

- before EndTxn was sent: a record failed, callbacks of deliveries are still to be called, offsets
  are to be committed, the coordinator is not connected, or the deadline has passed. The task does
  the whole commit from its beginning, because it does no harm to wait for the records once more.
- after EndTxn was sent: the attempt failed. The task continues with the error of that attempt.

One timer serves the deadlines of all commits. It is rarely set again.

After the end, `MarkerPause` says how long the next transaction waits for the markers of this one.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from aiokclient.background import WakeTimer, ended
from aiokclient.errors import ClosedError, KafkaError
from aiokclient.producer.batching.accumulator import Accumulator
from aiokclient.producer.transaction.requests import TransactionRequests
from aiokclient.producer.transaction.states import TransactionState
from aiokclient.producer.transaction.status import (
    CurrentTransaction,
    ProducerIdentity,
    TransactionOutcome,
    TransactionStatus,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiokclient.clock import Clock
    from aiokclient.metrics import Histogram, OwnMetrics, Timed
    from aiokclient.producer.transaction.manager import TransactionManager
    from aiokclient.producer.transaction.offsets import ConsumerReads

__all__ = ["Commit", "DirectCommit", "MarkerPause", "Operation", "TransactionMeters"]

LATE_S = 0.012
"""The least number of seconds by which waiting for markers delays a response."""
LONGER_S = 0.001
"""The seconds by which the pause grows after a late response."""
SHORTER_S = LONGER_S / 40
"""The seconds by which the pause shrinks after a response that is not late.

With this ratio to `LONGER_S`, about one response in 40 is late.
"""
LONGEST_S = 0.005
"""The longest pause, in seconds."""
SOON_S = 0.02
"""A request that is sent more than this many seconds after the end of the previous transaction does
not change the pause."""
FORGET = 1.02
"""The factor by which the fastest time grows with each response, so that old ones are forgotten."""


class Operation:
    """A commit or an abort in progress, which a background task or callbacks carry out."""

    __slots__ = ("_done", "_scope", "_waiters", "abandoned")

    def __init__(self) -> None:
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._scope: anyio.CancelScope | None = None
        self.abandoned = False
        """Whether a caller of `result` was cancelled and stopped waiting before the end."""
        self._waiters: dict[asyncio.Future[None], None] = {}
        """A future for each caller of `result`. With `asyncio.wait` instead, the caller would
        continue one iteration of the event loop later."""

    @property
    def over(self) -> bool:
        """Whether the operation has ended."""
        return self._done.done()

    async def run(self, work: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Run the operation, or the rest of it, in the current task.

        Its errors are raised by `result`. A bug is raised here, too, which fails the producer.
        """
        try:
            with anyio.CancelScope() as self._scope:
                if not self.over:
                    await work(*args)
        except KafkaError as error:
            self.end(error)
        except Exception as error:
            self.end(error)
            raise
        except BaseException:
            self.end(ClosedError("The producer was closed."))
            raise
        else:
            self.end(None)
        finally:
            self._scope = None

    def cancel(self, error: KafkaError) -> None:
        """Stop the operation where it is. Its caller gets `error`."""
        self.end(error)
        if self._scope is not None:
            self._scope.cancel()

    def end(self, error: Exception | None) -> None:
        """End the operation. An error is raised by `result`. Only the first call counts."""
        if self._done.done():
            return
        if error is None:
            self._done.set_result(None)
        else:
            self._done.set_exception(error)
            self._done.exception()  # Marks the error as retrieved: maybe no caller waits any more.
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def require_running(self) -> None:
        """Raise the error with which the operation was cancelled, if it was.

        A cancelled task may still run up to its next suspension.
        """
        if self._done.done():
            self._done.result()

    async def wait(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds. Return whether the operation has ended."""
        if not self._done.done():
            await asyncio.wait([self._done], timeout=timeout)
        return self._done.done()

    async def result(self, shielded_s: float) -> None:
        """Wait for the end, and raise the error of the operation.

        If the caller is cancelled, the wait continues for at most `shielded_s` seconds. Then the
        cancellation is raised.
        """
        if not self._done.done():
            waiter: asyncio.Future[None] = self._done.get_loop().create_future()
            self._waiters[waiter] = None
            try:
                await waiter
            except asyncio.CancelledError:
                try:
                    await ended(self._done, at_most=shielded_s)
                finally:
                    self.abandoned = not self.over
                raise
            finally:
                del self._waiters[waiter]
        self._done.result()


class Commit:
    """One commit, with its times on the monotonic clock."""

    __slots__ = ("began", "current", "deadline", "operation", "reads", "timeout")

    def __init__(
        self,
        current: CurrentTransaction,
        began: float,
        timeout: float | None,
        flush_s: float,
        reads: Sequence[ConsumerReads] = (),
    ) -> None:
        """`timeout` limits the whole commit, and `flush_s` the wait for the records.

        `reads` are those of the added consumers, whose offsets were fixed.
        """
        self.operation = Operation()
        self.current = current
        self.began = began
        self.timeout = timeout
        self.deadline = began + (flush_s if timeout is None else min(flush_s, timeout))
        """The deadline for the records, and after them that for EndTxn (see `set_end_deadline`)."""
        self.reads = reads

    def set_end_deadline(self, deadline: float) -> None:
        """Set the deadline of the requests after the records, unless the call has a timeout."""
        self.deadline = deadline if self.timeout is None else self.began + self.timeout


class DirectCommit:
    """The commit in progress, while it needs no task."""

    def __init__(
        self,
        accumulator: Accumulator,
        clock: Clock,
        status: TransactionStatus,
        requests: TransactionRequests,
        manager: TransactionManager,
        end_s: float,
    ) -> None:
        """Begin with no commit in progress. `end_s` is the time in seconds for EndTxn."""
        self._accumulator = accumulator
        self._clock = clock
        self._status = status
        self._requests = requests
        self._manager = manager
        self._end_s = end_s
        self._commit: Commit | None = None
        self._is_end_sent = False
        """Whether EndTxn was sent."""
        callbacks = accumulator.callbacks
        self._timer = WakeTimer(accumulator.loop, callbacks.guard(self._on_deadline))
        self._end_response = callbacks.bound(self._on_end_response)

    def begin_commit(self, commit: Commit) -> None:
        """Send the records of a commit, and later EndTxn. Never raises."""
        self._commit, self._is_end_sent = commit, False
        self._timer.wake_at(commit.deadline)
        self._accumulator.demand_all()
        if not self._accumulator.pending:
            self._accumulator.callbacks.run(self.send_end_if_ready)

    def send_end_if_ready(self) -> None:
        """Send EndTxn if all records have their outcome. Called after each produce response."""
        commit = self._commit
        if commit is None or self._is_end_sent or self._accumulator.pending:
            return
        if commit.operation.over:
            self._commit = None
        elif (
            commit.reads
            or self._status.state is not TransactionState.COMMITTING
            or self._accumulator.calling
        ):
            self.continue_in_task()
        elif not commit.current.is_written:
            self._commit = None
            self._end_commit(commit, commit.current.identity)
        else:
            self._send_end(commit)

    def _send_end(self, commit: Commit) -> None:
        self._is_end_sent = True
        commit.set_end_deadline(self._clock.monotonic() + self._end_s)
        self._timer.wake_at(commit.deadline)
        on_response = partial(self._end_response, commit)
        if not self._requests.attempt_commit(commit.current, commit.current.identity, on_response):
            self._is_end_sent = False
            self.continue_in_task()

    def continue_in_task(self) -> None:
        """Let a task do the commit, unless EndTxn was sent already."""
        commit = self._commit
        if commit is not None and not self._is_end_sent:
            self._commit = None
            self._manager.continue_commit(commit)

    def stop(self) -> None:
        """Stop the timer, because the producer is being closed.

        If EndTxn is in flight, it fails when the connection to the coordinator is closed.
        """
        self._timer.cancel()
        self.continue_in_task()

    def _on_end_response(
        self, commit: Commit, following: ProducerIdentity | None, error: KafkaError | None
    ) -> None:
        if self._commit is not commit:
            return  # The deadline of this commit has passed.
        self._commit = None
        if commit.operation.over:
            return  # A restart or a change of the cluster has cancelled the commit.
        if following is None:
            self._manager.continue_commit(commit, error)
        else:
            commit.current.mark_decided()
            self._end_commit(commit, following)

    def _end_commit(self, commit: Commit, following: ProducerIdentity) -> None:
        try:
            self._manager.end_commit(commit, following)
        except Exception as error:
            commit.operation.end(error)
            raise
        commit.operation.end(None)

    def _on_deadline(self, due: float) -> None:
        commit = self._commit
        if commit is None or commit.operation.over:
            return
        if self._clock.monotonic() < commit.deadline:
            self._timer.wake_at(commit.deadline)
        elif not self._is_end_sent:
            self.continue_in_task()
        else:
            self._commit = None
            self._manager.fail_late_commit(commit)


class MarkerPause:
    """The pause before the first produce request of a transaction. All times are in seconds.

    At level 2 of `transaction.version` (KIP-890), the response to EndTxn comes before the markers
    of the transaction are written. A produce request that arrives in between waits in the leader,
    which asks the coordinator again after `add.partitions.to.txn.retry.backoff.ms`, by default 20
    ms. The markers are written within a millisecond or two, so that a short pause before the
    request is faster than the wait in the leader.

    How long the markers take depends on the cluster, so the pause adapts. It begins at zero,
    becomes longer whenever the response to the first request came late, and a little shorter
    whenever it did not. A response is late if it took `LATE_S` longer than the fastest recent one.
    A program whose transactions do not follow each other at once never waits.
    """

    def __init__(self) -> None:
        self.length_s = 0.0
        self._ended_at = -math.inf
        """The time at which the previous transaction ended."""
        self._sent_at = 0.0
        """The time at which the first produce request of the transaction was sent, or 0."""
        self._fastest = math.inf

    @property
    def is_used(self) -> bool:
        """Whether a produce request of the transaction was sent. Later requests do not wait."""
        return self._sent_at != 0.0

    def on_transaction_end(self, now: float) -> None:
        """Record when a transaction ended. Its markers are now being written."""
        self._ended_at, self._sent_at = now, 0.0

    def compute_wait_s(self, now: float) -> float:
        """Return how long to wait before a produce request is sent, or 0."""
        return 0.0 if self._sent_at else max(self._ended_at + self.length_s - now, 0.0)

    def on_request_sent(self, now: float) -> None:
        """Record when the first produce request of a transaction was sent."""
        self._sent_at = now

    def on_request_answered(self, now: float) -> None:
        """Adapt the pause to the time that the first produce request of a transaction took."""
        took = now - self._sent_at
        self._fastest = min(self._fastest * FORGET, took)
        if took - self._fastest >= LATE_S:
            self.on_request_refused()
        elif self._sent_at - self._ended_at < SOON_S:
            self.length_s = max(self.length_s - SHORTER_S, 0.0)

    def on_request_refused(self) -> None:
        """Lengthen the pause: the first produce request probably came before the markers."""
        if self._sent_at - self._ended_at < SOON_S:
            self.length_s = min(self.length_s + LONGER_S, LONGEST_S)


class TransactionMeters:
    """The metrics of one producer's transactions. Each is created when it is first needed."""

    def __init__(self, own_metrics: OwnMetrics) -> None:
        self._own_metrics = own_metrics
        self._durations: dict[str, Histogram] = {}
        own_metrics.show_series("transactions", "producer.transactions")

    def count_end(self, outcome: TransactionOutcome | None) -> None:
        """Count a transaction that ended."""
        assert outcome is not None
        self._own_metrics.counter("transactions", outcome=outcome.value).add()

    def observe_duration(self, call: str, seconds: float) -> None:
        """Observe the duration of a "commit" or an "abort"."""
        histogram = self._durations.get(call)
        if histogram is None:
            key = f"{call}.seconds"
            histogram = self._durations[call] = self._own_metrics.histogram(key)
            self._own_metrics.show_series(key, f"producer.transaction.{key}", unit="s")
        histogram.observe(seconds)

    def time_block(self, name: str, clock: Clock) -> Timed:
        """Return a context manager that adds the duration of its block to a counter."""
        return self._own_metrics.time_block(name, clock)

    def count_restart(self) -> None:
        """Count a restart."""
        self._own_metrics.metrics.counter("producer.transaction.restarts").add()
