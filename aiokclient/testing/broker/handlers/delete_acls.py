"""DeleteAcls 1 to 3: remove the ACLs that each of the filters selects, and return them.

Without an authorizer, the result of each filter is SECURITY_DISABLED. A filter with an
unknown enumeration value closes the connection.
"""

from __future__ import annotations

from aiokclient.protocol.messages import DeleteAclsRequest, DeleteAclsResponse
from aiokclient.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
)
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.security.acls import Acl, AclFilter, Authorizer
from aiokclient.testing.broker.security.request_checks import DISABLED, is_known


async def handle(call: Call) -> Answer:
    request: DeleteAclsRequest = call.request
    if not all(is_known(_read_filter(each)) for each in request.filters):
        call.owner.abort()
        return None
    code = call.find_refusal() or call.check_cluster_authorization()
    authorizer = call.cluster.security.authorizer
    results: list[DeleteAclsFilterResult] = []
    removed: list[Acl] = []
    async for each in call.iterate_items(request.filters):
        if code:
            results.append(DeleteAclsFilterResult(error_code=code, error_message=None))
        elif authorizer is None:
            disabled = Code.SECURITY_DISABLED
            results.append(DeleteAclsFilterResult(error_code=disabled, error_message=DISABLED))
        else:
            results.append(_collect_matching(authorizer, each, removed))
    # A rule that several filters select is in the result of each of these filters.
    for acl in removed:
        if authorizer is not None:
            authorizer.remove_acl(acl)
    return DeleteAclsResponse(filter_results=results)


def _read_filter(asked: DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )


def _collect_matching(
    authorizer: Authorizer, asked: DeleteAclsFilter, removed: list[Acl]
) -> DeleteAclsFilterResult:
    wanted = _read_filter(asked)
    found = [acl for acl in authorizer if wanted.matches(acl)]
    removed += found
    return DeleteAclsFilterResult(
        error_message=None,
        matching_acls=[
            DeleteAclsMatchingAcl(
                error_message=None,
                resource_type=acl.resource_type,
                resource_name=acl.name,
                pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in found
        ],
    )
