"""Tests that the console tools of Kafka 4.3 work with the embedded cluster."""

import pytest
from kafka_harness import JavaTool

from aiokclient.protocol import ApiKey
from aiokclient.testing import EmbeddedCluster

pytestmark = [
    pytest.mark.java,
    pytest.mark.usefixtures("kafka_tools_jars"),
    pytest.mark.timeout(600),
]

CONFIGS = "kafka.admin.ConfigCommand"
LINES = [b"line %d" % number for number in range(2000)]


@pytest.fixture
def servers():
    with EmbeddedCluster(brokers=3, topics={"orders": 1}) as cluster:
        yield cluster


def tool(cluster, name, *arguments, stdin=b""):
    server = ("--bootstrap-server", cluster.bootstrap_servers)
    return JavaTool(name, *server, *arguments).run(stdin, timeout=120)


def read(cluster, offset, count):
    return tool(
        cluster,
        "console-consumer",
        *("--topic", "orders", "--partition", "0", "--offset", str(offset)),
        *("--max-messages", str(count), "--timeout-ms", "60000"),
    ).splitlines()


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_java_tools_produce_and_consume(servers, codec):
    arguments = ("--topic", "orders", "--compression-codec", codec, "--request-required-acks", "-1")
    tool(servers, "console-producer", *arguments, stdin=b"\n".join(LINES) + b"\n")
    assert [record.value for record in servers.records("orders", 0)] == LINES
    produced = [each for each in servers.requests if each.api == ApiKey.PRODUCE]
    assert {each.version for each in produced} == {13}
    # Java's producer is idempotent by default.
    assert any(each.api == ApiKey.INIT_PRODUCER_ID for each in servers.requests)
    assert read(servers, 1500, 500) == LINES[1500:]
    fetched = [each for each in servers.requests if each.api == ApiKey.FETCH]
    assert {each.version for each in fetched} == {18}


def test_the_java_consumer_follows_a_moved_leader(servers):
    servers.produce("orders", LINES[:1000])
    servers.fail(ApiKey.FETCH, 6, times=1)
    servers.move_leader("orders", 0)
    servers.produce("orders", LINES[1000:])
    assert read(servers, 0, 2000) == LINES


def test_java_tools_show_topics_and_offsets(servers):
    tool(servers, "topics", "--create", "--topic", "made", "--partitions", "4")
    assert servers.topics["made"] == 4
    described = tool(servers, "topics", "--describe", "--topic", "made").decode()
    assert "PartitionCount: 4" in described
    assert str(servers.leader("made", 3)) in described
    tool(servers, "topics", "--alter", "--topic", "made", "--partitions", "5")
    assert servers.topics["made"] == 5
    change = ("--alter", "--entity-type", "topics", "--entity-name", "made")
    tool(servers, CONFIGS, *change, "--add-config", "retention.ms=5")
    described = tool(
        servers, CONFIGS, "--describe", "--entity-type", "topics", "--entity-name", "made"
    )
    assert b"retention.ms=5" in described
    servers.produce("orders", LINES)
    shell = "org.apache.kafka.tools.GetOffsetShell"
    assert tool(servers, shell, "--topic", "orders").split() == [b"orders:0:2000"]
    tool(servers, "topics", "--delete", "--topic", "made")
    assert list(servers.topics) == ["orders"]
