"""A share group (KIP-932) that uses raw requests, on any broker."""

import time
import uuid
from typing import NamedTuple

from parity import named

from aiokclient.protocol import messages
from aiokclient.protocol.messages import alter_share_group_offsets as altering
from aiokclient.protocol.messages import delete_share_group_offsets as deleting
from aiokclient.protocol.messages import describe_configs as describing
from aiokclient.protocol.messages import describe_share_group_offsets as offsets
from aiokclient.protocol.messages import incremental_alter_configs as alter
from aiokclient.protocol.messages import share_acknowledge, share_fetch

GROUP = 32
PATIENCE_S = 60.0
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)


class Beat(NamedTuple):
    code: str
    epoch: int
    given: list | None


class Fetched(NamedTuple):
    """A response to ShareFetch: the code, and for each partition its code, ranges, and records."""

    code: str
    partitions: dict


def batch(first, last, *types):
    """Return the arguments of an acknowledgement batch."""
    return {"first_offset": first, "last_offset": last, "acknowledge_types": list(types)}


class ShareMember:
    """A member with a connection of its own, which counts the epochs of its session."""

    def __init__(self, group, name):
        self.group, self.id = group, name
        self.connection = group.broker.again()
        self.epoch = 0

    def send_fetch(self, epoch=None, *, at=(0,), topic=0, acks=None, forget=(), **options):
        """Send a ShareFetch request. `acks` maps partitions to lists of `batch(...)`."""
        if epoch is None:
            epoch, self.epoch = self.epoch, self.epoch + 1
        topic_id = self.group.topics[topic][1]
        acks = acks or {}
        partitions = [
            share_fetch.FetchPartition(
                partition_index=index,
                acknowledgement_batches=[
                    share_fetch.AcknowledgementBatch(**each) for each in acks.get(index, ())
                ],
            )
            for index in dict.fromkeys([*at, *acks])
        ]
        settings = {
            "group_id": self.group.id,
            "member_id": self.id,
            "max_wait_ms": 300,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            **options,
        }
        version = settings.pop("version", None)
        request = messages.ShareFetchRequest(
            share_session_epoch=epoch,
            topics=[share_fetch.FetchTopic(topic_id=topic_id, partitions=partitions)]
            if partitions
            else [],
            forgotten_topics_data=[
                share_fetch.ForgottenTopic(topic_id=topic_id, partitions=list(forget))
            ]
            if forget
            else [],
            **settings,
        )
        self.connection.send(request, version)

    def receive_fetch(self):
        answer = self.connection.receive()
        return Fetched(named(answer.error_code), read_partitions(answer))

    def fetch(self, epoch=None, **options):
        self.send_fetch(epoch, **options)
        return self.receive_fetch()

    def acknowledge(self, acks, epoch=None, *, topic=0, is_renew_ack=False, version=None):
        """Acknowledge, and return the code, and the code and text of each partition."""
        if epoch is None:
            epoch, self.epoch = self.epoch, self.epoch + 1
        partitions = [
            share_acknowledge.AcknowledgePartition(
                partition_index=index,
                acknowledgement_batches=[
                    share_acknowledge.AcknowledgementBatch(**each) for each in batches
                ],
            )
            for index, batches in acks.items()
        ]
        topic_id = self.group.topics[topic][1]
        request = messages.ShareAcknowledgeRequest(
            group_id=self.group.id,
            member_id=self.id,
            share_session_epoch=epoch,
            is_renew_ack=is_renew_ack,
            topics=[share_acknowledge.AcknowledgeTopic(topic_id=topic_id, partitions=partitions)],
        )
        answer = self.connection.request(request, version)
        return named(answer.error_code), [
            (each.partition_index, named(each.error_code), each.error_message)
            for one in answer.responses
            for each in one.partitions
        ]

    def settle(self, first, last, *types, **options):
        """Acknowledge a range of partition 0, and return the code and text."""
        code, results = self.acknowledge({0: [batch(first, last, *types)]}, **options)
        return results[0][1:] if results else code

    def close(self):
        self.connection.socket.close()


def read_partitions(answer):
    """Return the partitions of a ShareFetch response, without those that say nothing."""
    return {
        each.partition_index: (
            named(each.error_code),
            named(each.acknowledge_error_code),
            each.acknowledge_error_message,
            [
                (one.first_offset, one.last_offset, one.delivery_count)
                for one in each.acquired_records
            ],
            len(each.records or b""),
        )
        for topic in answer.responses
        for each in topic.partitions
    }


class ShareGroup:
    """A new group with new topics, with short methods for its requests."""

    def __init__(self, broker, *sizes, **configs):
        self.broker = broker
        self.id = f"parity-{uuid.uuid4().hex[:8]}"
        self.topics = [broker.topic(size) for size in sizes]
        self.names = [name for name, _ in self.topics]
        find = messages.FindCoordinatorRequest(key_type=0, coordinator_keys=[self.id])
        self.until(lambda: self.broker.request(find).coordinators[0].error_code == 0)
        defaults = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": 1500}
        for name, value in {**defaults, **configs, "share.heartbeat.interval.ms": 5000}.items():
            assert self.configure(name, value) == ("ok", None)

    def configure(self, name, value):
        """Set a config of the group, wait until the broker reports it, and return the code."""
        config = alter.AlterableConfig(name=name, config_operation=0, value=str(value))
        resource = alter.AlterConfigsResource(
            resource_type=GROUP, resource_name=self.id, configs=[config]
        )
        request = messages.IncrementalAlterConfigsRequest(resources=[resource])
        (answer,) = self.broker.request(request).responses
        if not answer.error_code:
            self.until(lambda: self.read_config(name) == str(value))
        return named(answer.error_code), answer.error_message or None

    def read_config(self, name):
        wanted = describing.DescribeConfigsResource(
            resource_type=GROUP, resource_name=self.id, configuration_keys=[name]
        )
        request = messages.DescribeConfigsRequest(resources=[wanted])
        return next((each.value for each in self.broker.request(request).results[0].configs), None)

    def until(self, check):
        deadline = time.monotonic() + PATIENCE_S
        while not check():
            assert time.monotonic() < deadline, "the condition did not become true in time"

    def member(self, name):
        return ShareMember(self, name)

    def beat(self, member, epoch, **options):
        options.setdefault("group_id", self.id)
        request = messages.ShareGroupHeartbeatRequest(
            member_id=member, member_epoch=epoch, **options
        )
        answer = self.broker.request(request)
        given = answer.assignment
        if given is not None:
            ids = [topic_id for _, topic_id in self.topics]
            given = sorted(
                (ids.index(each.topic_id), sorted(each.partitions))
                for each in given.topic_partitions
            )
        return Beat(named(answer.error_code), answer.member_epoch, given)

    def join(self, member, names=None, **options):
        names = self.names if names is None else names
        return self.beat(member, 0, subscribed_topic_names=names, **options)

    def enter(self, member):
        """Join, wait for an assignment, and return the member's epoch and the assignment."""
        answer = self.join(member)
        epoch = answer.epoch
        deadline = time.monotonic() + PATIENCE_S
        while not answer.given:
            assert time.monotonic() < deadline, answer
            answer = self.beat(member, epoch)
            epoch = answer.epoch
        return epoch, answer.given

    def describe(self):
        request = messages.ShareGroupDescribeRequest(group_ids=[self.id])
        (group,) = self.broker.request(request).groups
        return (
            named(group.error_code),
            group.group_state,
            group.group_epoch,
            group.assignment_epoch,
            group.assignor_name,
            sorted(
                (
                    each.member_id,
                    each.member_epoch,
                    len(each.subscribed_topic_names),
                    sum(len(one.partitions) for one in each.assignment.topic_partitions),
                )
                for each in group.members
            ),
        )

    # -- offsets -------------------------------------------------------------------------------

    def list_offsets(self, topics=None, version=None):
        """Return the code, and for each topic its partitions: start, epoch, lag, code, text."""
        wanted = offsets.DescribeShareGroupOffsetsRequestGroup(
            group_id=self.id,
            topics=None
            if topics is None
            else [
                offsets.DescribeShareGroupOffsetsRequestTopic(
                    topic_name=name, partitions=partitions
                )
                for name, partitions in topics.items()
            ],
        )
        request = messages.DescribeShareGroupOffsetsRequest(groups=[wanted])
        (answer,) = self.broker.request(request, version).groups
        return named(answer.error_code), sorted(
            (
                self.names.index(topic.topic_name) if topic.topic_name in self.names else -1,
                each.partition_index,
                each.start_offset,
                each.leader_epoch,
                each.lag,
                named(each.error_code),
                each.error_message,
            )
            for topic in answer.topics
            for each in topic.partitions
        )

    def alter_offsets(self, topics):
        request = messages.AlterShareGroupOffsetsRequest(
            group_id=self.id,
            topics=[
                altering.AlterShareGroupOffsetsRequestTopic(
                    topic_name=name,
                    partitions=[
                        altering.AlterShareGroupOffsetsRequestPartition(
                            partition_index=index, start_offset=offset
                        )
                        for index, offset in starts.items()
                    ],
                )
                for name, starts in topics.items()
            ],
        )
        answer = self.broker.request(request)
        return self._hide_id(answer), sorted(
            (each.partition_index, named(each.error_code), each.error_message)
            for topic in answer.responses
            for each in topic.partitions
        )

    def delete_offsets(self, *names):
        request = messages.DeleteShareGroupOffsetsRequest(
            group_id=self.id,
            topics=[
                deleting.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names
            ],
        )
        answer = self.broker.request(request)
        return self._hide_id(answer), [
            (named(each.error_code), each.error_message) for each in answer.responses
        ]

    def delete(self):
        request = messages.DeleteGroupsRequest(groups_names=[self.id])
        return named(self.broker.request(request).results[0].error_code)

    def _hide_id(self, answer):
        """Return the code and the text of an answer, with the same id in each run."""
        text = answer.error_message
        return named(answer.error_code), text and text.replace(self.id, "GROUP")
