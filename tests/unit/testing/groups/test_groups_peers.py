"""Tests of other clients as members of groups on the embedded cluster, alone and mixed."""

import itertools
import logging
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from kafka_harness import JavaTool

from aiokclient.testing import EmbeddedCluster

confluent = pytest.importorskip("confluent_kafka")
aiokafka = pytest.importorskip("aiokafka")

PARTITIONS = 6
PATIENCE_S = 60.0
JAVA_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
_numbers = itertools.count()


@pytest.fixture
def cluster():
    with EmbeddedCluster(3, {"orders": PARTITIONS}) as cluster:
        yield cluster


def produce(cluster, count):
    """Produce values that are new in the test run, over all partitions, and return them."""
    values = [b"%d" % next(_numbers) for _ in range(count)]
    for number, value in enumerate(values):
        cluster.produce("orders", [value], number % PARTITIONS)
    return values


class Reader:
    """A consumer of librdkafka with its assignment and the values that it has read."""

    def __init__(self, cluster, strategy, **options):
        self.has, self.values, self.errors = set(), [], []
        self.cooperative = strategy == "cooperative-sticky"
        settings = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": strategy,
            "heartbeat.interval.ms": 50,
            "session.timeout.ms": 30_000,
            "reconnect.backoff.ms": 10,
            "retry.backoff.ms": 20,
            "log_level": 0,
        }
        self.consumer = confluent.Consumer(
            settings | {key.replace("_", "."): value for key, value in options.items()}
        )
        self.consumer.subscribe(
            ["orders"], on_assign=self.assigned, on_revoke=self.revoked, on_lost=self.revoked
        )

    def assigned(self, consumer, partitions):
        self.has |= {each.partition for each in partitions}

    def revoked(self, consumer, partitions):
        self.has -= {each.partition for each in partitions}

    def poll(self):
        message = self.consumer.poll(0.01)
        if message is not None and message.error() is None:
            self.values.append(message.value())
        elif message is not None and not message.error().retriable():
            self.errors.append(message.error())

    def close(self):
        self.consumer.close()


def drive(readers, check):
    """Poll all readers until the condition holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not check():
        assert time.monotonic() < deadline, [(each.has, len(each.values)) for each in readers]
        for each in readers:
            each.poll()


def share(cluster, readers):
    """Return whether the readers own all partitions, each one once, in a stable group."""
    group = cluster.groups.get("g")
    if group is None or group.state != "Stable" or len(group.members) != len(readers):
        return False
    parts = [partition for each in readers for partition in each.has]
    return sorted(parts) == list(range(PARTITIONS)) and all(each.has for each in readers)


def have(readers, values):
    return sorted(value for each in readers for value in each.values) == sorted(values)


def close(readers):
    for each in readers:
        each.close()


class TestConfluent:
    @pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
    def test_librdkafka_members_come_and_go(self, cluster, strategy):
        values = produce(cluster, 60)
        readers = [Reader(cluster, strategy)]
        drive(readers, lambda: have(readers, values))
        for _ in range(2):
            readers.append(Reader(cluster, strategy))
            drive(readers, lambda: share(cluster, readers))
        assert cluster.groups["g"].protocol == strategy
        values += produce(cluster, 60)
        drive(readers, lambda: have(readers, values))
        gone = readers.pop(0)
        gone.close()
        drive(readers, lambda: share(cluster, readers))
        values += produce(cluster, 60)
        drive(readers, lambda: have([gone, *readers], values))
        close(readers)
        committed = cluster.committed("g")
        assert sum(each.offset for each in committed.values()) == len(values)
        assert cluster.groups["g"].state == "Empty"
        # A later member continues at the committed offsets.
        values = produce(cluster, 12)
        readers = [Reader(cluster, strategy)]
        drive(readers, lambda: have(readers, values))
        close(readers)

    def test_librdkafka_static_members_are_fenced(self, cluster):
        readers = [Reader(cluster, "range", group_instance_id=each) for each in ("a", "b")]
        drive(readers, lambda: share(cluster, readers))
        generation = cluster.groups["g"].generation
        before = readers[1].has.copy()
        readers[1].close()
        readers[1] = Reader(cluster, "range", group_instance_id="b")
        drive(readers, lambda: share(cluster, readers))
        assert (readers[1].has, cluster.groups["g"].generation) == (before, generation)
        # A second member with the same instance id fences the first one.
        third = Reader(cluster, "range", group_instance_id="b")
        drive([*readers, third], lambda: readers[1].errors and third.has)
        assert readers[1].errors[0].code() == confluent.KafkaError._FATAL
        assert third.has == before
        close([*readers, third])

    def test_librdkafka_members_change_their_strategy_one_by_one(self, cluster):
        readers = [Reader(cluster, "range") for _ in range(2)]
        drive(readers, lambda: share(cluster, readers))
        for number in range(2):
            readers.pop(0).close()
            readers.append(Reader(cluster, "range,roundrobin"))
            drive(readers, lambda: share(cluster, readers))
            assert cluster.groups["g"].protocol == "range", number
        for number in range(2):
            readers.pop(0).close()
            readers.append(Reader(cluster, "roundrobin"))
            drive(readers, lambda: share(cluster, readers))
            assert cluster.groups["g"].protocol == "roundrobin", number
        close(readers)

    @pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
    def test_librdkafka_members_of_a_classic_group_follow_their_coordinator(
        self, cluster, strategy
    ):
        readers = [Reader(cluster, strategy, auto_commit_interval_ms=50) for _ in range(2)]
        drive(readers, lambda: share(cluster, readers))
        generation, values = cluster.groups["g"].generation, produce(cluster, 60)
        cluster.move_coordinator("g")
        drive(readers, lambda: have(readers, values))
        home = cluster.coordinator("g")
        cluster.stop(home)
        values += produce(cluster, 60)
        drive(readers, lambda: have(readers, values))
        cluster.start(home)
        values += produce(cluster, 60)
        drive(readers, lambda: have(readers, values) and share(cluster, readers))
        # Each new coordinator found the group as the previous one had left it.
        assert cluster.groups["g"].generation == generation
        close(readers)

    def test_librdkafka_admin_calls_on_groups_work(self, cluster):
        from confluent_kafka import admin

        values = produce(cluster, 12)
        reader = Reader(cluster, "range")
        drive([reader], lambda: have([reader], values))
        client = admin.AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        (listed,) = client.list_consumer_groups().result(PATIENCE_S).valid
        assert (listed.group_id, listed.state.name) == ("g", "STABLE")
        described = client.describe_consumer_groups(["g"])["g"].result(PATIENCE_S)
        (member,) = described.members
        assert len(member.assignment.topic_partitions) == PARTITIONS
        reader.close()
        partition = confluent.TopicPartition("orders", 0, 1)
        wanted = confluent.ConsumerGroupTopicPartitions("g", [partition])
        (future,) = client.alter_consumer_group_offsets([wanted]).values()
        future.result(PATIENCE_S)
        asked = confluent.ConsumerGroupTopicPartitions("g")
        (future,) = client.list_consumer_group_offsets([asked]).values()
        found = {each.partition: each.offset for each in future.result(PATIENCE_S).topic_partitions}
        assert found == {0: 1} | dict.fromkeys(range(1, PARTITIONS), 2)
        client.delete_consumer_groups(["g"])["g"].result(PATIENCE_S)
        assert cluster.groups == {}


class TestAiokafka:
    @pytest.fixture(autouse=True)
    def quiet(self):
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
        yield
        logging.getLogger("aiokafka").setLevel(logging.NOTSET)

    async def test_two_aiokafka_members_share_a_group(self, cluster):
        options = {
            "bootstrap_servers": cluster.bootstrap_servers,
            "group_id": "g",
            "auto_offset_reset": "earliest",
            "heartbeat_interval_ms": 50,
            "retry_backoff_ms": 20,
        }
        consumers = [aiokafka.AIOKafkaConsumer("orders", **options) for _ in range(2)]
        for each in consumers:
            await each.start()
        values, found = produce(cluster, 60), []
        try:
            while len(found) < 60 or any(len(each.assignment()) != 3 for each in consumers):
                for each in consumers:
                    for records in (await each.getmany(timeout_ms=20)).values():
                        found += [record.value for record in records]
        finally:
            for each in consumers:
                await each.stop()
        assert sorted(found) == sorted(values)
        assert sum(each.offset for each in cluster.committed("g").values()) == 60


def console_consumer(cluster, count, *properties):
    """Return a function that runs Java's console consumer in the group, for `count` records."""
    options = [f"--command-property={each}" for each in properties]
    return JavaTool(
        "console-consumer",
        *("--bootstrap-server", cluster.bootstrap_servers, "--topic", "orders", "--group", "g"),
        *("--from-beginning", "--max-messages", str(count), "--timeout-ms", "60000", *options),
    ).run


COOPERATIVE = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"


@pytest.mark.java
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("kafka_tools_jars")
class TestJava:
    def test_a_java_consumer_reads_as_the_only_member(self, cluster):
        values = produce(cluster, 60)
        assert sorted(console_consumer(cluster, 60)().splitlines()) == sorted(values)
        group = cluster.groups["g"]
        assert (group.state, group.protocol_type) == ("Empty", "consumer")
        assert sum(each.offset for each in cluster.committed("g").values()) == 60
        described = self.groups(cluster, "--describe", "--group", "g").decode()
        rows = [line.split() for line in described.splitlines() if line.startswith("g ")]
        assert [row[1:6] for row in rows] == [
            ["orders", str(partition), "10", "10", "0"] for partition in range(PARTITIONS)
        ]
        self.groups(cluster, "--delete", "--group", "g")
        assert cluster.groups == {}

    def groups(self, cluster, *arguments):
        server = ("--bootstrap-server", cluster.bootstrap_servers)
        return JavaTool(JAVA_GROUPS, *server, *arguments).run()

    @pytest.mark.parametrize(
        ("strategy", "properties"),
        [
            ("range", []),
            ("cooperative-sticky", [f"partition.assignment.strategy={COOPERATIVE}"]),
        ],
    )
    def test_java_and_librdkafka_share_a_group(self, cluster, strategy, properties):
        reader = Reader(cluster, strategy)
        with ThreadPoolExecutor(1) as pool:
            java = pool.submit(console_consumer(cluster, 30, *properties))
            drive([reader], lambda: half(cluster, reader))
            values = produce(cluster, 60)
            drive([reader], lambda: java.done() and len(reader.has) == PARTITIONS)
            lines = java.result().splitlines()
        drive([reader], lambda: len(reader.values) + len(lines) >= 60)
        assert len(lines) == len(reader.values) == 30
        assert sorted([*lines, *reader.values]) == sorted(values)
        reader.close()


def half(cluster, reader):
    """Return whether the group has two members, each with half of the partitions."""
    group = cluster.groups.get("g")
    two = group is not None and group.state == "Stable" and len(group.members) == 2
    return two and len(reader.has) == PARTITIONS // 2 and two_assigned(group)


def two_assigned(group):
    return len({each.assignment for each in group.members.values()}) == 2
