"""The offsets of consumers that are committed as part of a transaction (KIP-98, KIP-447)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import UUID

from aiokclient.cluster.metadata.snapshot import differ
from aiokclient.cluster.requests.attempts import LastAnswer, is_refusal
from aiokclient.cluster.requests.per_item import ask_within
from aiokclient.cluster.targets import Coordinator
from aiokclient.errors import (
    IllegalGenerationError,
    KafkaError,
    ProtocolError,
    StaleMemberEpochError,
    UnsupportedVersionError,
    error_for,
)
from aiokclient.policy import Attempts, Backoff, Scope, as_transaction_error
from aiokclient.producer.transaction.requests import IMPLICIT, TransactionRequests
from aiokclient.producer.transaction.states import TransactionState
from aiokclient.producer.transaction.status import (
    CurrentTransaction,
    ProducerIdentity,
    TransactionStatus,
    abortable,
)
from aiokclient.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from aiokclient.types import GroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokclient.cluster.client import ClusterClient
    from aiokclient.config.producer import ProducerConfig

OLD: Final = 4
"""The highest version of TxnOffsetCommit at levels 0 and 1. Later ones add the group implicitly."""
BY_NAME: Final = 5
"""The highest version of TxnOffsetCommit with topic names. Higher ones have only topic ids."""
NO_ID: Final = UUID(int=0)
NO_EPOCH: Final = -1
API: Final = "TxnOffsetCommit"
OUTDATED: Final = frozenset({IllegalGenerationError.code, StaleMemberEpochError.code})
"""The codes with which a coordinator refuses an identity that is older than its own."""

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
Errors = dict[TopicPartition, KafkaError]


class ConsumerReads(Protocol):
    """The reads of a consumer in a transaction."""

    @property
    def cluster_id(self) -> str | None:
        """The cluster from which the consumer reads."""

    def fix_offsets(self) -> None:
        """Fix the offsets to commit, because the commit begins."""

    def get_offsets(self) -> Offsets:
        """Return the offsets that were fixed."""

    def find_group_metadata(self) -> GroupMetadata:
        """Return the group metadata with which to commit the offsets."""

    async def wait_for_newer_member(self, refused: GroupMetadata, timeout: float) -> bool:
        """Wait at most `timeout` seconds until `find_group_metadata` is newer than a refused one.

        Return False if it is not, or if it must not be used.
        """

    def on_committed(self) -> None:
        """Handle a successful commit."""

    def rewind(self) -> None:
        """Read again what was read in the transaction, because it was aborted."""

    def rewind_later_reads(self) -> None:
        """Read again what was read after `rewind`, unless it is in a later transaction."""

    async def wait_until_offsets_are_found(self, timeout: float) -> None:
        """Wait at most `timeout` seconds until `rewind` has found the committed offsets."""


class TransactionOffsets:
    """The offsets of the open transaction, which are sent to the coordinators of their groups."""

    def __init__(
        self,
        config: ProducerConfig,
        cluster: ClusterClient,
        requests: TransactionRequests,
        status: TransactionStatus,
    ) -> None:
        self._cluster = cluster
        self._requests = requests
        self._status = status
        self._request_s = config.request_timeout_ms / 1000
        self._backoff = Backoff.of(config)
        self._sending_for: str | None = None
        """The group whose offsets are being sent."""
        self._groups: set[str] = set()
        """The groups that were added to the open transaction, at levels 0 and 1."""
        self._open_responses: set[asyncio.Future[Any]] = set()
        """The responses that have not arrived yet, also those for which no call waits any more."""

    def find_last_refusal(self) -> KafkaError | None:
        """Return why the offsets in progress were not accepted so far, if that is known."""
        group_id = self._sending_for
        if group_id is None:
            return None
        return self._cluster.calls.find_cause(Coordinator("group", group_id))

    def forget_groups(self) -> None:
        """Forget the groups of the previous transaction."""
        self._groups.clear()

    def collect_offsets(
        self, all_reads: Sequence[ConsumerReads]
    ) -> list[tuple[Offsets, ConsumerReads]]:
        """Return the offsets that were fixed. Raise an error for a consumer of another cluster."""
        for reads in all_reads:
            self._require_cluster(reads.cluster_id)
        fixed = [(reads.get_offsets(), reads) for reads in all_reads]
        return [(offsets, reads) for offsets, reads in fixed if offsets]

    def _require_cluster(self, cluster_id: str | None) -> None:
        """Raise an abortable error if a consumer of the transaction reads from another cluster.

        That can happen for a moment if the bootstrap servers now belong to another cluster.
        """
        if differ(cluster_id, self._cluster.metadata.cluster_id):
            raise abortable(
                "A consumer that was added to the transaction reads from another cluster. Its "
                "offsets are not valid in the cluster of the producer."
            )

    async def wait_for_responses(self, transaction: CurrentTransaction) -> None:
        """Wait until every request that was sent has its response, or has none in time.

        An abandoned request must not arrive after the end of the transaction. At levels 0 and 1,
        brokers before Kafka 3.6 would add its offsets to the next one, even in a newer epoch.
        """
        if self._open_responses and transaction.level < IMPLICIT:
            await asyncio.wait(self._open_responses)

    async def send_offsets(
        self, offsets: Offsets, owner: GroupMetadata | ConsumerReads, timeout: float
    ) -> None:
        """Add offsets to the open transaction, within `timeout` seconds.

        `owner` has the identity with which to commit them. That of an added consumer is taken anew
        for each attempt. If the coordinator refuses it because it already has a newer one, whose
        response has not reached the consumer yet, the next attempt waits for that response.

        Raises the first error that is not retried, and ApiTimeoutError.
        """
        transaction = self._status.current
        transaction.mark_written()
        reads = None if isinstance(owner, GroupMetadata) else owner
        member = owner if isinstance(owner, GroupMetadata) else owner.find_group_metadata()
        refusal: KafkaError | None = None
        deadline = self._cluster.clock.monotonic() + timeout
        self._sending_for = member.group_id
        await self._add_group(transaction, member.group_id, timeout)
        retry = Attempts(deadline, self._backoff, self._cluster.clock)
        last = LastAnswer()

        async def ask(tps: list[TopicPartition]) -> Errors:
            nonlocal member, refusal
            if reads is not None:
                wait_s = min(self._request_s, retry.remaining_s)
                if refusal is not None and not await reads.wait_for_newer_member(member, wait_s):
                    raise refusal
                member, refusal = reads.find_group_metadata(), None
            if not transaction.is_open or self._status.state is TransactionState.RESTARTING:
                raise abortable("The transaction ended before its offsets were sent.")
            wanted = {tp: offsets[tp] for tp in tps}
            return await self._send_once(transaction, wanted, member, retry, last)

        def refresh(tp: TopicPartition, error: KafkaError) -> bool:
            self._cluster.coordinators.forget_coordinator("group", member.group_id)
            return True

        def again(tp: TopicPartition, error: KafkaError) -> bool:
            nonlocal refusal
            if reads is None or error.code not in OUTDATED:
                return False
            refusal = error
            return True

        await ask_within(
            max(retry.remaining_s, 0.0),
            offsets,
            ask,
            retry,
            Scope.TXN_OFFSET_COMMIT,
            refresh=refresh,
            check=self._cluster.supervisor.raise_failure,
            api=API,
            needed="acknowledgement of the offset",
            again=again,
            refusals=self._cluster.refusals,
            last=last,
        )

    async def _add_group(
        self, transaction: CurrentTransaction, group_id: str, timeout: float
    ) -> None:
        # At level 2 of transaction.version, TxnOffsetCommit adds the group (KIP-890).
        if transaction.level < IMPLICIT and group_id not in self._groups:
            try:
                await self._requests.add_group(group_id, transaction, transaction.identity, timeout)
            except KafkaError as error:
                raised = as_transaction_error(error, Scope.TRANSACTION)
                raise raised from raised.__cause__
            transaction.mark_added()
            if self._status.current is transaction:
                self._groups.add(group_id)

    async def _send_once(
        self,
        transaction: CurrentTransaction,
        offsets: Offsets,
        member: GroupMetadata,
        retry: Attempts,
        last: LastAnswer,
    ) -> Errors:
        errors = await self._send_request(transaction, offsets, member, retry.remaining_s, last)
        is_old = any(error.code == UnsupportedVersionError.code for error in errors.values())
        if is_old and await self._requests.was_downgraded(transaction, member.group_id):
            await self._add_group(transaction, member.group_id, retry.remaining_s)
            errors = await self._send_request(transaction, offsets, member, retry.remaining_s, last)
        return errors

    async def _send_request(
        self,
        transaction: CurrentTransaction,
        offsets: Offsets,
        member: GroupMetadata,
        timeout: float,
        last: LastAnswer,
    ) -> Errors:
        request = self._make_request(transaction.identity, offsets, member)
        unnamed = any(topic.topic_id == NO_ID for topic in request.topics)

        def highest() -> int | None:
            if transaction.level < IMPLICIT:
                return OLD
            return BY_NAME if unnamed else None

        async def before_retry(error: KafkaError) -> None:
            # The deadline of all attempts may cancel this request, which then cannot say why.
            last.note_error(error)

        def on_failure(error: KafkaError) -> None:
            if not is_refusal(error):
                transaction.mark_response_lost()

        response = await self._cluster.request(
            request,
            Coordinator("group", member.group_id),
            timeout=max(timeout, 0.0),
            scope=Scope.TXN_OFFSET_COMMIT,
            highest=highest,
            before_retry=before_retry,
            failed=on_failure,
            unanswered=self._open_responses,
        )
        return self._collect_errors(offsets, request, response)

    def _make_request(
        self, identity: ProducerIdentity, offsets: Offsets, member: GroupMetadata
    ) -> TxnOffsetCommitRequest:
        metadata = self._cluster.metadata
        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for tp, to in offsets.items():
            topic = topics.get(tp.topic)
            if topic is None:
                info = metadata.find_topic(tp.topic)
                topic_id = NO_ID if info is None else info.topic_id
                topic = TxnOffsetCommitRequestTopic(name=tp.topic, topic_id=topic_id)
                topics[tp.topic] = topic
            topic.partitions.append(
                TxnOffsetCommitRequestPartition(
                    partition_index=tp.partition,
                    committed_offset=to.offset,
                    committed_leader_epoch=NO_EPOCH if to.leader_epoch is None else to.leader_epoch,
                    committed_metadata=to.metadata,
                )
            )
        return TxnOffsetCommitRequest(
            transactional_id=self._status.transactional_id,
            group_id=member.group_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            generation_id_or_member_epoch=member.generation_id,
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            topics=list(topics.values()),
        )

    def _collect_errors(
        self, offsets: Offsets, request: TxnOffsetCommitRequest, response: TxnOffsetCommitResponse
    ) -> Errors:
        names = {topic.topic_id: topic.name for topic in request.topics}
        codes = {
            TopicPartition(topic.name or names.get(topic.topic_id, ""), part.partition_index): (
                part.error_code
            )
            for topic in response.topics
            for part in topic.partitions
        }
        errors: Errors = {}
        for tp in offsets:
            if tp not in codes:
                text = "The response does not mention the partition."
                errors[tp] = ProtocolError(text, api=API, topic_partition=tp)
            elif codes[tp]:
                error = error_for(codes[tp], api=API, topic_partition=tp)
                assert error is not None
                errors[tp] = error
        return errors
