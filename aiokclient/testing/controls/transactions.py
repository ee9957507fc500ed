"""Controls of the embedded cluster that act on transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aiokclient.testing.broker.codes import Refused
from aiokclient.testing.broker.groups.coordinator import get_groups
from aiokclient.testing.broker.transactions.coordinator import (
    TransactionCoordinator,
    TransactionView,
    get_transactions,
)
from aiokclient.testing.broker.transactions.states import CoordinatorTransactionState
from aiokclient.testing.broker.transactions.transaction import TransactionMetadata
from aiokclient.testing.controls.base import Controls
from aiokclient.types import OffsetAndMetadata, TopicPartition

LEVELS = (0, 1, 2)
_MOST_EPOCH = (1 << 15) - 1


def check_level(level: int) -> int:
    """Return a level of transaction.version. Raises ValueError for one that does not exist."""
    if level not in LEVELS:
        raise ValueError(f"transaction_version={level!r} is not valid. Use 0, 1, or 2.")
    return level


class TransactionControls(Controls):
    """Controls that inspect transactional ids, and that make their transactions last or end."""

    @property
    def transactions(self) -> dict[str, TransactionView]:
        """All transactional ids, in their current state."""
        return self._runner.call_in_loop(lambda: self._coordinator.make_view())

    @property
    def transaction_version(self) -> int:
        """The level of the finalized feature transaction.version."""
        return self._runner.call_in_loop(lambda: self._coordinator.level)

    def set_transaction_version(self, level: int) -> None:
        """Change the level of the finalized feature transaction.version to 0, 1, or 2.

        Clients learn it from their next ApiVersions response, in a higher epoch of the finalized
        features. Open transactions stay open.
        """
        check_level(level)
        self._runner.call_in_loop(lambda: self._coordinator.set_level(level))

    @contextmanager
    def hold_markers(self, transactional_id: str | None = None) -> Iterator[None]:
        """Write no markers within the block, for one transactional id or for all.

        A transaction that is ended meanwhile stays in the state PrepareCommit or PrepareAbort, so
        that the next requests for its transactional id are answered with CONCURRENT_TRANSACTIONS,
        and readers of committed data stop at its first record. The markers are written at the end
        of the block.
        """
        self._runner.call_in_loop(lambda: self._coordinator.hold_markers(transactional_id))
        try:
            yield
        finally:
            self._runner.post_to_loop(lambda: self._coordinator.release_markers(transactional_id))

    @contextmanager
    def hold_transaction_loading(self, transactional_id: str) -> Iterator[None]:
        """Keep the coordinator of a transactional id loading within the block.

        Requests are answered with COORDINATOR_LOAD_IN_PROGRESS, as after a failover.
        """
        self._runner.call_in_loop(lambda: self._coordinator.hold_loading(transactional_id))
        try:
            yield
        finally:
            self._runner.post_to_loop(lambda: self._coordinator.release_loading(transactional_id))

    def time_out_transaction(self, transactional_id: str) -> None:
        """Abort an open transaction now, as its coordinator does after the transaction's timeout.

        The epoch is increased. Raises ValueError if no transaction is open.
        """
        self._change_open(transactional_id, self._coordinator.revoke_transaction)

    def hang_transaction(self, transactional_id: str) -> None:
        """Let the coordinator forget an open transaction, which hangs from then on (KIP-664).

        No marker is written, and the coordinator reports the state CompleteAbort. In its
        partitions, the transaction stays open, so that readers of committed data stop at its first
        record, until `Admin.abort_transaction` ends it or another transaction of the same
        transactional id ends there. In Kafka, a record that arrives after the end of its
        transaction has this effect, if the brokers do not verify transactions (KIP-890). Raises
        ValueError if no transaction is open.
        """
        self._change_open(transactional_id, self._coordinator.hang_transaction)

    def _change_open(self, transactional_id: str, change: Callable[[str], None]) -> None:
        """Change a transactional id whose transaction is open. Raises ValueError otherwise."""

        def change_open(transaction: TransactionMetadata) -> None:
            if transaction.state is not CoordinatorTransactionState.ONGOING:
                raise ValueError(f"{transaction!r} has no open transaction.")
            change(transactional_id)

        self._change_transaction(transactional_id, change_open)

    def forget_transactional_id(self, transactional_id: str) -> None:
        """Forget a transactional id, as Kafka does after `transactional.id.expiration.ms`.

        Raises ValueError while a transaction is open or ending.
        """

        def forget_id(transaction: TransactionMetadata) -> None:
            if transaction.is_busy or transaction.state is CoordinatorTransactionState.ONGOING:
                raise ValueError(f"{transaction!r} is in use.")
            self._coordinator.expire_id(transactional_id)

        self._change_transaction(transactional_id, forget_id)

    def set_producer_epoch(self, transactional_id: str, epoch: int) -> None:
        """Set the current epoch of a transactional id, for example to one just below the maximum.

        A producer whose transactional id is at epoch 32766 gets a new producer id next.
        """
        if not 0 <= epoch <= _MOST_EPOCH:
            raise ValueError(f"epoch={epoch!r} is not valid. Use 0 to {_MOST_EPOCH}.")
        self._change_transaction(transactional_id, lambda transaction: transaction.set_epoch(epoch))

    def pending_offsets(self, group: str) -> dict[int, dict[TopicPartition, OffsetAndMetadata]]:
        """Return the offsets of open transactions that a group stores, by producer id."""

        def list_pending() -> dict[int, dict[TopicPartition, OffsetAndMetadata]]:
            found = get_groups(self._state).find_group(group)
            return {} if found is None else found.offsets.list_pending()

        return self._runner.call_in_loop(list_pending)

    @property
    def _coordinator(self) -> TransactionCoordinator:
        return get_transactions(self._state)

    def _change_transaction(
        self, transactional_id: str, change: Callable[[TransactionMetadata], None]
    ) -> None:
        def run() -> None:
            found = self._coordinator.find_transaction(transactional_id)
            if found is None:
                names = [each.transactional_id for each in self._coordinator]
                raise ValueError(
                    f"There is no transactional id {transactional_id!r}. Known: {names}."
                )
            try:
                change(found)
            except Refused as refused:
                raise ValueError(refused.message) from None
            self._state.notify_tests()

        self._runner.call_in_loop(run)
