"""ACLs, which allow or deny operations of principals on resources."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from aiokclient.admin.cluster import AclOperation

__all__ = [
    "AclBinding",
    "AclBindingFilter",
    "AclPermissionType",
    "AclResourceType",
    "PatternType",
    "ResourcePattern",
    "ResourcePatternFilter",
]

CLUSTER_NAME: Final = "kafka-cluster"
"""The only name of a resource of the type CLUSTER."""


class AclResourceType(IntEnum):
    """The kinds of resources that ACLs protect. The values are those of Kafka's protocol.

    ANY is for filters. UNKNOWN is a kind that this client does not know.
    """

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7

    @classmethod
    def _missing_(cls, value: object) -> AclResourceType:
        return cls.UNKNOWN


class PatternType(IntEnum):
    """The way in which a pattern selects resources. The values are those of Kafka's protocol.

    LITERAL is the name itself, or with the name "*" all resources of the type. PREFIXED is every
    name that begins with it. ANY and MATCH are for filters: ANY selects both types of patterns,
    and MATCH those that apply to the resource with this name.
    """

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4

    @classmethod
    def _missing_(cls, value: object) -> PatternType:
        return cls.UNKNOWN


class AclPermissionType(IntEnum):
    """The effect of an ACL: to allow or to deny. The values are those of Kafka's protocol.

    An ACL that denies takes precedence over all that allow. ANY is for filters.
    """

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3

    @classmethod
    def _missing_(cls, value: object) -> AclPermissionType:
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class ResourcePattern:
    """The resources to which an ACL applies: a type, a name, and whether the name is a prefix."""

    type: AclResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL

    @classmethod
    def topic(cls, name: str, *, prefixed: bool = False) -> ResourcePattern:
        return cls(AclResourceType.TOPIC, name, _pattern_type(prefixed))

    @classmethod
    def group(cls, name: str, *, prefixed: bool = False) -> ResourcePattern:
        return cls(AclResourceType.GROUP, name, _pattern_type(prefixed))

    @classmethod
    def transactional_id(cls, name: str, *, prefixed: bool = False) -> ResourcePattern:
        return cls(AclResourceType.TRANSACTIONAL_ID, name, _pattern_type(prefixed))

    @classmethod
    def cluster(cls) -> ResourcePattern:
        return cls(AclResourceType.CLUSTER, CLUSTER_NAME)

    @classmethod
    def delegation_token(cls, token_id: str) -> ResourcePattern:
        return cls(AclResourceType.DELEGATION_TOKEN, token_id)

    @classmethod
    def user(cls, principal: str) -> ResourcePattern:
        """Return the pattern of a user whose delegation tokens others may create or describe."""
        return cls(AclResourceType.USER, principal)

    def __str__(self) -> str:
        prefixed = " (prefixed)" if self.pattern_type is PatternType.PREFIXED else ""
        return f"{_words(self.type)} {self.name}{prefixed}"


@dataclass(frozen=True, slots=True)
class ResourcePatternFilter:
    """A selection of patterns. A field that is not given matches every pattern."""

    type: AclResourceType = AclResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY

    def __str__(self) -> str:
        name = "*any*" if self.name is None else self.name
        return f"{_words(self.type)} {name} ({_words(self.pattern_type)})"


@dataclass(frozen=True, slots=True)
class AclBinding:
    """An ACL: it allows or denies an operation of a principal on the resources of a pattern.

        AclBinding(ResourcePattern.topic("orders"), "User:alice", AclOperation.READ)

    The principal is a type and a name, and "User:*" is every user. `host` is an IP address from
    which the principal connects, or "*".
    """

    pattern: ResourcePattern
    principal: str
    operation: AclOperation
    permission: AclPermissionType = AclPermissionType.ALLOW
    host: str = "*"

    def to_filter(self) -> AclBindingFilter:
        """Return the filter that selects only this ACL."""
        pattern = ResourcePatternFilter(
            self.pattern.type, self.pattern.name, self.pattern.pattern_type
        )
        return AclBindingFilter(pattern, self.principal, self.operation, self.permission, self.host)

    def __str__(self) -> str:
        return (
            f"ACL ({self.permission.name} {self.principal} {self.operation.name} on "
            f"{self.pattern}, host {self.host})"
        )


@dataclass(frozen=True, slots=True)
class AclBindingFilter:
    """A selection of ACLs. A field that is not given matches every ACL.

    So `AclBindingFilter()` selects all ACLs.
    """

    pattern: ResourcePatternFilter = ResourcePatternFilter()
    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermissionType = AclPermissionType.ANY
    host: str | None = None

    def __str__(self) -> str:
        principal = "any principal" if self.principal is None else self.principal
        host = "any host" if self.host is None else f"host {self.host}"
        return (
            f"ACL filter ({self.permission.name} {principal} {self.operation.name} on "
            f"{self.pattern}, {host})"
        )


def _pattern_type(prefixed: bool) -> PatternType:
    return PatternType.PREFIXED if prefixed else PatternType.LITERAL


def _words(member: IntEnum) -> str:
    return member.name.lower().replace("_", " ")
