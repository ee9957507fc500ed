"""ACLs, which allow or deny operations on resources, and the admin calls about them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from aiokclient.admin.arguments import as_kind, as_name, as_principal, as_resources
from aiokclient.admin.cluster import AclOperation
from aiokclient.admin.requests import AdminRequests, Answers, read_failure
from aiokclient.admin.results import OpenEnum, Results
from aiokclient.cluster.targets import AnyBroker
from aiokclient.errors import IllegalStateError, KafkaError
from aiokclient.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from aiokclient.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
)
from aiokclient.protocol.messages.describe_acls import DescribeAclsRequest
from aiokclient.types import public_in

CLUSTER_NAME: Final = "kafka-cluster"
"""The only name of a resource of the type CLUSTER."""
DELETE: Final = "DeleteAcls"

FOR_FILTERS: Final = frozenset({"ANY", "MATCH"})
"""The members of enumerations that only filters can have."""


@public_in("aiokclient.admin")
class AclResourceType(OpenEnum):
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


@public_in("aiokclient.admin")
class PatternType(OpenEnum):
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


@public_in("aiokclient.admin")
class AclPermissionType(OpenEnum):
    """The effect of an ACL: to allow or to deny. The values are those of Kafka's protocol.

    An ACL that denies takes precedence over all that allow. ANY is for filters.
    """

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


@public_in("aiokclient.admin")
@dataclass(frozen=True, slots=True)
class ResourcePattern:
    """The resources to which an ACL applies: a type, a name, and whether the name is a prefix."""

    type: AclResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL

    @classmethod
    def topic(cls, name: str, *, prefixed: bool = False) -> ResourcePattern:
        return cls(AclResourceType.TOPIC, name, _choose_pattern_type(prefixed))

    @classmethod
    def group(cls, name: str, *, prefixed: bool = False) -> ResourcePattern:
        return cls(AclResourceType.GROUP, name, _choose_pattern_type(prefixed))

    @classmethod
    def transactional_id(cls, name: str, *, prefixed: bool = False) -> ResourcePattern:
        return cls(AclResourceType.TRANSACTIONAL_ID, name, _choose_pattern_type(prefixed))

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
        return f"{_format_name(self.type)} {self.name}{prefixed}"


@public_in("aiokclient.admin")
@dataclass(frozen=True, slots=True)
class ResourcePatternFilter:
    """A selection of patterns. A field that is not given matches every pattern."""

    type: AclResourceType = AclResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY

    def __str__(self) -> str:
        name = "*any*" if self.name is None else self.name
        return f"{_format_name(self.type)} {name} ({_format_name(self.pattern_type)})"


@public_in("aiokclient.admin")
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


@public_in("aiokclient.admin")
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


def _choose_pattern_type(prefixed: bool) -> PatternType:
    return PatternType.PREFIXED if prefixed else PatternType.LITERAL


def _format_name(member: IntEnum) -> str:
    return member.name.lower().replace("_", " ")


async def create_acls(
    requests: AdminRequests, acls: Iterable[AclBinding], timeout: float | None
) -> Results[AclBinding, None]:
    """See `Admin.create_acls`."""
    wanted = {acl: _make_creation(acl) for acl in as_resources(acls, AclBinding)}

    async def ask(
        items: dict[AclBinding, AclCreation], remaining: float
    ) -> Answers[AclBinding, None]:
        request = CreateAclsRequest(creations=list(items.values()))
        response = await requests.send_request(request, AnyBroker(), remaining)
        # The results do not name their ACLs. The results are in the order of the request.
        return {
            acl: read_failure(result, "CreateAcls", str(acl))
            for acl, result in zip(items, response.results, strict=False)
        }

    return await requests.ask_items(wanted, ask, timeout)


async def describe_acls(
    requests: AdminRequests, acl_filter: AclBindingFilter | None, timeout: float | None
) -> tuple[AclBinding, ...]:
    """See `Admin.describe_acls`."""
    wanted = AclBindingFilter() if acl_filter is None else _check_filter(acl_filter)
    request = DescribeAclsRequest(**_make_filter_fields(wanted))
    response = await requests.send_request(request, AnyBroker(), timeout)
    return tuple(
        _read_binding(resource, acl) for resource in response.resources for acl in resource.acls
    )


async def delete_acls(
    requests: AdminRequests, filters: Iterable[AclBindingFilter], timeout: float | None
) -> Results[AclBindingFilter, tuple[AclBinding, ...]]:
    """See `Admin.delete_acls`."""
    wanted = {
        each: DeleteAclsFilter(**_make_filter_fields(_check_filter(each)))
        for each in as_resources(filters, AclBindingFilter)
    }
    deleted: dict[AclBindingFilter, dict[AclBinding, None]] = {each: {} for each in wanted}

    async def ask(
        items: dict[AclBindingFilter, DeleteAclsFilter], remaining: float
    ) -> Answers[AclBindingFilter, tuple[AclBinding, ...]]:
        request = DeleteAclsRequest(filters=list(items.values()))
        response = await requests.send_request(request, AnyBroker(), remaining)
        return {
            # `deleted` also has the ACLs that an earlier attempt has deleted.
            each: _read_deleted(each, result, deleted[each])
            for each, result in zip(items, response.filter_results, strict=False)
        }

    return await requests.ask_items(wanted, ask, timeout)


def _make_creation(acl: AclBinding) -> AclCreation:
    pattern = as_kind(acl.pattern, ResourcePattern)
    as_name(pattern.name, "resource")
    as_name(acl.host, "host")
    for member, kind in (
        (pattern.type, AclResourceType),
        (pattern.pattern_type, PatternType),
        (acl.operation, AclOperation),
        (acl.permission, AclPermissionType),
    ):
        _require_known(as_kind(member, kind))
        if member.name in FOR_FILTERS:
            raise IllegalStateError(
                f"{kind.__name__}.{member.name} is only for filters. Name one {kind.__name__} for "
                "each ACL that is to be created."
            )
    return AclCreation(
        resource_type=pattern.type,
        resource_name=pattern.name,
        resource_pattern_type=pattern.pattern_type,
        principal=as_principal(acl.principal),
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _check_filter(given: AclBindingFilter) -> AclBindingFilter:
    checked = as_kind(given, AclBindingFilter)
    pattern = as_kind(checked.pattern, ResourcePatternFilter)
    _require_known(as_kind(pattern.type, AclResourceType))
    _require_known(as_kind(pattern.pattern_type, PatternType))
    _require_known(as_kind(checked.operation, AclOperation))
    _require_known(as_kind(checked.permission, AclPermissionType))
    if pattern.name is not None:
        as_name(pattern.name, "resource")
    if checked.principal is not None:
        as_principal(checked.principal)
    if checked.host is not None:
        as_name(checked.host, "host")
    return checked


def _require_known(member: IntEnum) -> None:
    # A broker that receives the value of UNKNOWN closes the connection.
    if not member:
        raise IllegalStateError(
            f"{type(member).__name__}.UNKNOWN stands for a value that this client does not know, "
            "and cannot be sent. Use another member, or a newer client."
        )


def _make_filter_fields(wanted: AclBindingFilter) -> dict[str, Any]:
    """Return the fields that the requests to describe and to delete ACLs have for a filter."""
    return {
        "resource_type_filter": wanted.pattern.type,
        "resource_name_filter": wanted.pattern.name,
        "pattern_type_filter": wanted.pattern.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


def _read_deleted(
    wanted: AclBindingFilter, result: DeleteAclsFilterResult, deleted: dict[AclBinding, None]
) -> tuple[AclBinding, ...] | KafkaError:
    """Return the deleted ACLs. If the filter or an ACL has an error, return the first one."""
    error = read_failure(result, DELETE, str(wanted))
    for acl in result.matching_acls:
        binding = _read_binding(acl, acl)
        refused = read_failure(acl, DELETE, str(binding))
        if refused is None:
            deleted[binding] = None
        error = error or refused
    if error is not None and deleted:
        error.add_note(f"Deleted nevertheless: {_format_acls(list(deleted))}.")
    return error or tuple(deleted)


def _format_acls(acls: Sequence[AclBinding]) -> str:
    shown = ", ".join(map(str, acls[:20]))
    return f"{shown}, and {len(acls) - 20} more" if len(acls) > 20 else shown


def _read_binding(resource: Any, acl: Any) -> AclBinding:
    return AclBinding(
        ResourcePattern(
            AclResourceType(resource.resource_type),
            resource.resource_name,
            PatternType(resource.pattern_type),
        ),
        acl.principal,
        AclOperation(acl.operation),
        AclPermissionType(acl.permission_type),
        acl.host,
    )
