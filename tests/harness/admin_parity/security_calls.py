"""The calls of this Admin about ACLs, credentials, tokens, and quotas, as Java names them."""

from __future__ import annotations

from typing import Any

from admin_parity.calls import Given, call_as
from admin_parity.forms import form, items
from aiokclient import Admin
from aiokclient.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    ClientQuotaEntity,
    ClientQuotaFilter,
    ClientQuotaName,
    DelegationToken,
    PatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ScramCredentialInfo,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

ATTRIBUTES = {"user": "user", "client-id": "client_id", "ip": "ip"}


def _acl(given: list[str]) -> AclBinding:
    kind, name, pattern, principal, operation, permission, host = given
    return AclBinding(
        ResourcePattern(AclResourceType[kind], name, PatternType[pattern]),
        principal,
        AclOperation[operation],
        AclPermissionType[permission],
        host,
    )


def _acl_filter(given: list[Any]) -> AclBindingFilter:
    kind, name, pattern, principal, operation, permission, host = given
    return AclBindingFilter(
        ResourcePatternFilter(AclResourceType[kind], name, PatternType[pattern]),
        principal,
        AclOperation[operation],
        AclPermissionType[permission],
        host,
    )


@call_as("createAcls")
async def create_acls(admin: Admin, given: Given) -> Any:
    return items(await admin.create_acls(map(_acl, given["acls"])))


@call_as("describeAcls")
async def describe_acls(admin: Admin, given: Given) -> Any:
    return form(await admin.describe_acls(_acl_filter(given["filter"])))


@call_as("deleteAcls")
async def delete_acls(admin: Admin, given: Given) -> Any:
    results = await admin.delete_acls(map(_acl_filter, given["filters"]))
    return items(
        results, lambda found: [{"binding": form(each), "exception": None} for each in found]
    )


@call_as("describeUserScramCredentials")
async def describe_user_scram_credentials(admin: Admin, given: Given) -> Any:
    def credential(each: ScramCredentialInfo) -> Any:
        return {"mechanism": each.mechanism.name, "iterations": each.iterations}

    results = await admin.describe_user_scram_credentials(given.get("users"))
    described = items(results, lambda found: [credential(each) for each in found])
    return {
        user: {"value": {"name": user, "credentialInfos": each["value"]}}
        if "value" in each
        else each
        for user, each in described.items()
    }


@call_as("alterUserScramCredentials")
async def alter_user_scram_credentials(admin: Admin, given: Given) -> Any:
    alterations = [
        UserScramCredentialDeletion(user, mechanism.replace("_", "-"))
        if not rest
        else UserScramCredentialUpsertion(user, rest[1], mechanism.replace("_", "-"), rest[0])
        for user, mechanism, *rest in given["alterations"]
    ]
    return items(await admin.alter_user_scram_credentials(alterations))


def _token(each: DelegationToken) -> Any:
    return {
        "hmacAsBase64String": each.hmac.reveal(),
        "tokenInfo": {
            "tokenId": each.token_id,
            "owner": each.owner,
            "tokenRequester": each.requester,
            "renewers": list(each.renewers),
            "issueTimestamp": each.issue_timestamp,
            "expiryTimestamp": each.expiry_timestamp,
            "maxTimestamp": each.max_timestamp,
        },
    }


@call_as("createDelegationToken")
async def create_delegation_token(admin: Admin, given: Given) -> Any:
    return _token(
        await admin.create_delegation_token(
            owner=given.get("owner"),
            renewers=given.get("renewers", ()),
            max_lifetime_ms=given.get("maxLifetimeMs", -1),
        )
    )


@call_as("describeDelegationToken")
async def describe_delegation_token(admin: Admin, given: Given) -> Any:
    return [_token(each) for each in await admin.describe_delegation_token(given.get("owners"))]


@call_as("renewDelegationToken")
async def renew_delegation_token(admin: Admin, given: Given) -> Any:
    return await admin.renew_delegation_token(given["hmac"], renew_time_period_ms=given["periodMs"])


@call_as("expireDelegationToken")
async def expire_delegation_token(admin: Admin, given: Given) -> Any:
    return await admin.expire_delegation_token(
        given["hmac"], expiry_time_period_ms=given["periodMs"]
    )


@call_as("describeClientQuotas")
async def describe_client_quotas(admin: Admin, given: Given) -> Any:
    names = {
        ATTRIBUTES[kind]: ClientQuotaName.ANY
        if not rest
        else ClientQuotaName.DEFAULT
        if rest[0] is None
        else rest[0]
        for kind, *rest in given["components"]
    }
    quota_filter = ClientQuotaFilter(**names, strict=given.get("strict", False))
    found = await admin.describe_client_quotas(quota_filter)
    return form(found)


@call_as("alterClientQuotas")
async def alter_client_quotas(admin: Admin, given: Given) -> Any:
    changes = {
        ClientQuotaEntity(
            **{
                ATTRIBUTES[kind]: ClientQuotaName.DEFAULT if name is None else name
                for kind, name in entity.items()
            }
        ): dict(quotas)
        for entity, quotas in given["changes"]
    }
    validate_only = given.get("validateOnly", False)
    return items(await admin.alter_client_quotas(changes, validate_only=validate_only))
