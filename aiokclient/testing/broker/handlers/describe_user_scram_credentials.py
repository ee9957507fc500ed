"""DescribeUserScramCredentials 0: the SCRAM mechanisms of users, and their iterations.

A request without users means all users. A user without credentials is RESOURCE_NOT_FOUND, and one
that is named twice is DUPLICATE_RESOURCE.
"""

from __future__ import annotations

from collections import Counter

from aiokclient.protocol.messages import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from aiokclient.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsResult,
)
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code, shorten_message
from aiokclient.testing.broker.security.scram import MECHANISM_IDS


async def handle(call: Call) -> Answer:
    request: DescribeUserScramCredentialsRequest = call.request
    code = call.find_refusal() or call.check_cluster_authorization()
    if code:
        return DescribeUserScramCredentialsResponse(error_code=code, error_message=None)
    names = [each.name for each in request.users or ()]
    times = Counter(names or call.cluster.security.scram.names)
    return DescribeUserScramCredentialsResponse(
        error_message=None,
        results=[
            _describe_user(call, name, count)
            async for name, count in call.iterate_items(times.items())
        ],
    )


def _describe_user(call: Call, name: str, count: int) -> DescribeUserScramCredentialsResult:
    result = DescribeUserScramCredentialsResult(user=name, error_message=None)
    found = call.cluster.security.scram.list_credentials(name)
    if count > 1:
        result.error_code = Code.DUPLICATE_RESOURCE
        text = (
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        )
        result.error_message = shorten_message(text)
    elif not found:
        result.error_code = Code.RESOURCE_NOT_FOUND
        text = f"Attempt to describe a user credential that does not exist: {name}"
        result.error_message = shorten_message(text)
    else:
        result.credential_infos = [
            CredentialInfo(mechanism=MECHANISM_IDS[mechanism], iterations=each.iterations)
            for mechanism, each in found.items()
        ]
    return result
