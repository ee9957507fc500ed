"""CreateAcls 1 to 3: add ACLs. An ACL that exists already is accepted.

Each ACL has its own result. An ACL without a name, or with another name for the cluster than
"kafka-cluster", is INVALID_REQUEST, and an ACL with a value that only filters may have is
UNKNOWN_SERVER_ERROR. Without an authorizer, all are SECURITY_DISABLED. An unknown enumeration value
closes the connection.
"""

from __future__ import annotations

from aiokclient.protocol.messages import CreateAclsRequest, CreateAclsResponse
from aiokclient.protocol.messages.create_acls import AclCreation, AclCreationResult
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.security.acls import Acl
from aiokclient.testing.broker.security.request_checks import DISABLED, check_acl, is_known


async def handle(call: Call) -> Answer:
    request: CreateAclsRequest = call.request
    if not all(is_known(_read_acl(each)) for each in request.creations):
        call.owner.abort()
        return None
    return CreateAclsResponse(
        results=[_create_acl(call, each) async for each in call.iterate_items(request.creations)]
    )


def _create_acl(call: Call, wanted: AclCreation) -> AclCreationResult:
    code = call.find_refusal() or call.check_cluster_authorization()
    if code:
        return AclCreationResult(error_code=code, error_message=None)
    authorizer = call.cluster.security.authorizer
    if authorizer is None:
        return AclCreationResult(error_code=Code.SECURITY_DISABLED, error_message=DISABLED)
    acl = _read_acl(wanted)
    try:
        check_acl(acl)
    except Refused as refused:
        return AclCreationResult(error_code=refused.code, error_message=refused.message)
    authorizer.add_acl(acl)
    return AclCreationResult(error_message=None)


def _read_acl(wanted: AclCreation) -> Acl:
    return Acl(
        wanted.resource_type,
        wanted.resource_name,
        wanted.resource_pattern_type,
        wanted.principal,
        wanted.host,
        wanted.operation,
        wanted.permission_type,
    )
