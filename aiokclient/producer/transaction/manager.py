"""The transactions of a producer: the coroutines around the table of `states`.

This begins transactions, and gets the identity of the producer: at its start, at a restart, and
before a begin that needs a new one. `TransactionEnds` commits, aborts, and detaches transactions.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from aiokclient.cluster.metadata.snapshot import differ
from aiokclient.errors import (
    KafkaError,
    TransactionFailedError,
)
from aiokclient.policy import Decision, Scope, as_transaction_error, classify
from aiokclient.producer.transaction.ending import (
    MarkerPause,
    TransactionEnds,
    TransactionMeters,
)
from aiokclient.producer.transaction.offsets import Offsets, TransactionOffsets
from aiokclient.producer.transaction.partitions import TransactionBatches, TransactionPartitions
from aiokclient.producer.transaction.requests import IMPLICIT, TransactionRequests
from aiokclient.producer.transaction.states import BROKEN, TransactionEvent, TransactionState
from aiokclient.producer.transaction.status import (
    OPEN,
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
    from aiokclient.types import GroupMetadata

ELSEWHERE = (
    "The client has moved to another cluster during the transaction. The former cluster aborts it, "
    "unless a commit was sent before. Whether such a commit was applied is unknown."
)

RESTARTED = "The producer was restarted."

_S, _E = TransactionState, TransactionEvent


class TransactionManager:
    """The transactions of one producer."""

    def __init__(self, engine: Engine, config: ProducerConfig, status: TransactionStatus) -> None:
        cluster = engine.cluster
        self.status = status
        self._engine = engine
        self._cluster = cluster
        self._clock = cluster.clock
        self.meters = TransactionMeters(engine.own_metrics, cluster.clock)
        self.requests = TransactionRequests(
            status.transactional_id,
            config,
            cluster,
            transaction_timeout_ms=config.transaction_timeout_ms,
        )
        self.batches = TransactionBatches(engine, self)
        self.offsets = TransactionOffsets(config, cluster, self.requests, status)
        self.partitions = TransactionPartitions(engine, config, self)
        self.pause = MarkerPause()
        self._default_s = config.default_api_timeout_ms / 1000
        self.offset_calls: set[asyncio.Future[None]] = set()
        """The calls of `send_offsets` in progress. The end of the transaction waits for them."""
        self._used_at_old_level = False
        """Whether the last transaction was one of level 0 or 1, which keeps its epoch."""
        self.cluster_id: str | None = None
        """The cluster whose coordinator has returned the producer id."""
        self._start_done = asyncio.Event()
        """An event that is cleared while a start in the background is in progress."""
        self.restart_call: asyncio.Future[None] | None = None
        """The restart in progress. It is cancelled if the restart is cancelled."""
        self.is_begin_refused = False
        """Whether the last begin failed before it opened a transaction, so that there is nothing to
        abort."""
        self._start_done.set()
        self.ends = TransactionEnds(engine, config, self)
        status.manager = self

    # -- starting

    async def start(self, timeout: float) -> None:
        """Get a producer id, which fences older producers with the same transactional id."""
        self.status.handle_event(_E.INITIALIZE)
        try:
            with self.meters.time_block("init.seconds"):
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
        self._engine.supervisor.spawn(self._start_in_background, name="the producer id")

    async def _start_in_background(self) -> None:
        try:
            await self.start(math.inf)
        finally:
            self._start_done.set()

    async def _request_identity(self, timeout: float) -> None:
        deadline = self._clock.monotonic() + timeout
        try:
            await self.requests.store_lower_level(
                self.status.current, self.status.identity, timeout
            )
            identity = await self.requests.request_identity(
                ProducerIdentity(), self.ends.seconds_until(deadline)
            )
        except BaseException:
            self.status.require_restart()
            self.status.handle_event(_E.NOT_INITIALIZED)
            raise
        self.status.clear_fatal_error()
        self._adopt_identity(identity)

    def _adopt_identity(self, identity: ProducerIdentity) -> None:
        """Use an identity that InitProducerId has returned."""
        self.status.adopt_identity(identity)
        self.cluster_id = self._cluster.metadata.cluster_id
        self._used_at_old_level = False
        self.ends.forget_epoch()
        self.status.handle_event(_E.INITIALIZED)

    async def restart(self) -> None:
        """Begin again with a new epoch; see `Producer.restart`.

        If another task is restarting, wait for that restart, and end as it does. If that one is
        cancelled, restart.
        """
        while (other := self.restart_call) is not None:
            await asyncio.wait([other])
            if not other.cancelled():
                error = other.exception()
                if isinstance(error, KafkaError):
                    raise repeated(error)
                return
        if self.status.state is _S.INITIALIZING:
            raise self.status.make_misuse_error("restart()")
        call = self.restart_call = asyncio.get_running_loop().create_future()
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
            self.restart_call = None

    async def _restart(self) -> None:
        status, current = self.status, self.status.current
        deadline = self._clock.monotonic() + self._default_s
        was_aborting = status.state is _S.ABORTING
        status.handle_event(_E.RESTART)
        self.is_begin_refused = False
        text = "The producer was restarted before the transaction was aborted."
        self.ends.cancel_operation(
            TransactionFailedError(text) if was_aborting else abortable(RESTARTED)
        )
        self.batches.drop_all()
        self._engine.failures.take_failures()
        try:
            await self._find_outcome_before_restart(current, deadline)
        except BaseException:
            status.require_restart()
            status.handle_event(_E.NOT_INITIALIZED)
            raise
        self.meters.count_restart()
        try:
            await self._request_identity(self.ends.seconds_until(deadline))
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
                # The other half of the time is for InitProducerId.
                async with asyncio.timeout(self.ends.seconds_until(deadline) / 2):
                    outcome, _ = await self.requests.find_outcome(current)
            except (KafkaError, TimeoutError):
                outcome = TransactionOutcome.UNKNOWN
        current.store_outcome(outcome)
        self.meters.count_end(outcome)

    # -- one transaction

    async def begin_transaction(self) -> CurrentTransaction:
        """Open a transaction. Wait for the abort of the previous one if it is in progress."""
        status = self.status
        if not self._start_done.is_set():
            with self.meters.time_block("begin.seconds"):
                await self._wait_for_start()
        await self.ends.wait_for_previous()
        if status.state is _S.ABORTABLE_ERROR:
            raise status.make_misuse_error("begin_transaction()")
        status.require_state(_S.READY, call="begin_transaction()")
        # In this cluster, the producer id may belong to another producer.
        if differ(self.cluster_id, self._cluster.metadata.cluster_id):
            await self._renew_identity(ProducerIdentity())
        self.partitions.forget_partitions()
        self.offsets.forget_groups()
        self.batches.forget_batches()
        level = self.requests.level
        if self._used_at_old_level and level >= IMPLICIT:
            level = await self._renew_after_upgrade(level)
        self._used_at_old_level = level < IMPLICIT
        self.is_begin_refused = False
        return status.begin_transaction(level, self._clock.monotonic())

    async def _renew_identity(self, known: ProducerIdentity) -> None:
        """Get a new epoch of a known identity for a begin, or without one a new identity.

        After an error that does not require a restart, and after a cancellation, the next begin
        tries again.
        """
        self.status.handle_event(_E.INITIALIZE)
        try:
            identity = await self.requests.request_identity(known, self._default_s)
        except KafkaError as error:
            raised = as_transaction_error(error, Scope.INIT_PRODUCER_ID)
            if classify(error, Scope.INIT_PRODUCER_ID) is Decision.RECOVER:
                self.status.require_restart()
                self.status.handle_event(_E.NOT_INITIALIZED)
            else:
                self.is_begin_refused = True
                self.status.handle_event(_E.NOT_RENEWED)
            raise raised from raised.__cause__
        except BaseException:
            self.status.handle_event(_E.NOT_RENEWED)
            raise
        self._adopt_identity(identity)

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
        self.ends.cancel_operation(error)
        self.status.handle_error(error, Scope.TRANSACTION)

    async def _wait_for_start(self) -> None:
        try:
            async with asyncio.timeout(self._default_s) as patience:
                await self._start_done.wait()
        except TimeoutError:
            if not patience.expired():
                raise
            self.is_begin_refused = True
            cause = self.requests.find_last_error()
            raise abortable(
                "The producer has not started yet: no coordinator has returned a producer id "
                f"within {self._default_s:.1f} s.",
                cause,
            ) from cause

    def require_open(self, call: str) -> None:
        """Raise an error if no transaction is open. `call` is the call that needs one."""
        self.status.require_state(_S.IN_TRANSACTION, call=call)

    async def send_offsets(self, offsets: Offsets, member: GroupMetadata, timeout: float) -> None:
        """Add offsets to the open transaction. A cancellation makes it abortable."""
        self.require_open("send_offsets_to_transaction()")
        current = self.status.current
        ended = asyncio.get_running_loop().create_future()
        self.offset_calls.add(ended)
        try:
            with self.meters.time_block("offsets.seconds"):
                await self.offsets.send_offsets(offsets, member, timeout)
        except KafkaError as error:
            raised = self.status.handle_request_error(error, Scope.TXN_OFFSET_COMMIT, current)
            raise raised from raised.__cause__
        except asyncio.CancelledError:
            self.status.handle_request_error(
                abortable("Sending the offsets was cancelled."),
                Scope.TXN_OFFSET_COMMIT,
                current,
            )
            raise
        finally:
            self.offset_calls.discard(ended)
            ended.set_result(None)

    def on_state_change(self, old: TransactionState, new: TransactionState) -> None:
        """Let the producer accept records in a transaction only, and react to errors."""
        if new is _S.IN_TRANSACTION or old is _S.IN_TRANSACTION:
            producer = self._engine.producer.get()
            if producer is not None:
                producer._accept_records(new is _S.IN_TRANSACTION)
        if new in BROKEN:
            self.ends.on_broken(new)

    # -- closing

    async def abort_at_close(self, timeout: float) -> None:
        """Abort the open transaction, unless it is detached, because the producer is being closed.

        If the client has failed, send nothing: the coordinator aborts the transaction at its
        timeout.
        """
        if self._cluster.supervisor.failure is not None:
            return
        deadline = self._clock.monotonic() + timeout
        if self.restart_call is not None:
            await asyncio.wait([self.restart_call], timeout=timeout)
        if self.status.state in (_S.COMMITTING, _S.ABORTING):
            await self.ends.required_operation.wait(self.ends.seconds_until(deadline))
        if self.status.state is _S.DETACHING:
            self.status.handle_event(_E.NOT_DETACHED)
        if self.status.state in (_S.IN_TRANSACTION, _S.ABORTABLE_ERROR):
            await self.ends.abort(self.ends.seconds_until(deadline), accept_commit=True)

    def stop(self) -> None:
        """Handle no more errors, and close the connection to the coordinator."""
        if self.status.mark_closed():
            self.meters.count_end(self.status.current.outcome)
        self.ends.stop_timer()
        self.requests.close_connection()
