"""The metadata of a client that is connected to controllers (KIP-919).

Controllers do not answer Metadata. DescribeCluster returns their addresses, and which one is the
active controller. A snapshot that is made of it has the controllers in place of the brokers, and no
topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiokclient.errors import ConnectionSetupError
from aiokclient.protocol.api import ApiKey
from aiokclient.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from aiokclient.protocol.wanted_topics import WantedTopicsRequest

if TYPE_CHECKING:
    from aiokclient.config.client import ClientConfig
    from aiokclient.network.connection import ConnectedBroker
    from aiokclient.protocol.messages.describe_cluster import (
        DescribeClusterRequest,
        DescribeClusterResponse,
    )

CONTROLLERS: Final = 2
"""The type of the endpoints that DescribeCluster is to return."""


def make_brokers_request(
    config: ClientConfig,
) -> WantedTopicsRequest | DescribeClusterRequest:
    """Return the request for the brokers of a cluster, or for its controllers."""
    if config.uses_controllers:
        # It is imported here, because few clients are connected to controllers.
        from aiokclient.protocol.messages.describe_cluster import DescribeClusterRequest

        return DescribeClusterRequest(endpoint_type=CONTROLLERS)
    return WantedTopicsRequest([])


def check_kind(config: ClientConfig, broker: ConnectedBroker) -> None:
    """Raise ConnectionSetupError if a server is a controller, and the client needs a broker."""
    known = broker.api_versions
    if not config.uses_controllers and known and ApiKey.METADATA not in known:
        raise ConnectionSetupError(
            f"{broker.address} is a controller, not a broker. Check the port in bootstrap_servers, "
            "or use Admin(bootstrap_controllers=...)."
        )


def as_metadata(answer: MetadataResponse | DescribeClusterResponse) -> MetadataResponse:
    """Return a response with the controllers in place of the brokers, or metadata as it is."""
    if isinstance(answer, MetadataResponse):
        return answer
    return MetadataResponse(
        error_code=answer.error_code,
        cluster_id=answer.cluster_id,
        controller_id=answer.controller_id,
        brokers=[
            MetadataResponseBroker(
                node_id=each.broker_id, host=each.host, port=each.port, rack=each.rack
            )
            for each in answer.brokers
        ],
    )
