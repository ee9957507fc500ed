"""Tests that the embedded cluster and a real Kafka answer raw requests of transactions alike.

Each scenario runs at the levels 2, 1, and 0 of transaction.version and returns what it saw. The
results contain nothing that differs between two runs on one cluster, such as producer ids.
"""

import time
import uuid

import pytest
from parity import Scenarios, named
from txn_raw import PATIENCE_S, Txn, fresh, set_level

from aiokclient.protocol import messages
from aiokclient.protocol.messages.join_group import JoinGroupRequestProtocol
from aiokclient.testing import EmbeddedCluster

SCENARIOS = Scenarios()
scenario = SCENARIOS.add


@pytest.fixture
def compare(kafka_of_levels, wire_to, scenario_broker):
    """Return a function that runs a scenario on both clusters at a level."""
    host, port = kafka_of_levels.bootstrap.split(",")[0].split(":")

    def run(scenario, level):
        configs = {"group.min.session.timeout.ms": 1000}
        with EmbeddedCluster(transaction_version=level, configs=configs) as cluster:
            ours = scenario(scenario_broker(wire_to(cluster), cluster.address(1)), level)
        broker = scenario_broker(wire_to(cluster), (host, int(port)))
        set_level(broker.request, level)
        theirs = scenario(broker, level)
        pairs = enumerate(zip(ours, theirs, strict=True))
        different = [f"{at}: {mine} but {kafkas}" for at, (mine, kafkas) in pairs if mine != kafkas]
        assert not different, "\n".join(different)

    return run


def prepared(txn, topic, index=0):
    """Add a partition to the transaction if the client must do so at this level."""
    return txn.add((topic, index)) if txn.level < 2 else []


@scenario
def a_commit_and_an_abort(broker, level):
    topic, _ = broker.topic(2)
    txn = Txn(broker, level)
    seen = [txn.init(), txn.describe()]
    for commit in (True, False, False, True):
        seen += [prepared(txn, topic), txn.produce(topic, b"a", b"b"), txn.describe()]
        seen += [txn.producers(topic, 0, 1), txn.log(topic)]
        seen += [prepared(txn, topic, 1), txn.produce(topic, b"c", index=1), txn.describe()]
        seen += [txn.end(commit), txn.describe()]
        seen += [txn.log(topic), txn.log(topic, 1), txn.producers(topic, 0, 1)]
    return seen


@scenario
def init_producer_id(broker, level):
    seen = []
    for version in range(6):
        txn = Txn(broker, level)
        seen += [txn.init(version=version), txn.init(version=version), txn.describe()]
        for timeout in (0, -1, 900_000, 900_001, 1 << 30):
            seen.append(txn.init(timeout, version=version))
        seen.append(txn.init(version=version, id=""))
        if version < 3:
            continue
        pid = txn.pid
        known = [
            (pid, txn.epoch),
            (pid, txn.epoch),
            (pid, txn.epoch - 1),
            (pid, txn.epoch + 5),
            (pid + 500_000, txn.epoch),
            (pid, -1),
            (-1, 0),
            (pid, txn.epoch + 1),
            (pid, txn.epoch + 1),
        ]
        seen += [txn.init(known=each, version=version) for each in known]
        fresh_one = Txn(broker, level)
        seen += [fresh_one.init(known=(77, 5), version=version), fresh_one.describe()]
    return seen


@scenario
def init_while_a_transaction_is_open(broker, level):
    topic, _ = broker.topic()
    seen = []
    for known in (False, True):
        txn = Txn(broker, level)
        txn.init()
        prepared(txn, topic)
        seen += [txn.produce(topic), txn.describe()]
        old = txn.copy()
        new = txn.twin()
        given = (txn.pid, txn.epoch) if known else None
        seen.append(new.init(known=given, wait=False))
        seen.append(new.describe())
        seen.append(new.init(known=given))
        seen += [new.describe(), new.log(topic), new.producers(topic)]
        seen += [old.produce(topic), old.produce(topic, version=11), old.produce(topic, version=9)]
        seen += [old.commit(), old.abort(), old.add((topic, 0)), old.add_group("g")]
        seen += [old.init(known=(old.pid, old.epoch), version=each) for each in (3, 4, 5)]
        seen += [old.offsets("g", topic, 1)]
        seen += [old.end(version=each) for each in range(6)]
        seen += [old.add((topic, 0), version=each) for each in range(4)]
        seen += [old.add_group("g", version=each) for each in range(5)]
        seen += [old.offsets("g", topic, 1, version=each) for each in range(6)]
        seen.append(new.describe())
    return seen


@scenario
def ends_in_each_state(broker, level):
    """Send EndTxn in each lasting state, with the epochs before, at, and after the current one."""
    topic, _ = broker.topic()

    def empty(txn):
        txn.init()

    def ongoing(txn):
        txn.init()
        prepared(txn, topic)
        assert txn.produce(topic)[0] == "ok"

    def committed(txn):
        ongoing(txn)
        assert txn.commit()[0] == "ok"
        txn.settle()

    def aborted(txn):
        ongoing(txn)
        assert txn.abort()[0] == "ok"
        txn.settle()

    seen = []
    for prepare in (empty, ongoing, committed, aborted):
        for version in (1, 2, 4, 5):
            for commit in (True, False):
                for change in (-1, 0, 1):
                    txn = Txn(broker, level)
                    prepare(txn)
                    answer = txn.end(commit, version=version, epoch=txn.epoch + change)
                    seen.append((prepare.__name__, version, commit, change, answer, txn.describe()))
                    if level == 0 and version == 5:
                        # At level 0, also compare the answers to a repeated request.
                        again = txn.end(commit, version=version, wait=False)
                        seen.append((again, txn.init(wait=False), txn.init(wait=False)))
    return seen


@scenario
def unknown_transactional_ids_and_producers(broker, level):
    topic, _ = broker.topic()
    txn = Txn(broker, level)
    seen = []
    # At level 0, requests of level 2 block a transactional id.
    newest = level > 0
    for known in (False, True):
        if known:
            txn.init()
        for fields in ({"id": ""}, {"id": txn.id, "pid": 987_654_321, "epoch": 0}, {}):
            if not known and not fields:
                fields = {"pid": 5, "epoch": 0}
            all_of_them = newest or bool(fields)
            for version in (2, 4, 5):
                seen.append(txn.end(version=version, keep=False, **fields))
            if all_of_them:
                seen.append(txn.abort(version=5, keep=False, **fields))
            for version in (0, 3, 4, 5) if all_of_them else (0, 3):
                seen.append(txn.add((topic, 0), version=version, **fields))
            seen.append(txn.add((topic, 0), version=4, verify_only=True, **fields))
            seen.append(txn.add_group("g", **fields))
            for version in (9, 11, 12) if all_of_them else (9, 11):
                seen.append(txn.produce(topic, version=version, **fields))
            for version in (2, 4, 5) if all_of_them else (2, 4):
                seen.append(txn.offsets("g", topic, 1, version=version, **fields))
            seen.append(txn.describe())
    return seen


@scenario
def partitions_that_were_not_added(broker, level):
    topic, _ = broker.topic(3)
    txn = Txn(broker, level)
    txn.init()
    seen = []
    for version in (3, 9, 10, 11):
        seen.append(txn.produce(topic, version=version, wait=False))
        seen.append(txn.describe())
    seen += [txn.offsets("g", topic, 1, version=each) for each in range(5)]
    seen += [txn.add((topic, 0), version=4, verify_only=True), txn.describe()]
    seen += [txn.add((topic, 1)), txn.add((topic, 1), (topic, 2), version=4, verify_only=True)]
    seen += [txn.produce(topic, version=10), txn.produce(topic, version=11)]
    seen += [txn.produce(topic, index=1, version=10), txn.produce(topic, index=1, version=11)]
    seen += [txn.produce(topic, index=1, transactional=False, id=None, sequence=2)]
    seen += [txn.describe(), txn.producers(topic, 0, 1, 2)]
    seen += [txn.add((topic, 9), (topic, 0)), txn.add(("nothing-of-this-name", 0), (topic, 0))]
    seen += [txn.add((topic, 2), ("", 0)), txn.describe()]
    if level:
        seen += [txn.produce(topic, index=2, version=12), txn.describe()]
        seen += [txn.offsets("g", topic, 1, version=5), txn.describe()]
    else:
        # Compare the responses to a client of level 2 that does not know of the downgrade yet.
        other = Txn(broker, level)
        other.init()
        seen += [other.produce(topic, version=12), other.describe()]
        seen += [other.produce(topic, version=12, wait=False), other.describe(settled=False)]
        seen += [other.add((topic, 0), wait=False), other.init(wait=False)]
        third = Txn(broker, level)
        third.init()
        seen += [third.offsets(fresh("g"), topic, 1, version=5), third.describe()]
        seen += [third.offsets(fresh("g"), topic, 1, version=5, wait=False)]
        seen += [third.add((topic, 0), version=4, wait=False)]
    return seen


@scenario
def sequences(broker, level):
    topic, _ = broker.topic()
    txn = Txn(broker, level)
    txn.init()
    prepared(txn, topic)
    seen = [txn.produce(topic, sequence=3), txn.produce(topic), txn.produce(topic, sequence=5)]
    seen += [txn.produce(topic, sequence=0), txn.produce(topic, b"w", sequence=1)]
    seen += [txn.produce(topic, sequence=1, epoch=txn.epoch + 1)]
    seen += [txn.produce(topic, sequence=0, epoch=txn.epoch + 1, version=11)]
    seen += [txn.commit(), txn.describe()]
    next_sequence = 0 if level == 2 else 2
    prepared(txn, topic)
    seen += [txn.produce(topic, sequence=next_sequence + 1)]
    seen += [txn.produce(topic, sequence=next_sequence), txn.producers(topic), txn.abort()]
    seen += [txn.describe(), txn.log(topic)]
    other = Txn(broker, level)
    other.init()
    prepared(other, topic)
    seen += [other.produce(topic, sequence=4), other.produce(topic, sequence=0)]
    seen += [other.produce(topic, transactional=False, sequence=1), other.abort()]
    return seen


@scenario
def timeouts(broker, level):
    topic, _ = broker.topic()
    seen = []
    for versions in ((4, 5), (5, 4)):
        txn = Txn(broker, level)
        txn.init(300)
        prepared(txn, topic)
        txn.produce(topic)
        deadline = time.monotonic() + PATIENCE_S
        while txn.describe()[1] == "Ongoing":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        seen += [txn.describe(), txn.log(topic), txn.producers(topic)]
        seen += [txn.produce(topic), txn.produce(topic, version=11), txn.offsets("g", topic, 1)]
        seen += [txn.add((topic, 0)), txn.add_group("g")]
        for version in versions:
            other = txn.copy()
            seen += [other.end(commit, version=version, keep=False) for commit in (True, False)]
        seen += [txn.init(known=(txn.pid, txn.epoch)), txn.describe()]
    return seen


@scenario
def offsets_of_a_group(broker, level):
    topic, topic_id = broker.topic(2)
    group = fresh("group")
    txn, other = Txn(broker, level), Txn(broker, level)
    txn.init()
    other.init()
    seen = []

    def join(who):
        return who.add_group(group) if level < 2 else None

    seen += [txn.committed(group, topic, 2)]
    for commit in (False, True):
        seen += [join(txn), txn.offsets(group, topic, 5, 6), txn.describe()]
        seen += [txn.committed(group, topic, 2, settled=False)]
        seen += [txn.committed(group, topic, 2, stable=False)]
        seen += [join(other), other.offsets(group, topic, 7)]
        seen += [txn.end(commit), txn.settle(), txn.committed(group, topic, 2, settled=False)]
        seen += [other.commit(), other.settle(), txn.committed(group, topic, 2, settled=False)]
    seen += [join(txn), txn.offsets(group, topic, 8, 9, metadata="x" * 5000)]
    seen += [txn.offsets(group, topic, 8, 9, 10), txn.offsets(group, "no-such-topic", 8)]
    seen += [txn.offsets(group, topic, 8, metadata=None), txn.commit(), txn.settle()]
    seen += [txn.committed(group, topic, 2)]
    version = 6 if level == 2 else 4
    for member in (("nobody", 3, None), ("nobody", -1, None), ("", 3, None), ("", -1, "x")):
        for name in (group, fresh("group")):
            if level < 2:
                txn.add_group(name)
            seen.append(txn.offsets(name, topic, 1, member=member))
            known = topic_id if level == 2 else topic
            seen.append(txn.offsets(name, known, 1, member=member, version=version))
    seen += [txn.offsets("", topic, 1)]
    if level == 2:
        seen += [txn.offsets(group, topic_id, 11, 12, version=6), txn.commit(), txn.settle()]
        seen += [txn.offsets(group, uuid.uuid4(), 1, version=6)]
        seen += [txn.offsets(group, topic_id, 1, 2, 3, version=6)]
    seen += [txn.abort(), txn.settle(), txn.committed(group, topic, 2)]
    return seen


@scenario
def markers_of_an_administrator(broker, level):
    topic, _ = broker.topic()
    seen = []
    txn = Txn(broker, level)
    txn.init()
    prepared(txn, topic)
    txn.produce(topic)
    seen += [txn.mark(topic, epoch=txn.epoch, level=2), txn.log(topic)]
    seen += [txn.mark(topic, 0, 5), txn.log(topic), txn.producers(topic)]
    seen += [txn.mark(topic, coordinator_epoch=-1, version=1), txn.producers(topic)]
    seen += [txn.mark(topic, epoch=txn.epoch + 1, level=2, coordinator_epoch=9, commit=True)]
    seen += [txn.mark(topic, epoch=txn.epoch + 2, coordinator_epoch=8)]
    seen += [txn.mark(topic, epoch=0, coordinator_epoch=10), txn.producers(topic)]
    seen += [txn.mark("nothing-of-this-name"), txn.mark(topic, pid=10_000_000, epoch=3)]
    seen += [txn.produce(topic, version=11), txn.describe()]
    return seen


@scenario
def lists(broker, level):
    prefix, topic = fresh("l"), broker.topic()[0]
    txns = [Txn(broker, level, f"{prefix}-{name}") for name in ("empty", "open", "done", "undone")]
    for txn in txns:
        txn.init()
    for txn in txns[1:]:
        prepared(txn, topic)
        txn.produce(topic)
    txns[2].commit()
    txns[3].abort()
    for txn in txns[2:]:
        txn.settle()
    known = {txn.pid: txn.id.removeprefix(prefix) for txn in txns}

    def listed(version, **filters):
        answer = broker.request(messages.ListTransactionsRequest(**filters), version)
        found = [
            each for each in answer.transaction_states if each.transactional_id.startswith(prefix)
        ]
        return (
            named(answer.error_code),
            sorted(answer.unknown_state_filters),
            sorted(
                (
                    each.transactional_id.removeprefix(prefix),
                    known[each.producer_id],
                    each.transaction_state,
                )
                for each in found
            ),
        )

    states = ["Ongoing", "CompleteAbort", "ongoing", "Nothing", "PrepareEpochFence", "Dead"]
    seen = [listed(each) for each in range(3)]
    seen += [listed(0, state_filters=states), listed(0, state_filters=["Nothing"])]
    seen += [listed(0, producer_id_filters=[txns[0].pid, txns[1].pid, 5])]
    seen += [listed(1, duration_filter=each) for each in (-1, 0, 1 << 40)]
    patterns = (prefix, prefix + ".*", ".*done", "done", "[", "")
    seen += [listed(2, transactional_id_pattern=each) for each in patterns]
    seen += [txns[0].producers("nothing-of-this-name"), txns[0].producers(topic, 7)]
    seen += [txns[0].producers("no/name"), Txn(broker, level, "").describe()]
    return seen


def joined_classic(broker, group):
    """Join a group of the classic protocol alone, and return the member id and generation."""
    connection = broker.again()
    request = messages.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"m")],
    )
    answer = connection.request(request, 3)
    assert named(answer.error_code) == "ok"
    return connection, answer.member_id, answer.generation_id


@scenario
def offsets_of_a_classic_member(broker, level):
    topic, topic_id = broker.topic()
    group = fresh("group")
    connection, member_id, generation = joined_classic(broker, group)
    txn = Txn(broker, level)
    txn.init()
    members = [
        (member_id, generation, None),
        (member_id, generation + 1, None),
        (member_id, generation - 1, None),
        (member_id, -1, None),
        ("nobody", generation, None),
        (member_id, generation, "instance"),
        ("", -1, None),
        ("", generation, None),
    ]
    seen = []
    for state in ("CompletingRebalance", "Stable"):
        for member in members:
            txn.add_group(group, version=4) if level < 2 else None
            seen += [(state, txn.offsets(group, topic, 5, member=member))]
            if level == 2:
                seen += [txn.offsets(group, topic_id, 5, member=member, version=6)]
            seen += [txn.commit(), txn.settle()]
        sync = messages.SyncGroupRequest(
            group_id=group, generation_id=generation, member_id=member_id
        )
        seen.append(named(connection.request(sync, 3).error_code))
    return [*seen, txn.committed(group, topic)]


@scenario
def offsets_of_a_kip_848_member(broker, level):
    topic, topic_id = broker.topic()
    group = fresh("group")
    member_id = str(uuid.uuid4())
    beat = messages.ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )
    answer = broker.request(beat)
    assert named(answer.error_code) == "ok"
    txn = Txn(broker, level)
    txn.init()
    seen = [answer.member_epoch]
    for epoch in (answer.member_epoch, answer.member_epoch + 1, -1, 0):
        for name in (member_id, "nobody", ""):
            if level < 2:
                txn.add_group(group)
            seen += [(epoch, txn.offsets(group, topic, 5, member=(name, epoch, None)))]
            if level == 2:
                member = (name, epoch, None)
                seen += [txn.offsets(group, topic_id, 5, member=member, version=6)]
            seen += [txn.commit(), txn.settle()]
    return [*seen, txn.committed(group, topic)]


@pytest.mark.parametrize("level", [2, 1, 0])
@pytest.mark.parametrize("name", SCENARIOS)
def test_transactions_are_answered_as_kafka_does(name, level, compare):
    compare(SCENARIOS[name], level)


def changes_of_the_level(broker, change):
    """Use transactional ids while the level of transaction.version changes."""
    topic, _ = broker.topic()
    group = fresh("group")
    idle, ongoing, late = (Txn(broker, 2) for _ in range(3))
    seen = []
    for txn in (idle, ongoing, late):
        seen += [txn.init(), txn.produce(topic)]
    seen += [idle.commit(), idle.settle(), late.commit(), late.settle()]
    change(0)
    # For an open transaction, requests of level 2 fail, and those of level 0 work.
    seen += [ongoing.offsets(group, topic, 3, version=5, wait=False)]
    seen += [ongoing.produce(topic, wait=False), ongoing.describe()]
    other = ongoing.copy()
    seen += [other.end(version=4, wait=False), other.describe(settled=False)]
    # For idle producers, only requests of level 0 with the current producer id and epoch work.
    seen += [idle.add((topic, 0)), idle.produce(topic, version=11), idle.describe()]
    seen += [idle.commit(version=4), idle.describe(), idle.log(topic)]
    seen += [idle.init(wait=False), idle.describe()]
    seen += [late.init(wait=False), late.init(wait=False), late.add((topic, 0), wait=False)]
    seen += [late.produce(topic, version=12, wait=False), late.end(wait=False)]
    seen += [late.describe(settled=False)]
    fresh_one = Txn(broker, 0)
    seen += [fresh_one.init(), fresh_one.add((topic, 0)), fresh_one.produce(topic)]
    change(2)
    # A transaction that began at level 0 continues at level 2.
    seen += [fresh_one.produce(topic, version=12), fresh_one.end(version=5), fresh_one.describe()]
    seen += [fresh_one.produce(topic, version=12), fresh_one.abort(version=5)]
    # Kafka may list aborted transactions after the last stable offset, so they are not compared.
    seen += [fresh_one.describe(), fresh_one.log(topic)[:3]]
    seen += [idle.produce(topic, version=12), idle.end(version=5), idle.describe()]
    return seen


def test_changes_of_the_level_have_the_effects_that_they_have_in_kafka(
    kafka_of_levels, wire_to, scenario_broker
):
    host, port = kafka_of_levels.bootstrap.split(",")[0].split(":")
    with EmbeddedCluster() as cluster:
        broker = scenario_broker(wire_to(cluster), cluster.address(1))
        ours = changes_of_the_level(broker, cluster.set_transaction_version)
    broker = scenario_broker(wire_to(cluster), (host, int(port)))
    set_level(broker.request, 2)
    theirs = changes_of_the_level(broker, lambda level: set_level(broker.request, level))
    pairs = enumerate(zip(ours, theirs, strict=True))
    different = [f"{at}: {mine} but {kafkas}" for at, (mine, kafkas) in pairs if mine != kafkas]
    assert not different, "\n".join(different)
