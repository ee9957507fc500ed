"""The new consumer protocol, by the same raw requests to the embedded cluster and a real Kafka."""

import itertools
import uuid
from typing import NamedTuple

import pytest

from aiokclient.errors import ERRORS_BY_CODE
from aiokclient.protocol import messages
from aiokclient.protocol.messages import incremental_alter_configs as alter
from aiokclient.protocol.messages import offset_commit, offset_fetch
from aiokclient.protocol.messages.consumer_group_heartbeat import TopicPartitions
from aiokclient.protocol.messages.create_partitions import CreatePartitionsTopic
from aiokclient.protocol.messages.join_group import JoinGroupRequestProtocol
from aiokclient.protocol.messages.leave_group import MemberIdentity

SCENARIOS = {}
GROUP = 32
LIMIT = 2000


def scenario(function):
    SCENARIOS[function.__name__] = function
    return function


def named(code):
    return ERRORS_BY_CODE[code].name if code else "ok"


class Beat(NamedTuple):
    code: str
    epoch: int
    given: list | None


class Group:
    """A fresh group; its heartbeats in one line. `topics` are names with ids."""

    def __init__(self, place, *sizes, group_id=None):
        self.place = place
        self.id = group_id or f"parity-{uuid.uuid4().hex[:8]}"
        self.topics = [place.topic(size) for size in sizes]
        self.names = [name for name, _ in self.topics]
        self._configure()

    def _configure(self):
        find = messages.FindCoordinatorRequest(key_type=0, coordinator_keys=[self.id])
        self.until(lambda: self.place.request(find).coordinators[0].error_code == 0)
        config = alter.AlterableConfig(
            name="consumer.assignment.interval.ms", config_operation=0, value="0"
        )
        resource = alter.AlterConfigsResource(
            resource_type=GROUP, resource_name=self.id, configs=[config]
        )
        request = messages.IncrementalAlterConfigsRequest(resources=[resource])
        assert self.place.request(request).responses[0].error_code == 0

    def until(self, check):
        for _ in range(LIMIT):
            if check():
                return
        raise AssertionError("it did not come about")

    def beat(self, member, epoch, *, owned=None, version=1, **options):
        if owned is not None:
            options["topic_partitions"] = [
                TopicPartitions(topic_id=self.topics[at][1], partitions=indexes)
                for at, indexes in owned.items()
            ]
        request = messages.ConsumerGroupHeartbeatRequest(
            group_id=self.id, member_id=member, member_epoch=epoch, **options
        )
        answer = self.place.request(request, version)
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
        return named(self.place.request(request, version).topics[0].partitions[0].error_code)

    def fetch(self, member, epoch):
        group = offset_fetch.OffsetFetchRequestGroup(
            group_id=self.id, member_id=member, member_epoch=epoch, topics=None
        )
        answer = self.place.request(messages.OffsetFetchRequest(groups=[group]), 9)
        return named(answer.groups[0].error_code)

    def describe(self):
        request = messages.ConsumerGroupDescribeRequest(group_ids=[self.id])
        (group,) = self.place.request(request).groups
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


@scenario
def refusals(place):
    group = Group(place, 2)
    join = {"rebalance_timeout_ms": 1000, "owned": {}}
    seen = [
        group.beat("m", 3),
        group.beat("m", -1),
        group.beat("", 0, **join),
        group.join(""),
        group.beat("m", 0, **join),
        group.join("m", rebalance_timeout_ms=-1),
        group.beat("m", 0, rebalance_timeout_ms=1000, subscribed_topic_names=group.names),
        group.join("m", owned={0: [1]}),
        group.join("m", instance_id=""),
        group.join("m", rack_id=""),
        group.join("m", server_assignor="roundrobin"),
        group.beat("m", 0, subscribed_topic_regex="([", **join),
        group.beat("m", 0, subscribed_topic_regex="(?=a)b", **join),
        group.beat("m", 0, subscribed_topic_regex=r"(a)\1", **join),
        group.beat("m", -2),
        group.beat("m", -3),
        group.describe()[0],
    ]
    empty = messages.ConsumerGroupHeartbeatRequest(member_id="m", group_id="")
    seen.append(named(place.request(empty).error_code))
    return seen


@scenario
def joins_without_topics(place):
    group = Group(place)
    return [
        group.join("m", []),
        group.describe()[:3],
        group.beat("m", 1, subscribed_topic_names=["nothing"]),
        group.describe()[:3],
    ]


@scenario
def epochs_of_one_member(place):
    group = Group(place, 4)
    return [
        group.join("m"),
        group.beat("m", 2),
        group.beat("m", 3),
        group.beat("m", 1),
        group.join("m"),
        group.beat(
            "m",
            2,
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=group.names,
            owned={0: [0, 1, 2, 3]},
        ),
        group.beat("m", 2, subscribed_topic_names=group.names),
        group.beat("other", 2),
        group.beat("other", -1),
        group.describe(),
        group.beat("m", -1),
        group.describe(),
        group.join("m"),
    ]


@scenario
def reconciliation(place):
    group = Group(place, 4)
    seen = [group.join("a"), group.join("b"), group.beat("b", 3)]
    seen += [group.commit("a", 2), group.commit("a", 2, 3), group.fetch("a", 2)]
    a = group.beat("a", 2)
    (kept,) = a.given or [(0, [])]
    rest = [each for each in range(4) if each not in kept[1]]
    seen += [(a.code, a.epoch, len(kept[1])), group.beat("a", 2), group.describe()[0]]
    seen.append(len(group.beat("a", 2, owned={0: kept[1]}).given or []))
    seen += [group.commit("a", 2, kept[1][0]), group.commit("a", 2, rest[0])]
    seen += [group.commit("a", 3, rest[0]), group.commit("a", 4), group.commit("a", -1)]
    seen += [group.fetch("a", 2), group.fetch("a", 3), group.fetch("x", 3), group.fetch(None, -1)]
    seen.append((group.beat("b", 3).given == [(0, rest)], group.describe()[:3]))
    # The answer was lost: what is owned is still within what was assigned.
    lost = group.beat("a", 2, owned={0: kept[1][:1]})
    seen.append((lost.code, lost.epoch))
    seen.append(group.beat("a", 2, owned={0: rest}))
    seen += [group.commit("x", 3), group.commit("", -1), group.commit("a", 3, version=8)]
    return seen


@scenario
def static_members(place):
    group = Group(place, 2)
    seen = [
        group.join("a", instance_id="i"),
        group.join("b", instance_id="i"),
        group.beat("b", 2, instance_id="i"),
        group.beat("b", 2, instance_id="j"),
        group.beat("a", -2, instance_id="i"),
        group.describe(),
        group.commit("a", 2),
        group.beat("a", 2, instance_id="i"),
        group.join("b", instance_id="i"),
        group.beat("a", 2, instance_id="i"),
        group.beat("a", 2),
        group.beat("a", -1, instance_id="i"),
        group.describe(),
        group.beat("b", -1, instance_id="i"),
        group.describe(),
    ]
    return seen


@scenario
def subscriptions_change(place):
    group = Group(place, 2, 3)
    seen = [
        group.join("m", group.names[:1]),
        group.beat("m", 2, subscribed_topic_names=group.names),
        group.beat("m", 3, subscribed_topic_names=group.names[1:]),
        group.beat("m", 3, owned={1: [0, 1, 2]}),
        group.beat("m", 4, subscribed_topic_names=[]),
        group.beat("m", 4, owned={}),
        group.beat("m", 5),
    ]
    return seen


@scenario
def partitions_are_added(place):
    group = Group(place, 2)
    seen = [group.join("m")]
    topic = CreatePartitionsTopic(name=group.names[0], count=3, assignments=None)
    request = messages.CreatePartitionsRequest(topics=[topic], timeout_ms=10_000)
    assert place.request(request).results[0].error_code == 0
    last = seen[0]

    def told():
        nonlocal last
        last = group.beat("m", last.epoch)
        return last.given is not None

    group.until(told)
    return [*seen, last]


@scenario
def patterns(place):
    group = Group(place, 2)
    options = {"rebalance_timeout_ms": 30_000, "owned": {}}
    last = group.beat("m", 0, subscribed_topic_regex=group.names[0][:-1] + ".", **options)
    given = last.given

    def told():
        nonlocal last, given
        last = group.beat("m", last.epoch)
        given = last.given or given
        return bool(given)

    if not given:
        group.until(told)
    state, _, _, _, (member,) = group.describe()
    return [given, state, member[3], member[4] == group.names[0][:-1] + ".", member[5:]]


@scenario
def assignors(place):
    group = Group(place, 3, 3)
    seen = [group.join(each, server_assignor="range") for each in "ab"]
    epochs = {"a": 2, "b": 3}
    owned = {"a": {}, "b": {}}
    for _, each in itertools.product(range(3), "aabb"):
        answer = group.beat(each, epochs[each], owned=owned[each])
        epochs[each] = answer.epoch
        if answer.given is not None:
            owned[each] = dict(answer.given)
    return [seen[0], owned, group.describe()[:4]]


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
    return group.place.request(request, version)


@scenario
def classic_members_in_a_consumer_group(place):
    group = Group(place, 2)
    topic = group.names[0].encode()
    subscription = b"\0\0\0\0\0\1" + len(topic).to_bytes(2, "big") + topic + b"\xff\xff\xff\xff"
    seen = [group.join("new")]
    first = joined(group, "", subscription)
    member = first.member_id
    seen.append((named(first.error_code), bool(member)))
    second = joined(group, member, subscription)
    seen.append((named(second.error_code), second.generation_id, second.leader, second.members))
    seen.append((second.protocol_type, second.protocol_name, second.skip_assignment))

    def identified(request, generation):
        return request(group_id=group.id, member_id=member, generation_id=generation)

    for generation in (second.generation_id, second.generation_id + 1):
        for request in (messages.SyncGroupRequest, messages.HeartbeatRequest):
            answer = place.request(identified(request, generation))
            seen.append((named(answer.error_code), len(getattr(answer, "assignment", b""))))
    kept = group.beat("new", 2).given
    seen.append(len(kept))
    seen.append(group.beat("new", 2, owned=dict(kept)).epoch)
    answer = place.request(identified(messages.HeartbeatRequest, second.generation_id))
    seen.append(named(answer.error_code))
    third = joined(group, member, subscription)
    answer = place.request(identified(messages.SyncGroupRequest, third.generation_id))
    seen += [third.generation_id, len(answer.assignment), group.describe()[:4]]
    answer = place.request(
        messages.HeartbeatRequest(group_id=group.id, member_id="new", generation_id=3)
    )
    seen.append(named(answer.error_code))
    odd = JoinGroupRequestProtocol(name="odd", metadata=b"")
    request = messages.JoinGroupRequest(
        group_id=group.id, session_timeout_ms=30_000, protocol_type="odd", protocols=[odd]
    )
    seen.append(named(place.request(request).error_code))
    leave = messages.LeaveGroupRequest(
        group_id=group.id,
        members=[MemberIdentity(member_id=each) for each in ("new", "nobody", member)],
    )
    seen.append([named(each.error_code) for each in place.request(leave).members])
    seen.append(group.describe()[:3])
    return seen


@pytest.mark.kafka
@pytest.mark.parametrize("name", SCENARIOS)
def test_parity(parity, name):
    parity(SCENARIOS[name])
