"""The common parts of requests about ACLs, delegation tokens, and authorized operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.security.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResource,
    PatternType,
)
from aiokclient.testing.broker.security.principal import ANONYMOUS

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


def find_authorized(call: Call, resource_type: AclResource, name: str) -> int:
    """Return the bits of the operations that the client may perform on a resource."""
    operations = _OPERATIONS[resource_type]
    return sum(1 << each for each in operations if call.is_allowed(each, resource_type, name))


def find_authorized_on_cluster(call: Call) -> int:
    """Return the bits for the cluster: none if the client may not describe it."""
    if not call.is_allowed(AclOperation.DESCRIBE, AclResource.CLUSTER, CLUSTER_NAME):
        return 0
    return find_authorized(call, AclResource.CLUSTER, CLUSTER_NAME)


DISABLED: Final = "No Authorizer is configured."
_KINDS = (AclResource, PatternType, AclOperation, AclPermission)


def is_known(wanted: Acl | AclFilter) -> bool:
    """Return whether all enumeration values of an ACL or a filter are known.

    Kafka closes the connection if one is not.
    """
    numbers = (wanted.resource_type, wanted.pattern_type, wanted.operation, wanted.permission)
    return all(
        number in kind.__members__.values() for kind, number in zip(_KINDS, numbers, strict=True)
    )


def check_acl(acl: Acl) -> None:
    """Raise Refused if an ACL is not a complete rule."""
    selects = (
        acl.resource_type == AclResource.ANY
        or acl.pattern_type in (PatternType.ANY, PatternType.MATCH)
        or acl.operation == AclOperation.ANY
        or acl.permission == AclPermission.ANY
    )
    if selects:
        raise Refused(Code.UNKNOWN_SERVER_ERROR, "")
    if not acl.name:
        raise Refused(Code.INVALID_REQUEST, "Invalid empty resource name")
    if acl.resource_type == AclResource.CLUSTER and acl.name != CLUSTER_NAME:
        raise Refused(
            Code.INVALID_REQUEST,
            f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}",
        )
    kind, colon, name = acl.principal.partition(":")
    if not (kind and colon and name):
        raise Refused(
            Code.INVALID_REQUEST,
            f"Could not parse principal from `{acl.principal}` (no colon is present separating "
            "the principal type from the principal name)",
        )


def check_token_use(call: Call) -> int:
    """Return the error code of a client that cannot use tokens, or 0."""
    principal = call.principal
    if principal.token or principal == ANONYMOUS:
        return Code.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    if not call.cluster.security.tokens.is_enabled:
        return Code.DELEGATION_TOKEN_AUTH_DISABLED
    return Code.NONE
