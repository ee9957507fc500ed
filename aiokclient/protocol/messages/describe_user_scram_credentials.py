"""DescribeUserScramCredentials, key 50: returns the SCRAM mechanisms of users (KIP-554)."""

from __future__ import annotations

from aiokclient.protocol.schema import (
    Request,
    Response,
    Route,
    Struct,
    array,
    int8,
    int16,
    int32,
    string,
)


class UserName(Struct):
    name: str = string()


class DescribeUserScramCredentialsRequest(
    Request["DescribeUserScramCredentialsResponse"],
    key=50,
    versions="0",
    flexible="0+",
    route=Route.ANY,
):
    users: list[UserName] | None = array(UserName, null="0+")


class CredentialInfo(Struct):
    mechanism: int = int8()
    iterations: int = int32()


class DescribeUserScramCredentialsResult(Struct):
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(null="0+")
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


class DescribeUserScramCredentialsResponse(Response, request=DescribeUserScramCredentialsRequest):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+")
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)
