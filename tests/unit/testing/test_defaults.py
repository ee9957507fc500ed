"""Tests of the defaults of an embedded cluster: those for tests, and those of Kafka."""

import pytest

from aiokclient.protocol import messages
from aiokclient.protocol.messages import describe_configs as describing
from aiokclient.testing import EmbeddedCluster
from aiokclient.testing.broker.configs import BROKER_OPTIONS, KAFKA_DEFAULTS

BROKER, TOPIC = 4, 2


def read_defaults(connection):
    """Return the default value of each config that a broker describes."""
    wanted = describing.DescribeConfigsResource(resource_type=BROKER, resource_name="1")
    request = messages.DescribeConfigsRequest(resources=[wanted], include_synonyms=True)
    found = {}
    for each in connection.request(request).results[0].configs:
        default = next((one.value for one in each.synonyms if one.source == 5), None)
        found[each.name] = default
    return found


@pytest.mark.kafka
def test_defaults_of_kafka_are_those_of_a_real_broker(kafka, wire_to):
    with EmbeddedCluster(defaults="kafka") as cluster:
        wire = wire_to(cluster)
        ours = read_defaults(wire.to(1))
        theirs = read_defaults(wire.at(kafka.addresses()[0]))
    # Configs that Kafka has in several units have no default in milliseconds.
    shared = [name for name in ours if theirs.get(name) is not None]
    assert len(shared) > 50
    assert set(KAFKA_DEFAULTS) <= set(shared)
    assert [(name, ours[name]) for name in shared if ours[name] != theirs[name]] == []


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
