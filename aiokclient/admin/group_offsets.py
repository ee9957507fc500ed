"""The admin calls that list, set, and delete the committed offsets of groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from aiokclient.admin.arguments import (
    as_mapping,
    as_name,
    as_partition,
    as_partitions,
    as_text,
    require_integer,
)
from aiokclient.admin.groups import group_ids
from aiokclient.admin.requests import AdminRequests, Answers, failure
from aiokclient.admin.results import Results
from aiokclient.cluster.metadata.snapshot import BrokerInfo, ClusterMetadata
from aiokclient.cluster.targets import AnyBroker, Broker, Coordinator
from aiokclient.errors import (
    KafkaError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from aiokclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from aiokclient.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from aiokclient.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from aiokclient.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from aiokclient.types import OffsetAndMetadata, TopicPartition

__all__ = ["GroupOffsetCalls"]

NO_ID = UUID(int=0)
Offsets = dict[TopicPartition, OffsetAndMetadata]


LIVE_GROUP: Mapping[int | None, tuple[str, str]] = {
    UnknownMemberIdError.code: (
        "The group has members, and only they may commit its offsets.",
        "Call rewind_group() of one of its members, which moves the whole group, or stop all of "
        "them first.",
    )
}
"""The meaning of a refused commit by an administrator, by error code, and what to do."""


class GroupOffsetCalls:
    """The admin calls about committed offsets."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def list_consumer_group_offsets(
        self,
        groups: Iterable[str],
        *,
        require_stable: bool = False,
        timeout: float | None = None,
    ) -> Results[str, dict[TopicPartition, OffsetAndMetadata]]:
        """See `Admin.list_consumer_group_offsets`."""

        async def ask(
            items: dict[str, None], to: BrokerInfo, remaining: float
        ) -> Answers[str, Offsets]:
            request = OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(group_id=group, topics=None) for group in items],
                require_stable=require_stable,
            )
            try:
                response = await self._requests.send(request, Broker(to.node_id), remaining)
            except UnsupportedVersionError:
                return await self._one_by_one(items, to, require_stable, remaining)
            ids = [t.topic_id for group in response.groups for t in group.topics]
            names = await self._names(ids, remaining)
            return {
                group.group_id: _offsets(group, group.group_id, names) for group in response.groups
            }

        return await self._requests.by_coordinator(dict.fromkeys(group_ids(groups)), ask, timeout)

    async def _one_by_one(
        self, groups: Iterable[str], to: BrokerInfo, require_stable: bool, remaining: float
    ) -> Answers[str, Offsets]:
        """Request the offsets of one group at a time, for brokers older than 3.0."""
        answers: dict[str, Offsets | KafkaError] = {}
        for group in groups:
            request = OffsetFetchRequest(group_id=group, topics=None, require_stable=require_stable)
            response = await self._requests.send(request, Broker(to.node_id), remaining)
            answers[group] = _offsets(response, group, {})
        return answers

    async def _names(self, ids: Iterable[UUID], remaining: float) -> Mapping[UUID, str]:
        """Return the names of topics by topic id, without topics that do not exist."""
        wanted = [topic_id for topic_id in dict.fromkeys(ids) if topic_id != NO_ID]
        if not wanted:
            return {}
        request = MetadataRequest(
            topics=[MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in wanted],
            allow_auto_topic_creation=False,
        )
        response = await self._requests.send(request, AnyBroker(), remaining)
        return {topic.topic_id: topic.name for topic in response.topics if topic.name}

    async def alter_consumer_group_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        *,
        timeout: float | None = None,
    ) -> Results[TopicPartition, None]:
        """See `Admin.alter_consumer_group_offsets`."""
        as_name(group, "group")
        wanted = {
            as_partition(tp): offset
            if isinstance(offset, OffsetAndMetadata)
            else OffsetAndMetadata(offset)
            for tp, offset in as_mapping(offsets, "partitions").items()
        }
        for offset in wanted.values():
            require_integer(offset.offset, "an offset")
            as_text(offset.metadata, "the metadata of an offset")

        async def ask(
            items: dict[TopicPartition, OffsetAndMetadata], remaining: float
        ) -> Answers[TopicPartition, None]:
            topics = list(dict.fromkeys(tp.topic for tp in items))
            snapshot = await self._requests.cluster.updater.refresh(
                topics, timeout=remaining, at_once=True
            )
            answers: dict[TopicPartition, KafkaError | None] = {
                tp: error for tp in items if (error := _unknown(snapshot, tp)) is not None
            }
            request = _commit(
                group, {tp: o for tp, o in items.items() if tp not in answers}, snapshot
            )
            if not request.topics:
                return answers
            response = await self._requests.send(request, Coordinator("group", group), remaining)
            for topic in response.topics:
                name = topic.name or snapshot.names.get(topic.topic_id, "")
                for result in topic.partitions:
                    tp = TopicPartition(name, result.partition_index)
                    error = failure(result.error_code, None, "OffsetCommit", f"partition {tp}")
                    if error is not None and error.code in LIVE_GROUP:
                        error.what, error.hint = LIVE_GROUP[error.code]
                    answers[tp] = error
            return answers

        return await self._requests.each(wanted, ask, timeout)

    async def delete_consumer_group_offsets(
        self, group: str, tps: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> Results[TopicPartition, None]:
        """See `Admin.delete_consumer_group_offsets`."""
        as_name(group, "group")

        async def ask(
            items: dict[TopicPartition, None], remaining: float
        ) -> Answers[TopicPartition, None]:
            topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
            for name, index in items:
                one = OffsetDeleteRequestPartition(partition_index=index)
                topics.setdefault(name, []).append(one)
            request = OffsetDeleteRequest(
                group_id=group,
                topics=[OffsetDeleteRequestTopic(name=n, partitions=p) for n, p in topics.items()],
            )
            response = await self._requests.send(request, Coordinator("group", group), remaining)
            return {
                (tp := TopicPartition(topic.name, result.partition_index)): failure(
                    result.error_code, None, "OffsetDelete", f"partition {tp}"
                )
                for topic in response.topics
                for result in topic.partitions
            }

        return await self._requests.each(as_partitions(tps), ask, timeout)


def _offsets(group: Any, group_id: str, names: Mapping[UUID, str]) -> Offsets | KafkaError:
    found: Offsets = {}
    error = failure(group.error_code, None, "OffsetFetch", f"group {group_id}")
    for topic in group.topics:
        name = topic.name or names.get(getattr(topic, "topic_id", NO_ID))
        for each in topic.partitions:
            where = f"group {group_id}"
            error = error or failure(each.error_code, None, "OffsetFetch", where)
            # A topic id without a name belongs to a topic that was deleted in the meantime.
            if name and each.committed_offset >= 0:
                epoch = each.committed_leader_epoch
                found[TopicPartition(name, each.partition_index)] = OffsetAndMetadata(
                    each.committed_offset, each.metadata or "", None if epoch < 0 else epoch
                )
    return error or found


def _unknown(snapshot: ClusterMetadata, tp: TopicPartition) -> KafkaError | None:
    topic = snapshot.topic(tp.topic)
    if topic is None:
        return UnknownTopicOrPartitionError(api="OffsetCommit", topic_partition=tp)
    return failure(topic.error, None, "OffsetCommit", f"topic {topic.name}")


def _commit(
    group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], snapshot: ClusterMetadata
) -> OffsetCommitRequest:
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (name, index), (offset, note, epoch) in offsets.items():
        topics.setdefault(name, []).append(
            OffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=offset,
                committed_leader_epoch=-1 if epoch is None else epoch,
                committed_metadata=note,
            )
        )
    known = snapshot.topics
    return OffsetCommitRequest(
        group_id=group,
        topics=[
            # The API version determines whether the name or the id is encoded.
            OffsetCommitRequestTopic(name=name, topic_id=known[name].topic_id, partitions=parts)
            for name, parts in topics.items()
        ],
    )
