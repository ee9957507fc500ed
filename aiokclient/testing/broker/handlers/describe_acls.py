"""DescribeAcls 1 to 3: the ACLs that a filter selects, by resource.

Without an authorizer, the result is SECURITY_DISABLED. A filter with an unknown enumeration value
closes the connection.
"""

from __future__ import annotations

from aiokclient.protocol.messages import DescribeAclsRequest, DescribeAclsResponse
from aiokclient.protocol.messages.describe_acls import AclDescription, DescribeAclsResource
from aiokclient.testing.broker.call import Call, Reply
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.security.acls import AclFilter
from aiokclient.testing.broker.security.request_checks import DISABLED, is_known


def handle(call: Call) -> Reply:
    request: DescribeAclsRequest = call.request
    code = call.find_refusal() or call.check_cluster_authorization()
    if code:
        return DescribeAclsResponse(error_code=code, error_message=None)
    authorizer = call.cluster.security.authorizer
    if authorizer is None:
        return DescribeAclsResponse(error_code=Code.SECURITY_DISABLED, error_message=DISABLED)
    wanted = AclFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    if not is_known(wanted):
        call.owner.abort()
        return None
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for acl in authorizer:
        if wanted.matches(acl):
            key = (acl.resource_type, acl.name, acl.pattern_type)
            resource = resources.setdefault(
                key,
                DescribeAclsResource(
                    resource_type=acl.resource_type,
                    resource_name=acl.name,
                    pattern_type=acl.pattern_type,
                ),
            )
            resource.acls.append(
                AclDescription(
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission,
                )
            )
    return DescribeAclsResponse(error_message=None, resources=list(resources.values()))
