"""Tests of other clients under KIP-848 in groups on the embedded cluster.

They are alone, with our members, or with classic members of their own kind.
"""

import threading

import pytest
from kafka_harness import JavaTool
from kip848_peers import PATIENCE_S, Ours, Reader, closing, drive, have
from kip848_peers import even as even_of

from aiokclient.protocol import ApiKey
from aiokclient.testing import EmbeddedCluster

PARTITIONS = 6


@pytest.fixture
def cluster():
    configs = {"group.consumer.heartbeat.interval.ms": 50}
    with EmbeddedCluster(3, {"orders": PARTITIONS}, configs=configs) as cluster:
        yield cluster


def even(readers, count=PARTITIONS):
    return even_of(readers, count)


def join(cluster, kind=Reader, topic="orders", **options):
    return kind(cluster.bootstrap_servers, topic, **options)


def produce(cluster, first, count=60):
    values = [b"%d" % number for number in range(first, first + count)]
    for number, value in enumerate(values):
        cluster.produce("orders", [value], number % PARTITIONS)
    return values


@pytest.mark.parametrize("kinds", [[Reader] * 3, [Reader, Ours, Reader], [Ours, Reader, Ours]])
def test_librdkafka_members_of_the_consumer_protocol_come_and_go(cluster, kinds):
    values = produce(cluster, 0)
    with closing([]) as readers:
        for kind in kinds:
            readers.append(join(cluster, kind))
            drive(readers, lambda: even(readers))
        values += produce(cluster, 60)
        drive(readers, lambda: have(readers, values))
        assert {each.state for each in cluster.groups.values()} == {"Stable"}
        gone = readers.pop(0)
        gone.close()
        drive(readers, lambda: even(readers))
        values += produce(cluster, 120)
        drive(readers, lambda: have([gone, *readers], values))
    assert sum(each.offset for each in cluster.committed("g").values()) == len(values)
    assert cluster.groups["g"].state == "Empty"


def test_librdkafka_members_use_patterns_and_server_assignors(cluster):
    with closing([join(cluster, topic="^o.*", group_remote_assignor="range")]) as readers:
        readers.append(join(cluster, topic="^o.*", group_remote_assignor="range"))
        drive(readers, lambda: even(readers))
        cluster.create_topic("others", PARTITIONS)
        drive(readers, lambda: even(readers, 2 * PARTITIONS))
        numbers = [{index for _, index in each.has} for each in readers]
        assert [len(each) for each in numbers] == [3, 3]
        assert cluster.groups["g"].protocol == "range"


def test_librdkafka_static_members_return_to_their_assignments(cluster):
    with closing([join(cluster, group_instance_id=each) for each in "ab"]) as readers:
        drive(readers, lambda: even(readers))
        generation, before = cluster.groups["g"].generation, readers[1].has.copy()
        readers[1].close()
        readers[1] = join(cluster, group_instance_id="b")
        drive(readers, lambda: readers[1].has == before)
        assert cluster.groups["g"].generation == generation
        third = join(cluster, Ours, group_instance_id="b")
        drive(readers, lambda: third.failure is not None)
        assert third.failure.name == "UNRELEASED_INSTANCE_ID"
        third.close()


def test_librdkafka_members_of_a_kip848_group_follow_their_coordinator(cluster):
    with closing([join(cluster), join(cluster, Ours)]) as readers:
        drive(readers, lambda: even(readers))
        # librdkafka does not repeat a request for offsets that the old coordinator refused.
        values = produce(cluster, 0)
        drive(readers, lambda: all(each.values for each in readers) and have(readers, values))
        cluster.move_coordinator("g")
        values = produce(cluster, 60)
        drive(readers, lambda: have(readers, values))
        cluster.stop(cluster.coordinator("g"))
        readers.append(join(cluster, Ours))
        drive(readers, lambda: even(readers))


def test_a_librdkafka_group_is_upgraded_and_downgraded(cluster):
    values = []
    with closing([join(cluster, protocol="classic") for _ in range(2)]) as readers:
        drive(readers, lambda: even(readers))
        assert cluster.groups["g"].kind.value == "classic"
        for number, protocol in enumerate(["consumer", "consumer", "classic", "classic"]):
            readers.append(join(cluster, protocol=protocol))
            drive(readers, lambda: even(readers))
            readers.pop(0).close()
            drive(readers, lambda: even(readers))
            new = produce(cluster, 60 * number)
            drive(readers, lambda new=new: have(readers, new))
            values += new
        assert cluster.groups["g"].kind.value == "classic"


@pytest.mark.java
@pytest.mark.usefixtures("kafka_tools_jars")
def test_java_and_this_library_share_a_consumer_group(cluster):
    """Java's console consumer reads its share of the partitions and leaves."""
    values = produce(cluster, 0, 600)
    with closing([join(cluster, Ours)]) as readers:
        drive(readers, lambda: have(readers, values))
        java = JavaTool(
            "console-consumer",
            *("--bootstrap-server", cluster.bootstrap_servers, "--topic", "orders"),
            *("--group", "g", "--command-property", "group.protocol=consumer"),
            *("--max-messages", "30", "--timeout-ms", "30000"),
        )
        lines = []
        thread = threading.Thread(target=lambda: lines.extend(java.run(timeout=60).splitlines()))
        thread.start()
        drive(readers, lambda: len(readers[0].has) == 3)
        more = produce(cluster, 600, 120)
        thread.join(PATIENCE_S)
        assert len(set(lines)) == 30
        assert set(lines) <= set(more)
        drive(readers, lambda: len(readers[0].has) == PARTITIONS)
        drive(readers, lambda: set(readers[0].values) | set(lines) >= {*values, *more})
    heartbeats = [each for each in cluster.requests if each.api == ApiKey.CONSUMER_GROUP_HEARTBEAT]
    assert len({each.client_id for each in heartbeats}) == 2
