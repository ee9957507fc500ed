"""ACLs: who may do what, to which resources, from which hosts.

The enumerations have Kafka's numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Final, NamedTuple

WILDCARD: Final = "*"
EVERYBODY: Final = "User:*"
CLUSTER_NAME: Final = "kafka-cluster"


class AclResource(IntEnum):
    """A type of resources."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """The way in which a name in an ACL or in a filter selects resources."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """The operation of a client on a resource."""

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


class AclPermission(IntEnum):
    """The effect of an ACL: to allow or to deny an operation."""

    ANY = 1
    DENY = 2
    ALLOW = 3


IMPLIED: Final = {
    AclOperation.DESCRIBE: frozenset(
        {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset({AclOperation.ALTER_CONFIGS}),
}
"""For an operation, the operations whose permission implies it. A denial implies nothing."""


class Acl(NamedTuple):
    """One rule."""

    resource_type: int
    name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int

    def is_about_resource(self, resource_type: int, name: str) -> bool:
        """Return whether the rule is about this resource."""
        if self.resource_type != resource_type:
            return False
        if self.pattern_type == PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)

    def is_about_client(self, principal: str, host: str) -> bool:
        """Return whether the rule is about this client."""
        return self.principal in (principal, EVERYBODY) and self.host in (host, WILDCARD)

    def is_about_operation(self, operation: int) -> bool:
        """Return whether the rule is about this operation."""
        if self.operation in (operation, AclOperation.ALL):
            return True
        implied = IMPLIED.get(AclOperation(operation), ())
        return self.permission == AclPermission.ALLOW and self.operation in implied


class AclFilter(NamedTuple):
    """A selection of rules, as in DescribeAcls and DeleteAcls. None and ANY select all."""

    resource_type: int
    name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def matches(self, acl: Acl) -> bool:
        pairs = (
            (self.resource_type, acl.resource_type, AclResource.ANY),
            (self.operation, acl.operation, AclOperation.ANY),
            (self.permission, acl.permission, AclPermission.ANY),
            (self.principal, acl.principal, None),
            (self.host, acl.host, None),
        )
        if not all(wanted in (found, everything) for wanted, found, everything in pairs):
            return False
        exact = self.pattern_type in (PatternType.LITERAL, PatternType.PREFIXED)
        if exact and acl.pattern_type != self.pattern_type:
            return False
        if self.name is None:
            return True
        if self.pattern_type == PatternType.MATCH:
            return acl.is_about_resource(acl.resource_type, self.name)
        return self.name == acl.name


class Authorizer:
    """Kafka's StandardAuthorizer: a denial takes precedence, and super users may do everything.

    A resource without any rule is open to super users only, or with `allow_everyone` to
    everybody.
    """

    def __init__(self, super_users: Iterable[str], allow_everyone: bool) -> None:
        self._super_users = frozenset(super_users)
        self._allow_everyone = allow_everyone
        self._acls: dict[Acl, None] = {}

    def __iter__(self) -> Iterator[Acl]:
        return iter(list(self._acls))

    def add_acl(self, acl: Acl) -> None:
        self._acls[acl] = None

    def remove_acl(self, acl: Acl) -> None:
        self._acls.pop(acl, None)

    def is_allowed(
        self, principal: str, host: str, operation: int, resource_type: int, name: str
    ) -> bool:
        """Return whether a client may perform an operation on a resource."""
        if principal in self._super_users:
            return True
        known = allowed = False
        for acl in self._acls:
            if not acl.is_about_resource(resource_type, name):
                continue
            known = True
            if acl.is_about_client(principal, host) and acl.is_about_operation(operation):
                if acl.permission == AclPermission.DENY:
                    return False
                allowed = True
        return allowed or (not known and self._allow_everyone)

    def is_any_allowed(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Return whether a client may perform an operation on at least one resource of a type."""
        if self.is_allowed(principal, host, operation, resource_type, "hardcode"):
            return True
        own = [
            acl
            for acl in self._acls
            if acl.resource_type == resource_type
            and acl.is_about_client(principal, host)
            and acl.operation in (operation, AclOperation.ALL)
        ]
        denied = [acl for acl in own if acl.permission == AclPermission.DENY]
        return any(
            not any(_dominates(no, acl) for no in denied)
            for acl in own
            if acl.permission == AclPermission.ALLOW
        )


def _dominates(denial: Acl, allowed: Acl) -> bool:
    """Return whether a denial covers everything that another rule allows."""
    literal = denial.pattern_type == PatternType.LITERAL
    if literal and denial.name == WILDCARD:
        return True
    if literal:
        return allowed.pattern_type == PatternType.LITERAL and allowed.name == denial.name
    return allowed.name != WILDCARD and allowed.name.startswith(denial.name)
