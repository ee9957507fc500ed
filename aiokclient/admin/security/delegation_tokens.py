"""The admin calls that create, renew, expire, and describe delegation tokens (KIP-48).

A token's HMAC is its password. The library keeps each HMAC in a `Secret`.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from aiokclient.admin.arguments import as_names, as_principal, require_integer
from aiokclient.admin.requests import AdminRequests
from aiokclient.cluster.targets import AnyBroker
from aiokclient.config.secret import Secret
from aiokclient.errors import IllegalStateError
from aiokclient.errors.local import ArgumentTypeError
from aiokclient.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from aiokclient.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from aiokclient.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from aiokclient.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from aiokclient.types import public_in

MILLISECONDS: Final = "a number of milliseconds"


@public_in("aiokclient.admin")
@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A delegation token, with which other clients log in as its owner.

        SaslScram(token.token_id, token.hmac, token_auth=True)

    `hmac` is a secret. `token.hmac.reveal()` returns its text, in base64, for another process. The
    owner, the requester, and the renewers are principals, such as "User:alice". `requester` is the
    principal that created the token, or None if the broker is older than 3.3. Timestamps are
    milliseconds since the epoch: the token is valid until `expiry_timestamp`, and can be renewed
    until `max_timestamp`.
    """

    token_id: str
    hmac: Secret = field(repr=False)
    owner: str
    requester: str | None
    renewers: tuple[str, ...]
    issue_timestamp: int
    expiry_timestamp: int
    max_timestamp: int


TokenOrHmac: TypeAlias = DelegationToken | Secret | str
"""A token, or its HMAC in base64."""


async def create_delegation_token(
    requests: AdminRequests,
    owner: str | None,
    renewers: Iterable[str],
    max_lifetime_ms: int,
    timeout: float | None,
) -> DelegationToken:
    """See `Admin.create_delegation_token`."""
    require_integer(max_lifetime_ms, MILLISECONDS)
    principals = [_split_principal(each) for each in as_names(renewers)]
    request = CreateDelegationTokenRequest(
        renewers=[
            CreatableRenewers(principal_type=kind, principal_name=name) for kind, name in principals
        ],
        max_lifetime_ms=max_lifetime_ms,
    )
    if owner is not None:
        request.owner_principal_type, request.owner_principal_name = _split_principal(owner)
    response = await requests.send_request(request, AnyBroker(), timeout)
    return _read_token(
        response,
        principals,
        response.issue_timestamp_ms,
        response.expiry_timestamp_ms,
        response.max_timestamp_ms,
    )


async def renew_delegation_token(
    requests: AdminRequests, token: TokenOrHmac, renew_time_period_ms: int, timeout: float | None
) -> int:
    """See `Admin.renew_delegation_token`."""
    require_integer(renew_time_period_ms, MILLISECONDS)
    request = RenewDelegationTokenRequest(
        hmac=_decode_hmac(token), renew_period_ms=renew_time_period_ms
    )
    response = await requests.send_request(request, AnyBroker(), timeout)
    return int(response.expiry_timestamp_ms)


async def expire_delegation_token(
    requests: AdminRequests, token: TokenOrHmac, expiry_time_period_ms: int, timeout: float | None
) -> int:
    """See `Admin.expire_delegation_token`."""
    require_integer(expiry_time_period_ms, MILLISECONDS)
    request = ExpireDelegationTokenRequest(
        hmac=_decode_hmac(token), expiry_time_period_ms=expiry_time_period_ms
    )
    response = await requests.send_request(request, AnyBroker(), timeout)
    expiry = int(response.expiry_timestamp_ms)
    # Brokers in KRaft mode return the negative period if they have removed the token.
    return expiry if expiry >= 0 else requests.cluster.clock.time_ms()


async def describe_delegation_token(
    requests: AdminRequests, owners: Iterable[str] | None, timeout: float | None
) -> tuple[DelegationToken, ...]:
    """See `Admin.describe_delegation_token`."""
    wanted = None if owners is None else [_split_principal(each) for each in as_names(owners)]
    if wanted is not None and not wanted:
        requests.require_open()
        return ()
    request = DescribeDelegationTokenRequest(
        owners=None
        if wanted is None
        else [
            DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
            for kind, name in wanted
        ]
    )
    response = await requests.send_request(request, AnyBroker(), timeout)
    return tuple(
        _read_token(
            token,
            [(each.principal_type, each.principal_name) for each in token.renewers],
            token.issue_timestamp,
            token.expiry_timestamp,
            token.max_timestamp,
        )
        for token in response.tokens
    )


def _read_token(
    token: CreateDelegationTokenResponse | DescribedDelegationToken,
    renewers: Iterable[tuple[str, str]],
    issue_timestamp: int,
    expiry_timestamp: int,
    max_timestamp: int,
) -> DelegationToken:
    requester, name = token.token_requester_principal_type, token.token_requester_principal_name
    return DelegationToken(
        token.token_id,
        Secret(b2a_base64(token.hmac, newline=False).decode()),
        _join_principal(token.principal_type, token.principal_name),
        _join_principal(requester, name) if requester else None,
        tuple(_join_principal(kind, name) for kind, name in renewers),
        issue_timestamp,
        expiry_timestamp,
        max_timestamp,
    )


def _join_principal(kind: str, name: str) -> str:
    return f"{kind}:{name}"


def _split_principal(principal: str) -> tuple[str, str]:
    """Return the type and the name of a principal."""
    kind, _, name = as_principal(principal).partition(":")
    return kind, name


def _decode_hmac(token: TokenOrHmac) -> bytes:
    """Return the bytes of a token's HMAC.

    The caller must not keep them in a variable, because tracebacks show variables.
    """
    secret = token.hmac if isinstance(token, DelegationToken) else Secret(token)
    if not secret.is_text:
        raise ArgumentTypeError(
            "The token has the wrong type. Pass the DelegationToken, or its HMAC in base64 as a "
            "str."
        )
    if not _is_base64(secret):
        raise IllegalStateError(
            "The HMAC of the token is not in base64. Pass the DelegationToken, or the text that "
            "its hmac.reveal() returns."
        )
    return a2b_base64(secret.reveal(), strict_mode=True)


def _is_base64(secret: Secret) -> bool:
    try:
        return bool(a2b_base64(secret.reveal(), strict_mode=True))
    except ValueError:
        return False
