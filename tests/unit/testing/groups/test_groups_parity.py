"""Tests of the classic protocol by the same raw requests to the embedded cluster and a real Kafka.

Each scenario uses one broker and returns what it saw. Both results must be equal. Leaders are not
compared, because the embedded cluster chooses them at random.
"""

import uuid

import pytest

from aiokclient.errors import ERRORS_BY_CODE
from aiokclient.protocol import messages
from aiokclient.protocol.messages import offset_delete
from aiokclient.protocol.messages.join_group import JoinGroupRequestProtocol

SCENARIOS = {}
JOIN, SYNC = messages.JoinGroupRequest, messages.SyncGroupRequest


def scenario(function):
    SCENARIOS[function.__name__] = function
    return function


def named(code):
    return ERRORS_BY_CODE[code].name if code else "ok"


def shown(answer, *peers):
    """Return the fields of a JoinGroup response without member ids."""
    ids = {peer.member_id: number for number, peer in enumerate(peers) if peer.member_id}
    return (
        named(answer.error_code),
        answer.generation_id,
        answer.protocol_type,
        answer.protocol_name,
        answer.skip_assignment,
        ids.get(answer.member_id, bool(answer.member_id)),
        bool(answer.leader),
        sorted((str(ids.get(each.member_id)), each.metadata) for each in answer.members),
    )


def described(peer, group=None):
    request = messages.DescribeGroupsRequest(groups=[group or peer.group])
    seen = []
    for version in (0, 4, 5, 6):
        request.include_authorized_operations = version >= 4
        (found,) = peer.side.request(request, version).groups
        members = [
            (each.group_instance_id, each.client_id, each.member_metadata, each.member_assignment)
            for each in found.members
        ]
        seen.append((named(found.error_code), found.group_state, found.protocol_type))
        seen.append((found.protocol_data, sorted(members), found.authorized_operations))
    return seen


@scenario
def joins_that_are_refused(broker, peers):
    lone = peers()
    lone.join()
    lone.sync({lone: b"a"})
    changes = [
        {"group_id": ""},
        {"session_timeout_ms": 10},
        {"session_timeout_ms": 100_000_000},
        {"protocols": []},
        {"protocol_type": ""},
        {"protocol_type": "other"},
        {"protocols": [JoinGroupRequestProtocol(name="other", metadata=b"")]},
        {"member_id": "nobody"},
        {"member_id": "nobody", "group_id": peers.group + "-new"},
        {"group_id": peers.group + "-new", "protocols": []},
        {"group_id": peers.group + "-new", "protocol_type": ""},
    ]
    static = [{"member_id": "nobody", "group_instance_id": "x"}]
    seen = []
    for number, change in enumerate(changes + static):
        for version in (5, 7, 9) if change in static else (0, 1, 2, 4, 5, 6, 7, 9):
            request = peers().join_request()
            for name, value in change.items():
                setattr(request, name, value)
            seen.append((number, version, shown(broker.request(request, version))))
    return seen


@scenario
def one_member_in_each_version(broker, peers):
    seen = []
    for version in range(10):
        lone = peers()
        seen.append(shown(lone.join(version), lone))
        assert lone.leads
        seen.append(described(lone))
        seen.append((lone.commit(topic := "nothing", 5), lone.beat(min(version, 4))))
        seen.append(lone.sync({lone: b"mine"}, version=min(version, 5)))
        seen.append((described(lone), lone.sync(), topic))
        seen.append(shown(lone.join(version), lone))
        seen.append((lone.state, lone.leave(version=min(version, 5)), lone.state))
        seen.append((lone.beat(), lone.leave(version=min(version, 5))))
    return seen


@scenario
def two_members(broker, peers):
    topic, _ = broker.topic()
    first, second = peers(), peers()
    first.join()
    first.sync({first: b"all"})
    second.start_join()
    first.until("PreparingRebalance", 2)
    seen = [first.beat(), first.commit(topic, 3), first.sync({first: b"x"}), described(first)]
    seen += [second.beat(), second.commit(topic, 4)]
    first.start_join()
    answers = [first.joined(), second.joined()]
    seen.append(sorted(bool(each.members) for each in answers))
    seen.append(sorted(shown(each, first, second)[:5] for each in answers))
    leader, other = (first, second) if first.leads else (second, first)
    seen += [leader.beat(), other.beat(), other.commit(topic, 5), leader.commit(topic, 5)]
    # A JoinGroup with unchanged metadata returns the current generation.
    seen += [shown(each.join(), each)[:7] for each in (other, leader)]
    other.start_sync()
    leader.start_sync({leader: b"l", other: b"o", peers(): b"nobody's"})
    seen += [leader.synced(), other.synced(), other.sync(), leader.sync({other: b"new"})]
    seen += [other.sync(), other.commit(topic, 6), shown(other.join(), other)[:7], other.state]
    other.protocols["range"] = b"changed"
    other.start_join()
    leader.until("PreparingRebalance")
    seen += [leader.beat(), leader.leave(), named(other.joined().error_code), other.beat()]
    seen += [other.generation, other.leads, other.sync({}), other.fetch(topic, 0), described(other)]
    return seen


@scenario
def what_a_stranger_may_do(broker, peers):
    """Send requests with the wrong member id or generation in each state of the group."""
    topic, _ = broker.topic()
    member, stranger = peers(), peers()
    stranger.member_id = "nobody"

    def wrong():
        good = member.generation
        seen = [stranger.beat(), stranger.sync(), stranger.leave(), stranger.commit(topic, 1)]
        seen += [member.beat(generation_id=each) for each in (good - 1, good + 1, -1)]
        seen += [member.sync(generation_id=each) for each in (good - 1, good + 1)]
        for each in (good - 1, good + 1, -1):
            seen.append(member.commit(topic, 1, generation_id_or_member_epoch=each))
        nobody = {"generation_id_or_member_epoch": -1, "member_id": ""}
        seen += [member.commit(topic, 1, **nobody)]
        seen += [member.sync(protocol_type="other"), member.sync(protocol_name="other")]
        seen += [member.sync(protocol_type=None), member.sync(protocol_name=None)]
        seen += [member.beat(group_instance_id="x"), member.sync(group_instance_id="x")]
        seen += [member.commit(topic, 1, group_instance_id="x")]
        return seen

    seen = [wrong()]
    for version in (2, 5, 8, 9):
        stranger.generation = 1
        seen.append(stranger.commit(topic, 1, version=version))
    member.join()
    seen.append(wrong())
    member.sync({member: b""})
    seen.append(wrong())
    peers().start_join()
    member.until("PreparingRebalance")
    seen.append(wrong())
    return seen


@scenario
def protocols_are_voted_for(broker, peers):
    old = peers(protocols={"old": b"1", "older": b"1"})
    both = peers(protocols={"new": b"2", "old": b"2"})
    newer = peers(protocols={"new": b"3"})
    peers.settle(old)
    peers.settle(both, old=(old,))
    seen = [old.protocol, both.protocol, named(newer.side.request(newer.join_request()).error_code)]
    old.protocols = {"new": b"1", "old": b"1"}
    old.start_join()
    both.until("PreparingRebalance")
    both.start_join()
    seen += [named(each.joined().error_code) for each in (old, both)]
    seen += [old.protocol, both.protocol]
    peers.assign(old, both)
    peers.settle(newer, old=(old, both))
    return [*seen, newer.protocol, newer.leave(), old.state]


@scenario
def static_members(broker, peers):
    topic, _ = broker.topic()
    a, b = peers(instance="a"), peers(instance="b")
    peers.settle(a, b)
    leader, other = (a, b) if a.leads else (b, a)
    seen = [described(a), leader.generation]
    for version in (5, 8, 9):
        for old in (other, leader):
            new = peers(instance=old.instance)
            answer = new.join(version)
            seen.append((version, shown(answer, new)[:6], len(answer.members)))
            seen.append((answer.leader == new.member_id, answer.leader == old.member_id))
            seen += [old.beat(), old.sync(), old.commit(topic, 1), old.leave()]
            seen += [shown(old.join(), old), new.sync()[0], new.beat(), new.commit(topic, 2)]
            if old is leader:
                leader = new
            else:
                other = new
    gone = peers(instance=leader.instance)
    gone.protocols["range"] = b"changed"
    gone.start_join()
    gone.until("Stable")
    seen.append(shown(gone.joined(), gone)[:6])
    gone_too = [("", "nobody"), ("", leader.instance), ("x", None), ("x", other.instance)]
    seen.append(other.leave(*gone_too))
    seen += [other.beat(), gone.beat(), shown(other.join(), other)[:6], other.sync({other: b"1"})]
    seen += [other.leave(("", other.instance), ("", other.instance)), other.state]
    return seen


@scenario
def a_static_member_in_a_rebalance(broker, peers):
    a, b = peers(instance="a"), peers(instance="b")
    leader = peers.gather(a, b)
    other = b if leader is a else a
    # When a static member joins again in CompletingRebalance, a new rebalance starts.
    other.start_sync()
    again = peers(instance=leader.instance)
    again.start_join()
    again.until("PreparingRebalance")
    seen = [other.synced(), leader.beat()]
    # When it joins again in PreparingRebalance, its earlier JoinGroup, which still waits, is
    # fenced.
    third = peers(instance=leader.instance)
    third.start_join()
    seen.append(shown(again.joined())[0])
    other.start_join()
    return [*seen, shown(third.joined())[:2], shown(other.joined())[:2]]


@scenario
def offsets(broker, peers):
    topic, topic_id = broker.topic(3)
    lone, group = peers(), peers.group
    seen = [lone.fetch(topic, 0, 7), lone.fetch(None), lone.fetch("nothing", 0)]
    seen += [lone.commit(topic, 1, 2, metadata="m"), lone.commit(topic, 0, 0, 0, 0), lone.state]
    seen += [lone.commit("nothing", 1, 2), lone.commit(uuid.uuid4(), 1), lone.commit(topic_id, 4)]
    seen += [lone.commit(topic, 9, metadata="x" * size) for size in (4096, 4097)]
    seen += [lone.commit(topic, 9, metadata=None), lone.commit(topic, -1), lone.commit(topic, -9)]
    seen += [lone.commit(topic, 7, version=each) for each in range(2, 10)]
    seen += [lone.fetch(topic, 0, 1, 2, 5), lone.fetch(topic_id, 0, 1), lone.fetch(uuid.uuid4(), 0)]
    seen += [sorted(lone.fetch(None)[1]), lone.fetch(topic, 0, require_stable=True)]
    seen += [sorted(each) for each in (old_fetch(broker, group, topic, v) for v in range(1, 8))]
    lone.group = ""
    seen += [lone.fetch(topic, 0), lone.commit(topic, 5), lone.fetch(topic, 0)]
    return seen


def old_fetch(broker, group, topic, version):
    asked = messages.offset_fetch.OffsetFetchRequestTopic(name=topic, partition_indexes=[0, 2])
    missing = messages.offset_fetch.OffsetFetchRequestTopic(name="nothing", partition_indexes=[1])
    request = messages.OffsetFetchRequest(group_id=group, topics=[asked, missing])
    answer = broker.request(request, version)
    return [
        (
            named(answer.error_code),
            each.name.replace(topic, "topic"),
            partition.partition_index,
            partition.committed_offset,
            partition.metadata,
            named(partition.error_code),
        )
        for each in answer.topics
        for partition in each.partitions
    ]


@scenario
def offsets_are_deleted(broker, peers):
    topic, _ = broker.topic(2)
    other, _ = broker.topic(1)

    def delete(group, *names):
        asked = [
            offset_delete.OffsetDeleteRequestTopic(
                name=name,
                partitions=[
                    offset_delete.OffsetDeleteRequestPartition(partition_index=each)
                    for each in (0, 5)
                ],
            )
            for name in names
        ]
        answer = broker.request(messages.OffsetDeleteRequest(group_id=group, topics=asked))
        topics = sorted(answer.topics, key=lambda each: names.index(each.name))
        codes = [
            sorted((p.partition_index, named(p.error_code)) for p in t.partitions) for t in topics
        ]
        return named(answer.error_code), codes

    subscription = messages.consumer_protocol.ConsumerProtocolSubscription(topics=[topic])
    metadata = b"\0\1" + b"".join(bytes(each) for each in subscription.encode(1))
    reader = peers(protocols={"range": metadata})
    seen = [delete("", topic), delete(peers.group, topic)]
    reader.commit(topic, 1, 2)
    reader.commit(other, 3)
    seen += [delete(peers.group, topic, "nothing"), reader.fetch(topic, 0, 1)]
    reader.commit(topic, 1)
    peers.settle(reader)
    seen += [delete(peers.group, topic, other), reader.fetch(topic, 0, 1), reader.fetch(other, 0)]
    reader.leave()
    seen += [delete(peers.group, topic), reader.fetch(topic, 0, 1)]
    strange = peers(kind="other")
    peers.settle(strange)
    return [*seen, delete(peers.group, topic), strange.leave(), delete(peers.group, topic)]


@scenario
def groups_are_listed_and_deleted(broker, peers):
    topic, _ = broker.topic()

    def listed():
        seen = []
        for states, types in ((), ()), (["stable"], ()), (["Empty", "DEAD"], ()), ((), ["Classic"]):
            for version in (0, 3, 4, 5):
                if (states and version < 4) or (types and version < 5):
                    continue
                request = messages.ListGroupsRequest()
                request.states_filter, request.types_filter = list(states), list(types)
                seen += [
                    (version, each.protocol_type, each.group_state, each.group_type)
                    for each in broker.request(request, version).groups
                    if each.group_id == peers.group
                ]
        return seen

    def delete(*groups):
        answer = broker.request(messages.DeleteGroupsRequest(groups_names=list(groups)))
        return sorted(named(each.error_code) for each in answer.results)

    member = peers()
    seen = [listed(), delete(peers.group, "nothing", peers.group), described(member, "nothing")]
    member.commit(topic, 1)
    seen += [listed(), described(member), delete(peers.group), member.fetch(topic, 0), listed()]
    member.join()
    seen += [listed(), delete(peers.group)]
    member.sync({member: b""})
    member.commit(topic, 1)
    seen += [listed(), delete(peers.group), member.leave(), listed(), described(member)]
    return [*seen, delete(peers.group), member.fetch(topic, 0), member.state]


@scenario
def ids_that_are_not_used(broker, peers):
    """Request member ids and do not join with them.

    One member leaves, and the other one joins too late.
    """
    first, second, third = peers(), peers(), peers(session_ms=1000)
    peers.settle(first)
    second.get_id()
    seen = [first.beat(), second.beat(), second.commit("x", 1), first.state]
    seen += [second.leave(), second.leave(), first.state]
    third.get_id()
    first.start_join()
    answer = first.joined()
    seen.append(shown(answer, first)[:6])
    return [*seen, named(third.join().error_code)]


@scenario
def who_does_not_come_is_out(broker, peers):
    # The timeout is long enough for an immediate SyncGroup, even on a busy machine.
    slow, quick = peers(rebalance_ms=3000), peers(rebalance_ms=1000)
    peers.settle(slow)
    quick.start_join()
    seen = [shown(quick.joined(), quick), slow.beat()]
    # The second member sends no SyncGroup, so the group becomes empty.
    quick.until("Empty")
    return [*seen, quick.beat(), quick.state]


@pytest.mark.parametrize("name", SCENARIOS)
def test_group_requests_are_answered_as_by_kafka(name, parity, fresh_group):
    configs = {"group.min.session.timeout.ms": 1000}
    parity(lambda broker: SCENARIOS[name](broker, fresh_group(broker)), configs=configs)
