"""TxnOffsetCommit 0 to 6: store the positions of a group as part of a transaction.

* The offsets are pending until the transaction ends (`groups/offsets.py`).
* From version 5 on, the request adds the group to the transaction (KIP-890). In version 4, a group
  that was not added before is TRANSACTION_ABORTABLE, and up to version 3, it is INVALID_TXN_STATE.
  Errors of the transaction take precedence over those of the group. An epoch that is not current is
  INVALID_PRODUCER_EPOCH.
* From version 3 on, a member of the group sends its generation or its epoch (KIP-447). Up to
  version 5, ILLEGAL_GENERATION is the result for a member epoch that is not current, and for a
  generation if the group does not exist. From version 6 on, these results are STALE_MEMBER_EPOCH
  and GROUP_ID_NOT_FOUND. A client that does not say that it is a member may commit at any time,
  also while the group rebalances.
* A partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION, from version 6 on (with topic ids)
  UNKNOWN_TOPIC_ID. Metadata longer than `offset.metadata.max.bytes` is OFFSET_METADATA_TOO_LARGE.
  The other partitions of the request are stored.
"""

from __future__ import annotations

from aiokclient.protocol.messages import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from aiokclient.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.groups.coordinator import get_groups
from aiokclient.testing.broker.groups.group import Group
from aiokclient.testing.broker.groups.offsets import Committed
from aiokclient.testing.broker.security.acls import AclResource
from aiokclient.testing.broker.topics.producers import Verification
from aiokclient.testing.broker.transactions.coordinator import get_transactions
from aiokclient.testing.broker.transactions.transaction import ProducerIdAndEpoch
from aiokclient.testing.broker.transactions.verification import (
    Support,
    ask_coordinator,
    find_support,
)
from aiokclient.types import TopicPartition

_BY_ID = 6
_ABORTABLE_SINCE = 4
_LOADING_SINCE = 2


async def handle(call: Call) -> Answer:
    request: TxnOffsetCommitRequest = call.request
    commit = _Commit(call)
    response = TxnOffsetCommitResponse(
        topics=[
            await commit.answer_topic(each) async for each in call.iterate_items(request.topics)
        ]
    )
    # Like Kafka, list the partitions that do not exist before all others.
    response.topics.sort(key=lambda topic: all(map(_is_accepted, topic.partitions)))
    if commit.wanted:
        try:
            commit.store_offsets()
        except Refused as refused:
            code: int = refused.code
            if code == Code.COORDINATOR_LOAD_IN_PROGRESS and call.version < _LOADING_SINCE:
                code = Code.COORDINATOR_NOT_AVAILABLE
            for _, answer in commit.wanted.values():
                answer.error_code = code
    return response


def _is_accepted(part: TxnOffsetCommitResponsePartition) -> bool:
    return not part.error_code


class _Commit:
    """One request. `wanted` has the partitions that exist, with their parts of the response."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.request: TxnOffsetCommitRequest = call.request
        self.wanted: dict[
            TopicPartition,
            tuple[TxnOffsetCommitRequestPartition, TxnOffsetCommitResponsePartition],
        ] = {}
        self.denied = call.check_authorization(
            AclResource.TRANSACTIONAL_ID, self.request.transactional_id
        ) or call.check_authorization(AclResource.GROUP, self.request.group_id)
        """The error code of a client that is not authorized for the transaction or the group."""
        self._producer = ProducerIdAndEpoch(self.request.producer_id, self.request.producer_epoch)

    async def answer_topic(
        self, wanted: TxnOffsetCommitRequestTopic
    ) -> TxnOffsetCommitResponseTopic:
        """Return the response for a topic, and add partitions without an error to `wanted`."""
        call, cluster = self.call, self.call.cluster
        by_id = call.version >= _BY_ID
        found = cluster.topics_by_id if by_id else cluster.topics
        topic = found.get(wanted.topic_id if by_id else wanted.name)  # type: ignore[arg-type]
        answer = TxnOffsetCommitResponseTopic(name=wanted.name, topic_id=wanted.topic_id)
        async for each in call.iterate_items(wanted.partitions):
            part = TxnOffsetCommitResponsePartition(partition_index=each.partition_index)
            named = topic.name if topic is not None else None if by_id else wanted.name
            part.error_code = self.denied or call.find_refusal(named, each.partition_index)
            answer.partitions.append(part)
            if part.error_code:
                continue
            if topic is None:
                unknown = Code.UNKNOWN_TOPIC_ID if by_id else Code.UNKNOWN_TOPIC_OR_PARTITION
                part.error_code = unknown
            elif topic.find_partition(each.partition_index) is None:
                part.error_code = Code.UNKNOWN_TOPIC_OR_PARTITION
            else:
                self.wanted[TopicPartition(topic.name, each.partition_index)] = each, part
        answer.partitions.sort(key=_is_accepted)
        return answer

    def store_offsets(self) -> None:
        """Store the offsets. Raises Refused."""
        call, request = self.call, self.request
        groups, transactions = get_groups(call.cluster), get_transactions(call.cluster)
        code = groups.check_reachable(call, request.group_id)
        if code and code != Code.COORDINATOR_LOAD_IN_PROGRESS:
            raise Refused(Code(code), "This broker cannot answer for the group.")
        partition = transactions.offsets.get_partition(
            transactions.offsets.find_partition(request.group_id)
        )
        verification = self._ask_coordinator()
        if code:
            raise Refused(Code(code), "The group is loading.")
        group = self._find_group()
        offsets = self._read_offsets(group)
        if offsets:
            partition.commit_offsets(group, self._producer, offsets, verification)

    def _ask_coordinator(self) -> Verification | None:
        """Ask the transaction's coordinator. Returns None if the group was added before."""
        support = find_support(self.call.version, _ABORTABLE_SINCE)
        offsets = get_transactions(self.call.cluster).offsets
        tp = offsets.find_partition(self.request.group_id)
        bumps = support is Support.ADDS
        verification = offsets.get_partition(tp).producers.begin_verification(
            *self._producer, -1, bumps
        )
        if isinstance(verification, Verification):
            asked = {tp: verification}
            transactional_id = self.request.transactional_id
            found = ask_coordinator(self.call, transactional_id, self._producer, asked, support)
            if found[tp]:
                raise Refused(found[tp], "The transaction's coordinator refuses the group.")
            return verification
        if verification:
            raise Refused(verification, "The producer has an older epoch.")
        return None

    def _find_group(self) -> Group:
        """Return the group. Raises Refused if the group does not accept the commit."""
        request, groups = self.request, get_groups(self.call.cluster)
        epoch = request.generation_id_or_member_epoch
        group = groups.find_group(request.group_id)
        if group is None and epoch >= 0:
            raise Refused(
                self._adapt_code(Code.GROUP_ID_NOT_FOUND, Code.ILLEGAL_GENERATION),
                "The group does not exist.",
            )
        if group is None:
            return groups.make_classic_group(request.group_id)
        code = group.check_commit(
            request.member_id, epoch, request.group_instance_id, 0, transactional=True
        )
        self._require_none(code)
        return group

    def _read_offsets(self, group: Group) -> dict[TopicPartition, Committed]:
        request = self.request
        most = self.call.cluster.configs.read_number("offset.metadata.max.bytes")
        offsets = {}
        for tp, (wanted, answer) in self.wanted.items():
            metadata = wanted.committed_metadata or ""
            if len(metadata) > most:
                answer.error_code = Code.OFFSET_METADATA_TOO_LARGE
                continue
            epoch = request.generation_id_or_member_epoch
            self._require_none(group.check_committed_partition(request.member_id, epoch, tp))
            now_ms = self.call.cluster.clock.time_ms()
            offsets[tp] = Committed(
                wanted.committed_offset, wanted.committed_leader_epoch, metadata, now_ms
            )
        return offsets

    def _require_none(self, code: Code) -> None:
        if code is Code.STALE_MEMBER_EPOCH:
            code = self._adapt_code(code, Code.ILLEGAL_GENERATION)
        if code:
            raise Refused(code, "The group refuses the commit.")

    def _adapt_code(self, code: Code, before: Code) -> Code:
        return code if self.call.version >= _BY_ID else before
