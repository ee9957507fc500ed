"""Tests that the embedded cluster and a real Kafka have the same configs.

They compare names, types, and defaults of topic configs, the broker configs from which these are
taken, and the values and changes that are refused.
"""

import uuid

import pytest
from parity import Scenarios, named

from aiokclient.protocol import messages
from aiokclient.protocol.messages import create_topics
from aiokclient.protocol.messages import describe_configs as describing
from aiokclient.protocol.messages import incremental_alter_configs as incremental

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND = 0, 1, 2
OTHER_UNITS = "retention.ms", "segment.ms", "flush.ms", "segment.jitter.ms"
"""Configs that Kafka's brokers have in several units.

The embedded brokers have only milliseconds.
"""
SMALLER = "retention.bytes", "segment.bytes"
"""Configs with smaller defaults in the embedded cluster. Their values are not compared."""
GIVEN = "file.delete.delay.ms", "min.insync.replicas"
"""Configs for which the real cluster does not have Kafka's defaults.

Their values are not compared, either.
"""
LATER = (
    "max.decompressed.message.bytes",
    "remote.copy.lag.bytes",
    "remote.copy.lag.ms",
)
"""Configs that are new in Kafka 4.4."""

SCENARIOS = Scenarios()
scenario = SCENARIOS.add


def described(broker, kind, resource, *keys):
    wanted = describing.DescribeConfigsResource(
        resource_type=kind, resource_name=resource, configuration_keys=list(keys) or None
    )
    request = messages.DescribeConfigsRequest(resources=[wanted], include_synonyms=True)
    return broker.request(request).results[0].configs


def altered(broker, *resources):
    wanted = [
        incremental.AlterConfigsResource(
            resource_type=kind,
            resource_name=resource,
            configs=[
                incremental.AlterableConfig(name=name, config_operation=operation, value=value)
                for name, operation, value in changes
            ],
        )
        for kind, resource, *changes in resources
    ]
    request = messages.IncrementalAlterConfigsRequest(resources=wanted)
    return [named(each.error_code) for each in broker.request(request).responses]


@scenario
def options_of_topics(broker):
    return sorted(
        (
            each.name,
            each.config_type,
            each.read_only,
            each.is_sensitive,
            each.name in (*SMALLER, *GIVEN) or each.value,
            each.name in OTHER_UNITS or [synonym.name for synonym in each.synonyms][-1:],
        )
        for each in described(broker, TOPIC, broker.topic()[0])
        if each.name not in LATER
    )


@scenario
def options_of_running_brokers(broker):
    names = (
        *("background.threads", "log.cleaner.backoff.ms", "log.cleaner.threads"),
        *("max.connections", "max.connections.per.ip", "num.io.threads", "num.network.threads"),
        *("num.recovery.threads.per.data.dir", "num.replica.fetchers"),
        *("producer.id.expiration.ms", "log.cleanup.policy", "log.message.timestamp.type"),
    )
    return sorted(
        (each.name, each.config_type, each.value, each.read_only, each.config_source)
        for each in described(broker, BROKER, "1", *names)
    )


@scenario
def values_of_new_topics(broker):
    def made(name, value):
        topic = create_topics.CreatableTopic(
            name=f"configs-{uuid.uuid4().hex[:8]}",
            num_partitions=1,
            replication_factor=1,
            configs=[create_topics.CreatableTopicConfig(name=name, value=value)],
        )
        request = messages.CreateTopicsRequest(topics=[topic], validate_only=True)
        return name, value, named(broker.request(request).topics[0].error_code)

    return [
        made(name, value)
        for name, values in {
            "cleanup.policy": ("", "compact", "compact,delete", "compact,none"),
            "compression.gzip.level": ("-2", "-1", "0", "1", "9", "10"),
            "compression.lz4.level": ("0", "1", "17", "18"),
            "compression.zstd.level": ("-131073", "-5", "22", "23"),
            "leader.replication.throttled.replicas": ("", "*", "0:1,1:2", "0", "0:1,"),
            "local.retention.ms": ("-3", "-2"),
            "message.downconversion.enable": ("true",),
            "min.cleanable.dirty.ratio": ("-0.1", "0.01", "1.5", "x"),
            "preallocate": ("TRUE", "yes"),
            "remote.storage.enable": ("false", "true"),
            "retention.ms": (" 5 ", "", "9223372036854775808", None),
            "segment.bytes": ("1099511627776",),
            "segment.index.bytes": ("3", "4"),
        }.items()
        for value in values
    ]


@scenario
def changes(broker):
    topic, _ = broker.topic()
    unknown = f"unknown-{uuid.uuid4().hex[:8]}"
    return [
        altered(broker, (TOPIC, topic, (unknown, DELETE, None))),
        altered(broker, (TOPIC, topic, (unknown, APPEND, "1"))),
        altered(broker, (GROUP, "g", (unknown, DELETE, None))),
        altered(broker, (GROUP, "g", (unknown, SET, "1"))),
        altered(broker, (TOPIC, topic, ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))),
        altered(broker, *[(TOPIC, topic, ("retention.ms", SET, each)) for each in "12"]),
        altered(broker, (TOPIC, topic, ("leader.replication.throttled.replicas", APPEND, "0:1"))),
    ]


@scenario
def changes_of_brokers(broker):
    unknown = f"unknown-{uuid.uuid4().hex[:8]}"

    def change(name, operation, value=None):
        return altered(broker, (BROKER, "1", (name, operation, value)))

    return [
        change(unknown, SET, "1"),
        change(unknown, APPEND, "1"),
        change(unknown, DELETE),
        change("log.retention.ms", SET, "100000"),
        change("log.retention.ms", SET, "x"),
        change("log.retention.ms", DELETE),
        change("log.cleanup.policy", APPEND, "x"),
        change("node.id", SET, "2"),
        change("log.dirs", DELETE),
    ]


@scenario
def rates_of_throttles(broker):
    names = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
    return [
        altered(broker, (BROKER, "1", *[(name, operation, value) for name in names]))
        for operation, value in ((SET, "x"), (SET, "-1"), (APPEND, "1"), (SET, "0"), (DELETE, None))
    ]


@pytest.mark.parametrize("name", SCENARIOS)
def test_config_requests_are_answered_as_by_kafka(name, parity):
    parity(SCENARIOS[name])


def test_unknown_broker_configs_are_stored_and_not_returned(wire):
    connection = wire.to(1)
    for resource, value in (("1", "x"), ("", "y")):
        assert altered(connection, (BROKER, resource, ("unknown", SET, value))) == ["ok"]
    for resource, sources in (("1", [2, 3]), ("2", [3]), ("", [3])):
        (only,) = described(connection, BROKER, resource, "unknown")
        assert (only.value, only.is_sensitive, only.config_type) == (None, True, 0)
        assert [each.source for each in only.synonyms] == sources
    for resource in ("1", ""):
        assert altered(connection, (BROKER, resource, ("unknown", DELETE, None))) == ["ok"]
    assert described(connection, BROKER, "1", "unknown") == []


def test_broker_configs_apply_to_topics(wire):
    connection = wire.to(1)
    assert altered(connection, (BROKER, "", ("log.cleanup.policy", SET, "compact"))) == ["ok"]
    (only,) = described(connection, TOPIC, "orders", "cleanup.policy")
    assert only.value == "compact"
    assert [(each.name, each.source) for each in only.synonyms] == [
        ("log.cleanup.policy", 3),
        ("log.cleanup.policy", 5),
    ]
