"""The authorized operations in responses: those that the client may perform on a resource."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from aiokclient.testing.broker.security.acls import CLUSTER_NAME, AclOperation, AclResource

if TYPE_CHECKING:
    from aiokclient.testing.broker.call import Call

_CONFIGS = (AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS)
_OPERATIONS: Final[Mapping[AclResource, tuple[AclOperation, ...]]] = {
    AclResource.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        *_CONFIGS,
    ),
    AclResource.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        *_CONFIGS,
    ),
    AclResource.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        *_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
}


def authorized(call: Call, resource_type: AclResource, name: str) -> int:
    """Return the bits of the operations that the client may perform on a resource."""
    operations = _OPERATIONS[resource_type]
    return sum(1 << each for each in operations if call.allows(each, resource_type, name))


def authorized_on_cluster(call: Call) -> int:
    """Return the bits for the cluster: none if the client may not describe it."""
    if not call.allows(AclOperation.DESCRIBE, AclResource.CLUSTER, CLUSTER_NAME):
        return 0
    return authorized(call, AclResource.CLUSTER, CLUSTER_NAME)
