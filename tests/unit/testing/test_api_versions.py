"""Tests of ApiVersions.

They cover announced versions, the fallback after a request of an unsupported version, and KIP-1242.
"""

import pytest

from aiokclient.errors import InvalidRequestError, RebootstrapRequiredError, UnsupportedVersionError
from aiokclient.protocol import ApiKey, messages
from aiokclient.testing.broker.handlers import TELEMETRY_APIS, get_handler, list_handled

SHOWN = {api: span for api, span in list_handled().items() if api not in TELEMETRY_APIS}


def asked(version: int = 5, **fields):
    return messages.ApiVersionsRequest(
        client_software_name="test", client_software_version="1", **fields
    ), version


@pytest.mark.parametrize("version", range(6))
def test_brokers_announce_the_versions_that_they_handle(cluster, wire, version):
    response = wire.to(1).request(*asked(version))
    spans = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
    assert spans == SHOWN
    assert spans[ApiKey.FETCH] == (4, 18)
    assert spans[ApiKey.PRODUCE] == (0, 13)
    assert spans[ApiKey.INIT_PRODUCER_ID] == (0, 5)


@pytest.mark.parametrize("api", list_handled())
def test_each_handler_documents_its_versions(api):
    module = __import__(get_handler(api).__module__, fromlist=["__doc__"])
    assert len(module.__doc__) > 80


def test_a_version_too_high_is_answered_in_version_0(wire):
    connection = wire.to(1)
    # The request has a version that does not exist yet, so its header has version 1 or later.
    connection.socket.sendall(bytes.fromhex("0000000b 0012 0063 00000000 ffff 00"))
    size = int.from_bytes(connection._read(4), "big")
    body = connection._read(size)[4:]
    response = messages.ApiVersionsResponse.decode(body, 0)
    assert response.error_code == UnsupportedVersionError.code
    (only,) = response.api_keys
    assert (only.api_key, only.min_version, only.max_version) == (18, 0, 5)
    assert connection.request(*asked(only.max_version)).error_code == 0


def test_a_client_must_name_its_software(wire):
    request = messages.ApiVersionsRequest(client_software_name="", client_software_version="1")
    assert wire.to(1).request(request, 3).error_code == InvalidRequestError.code
    assert wire.to(1).request(request, 2).error_code == 0


@pytest.mark.parametrize(
    ("right", "node", "code"),
    [
        (None, -1, 0),
        (True, 1, 0),
        (True, -1, InvalidRequestError.code),
        (False, -1, InvalidRequestError.code),
        (None, 1, InvalidRequestError.code),
        (None, 2, InvalidRequestError.code),
        (True, 2, RebootstrapRequiredError.code),
        (False, 1, RebootstrapRequiredError.code),
    ],
)
def test_the_intended_cluster_and_broker_are_checked(cluster, wire, right, node, code):
    cluster_id = None if right is None else cluster.cluster_id if right else "another"
    connection = wire.to(1)
    response = connection.request(*asked(5, cluster_id=cluster_id, node_id=node))
    assert response.error_code == code
    assert bool(response.api_keys) == (code == 0)
    assert connection.request(*asked(4)).error_code == 0


def test_limited_versions_look_like_an_older_broker(cluster, wire):
    cluster.limit_versions({ApiKey.FETCH: (4, 11), ApiKey.DESCRIBE_CLUSTER: None}, broker=1)
    cluster.limit_versions({ApiKey.API_VERSIONS: (0, 2)})
    connection = wire.to(1)
    response = connection.request(*asked(2))
    spans = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
    assert spans[ApiKey.FETCH] == (4, 11)
    assert ApiKey.DESCRIBE_CLUSTER not in spans
    connection.send(wire.fetch_request("orders"), 12)
    assert connection.closed()
    other = wire.to(2).request(*asked(2))
    assert {each.api_key: each.max_version for each in other.api_keys}[ApiKey.FETCH] == 18
    cluster.reset()
    assert len(wire.to(1).request(*asked(5)).api_keys) == len(SHOWN)


def test_a_change_of_one_answer_leaves_later_ones_as_they_are(cluster, wire):
    def change(request, response):
        del response.api_keys[1:]
        response.api_keys[0].max_version = 0
        return response

    before = wire.to(1).request(*asked())
    with cluster.alter(ApiKey.API_VERSIONS, change, times=1):
        assert len(wire.to(1).request(*asked()).api_keys) == 1
    assert wire.to(1).request(*asked()) == before
