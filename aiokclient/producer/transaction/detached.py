"""A transaction that one process has written, and that another process ends.

The coordinator identifies a transaction by its transactional id, producer id, and epoch, so that
any client that knows these can send EndTxn. Nobody else writes in that epoch once the producer is
detached. An EndTxn that is sent again therefore has one of these answers:

- success: the transaction has the requested outcome, from this request or from an earlier one.
- INVALID_TXN_STATE: the transaction has the other outcome. To confirm that, EndTxn for the other
  outcome is sent, too. It cannot change the outcome: if the transaction were still open, the
  coordinator would have accepted the first EndTxn.
- a code that says that the producer id or the epoch is not the current one any more: a newer
  producer has started, or at levels 0 and 1, the coordinator has aborted the transaction after its
  timeout. The coordinator does not know the outcome any more.

At level 2 of transaction.version (KIP-890), EndTxn increases the epoch, and the coordinator treats
an EndTxn with the previous epoch as a repetition. At levels 0 and 1, EndTxn keeps the epoch. The
version of EndTxn decides whether the epoch increases, so all requests for one transaction use the
version of its level.

Another cluster may have given the same producer id and epoch to a producer with the same
transactional id. So a request is sent only in the cluster in which the transaction was begun.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from aiokclient.errors import ClusterChangedError, InvalidTxnStateError, KafkaError
from aiokclient.policy import Decision, Scope, as_transaction_error, classify
from aiokclient.producer.transaction.requests import TransactionRequests
from aiokclient.producer.transaction.states import BROKEN, TransactionEvent, TransactionState
from aiokclient.producer.transaction.status import (
    CurrentTransaction,
    ProducerIdentity,
    TransactionOutcome,
    abortable,
)
from aiokclient.types import public_in

if TYPE_CHECKING:
    from aiokclient.cluster.client import ClusterClient
    from aiokclient.producer.transaction.ending import Commit, TransactionEnds

HINTS = {
    Decision.RETRY: "Call end_transaction() again, which finds out what happened.",
    Decision.REFRESH_AND_RETRY: "Call end_transaction() again, which finds out what happened.",
    Decision.ABORT: "Call end_transaction() with commit=False.",
    Decision.RECOVER: (
        "A newer producer with this transactional id has started, or the transaction took longer "
        "than its timeout. If the transaction was still open, it was aborted. If it had already "
        "ended, the coordinator does not know its outcome any more."
    ),
}
"""The advice for an error of `end_transaction`, by the decision of the policy."""


@public_in("aiokclient")
@dataclass(frozen=True, slots=True)
class DetachedTransaction:
    """An open transaction to which its producer writes nothing more.

    `Transaction.detach` returns it, and `Client.end_transaction` ends it. It can be pickled.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    level: int | None = None
    """The level of transaction.version that its requests use; None for the coordinator's level."""
    is_empty: bool = False
    """Whether the transaction has neither records nor offsets, so that no broker knows it."""
    cluster_id: str | None = None
    """The cluster in which the transaction was begun; None if it is not known."""

    def __setstate__(self, state: list[Any]) -> None:
        # An earlier version has pickled fewer fields. Those after them have their defaults.
        missing = fields(self)[len(state) :]
        values = [*state, *(field.default for field in missing)]
        for field, value in zip(fields(self), values, strict=True):
            object.__setattr__(self, field.name, value)

    def _require_cluster(self, cluster: ClusterClient) -> None:
        """Raise ClusterChangedError if the client is in another cluster than the transaction."""
        present = cluster.metadata.cluster_id
        if self.cluster_id is None or present is None or self.cluster_id == present:
            return
        error = ClusterChangedError(
            f"The transaction of {self.transactional_id!r} was begun in the cluster "
            f"{self.cluster_id}, and this client is in the cluster {present}.",
            old_cluster_id=self.cluster_id,
            new_cluster_id=present,
        )
        error.what = "A transaction can be ended only in its own cluster."
        error.hint = (
            "Use a client of that cluster, or repeat the work of the transaction in this one."
        )
        raise error


async def detach(
    ends: TransactionEnds, commit: Commit, cluster_id: str | None
) -> DetachedTransaction:
    """Detach the open transaction of a producer after its records were written.

    `commit` has the time limits, and `cluster_id` is that of the producer's cluster.
    """
    status, current = ends.status, commit.current
    status.require_state(TransactionState.IN_TRANSACTION, call="detach()")
    status.handle_event(TransactionEvent.DETACH)
    try:
        await ends.flush_records(commit)
    except asyncio.CancelledError:
        if status.state is TransactionState.DETACHING and status.current is current:
            status.handle_event(TransactionEvent.NOT_DETACHED)
        raise
    moved = status.state is not TransactionState.DETACHING and status.state not in BROKEN
    if moved or status.current is not current:
        raise abortable("The producer was restarted or closed before the transaction was detached.")
    ends.raise_failure(current)
    status.handle_event(TransactionEvent.DETACHED)
    current.mark_detached()
    return DetachedTransaction(
        status.transactional_id,
        *current.identity,
        current.level,
        not current.is_written,
        cluster_id,
    )


async def end_detached(
    cluster: ClusterClient, transaction: DetachedTransaction, *, commit: bool, timeout: float
) -> TransactionOutcome:
    """End a transaction, or find out its outcome, within `timeout` seconds.

    See `Client.end_transaction` for its errors. After a cancellation, it can be called again.
    """
    transaction._require_cluster(cluster)
    if transaction.is_empty:
        return _outcome(commit)
    clock, config = cluster.clock, cluster.config
    deadline = clock.monotonic() + timeout
    requests = TransactionRequests(
        transaction.transactional_id, config, cluster, detached=transaction
    )
    identity = ProducerIdentity(transaction.producer_id, transaction.epoch)
    current = CurrentTransaction(await _level(requests, transaction, timeout), None)

    async def end(committed: bool) -> TransactionOutcome:
        left = max(deadline - clock.monotonic(), 0.0)
        await requests.send_end_txn(current, identity, commit=committed, timeout=left)
        return _outcome(committed)

    try:
        try:
            return await end(commit)
        except KafkaError as error:
            # With this code, the coordinator refuses an outcome other than the transaction's.
            if error.code != InvalidTxnStateError.code:
                raise
        return await end(not commit)
    except KafkaError as error:
        raised = _explained(error)
        raise raised from raised.__cause__


async def _level(
    requests: TransactionRequests, transaction: DetachedTransaction, timeout: float
) -> int:
    if transaction.level is not None:
        return transaction.level
    await requests.read_level(timeout)
    return requests.level


def _outcome(committed: bool) -> TransactionOutcome:
    return TransactionOutcome.COMMITTED if committed else TransactionOutcome.ABORTED


def _explained(error: KafkaError) -> KafkaError:
    decision = classify(error, Scope.TRANSACTION)
    if decision is Decision.RECOVER:
        error = as_transaction_error(error, Scope.TRANSACTION)
    error.hint = HINTS.get(decision, error.hint)
    return error
