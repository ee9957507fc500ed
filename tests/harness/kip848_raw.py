"""A group of the consumer protocol (KIP-848) that uses raw requests, on any broker."""

import time
import uuid
from typing import NamedTuple

from parity import named

from aiokclient.protocol import messages
from aiokclient.protocol.messages import describe_configs as describing
from aiokclient.protocol.messages import incremental_alter_configs as alter
from aiokclient.protocol.messages import offset_commit, offset_fetch
from aiokclient.protocol.messages.consumer_group_heartbeat import TopicPartitions
from aiokclient.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from aiokclient.protocol.messages.join_group import JoinGroupRequestProtocol
from aiokclient.protocol.messages.sync_group import SyncGroupRequestAssignment

GROUP = 32
PATIENCE_S = 60.0


class Beat(NamedTuple):
    code: str
    epoch: int
    given: list | None


class Group:
    """A new group with short methods for its heartbeats. `topics` maps names to ids."""

    def __init__(self, broker, *sizes, group_id=None):
        self.broker = broker
        self.id = group_id or f"parity-{uuid.uuid4().hex[:8]}"
        self.topics = [broker.topic(size) for size in sizes]
        self.names = [name for name, _ in self.topics]
        self._configure()

    def _configure(self):
        find = messages.FindCoordinatorRequest(key_type=0, coordinator_keys=[self.id])
        self.until(lambda: self.broker.request(find).coordinators[0].error_code == 0)
        self._set("consumer.assignment.interval.ms", "0")
        # A broker applies changes of topics and configs one after the other. When it reports the
        # next change, it has applied this one completely, for the group as well.
        self._set("consumer.heartbeat.interval.ms", "5000")

    def _set(self, name, value):
        """Change a config of the group, and wait until the broker reports it."""
        config = alter.AlterableConfig(name=name, config_operation=0, value=value)
        resource = alter.AlterConfigsResource(
            resource_type=GROUP, resource_name=self.id, configs=[config]
        )
        request = messages.IncrementalAlterConfigsRequest(resources=[resource])
        assert self.broker.request(request).responses[0].error_code == 0
        self.until(lambda: self._config(name) == value)

    def _config(self, name):
        wanted = describing.DescribeConfigsResource(
            resource_type=GROUP, resource_name=self.id, configuration_keys=[name]
        )
        request = messages.DescribeConfigsRequest(resources=[wanted])
        return next((each.value for each in self.broker.request(request).results[0].configs), None)

    def until(self, check):
        deadline = time.monotonic() + PATIENCE_S
        while not check():
            assert time.monotonic() < deadline, "the condition did not become true in time"

    def beat(self, member, epoch, *, owned=None, version=1, **options):
        if owned is not None:
            options["topic_partitions"] = [
                TopicPartitions(topic_id=self.topics[at][1], partitions=indexes)
                for at, indexes in owned.items()
            ]
        request = messages.ConsumerGroupHeartbeatRequest(
            group_id=self.id, member_id=member, member_epoch=epoch, **options
        )
        answer = self.broker.request(request, version)
        given = answer.assignment
        if given is not None:
            ids = [topic_id for _, topic_id in self.topics]
            given = sorted(
                (ids.index(each.topic_id), sorted(each.partitions))
                for each in given.topic_partitions
            )
        return Beat(named(answer.error_code), answer.member_epoch, given)

    def join(self, member, names=None, **options):
        settings = {"rebalance_timeout_ms": 30_000, "owned": {}, **options}
        names = self.names if names is None else names
        return self.beat(member, 0, subscribed_topic_names=names, **settings)

    def commit(self, member, epoch, partition=0, version=9):
        at = offset_commit.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=1
        )
        topic = offset_commit.OffsetCommitRequestTopic(name=self.names[0], partitions=[at])
        request = messages.OffsetCommitRequest(
            group_id=self.id,
            member_id=member,
            generation_id_or_member_epoch=epoch,
            topics=[topic],
        )
        return named(self.broker.request(request, version).topics[0].partitions[0].error_code)

    def fetch(self, member, epoch):
        group = offset_fetch.OffsetFetchRequestGroup(
            group_id=self.id, member_id=member, member_epoch=epoch, topics=None
        )
        answer = self.broker.request(messages.OffsetFetchRequest(groups=[group]), 9)
        return named(answer.groups[0].error_code)

    def describe(self):
        request = messages.ConsumerGroupDescribeRequest(group_ids=[self.id])
        (group,) = self.broker.request(request).groups
        members = [
            (
                each.member_id,
                each.instance_id,
                each.member_epoch,
                each.subscribed_topic_names,
                each.subscribed_topic_regex,
                [sorted(topic.partitions) for topic in each.assignment.topic_partitions],
                [sorted(topic.partitions) for topic in each.target_assignment.topic_partitions],
                each.member_type,
            )
            for each in group.members
        ]
        renamed = {name: str(at) for at, name in enumerate(self.names)}
        members = [
            (*each[:3], [renamed.get(name, name) for name in each[3]], *each[4:])
            for each in members
        ]
        epochs = (group.group_epoch, group.assignment_epoch)
        return group.group_state, *epochs, group.assignor_name, sorted(members)


def joined(group, member, metadata, *, version=9, **options):
    protocol = JoinGroupRequestProtocol(name="range", metadata=metadata)
    request = messages.JoinGroupRequest(
        group_id=group.id,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id=member,
        protocol_type="consumer",
        protocols=[protocol],
        **options,
    )
    return group.broker.request(request, version)


def subscription(*topics, owned=()):
    """Return a classic consumer's metadata in version 1. Owned partitions are (topic, [index])."""
    message = ConsumerProtocolSubscription(
        topics=list(topics),
        owned_partitions=[
            TopicPartition(topic=topic, partitions=indexes) for topic, indexes in owned
        ],
    )
    return b"\0\1" + b"".join(message.encode(1))


def assignment(*given):
    """Return an assignment as a leader encodes it: (topic, [index])."""
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            TopicPartition(topic=topic, partitions=indexes) for topic, indexes in given
        ]
    )
    return b"\0\1" + b"".join(message.encode(1))


def assigned(data):
    """Return the partitions in an assignment."""
    if not data:
        return None
    read, _ = ConsumerProtocolAssignment.decode_from(data, 2, 1)
    return sorted(sorted(each.partitions) for each in read.assigned_partitions)


class Classic:
    """A classic consumer in a `Group` that joins, syncs, and sends heartbeats by raw requests."""

    def __init__(self, group, *, instance_id=None):
        self.group, self.instance_id = group, instance_id
        self.member_id, self.generation = "", -1

    def join(self, metadata):
        """Return the error code, the generation, and whether the member leads.

        A new member sends the request twice, to get its id first.
        """
        options = {"group_instance_id": self.instance_id}
        answer = joined(self.group, self.member_id, metadata, **options)
        if named(answer.error_code) == "MEMBER_ID_REQUIRED":
            self.member_id = answer.member_id
            answer = joined(self.group, self.member_id, metadata, **options)
        self.member_id, self.generation = answer.member_id, answer.generation_id
        leads = answer.leader == answer.member_id
        return named(answer.error_code), answer.generation_id, leads

    def sync(self, given=None):
        request = messages.SyncGroupRequest(
            group_id=self.group.id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[]
            if given is None
            else [SyncGroupRequestAssignment(member_id=self.member_id, assignment=given)],
        )
        answer = self.group.broker.request(request)
        return named(answer.error_code), assigned(bytes(answer.assignment))

    def heartbeat(self):
        request = messages.HeartbeatRequest(
            group_id=self.group.id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        return named(self.group.broker.request(request).error_code)
