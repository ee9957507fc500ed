"""Controls of the embedded cluster that add ACLs."""

from __future__ import annotations

from enum import IntEnum
from typing import Literal, TypeAlias

from aiokclient.testing.broker.security.acls import (
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    AclOperation,
    AclPermission,
    AclResource,
    PatternType,
)
from aiokclient.testing.broker.security.principal import parse_principal
from aiokclient.testing.controls.base import Controls

Operation: TypeAlias = Literal[
    "ALL",
    "READ",
    "WRITE",
    "CREATE",
    "DELETE",
    "ALTER",
    "DESCRIBE",
    "CLUSTER_ACTION",
    "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS",
    "IDEMPOTENT_WRITE",
]


class AclControls(Controls):
    """Controls that allow and deny what clients do."""

    def allow(
        self,
        principal: str,
        operation: Operation | IntEnum,
        *,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        host: str = WILDCARD,
        prefixed: bool = False,
    ) -> None:
        """Add an ACL that allows an operation on a topic, a group, or a transactional id.

        Without any of them, it is an operation on the cluster. The principal is a text such as
        "User:alice", or "User:*" for everybody. The operation is a name such as "READ", or a
        `aiokclient.AclOperation`. The name "*" means all resources. With `prefixed`,
        the ACL applies to all names that begin with the given one. READ, WRITE, DELETE, and ALTER
        imply DESCRIBE, and ALTER_CONFIGS implies DESCRIBE_CONFIGS.

        Raises ValueError if the cluster has no authorizer, or for unknown values.
        """
        resource = _read_resource(topic, group, transactional_id)
        self._add_acl(AclPermission.ALLOW, principal, operation, resource, host, prefixed)

    def deny(
        self,
        principal: str,
        operation: Operation | IntEnum,
        *,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        host: str = WILDCARD,
        prefixed: bool = False,
    ) -> None:
        """Add an ACL that denies an operation, whatever other ACLs allow.

        The arguments are those of `allow`. A denial implies nothing.
        """
        resource = _read_resource(topic, group, transactional_id)
        self._add_acl(AclPermission.DENY, principal, operation, resource, host, prefixed)

    def _add_acl(
        self,
        permission: AclPermission,
        principal: str,
        operation: str | IntEnum,
        resource: tuple[AclResource, str],
        host: str,
        prefixed: bool,
    ) -> None:
        authorizer = self._state.security.authorizer
        if authorizer is None:
            raise ValueError(
                "The cluster has no authorizer. Set the config authorizer.class.name to "
                "org.apache.kafka.metadata.authorizer.StandardAuthorizer."
            )
        # The package's own AclOperation has the same names.
        operation = operation.name if isinstance(operation, IntEnum) else operation
        if operation not in AclOperation.__members__ or operation == "ANY":
            known = ", ".join(each for each in AclOperation.__members__ if each != "ANY")
            raise ValueError(f"operation={operation!r}: Use one of {known}.")
        pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
        acl = Acl(
            *resource,
            pattern,
            str(parse_principal(principal)),
            host,
            AclOperation[operation],
            permission,
        )
        # While the cluster is not running, no other thread uses the authorizer.
        if self._runner.is_running:
            self._runner.call_in_loop(lambda: authorizer.add_acl(acl))
        else:
            authorizer.add_acl(acl)


def _read_resource(
    topic: str | None, group: str | None, transactional_id: str | None
) -> tuple[AclResource, str]:
    named = [
        (kind, name)
        for kind, name in (
            (AclResource.TOPIC, topic),
            (AclResource.GROUP, group),
            (AclResource.TRANSACTIONAL_ID, transactional_id),
        )
        if name is not None
    ]
    if len(named) > 1:
        raise ValueError("An ACL has one resource. Pass one of topic, group, and transactional_id.")
    return named[0] if named else (AclResource.CLUSTER, CLUSTER_NAME)
