"""AlterUserScramCredentials, key 51: sets and deletes SCRAM credentials (KIP-554)."""

from __future__ import annotations

from aiokclient.protocol.schema import (
    Request,
    Response,
    Route,
    Struct,
    array,
    bytes_,
    int8,
    int16,
    int32,
    string,
)


class ScramCredentialDeletion(Struct):
    name: str = string()
    mechanism: int = int8()


class ScramCredentialUpsertion(Struct):
    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = bytes_(secret=True)
    salted_password: bytes = bytes_(secret=True)


class AlterUserScramCredentialsRequest(
    Request["AlterUserScramCredentialsResponse"],
    key=51,
    versions="0",
    flexible="0+",
    route=Route.CONTROLLER,
):
    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


class AlterUserScramCredentialsResult(Struct):
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(null="0+")


class AlterUserScramCredentialsResponse(Response, request=AlterUserScramCredentialsRequest):
    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
