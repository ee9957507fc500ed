"""Tests of the admin calls for secured clusters: retries, old brokers, wrong arguments, secrets."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import pickle
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from hidden import assert_hidden

from aiokclient import SaslScram, threads
from aiokclient.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    Admin,
    ClientQuotaEntity,
    ClientQuotaFilter,
    ClientQuotaName,
    PatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from aiokclient.errors import (
    ApiTimeoutError,
    ClusterAuthorizationError,
    DelegationTokenNotFoundError,
    IllegalStateError,
    KafkaError,
    NotControllerError,
    ProtocolError,
    RequestTimedOutError,
    SecurityDisabledError,
    UnsupportedVersionError,
)
from aiokclient.protocol import ApiKey
from aiokclient.testing import BrokerListener, EmbeddedCluster

SECRET = "open-sesame"
ALICE = "User:alice"
CONFIGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
    "delegation.token.secret.key": "a-test-secret",
}
LISTENER = BrokerListener(mechanisms=("SCRAM-SHA-512",), users={"admin": "admin-secret"})
READ = AclBinding(ResourcePattern.topic("a"), ALICE, AclOperation.READ)
WRITE = AclBinding(ResourcePattern.topic("b"), ALICE, AclOperation.WRITE)
BOTH = AclBindingFilter(principal=ALICE)
PASSING = [NotControllerError, RequestTimedOutError]


@pytest.fixture
async def secured() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(brokers=3, listeners={"SASL": LISTENER}, configs=CONFIGS) as cluster:
        yield cluster


@pytest.fixture
async def user(secured: EmbeddedCluster) -> AsyncIterator[Admin]:
    """A client that has logged in as a super user."""
    async with Admin(
        bootstrap_servers=secured.bootstrap_servers_for("SASL"),
        security=SaslScram("admin", "admin-secret"),
        retry_backoff_ms=1,
        retry_backoff_max_ms=1,
    ) as admin:
        yield admin


def asked(cluster: EmbeddedCluster, api: ApiKey) -> list[Any]:
    return [request.message for request in cluster.requests if request.api is api]


def first_fails(field: str, error: type[KafkaError]) -> Callable[[Any, Any], Any]:
    """Return a function that sets the error code of the first result in a response."""

    def change(request: Any, response: Any) -> Any:
        getattr(response, field)[0].error_code = error.code
        return response

    return change


# -- retries ----------------------------------------------------------------------------------


@pytest.mark.parametrize("error", PASSING, ids=lambda error: error.__name__)
async def test_only_failed_acls_are_created_again(
    secured: EmbeddedCluster, user: Admin, error: type[KafkaError]
) -> None:
    with secured.alter(ApiKey.CREATE_ACLS, first_fails("results", error), times=2):
        results = await user.create_acls([READ, WRITE])
    assert results.raise_for_errors() == {READ: None, WRITE: None}
    names = [
        [each.resource_name for each in request.creations]
        for request in asked(secured, ApiKey.CREATE_ACLS)
    ]
    assert names == [["a", "b"], ["a"], ["a"]]


async def test_acls_of_a_repeated_deletion_are_all_returned(
    secured: EmbeddedCluster, user: Admin
) -> None:
    (await user.create_acls([READ, WRITE])).raise_for_errors()

    def change(request: Any, response: Any) -> Any:
        response.filter_results[0].matching_acls[0].error_code = RequestTimedOutError.code
        secured.allow(ALICE, "READ", topic="a")  # Simulate that the ACL was not deleted.
        return response

    with secured.alter(ApiKey.DELETE_ACLS, change, times=1):
        results = await user.delete_acls([BOTH])
    assert set(results.raise_for_errors()[BOTH]) == {READ, WRITE}
    assert len(asked(secured, ApiKey.DELETE_ACLS)) == 2


async def test_an_acl_that_cannot_be_deleted_is_the_error_of_its_filter(
    secured: EmbeddedCluster, user: Admin
) -> None:
    (await user.create_acls([READ, WRITE])).raise_for_errors()

    def change(request: Any, response: Any) -> Any:
        refused = response.filter_results[0].matching_acls[0]
        refused.error_code = ClusterAuthorizationError.code
        return response

    with secured.alter(ApiKey.DELETE_ACLS, change):
        results = await user.delete_acls([BOTH])
    error = results.errors[BOTH]
    assert type(error) is ClusterAuthorizationError
    assert f"in DeleteAcls for {READ}: " in str(error)
    assert error.__notes__ == [f"Deleted nevertheless: {WRITE}."]


async def test_a_result_that_is_missing_is_a_protocol_error(
    secured: EmbeddedCluster, user: Admin
) -> None:
    def change(request: Any, response: Any) -> Any:
        del response.results[1:]
        return response

    with secured.alter(ApiKey.CREATE_ACLS, change):
        results = await user.create_acls([READ, WRITE])
    assert list(results.succeeded) == [READ]
    assert type(results.errors[WRITE]) is ProtocolError


@pytest.mark.parametrize("error", PASSING, ids=lambda error: error.__name__)
async def test_a_credential_that_is_sent_again_is_the_same(
    secured: EmbeddedCluster, user: Admin, error: type[KafkaError]
) -> None:
    changes = [UserScramCredentialUpsertion("a", "p"), UserScramCredentialUpsertion("b", "p")]
    with secured.alter(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, first_fails("results", error), times=2):
        results = await user.alter_user_scram_credentials(changes)
    assert results.raise_for_errors() == {"a": None, "b": None}
    requests = asked(secured, ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
    sent = [
        [(each.name, bytes(each.salt), bytes(each.salted_password)) for each in request.upsertions]
        for request in requests
    ]
    assert [[name for name, *_ in each] for each in sent] == [["a", "b"], ["a"], ["a"]]
    assert sent[0][0] == sent[1][0] == sent[2][0]
    assert sent[0][0][1:] != sent[0][1][1:], "two users have the same salt"


@pytest.mark.parametrize("error", PASSING, ids=lambda error: error.__name__)
async def test_only_failed_quotas_are_altered_again(
    secured: EmbeddedCluster, user: Admin, error: type[KafkaError]
) -> None:
    one, other = ClientQuotaEntity(user="a"), ClientQuotaEntity(client_id="b")
    with secured.alter(ApiKey.ALTER_CLIENT_QUOTAS, first_fails("entries", error), times=1):
        results = await user.alter_client_quotas(
            {one: {"request_percentage": 1}, other: {"request_percentage": 2}}
        )
    assert results.raise_for_errors() == {one: None, other: None}
    requests = asked(secured, ApiKey.ALTER_CLIENT_QUOTAS)
    names = [[each.entity[0].entity_name for each in request.entries] for request in requests]
    assert names == [["a", "b"], ["a"]]


async def test_calls_about_one_thing_are_repeated_by_the_client(
    secured: EmbeddedCluster, user: Admin
) -> None:
    for api in (
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    ):
        secured.drop(api, times=1)
    token = await user.create_delegation_token()
    assert await user.renew_delegation_token(token) >= token.expiry_timestamp
    assert len(await user.describe_delegation_token()) == 1
    assert await user.expire_delegation_token(token)
    assert await user.describe_acls() == ()
    assert await user.describe_client_quotas() == {}
    info = (ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096),)
    assert await user.describe_user_scram_credentials() == {"admin": info}
    assert len(asked(secured, ApiKey.CREATE_DELEGATION_TOKEN)) == 2


# -- other brokers ----------------------------------------------------------------------------


async def test_a_cluster_without_authorizer_has_no_acls(admin: Admin) -> None:
    for results in (await admin.create_acls([READ]), await admin.delete_acls([BOTH])):
        ((_, error),) = results.errors.items()
        assert type(error) is SecurityDisabledError
    with pytest.raises(SecurityDisabledError, match=r"set authorizer\.class\.name"):
        await admin.describe_acls()


async def test_an_older_broker_creates_no_token_for_another_owner(
    secured: EmbeddedCluster, user: Admin
) -> None:
    secured.limit_versions({ApiKey.CREATE_DELEGATION_TOKEN: (1, 2)})
    async with Admin(
        bootstrap_servers=secured.bootstrap_servers_for("SASL"),
        security=SaslScram("admin", "admin-secret"),
    ) as admin:
        token = await admin.create_delegation_token()
        assert (token.owner, token.requester) == ("User:admin", None)
        with pytest.raises(UnsupportedVersionError, match="CreateDelegationToken"):
            await admin.create_delegation_token(owner=ALICE)


async def test_a_broker_that_lacks_the_apis_raises_unsupported_version(
    secured: EmbeddedCluster,
) -> None:
    lacking = (ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ApiKey.DESCRIBE_CLIENT_QUOTAS)
    secured.limit_versions(dict.fromkeys(lacking))
    async with Admin(bootstrap_servers=secured.bootstrap_servers) as admin:
        change = UserScramCredentialUpsertion("a", "p")
        results = await admin.alter_user_scram_credentials([change])
        assert type(results.errors["a"]) is UnsupportedVersionError
        with pytest.raises(UnsupportedVersionError):
            await admin.describe_client_quotas()


async def test_numbers_that_this_client_does_not_know_are_unknown(
    secured: EmbeddedCluster, user: Admin
) -> None:
    (await user.create_acls([READ])).raise_for_errors()

    def newer_acl(request: Any, response: Any) -> Any:
        (resource,) = response.resources
        resource.resource_type = resource.pattern_type = 99
        resource.acls[0].operation = resource.acls[0].permission_type = 99
        return response

    with secured.alter(ApiKey.DESCRIBE_ACLS, newer_acl):
        (found,) = await user.describe_acls()
    assert found == AclBinding(
        ResourcePattern(AclResourceType.UNKNOWN, "a", PatternType.UNKNOWN),
        ALICE,
        AclOperation.UNKNOWN,
        AclPermissionType.UNKNOWN,
    )

    def newer_quota(request: Any, response: Any) -> Any:
        response.entries[0].entity[0].entity_type = "galaxy"
        return response

    alice = ClientQuotaEntity(user="alice")
    (await user.alter_client_quotas({alice: {"request_percentage": 1}})).raise_for_errors()
    with secured.alter(ApiKey.DESCRIBE_CLIENT_QUOTAS, newer_quota):
        assert await user.describe_client_quotas() == {}
    assert await user.describe_client_quotas() == {alice: {"request_percentage": 1.0}}


# -- wrong arguments --------------------------------------------------------------------------

WRONG: Any = object()
TYPE_ERRORS: dict[str, Callable[[Admin], Any]] = {
    "one ACL": lambda admin: admin.create_acls(WRONG),
    "ACLs": lambda admin: admin.create_acls([WRONG]),
    "pattern": lambda admin: admin.create_acls([AclBinding(WRONG, ALICE, AclOperation.READ)]),
    "name of a pattern": lambda admin: admin.create_acls(
        [AclBinding(ResourcePattern.topic(WRONG), ALICE, AclOperation.READ)]
    ),
    "principal": lambda admin: admin.create_acls(
        [AclBinding(ResourcePattern.topic("a"), WRONG, AclOperation.READ)]
    ),
    "operation": lambda admin: admin.create_acls(
        [AclBinding(ResourcePattern.topic("a"), ALICE, 3)]  # type: ignore[arg-type]
    ),
    "filter": lambda admin: admin.describe_acls(WRONG),
    "filters": lambda admin: admin.delete_acls([READ]),  # type: ignore[list-item]
    "filter's pattern": lambda admin: admin.describe_acls(
        AclBindingFilter(ResourcePattern.topic("a"))  # type: ignore[arg-type]
    ),
    "users": lambda admin: admin.describe_user_scram_credentials("alice"),
    "one alteration": lambda admin: admin.alter_user_scram_credentials(WRONG),
    "alterations": lambda admin: admin.alter_user_scram_credentials([WRONG]),
    "renewers": lambda admin: admin.create_delegation_token(renewers=ALICE),
    "owner": lambda admin: admin.create_delegation_token(owner=WRONG),
    "lifetime": lambda admin: admin.create_delegation_token(max_lifetime_ms=1.5),  # type: ignore[arg-type]
    "token": lambda admin: admin.renew_delegation_token(WRONG),
    "bytes as a token": lambda admin: admin.expire_delegation_token(b"hmac"),  # type: ignore[arg-type]
    "owners": lambda admin: admin.describe_delegation_token(ALICE),
    "quota filter": lambda admin: admin.describe_client_quotas(WRONG),
    "name in a quota filter": lambda admin: admin.describe_client_quotas(
        ClientQuotaFilter(user=WRONG)
    ),
    "quotas": lambda admin: admin.alter_client_quotas([ClientQuotaEntity(user="a")]),  # type: ignore[arg-type]
    "entity": lambda admin: admin.alter_client_quotas({"alice": {}}),  # type: ignore[dict-item]
    "name in an entity": lambda admin: admin.alter_client_quotas(
        {ClientQuotaEntity(user=WRONG): {}}
    ),
    "value of a quota": lambda admin: admin.alter_client_quotas(
        {ClientQuotaEntity(user="a"): {"request_percentage": True}}
    ),
    "salt": lambda admin: UserScramCredentialUpsertion("a", "p", salt="salt"),  # type: ignore[arg-type]
    "password": lambda admin: UserScramCredentialUpsertion("a", b"p"),  # type: ignore[arg-type]
    "user": lambda admin: UserScramCredentialUpsertion(WRONG, "p"),
    "mechanism": lambda admin: UserScramCredentialDeletion("a", 2),  # type: ignore[arg-type]
    "iterations": lambda admin: UserScramCredentialUpsertion("a", "p", iterations="4096"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("call", TYPE_ERRORS.values(), ids=TYPE_ERRORS)
async def test_an_argument_of_a_wrong_type_raises_type_error(
    cluster: EmbeddedCluster, admin: Admin, call: Callable[[Admin], Any]
) -> None:
    before = len(cluster.requests)
    with pytest.raises(TypeError, match=r"Pass |must be bytes"):
        await call(admin)
    assert len(cluster.requests) == before


UNKNOWN_TOPIC = ResourcePattern(AclResourceType.UNKNOWN, "a")
MATCHING = ResourcePattern(AclResourceType.TOPIC, "a", PatternType.MATCH)
VALUE_ERRORS: dict[str, tuple[Callable[[Admin], Any], str]] = {
    "principal without type": (
        lambda admin: admin.create_acls(
            [AclBinding(ResourcePattern.topic("a"), "alice", AclOperation.READ)]
        ),
        "as in 'User:alice'",
    ),
    "any operation": (
        lambda admin: admin.create_acls(
            [AclBinding(ResourcePattern.topic("a"), ALICE, AclOperation.ANY)]
        ),
        r"AclOperation\.ANY is only for filters",
    ),
    "any pattern": (
        lambda admin: admin.create_acls([AclBinding(MATCHING, ALICE, AclOperation.READ)]),
        r"PatternType\.MATCH is only for filters",
    ),
    "unknown resource": (
        lambda admin: admin.create_acls([AclBinding(UNKNOWN_TOPIC, ALICE, AclOperation.READ)]),
        r"AclResourceType\.UNKNOWN .* cannot be sent",
    ),
    "unknown in a filter": (
        lambda admin: admin.describe_acls(
            AclBindingFilter(ResourcePatternFilter(pattern_type=PatternType.UNKNOWN))
        ),
        r"PatternType\.UNKNOWN .* cannot be sent",
    ),
    "principal of a filter": (
        lambda admin: admin.delete_acls([AclBindingFilter(principal="alice")]),
        "as in 'User:alice'",
    ),
    "renewer without type": (
        lambda admin: admin.create_delegation_token(renewers=["alice"]),
        "as in 'User:alice'",
    ),
    "token that is no base64": (
        lambda admin: admin.renew_delegation_token("not base64"),
        r"text that its hmac\.reveal\(\) returns",
    ),
    "no entity": (
        lambda admin: admin.alter_client_quotas({ClientQuotaEntity(): {}}),
        "needs a user, a client_id, or an ip",
    ),
    "empty name": (
        lambda admin: admin.alter_client_quotas({ClientQuotaEntity(client_id=""): {}}),
        r"Pass ClientQuotaName\.DEFAULT",
    ),
    "any entity": (
        lambda admin: admin.alter_client_quotas({ClientQuotaEntity(ip=ClientQuotaName.ANY): {}}),
        r"ClientQuotaName\.ANY is only for filters",
    ),
    "empty user": (lambda admin: UserScramCredentialDeletion(""), "must not be empty"),
    "empty password": (lambda admin: UserScramCredentialUpsertion("a", ""), "must not be empty"),
    "surrogates": (lambda admin: UserScramCredentialUpsertion("a", "\ud800"), "surrogate"),
    "mechanism": (lambda admin: UserScramCredentialUpsertion("a", "p", "PLAIN"), "Pass Scram"),
    "unknown mechanism": (
        lambda admin: UserScramCredentialDeletion("a", ScramMechanism.UNKNOWN),
        "Pass Scram",
    ),
    "few iterations": (
        lambda admin: UserScramCredentialUpsertion("a", "p", iterations=4095),
        "from 4096 to 16384",
    ),
    "very many iterations": (
        lambda admin: UserScramCredentialUpsertion("a", "p", iterations=10**9),
        "from 4096 to 16384",
    ),
}


@pytest.mark.parametrize(("call", "text"), VALUE_ERRORS.values(), ids=VALUE_ERRORS)
async def test_a_wrong_value_raises_what_to_do(
    cluster: EmbeddedCluster, admin: Admin, call: Callable[[Admin], Any], text: str
) -> None:
    before = len(cluster.requests)
    with pytest.raises(IllegalStateError, match=text):
        await call(admin)
    assert len(cluster.requests) == before


# -- secrets ----------------------------------------------------------------------------------


async def test_a_salted_password_is_that_of_rfc_5802(secured: EmbeddedCluster, user: Admin) -> None:
    change = UserScramCredentialUpsertion("a", SECRET, "SCRAM-SHA-256", 5000, b"salt")
    (await user.alter_user_scram_credentials([change])).raise_for_errors()
    ((upsertion,),) = [
        request.upsertions for request in asked(secured, ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
    ]
    assert (upsertion.mechanism, upsertion.iterations, bytes(upsertion.salt)) == (1, 5000, b"salt")
    expected = hashlib.pbkdf2_hmac("sha256", SECRET.encode(), b"salt", 5000)
    assert bytes(upsertion.salted_password) == expected


async def test_a_password_is_shown_nowhere(
    secured: EmbeddedCluster, user: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    change = UserScramCredentialUpsertion("a", SECRET)
    assert SECRET not in f"{change} {change!r}"
    with pytest.raises(TypeError):
        pickle.dumps(change)
    (await user.alter_user_scram_credentials([change])).raise_for_errors()
    with secured.fail(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ClusterAuthorizationError):
        results = await user.alter_user_scram_credentials([change])
    with pytest.raises(ClusterAuthorizationError) as caught:
        results.raise_for_errors()
    assert_hidden(caught.value, SECRET)
    assert SECRET not in caplog.text
    with pytest.raises(TypeError) as refused:
        await user.alter_user_scram_credentials([("a", SECRET)])  # type: ignore[list-item]
    assert SECRET not in str(refused.value)
    for wrong in ({"iterations": 1}, {"mechanism": "PLAIN"}, {"salt": b""}):
        with pytest.raises(IllegalStateError) as wrongly:
            UserScramCredentialUpsertion("a", SECRET, **wrong)  # type: ignore[arg-type]
        assert_hidden(wrongly.value, SECRET, source_has_it=True)


async def test_an_hmac_is_shown_nowhere(
    secured: EmbeddedCluster, user: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    token = await user.create_delegation_token()
    text = token.hmac.reveal()
    raw = repr(base64.b64decode(text))[2:-1]
    assert text not in f"{token} {token!r}"
    with pytest.raises(TypeError):
        pickle.dumps(token)
    await user.expire_delegation_token(text)
    for call in (user.renew_delegation_token, user.expire_delegation_token):
        for given in (token, text, token.hmac):
            with pytest.raises(DelegationTokenNotFoundError) as caught:
                await call(given)
            for secret in (text, raw):
                assert_hidden(caught.value, secret)
    with pytest.raises(IllegalStateError) as refused:
        await user.renew_delegation_token(f"{SECRET}!")
    assert_hidden(refused.value, SECRET, source_has_it=True)
    assert text not in caplog.text
    assert raw not in caplog.text


async def test_calls_of_tokens_can_name_their_argument(user: Admin) -> None:
    token = await user.create_delegation_token()
    assert await user.renew_delegation_token(token=token) >= token.expiry_timestamp
    assert await user.expire_delegation_token(token=token.hmac.reveal())


async def test_a_password_that_is_not_salted_in_time_is_a_timeout(
    user: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "run", lambda *args: asyncio.get_running_loop().create_future())
    change = UserScramCredentialUpsertion("a", "p")
    results = await user.alter_user_scram_credentials([change], timeout=0.05)
    assert type(results.errors["a"]) is ApiTimeoutError
    assert "The salted passwords were not computed within" in str(results.errors["a"])
