"""The ends of transactions: commits, aborts, and what follows them.

A commit or an abort must not stop halfway, so each is an `Operation` that does not depend on the
call that began it. The call waits for it, and only stops waiting when it is cancelled or its time
is up. An abort runs in a task of its own, and a commit only when it needs one.

What a commit commits is fixed when it begins. A commit whose caller was cancelled goes on,
shielded, for a limited time. If EndTxn was not sent by then, the commit is given up and becomes an
abort, so that it can never end without its offsets. If EndTxn was sent, the commit goes on in the
background.

A commit without a response may have been applied. The abort after it finds that out, see
`TransactionRequests.find_outcome`. If the coordinator has ended the transaction at its timeout, or
another producer has taken over, the outcome stays unknown.

Most commits only wait for two responses: to the last records, and to EndTxn. With a task for that,
its timeouts, and its cancel scopes, a transaction of one record takes 59% more instructions
(measured by callgrind: 908,000 instead of 572,000). Therefore the callback of the first response
sends EndTxn, and the callback of the second one ends the operation. In the following cases,
`TransactionEnds.continue_commit` starts a task for the remaining work:

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

from aiokclient.background import WakeTimer, ended
from aiokclient.errors import ApiTimeoutError, ClosedError, KafkaError, TransactionFailedError
from aiokclient.policy import Scope
from aiokclient.producer.batching.accumulator import Accumulator
from aiokclient.producer.transaction.detached import DetachedTransaction, detach
from aiokclient.producer.transaction.requests import IMPLICIT, RECHECK_S
from aiokclient.producer.transaction.states import BROKEN, TransactionEvent, TransactionState
from aiokclient.producer.transaction.status import (
    CurrentTransaction,
    ProducerIdentity,
    TransactionOutcome,
    abortable,
    repeated,
)
from aiokclient.scopes import new_scope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiokclient.clock import Clock
    from aiokclient.config.producer import ProducerConfig
    from aiokclient.metrics import Histogram, OwnMetrics, Timed
    from aiokclient.producer.engine import Engine
    from aiokclient.producer.transaction.manager import TransactionManager
    from aiokclient.producer.transaction.offsets import ConsumerReads
    from aiokclient.producer.transaction.transaction import Transaction
    from aiokclient.scopes import CancelScope

FLUSH_GRACE_S = 1.0
"""Seconds that a commit waits beyond the delivery timeout for batches to expire."""
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

_S, _E = TransactionState, TransactionEvent


class Operation:
    """A commit or an abort in progress, which a background task or callbacks carry out."""

    __slots__ = ("_done", "_is_released", "_scope", "_shielded", "_waiters", "abandoned")

    def __init__(self) -> None:
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._scope: CancelScope | None = None
        self.abandoned = False
        """Whether a caller of `result` was cancelled and stopped waiting before the end."""
        self._is_released = False
        """Whether callers of `result` that were cancelled wait no longer."""
        self._waiters: dict[asyncio.Future[None], None] = {}
        """A future for each caller of `result`. With `asyncio.wait` instead, the caller would
        continue one iteration of the event loop later."""
        self._shielded: list[asyncio.Future[None]] = []
        """A future for each caller of `result` that was cancelled."""

    @property
    def over(self) -> bool:
        """Whether the operation has ended."""
        return self._done.done()

    async def run(self, work: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Run the operation, or the rest of it, in the current task.

        Its errors are raised by `result`. A bug is raised here, too, which fails the producer.
        """
        try:
            with new_scope() as self._scope:
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
        for waiter in (*self._waiters, *self._shielded):
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
            loop = self._done.get_loop()
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiters[waiter] = None
            try:
                await waiter
            except asyncio.CancelledError:
                try:
                    if not self._is_released:
                        shielded: asyncio.Future[None] = loop.create_future()
                        self._shielded.append(shielded)
                        await ended(shielded, at_most=shielded_s)
                finally:
                    self.abandoned = not self.over
                raise
            finally:
                del self._waiters[waiter]
        self._done.result()

    def release_callers(self) -> None:
        """Let callers of `result` that were cancelled, or will be, wait no longer. Synchronous."""
        self._is_released = True
        for shielded in self._shielded:
            if not shielded.done():
                shielded.set_result(None)


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

    def __init__(self, accumulator: Accumulator, ends: TransactionEnds, end_s: float) -> None:
        """Begin with no commit in progress. `end_s` is the time in seconds for EndTxn."""
        self._accumulator = accumulator
        self._time = accumulator.loop.time
        self._ends = ends
        self._end_s = end_s
        self._commit: Commit | None = None
        self._is_end_sent = False
        """Whether EndTxn was sent."""
        callbacks = accumulator.callbacks
        self._timer = WakeTimer(accumulator.loop, callbacks.guard_function(self._on_deadline))
        self._end_response = callbacks.guard_function(self._on_end_response)

    def begin_commit(self, commit: Commit) -> None:
        """Send the records of a commit, and later EndTxn. Never raises."""
        self._commit, self._is_end_sent = commit, False
        self._timer.wake_at(commit.deadline)
        self._accumulator.skip_all_lingers()
        if not self._accumulator.pending:
            self._accumulator.callbacks.call_now(self.send_end_if_ready)

    def send_end_if_ready(self) -> None:
        """Send EndTxn if all records have their outcome. Called after each produce response."""
        commit = self._commit
        if commit is None or self._is_end_sent or self._accumulator.pending:
            return
        if commit.operation.over:
            self._commit = None
        elif (
            commit.reads
            or self._ends.status.state is not _S.COMMITTING
            or self._accumulator.calling
        ):
            self.continue_in_task()
        # Without a record or an offset, the coordinator knows nothing of the transaction, and
        # refuses EndTxn with INVALID_TXN_STATE.
        elif not commit.current.is_written:
            self._commit = None
            self._end_commit(commit, commit.current.identity)
        else:
            self._send_end(commit)

    def _send_end(self, commit: Commit) -> None:
        self._is_end_sent = True
        commit.set_end_deadline(self._time() + self._end_s)
        self._timer.wake_at(commit.deadline)
        on_response = partial(self._end_response, commit)
        if not self._ends.requests.attempt_commit(commit.current, on_response):
            self._is_end_sent = False
            self.continue_in_task()

    def continue_in_task(self) -> None:
        """Let a task do the commit, unless EndTxn was sent already."""
        commit = self._commit
        if commit is not None and not self._is_end_sent:
            self._commit = None
            self._ends.continue_commit(commit)

    def stop_timer(self) -> None:
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
            self._ends.continue_commit(commit, error)
        else:
            self._end_commit(commit, following)

    def _end_commit(self, commit: Commit, following: ProducerIdentity) -> None:
        try:
            self._ends.end_commit(commit, following)
        except Exception as error:
            commit.operation.end(error)
            raise
        commit.operation.end(None)

    def _on_deadline(self, due: float) -> None:
        commit = self._commit
        if commit is None or commit.operation.over:
            return
        if self._time() < commit.deadline:
            self._timer.wake_at(commit.deadline)
        elif not self._is_end_sent:
            self.continue_in_task()
        else:
            self._commit = None
            self._ends.fail_late_commit(commit)


class TransactionEnds:
    """The ends of one producer's transactions: commits, aborts, and detachments."""

    def __init__(self, engine: Engine, config: ProducerConfig, manager: TransactionManager) -> None:
        self.status = manager.status
        self._manager = manager
        self._engine = engine
        self._config = config
        self._time = engine.accumulator.loop.time
        self._supervisor = engine.supervisor
        self._accumulator = engine.accumulator
        self.requests = manager.requests
        self._offsets = manager.offsets
        self._meters = manager.meters
        self._pause = manager.pause
        self._default_s = config.default_api_timeout_ms / 1000
        self._flush_s = config.delivery_timeout_ms / 1000 + FLUSH_GRACE_S
        self._shielded_s = config.transaction_timeout_ms / 1000
        self._direct = DirectCommit(engine.accumulator, self, self._default_s)
        self._operation: Operation | None = None
        """The commit or abort that began last."""
        self._is_epoch_used_up = False
        """Whether the epoch must be increased before the next transaction (levels 0 and 1)."""

    # -- commit

    async def commit(self, timeout: float | None, transaction: Transaction) -> None:
        """Commit the open transaction; see `Producer.commit_transaction`.

        The offsets of its added consumers are fixed when the commit begins.
        """
        if self.status.state is not _S.IN_TRANSACTION:
            if self.status.state in BROKEN:
                self._engine.failures.take_failures()
            self.status.require_state(_S.IN_TRANSACTION, call="commit_transaction()")
        self.status.handle_event(_E.COMMIT)
        now = self._time()
        commit = Commit(self.status.current, now, timeout, self._flush_s, transaction.fix_offsets())
        self._operation = commit.operation
        if self._can_commit_directly(commit):
            self._direct.begin_commit(commit)
        else:
            self._accumulator.skip_all_lingers()
            self.continue_commit(commit)
        try:
            await commit.operation.result(self._shielded_s)
        except asyncio.CancelledError:
            if not commit.operation.over:
                self._give_up_commit(commit)
            raise

    def _can_commit_directly(self, commit: Commit) -> bool:
        """Return whether a commit can begin without a task of its own; see `DirectCommit`."""
        return not (
            self._is_epoch_used_up
            or commit.current.is_epoch_unsafe
            or self._manager.offset_calls
            or commit.began >= self.requests.level_read_at + RECHECK_S
            or None in [batch.partition for batch in self._accumulator.pending]
        )

    def _give_up_commit(self, commit: Commit) -> None:
        """Stop waiting for a commit. Abort the transaction, unless EndTxn was sent."""
        current = commit.current
        if current.is_undecided:
            current.mark_given_up()
        elif self.status.state in (_S.COMMITTING, _S.ABORTABLE_ERROR):
            # Offsets may be in flight. At levels 0 and 1, a new epoch keeps them out of the next
            # transaction.
            self._is_epoch_used_up = self._is_epoch_used_up or current.level < IMPLICIT
            current.require_abort()
            commit.operation.cancel(abortable("The commit was cancelled, and was given up."))
            self._begin_abort(accept_commit=True)

    def continue_commit(self, commit: Commit, earlier: KafkaError | None = None) -> None:
        """Do a commit, or its remaining steps, in a task; see `DirectCommit`."""
        self._spawn_operation("commit", commit.operation, self._commit, commit, earlier)

    def on_records_settled(self) -> None:
        """Check the records of a commit again, because a produce response has arrived."""
        self._direct.send_end_if_ready()

    async def _commit(self, commit: Commit, earlier: KafkaError | None) -> None:
        current, scope = commit.current, Scope.TXN_OFFSET_COMMIT
        following = current.identity
        if earlier is None:
            await self.flush_records(commit)
            commit.operation.require_running()
            self.raise_failure(current)
            commit.set_end_deadline(self._time() + self._default_s)
        try:
            if earlier is None:
                for offsets, reads in self._offsets.collect_offsets(commit.reads):
                    await self._offsets.send_offsets(
                        offsets, reads, self.seconds_until(commit.deadline)
                    )
                    commit.operation.require_running()
            scope = Scope.TRANSACTION
            if earlier is None:
                # An error of another task may have come in the meantime.
                self.raise_failure(current)
            if current.is_written:
                left_s = self.seconds_until(commit.deadline)
                following = await self.requests.send_end_txn(
                    current, following, commit=True, timeout=left_s, earlier=earlier
                )
                commit.operation.require_running()
        except KafkaError as error:
            if commit.operation.over:
                raise
            raised = self._fail_commit(error, scope, current)
            raise raised from raised.__cause__
        if current.is_written:
            # It stays committed, whatever comes of the epoch for the next transaction.
            current.store_outcome(TransactionOutcome.COMMITTED)
            try:
                following = await self._take_next_identity(current, following)
            except KafkaError as error:
                commit.operation.require_running()
                self._fail_without_epoch(error)
                self._meters.count_end(TransactionOutcome.COMMITTED)
                return
            await self.requests.refresh_level()
            commit.operation.require_running()
        self.end_commit(commit, following)

    def end_commit(self, commit: Commit, following: ProducerIdentity) -> None:
        """End a transaction that was committed; see `DirectCommit`."""
        self.status.adopt_identity(following)
        self._end_transaction(TransactionOutcome.COMMITTED, _E.COMMITTED)
        self._meters.observe_duration("commit", self._time() - commit.began)

    def fail_late_commit(self, commit: Commit) -> None:
        """Fail a commit whose EndTxn was not answered in time; see `DirectCommit`."""
        waited_s = self._time() - commit.began
        error = ApiTimeoutError(
            f"There was no successful response within {waited_s:.1f} s.", api="EndTxn"
        )
        commit.operation.end(self._fail_commit(error, Scope.TRANSACTION, commit.current))

    def _fail_commit(
        self, error: KafkaError, scope: Scope, current: CurrentTransaction
    ) -> KafkaError:
        raised = self.status.handle_request_error(error, scope, current)
        if current.is_undecided:
            current.store_outcome(TransactionOutcome.UNKNOWN)
        return raised

    async def flush_records(self, commit: Commit) -> None:
        """Wait for the records and the offsets. After the deadline, fail the transaction."""
        try:
            async with asyncio.timeout(self.seconds_until(commit.deadline)):
                await self._engine.flush()
                await self._await_offset_calls()
        except TimeoutError:
            waited_s = self._time() - commit.began
            text = f"The records and offsets were not all acknowledged within {waited_s:.1f} s."
            cause = self._accumulator.find_last_answer() or self._manager.partitions.last_error
            late = abortable(text, cause or self._offsets.find_last_refusal())
            self.status.handle_request_error(late, Scope.TRANSACTION, commit.current)

    async def _await_offset_calls(self) -> None:
        """Wait until no offsets are being sent, so that none arrive after the end."""
        if self._manager.offset_calls:
            await asyncio.wait(self._manager.offset_calls)

    def raise_failure(self, current: CurrentTransaction) -> None:
        """Raise the most severe error of the transaction, if it has one."""
        error = self.status.fatal or current.error
        if error is not None:
            self._engine.failures.take_failures()
            raise repeated(error)

    def _raise_fatal(self) -> None:
        """Raise the error that made the producer unusable, if there is one."""
        if self.status.fatal is not None:
            raise repeated(self.status.fatal)

    # -- leaving it to another process

    async def detach(self, timeout: float | None) -> DetachedTransaction:
        """Flush the open transaction for another process to end it; see `Transaction.detach`."""
        if self.status.state in BROKEN:
            self._engine.failures.take_failures()
        current, now = self.status.current, self._time()
        # The wait for the records has the same limits and errors as in a commit.
        return await detach(
            self, Commit(current, now, timeout, self._flush_s), self._manager.cluster_id
        )

    # -- abort

    async def abort(self, timeout: float | None = None, *, accept_commit: bool = False) -> None:
        """Abort the open transaction; see `Producer.abort_transaction`.

        If the abort finds that the transaction was committed, an ApplicationRecoverableError is
        raised. With `accept_commit`, the transaction ends as committed instead, and the end of a
        commit that another call waits for is awaited.
        """
        status, current = self.status, self.status.current
        deadline = self._time() + (self._default_s if timeout is None else timeout)
        if self._commit_abandoned or (accept_commit and status.state is _S.COMMITTING):
            if not await self.required_operation.wait(self.seconds_until(deadline)):
                return
            if accept_commit and current.outcome is TransactionOutcome.COMMITTED:
                return
        if self._is_found_committed(current):
            raise self._fail_abort_of_committed()
        is_aborted = current.outcome is TransactionOutcome.ABORTED
        if status.state is _S.READY and (is_aborted or self._manager.is_begin_refused):
            return
        if status.state is _S.INITIALIZING and self._manager.is_begin_refused:
            return
        if status.state is not _S.ABORTING:
            status.require_state(_S.IN_TRANSACTION, _S.ABORTABLE_ERROR, call="abort_transaction()")
            self._begin_abort(accept_commit)
        operation = self.required_operation
        if not await operation.wait(self.seconds_until(deadline)):
            if current.outcome is None:
                current.store_outcome(TransactionOutcome.UNKNOWN)
            return
        if (restart := self._manager.restart_call) is not None:
            # The restart has cancelled the abort, and aborts the transaction, too.
            await asyncio.wait([restart], timeout=self.seconds_until(deadline))
            if not restart.done() or current.outcome is TransactionOutcome.ABORTED:
                return
        await operation.result(0.0)

    def _is_found_committed(self, current: CurrentTransaction) -> bool:
        """Return whether a commit that went on in the background has succeeded."""
        committed = current.is_given_up and current.outcome is TransactionOutcome.COMMITTED
        return committed and self.status.state is _S.READY and self.status.current is current

    def _fail_abort_of_committed(self) -> KafkaError:
        error = TransactionFailedError("The abort found that the transaction had been committed.")
        error.hint = "Await restart(), and go on after this transaction. Do not repeat its work."
        return self.status.handle_error(error, Scope.TRANSACTION)

    def _begin_abort(self, accept_commit: bool) -> None:
        self.status.handle_event(_E.ABORT)
        self._operation = Operation()
        self._spawn_operation("abort", self._operation, self._abort, self._operation, accept_commit)

    async def _abort(self, operation: Operation, accept_commit: bool) -> None:
        current, began = self.status.current, self._time()
        await self._manager.batches.drain_batches()
        await self._await_offset_calls()
        # Offsets that arrive after EndTxn could become part of the next transaction.
        await self._offsets.wait_for_responses(current)
        operation.require_running()
        self._engine.failures.take_failures()
        self._raise_fatal()
        try:
            outcome, following = TransactionOutcome.ABORTED, current.identity
            if current.is_undecided:
                outcome, following = await self.requests.find_outcome(current)
            elif current.is_written:
                following = await self.requests.send_abort(current)
            operation.require_running()
        except KafkaError as error:
            if operation.over:
                raise
            raised = self.status.handle_request_error(error, Scope.TRANSACTION, current)
            if self.status.state is _S.ABORTING:
                self.status.handle_event(_E.ABORT_REFUSED)
            raise raised from raised.__cause__
        if current.is_written:
            current.store_outcome(outcome)
            try:
                following = await self._take_next_identity(current, following)
            except KafkaError as error:
                operation.require_running()
                self._meters.count_end(outcome)
                raised = self._fail_without_epoch(error)
                raise raised from raised.__cause__
            operation.require_running()
            self.status.adopt_identity(following)
            await self.requests.refresh_level()
            operation.require_running()
        if outcome is TransactionOutcome.COMMITTED and not accept_commit:
            current.store_outcome(outcome)
            self._meters.count_end(outcome)
            raise self._fail_abort_of_committed()
        self._raise_fatal()
        self._end_transaction(
            outcome, _E.ABORTED if outcome is TransactionOutcome.ABORTED else _E.COMMITTED
        )
        self._meters.observe_duration("abort", self._time() - began)

    # -- after the end

    async def _take_next_identity(
        self, current: CurrentTransaction, following: ProducerIdentity
    ) -> ProducerIdentity:
        """Return the identity for the next transaction. EndTxn has returned `following`."""
        if following == current.identity and self._needs_new_epoch():
            following = await self.requests.renew_epoch(following)
        self._is_epoch_used_up = False
        return following

    def _needs_new_epoch(self) -> bool:
        """Return whether the epoch must be increased before the next transaction.

        At level 2, EndTxn increases it, unless the coordinator knew nothing of the transaction. A
        transaction whose level was lowered needs a new epoch: its partitions were written at level
        2, and if the level is raised again, the next transaction does not wait for its markers. So
        does one of whose offsets a request may still arrive.
        """
        current = self.status.current
        is_unsafe = current.level >= IMPLICIT or current.is_epoch_unsafe
        return self._is_epoch_used_up or is_unsafe or self._manager.partitions.has_gap()

    def _fail_without_epoch(self, error: KafkaError) -> KafkaError:
        """Make the producer unusable, because the next transaction has no epoch."""
        raised = TransactionFailedError(
            "The transaction has ended, but the coordinator refused the epoch of the next one."
        )
        raised.__cause__ = error
        return self.status.handle_error(raised, Scope.TRANSACTION)

    def _end_transaction(self, outcome: TransactionOutcome, event: TransactionEvent) -> None:
        self._meters.count_end(outcome)
        if self.status.current.is_written:
            self._pause.on_transaction_end(self._time())
        self.status.end_transaction(outcome, event)

    # -- in the background

    def _spawn_operation(
        self, name: str, operation: Operation, work: Callable[..., Awaitable[None]], *args: Any
    ) -> None:
        if not self._supervisor.running:
            operation.end(ClosedError("The producer was closed."))
            return
        self._supervisor.spawn(operation.run, work, *args, name=f"transaction {name}")

    @property
    def required_operation(self) -> Operation:
        """The commit or abort that began last."""
        assert self._operation is not None
        return self._operation

    def release_callers(self) -> None:
        """Let cancelled calls wait no longer for the end of the commit in progress. Synchronous."""
        if self._operation is not None:
            self._operation.release_callers()

    def cancel_operation(self, error: KafkaError) -> None:
        """Stop the commit or abort in progress, if there is one. Its caller gets `error`."""
        if self._operation is not None and not self._operation.over:
            self._operation.cancel(error)

    @property
    def is_ending_alone(self) -> bool:
        """Whether the transaction is being ended in the background, without a caller."""
        return self.status.state is _S.ABORTING or self._commit_abandoned

    @property
    def _commit_abandoned(self) -> bool:
        """Whether a commit is in progress whose caller was cancelled and did not see its end."""
        ending = self._operation
        return self.status.state is _S.COMMITTING and ending is not None and ending.abandoned

    async def wait_for_previous(self) -> None:
        """Wait for the end of the previous transaction, if it is in progress without its caller.

        Raise the error of a commit that went on in the background, and an abortable error if there
        is no end in time.
        """
        if self.is_ending_alone:
            with self._meters.time_block("begin.seconds"):
                await self._await_previous()

    async def _await_previous(self) -> None:
        """Wait for the end of the previous transaction. Raise the error of an abandoned commit."""
        ending, abandoned = self.required_operation, self._commit_abandoned
        if not await ending.wait(self._default_s):
            raise abortable(
                f"The coordinator did not complete the {'commit' if abandoned else 'abort'} of "
                f"the previous transaction within {self._default_s:.1f} s.",
                self.requests.find_last_error(),
            )
        if abandoned:
            await ending.result(0.0)

    def forget_epoch(self) -> None:
        """Store that the producer has another epoch than in its last transaction."""
        self._is_epoch_used_up = False

    def stop_timer(self) -> None:
        """Stop the timer of a commit, because the producer is being closed."""
        self._direct.stop_timer()

    @property
    def close_timeout_s(self) -> float:
        """Seconds that an abort at the end of `async with` may take."""
        bounds_ms = (self._config.close_timeout_ms, self._config.shutdown_timeout_ms)
        return min(bound for bound in bounds_ms if bound is not None) / 1000

    def seconds_until(self, deadline: float) -> float:
        """Return the seconds until a time on the clock of the event loop, or 0.0 after it."""
        return max(deadline - self._time(), 0.0)

    def on_broken(self, new: TransactionState) -> None:
        """Handle the change to a state in which the transaction cannot be committed any more."""
        current = self.status.current
        if new is _S.ABORTABLE_ERROR and current.level < IMPLICIT:
            self._is_epoch_used_up = True
        self._manager.batches.drop_later()
        self._direct.continue_in_task()
        if new is _S.FATAL_ERROR and current.abandon_transaction():
            self._meters.count_end(current.outcome)


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

    def __init__(self, own_metrics: OwnMetrics, clock: Clock) -> None:
        self._own_metrics = own_metrics
        self._clock = clock
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

    def time_block(self, name: str) -> Timed:
        """Return a context manager that adds the duration of its block to a counter."""
        return self._own_metrics.time_block(name, self._clock)

    def count_restart(self) -> None:
        """Count a restart."""
        self._own_metrics.metrics.counter("producer.transaction.restarts").add()
