"""Tests of the defaults of an embedded cluster: those for tests, and those of Kafka."""

import pytest

from aiokclient.protocol import messages
from aiokclient.protocol.messages import describe_configs as describing
from aiokclient.testing import BrokerListener, EmbeddedCluster
from aiokclient.testing.broker.configs import BROKER_OPTIONS, KAFKA_DEFAULTS
from aiokclient.testing.broker.option_texts import NO_EFFECT

BROKER = 4
DEFAULT, STATIC = 5, 4
"""Sources of values."""


def describe_broker(connection, **options):
    """Return the configs of broker 1 by name, with their synonyms."""
    wanted = describing.DescribeConfigsResource(resource_type=BROKER, resource_name="1")
    request = messages.DescribeConfigsRequest(resources=[wanted], include_synonyms=True, **options)
    return {each.name: each for each in connection.request(request).results[0].configs}


def find_default(config):
    return next((each.value for each in config.synonyms if each.source == DEFAULT), None)


def read_defaults(connection):
    """Return the default value of each config that a broker describes."""
    return {name: find_default(each) for name, each in describe_broker(connection).items()}


@pytest.mark.kafka
def test_options_and_defaults_of_kafka_are_those_of_a_real_broker(kafka, wire_to):
    def describe(connection):
        return {
            name: (each.config_type, each.read_only, each.is_sensitive, find_default(each))
            for name, each in describe_broker(connection).items()
        }

    with EmbeddedCluster(defaults="kafka") as cluster:
        wire = wire_to(cluster)
        ours = describe(wire.to(1))
        theirs = describe(wire.at(kafka.addresses()[0]))
    assert sorted(ours) == sorted(theirs)
    assert len(ours) == 351
    # Kafka has these in several units, and no default in milliseconds.
    in_units = {"log.retention.ms", "log.roll.ms", "log.roll.jitter.ms", "log.flush.interval.ms"}
    assert {name for name in ours if ours[name] != theirs[name]} == in_units


def test_defaults_for_tests_differ_from_those_of_kafka_where_the_table_says(wire_to):
    with EmbeddedCluster() as fast, EmbeddedCluster(defaults="kafka") as slow:
        ours, theirs = (read_defaults(wire_to(each).to(1)) for each in (fast, slow))
        assert {name for name in ours if ours[name] != theirs[name]} == set(KAFKA_DEFAULTS)
        assert {name: theirs[name] for name in KAFKA_DEFAULTS} == dict(KAFKA_DEFAULTS)
        assert ours["log.retention.bytes"] == BROKER_OPTIONS["log.retention.bytes"].default


def test_topics_have_the_chosen_defaults():
    values = []
    for options in ({}, {"defaults": "kafka"}, {"defaults": "kafka", "retention_bytes": 7}):
        with EmbeddedCluster(3, {"orders": 1}, **options) as cluster:
            configs = cluster._state.topics["orders"].configs
            values.append((configs["retention.bytes"], len(cluster.replicas("orders"))))
    assert values == [(str(256 << 20), 3), ("-1", 1), ("7", 1)]


def test_unknown_defaults_are_refused_with_the_names_of_the_known_ones():
    with pytest.raises(ValueError, match="defaults='fast': The values are"):
        EmbeddedCluster(defaults="fast")


def test_each_broker_describes_its_own_configs(wire_to):
    listeners = {"LOGIN": BrokerListener(mechanisms=("PLAIN",), users={"a": "b"})}
    with EmbeddedCluster(racks=["r"], listeners=listeners) as cluster:
        found = describe_broker(wire_to(cluster).to(1))
        plain, login = (cluster.bootstrap_servers_for(each) for each in ("PLAINTEXT", "LOGIN"))
    assert found["advertised.listeners"].value == f"PLAINTEXT://{plain},LOGIN://{login}"
    assert found["listeners"].value.startswith(f"PLAINTEXT://{plain},")
    protocols = found["listener.security.protocol.map"].value.split(",")
    assert {"PLAINTEXT:PLAINTEXT", "LOGIN:SASL_PLAINTEXT"} <= set(protocols)
    assert [found[each].value for each in ("node.id", "broker.rack")] == ["1", "r"]
    assert {found[each].config_source for each in ("node.id", "listeners")} == {STATIC}


def test_options_have_a_text_on_request(wire_to):
    with EmbeddedCluster() as cluster:
        connection = wire_to(cluster).to(1)
        assert {each.documentation for each in describe_broker(connection).values()} == {None}
        texts = describe_broker(connection, include_documentation=True)
    assert texts["log.retention.bytes"].documentation.startswith("The size in bytes")
    assert texts["queued.max.requests"].documentation == NO_EFFECT
    assert all(each.documentation for each in texts.values())


def test_secrets_of_brokers_are_not_described(wire_to):
    configs = {"delegation.token.secret.key": "secret", "delegation.token.expiry.time.ms": 7000}
    with EmbeddedCluster(configs=configs) as cluster:
        found = describe_broker(wire_to(cluster).to(1))
    secret = found["delegation.token.secret.key"]
    assert (secret.value, secret.is_sensitive, secret.config_source) == (None, True, STATIC)
    assert [each.value for each in secret.synonyms] == [None]
    assert found["delegation.token.expiry.time.ms"].value == "7000"
