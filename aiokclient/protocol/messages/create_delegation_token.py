"""CreateDelegationToken, key 38: creates a delegation token (KIP-48)."""

from __future__ import annotations

from aiokclient.protocol.schema import (
    Request,
    Response,
    Route,
    Struct,
    array,
    bytes_,
    int16,
    int32,
    int64,
    string,
)


class CreatableRenewers(Struct):
    principal_type: str = string()
    principal_name: str = string()


class CreateDelegationTokenRequest(
    Request["CreateDelegationTokenResponse"], key=38, versions="1-3", flexible="2+", route=Route.ANY
):
    owner_principal_type: str | None = string("3+", null="0+")
    owner_principal_name: str | None = string("3+", null="0+")
    renewers: list[CreatableRenewers] = array(CreatableRenewers)
    max_lifetime_ms: int = int64()


class CreateDelegationTokenResponse(Response, request=CreateDelegationTokenRequest):
    error_code: int = int16()
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp_ms: int = int64()
    expiry_timestamp_ms: int = int64()
    max_timestamp_ms: int = int64()
    token_id: str = string()
    hmac: bytes = bytes_(secret=True)
    throttle_time_ms: int = int32()
