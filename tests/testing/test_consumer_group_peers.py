"""Other clients under KIP-848 in groups on the embedded cluster: alone, with ours, with classic
ones of their own."""

import asyncio
import contextlib
import threading
import time

import pytest
from kafka_harness import JavaTool

from aiokclient import Consumer
from aiokclient.protocol import ApiKey
from aiokclient.testing import EmbeddedCluster

confluent = pytest.importorskip("confluent_kafka")

PARTITIONS = 6
PATIENCE_S = 30.0


@pytest.fixture
def cluster():
    configs = {"group.consumer.heartbeat.interval.ms": 50}
    with EmbeddedCluster(3, {"orders": PARTITIONS}, configs=configs) as cluster:
        yield cluster


class Reader:
    """A consumer of librdkafka: what it was told that it has, and what it has read."""

    def __init__(self, cluster, *topics, protocol="consumer", **options):
        settings = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 50,
            "group.protocol": protocol,
            "reconnect.backoff.ms": 10,
            "log_level": 0,
        }
        if protocol == "classic":
            settings |= {"heartbeat.interval.ms": 50, "session.timeout.ms": 6000}
            settings |= {"partition.assignment.strategy": "cooperative-sticky"}
        self.consumer = confluent.Consumer(
            settings | {key.replace("_", "."): value for key, value in options.items()}
        )
        self.has, self.values, self.errors = set(), [], []
        self.consumer.subscribe(
            list(topics) or ["orders"],
            on_assign=self.assigned,
            on_revoke=self.revoked,
            on_lost=self.revoked,
        )

    def assigned(self, consumer, places):
        self.has |= {(each.topic, each.partition) for each in places}

    def revoked(self, consumer, places):
        self.has -= {(each.topic, each.partition) for each in places}

    def poll(self):
        message = self.consumer.poll(0.01)
        if message is not None and message.error() is None:
            self.values.append(message.value())
        elif message is not None and not message.error().retriable():
            self.errors.append(message.error())

    def close(self):
        self.consumer.close()


class Ours:
    """Our consumer in a thread of its own; what it has it knows as its own listener."""

    def __init__(self, cluster, *topics, **options):
        self.has, self.values, self.failure = set(), [], None
        self._consumer = None
        settings = {"group_protocol": "consumer", "auto_offset_reset": "earliest", **options}
        servers = cluster.bootstrap_servers
        self._make = lambda: Consumer(
            *(topics or ("orders",)),
            group_id="g",
            bootstrap_servers=servers,
            listener=self,
            **settings,
        )
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))
        self._thread.start()

    async def _main(self):
        try:
            async with self._make() as self._consumer:
                async for record in self._consumer:
                    self.values.append(record.value)
        except Exception as error:
            self.failure = error

    def on_assigned(self, places):
        self.has = self.has | {tuple(each) for each in places}

    def on_revoked(self, places):
        self.has = self.has - {tuple(each) for each in places}

    on_lost = on_revoked

    def poll(self):
        pass

    def close(self):
        if self._consumer is not None:
            self._consumer.stop()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


def drive(readers, check):
    """Let all of them read until it is true."""
    deadline = time.monotonic() + PATIENCE_S
    while not check():
        assert time.monotonic() < deadline, [(each.has, len(each.values)) for each in readers]
        for each in readers:
            each.poll()


def even(readers, count=PARTITIONS):
    """Whether each of them has its part, and nobody what another has."""
    parts = [place for each in readers for place in each.has]
    sizes = [len(each.has) for each in readers]
    return len(parts) == len(set(parts)) == count and max(sizes) - min(sizes) <= 1


def have(readers, values):
    return {value for each in readers for value in each.values} >= set(values)


@contextlib.contextmanager
def closing(readers):
    try:
        yield readers
    finally:
        for each in readers:
            each.close()


def produce(cluster, first, count=60):
    values = [b"%d" % number for number in range(first, first + count)]
    for number, value in enumerate(values):
        cluster.produce("orders", [value], number % PARTITIONS)
    return values


@pytest.mark.parametrize("kinds", [[Reader] * 3, [Reader, Ours, Reader], [Ours, Reader, Ours]])
def test_members_come_and_go(cluster, kinds):
    values = produce(cluster, 0)
    with closing([]) as readers:
        for kind in kinds:
            readers.append(kind(cluster))
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


def test_patterns_and_assignors(cluster):
    with closing([Reader(cluster, "^o.*", group_remote_assignor="range")]) as readers:
        readers.append(Reader(cluster, "^o.*", group_remote_assignor="range"))
        drive(readers, lambda: even(readers))
        cluster.create_topic("others", PARTITIONS)
        drive(readers, lambda: even(readers, 2 * PARTITIONS))
        numbers = [{index for _, index in each.has} for each in readers]
        assert [len(each) for each in numbers] == [3, 3]
        assert cluster.groups["g"].protocol == "range"


def test_static_members(cluster):
    with closing([Reader(cluster, group_instance_id=each) for each in "ab"]) as readers:
        drive(readers, lambda: even(readers))
        generation, before = cluster.groups["g"].generation, readers[1].has.copy()
        readers[1].close()
        readers[1] = Reader(cluster, group_instance_id="b")
        drive(readers, lambda: readers[1].has == before)
        assert cluster.groups["g"].generation == generation
        third = Ours(cluster, group_instance_id="b")
        drive(readers, lambda: third.failure is not None)
        assert third.failure.name == "UNRELEASED_INSTANCE_ID"
        third.close()


def test_the_coordinator_moves_and_fails(cluster):
    with closing([Reader(cluster), Ours(cluster)]) as readers:
        drive(readers, lambda: even(readers))
        cluster.move_coordinator("g")
        values = produce(cluster, 0)
        drive(readers, lambda: have(readers, values))
        cluster.stop(cluster.coordinator("g"))
        readers.append(Ours(cluster))
        drive(readers, lambda: even(readers))


def test_a_group_of_librdkafka_goes_over_and_back(cluster):
    values = []
    with closing([Reader(cluster, protocol="classic") for _ in range(2)]) as readers:
        drive(readers, lambda: even(readers))
        assert cluster.groups["g"].kind.value == "classic"
        for number, protocol in enumerate(["consumer", "consumer", "classic", "classic"]):
            readers.append(Reader(cluster, protocol=protocol))
            drive(readers, lambda: even(readers))
            readers.pop(0).close()
            drive(readers, lambda: even(readers))
            new = produce(cluster, 60 * number)
            drive(readers, lambda new=new: have(readers, new))
            values += new
        assert cluster.groups["g"].kind.value == "classic"


@pytest.mark.java
@pytest.mark.usefixtures("kafka_tools_jars")
def test_java_beside_ours(cluster):
    """Java's console consumer reads its part of the partitions, then leaves."""
    values = produce(cluster, 0, 600)
    with closing([Ours(cluster)]) as readers:
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
