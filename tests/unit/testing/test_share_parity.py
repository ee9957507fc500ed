"""Tests of share groups by the same raw requests to the embedded cluster and a real Kafka."""

import time

import pytest
from parity import Scenarios, named
from share_raw import ACCEPT, GAP, REJECT, RELEASE, RENEW, ShareGroup, batch
from txn_raw import Txn

from aiokclient.cli.records.internal_topics import decode_record
from aiokclient.protocol import messages
from aiokclient.protocol.messages import delete_records, delete_topics, metadata
from aiokclient.record.batch import walk

SCENARIOS = Scenarios()
scenario = SCENARIOS.add


def shared(broker, batches=1, size=10, partitions=1, **configs):
    """Return a group that has begun with a topic of so many batches in each partition."""
    group = ShareGroup(broker, partitions, **configs)
    name, _ = group.topics[0]
    for partition in range(partitions):
        for _ in range(batches):
            values = [b"v"] * size
            data = broker.wire.batch(*values)
            assert broker.connection.produce(name, data, partition).error_code == 0
    group.enter("joined")
    return group


# -- membership --------------------------------------------------------------------------------


@scenario
def heartbeats(broker):
    group = ShareGroup(broker, 3)
    seen = [
        group.beat("m", 3),
        group.beat("m", -1),
        group.join(""),
        group.join("m" * 37),
        group.join("m", rack_id=""),
        group.join("m", group_id=""),
        group.beat("m", 0),
        group.join("m", []),
        group.beat("m", -2),
        group.describe(),
        group.join("m"),
    ]
    seen += [group.enter("m"), group.describe()]
    return seen


@scenario
def epochs_of_members(broker):
    group = ShareGroup(broker, 3)
    seen = [group.join("a"), group.enter("a")]
    joined = group.join("b")
    seen += [joined[:2], len(joined.given[0][1]), group.describe()]
    seen += [group.beat("b", epoch) for epoch in (4, 3)]
    kept = group.beat("a", 3)
    seen += [kept[:2], len(kept.given[0][1]), group.beat("a", 4), group.beat("a", 3)]
    seen += [group.beat("a", 9), group.join("a")[:2], group.describe()]
    seen += [group.beat("b", -1), group.describe(), group.beat("a", 4), group.beat("a", 5)]
    seen += [group.beat("a", 5, subscribed_topic_names=[]), group.describe(), group.beat("a", 6)]
    seen += [group.beat("a", 7), group.beat("z", 3), group.beat("z", -1), group.beat("a", -1)]
    seen += [group.describe(), group.join("c", ["nothing"]), group.describe()]
    return seen


@scenario
def assignments(broker):
    seen = []
    for partitions, members in ((3, 2), (3, 4), (3, 7), (1, 5)):
        group = ShareGroup(broker, partitions)
        group.enter("m0")
        for index in range(1, members):
            group.join(f"m{index}")
        given = [group.join(f"m{index}").given for index in range(members)]
        each = [index for one in given for _, indexes in one for index in indexes]
        seen.append((sorted(len(one[0][1]) for one in given), sorted(each)))
    return seen


@scenario
def other_kinds_of_groups(broker):
    group = ShareGroup(broker, 1)
    group.enter("m")
    join = messages.JoinGroupRequest(
        group_id=group.id, session_timeout_ms=10_000, rebalance_timeout_ms=10_000
    )
    beat = messages.ConsumerGroupHeartbeatRequest(
        group_id=group.id,
        member_id="c",
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=group.names,
        topic_partitions=[],
    )
    seen: list[object] = []
    for _ in range(2):
        answer = broker.request(beat)
        seen += [named(broker.request(join).error_code), named(answer.error_code)]
        described = broker.request(messages.DescribeGroupsRequest(groups=[group.id])).groups[0]
        seen += [(named(described.error_code), described.group_state)]
        listed = broker.request(messages.ListGroupsRequest(types_filter=["share"])).groups
        seen += [
            (each.group_state, each.group_type, each.protocol_type)
            for each in listed
            if each.group_id == group.id
        ]
        deleted = broker.request(messages.DeleteGroupsRequest(groups_names=[group.id])).results
        seen += [named(each.error_code) for each in deleted]
        group.beat("m", -1)
    seen.append(group.describe())
    return seen


# -- sessions ----------------------------------------------------------------------------------


@scenario
def sessions(broker):
    group = shared(broker)
    a, b = group.member("a"), group.member("b")
    seen = [
        a.fetch(1),
        a.fetch(-1),
        a.settle(0, 0, ACCEPT, epoch=0),
        a.settle(0, 0, ACCEPT, epoch=1),
        a.settle(0, 0, ACCEPT, epoch=-1),
        a.fetch(0, acks={0: [batch(0, 0, ACCEPT)]}),
        a.fetch(0, group_id=None),
        a.fetch(0, group_id=""),
        a.fetch(0, member_id=""),
        a.fetch(0, member_id="m" * 37),
        a.fetch(0),
        a.fetch(2),
        a.fetch(0, acks={0: [batch(0, 0, ACCEPT)]}),
        a.settle(0, 0, ACCEPT, epoch=3),
        a.settle(0, 0, ACCEPT, epoch=0),
        a.settle(0, 1, ACCEPT, epoch=1),
        # The locks stay when a session is replaced, also by one of another connection.
        group.member("a").fetch(0),
        a.settle(2, 3, ACCEPT, epoch=1),
        b.fetch(0),
        a.fetch(2, acks={0: [batch(4, 5, ACCEPT)]}, max_records=0),
    ]
    return seen


@scenario
def closes_with_acknowledgements(broker):
    group = shared(broker)
    a, b, c = (group.member(each) for each in "abc")
    seen = [a.fetch(), a.settle(0, 3, ACCEPT, epoch=-1), a.settle(4, 4, ACCEPT, epoch=1)]
    group.until(lambda: b.fetch().partitions.get(0, [[]] * 4)[3])
    seen += [b.fetch(-1, at=(), acks={0: [batch(4, 6, ACCEPT)]})]
    taken = []
    group.until(lambda: taken or taken.extend(c.fetch().partitions.get(0, [[]] * 4)[3]))
    return [*seen, taken]


@scenario
def connection_ends(broker):
    group = shared(broker)
    a, b = group.member("a"), group.member("b")
    seen = [a.fetch()]
    a.close()
    group.until(lambda: b.fetch().partitions.get(0, [[]] * 4)[3])
    a = group.member("a")
    seen += [a.settle(0, 0, ACCEPT, epoch=1)]
    seen += [b.settle(0, 9, ACCEPT)]
    return seen


@scenario
def connection_ends_while_a_fetch_waits(broker):
    locks = {"share.record.lock.duration.ms": 60_000}
    group = shared(broker, partitions=2, **locks)
    a, b, c = (group.member(each) for each in "abc")
    seen = [a.fetch(at=(0,)), a.fetch(at=(1,))]
    a.send_fetch(at=(), max_wait_ms=30_000)
    a.close()
    # The broker notices the loss when the fetch has ended. Until then, the locks stay.
    seen += [b.fetch(max_wait_ms=500)]
    broker.connection.produce(group.names[0], broker.wire.batch(b"new"), 1)
    found = {}
    group.until(lambda: found.update(b.fetch(max_wait_ms=100).partitions) or found[0][3])
    # What the fetch acquired was released, too, with a higher count.
    return [*seen, found[0], c.fetch(at=(1,))]


@scenario
def forgotten_partitions(broker):
    group = shared(broker, partitions=2)
    a, b = group.member("a"), group.member("b")
    seen = [a.fetch(at=(0, 1), max_records=1), a.fetch(at=(), max_records=1)]
    seen[:] = [sorted(key for each in seen for key in each.partitions if each.partitions[key][3])]
    seen += [a.fetch(at=(), forget=[0], max_wait_ms=0)]
    # Records of the forgotten partition can be acknowledged. They stay locked after the end.
    seen += [a.settle(0, 1, ACCEPT), a.fetch(-1, at=())]
    found = {}
    group.until(
        lambda: found.update(b.fetch(at=(0, 1), max_wait_ms=100).partitions) or found.get(1)
    )
    seen += [sorted(found)]
    return seen


# -- what is acquired --------------------------------------------------------------------------


@scenario
def batches(broker):
    group = shared(broker, 6)
    a = group.member("a")
    seen = []
    for size in (500, 10, 15):
        seen.append(a.fetch(max_records=25, batch_size=size))
        seen.append(a.settle(0, 29, RELEASE))
        seen.append(a.fetch(max_records=100))
        seen.append(a.settle(0, 59, RELEASE))
    return seen


@scenario
def sizes_of_batches(broker):
    seen = []
    for size in (500, 10, 15):
        group = shared(broker, 6)
        a = group.member("a")
        seen += [a.fetch(max_records=25, batch_size=size), a.fetch(max_records=1, batch_size=size)]
    return seen


@scenario
def record_limit(broker):
    group = shared(broker, 6)
    a = group.member("a")
    strict = {"share_acquire_mode": 1, "max_records": 25}
    seen = [a.fetch(**strict), a.fetch(**strict), a.fetch(**strict), a.settle(0, 24, RELEASE)]
    strict["max_records"] = 3
    seen += [a.fetch(**strict), a.fetch(**strict), a.fetch(max_records=3)]
    seen += [a.fetch(max_records=1, share_acquire_mode=2)]
    return seen


@scenario
def record_limit_inside_a_batch(broker):
    group = shared(broker, 1, 20)
    a = group.member("a")
    strict = {"share_acquire_mode": 1, "max_records": 7}
    return [a.fetch(**strict), a.fetch(**strict), a.fetch(**strict), a.fetch(max_wait_ms=0)]


@scenario
def several_partitions(broker):
    group = shared(broker, 2, partitions=2)
    a = group.member("a")
    seen = []
    for options in ({"max_records": 15}, {"max_records": 500}, {"max_records": 500}):
        answer = a.fetch(at=(0, 1), max_wait_ms=100, **options)
        seen.append(sum(1 for each in answer.partitions.values() if each[3]))
    return seen


@scenario
def empty_and_unknown_partitions(broker):
    group = ShareGroup(broker, 1)
    other = ShareGroup(broker, 1)
    group.enter("joined")
    a, b = group.member("a"), other.member("b")
    seen = [a.fetch(), a.fetch(), a.fetch(max_wait_ms=0)]
    seen += [a.fetch(at=(7,)), a.fetch(at=()), a.fetch(at=(), forget=[7])]
    # The coordinator does not know this partition of the group.
    seen += [b.fetch(), b.settle(0, 0, ACCEPT)]
    broker.produced(group.names[0], b"v")
    seen += [a.fetch(max_records=0), a.fetch(max_bytes=0), a.fetch(min_bytes=1 << 20)]
    return seen


@scenario
def shrinking_redeliveries(broker):
    group = shared(broker)
    a = group.member("a")
    seen = []
    for _ in range(15):
        answer = a.fetch()
        ranges = answer.partitions[0][3] if answer.partitions else []
        seen.append(ranges)
        if ranges:
            seen.append(a.settle(ranges[0][0], ranges[-1][1], RELEASE))
    return seen


@scenario
def shrinking_with_other_limits(broker):
    seen = []
    for limit in (2, 3, 8):
        group = shared(broker, 1, 8, **{"share.delivery.count.limit": limit})
        a = group.member("a")
        for _ in range(10):
            answer = a.fetch(max_wait_ms=300 if a.epoch == 0 else 0)
            ranges = answer.partitions[0][3] if answer.partitions else []
            seen.append(ranges)
            if ranges:
                a.settle(ranges[0][0], ranges[-1][1], RELEASE)
    return seen


@scenario
def full_window(broker):
    group = shared(broker, 20, **{"share.partition.max.record.locks": 100})
    a = group.member("a")
    seen = [a.fetch(), a.fetch(max_wait_ms=0), a.settle(10, 99, ACCEPT), a.fetch(max_wait_ms=0)]
    seen += [a.settle(0, 4, RELEASE), a.fetch(max_wait_ms=0), a.settle(0, 9, ACCEPT)]
    seen += [a.fetch(max_wait_ms=0)]
    return seen


# -- acknowledgements --------------------------------------------------------------------------


@scenario
def acknowledgement_errors(broker):
    group = shared(broker, 2)
    a, b = group.member("a"), group.member("b")
    seen = [a.fetch(max_records=1)]
    seen += [a.settle(*each) for each in ((3, 2, ACCEPT), (0, 1), (0, 1, 1, 1, 1), (0, 0, -1))]
    seen += [a.settle(*each) for each in ((0, 0, 5), (0, 0, RENEW), (-1, 0, ACCEPT))]
    seen += [a.settle(0, 0, RENEW, version=1), a.settle(0, 0, 5, version=1)]
    seen.append(a.acknowledge({0: [batch(3, 4, ACCEPT), batch(1, 2, ACCEPT)]}))
    seen.append(a.acknowledge({0: [batch(3, 4, ACCEPT), batch(4, 5, ACCEPT)]}))
    seen += [a.settle(*each, ACCEPT) for each in ((12, 13), (8, 13), (10, 10))]
    seen += [b.fetch(max_records=1), b.settle(0, 0, ACCEPT), b.settle(0, 9, ACCEPT)]
    seen += [b.settle(5, 12, ACCEPT), a.settle(10, 11, ACCEPT)]
    seen += [a.settle(2, 3, ACCEPT), a.settle(2, 2, ACCEPT), b.settle(2, 2, ACCEPT)]
    seen += [a.settle(0, 5, ACCEPT), a.acknowledge({0: []}), a.acknowledge({1: [batch(0, 0, 1)]})]
    seen += [
        b.settle(4, 4, ACCEPT),
        a.settle(0, 1, ACCEPT),
        a.settle(0, 1, RENEW, is_renew_ack=True),
    ]
    seen += [a.settle(0, 3, REJECT), a.settle(3, 3, RELEASE)]
    return seen


@scenario
def kinds_of_acknowledgements(broker):
    group = shared(broker, 2)
    a = group.member("a")
    seen = [a.fetch(max_records=1), a.settle(0, 4, GAP, ACCEPT, RELEASE, REJECT, RELEASE)]
    seen += [a.fetch(max_records=1), a.settle(2, 2, ACCEPT), a.settle(5, 9, RELEASE)]
    seen += [a.fetch(max_wait_ms=0), a.fetch(max_wait_ms=0)]
    return seen


@scenario
def renewals(broker):
    group = shared(broker, 1)
    a = group.member("a")
    seen = [a.fetch(), a.settle(0, 3, RENEW, is_renew_ack=True)]
    seen += [a.settle(0, 5, *[RENEW] * 3, *[ACCEPT] * 3, is_renew_ack=True)]
    none = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
    acks = {"acks": {0: [batch(0, 0, RENEW)]}, "is_renew_ack": True}
    seen += [a.fetch(a.epoch, **acks), a.fetch(**acks, **none)]
    seen += [a.fetch(acks={0: [batch(0, 0, RENEW)]}, max_wait_ms=0)]
    seen += [group.configure("share.renew.acknowledge.enable", "false")]
    seen += [a.settle(0, 0, RENEW, is_renew_ack=True), a.settle(0, 0, ACCEPT)]
    return seen


@scenario
def acknowledgements_in_fetches(broker):
    group = shared(broker, 3)
    a = group.member("a")
    seen = [a.fetch(max_records=1)]
    seen += [a.fetch(acks={0: [batch(0, 4, ACCEPT)]}, max_records=1)]
    seen += [a.fetch(acks={0: [batch(0, 4, ACCEPT)]}, max_records=1)]
    seen += [a.fetch(acks={0: [batch(0, 5, ACCEPT)], 1: [batch(0, 0, ACCEPT)]}, max_wait_ms=0)]
    seen += [a.fetch(at=(), acks={0: [batch(7, 6, ACCEPT)]}, max_wait_ms=0)]
    seen += [a.fetch(at=(), acks={0: [batch(9, 9, ACCEPT)]}, max_wait_ms=0)]
    seen += [a.fetch(-1, at=(), acks={0: [batch(6, 6, ACCEPT)]}), a.fetch(8)]
    return seen


# -- locks -------------------------------------------------------------------------------------


@scenario
def lock_ends(broker):
    group = shared(broker, 1)
    a, b = group.member("a"), group.member("b")
    seen = [a.fetch(), b.fetch(max_wait_ms=10_000), a.settle(0, 4, ACCEPT)]
    # Below the start offset, everything is confirmed.
    seen += [b.settle(0, 4, ACCEPT), a.settle(0, 0, ACCEPT), a.settle(0, 5, ACCEPT)]
    return seen


@scenario
def waiting_fetches(broker):
    group = shared(broker, 1)
    a, b = group.member("a"), group.member("b")
    seen = [a.fetch()]
    b.send_fetch(max_wait_ms=30_000)
    broker.produced(group.names[0], b"v")
    answers = [b.receive_fetch()]

    def has_acquired():
        # A busy broker may wake the fetch before it can acquire the record.
        found = answers[-1].partitions.get(0, [[]] * 4)[3]
        if not found:
            answers.append(b.fetch(max_wait_ms=30_000))
        return found

    group.until(has_acquired)
    return [*seen, answers[-1]]


# -- offsets -----------------------------------------------------------------------------------


@scenario
def offsets(broker):
    group = ShareGroup(broker, 2, 1)
    name, other = group.names
    for _ in range(2):
        broker.produced(name, *[b"v"] * 10)
    seen = [group.list_offsets({name: [0], "nothing": [0]}), group.delete_offsets(name)]
    seen += [group.alter_offsets({name: {0: 3, 7: 1}, "nothing": {0: 1}}), group.describe()]
    seen += [
        group.list_offsets(),
        group.list_offsets({name: [0, 1]}),
        group.list_offsets(version=0),
    ]
    epoch, given = group.enter("m")
    seen += [epoch, given, group.alter_offsets({name: {0: 3}}), group.delete_offsets(name)]
    group.until(lambda: len(group.list_offsets()[1]) == 3)
    a = group.member("a")
    seen += [group.list_offsets(), a.fetch(max_records=1)]
    for settled in ((3, 5, ACCEPT), (8, 8, ACCEPT), (6, 6, RELEASE), (6, 6, ACCEPT)):
        seen += [a.settle(*settled), group.list_offsets({name: [0]})]
    # The offsets are set while a member holds records.
    seen += [group.beat("m", -1), group.alter_offsets({name: {0: 1, 1: -1}}), group.describe()]
    seen += [a.settle(7, 7, ACCEPT), a.settle(7, 7, ACCEPT), group.list_offsets(), a.fetch()]
    seen += [group.alter_offsets({name: {0: 90}}), group.list_offsets()]
    seen += [group.delete_offsets(name, other, "nothing"), group.delete_offsets(name)]
    seen += [group.list_offsets(), group.describe(), a.settle(1, 1, ACCEPT)]
    seen += [group.member("b").fetch()]
    seen += [group.alter_offsets({}), group.alter_offsets({name: {}}), group.delete_offsets()]
    seen += [group.delete(), group.describe(), group.alter_offsets({name: {0: 1}})]
    seen += [group.list_offsets(), group.describe(), group.join("x"), group.describe()]
    return seen


@scenario
def starts(broker):
    seen = []
    for reset in ("earliest", "latest", "by_duration:PT1H", "by_duration:PT0S"):
        group = ShareGroup(broker, 1, **{"share.auto.offset.reset": reset})
        name = group.names[0]
        now_ms = int(time.time() * 1000)
        broker.produced(name, b"old", timestamp=now_ms - 7_200_000)
        broker.produced(name, b"new", timestamp=now_ms - 60_000)
        group.enter("joined")
        a = group.member("a")
        seen += [a.fetch().partitions, group.list_offsets()]
        broker.produced(name, b"newest", timestamp=now_ms + 60_000)
        seen += [a.fetch().partitions, group.list_offsets(), a.settle(2, 2, ACCEPT)]
        seen += [group.list_offsets()]
    for reset in ("", "none", "by_duration:", "by_duration:P", "by_duration:-PT1S", "LATEST"):
        seen.append(group.configure("share.auto.offset.reset", reset)[0])
    for reset in ("by_duration:P1DT2H3M4.5S", "by_duration:PT-0S", "by_duration:p2d"):
        seen.append(group.configure("share.auto.offset.reset", reset)[0])
    return seen


@scenario
def latest_is_resolved_again(broker):
    group = ShareGroup(broker, 1, **{"share.auto.offset.reset": "latest"})
    group.enter("joined")
    a, other = group.member("a"), group.member("b")
    seen = [a.fetch().partitions]
    a.close()
    # The end of the only session makes the leader forget where the group began.
    group.until(lambda: a.group.broker.again() and other.settle(0, 0, 1, epoch=1) is not None)
    broker.produced(group.names[0], b"skipped")
    group.until(lambda: other.fetch(0).partitions.get(0, [[]] * 4)[3] == [])
    broker.produced(group.names[0], b"seen")
    return [*seen, other.fetch(1).partitions]


@scenario
def altered_offsets_of_a_loaded_partition(broker):
    group = shared(broker)
    a = group.member("a")
    seen = [a.fetch(), a.settle(0, 9, ACCEPT), a.fetch(-1, at=()), group.beat("joined", -1)]
    seen += [group.alter_offsets({group.names[0]: {0: 0}}), group.member("b").fetch()]
    a.close()
    found = []

    def is_read_again():
        # When the last session has ended with its connection, the leader reads the offsets again.
        member = group.member("c")
        found[:] = member.fetch(0).partitions[0][3]
        member.close()
        return found

    group.broker.wire.close()
    group.broker.request = group.broker.again().request
    group.until(is_read_again)
    return [*seen, found]


@scenario
def limits_of_group_configs(broker):
    group, seen = ShareGroup(broker), []
    for name, value in {
        "share.delivery.count.limit": 11,
        "share.record.lock.duration.ms": 60_001,
        "share.heartbeat.interval.ms": 15_001,
        "share.session.timeout.ms": 60_001,
        "share.assignment.interval.ms": 15_001,
        "share.partition.max.record.locks": 4_001,
        "consumer.session.timeout.ms": 60_001,
        "consumer.heartbeat.interval.ms": 15_001,
        "consumer.assignment.interval.ms": 15_001,
    }.items():
        code, text = group.configure(name, value)
        # The least values of both brokers are not the same.
        before, _, after = text.rpartition(" to ")
        seen.append((code, before.rpartition(" ")[0], after))
    return seen


@scenario
def group_configs(broker):
    group = ShareGroup(broker)
    return [
        group.configure(f"share.{name}", value)[0]
        for name, values in {
            "delivery.count.limit": ("1", "2", "10", "11"),
            "partition.max.record.locks": ("99", "100", "4000", "4001"),
            "record.lock.duration.ms": ("1000", "60000", "60001"),
            "heartbeat.interval.ms": ("100", "15000", "15001"),
            "session.timeout.ms": ("60000", "60001"),
            "assignment.interval.ms": ("-1", "0", "15000", "15001"),
            "isolation.level": ("read_committed", "READ_COMMITTED", "x", "read_uncommitted"),
            "renew.acknowledge.enable": ("x", "false"),
        }.items()
        for value in values
    ] + [
        group.configure("errors.deadletterqueue.topic.name", value)[0]
        for value in ("dlq.x", "__x", "")
    ]


@scenario
def log_starts_later(broker):
    group = shared(broker, 3)
    name = group.names[0]
    a = group.member("a")
    seen = [a.fetch(max_records=1)]
    wanted = delete_records.DeleteRecordsTopic(
        name=name,
        partitions=[delete_records.DeleteRecordsPartition(partition_index=0, offset=14)],
    )
    answer = broker.request(messages.DeleteRecordsRequest(topics=[wanted], timeout_ms=30_000))
    seen += [named(answer.topics[0].partitions[0].error_code)]
    seen += [a.fetch(), a.fetch(), a.fetch(max_wait_ms=0), a.settle(0, 5, ACCEPT)]
    seen += [a.settle(14, 29, ACCEPT), group.list_offsets()]
    return seen


@scenario
def deleted_topics(broker):
    group = shared(broker, 2)
    name = group.names[0]
    a = group.member("a")
    seen = [a.fetch(max_records=1)]
    topic = delete_topics.DeleteTopicState(name=name)
    broker.request(messages.DeleteTopicsRequest(topics=[topic], timeout_ms=30_000))
    group.until(lambda: broker.connection.list_offset(name, -1).error_code)
    seen += [a.settle(0, 0, ACCEPT), a.fetch(acks={0: [batch(1, 1, ACCEPT)]}, max_records=1)]
    seen += [a.fetch(at=())]
    return seen


@scenario
def aborted_records(broker):
    seen = []
    for level in ("read_uncommitted", "read_committed"):
        group = ShareGroup(broker, 1, **{"share.isolation.level": level})
        name = group.names[0]
        group.enter("joined")
        a = group.member("a")
        producer = Txn(broker, 2)
        producer.init()
        producer.produce(name, b"a", b"b")
        broker.produced(name, b"plain")
        seen += [a.fetch().partitions]
        producer.abort()
        producer.init()  # It waits for the end of the transaction.
        producer.produce(name, b"c", b"d", b"e")
        seen += [a.fetch().partitions]
        producer.commit()
        producer.init()
        seen += [a.fetch().partitions, a.settle(0, 2, ACCEPT), a.settle(2, 2, ACCEPT)]
        seen += [a.settle(3, 7, ACCEPT), group.list_offsets()]
    return seen


@scenario
def dead_letters(broker):
    seen = []
    for copies in ("false", "true"):
        target, _ = broker.topic(2, prefix="dlq.", errors_deadletterqueue_group_enable="true")
        configs = {
            "share.delivery.count.limit": 2,
            "errors.deadletterqueue.topic.name": target,
            "errors.deadletterqueue.copy.record.enable": copies,
        }
        group = shared(broker, 2, 5, partitions=3, **configs)
        a = group.member("a")
        options = {"at": (2,), "max_records": 1}
        seen += [a.fetch(**options)]
        seen += [a.acknowledge({2: [batch(0, 4, REJECT, REJECT, GAP, RELEASE, ACCEPT)]})]
        seen += [a.fetch(**options), a.acknowledge({2: [batch(3, 3, RELEASE)]})]
        letters = wait_for_letters(group, target, 3)
        seen += [(key, value, headers[1:3], headers[4:]) for key, value, headers in letters]
        names = [headers[0][1].decode() == group.names[0] for *_, headers in letters]
        seen += [names, [headers[3][1].decode() == group.id for *_, headers in letters]]
    return seen


def wait_for_letters(group, topic, count):
    """Return the key, the value, and the headers of the records in the first partition."""
    letters = []

    def is_complete():
        answer = group.broker.connection.fetch(topic)
        letters[:] = [
            (record.key, record.value, list(record.headers))
            for one in walk(answer.records or b"")
            for record in one.records("", 0)
        ]
        return len(letters) == count

    group.until(is_complete)
    return letters


@scenario
def records_of_internal_topics(broker):
    group = shared(broker)
    name = group.names[0]
    a = group.member("a")
    a.fetch()
    for settled in ((0, 1, ACCEPT), (2, 3, RELEASE), (4, 4, REJECT)):
        assert a.settle(*settled) == ("ok", None)
    a.fetch(max_records=2)
    a.settle(2, 3, ACCEPT, ACCEPT)
    group.beat("joined", -1)
    group.alter_offsets({name: {0: 5}})
    group.delete_offsets(name)
    group.alter_offsets({name: {0: 5}})
    group.delete()
    found = []

    def are_written():
        found[:] = [
            hide_details(group, each)
            for topic in ("__share_group_state", "__consumer_offsets")
            for each in read_internal_topic(broker, topic)
            if each[0].get("group") == group.id
        ]
        return sum(value is None for _, value in found) == 8

    group.until(are_written)
    return found


def read_internal_topic(broker, topic):
    """Return the decoded keys and values of all records of an internal topic."""
    wanted = metadata.MetadataRequestTopic(name=topic)
    (described,) = broker.request(messages.MetadataRequest(topics=[wanted])).topics
    decoded = []
    for partition in range(len(described.partitions)):
        start = broker.connection.list_offset(topic, -2, partition=partition).offset
        answer = broker.connection.fetch(topic, offset=start, partitions=(partition,))
        for one in walk(answer.records or b""):
            if not one.is_control:
                decoded += [decode_record(each) for each in one.records(topic, partition)]
    return [each for each in decoded if isinstance(each[0], dict)]


def hide_details(group, value):
    """Return a decoded record without what differs from run to run."""
    if isinstance(value, dict):
        hidden = ("topic_id", "create_timestamp", "write_timestamp", "metadata_hash")
        return {
            key: "?" if key in hidden else hide_details(group, each) for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [hide_details(group, each) for each in value]
    return {group.id: "GROUP", group.names[0]: "TOPIC"}.get(value, value)


def test_scenarios_have_names():
    assert len(SCENARIOS) > 1


@pytest.mark.kafka
@pytest.mark.parametrize("name", SCENARIOS)
def test_share_groups_are_as_in_kafka(name, parity):
    parity(SCENARIOS[name])
