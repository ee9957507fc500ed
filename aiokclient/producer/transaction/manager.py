"""The transactions of a producer: the coroutines around the table of `states`.

A commit or an abort must not stop halfway, so each is an `Operation` that does not depend on the
call that began it. The call waits for it, and only stops waiting when it is cancelled or its time
is up. An abort runs in a task of its own, and a commit only when it needs one (see
`DirectCommit`).

What a commit commits is fixed when it begins. A commit whose caller was cancelled goes on,
shielded, for a limited time. If EndTxn was not sent by then, the commit is given up and becomes an
abort, so that it can never end without its offsets. If EndTxn was sent, the commit goes on in the
background.

A commit without a response may have been applied. The abort after it finds that out, see
`TransactionRequests.find_outcome`. If the coordinator has ended the transaction at its timeout, or
another producer has taken over, the outcome stays unknown.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from aiokclient.cluster.metadata.snapshot import differ
from aiokclient.errors import (
    ApiTimeoutError,
    ClosedError,
    KafkaError,
    TransactionFailedError,
)
from aiokclient.policy import Decision, Scope, as_transaction_error, classify
from aiokclient.producer.transaction.batches import TransactionBatches
from aiokclient.producer.transaction.detached import DetachedTransaction, detach
from aiokclient.producer.transaction.ending import (
    Commit,
    DirectCommit,
    MarkerPause,
    Operation,
    TransactionMeters,
)
from aiokclient.producer.transaction.offsets import Offsets, TransactionOffsets
from aiokclient.producer.transaction.partitions import TransactionPartitions
from aiokclient.producer.transaction.requests import IMPLICIT, TransactionRequests
from aiokclient.producer.transaction.states import BROKEN, TransactionEvent, TransactionState
from aiokclient.producer.transaction.status import (
    CurrentTransaction,
    ProducerIdentity,
    TransactionOutcome,
    TransactionStatus,
    abortable,
    repeated,
)

if TYPE_CHECKING:
    from aiokclient.config.producer import ProducerConfig
    from aiokclient.producer.engine import Engine
    from aiokclient.producer.transaction.transaction import Transaction
    from aiokclient.types import GroupMetadata

__all__ = ["TransactionManager"]

FLUSH_GRACE_S = 1.0
"""Seconds that a commit waits beyond the delivery timeout for batches to expire."""

ELSEWHERE = (
    "The client has moved to another cluster during the transaction. The former cluster aborts it, "
    "unless a commit was sent before. Whether such a commit was applied is unknown."
)

RESTARTED = "The producer was restarted."

_S, _E = TransactionState, TransactionEvent
OPEN = frozenset({_S.IN_TRANSACTION, _S.COMMITTING, _S.DETACHING, _S.ABORTING, _S.ABORTABLE_ERROR})
"""The states in which a coordinator may have a part of a transaction."""
FAILING = OPEN | {_S.FATAL_ERROR}
"""The states in which the errors of a transaction's requests are events."""


class TransactionManager:
    """The transactions of one producer."""

    def __init__(
        self,
        engine: Engine,
        config: ProducerConfig,
        status: TransactionStatus,
    ) -> None:
        assert config.transactional_id is not None
        cluster, supervisor, accumulator = engine.cluster, engine.supervisor, engine.accumulator
        self.status = status
        self._engine = engine
        self._config = config
        self._clock = cluster.clock
        self._meters = TransactionMeters(accumulator.meters.own_metrics)
        self._supervisor = supervisor
        self._accumulator = accumulator
        self._requests = TransactionRequests(
            config.transactional_id,
            config,
            cluster,
            transaction_timeout_ms=config.transaction_timeout_ms,
        )
        self.batches = TransactionBatches(accumulator, status, self._requests, supervisor)
        self._offsets = TransactionOffsets(config, cluster, self._requests, status)
        self.partitions = TransactionPartitions(
            config,
            cluster.clock,
            accumulator.callbacks,
            supervisor,
            self._requests,
            status,
            self.batches,
        )
        self.pause = MarkerPause()
        self._direct = DirectCommit(
            accumulator, cluster.clock, status, self._requests, self, self._default_s
        )
        self._flush_s = config.delivery_timeout_ms / 1000 + FLUSH_GRACE_S
        self._shielded_s = config.transaction_timeout_ms / 1000
        self._offset_calls: set[asyncio.Future[None]] = set()
        """The calls of `send_offsets` in progress. The end of the transaction waits for them."""
        self._ending: Operation | None = None
        """The commit or abort that began last."""
        self._used_at_old_level = False
        """Whether the last transaction was one of level 0 or 1, which keeps its epoch."""
        self._bump_needed = False
        """Whether the epoch must be increased before the next transaction (levels 0 and 1)."""
        self._cluster = cluster
        self._cluster_id: str | None = None
        """The cluster whose coordinator has returned the producer id."""
        self._start_done = asyncio.Event()
        """An event that is cleared while a start in the background is in progress."""
        self._restart_call: asyncio.Future[None] | None = None
        """The restart in progress. It is cancelled if the restart is cancelled."""
        self._begin_refused = False
        """Whether the last begin failed before it opened a transaction, so that there is nothing to
        abort."""
        self._start_done.set()
        status.manager = self

    # -- starting

    async def start(self, timeout: float) -> None:
        """Get a producer id, which fences older producers with the same transactional id."""
        self.status.handle_event(_E.INITIALIZE)
        try:
            with self._meters.time_block("init.seconds", self._clock):
                await self._request_identity(timeout)
        except KafkaError as error:
            if classify(error, Scope.INIT_PRODUCER_ID).again:
                # The request was retried until the deadline. As in any other client, the error
                # says that no broker answered in time.
                raise
            raised = as_transaction_error(error, Scope.INIT_PRODUCER_ID)
            raise raised from raised.__cause__

    def start_later(self) -> None:
        """Get a producer id in the background, as `start` does. If that fails, fail the client."""
        self._start_done.clear()
        self._supervisor.spawn(self._start_in_background, name="the producer id")

    async def _start_in_background(self) -> None:
        try:
            await self.start(math.inf)
        finally:
            self._start_done.set()

    async def _request_identity(self, timeout: float) -> None:
        deadline = self._clock.monotonic() + timeout
        try:
            await self._requests.store_lower_level(
                self.status.current, self.status.identity, timeout
            )
            identity = await self._requests.request_identity(
                ProducerIdentity(), self._seconds_until(deadline)
            )
        except BaseException:
            self.status.require_restart()
            self.status.handle_event(_E.NOT_INITIALIZED)
            raise
        self.status.adopt_identity(identity)
        self._cluster_id = self._cluster.metadata.cluster_id
        self._bump_needed = self._used_at_old_level = False
        self.status.clear_fatal_error()
        self.status.handle_event(_E.INITIALIZED)

    async def restart(self) -> None:
        """Begin again with a new epoch; see `Producer.restart`.

        If another task is restarting, wait for that restart, and end as it does. If that one is
        cancelled, restart.
        """
        while (other := self._restart_call) is not None:
            await asyncio.wait([other])
            if not other.cancelled():
                error = other.exception()
                if isinstance(error, KafkaError):
                    raise repeated(error)
                return
        if self.status.state is _S.INITIALIZING:
            raise self.status.make_misuse_error("restart()")
        call = self._restart_call = asyncio.get_running_loop().create_future()
        try:
            await self._restart()
        except KafkaError as error:
            call.set_exception(error)
            call.exception()  # Marks the error as retrieved: maybe no other task waits for it.
            raise
        except BaseException:
            call.cancel()
            raise
        else:
            call.set_result(None)
        finally:
            self._restart_call = None

    async def _restart(self) -> None:
        status, current = self.status, self.status.current
        deadline = self._clock.monotonic() + self._default_s
        was_aborting = status.state is _S.ABORTING
        status.handle_event(_E.RESTART)
        self._begin_refused = False
        if self._ending is not None and not self._ending.over:
            text = "The producer was restarted before the transaction was aborted."
            error = TransactionFailedError(text) if was_aborting else abortable(RESTARTED)
            self._ending.cancel(error)
        self.batches.drop_all()
        self._engine.failures.take_failures()
        try:
            await self._find_outcome_before_restart(current, deadline)
        except BaseException:
            status.require_restart()
            status.handle_event(_E.NOT_INITIALIZED)
            raise
        self._meters.count_restart()
        try:
            await self._request_identity(self._seconds_until(deadline))
        except KafkaError as error:
            raised = as_transaction_error(error, Scope.INIT_PRODUCER_ID)
            raise raised from raised.__cause__

    async def _find_outcome_before_restart(
        self, current: CurrentTransaction, deadline: float
    ) -> None:
        """Find out the outcome of a commit. After InitProducerId, this is not possible any more."""
        if not current.is_open:
            return
        outcome = TransactionOutcome.ABORTED  # InitProducerId aborts an open transaction.
        if current.is_undecided:
            try:
                async with asyncio.timeout(self._seconds_until(deadline) / 2):
                    outcome, _ = await self._requests.find_outcome(current)
            except (KafkaError, TimeoutError):
                outcome = TransactionOutcome.UNKNOWN
        current.store_outcome(outcome)
        self._meters.count_end(outcome)

    # -- one transaction

    async def begin_transaction(self) -> CurrentTransaction:
        """Open a transaction. Wait for the abort of the previous one if it is in progress."""
        status = self.status
        if not self._start_done.is_set():
            with self._meters.time_block("begin.seconds", self._clock):
                await self._wait_for_start()
        await self.wait_for_previous()
        if status.state is _S.ABORTABLE_ERROR:
            raise status.make_misuse_error("begin_transaction()")
        status.require_state(_S.READY, call="begin_transaction()")
        if differ(self._cluster_id, self._cluster.metadata.cluster_id):
            await self._renew_identity(ProducerIdentity())
        self.partitions.forget_partitions()
        self._offsets.forget_groups()
        self.batches.forget_batches()
        level = self._requests.level
        if self._used_at_old_level and level >= IMPLICIT:
            level = await self._renew_after_upgrade(level)
        self._used_at_old_level = level < IMPLICIT
        self._begin_refused = False
        return status.begin_transaction(level, self._clock.monotonic())

    async def _renew_identity(self, known: ProducerIdentity) -> None:
        """Get a new epoch of a known identity for a begin, or without one a new identity.

        After an error that does not require a restart, and after a cancellation, the next begin
        tries again.
        """
        self.status.handle_event(_E.INITIALIZE)
        try:
            identity = await self._requests.request_identity(known, self._default_s)
        except KafkaError as error:
            raised = as_transaction_error(error, Scope.INIT_PRODUCER_ID)
            if classify(error, Scope.INIT_PRODUCER_ID) is Decision.RECOVER:
                self.status.require_restart()
                self.status.handle_event(_E.NOT_INITIALIZED)
            else:
                self._begin_refused = True
                self.status.handle_event(_E.NOT_RENEWED)
            raise raised from raised.__cause__
        except BaseException:
            self.status.handle_event(_E.NOT_RENEWED)
            raise
        self.status.adopt_identity(identity)
        self._cluster_id = self._cluster.metadata.cluster_id
        self._bump_needed = self._used_at_old_level = False
        self.status.handle_event(_E.INITIALIZED)

    async def _renew_after_upgrade(self, level: int) -> int:
        """Take a new epoch after an upgrade. Return the level of the next transaction.

        The markers of the previous transaction may not be written yet. At level 2, they would also
        end records of the next transaction if these had the same epoch. Without a new epoch, the
        next transaction uses the requests of the old level, which the coordinator refuses until the
        markers are written.
        """
        try:
            await self._renew_identity(self.status.identity)
        except KafkaError:
            self.status.require_state(_S.READY, call="begin_transaction()")
            return IMPLICIT - 1
        return level

    def on_cluster_replaced(self) -> None:
        """Fail the open transaction, because its cluster cannot be reached any more.

        The next transaction, or a restart, gets a producer id of the present cluster.
        """
        if self.status.state not in OPEN:
            return
        error = TransactionFailedError(ELSEWHERE)
        if self._ending is not None and not self._ending.over:
            self._ending.cancel(error)
        self.status.handle_error(error, Scope.TRANSACTION)

    async def _wait_for_start(self) -> None:
        try:
            async with asyncio.timeout(self._default_s) as patience:
                await self._start_done.wait()
        except TimeoutError:
            if not patience.expired():
                raise
            self._begin_refused = True
            cause = self._requests.find_last_error()
            raise abortable(
                "The producer has not started yet: no coordinator has returned a producer id "
                f"within {self._default_s:.1f} s.",
                cause,
            ) from cause

    async def wait_for_previous(self) -> None:
        """Wait for the end of the previous transaction, if it is in progress without its caller.

        Raise the error of a commit that went on in the background, and an abortable error if there
        is no end in time.
        """
        if self.is_ending_alone:
            with self._meters.time_block("begin.seconds", self._clock):
                await self._await_previous()

    @property
    def is_ending_alone(self) -> bool:
        """Whether the transaction is being ended in the background, without a caller."""
        return self.status.state is _S.ABORTING or self._commit_abandoned

    @property
    def _commit_abandoned(self) -> bool:
        """Whether a commit is in progress whose caller was cancelled and did not see its end."""
        ending = self._ending
        return self.status.state is _S.COMMITTING and ending is not None and ending.abandoned

    async def _await_previous(self) -> None:
        """Wait for the end of the previous transaction. Raise the error of an abandoned commit."""
        ending, abandoned = self._required_ending(), self._commit_abandoned
        if not await ending.wait(self._default_s):
            raise abortable(
                f"The coordinator did not complete the {'commit' if abandoned else 'abort'} of "
                f"the previous transaction within {self._default_s:.1f} s.",
                self._requests.find_last_error(),
            )
        if abandoned:
            await ending.result(0.0)

    def require_open(self, call: str) -> None:
        """Raise an error if no transaction is open. `call` is the call that needs one."""
        self.status.require_state(_S.IN_TRANSACTION, call=call)

    async def send_offsets(self, offsets: Offsets, member: GroupMetadata, timeout: float) -> None:
        """Add offsets to the open transaction. A cancellation makes it abortable."""
        self.require_open("send_offsets_to_transaction()")
        current = self.status.current
        ended = asyncio.get_running_loop().create_future()
        self._offset_calls.add(ended)
        try:
            with self._meters.time_block("offsets.seconds", self._clock):
                await self._offsets.send_offsets(offsets, member, timeout)
        except KafkaError as error:
            raised = self._handle_error(error, Scope.TXN_OFFSET_COMMIT, current)
            raise raised from raised.__cause__
        except asyncio.CancelledError:
            self._handle_error(
                abortable("Sending the offsets was cancelled."),
                Scope.TXN_OFFSET_COMMIT,
                current,
            )
            raise
        finally:
            self._offset_calls.discard(ended)
            ended.set_result(None)

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
        now = self._clock.monotonic()
        commit = Commit(self.status.current, now, timeout, self._flush_s, transaction.fix_offsets())
        self._ending = commit.operation
        if self._direct_is_possible():
            self._direct.begin_commit(commit)
        else:
            self._accumulator.demand_all()
            self.continue_commit(commit)
        try:
            await commit.operation.result(self._shielded_s)
        except asyncio.CancelledError:
            if not commit.operation.over:
                self._give_up_commit(commit)
            raise

    def _give_up_commit(self, commit: Commit) -> None:
        """Stop waiting for a commit. Abort the transaction, unless EndTxn was sent."""
        current = commit.current
        if current.is_undecided:
            current.mark_given_up()
        elif self.status.state in (_S.COMMITTING, _S.ABORTABLE_ERROR):
            # Offsets may be in flight. At levels 0 and 1, a new epoch keeps them out of the next
            # transaction.
            self._bump_needed = self._bump_needed or current.level < IMPLICIT
            current.require_abort()
            commit.operation.cancel(abortable("The commit was cancelled, and was given up."))
            self._begin_abort(accept_commit=True)

    def _direct_is_possible(self) -> bool:
        """Return whether a commit can begin without a task of its own; see `DirectCommit`."""
        return not (
            self._bump_needed
            or self.status.current.is_epoch_unsafe
            or self._offset_calls
            or self._requests.level_is_old
            or self._accumulator.undesignated
        )

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
            commit.set_end_deadline(self._clock.monotonic() + self._default_s)
        try:
            if earlier is None:
                for offsets, reads in self._offsets.offsets_of(commit.reads):
                    await self._offsets.send_offsets(
                        offsets, reads, self._seconds_until(commit.deadline)
                    )
                    commit.operation.require_running()
            scope = Scope.TRANSACTION
            if earlier is None:
                # An error of another task may have come in the meantime.
                self.raise_failure(current)
            if current.is_written:
                left_s = self._seconds_until(commit.deadline)
                following = await self._requests.send_end(
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
            await self._requests.refresh_level()
            commit.operation.require_running()
        self.end_commit(commit, following)

    def _fail_without_epoch(self, error: KafkaError) -> KafkaError:
        """Make the producer unusable, because the next transaction has no epoch."""
        raised = TransactionFailedError(
            "The transaction has ended, but the coordinator refused the epoch of the next one."
        )
        raised.__cause__ = error
        return self.status.handle_error(raised, Scope.TRANSACTION)

    def end_commit(self, commit: Commit, following: ProducerIdentity) -> None:
        """End a transaction that was committed; see `DirectCommit`."""
        self.status.adopt_identity(following)
        self._end_transaction(TransactionOutcome.COMMITTED, _E.COMMITTED)
        self._meters.observe_duration("commit", self._clock.monotonic() - commit.began)

    def fail_late_commit(self, commit: Commit) -> None:
        """Fail a commit whose EndTxn was not answered in time; see `DirectCommit`."""
        waited_s = self._clock.monotonic() - commit.began
        error = ApiTimeoutError(
            f"There was no successful response within {waited_s:.1f} s.", api="EndTxn"
        )
        commit.operation.end(self._fail_commit(error, Scope.TRANSACTION, commit.current))

    def _fail_commit(
        self, error: KafkaError, scope: Scope, current: CurrentTransaction
    ) -> KafkaError:
        raised = self._handle_error(error, scope, current)
        if current.is_undecided:
            current.store_outcome(TransactionOutcome.UNKNOWN)
        return raised

    async def flush_records(self, commit: Commit) -> None:
        """Wait for the records and the offsets. After the deadline, fail the transaction."""
        try:
            async with asyncio.timeout(self._seconds_until(commit.deadline)):
                await self._engine.flush()
                await self._await_offset_calls()
        except TimeoutError:
            waited_s = self._clock.monotonic() - commit.began
            text = f"The records and offsets were not all acknowledged within {waited_s:.1f} s."
            cause = self._accumulator.find_last_answer() or self.partitions.last_error
            late = abortable(text, cause or self._offsets.last_refusal())
            self._handle_error(late, Scope.TRANSACTION, commit.current)

    async def _await_offset_calls(self) -> None:
        """Wait until no offsets are being sent, so that none arrive after the end."""
        if self._offset_calls:
            await asyncio.wait(self._offset_calls)

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
        current, now = self.status.current, self._clock.monotonic()
        # The wait for the records has the same limits and errors as in a commit.
        return await detach(self, Commit(current, now, timeout, self._flush_s), self._cluster_id)

    # -- abort

    async def abort(self, timeout: float | None = None, *, accept_commit: bool = False) -> None:
        """Abort the open transaction; see `Producer.abort_transaction`.

        If the abort finds that the transaction was committed, an ApplicationRecoverableError is
        raised. With `accept_commit`, the transaction ends as committed instead, and the end of a
        commit that another call waits for is awaited.
        """
        status, current = self.status, self.status.current
        deadline = self._clock.monotonic() + (self._default_s if timeout is None else timeout)
        if self._commit_abandoned or (accept_commit and status.state is _S.COMMITTING):
            if not await self._required_ending().wait(self._seconds_until(deadline)):
                return
            if accept_commit and current.outcome is TransactionOutcome.COMMITTED:
                return
        if self._is_found_committed(current):
            raise self._fail_found_committed()
        is_aborted = current.outcome is TransactionOutcome.ABORTED
        if status.state is _S.READY and (is_aborted or self._begin_refused):
            return
        if status.state is _S.INITIALIZING and self._begin_refused:
            return
        if status.state is not _S.ABORTING:
            status.require_state(_S.IN_TRANSACTION, _S.ABORTABLE_ERROR, call="abort_transaction()")
            self._begin_abort(accept_commit)
        operation = self._required_ending()
        if not await operation.wait(self._seconds_until(deadline)):
            if current.outcome is None:
                current.store_outcome(TransactionOutcome.UNKNOWN)
            return
        if (restart := self._restart_call) is not None:
            # The restart has cancelled the abort, and aborts the transaction, too.
            await asyncio.wait([restart], timeout=self._seconds_until(deadline))
            if not restart.done() or current.outcome is TransactionOutcome.ABORTED:
                return
        await operation.result(0.0)

    def _is_found_committed(self, current: CurrentTransaction) -> bool:
        """Return whether a commit that went on in the background has succeeded."""
        committed = current.is_given_up and current.outcome is TransactionOutcome.COMMITTED
        return committed and self.status.state is _S.READY and self.status.current is current

    def _fail_found_committed(self) -> KafkaError:
        error = TransactionFailedError("The abort found that the transaction had been committed.")
        error.hint = "Await restart(), and go on after this transaction. Do not repeat its work."
        return self.status.handle_error(error, Scope.TRANSACTION)

    def _begin_abort(self, accept_commit: bool) -> None:
        self.status.handle_event(_E.ABORT)
        self._ending = Operation()
        self._spawn_operation("abort", self._ending, self._abort, self._ending, accept_commit)

    async def _abort(self, operation: Operation, accept_commit: bool) -> None:
        current, began = self.status.current, self._clock.monotonic()
        await self.batches.drain()
        await self._await_offset_calls()
        await self._offsets.wait_for_responses(current)
        operation.require_running()
        self._engine.failures.take_failures()
        self._raise_fatal()
        try:
            outcome, following = TransactionOutcome.ABORTED, current.identity
            if current.is_undecided:
                outcome, following = await self._requests.find_outcome(current)
            elif current.is_written:
                following = await self._requests.send_abort(current)
            operation.require_running()
        except KafkaError as error:
            if operation.over:
                raise
            raised = self._handle_error(error, Scope.TRANSACTION, current)
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
            await self._requests.refresh_level()
            operation.require_running()
        if outcome is TransactionOutcome.COMMITTED and not accept_commit:
            current.store_outcome(outcome)
            self._meters.count_end(outcome)
            raise self._fail_found_committed()
        self._raise_fatal()
        self._end_transaction(
            outcome, _E.ABORTED if outcome is TransactionOutcome.ABORTED else _E.COMMITTED
        )
        self._meters.observe_duration("abort", self._clock.monotonic() - began)

    # -- ends

    async def _take_next_identity(
        self, current: CurrentTransaction, following: ProducerIdentity
    ) -> ProducerIdentity:
        """Return the identity for the next transaction. EndTxn has returned `following`."""
        if following == current.identity and self._needs_new_epoch():
            following = await self._requests.renew_epoch(following)
        self._bump_needed = False
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
        return self._bump_needed or is_unsafe or self.partitions.has_gap()

    def _end_transaction(self, outcome: TransactionOutcome, event: TransactionEvent) -> None:
        self._meters.count_end(outcome)
        if self.status.current.is_written:
            self.pause.on_transaction_end(self._clock.monotonic())
        self.status.end_transaction(outcome, event)

    def _spawn_operation(
        self, name: str, operation: Operation, work: Callable[..., Awaitable[None]], *args: Any
    ) -> None:
        if not self._supervisor.running:
            operation.end(ClosedError("The producer was closed."))
            return
        self._supervisor.spawn(operation.run, work, *args, name=f"transaction {name}")

    def _required_ending(self) -> Operation:
        assert self._ending is not None
        return self._ending

    @property
    def close_timeout_s(self) -> float:
        """Seconds that an abort at the end of `async with` may take."""
        bounds_ms = (self._config.close_timeout_ms, self._config.shutdown_timeout_ms)
        return min(bound for bound in bounds_ms if bound is not None) / 1000

    @property
    def _default_s(self) -> float:
        return self._config.default_api_timeout_ms / 1000

    def _seconds_until(self, deadline: float) -> float:
        return max(deadline - self._clock.monotonic(), 0.0)

    # -- errors

    def _handle_error(
        self, error: KafkaError, scope: Scope, current: CurrentTransaction
    ) -> KafkaError:
        """Handle a final error of a request of a transaction. Return the error to raise."""
        if self.status.current is not current or self.status.state not in FAILING:
            return as_transaction_error(error, scope)
        return self.status.handle_error(error, scope)

    def on_state_change(self, old: TransactionState, new: TransactionState) -> None:
        if new is _S.IN_TRANSACTION or old is _S.IN_TRANSACTION:
            self._engine.accept_records(new is _S.IN_TRANSACTION)
        if new in BROKEN:
            self._on_broken(new)

    def _on_broken(self, new: TransactionState) -> None:
        current = self.status.current
        if new is _S.ABORTABLE_ERROR and current.level < IMPLICIT:
            self._bump_needed = True
        self.batches.drop_later()
        self._direct.continue_in_task()
        if new is _S.FATAL_ERROR and current.abandon_transaction():
            self._meters.count_end(current.outcome)

    # -- closing

    async def close(self, timeout: float) -> None:
        """Abort the open transaction, unless it is detached, because the producer is being closed.

        If the client has failed, send nothing: the coordinator aborts the transaction at its
        timeout.
        """
        if self._cluster.supervisor.failure is not None:
            return
        deadline = self._clock.monotonic() + timeout
        if self._restart_call is not None:
            await asyncio.wait([self._restart_call], timeout=timeout)
        if self.status.state in (_S.COMMITTING, _S.ABORTING):
            await self._required_ending().wait(self._seconds_until(deadline))
        if self.status.state is _S.DETACHING:
            self.status.handle_event(_E.NOT_DETACHED)
        if self.status.state in (_S.IN_TRANSACTION, _S.ABORTABLE_ERROR):
            await self.abort(self._seconds_until(deadline), accept_commit=True)

    def stop(self) -> None:
        """Handle no more errors, and close the connection to the coordinator."""
        if self.status.close():
            self._meters.count_end(self.status.current.outcome)
        self._direct.stop()
        self._requests.release()
