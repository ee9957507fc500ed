"""DescribeDelegationToken 1 to 3: tokens, of all owners or of those that the request names.

The response has only tokens that the client may see: those that it owns or may renew, those that an
ACL lets it describe, and those of users whose tokens it may describe. The refusals are those of
CreateDelegationToken.
"""

from __future__ import annotations

from aiokclient.protocol.messages import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from aiokclient.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
)
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.security.acls import AclOperation, AclResource
from aiokclient.testing.broker.security.request_checks import check_token_use
from aiokclient.testing.broker.security.tokens import DelegationToken

_OF_OTHERS = 3


async def handle(call: Call) -> Answer:
    request: DescribeDelegationTokenRequest = call.request
    code = call.find_refusal() or check_token_use(call)
    if code:
        return DescribeDelegationTokenResponse(error_code=code)
    owners = None
    if request.owners is not None:
        owners = {f"{each.principal_type}:{each.principal_name}" for each in request.owners}
    found = [
        token
        for token in call.cluster.security.tokens.list_tokens()
        if (owners is None or any(map(token.is_visible_to, owners))) and _is_visible(call, token)
    ]
    return DescribeDelegationTokenResponse(
        tokens=[_describe_token(token, call.version) async for token in call.iterate_items(found)]
    )


def _is_visible(call: Call, token: DelegationToken) -> bool:
    if token.is_visible_to(str(call.principal)):
        return True
    describe, kind = AclOperation.DESCRIBE, AclResource.DELEGATION_TOKEN
    return call.is_allowed(describe, kind, token.token_id) or call.is_allowed(
        AclOperation.DESCRIBE_TOKENS, AclResource.USER, str(token.owner)
    )


def _describe_token(token: DelegationToken, version: int) -> DescribedDelegationToken:
    described = DescribedDelegationToken(
        principal_type=token.owner.type,
        principal_name=token.owner.name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expiry_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=token.hmac,
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=each.type, principal_name=each.name)
            for each in token.renewers
        ],
    )
    if version >= _OF_OTHERS:
        described.token_requester_principal_type = token.requester.type
        described.token_requester_principal_name = token.requester.name
    return described
