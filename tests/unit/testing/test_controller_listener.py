"""Tests of the listener at which brokers are controllers (KIP-919)."""

import pytest

from aiokclient.errors import (
    MismatchedEndpointTypeError,
    NotControllerError,
    NotLeaderOrFollowerError,
    UnsupportedEndpointTypeError,
)
from aiokclient.protocol import messages
from aiokclient.protocol.messages import describe_quorum
from aiokclient.testing import BrokerListener, EmbeddedCluster
from aiokclient.testing.broker.controllers import CONTROLLER_APIS
from aiokclient.testing.broker.security.listeners import CONTROLLER

QUORUM = messages.DescribeQuorumRequest(
    topics=[
        describe_quorum.TopicData(
            topic_name="__cluster_metadata",
            partitions=[describe_quorum.PartitionData(partition_index=0)],
        )
    ]
)
SOFTWARE = {"client_software_name": "test", "client_software_version": "1"}


@pytest.fixture
def controllers(cluster, wire):
    """Connections to brokers as controllers."""
    return lambda broker: wire.at(cluster.address(broker, CONTROLLER))


def test_a_controller_announces_what_it_answers(controllers):
    answer = controllers(1).request(messages.ApiVersionsRequest(**SOFTWARE))
    assert {each.api_key for each in answer.api_keys} == CONTROLLER_APIS
    assert {each.name for each in answer.finalized_features} >= {"metadata.version"}


def test_a_controller_closes_the_connection_after_a_request_for_brokers(controllers):
    connection = controllers(1)
    connection.send(messages.MetadataRequest(topics=[]))
    with pytest.raises(EOFError):
        connection.receive()


def test_only_the_active_controller_changes_something(cluster, controllers):
    request = messages.UnregisterBrokerRequest(broker_id=77)
    assert controllers(2).request(request).error_code == NotControllerError.code
    assert controllers(2).request(QUORUM).error_code == NotLeaderOrFollowerError.code
    cluster.stop(1)
    assert controllers(2).request(request).error_code != NotControllerError.code
    assert controllers(2).request(QUORUM).topics[0].partitions[0].leader_id == 2
    assert controllers(3).request(QUORUM).error_code == NotLeaderOrFollowerError.code


@pytest.mark.parametrize(
    ("is_controller", "endpoint_type", "code"),
    [
        (False, 1, 0),
        (True, 2, 0),
        (False, 2, MismatchedEndpointTypeError.code),
        (True, 1, MismatchedEndpointTypeError.code),
        (True, 3, UnsupportedEndpointTypeError.code),
    ],
)
def test_each_listener_describes_its_own_kind(
    cluster, wire, controllers, is_controller, endpoint_type, code
):
    connection = controllers(2) if is_controller else wire.to(2)
    answer = connection.request(messages.DescribeClusterRequest(endpoint_type=endpoint_type))
    assert answer.error_code == code
    if not code:
        listener = (CONTROLLER,) if is_controller else ()
        addresses = [cluster.address(broker, *listener) for broker in cluster.brokers]
        assert [(each.host, each.port) for each in answer.brokers] == addresses
        assert (answer.endpoint_type, answer.controller_id) == (endpoint_type, 1)


def test_its_name_is_taken():
    with pytest.raises(ValueError, match="neither PLAINTEXT nor CONTROLLER"):
        EmbeddedCluster(listeners={CONTROLLER: BrokerListener()})
