"""The admin calls that create, describe, and delete ACLs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Final

from aiokclient.admin.acl_bindings import (
    AclBinding,
    AclBindingFilter,
    AclPermissionType,
    AclResourceType,
    PatternType,
    ResourcePattern,
    ResourcePatternFilter,
)
from aiokclient.admin.arguments import as_kind, as_name, as_principal, as_resources
from aiokclient.admin.cluster import AclOperation
from aiokclient.admin.requests import AdminRequests, Answers, failure
from aiokclient.admin.results import Results
from aiokclient.cluster.targets import AnyBroker
from aiokclient.errors import IllegalStateError, KafkaError
from aiokclient.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from aiokclient.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
)
from aiokclient.protocol.messages.describe_acls import DescribeAclsRequest

__all__ = ["AclCalls"]

DELETE: Final = "DeleteAcls"

FOR_FILTERS: Final = frozenset({"ANY", "MATCH"})
"""The members of enumerations that only filters can have."""


class AclCalls:
    """The admin calls about ACLs."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def create_acls(
        self, acls: Iterable[AclBinding], *, timeout: float | None = None
    ) -> Results[AclBinding, None]:
        """See `Admin.create_acls`."""
        wanted = {acl: _creation(acl) for acl in as_resources(acls, AclBinding)}

        async def ask(
            items: dict[AclBinding, AclCreation], remaining: float
        ) -> Answers[AclBinding, None]:
            request = CreateAclsRequest(creations=list(items.values()))
            response = await self._requests.send(request, AnyBroker(), remaining)
            # The results do not name their ACLs. The results are in the order of the request.
            return {
                acl: failure(result.error_code, result.error_message, "CreateAcls", str(acl))
                for acl, result in zip(items, response.results, strict=False)
            }

        return await self._requests.each(wanted, ask, timeout)

    async def describe_acls(
        self, acl_filter: AclBindingFilter | None = None, *, timeout: float | None = None
    ) -> tuple[AclBinding, ...]:
        """See `Admin.describe_acls`."""
        wanted = AclBindingFilter() if acl_filter is None else _checked_filter(acl_filter)
        request = DescribeAclsRequest(
            resource_type_filter=wanted.pattern.type,
            resource_name_filter=wanted.pattern.name,
            pattern_type_filter=wanted.pattern.pattern_type,
            principal_filter=wanted.principal,
            host_filter=wanted.host,
            operation=wanted.operation,
            permission_type=wanted.permission,
        )
        response = await self._requests.send(request, AnyBroker(), timeout)
        return tuple(
            AclBinding(
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
            for resource in response.resources
            for acl in resource.acls
        )

    async def delete_acls(
        self, filters: Iterable[AclBindingFilter], *, timeout: float | None = None
    ) -> Results[AclBindingFilter, tuple[AclBinding, ...]]:
        """See `Admin.delete_acls`."""
        wanted = {each: _deletion(each) for each in as_resources(filters, AclBindingFilter)}
        deleted: dict[AclBindingFilter, dict[AclBinding, None]] = {each: {} for each in wanted}

        async def ask(
            items: dict[AclBindingFilter, DeleteAclsFilter], remaining: float
        ) -> Answers[AclBindingFilter, tuple[AclBinding, ...]]:
            request = DeleteAclsRequest(filters=list(items.values()))
            response = await self._requests.send(request, AnyBroker(), remaining)
            return {
                # `deleted` also has the ACLs that an earlier attempt has deleted.
                each: _deleted(each, result, deleted[each])
                for each, result in zip(items, response.filter_results, strict=False)
            }

        return await self._requests.each(wanted, ask, timeout)


def _creation(acl: AclBinding) -> AclCreation:
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


def _checked_filter(given: AclBindingFilter) -> AclBindingFilter:
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


def _deletion(given: AclBindingFilter) -> DeleteAclsFilter:
    wanted = _checked_filter(given)
    return DeleteAclsFilter(
        resource_type_filter=wanted.pattern.type,
        resource_name_filter=wanted.pattern.name,
        pattern_type_filter=wanted.pattern.pattern_type,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )


def _deleted(
    wanted: AclBindingFilter, result: DeleteAclsFilterResult, deleted: dict[AclBinding, None]
) -> tuple[AclBinding, ...] | KafkaError:
    """Return the deleted ACLs. If the filter or an ACL has an error, return the first one."""
    error = failure(result.error_code, result.error_message, DELETE, str(wanted))
    for acl in result.matching_acls:
        binding = _binding(acl)
        refused = failure(acl.error_code, acl.error_message, DELETE, str(binding))
        if refused is None:
            deleted[binding] = None
        error = error or refused
    if error is not None and deleted:
        error.add_note(f"Deleted nevertheless: {_listed(list(deleted))}.")
    return error or tuple(deleted)


def _listed(acls: Sequence[AclBinding]) -> str:
    shown = ", ".join(map(str, acls[:20]))
    return f"{shown}, and {len(acls) - 20} more" if len(acls) > 20 else shown


def _binding(acl: DeleteAclsMatchingAcl) -> AclBinding:
    return AclBinding(
        ResourcePattern(
            AclResourceType(acl.resource_type), acl.resource_name, PatternType(acl.pattern_type)
        ),
        acl.principal,
        AclOperation(acl.operation),
        AclPermissionType(acl.permission_type),
        acl.host,
    )
