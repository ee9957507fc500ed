"""The requests of clients that are connected to controllers (KIP-919).

Every broker is a controller, too, as with Kafka's `process.roles=broker,controller`, and has a
listener for that, named CONTROLLER. The active controller is the one that `ClusterState.controller`
names. A controller closes the connection after a request that only brokers answer. The requests
that controllers send to each other are not served: this cluster has no replicated metadata log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiokclient.protocol import ApiKey
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.security.listeners import CONTROLLER

if TYPE_CHECKING:
    from aiokclient.testing.broker.node import Node
    from aiokclient.testing.broker.state import ClusterState

_CHANGES: Final = (
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.ELECT_LEADERS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.UPDATE_FEATURES,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.UNREGISTER_CONTROLLER,
)
_QUORUM: Final = (ApiKey.DESCRIBE_QUORUM, ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER)

ACTIVE_ONLY: Final = {
    **dict.fromkeys(_CHANGES, Code.NOT_CONTROLLER),
    **dict.fromkeys(_QUORUM, Code.NOT_LEADER_OR_FOLLOWER),
}
"""The requests that only the active controller executes, with the error code of the others."""

CONTROLLER_APIS: Final = frozenset(
    {
        *ACTIVE_ONLY,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.API_VERSIONS,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.DESCRIBE_CLUSTER,
    }
)
"""The requests that controllers answer."""


def is_answered(listener: str, api: ApiKey) -> bool:
    """Return whether requests of this API are answered at a listener."""
    return listener != CONTROLLER or api in CONTROLLER_APIS


def find_inactive_code(cluster: ClusterState, node: Node, listener: str, api: ApiKey) -> int:
    """Return the error code if only the active controller executes a request, or 0."""
    if listener != CONTROLLER or node.node_id == cluster.controller:
        return 0
    return ACTIVE_ONLY.get(api, Code.NONE)
