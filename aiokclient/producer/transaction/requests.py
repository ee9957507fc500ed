"""The requests of a transactional producer to its coordinator.

Each coroutine sends one request until it succeeds, or until the policy or the deadline ends it. The
requests of a producer to its transaction coordinator have a connection of their own, because the
coordinator processes the requests of one connection one at a time.

The level of the feature `transaction.version` is that of the coordinator's connection. Level 2
(KIP-890) has other requests than levels 0 and 1, so each transaction stores its level. A cluster
that is downgraded while a transaction is open refuses its requests with the codes of `DOWNGRADED`.
The level is then read again, and the transaction goes on with the requests of the lower level.

A coordinator that refused a request with UNSUPPORTED_VERSION because of a downgrade usually refuses
all later ones, too, with CONCURRENT_TRANSACTIONS. Waiting would not help, so the transaction then
fails at once. Without such a refusal, CONCURRENT_TRANSACTIONS means that the last transaction is
not complete yet. `Patience` limits how long an abort waits for that.

An abort is not given up. It is repeated after every error that only an abort could correct, and so
is the request for the epoch of the next transaction. A commit that was not answered is found out by
an abort: if the transaction is committed, the coordinator refuses the abort, and accepts a
repetition of the commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from aiokclient.cluster.targets import Coordinator
from aiokclient.errors import (
    ConcurrentTransactionsError,
    InvalidTxnStateError,
    KafkaError,
    TransactionAbortableError,
    TransactionFailedError,
    UnknownProducerIdError,
    UnsupportedVersionError,
    error_for,
)
from aiokclient.network.pool import Purpose
from aiokclient.network.setup import identifying_request
from aiokclient.policy import Decision, Scope, classify
from aiokclient.producer.transaction.status import (
    CurrentTransaction,
    ProducerIdentity,
    TransactionOutcome,
    abortable,
)
from aiokclient.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from aiokclient.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from aiokclient.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from aiokclient.protocol.messages.init_producer_id import InitProducerIdRequest
from aiokclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiokclient.clock import Clock
    from aiokclient.cluster.client import ClusterClient
    from aiokclient.config.client import ClientConfig
    from aiokclient.network.connection import BrokerConnection
    from aiokclient.producer.transaction.detached import DetachedTransaction
    from aiokclient.protocol.schema import Request, Response

R = TypeVar("R", bound="Response")

REFUSED = frozenset({Decision.ABORT, Decision.FAIL})
"""Decisions about an error of the first EndTxn which show that the commit was not applied."""
FEATURE = "transaction.version"
IMPLICIT = 2
"""The level from which brokers add partitions and groups to transactions on their own (KIP-890)."""
OLD_END_TXN = 4
"""The highest version of EndTxn at levels 0 and 1. Later versions increase the epoch."""
OLD_ADD_PARTITIONS = 3
"""The highest version of AddPartitionsToTxn that clients send. Higher ones are for brokers."""
RECHECK_S = 10.0
"""Seconds after which the level is read again at the end of a transaction."""
DOWNGRADE_RECHECK_S = 0.5
"""Seconds after which the level is read again while an error may come from a downgrade."""
DOWNGRADED = frozenset({ConcurrentTransactionsError.code, UnsupportedVersionError.code})
"""The codes with which a downgraded cluster refuses the requests of level 2."""
UNENDED = frozenset(
    {
        ConcurrentTransactionsError.code,
        TransactionAbortableError.code,
        UnknownProducerIdError.code,
    }
)
"""The codes by which a coordinator says that it cannot abort the transaction now."""
BLOCKED = (
    "The cluster was downgraded to a level of transaction.version that cannot store this "
    "transaction. Restart the producer. The restart may fail until another broker is the "
    "coordinator."
)
RETRY_ABORT_S = 0.1
"""Seconds until an abort is sent again after an error that only an abort could correct."""
BUMPS_FROM = 3
"""The first version of InitProducerId that increases the epoch of a known producer (KIP-360)."""


def blocked(error: KafkaError) -> KafkaError:
    """Return the error for a transaction that a downgraded coordinator refuses."""
    raised = TransactionFailedError(
        BLOCKED, api=error.api, broker=error.broker, topic_partition=error.topic_partition
    )
    raised.__cause__ = error
    return raised


def first_error(response: AddPartitionsToTxnResponse) -> KafkaError | None:
    """Return the first error of a partition in a response."""
    for topic in response.results_by_topic_v3_and_below:
        for part in topic.results_by_partition:
            if part.partition_error_code:
                tp = TopicPartition(topic.name, part.partition_index)
                api = "AddPartitionsToTxn"
                return error_for(part.partition_error_code, api=api, topic_partition=tp)
    return None


def raise_if_blocked(transaction: CurrentTransaction, error: KafkaError) -> None:
    """Raise another error if `error` shows that the coordinator is blocked since a downgrade."""
    if transaction.was_refused and error.code == ConcurrentTransactionsError.code:
        raise blocked(error) from error


class Patience:
    """The time for which a coordinator may answer that it cannot end a transaction."""

    def __init__(self, limit_s: float, clock: Clock) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self._refused_since: float | None = None
        """The time of the first of the latest errors that all had codes of `UNENDED`.

        It is None if the last error had another code, or if there was no error yet.
        """

    def handle_error(self, error: KafkaError) -> None:
        """Handle an error before a retry. Raise TransactionFailedError once the time is over.

        While the coordinator cannot be reached, or is loading, the time does not count.
        """
        if error.code not in UNENDED:
            self._refused_since = None
            return
        now = self._clock.monotonic()
        if self._refused_since is None:
            self._refused_since = now
        elif now - self._refused_since >= self._limit_s:
            raise TransactionFailedError(
                f"For {now - self._refused_since:.1f} s, the coordinator has answered {error.name} "
                "instead of ending the transaction. Restart the producer. The restart may fail "
                "until the coordinator has written the end of an earlier transaction, or until "
                "another broker is the coordinator.",
                api=error.api,
                broker=error.broker,
            ) from error


class TransactionRequests:
    """The requests of a transactional producer to its coordinator."""

    def __init__(
        self,
        transactional_id: str,
        config: ClientConfig,
        cluster: ClusterClient,
        *,
        transaction_timeout_ms: int = 0,
        detached: DetachedTransaction | None = None,
    ) -> None:
        """Use a dedicated connection, or to end a detached transaction a shared one.

        `transaction_timeout_ms` is for a producer, which sends InitProducerId.
        """
        self._id = transactional_id
        self._timeout_ms = transaction_timeout_ms
        self._request_s = config.request_timeout_ms / 1000
        longest_ms = max(transaction_timeout_ms, config.default_api_timeout_ms)
        self._patience_s = longest_ms / 1000
        self._cluster = cluster
        self._target = Coordinator("transaction", self._id)
        self._detached = detached
        self._purpose = Purpose.TRANSACTION if detached is None else Purpose.CONTROL
        self._owner = self if detached is None else None
        self._latest: BrokerConnection | None = None
        """The connection of the last commit by `attempt_commit`. None if another request was sent
        since then, because the coordinator may have moved, or if the commit failed."""
        self._features: Mapping[str, int] | None = None
        """The broker's features from which `_level`, the level of transaction.version, was read."""
        self._level = 0
        self.level_read_at = -math.inf
        """The monotonic time at which the level was read last."""

    def find_last_error(self) -> KafkaError | None:
        """Return why the requests in progress have not succeeded so far, if that is known."""
        if not self._cluster.reached:
            return self._cluster.find_last_error()
        return self._cluster.calls.find_cause(self._target)

    def close_connection(self) -> None:
        """Close the connection to the coordinator."""
        self._latest = None
        self._cluster.release_owner(self)

    # -- the level

    @property
    def level(self) -> int:
        """The level of `transaction.version` that the coordinator announced last."""
        connection = self._find_connection()
        if connection is not None and connection.broker.features is not self._features:
            self._features = connection.broker.features
            self._level = self._features.get(FEATURE, 0)
            # Level 2 needs EndTxn 5 (KIP-890). A broker that is not upgraded yet may announce the
            # level of the cluster.
            if connection.broker.version_of(EndTxnRequest) <= OLD_END_TXN:
                self._level = min(self._level, IMPLICIT - 1)
        return self._level

    async def refresh_level(self, *, older_than_s: float = RECHECK_S) -> None:
        """Read the level again, unless it was read in the last `older_than_s` seconds.

        An error changes nothing: the next request shows whether the coordinator responds.
        """
        now = self._cluster.clock.monotonic()
        connection = self._find_connection()
        if now - self.level_read_at < older_than_s or (connection is None and older_than_s):
            return
        self.level_read_at = now
        request = identifying_request()
        with contextlib.suppress(KafkaError):
            if connection is None:
                # This opens a connection, and the levels are read when a connection is opened.
                await self._send_request(request, Scope.TRANSACTION, self._request_s)
                return
            # ApiVersions is the only request whose response has the levels of features (KIP-584).
            response = await connection.send(request, timeout_s=self._request_s)
            if not response.error_code:
                connection.broker.learn_levels(
                    {each.name: each.max_version_level for each in response.finalized_features}
                )

    async def read_level(self, timeout: float) -> None:
        """Connect to the coordinator, which announces the level, within `timeout` seconds."""
        await self._send_request(identifying_request(), Scope.TRANSACTION, timeout)

    def forget_coordinator(self) -> None:
        """Look up the coordinator again before the next request."""
        self._latest = None
        self._cluster.coordinators.forget_coordinator("transaction", self._id)

    def _find_connection(self) -> BrokerConnection | None:
        """Return the open connection to the coordinator, if requests may be sent to it now."""
        latest = self._latest
        if latest is None or latest.closed or self._cluster.permitted_brokers is None:
            node_id = self._cluster.coordinators.find_cached("transaction", self._id)
            if node_id is None:
                return None
            latest = self._cluster.find_connection(node_id, self._purpose, self._owner)
        return latest

    # -- the requests

    def new_patience(self) -> Patience:
        """Return a new limit for the time that the coordinator takes for an abort."""
        return Patience(self._patience_s, self._cluster.clock)

    async def request_identity(
        self, identity: ProducerIdentity, timeout: float, patience: Patience | None = None
    ) -> ProducerIdentity:
        """Return a producer id and epoch, which fence earlier producers with the same id.

        `identity` is the current identity, whose epoch is increased (KIP-360), or the default for a
        producer that starts. A coordinator before Kafka 2.5 increases the epoch, too, but does
        not check the current one. `timeout` is in seconds.
        """
        known = identity if self._checks_epochs() else ProducerIdentity()
        request = InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=known.producer_id,
            producer_epoch=known.epoch,
        )

        async def before_retry(error: KafkaError) -> None:
            if patience is not None:
                patience.handle_error(error)

        answer = await self._send_request(
            request, Scope.INIT_PRODUCER_ID, timeout, before_retry=before_retry
        )
        self.level_read_at = self._cluster.clock.monotonic()
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)

    def _checks_epochs(self) -> bool:
        """Return whether InitProducerId may be sent with the current producer id and epoch."""
        connection = self._find_connection()
        if connection is None:
            return True
        # KIP-360, in Kafka 2.5.
        return connection.broker.version_of(InitProducerIdRequest) >= BUMPS_FROM

    async def send_end_txn(
        self,
        transaction: CurrentTransaction,
        identity: ProducerIdentity,
        *,
        commit: bool,
        timeout: float,
        earlier: KafkaError | None = None,
        patience: Patience | None = None,
    ) -> ProducerIdentity:
        """End a transaction. Return the producer id and epoch of the next one.

        Without a response, EndTxn is sent again until `timeout` (seconds) or `patience` is over.
        Afterwards, `transaction.is_undecided` says whether a commit may have been applied although
        this raises an error. `earlier` is the error of `attempt_commit`, the first attempt.
        """
        request = self._make_end_txn(identity, commit=commit)

        def highest() -> int | None:
            # This is called immediately before the request is written.
            if commit:
                if transaction.must_abort:
                    raise abortable("The commit was given up before EndTxn was sent.")
                transaction.mark_undecided()
            return None if transaction.level >= IMPLICIT else OLD_END_TXN

        again = False

        async def before_retry(error: KafkaError) -> None:
            nonlocal again
            again = True
            if error.code in DOWNGRADED:
                await self.lower_level(transaction)
            raise_if_blocked(transaction, error)
            if patience is not None:
                patience.handle_error(error)

        try:
            answer = await self._send_request(
                request,
                Scope.TRANSACTION,
                timeout,
                highest=highest,
                before_retry=before_retry,
                earlier=earlier,
            )
        except KafkaError as error:
            if commit and not again and classify(error, Scope.TRANSACTION) in REFUSED:
                transaction.mark_decided()
            is_old = error.code == UnsupportedVersionError.code
            if is_old and await self.was_downgraded(transaction):
                raise blocked(error) from error
            raise
        transaction.mark_decided()
        return _following(answer, identity)

    def attempt_commit(
        self,
        transaction: CurrentTransaction,
        done: Callable[[ProducerIdentity | None, KafkaError | None], object],
    ) -> bool:
        """Commit a transaction by one attempt. Synchronous.

        Return False if the coordinator is not connected; then nothing was sent. Otherwise,
        `done(identity, None)` is called with the producer id and epoch of the next transaction, or
        `done(None, error)`. After an error, `send_end_txn` continues with further attempts. `done`
        must not raise. The response does not change `transaction`, which stays undecided: the
        caller decides whether the response still counts.
        """
        identity = transaction.identity
        request = self._make_end_txn(identity, commit=True)
        self._latest = connection = self._find_connection()
        if connection is None:
            return False

        def answered(response: Any, error: KafkaError | None) -> None:
            if error is not None:
                self._latest = None
            done(None if error is not None else _following(response, identity), error)

        transaction.mark_undecided()
        self._cluster.attempt_request(
            connection,
            request,
            answered,
            highest=None if transaction.level >= IMPLICIT else OLD_END_TXN,
        )
        return True

    def _make_end_txn(self, identity: ProducerIdentity, *, commit: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self._id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            committed=commit,
        )

    async def renew_epoch(self, identity: ProducerIdentity) -> ProducerIdentity:
        """Return the identity with the next epoch. Errors are retried as for an abort."""
        patience = self.new_patience()
        while True:
            try:
                return await self.request_identity(identity, math.inf, patience)
            except KafkaError as error:
                _require_repeatable(error, patience)
            await asyncio.sleep(RETRY_ABORT_S)

    async def _end_despite_errors(
        self, transaction: CurrentTransaction, *, commit: bool
    ) -> ProducerIdentity:
        """End a transaction. Repeat the request after an error that only an abort could correct."""
        patience, identity = self.new_patience(), transaction.identity
        while True:
            try:
                return await self.send_end_txn(
                    transaction, identity, commit=commit, timeout=math.inf, patience=patience
                )
            except KafkaError as error:
                _require_repeatable(error, patience)
            await asyncio.sleep(RETRY_ABORT_S)

    async def send_abort(self, transaction: CurrentTransaction) -> ProducerIdentity:
        """Send the abort until the coordinator accepts or refuses it."""
        try:
            return await self._end_despite_errors(transaction, commit=False)
        except KafkaError as error:
            # No transaction is open, so the abort has succeeded, unless the coordinator is known to
            # have a part of the transaction, or a commit was sent.
            is_expected = not (transaction.is_added or transaction.is_undecided)
            if error.code == InvalidTxnStateError.code and is_expected:
                return transaction.identity
            raise

    async def find_outcome(
        self, transaction: CurrentTransaction
    ) -> tuple[TransactionOutcome, ProducerIdentity]:
        """Abort a transaction whose commit was not answered, or find out that it is committed.

        Raises the coordinator's error if the outcome stays unknown.
        """
        try:
            return TransactionOutcome.ABORTED, await self.send_abort(transaction)
        except KafkaError as error:
            if classify(error, Scope.TRANSACTION) is not Decision.RECOVER:
                raise
        following = await self._end_despite_errors(transaction, commit=True)
        return TransactionOutcome.COMMITTED, following

    async def lower_level(
        self, transaction: CurrentTransaction, *, older_than_s: float = DOWNGRADE_RECHECK_S
    ) -> None:
        """Read the level again after a code of `DOWNGRADED`."""
        if transaction.level >= IMPLICIT:
            await self.refresh_level(older_than_s=older_than_s)
            transaction.lower_level(self.level)

    async def was_downgraded(
        self, transaction: CurrentTransaction, part: TopicPartition | str | None = None
    ) -> bool:
        """Read the level again after UNSUPPORTED_VERSION. Return whether it was lowered.

        `part` is the partition or the group that the refused request would have added.
        """
        await self.lower_level(transaction, older_than_s=0.0)
        if transaction.is_lowered:
            transaction.mark_refused(part)
        return transaction.is_lowered

    async def add_partitions(
        self,
        partitions: Iterable[TopicPartition],
        identity: ProducerIdentity,
        timeout: float,
        check: Callable[[AddPartitionsToTxnResponse], KafkaError | None],
    ) -> AddPartitionsToTxnResponse:
        """Add partitions to the open transaction, at levels 0 and 1."""
        topics: dict[str, list[int]] = {}
        for topic, partition in partitions:
            topics.setdefault(topic, []).append(partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=numbers)
                for name, numbers in topics.items()
            ],
        )
        return await self._send_request(
            request,
            Scope.TRANSACTION,
            timeout,
            highest=lambda: OLD_ADD_PARTITIONS,
            check=check,
        )

    async def add_group(
        self,
        group_id: str,
        transaction: CurrentTransaction,
        identity: ProducerIdentity,
        timeout: float,
    ) -> None:
        """Add the offsets of a group to the open transaction, at levels 0 and 1."""

        async def before_retry(error: KafkaError) -> None:
            raise_if_blocked(transaction, error)

        request = AddOffsetsToTxnRequest(
            transactional_id=self._id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            group_id=group_id,
        )
        await self._send_request(request, Scope.TRANSACTION, timeout, before_retry=before_retry)

    async def store_lower_level(
        self, refused: CurrentTransaction, identity: ProducerIdentity, timeout: float
    ) -> None:
        """Make the coordinator store the lower level, if it refused a request since a downgrade.

        A downgraded coordinator also refuses InitProducerId for a transactional id that it has
        stored at level 2. After it has refused one request for an id, it refuses all others, until
        another broker becomes the coordinator of the id. Before its first refusal, it accepts
        requests of a lower level with the current producer id and epoch, and then stores the id at
        that level. So this begins and aborts an empty transaction of level 0 before a restart.

        `refused` is the transaction, and `identity` the current identity of the producer. Raises
        ApiTimeoutError after `timeout` seconds, and the error with which the coordinator refuses
        the transaction of the lower level, unless a new epoch corrects the error.
        """
        if refused.refused_part is None:
            return
        try:
            await self._abort_empty_transaction(refused.refused_part, identity, timeout)
        except KafkaError as error:
            if classify(error, Scope.TRANSACTION) is not Decision.RECOVER:
                raise
            # Another producer has taken over, so the coordinator has stored the lower level.

    async def _abort_empty_transaction(
        self, part: TopicPartition | str, identity: ProducerIdentity, timeout: float
    ) -> None:
        """Begin a transaction of level 0 with a partition or a group, and abort it."""
        deadline = self._cluster.clock.monotonic() + timeout
        transaction = CurrentTransaction(0, self._cluster.clock.monotonic())
        if isinstance(part, TopicPartition):
            await self.add_partitions([part], identity, timeout, first_error)
        else:
            await self.add_group(part, transaction, identity, timeout)
        left = max(deadline - self._cluster.clock.monotonic(), 0.0)
        await self.send_end_txn(transaction, identity, commit=False, timeout=left)

    async def _send_request(
        self,
        request: Request[R],
        scope: Scope,
        timeout: float,
        *,
        highest: Callable[[], int | None] = lambda: None,
        **options: Any,
    ) -> R:
        def permitted() -> int | None:
            # This is called directly before the request is sent, so nothing changes in between.
            if self._detached is not None:
                self._detached._require_cluster(self._cluster)
            return highest()

        self._latest = None
        return await self._cluster.request(
            request,
            self._target,
            timeout=timeout,
            scope=scope,
            purpose=self._purpose,
            owner=self._owner,
            highest=permitted,
            **options,
        )


def _require_repeatable(error: KafkaError, patience: Patience) -> None:
    """Raise an error of an abort unless only another abort could correct it."""
    if classify(error, Scope.TRANSACTION) is not Decision.ABORT:
        raise error
    patience.handle_error(error)


def _following(answer: EndTxnResponse, identity: ProducerIdentity) -> ProducerIdentity:
    """Return the producer id and epoch of the next transaction.

    These are the ones in the response if it has any (from level 2 on), and otherwise `identity`.
    """
    if answer.producer_id >= 0:
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)
    return identity
