"""Tests of the share consumers of other clients on the embedded cluster."""

import subprocess
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from share_raw import ShareGroup

from aiokclient.testing import EmbeddedCluster

confluent = pytest.importorskip("confluent_kafka")

PATIENCE_S = 60.0
RECORDS = 30
PARTITIONS = 3
GO = Path(__file__).parents[2] / "go" / "share_consumer"


@pytest.fixture
def servers():
    configs = {"group.share.heartbeat.interval.ms": 50}
    with EmbeddedCluster(3, {"orders": PARTITIONS}, configs=configs) as cluster:
        for partition in range(PARTITIONS):
            cluster.produce("orders", [b"%d" % each for each in range(RECORDS)], partition)
        yield cluster


@pytest.fixture
def group(servers, scenario_broker, wire_to):
    """A share group that begins with the first records."""
    return ShareGroup(scenario_broker(wire_to(servers), servers.address(1)))


def lags_of(servers, scenario_broker, wire_to, group):
    """Return the lags of a group, from its coordinator."""
    coordinator = servers.address(servers.coordinator(group.id))
    group.broker = scenario_broker(wire_to(servers), coordinator)
    return [lag for _, _, _, _, lag, *_ in group.list_offsets()[1]]


class Reader:
    """A share consumer of librdkafka, which settles each record by itself, in a thread."""

    def __init__(self, servers, group, choose):
        settings = {
            "bootstrap.servers": servers.bootstrap_servers,
            "group.id": group.id,
            "share.acknowledgement.mode": "explicit",
            "log_level": 0,
        }
        self.consumer = confluent.ShareConsumer(settings)
        self.consumer.subscribe(["orders"])
        self.deliveries = Counter()
        self._choose, self._stopped = choose, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while not self._stopped.is_set():
            for message in self.consumer.poll(timeout=0.05):
                assert message.error() is None
                self.deliveries[message.partition(), message.offset()] += 1
                self.consumer.acknowledge(message, self._choose(message))
            self.consumer.commit_sync(timeout=10)
        self.consumer.close()

    def close(self):
        self._stopped.set()
        self._thread.join()


@pytest.mark.filterwarnings("ignore")
def test_librdkafka_members_accept_release_and_reject(servers, group, scenario_broker, wire_to):
    kinds = confluent.AcknowledgeType

    def choose(message):
        if message.offset() % 10 == 1:
            return kinds.REJECT
        first = message.offset() % 10 == 0 and message.delivery_count() == 1
        return kinds.RELEASE if first else kinds.ACCEPT

    readers = [Reader(servers, group, choose) for _ in range(2)]
    deadline, deliveries = time.monotonic() + PATIENCE_S, Counter()
    try:
        expected = RECORDS * PARTITIONS * 11 // 10
        servers.wait_for(lambda: sum(sum(each.deliveries.values()) for each in readers) >= expected)
        while any(lags_of(servers, scenario_broker, wire_to, group)):
            assert time.monotonic() < deadline
    finally:
        for each in readers:
            each.close()
            deliveries += each.deliveries
    assert deliveries == {
        (partition, offset): 1 + (offset % 10 == 0)
        for partition in range(PARTITIONS)
        for offset in range(RECORDS)
    }
    assert group.describe()[1] == "Empty"


@pytest.mark.tools
def test_share_consumers_of_franz_go_read_all_records(
    servers, group, scenario_broker, wire_to, tmp_path
):
    program = tmp_path / "share_consumer"
    subprocess.run(["go", "build", "-o", str(program), "."], cwd=GO, check=True)
    command = [program, servers.bootstrap_servers, group.id, "orders", str(RECORDS * PARTITIONS)]
    out = subprocess.run(command, capture_output=True, check=True, text=True, timeout=90).stdout
    seen = sorted(tuple(map(int, line.split())) for line in out.splitlines())
    assert seen == [
        (partition, offset, count)
        for partition in range(PARTITIONS)
        for offset in range(RECORDS)
        for count in range(1, 3 if offset % 10 == 0 else 2)
    ]
    assert lags_of(servers, scenario_broker, wire_to, group) == [0] * PARTITIONS


def test_java_tools_read_with_share_groups(servers, group, tool_host):
    server = ("--bootstrap-server", servers.bootstrap_servers)
    console = (*server, "--topic", "orders", "--group", group.id, "--timeout-ms", "60000")
    total = str(RECORDS * PARTITIONS)
    released = tool_host.run(
        "kafka-console-share-consumer", *console, "--max-messages", total, "--release"
    )
    read = tool_host.run("kafka-console-share-consumer", *console, "--max-messages", total)
    for done in (released, read):
        values = Counter(line for line in done.out.splitlines() if line.isdecimal())
        assert values == {str(each): PARTITIONS for each in range(RECORDS)}, done.err
    reset = ("--reset-offsets", "--to-earliest", "--execute", "--topic", "orders")
    done = tool_host.run("kafka-share-groups", *server, "--group", group.id, *reset)
    assert done.code == 0, done.err
    done = tool_host.run(
        "kafka-verifiable-share-consumer",
        *(*server, "--topic", "orders", "--group-id", group.id),
        *("--max-messages", total, "--acknowledgement-mode", "sync"),
    )
    assert '"name":"shutdown_complete"' in done.out, done.err
    done = tool_host.run("kafka-share-groups", *server, "--describe", "--group", group.id)
    lines = [line.split() for line in done.out.splitlines() if group.id in line]
    assert sorted(line[1:3] + line[4:] for line in lines) == [
        ["orders", str(each), "0"] for each in range(PARTITIONS)
    ]
