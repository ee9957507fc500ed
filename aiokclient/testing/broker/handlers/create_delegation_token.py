"""CreateDelegationToken 1 to 3: a token by which other clients log in as its owner (KIP-48).

Without `delegation.token.secret.key`, the result is DELEGATION_TOKEN_AUTH_DISABLED. A client that
has not logged in, or that logged in by a token, is DELEGATION_TOKEN_REQUEST_NOT_ALLOWED. A renewer
that is not a user is INVALID_PRINCIPAL_TYPE. From version 3 on, a client that has
CreateTokens on another user can name that user as the owner.
"""

from __future__ import annotations

from aiokclient.protocol.messages import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from aiokclient.testing.broker.call import Call, Reply
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.security.acls import AclOperation, AclResource
from aiokclient.testing.broker.security.principal import USER, Principal
from aiokclient.testing.broker.security.request_checks import check_token_use

_OF_OTHERS = 3
"""The first version in which the owner can be another user than the client."""


def handle(call: Call) -> Reply:
    request: CreateDelegationTokenRequest = call.request
    requester = owner = Principal(*call.principal[:2])
    if request.owner_principal_name:
        owner = Principal(request.owner_principal_type or "", request.owner_principal_name)
    code = call.find_refusal() or check_token_use(call) or _check_request(call, request, owner)
    if code:
        return _make_response(call, owner, requester, code)
    renewers = [Principal(each.principal_type, each.principal_name) for each in request.renewers]
    tokens = call.cluster.security.tokens
    token = tokens.create_token(owner, requester, renewers, request.max_lifetime_ms)
    response = _make_response(call, owner, requester)
    response.issue_timestamp_ms = token.issued_ms
    response.expiry_timestamp_ms = token.expiry_ms
    response.max_timestamp_ms = token.max_ms
    response.token_id = token.token_id
    response.hmac = token.hmac
    return response


def _check_request(call: Call, request: CreateDelegationTokenRequest, owner: Principal) -> int:
    if any(each.principal_type != USER for each in request.renewers):
        return Code.INVALID_PRINCIPAL_TYPE
    own = str(owner) == str(call.principal)
    if own or call.is_allowed(AclOperation.CREATE_TOKENS, AclResource.USER, str(owner)):
        return Code.NONE
    return Code.DELEGATION_TOKEN_AUTHORIZATION_FAILED


def _make_response(
    call: Call, owner: Principal, requester: Principal, code: int = 0
) -> CreateDelegationTokenResponse:
    response = CreateDelegationTokenResponse(
        error_code=code,
        principal_type=owner.type,
        principal_name=owner.name,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )
    if call.version >= _OF_OTHERS:
        response.token_requester_principal_type = requester.type
        response.token_requester_principal_name = requester.name
    return response
