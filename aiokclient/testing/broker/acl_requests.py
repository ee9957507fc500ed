"""The checks of ACLs and filters in requests."""

from __future__ import annotations

from typing import Final

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


def checked_acl(acl: Acl) -> None:
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
