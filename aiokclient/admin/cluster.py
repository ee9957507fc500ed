"""The cluster as a whole: its id, its controller, its brokers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from aiokclient.admin.requests import AdminRequests
from aiokclient.cluster.targets import AnyBroker
from aiokclient.errors import UnsupportedVersionError
from aiokclient.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from aiokclient.protocol.messages.metadata import MetadataResponse
from aiokclient.protocol.wanted_topics import WantedTopicsRequest

__all__ = ["AclOperation", "BrokerDescription", "ClusterDescription", "ClusterCalls"]

NOT_ASKED = -(2**31)


class AclOperation(IntEnum):
    """What a permission is about, by Kafka's numbers."""

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


def operations(bits: int) -> frozenset[AclOperation] | None:
    """The operations whose bits are set; None if they were not asked for."""
    if bits == NOT_ASKED:
        return None
    return frozenset(operation for operation in AclOperation if bits >> operation & 1)


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """A broker; a fenced one is registered but not in service."""

    node_id: int
    host: str
    port: int
    rack: str | None = None
    fenced: bool = False


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster. `controller_id` is the broker that takes what changes the cluster.

    In KRaft mode that is any broker, which passes such requests on to the active controller.
    `authorized_operations` is None unless asked for.
    """

    cluster_id: str | None
    controller_id: int | None
    brokers: tuple[BrokerDescription, ...]
    authorized_operations: frozenset[AclOperation] | None = None


class ClusterCalls:
    """The admin calls about the cluster."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def describe_cluster(
        self,
        *,
        include_authorized_operations: bool = False,
        include_fenced_brokers: bool = False,
        timeout: float | None = None,
    ) -> ClusterDescription:
        """See `Admin.describe_cluster`."""
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=include_authorized_operations,
            include_fenced_brokers=include_fenced_brokers,
        )
        try:
            response = await self._requests.send(request, AnyBroker(), timeout)
        except UnsupportedVersionError:
            if include_fenced_brokers:
                raise
            return await self._from_metadata(include_authorized_operations, timeout)
        return _described(response)

    async def _from_metadata(self, authorized: bool, timeout: float | None) -> ClusterDescription:
        """Brokers before 2.8 say it with their metadata."""
        # Version 0 asks for all topics by naming none: they are not kept.
        request = WantedTopicsRequest([])
        request.include_cluster_authorized_operations = authorized
        response: MetadataResponse = await self._requests.send(request, AnyBroker(), timeout)
        return ClusterDescription(
            response.cluster_id,
            _broker_id(response.controller_id),
            tuple(
                BrokerDescription(broker.node_id, broker.host, broker.port, broker.rack)
                for broker in sorted(response.brokers, key=lambda broker: broker.node_id)
            ),
            operations(response.cluster_authorized_operations),
        )


def _described(response: DescribeClusterResponse) -> ClusterDescription:
    return ClusterDescription(
        response.cluster_id,
        _broker_id(response.controller_id),
        tuple(
            BrokerDescription(
                broker.broker_id, broker.host, broker.port, broker.rack, broker.is_fenced
            )
            for broker in sorted(response.brokers, key=lambda broker: broker.broker_id)
        ),
        operations(response.cluster_authorized_operations),
    )


def _broker_id(number: int) -> int | None:
    return None if number < 0 else number
