"""AlterUserScramCredentials 0: add, replace, and remove the SCRAM credentials of users.

Each user has one result. A user with an error is not changed. The errors are:

* DUPLICATE_RESOURCE: the user is altered twice, even if for two mechanisms.
* UNSUPPORTED_SASL_MECHANISM: the mechanism is unknown.
* RESOURCE_NOT_FOUND: the credential to remove does not exist.
* UNACCEPTABLE_CREDENTIAL: the name is empty, or the number of iterations is not from 4096 to 16384.
"""

from __future__ import annotations

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
    make_salted_credential,
)

_NAMES = {number: name for name, number in MECHANISM_IDS.items()}


async def handle(call: Call) -> Answer:
    request: AlterUserScramCredentialsRequest = call.request
    changes: list[ScramCredentialDeletion | ScramCredentialUpsertion] = []
    changes += request.deletions
    changes += request.upsertions
    denied = call.find_refusal() or call.check_cluster_authorization()
    accepted: dict[str, ScramCredentialDeletion | ScramCredentialUpsertion] = {}
    results: dict[str, AlterUserScramCredentialsResult] = {}
    async for change in call.iterate_items(changes):
        result = results.setdefault(
            change.name,
            AlterUserScramCredentialsResult(
                user=change.name, error_code=denied, error_message=None
            ),
        )
        try:
            if not result.error_code:
                _check_change(call, change, twice=accepted.pop(change.name, None) is not None)
                accepted[change.name] = change
        except Refused as refused:
            result.error_code, result.error_message = refused.code, refused.message
    scram = call.cluster.security.scram
    async for each in call.iterate_items(accepted.values()):
        mechanism = _NAMES[each.mechanism]
        if isinstance(each, ScramCredentialDeletion):
            scram.remove_credential(each.name, mechanism)
        else:
            salted, salt = bytes(each.salted_password), bytes(each.salt)
            stored = make_salted_credential(mechanism, salted, salt, each.iterations)
            scram.store_credential(each.name, mechanism, stored)
    return AlterUserScramCredentialsResponse(results=list(results.values()))


def _check_change(
    call: Call, change: ScramCredentialDeletion | ScramCredentialUpsertion, *, twice: bool
) -> None:
    """Raise Refused if a change is not valid."""
    if twice:
        raise Refused(
            Code.DUPLICATE_RESOURCE,
            "A user credential cannot be altered twice in the same request",
        )
    if not change.name:
        raise Refused(Code.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    _check_mechanism(change.mechanism)
    if isinstance(change, ScramCredentialUpsertion):
        _check_iterations(change)
    elif call.cluster.security.scram.find_credential(change.name, _NAMES[change.mechanism]) is None:
        raise Refused(
            Code.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
        )


def _check_mechanism(number: int) -> None:
    if number not in _NAMES:
        raise Refused(Code.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")


def _check_iterations(wanted: ScramCredentialUpsertion) -> None:
    if wanted.iterations < LEAST_ITERATIONS:
        raise Refused(Code.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if wanted.iterations > MOST_ITERATIONS:
        raise Refused(Code.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
