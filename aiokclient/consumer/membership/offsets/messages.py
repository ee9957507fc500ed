"""Requests and responses of OffsetCommit and OffsetFetch. Without IO.

From version 10 on both APIs identify topics by id, in earlier versions by name. The requests built
here contain both, and the encoder omits the fields that the negotiated version does not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import UUID

from aiokclient.cluster.requests.per_item import ItemResults
from aiokclient.errors import KafkaError, ProtocolError, error_for
from aiokclient.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from aiokclient.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from aiokclient.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokclient.cluster.metadata.snapshot import ClusterMetadata
    from aiokclient.network.connection import BrokerConnection
    from aiokclient.protocol.schema import Request
    from aiokclient.types import GroupMetadata

NO_ID: Final = UUID(int=0)
NO_EPOCH: Final = -1
NOTHING: Final = -1
"""The committed offset of a partition for which nothing is committed."""
NAMES_TO: Final = 9
"""The last version that identifies topics by name. Later versions have only ids."""
GROUPS_FROM: Final = 8
"""The first version of OffsetFetch that has a list of groups (KIP-709) instead of one group."""
STABLE_FROM: Final = 7
"""The first version of OffsetFetch that can ask for stable offsets (KIP-447)."""

Errors = dict[TopicPartition, KafkaError]

CommittedOffsets: TypeAlias = ItemResults[TopicPartition, OffsetAndMetadata | None]
"""The committed offsets (None for a partition without one), and errors of other partitions."""


def version_for(
    connection: BrokerConnection,
    request: Request[Any],
    tps: Iterable[TopicPartition],
    metadata: ClusterMetadata,
) -> int:
    """Return the latest version in which a request can identify these partitions."""
    latest = connection.broker.version_of(type(request))
    if latest > NAMES_TO and NO_ID in {_id(metadata, topic) for topic in {tp.topic for tp in tps}}:
        return NAMES_TO
    return latest


def commit_request(
    member: GroupMetadata,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    metadata: ClusterMetadata,
) -> OffsetCommitRequest:
    """Return the request that commits the offsets for this member."""
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for tp, to in offsets.items():
        if tp.topic not in topics:
            topic_id = _id(metadata, tp.topic)
            topics[tp.topic] = OffsetCommitRequestTopic(name=tp.topic, topic_id=topic_id)
        topics[tp.topic].partitions.append(
            OffsetCommitRequestPartition(
                partition_index=tp.partition,
                committed_offset=to.offset,
                committed_leader_epoch=NO_EPOCH if to.leader_epoch is None else to.leader_epoch,
                committed_metadata=to.metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=member.group_id,
        generation_id_or_member_epoch=member.generation_id,
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        topics=list(topics.values()),
    )


def commit_errors(
    response: Any,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    metadata: ClusterMetadata,
    node_id: int,
) -> Errors:
    """Return the errors of partitions whose offsets were not committed."""
    results: ItemResults[TopicPartition, None] = ItemResults()
    for tp, partition in _answers(response.topics, offsets, metadata):
        results.put_partition(tp, partition.error_code, "OffsetCommit", node_id, None)
    results.fail_missing(offsets, lambda tp: _left_out(tp, "OffsetCommit", node_id))
    return results.errors


def fetch_request(
    connection: BrokerConnection,
    member: GroupMetadata,
    tps: Sequence[TopicPartition],
    metadata: ClusterMetadata,
) -> OffsetFetchRequest:
    """Return the request for the group's committed offsets.

    It asks for stable offsets with any isolation level, as Java's consumer does: partitions with
    offsets of a transaction that is still open have an error in the response (KIP-447).
    """
    version = connection.broker.version_of(OffsetFetchRequest)
    topics: dict[str, list[int]] = {}
    for tp in tps:
        topics.setdefault(tp.topic, []).append(tp.partition)
    stable = version >= STABLE_FROM
    if version < GROUPS_FROM:
        asked = [OffsetFetchRequestTopic(name=n, partition_indexes=i) for n, i in topics.items()]
        return OffsetFetchRequest(group_id=member.group_id, topics=asked, require_stable=stable)
    group = OffsetFetchRequestGroup(
        group_id=member.group_id,
        member_id=member.member_id or None,
        member_epoch=member.generation_id,
        topics=[
            OffsetFetchRequestTopics(name=n, topic_id=_id(metadata, n), partition_indexes=i)
            for n, i in topics.items()
        ],
    )
    return OffsetFetchRequest(groups=[group], require_stable=stable)


def fetched(
    response: Any, tps: Sequence[TopicPartition], metadata: ClusterMetadata, node_id: int
) -> CommittedOffsets:
    """Return the committed offsets in a response, and an error for each of the other partitions."""
    results: CommittedOffsets = ItemResults()
    for part in response.groups or [response]:
        refusal = error_for(part.error_code, api="OffsetFetch", broker=node_id)
        if refusal is not None:
            return all_failed(tps, refusal)
        for tp, partition in _answers(part.topics, tps, metadata):
            code, stored = partition.error_code, _stored(partition)
            results.put_partition(tp, code, "OffsetFetch", node_id, stored)
    results.fail_missing(tps, lambda tp: _left_out(tp, "OffsetFetch", node_id))
    return results


def all_failed(tps: Iterable[TopicPartition], error: KafkaError) -> CommittedOffsets:
    """Return the results of a request that has failed as a whole."""
    results: CommittedOffsets = ItemResults()
    results.fail_missing(tps, lambda tp: error)
    return results


def _stored(partition: Any) -> OffsetAndMetadata | None:
    if partition.committed_offset == NOTHING:
        return None
    epoch = partition.committed_leader_epoch
    return OffsetAndMetadata(
        partition.committed_offset, partition.metadata or "", None if epoch == NO_EPOCH else epoch
    )


def _answers(
    topics: Iterable[Any], tps: Iterable[TopicPartition], metadata: ClusterMetadata
) -> Iterator[tuple[TopicPartition, Any]]:
    wanted = dict.fromkeys(tps)
    names = {_id(metadata, tp.topic): tp.topic for tp in wanted}
    for topic in topics:
        topic_id = getattr(topic, "topic_id", NO_ID)
        name = topic.name or names.get(topic_id, "")
        for partition in topic.partitions:
            tp = TopicPartition(name, partition.partition_index)
            if tp in wanted:
                yield tp, partition


def _left_out(tp: TopicPartition, api: str, node_id: int) -> KafkaError:
    text = "The response does not contain the partition."
    return ProtocolError(text, api=api, broker=node_id, topic_partition=tp)


def _id(metadata: ClusterMetadata, topic: str) -> UUID:
    info = metadata.find_topic(topic)
    return NO_ID if info is None else info.topic_id
