"""The check that a new connection has reached the broker and the cluster that it is meant for.

An address may have a new owner: another broker, or a broker of another cluster. From version 5 of
ApiVersions on, the client names the expected cluster id and broker id, and a broker with other ids
refuses the connection (KIP-1242). Older brokers ignore the ids. If it matters whether an older
broker is in the same cluster, it is asked for its metadata before any other request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, Protocol

import aiokclient.network.diagnosis as diagnosis
from aiokclient.errors import DisconnectedError, KafkaError
from aiokclient.network.connection import BrokerConnection
from aiokclient.network.traffic import size_of
from aiokclient.protocol.api import ApiKey, negotiate
from aiokclient.protocol.framing import ClientPipeline
from aiokclient.protocol.messages.api_versions import ApiVersionsRequest
from aiokclient.protocol.messages.metadata import MetadataRequest, MetadataResponse

__all__ = [
    "CHECKED_FROM",
    "ClusterCheck",
    "Expected",
    "check_cluster",
    "confirms",
    "identifying_request",
]

CHECKED_FROM: Final = 5
"""The lowest version of ApiVersions with which a broker checks the ids."""

NAMES_CLUSTER: Final = 2
"""The lowest version of Metadata whose response has the cluster id."""

SOFTWARE_NAME: Final = "aiokclient"
SOFTWARE_VERSION: Final = "0.1.0"

Expected = tuple[str, int]
"""The cluster id and the broker id that a connection is meant for."""


class ClusterCheck(Protocol):
    """The identity of a client's cluster, by which new connections are checked."""

    @property
    def checks(self) -> bool:
        """Whether ApiVersions carries the expected ids."""

    def expected_ids(self, node_id: int) -> Expected | None:
        """Return the ids that ApiVersions carries, or None if it carries no ids."""

    def is_in_doubt(self, node_id: int) -> bool:
        """Return whether a broker that has not confirmed the ids must name its cluster."""

    def compare_ids(self, node_id: int, address: str, found: MetadataResponse) -> KafkaError | None:
        """Return an error if the broker has named another cluster."""


def confirms(connection: BrokerConnection) -> bool:
    """Return whether a broker can confirm the ids that ApiVersions carries."""
    return connection.broker.version_of(ApiVersionsRequest) >= CHECKED_FROM


def identifying_request(expected: Expected | None = None) -> ApiVersionsRequest:
    """Return ApiVersions with the ids that the broker is to confirm, if any."""
    request = ApiVersionsRequest(
        client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION
    )
    if expected is not None:
        request.cluster_id, request.node_id = expected
    return request


async def check_cluster(
    connection: BrokerConnection,
    pipeline: ClientPipeline,
    versions: Mapping[int, tuple[int, int]],
    cluster: ClusterCheck,
    timeout_s: float,
) -> None:
    """Ask a broker for its cluster id, before the connection is ready.

    Raises the error of `cluster.compare`, SilentError if the broker does not respond within
    `timeout_s` seconds, and DisconnectedError if it closes the connection.
    """
    broker, api = connection.broker, "Metadata"
    version = negotiate(MetadataRequest, versions.get(ApiKey.METADATA))
    if version < NAMES_CLUSTER:
        return
    _, segments = pipeline.send(MetadataRequest(topics=[]), version)
    traffic, time = connection.traffic, asyncio.get_running_loop().time
    traffic.log_request(broker, api, version, size_of(segments))
    began = time()
    try:
        async with asyncio.timeout(timeout_s):
            frame = await connection.exchange_frame(segments)
    except TimeoutError:
        text = f"{broker.address} did not say in which cluster it is within {timeout_s:.1f} s."
        raise diagnosis.SilentError(text, broker=broker.node_id) from None
    except DisconnectedError as error:
        text = f"{broker.address} closed the connection before it said in which cluster it is."
        raise DisconnectedError(text, api=api, broker=broker.node_id) from error
    response: MetadataResponse = pipeline.match_response(frame).decode(frame)
    traffic.log_response(broker, api, version, len(frame), time() - began, response)
    problem = cluster.compare_ids(broker.node_id, broker.address, response)
    if problem is not None:
        raise problem
