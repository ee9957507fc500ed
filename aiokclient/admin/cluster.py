"""The admin call that describes the cluster: its id, controller, and brokers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from aiokclient.admin.requests import AdminRequests
from aiokclient.admin.results import OpenEnum
from aiokclient.cluster.metadata.snapshot import BrokerInfo
from aiokclient.cluster.targets import AnyBroker
from aiokclient.errors import UnsupportedVersionError
from aiokclient.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from aiokclient.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from aiokclient.protocol.wanted_topics import WantedTopicsRequest
from aiokclient.types import public_in

NOT_ASKED = -(2**31)
"""The bits in a response to a request that did not ask for authorized operations (KIP-430)."""


@public_in("aiokclient.admin")
class AclOperation(OpenEnum):
    """The operations that an ACL can allow or deny. The values are those of Kafka's protocol.

    ANY is for filters. ALL is every operation. UNKNOWN is an operation that this client does not
    know.
    """

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


def operations(bits: int) -> frozenset[AclOperation] | None:
    """Return the operations whose bits are set, or None if the request did not ask for them."""
    if bits == NOT_ASKED:
        return None
    return frozenset(operation for operation in AclOperation if bits >> operation & 1)


@public_in("aiokclient.admin")
@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """A broker of the cluster. A fenced broker is registered but not in service."""

    node_id: int
    host: str
    port: int
    rack: str | None = None
    fenced: bool = False


@public_in("aiokclient.admin")
@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A description of the cluster. Requests that change the cluster go to `controller_id`.

    In KRaft mode, `controller_id` is an arbitrary broker, which forwards such requests to the
    active controller. `authorized_operations` is None unless the call requested it.
    """

    cluster_id: str | None
    controller_id: int | None
    brokers: tuple[BrokerDescription, ...]
    authorized_operations: frozenset[AclOperation] | None = None


def described_broker(broker: BrokerInfo | MetadataResponseBroker) -> BrokerDescription:
    """Return the description of a broker in the metadata."""
    return BrokerDescription(broker.node_id, broker.host, broker.port, broker.rack)


async def describe_cluster(
    requests: AdminRequests,
    include_authorized_operations: bool,
    include_fenced_brokers: bool,
    timeout: float | None,
) -> ClusterDescription:
    """See `Admin.describe_cluster`."""
    request = DescribeClusterRequest(
        include_cluster_authorized_operations=include_authorized_operations,
        include_fenced_brokers=include_fenced_brokers,
    )
    try:
        response = await requests.send_request(request, AnyBroker(), timeout)
    except UnsupportedVersionError:
        if include_fenced_brokers:
            raise
        return await _describe_from_metadata(requests, include_authorized_operations, timeout)
    brokers = (
        BrokerDescription(each.broker_id, each.host, each.port, each.rack, each.is_fenced)
        for each in response.brokers
    )
    return _described(response, brokers)


async def _describe_from_metadata(
    requests: AdminRequests, authorized: bool, timeout: float | None
) -> ClusterDescription:
    """Return the description from a Metadata response.

    Brokers older than 2.8 have no DescribeCluster (KIP-700).
    """
    # In version 0 of Metadata, an empty list requests all topics, not none. The response then
    # has all topics, but WantedTopicsRequest does not decode their descriptions.
    request = WantedTopicsRequest([])
    request.include_cluster_authorized_operations = authorized
    response: MetadataResponse = await requests.send_request(request, AnyBroker(), timeout)
    return _described(response, map(described_broker, response.brokers))


def _described(
    response: DescribeClusterResponse | MetadataResponse, brokers: Iterable[BrokerDescription]
) -> ClusterDescription:
    return ClusterDescription(
        response.cluster_id,
        None if response.controller_id < 0 else response.controller_id,
        tuple(sorted(brokers, key=lambda broker: broker.node_id)),
        operations(response.cluster_authorized_operations),
    )
