"""Tests of KIP-848 by the same raw requests to the embedded cluster and a real Kafka."""

import itertools

import pytest
from kip848_raw import Classic, Group, assignment, joined, subscription
from parity import Scenarios, named

from aiokclient.protocol import messages
from aiokclient.protocol.messages.create_partitions import CreatePartitionsTopic
from aiokclient.protocol.messages.join_group import JoinGroupRequestProtocol
from aiokclient.protocol.messages.leave_group import MemberIdentity

SCENARIOS = Scenarios()
scenario = SCENARIOS.add


@scenario
def refusals(broker):
    group = Group(broker, 2)
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
    seen.append(named(broker.request(empty).error_code))
    return seen


@scenario
def joins_without_topics(broker):
    group = Group(broker)
    return [
        group.join("m", []),
        group.describe()[:3],
        group.beat("m", 1, subscribed_topic_names=["nothing"]),
        group.describe()[:3],
    ]


@scenario
def epochs_of_one_member(broker):
    group = Group(broker, 4)
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
def reconciliation(broker):
    group = Group(broker, 4)
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
    # The response was lost. The member still owns some of its assigned partitions.
    lost = group.beat("a", 2, owned={0: kept[1][:1]})
    seen.append((lost.code, lost.epoch))
    seen.append(group.beat("a", 2, owned={0: rest}))
    seen += [group.commit("x", 3), group.commit("", -1), group.commit("a", 3, version=8)]
    return seen


@scenario
def static_members(broker):
    group = Group(broker, 2)
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
def subscriptions_change(broker):
    group = Group(broker, 2, 3)
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
def partitions_are_added(broker):
    group = Group(broker, 2)
    seen = [group.join("m")]
    topic = CreatePartitionsTopic(name=group.names[0], count=3, assignments=None)
    request = messages.CreatePartitionsRequest(topics=[topic], timeout_ms=10_000)
    assert broker.request(request).results[0].error_code == 0
    last = seen[0]

    def told():
        nonlocal last
        last = group.beat("m", last.epoch)
        return last.given is not None

    group.until(told)
    return [*seen, last]


@scenario
def patterns(broker):
    group = Group(broker, 2)
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
def assignors(broker):
    group = Group(broker, 3, 3)
    seen = [group.join(each, server_assignor="range") for each in "ab"]
    epochs = {"a": 2, "b": 3}
    owned = {"a": {}, "b": {}}
    for _, each in itertools.product(range(3), "aabb"):
        answer = group.beat(each, epochs[each], owned=owned[each])
        epochs[each] = answer.epoch
        if answer.given is not None:
            owned[each] = dict(answer.given)
    return [seen[0], owned, group.describe()[:4]]


@scenario
def classic_members_in_a_consumer_group(broker):
    group = Group(broker, 2)
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
            answer = broker.request(identified(request, generation))
            seen.append((named(answer.error_code), len(getattr(answer, "assignment", b""))))
    kept = group.beat("new", 2).given
    seen.append(len(kept))
    seen.append(group.beat("new", 2, owned=dict(kept)).epoch)
    answer = broker.request(identified(messages.HeartbeatRequest, second.generation_id))
    seen.append(named(answer.error_code))
    third = joined(group, member, subscription)
    answer = broker.request(identified(messages.SyncGroupRequest, third.generation_id))
    seen += [third.generation_id, len(answer.assignment), group.describe()[:4]]
    answer = broker.request(
        messages.HeartbeatRequest(group_id=group.id, member_id="new", generation_id=3)
    )
    seen.append(named(answer.error_code))
    odd = JoinGroupRequestProtocol(name="odd", metadata=b"")
    request = messages.JoinGroupRequest(
        group_id=group.id, session_timeout_ms=30_000, protocol_type="odd", protocols=[odd]
    )
    seen.append(named(broker.request(request).error_code))
    leave = messages.LeaveGroupRequest(
        group_id=group.id,
        members=[MemberIdentity(member_id=each) for each in ("new", "nobody", member)],
    )
    seen.append([named(each.error_code) for each in broker.request(leave).members])
    seen.append(group.describe()[:3])
    return seen


@scenario
def up_and_down_again(broker):
    """Upgrade a group of one classic consumer to the consumer protocol, and downgrade it again."""
    group = Group(broker, 4)
    old, topic = Classic(group), group.names[0]
    # Clients may append fields that others do not know.
    seen = [old.join(subscription(topic) + b"more")]
    seen += [old.sync(assignment((topic, [0, 1, 2, 3])) + b"more")]
    seen += [old.heartbeat(), group.join("new"), group.describe()[0], old.heartbeat()]
    seen += [old.sync(), old.join(subscription(topic, owned=[(topic, [0, 1, 2, 3])]))]
    kept = old.sync()
    seen.append((kept[0], len(kept[1][0])))
    seen += [old.heartbeat(), old.join(subscription(topic, owned=[(topic, kept[1][0])]))]
    seen += [old.sync() == kept, old.heartbeat()]
    seen.append(sum(len(indexes) for _, indexes in group.beat("new", 2).given))
    members = group.describe()[4]
    seen.append(sorted((each[2], each[7]) for each in members))
    seen += [group.beat("new", -1), old.heartbeat(), group.describe()[:2]]
    seen += [old.join(subscription(topic)), old.sync(assignment((topic, [0, 1, 2, 3])))]
    seen += [old.heartbeat(), group.join("new"), group.beat("new", -1)]
    return seen


@scenario
def a_static_member_changes_its_protocol(broker):
    group = Group(broker, 4)
    old, topic = Classic(group, instance_id="i"), group.names[0]
    seen = [old.join(subscription(topic)), old.sync(assignment((topic, [0, 1, 2, 3])))]
    seen += [group.join("new", instance_id="i"), old.heartbeat(), group.describe()]
    again = Classic(group, instance_id="i")
    seen += [again.join(subscription(topic)), again.sync(), again.heartbeat()]
    seen += [group.beat("new", 3, instance_id="i"), group.describe()[:2]]
    return seen


@scenario
def a_group_of_another_kind(broker):
    group = Group(broker, 1)
    odd = JoinGroupRequestProtocol(name="odd", metadata=b"?")

    def join(member):
        request = messages.JoinGroupRequest(
            group_id=group.id,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=member,
            protocol_type="odd",
            protocols=[odd],
        )
        return broker.request(request)

    member = join(join("").member_id)
    seen = [named(member.error_code), group.join("new"), group.beat("new", 1)]
    leave = messages.LeaveGroupRequest(
        group_id=group.id, members=[MemberIdentity(member_id=member.member_id)]
    )
    broker.request(leave)
    return [*seen, group.join("new"), group.describe()[:3]]


@pytest.mark.kafka
@pytest.mark.parametrize("name", SCENARIOS)
def test_consumer_group_requests_are_answered_as_by_kafka(parity, name):
    parity(SCENARIOS[name])
