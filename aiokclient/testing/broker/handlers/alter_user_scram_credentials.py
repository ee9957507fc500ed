"""AlterUserScramCredentials 0: add, replace, and remove the SCRAM credentials of users.

Each user has one result. A mechanism that is altered twice for a user is DUPLICATE_RESOURCE, an
unknown one UNSUPPORTED_SASL_MECHANISM, a removed one that does not exist RESOURCE_NOT_FOUND, and an
empty name or a number of iterations that is not from 4096 to 16384 UNACCEPTABLE_CREDENTIAL. A user
with an error is not changed.
"""

from __future__ import annotations

from collections import Counter

from aiokclient.protocol.messages import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from aiokclient.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.security.scram import (
    LEAST_ITERATIONS,
    MECHANISM_IDS,
    MOST_ITERATIONS,
    credential_of_salted,
)

_NAMES = {number: name for name, number in MECHANISM_IDS.items()}


async def handle(call: Call) -> Answer:
    request: AlterUserScramCredentialsRequest = call.request
    changes: list[ScramCredentialDeletion | ScramCredentialUpsertion] = []
    changes += request.deletions
    changes += request.upsertions
    denied = call.refused() or call.unauthorized_on_cluster()
    times = Counter((each.name, each.mechanism) for each in changes)
    results = {}
    for name in dict.fromkeys(each.name for each in changes):
        result = results[name] = AlterUserScramCredentialsResult(
            user=name, error_code=denied, error_message=None
        )
        try:
            if not denied:
                _check(call, name, request, times)
        except Refused as refused:
            result.error_code, result.error_message = refused.code, refused.message
    scram = call.cluster.security.scram
    async for removed in call.each(request.deletions):
        if not results[removed.name].error_code:
            scram.remove(removed.name, _NAMES[removed.mechanism])
    async for each in call.each(request.upsertions):
        if not results[each.name].error_code:
            mechanism = _NAMES[each.mechanism]
            salted, salt = bytes(each.salted_password), bytes(each.salt)
            stored = credential_of_salted(mechanism, salted, salt, each.iterations)
            scram.put(each.name, mechanism, stored)
    return AlterUserScramCredentialsResponse(results=list(results.values()))


def _check(
    call: Call,
    name: str,
    request: AlterUserScramCredentialsRequest,
    times: Counter[tuple[str, int]],
) -> None:
    """Raise Refused if the changes of a user are not valid."""
    if any(count > 1 and key[0] == name for key, count in times.items()):
        raise Refused(
            Code.DUPLICATE_RESOURCE,
            "A user credential cannot be altered twice in the same request",
        )
    if not name:
        raise Refused(Code.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    for removed in request.deletions:
        if removed.name == name:
            _check_mechanism(removed.mechanism)
            if call.cluster.security.scram.find(name, _NAMES[removed.mechanism]) is None:
                raise Refused(
                    Code.RESOURCE_NOT_FOUND,
                    "Attempt to delete a user credential that does not exist",
                )
    for each in request.upsertions:
        if each.name == name:
            _check_mechanism(each.mechanism)
            _check_iterations(each)


def _check_mechanism(number: int) -> None:
    if number not in _NAMES:
        raise Refused(Code.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")


def _check_iterations(wanted: ScramCredentialUpsertion) -> None:
    if wanted.iterations < LEAST_ITERATIONS:
        raise Refused(Code.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if wanted.iterations > MOST_ITERATIONS:
        raise Refused(Code.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
