"""The admin calls for secured clusters, with the same results as on a real Kafka.

They concern ACLs, SCRAM credentials, delegation tokens, and client quotas.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from share_member import SharingMember

from aiokclient import Client, SaslScram
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
    DelegationToken,
    NewTopic,
    PatternType,
    ResourcePattern,
    ResourcePatternFilter,
    Results,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from aiokclient.errors import (
    ClusterAuthorizationError,
    DelegationTokenAuthorizationError,
    DelegationTokenNotFoundError,
    DelegationTokenOwnerMismatchError,
    DuplicateResourceError,
    InvalidRequestError,
    KafkaError,
    ResourceNotFoundError,
    SaslAuthenticationError,
    TopicAuthorizationError,
    UnacceptableCredentialError,
    UnsupportedByAuthenticationError,
)
from aiokclient.testing import BrokerListener, EmbeddedCluster

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
CONFIGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "delegation.token.secret.key": "a-test-secret",
}
SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
WAIT_S = 30


class Secured:
    """A cluster with an authorizer.

    At `bootstrap`, clients are super users; at `sasl`, they log in.
    """

    def __init__(self, bootstrap: str, sasl: str) -> None:
        self.bootstrap, self.sasl = bootstrap, sasl

    def admin(self, security: SaslScram | None = None) -> Admin:
        if security is None:
            return Admin(bootstrap_servers=self.bootstrap)
        return Admin(bootstrap_servers=self.sasl, security=security)

    @asynccontextmanager
    async def logged_in(self, security: SaslScram) -> AsyncIterator[Admin]:
        """Yield a started client. A broker may learn of new credentials with a short delay."""
        async with asyncio.timeout(WAIT_S):
            while not await self.accepts(security):
                pass
        async with self.admin(security) as admin:
            yield admin

    async def accepts(self, security: SaslScram) -> bool:
        """Return whether a client can log in."""
        admin = self.admin(security)
        try:
            await admin.start()
        except SaslAuthenticationError:
            return False
        finally:
            await admin.close()
        return True


@pytest.fixture(scope="module", params=["embedded", "kafka"])
def secured(request: pytest.FixtureRequest) -> Iterator[Secured]:
    if request.param == "embedded":
        listeners = {"SASL": BrokerListener(mechanisms=MECHANISMS)}
        with EmbeddedCluster(listeners=listeners, configs=CONFIGS) as cluster:
            yield Secured(cluster.bootstrap_servers, cluster.bootstrap_servers_for("SASL"))
        return
    kafka = request.getfixturevalue("kafka_secured")
    yield Secured(kafka.bootstrap, kafka.listener("SASL"))


@pytest.fixture
async def admin(secured: Secured) -> AsyncIterator[Admin]:
    async with secured.admin() as admin:
        yield admin


@pytest.fixture
def name() -> str:
    return f"sec-{uuid.uuid4().hex[:12]}"


@pytest.fixture
async def alice(secured: Secured, admin: Admin, name: str) -> AsyncIterator[tuple[str, Admin]]:
    """The principal of a new user, and a client that has logged in as that user."""
    (
        await admin.alter_user_scram_credentials([UserScramCredentialUpsertion(name, "a-password")])
    ).raise_for_errors()
    async with secured.logged_in(SaslScram(name, "a-password")) as own:
        yield f"User:{name}", own


async def becomes(expected: object, call: Callable[[], Awaitable[object]]) -> None:
    """Wait until a call returns `expected`. A broker may learn of changes with a short delay."""
    found: object = None
    try:
        async with asyncio.timeout(WAIT_S):
            while (found := await call()) != expected:
                pass
    except TimeoutError:
        raise AssertionError(
            f"The result is {found!r} after {WAIT_S} s, not {expected!r}."
        ) from None


def only(results: Results[Any, Any], kind: type[KafkaError]) -> KafkaError:
    ((_, error),) = results.errors.items()
    assert type(error) is kind
    return error


# -- ACLs -------------------------------------------------------------------------------------


def selecting(principal: str) -> AclBindingFilter:
    return AclBindingFilter(principal=principal)


async def test_acls_are_created_described_and_deleted(admin: Admin, name: str) -> None:
    principal = f"User:{name}"
    bindings = [
        AclBinding(ResourcePattern.topic(name), principal, AclOperation.READ),
        AclBinding(ResourcePattern.group(name, prefixed=True), principal, AclOperation.ALL),
        AclBinding(ResourcePattern.transactional_id("*"), principal, AclOperation.WRITE),
        AclBinding(
            ResourcePattern.cluster(),
            principal,
            AclOperation.ALTER,
            AclPermissionType.DENY,
            "10.0.0.1",
        ),
        AclBinding(ResourcePattern.user("User:bob"), principal, AclOperation.CREATE_TOKENS),
        AclBinding(ResourcePattern.delegation_token("id"), principal, AclOperation.DESCRIBE),
    ]
    created = await admin.create_acls(bindings)
    assert created.raise_for_errors() == dict.fromkeys(bindings)
    assert (await admin.create_acls(bindings)).ok

    async def found() -> set[AclBinding]:
        return set(await admin.describe_acls(selecting(principal)))

    await becomes(set(bindings), found)
    assert set(bindings) <= set(await admin.describe_acls())
    wanted = [bindings[0].to_filter(), selecting(principal), selecting("User:not-there")]
    deleted = (await admin.delete_acls(wanted)).raise_for_errors()
    assert deleted[wanted[0]] == (bindings[0],)
    assert set(deleted[wanted[1]]) == set(bindings)
    assert deleted[wanted[2]] == ()
    await becomes(set(), found)


async def test_acls_are_selected_by_each_part_of_a_filter(admin: Admin, name: str) -> None:
    principal = f"User:{name}"
    literal = AclBinding(ResourcePattern.topic(f"{name}-1"), principal, AclOperation.READ)
    prefixed = AclBinding(
        ResourcePattern.topic(name, prefixed=True), principal, AclOperation.WRITE, host="10.0.0.1"
    )
    denied = AclBinding(
        ResourcePattern.group(name), principal, AclOperation.READ, AclPermissionType.DENY
    )
    everything = {literal, prefixed, denied}
    (await admin.create_acls(everything)).raise_for_errors()

    async def found(**parts: Any) -> set[AclBinding]:
        return set(await admin.describe_acls(AclBindingFilter(principal=principal, **parts)))

    await becomes(everything, found)
    topics = ResourcePatternFilter(AclResourceType.TOPIC)
    assert await found(pattern=topics) == {literal, prefixed}
    matching = ResourcePatternFilter(AclResourceType.TOPIC, f"{name}-1", PatternType.MATCH)
    assert await found(pattern=matching) == {literal, prefixed}
    named = ResourcePatternFilter(AclResourceType.TOPIC, f"{name}-1", PatternType.LITERAL)
    assert await found(pattern=named) == {literal}
    of_prefix = ResourcePatternFilter(pattern_type=PatternType.PREFIXED)
    assert await found(pattern=of_prefix) == {prefixed}
    assert await found(operation=AclOperation.READ) == {literal, denied}
    assert await found(permission=AclPermissionType.DENY) == {denied}
    assert await found(host="10.0.0.1") == {prefixed}
    assert (await admin.delete_acls([selecting(principal)])).ok


async def test_one_wrong_acl_does_not_prevent_the_others(admin: Admin, name: str) -> None:
    right = AclBinding(ResourcePattern.topic(name), f"User:{name}", AclOperation.READ)
    nameless = AclBinding(ResourcePattern.topic(""), f"User:{name}", AclOperation.READ)
    results = await admin.create_acls([nameless, right])
    assert list(results) == [nameless, right]
    assert list(results.succeeded) == [right]
    error = only(results, InvalidRequestError)
    assert f"in CreateAcls for ACL (ALLOW User:{name} READ on topic , host *)" in str(error)
    await becomes((right,), lambda: admin.describe_acls(selecting(f"User:{name}")))
    assert (await admin.delete_acls([selecting(f"User:{name}")])).ok


async def test_an_acl_allows_what_it_names_until_it_is_deleted(
    admin: Admin, alice: tuple[str, Admin], name: str
) -> None:
    principal, own = alice

    async def creates() -> bool:
        results = await own.create_topics([NewTopic(name, 1)], validate_only=True)
        if not results.ok:
            only(results, TopicAuthorizationError)
        return results.ok

    assert not await creates()
    pattern = ResourcePattern.topic(name[:-3], prefixed=True)
    allowed = AclBinding(pattern, principal, AclOperation.CREATE)
    (await admin.create_acls([allowed])).raise_for_errors()
    await becomes(True, creates)
    (await admin.delete_acls([allowed.to_filter()])).raise_for_errors()
    await becomes(False, creates)


async def test_the_offsets_of_a_share_group_leave_out_topics_that_are_forbidden(
    secured: Secured, admin: Admin, alice: tuple[str, Admin], name: str
) -> None:
    principal, own = alice
    topics = [f"{name}-allowed", f"{name}-forbidden"]
    (await admin.ensure_topics(NewTopic(each, 1, 1) for each in topics)).raise_for_errors()
    (await admin.create_share_group(name, topics, "earliest")).raise_for_errors()
    allowed = [
        AclBinding(ResourcePattern.group(name), principal, AclOperation.DESCRIBE),
        AclBinding(ResourcePattern.topic(topics[0]), principal, AclOperation.DESCRIBE),
    ]
    (await admin.create_acls(allowed)).raise_for_errors()
    async with Client(bootstrap_servers=secured.bootstrap) as client:
        # A group whose members have subscribed to a forbidden topic cannot be described.
        for topic in topics:
            await SharingMember(client, name, topic).join()

        async def list_topics() -> object:
            offsets = (await own.list_share_group_offsets([name]))[name]
            return offsets if isinstance(offsets, KafkaError) else [tp.topic for tp in offsets]

        await becomes([topics[0]], list_topics)
        assert only(await own.describe_groups([name]), TopicAuthorizationError)


async def test_a_user_without_permission_is_refused_by_each_call(
    alice: tuple[str, Admin], name: str
) -> None:
    principal, own = alice
    acl = AclBinding(ResourcePattern.topic(name), principal, AclOperation.READ)
    entity = ClientQuotaEntity(user=name)
    only(await own.create_acls([acl]), ClusterAuthorizationError)
    only(await own.delete_acls([acl.to_filter()]), ClusterAuthorizationError)
    with pytest.raises(ClusterAuthorizationError, match="DescribeAcls"):
        await own.describe_acls()
    only(await own.describe_user_scram_credentials([name]), ClusterAuthorizationError)
    with pytest.raises(ClusterAuthorizationError, match="DescribeUserScramCredentials"):
        await own.describe_user_scram_credentials()
    only(
        await own.alter_user_scram_credentials([UserScramCredentialDeletion(name)]),
        ClusterAuthorizationError,
    )
    with pytest.raises(ClusterAuthorizationError, match="DescribeClientQuotas"):
        await own.describe_client_quotas()
    only(
        await own.alter_client_quotas({entity: {"request_percentage": 1}}),
        ClusterAuthorizationError,
    )


# -- SCRAM credentials ------------------------------------------------------------------------


async def test_credentials_are_set_described_replaced_and_deleted(admin: Admin, name: str) -> None:
    async def found() -> object:
        return (await admin.describe_user_scram_credentials([name])).succeeded.get(name)

    changes = [
        UserScramCredentialUpsertion(name, "one", SHA_256),
        UserScramCredentialUpsertion(name, "two", "scram-sha-512", 8192),
    ]
    results = await admin.alter_user_scram_credentials(changes)
    assert results.raise_for_errors() == {name: None}
    first, second = ScramCredentialInfo(SHA_256, 4096), ScramCredentialInfo(SHA_512, 8192)
    await becomes((first, second), found)
    assert (await admin.describe_user_scram_credentials())[name] == (first, second)
    (
        await admin.alter_user_scram_credentials(
            [
                UserScramCredentialDeletion(name, SHA_256),
                UserScramCredentialUpsertion(name, "three", SHA_512, 4097, b"a-salt"),
            ]
        )
    ).raise_for_errors()
    await becomes((ScramCredentialInfo(SHA_512, 4097),), found)
    (
        await admin.alter_user_scram_credentials([UserScramCredentialDeletion(name)])
    ).raise_for_errors()
    await becomes(None, found)
    only(await admin.describe_user_scram_credentials([name]), ResourceNotFoundError)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("password", ["a-password", "pässwörd, = Ⅸ"], ids=["ascii", "other"])
async def test_a_user_logs_in_with_the_password_that_was_set(
    secured: Secured, admin: Admin, name: str, mechanism: str, password: str
) -> None:
    change = UserScramCredentialUpsertion(name, password, mechanism)
    (await admin.alter_user_scram_credentials([change])).raise_for_errors()
    async with secured.logged_in(SaslScram(name, password, mechanism)) as own:
        assert (await own.describe_cluster()).brokers
    assert not await secured.accepts(SaslScram(name, f"not-{password}", mechanism))


async def test_a_wrong_alteration_fails_its_user_only(admin: Admin, name: str) -> None:
    wrong = {
        f"{name}-many": UnacceptableCredentialError,
        f"{name}-none": ResourceNotFoundError,
        f"{name}-twice": DuplicateResourceError,
    }
    many, none, twice = wrong
    results = await admin.alter_user_scram_credentials(
        [
            UserScramCredentialUpsertion(many, "p", iterations=16_385),
            UserScramCredentialDeletion(none),
            UserScramCredentialUpsertion(twice, "p"),
            UserScramCredentialUpsertion(name, "p"),
            UserScramCredentialUpsertion(twice, "q"),
        ]
    )
    assert list(results) == [many, none, twice, name]
    assert {user: type(error) for user, error in results.errors.items()} == wrong
    assert f"in AlterUserScramCredentials for user {many}: " in str(results.errors[many])
    assert list(results.succeeded) == [name]
    assert (await admin.alter_user_scram_credentials([UserScramCredentialDeletion(name)])).ok


async def test_calls_for_no_item_return_no_result(admin: Admin) -> None:
    assert len(await admin.describe_user_scram_credentials([])) == 0
    assert len(await admin.alter_user_scram_credentials([])) == 0
    assert len(await admin.create_acls([])) == 0
    assert len(await admin.delete_acls([])) == 0
    assert len(await admin.alter_client_quotas({})) == 0


# -- delegation tokens ------------------------------------------------------------------------


async def known(call: Callable[[], Awaitable[int]]) -> int:
    """Return the result of a call about a token, once the controller knows the token."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                return await call()
            except DelegationTokenNotFoundError:
                pass


async def test_a_token_logs_in_as_its_owner_until_it_expires(
    secured: Secured, alice: tuple[str, Admin]
) -> None:
    principal, own = alice
    token = await own.create_delegation_token(renewers=["User:bob"], max_lifetime_ms=2 * DAY_MS)
    assert (token.owner, token.requester, token.renewers) == (principal, principal, ("User:bob",))
    assert token.expiry_timestamp == token.issue_timestamp + DAY_MS
    assert token.max_timestamp == token.issue_timestamp + 2 * DAY_MS
    await becomes((token,), own.describe_delegation_token)
    login = SaslScram(token.token_id, token.hmac, "SCRAM-SHA-256", token_auth=True)
    async with secured.logged_in(login) as by_token:
        with pytest.raises(UnsupportedByAuthenticationError, match="CreateDelegationToken"):
            await by_token.create_delegation_token()
    expired = await known(lambda: own.expire_delegation_token(token.hmac))
    assert token.issue_timestamp <= expired < token.expiry_timestamp
    await becomes((), own.describe_delegation_token)
    await becomes(False, lambda: secured.accepts(login))


async def test_the_expiry_of_a_token_can_be_changed(alice: tuple[str, Admin]) -> None:
    principal, own = alice
    token = await own.create_delegation_token(max_lifetime_ms=2 * DAY_MS)

    async def expiry() -> int | None:
        # A broker may not know the token yet.
        found = await own.describe_delegation_token([principal])
        return found[0].expiry_timestamp if found else None

    sooner = await known(lambda: own.renew_delegation_token(token, renew_time_period_ms=HOUR_MS))
    assert token.issue_timestamp + HOUR_MS <= sooner < token.expiry_timestamp
    await becomes(sooner, expiry)
    hmac = token.hmac.reveal()
    # The brokers limit the period to a day.
    later = await own.renew_delegation_token(hmac, renew_time_period_ms=3 * DAY_MS)
    assert token.expiry_timestamp <= later < token.max_timestamp
    await becomes(later, expiry)
    soon = await own.expire_delegation_token(token, expiry_time_period_ms=HOUR_MS)
    assert sooner <= soon < later
    await becomes(soon, expiry)
    last = await own.expire_delegation_token(token, expiry_time_period_ms=3 * DAY_MS)
    assert last == token.max_timestamp
    await own.expire_delegation_token(hmac)
    await becomes((), own.describe_delegation_token)

    async def refused() -> object:
        try:
            return await own.renew_delegation_token(token)
        except DelegationTokenNotFoundError as error:
            return error.api

    await becomes("RenewDelegationToken", refused)


async def test_tokens_are_described_by_owner(
    secured: Secured, admin: Admin, alice: tuple[str, Admin], name: str
) -> None:
    _, own = alice
    renewer = f"User:{name}-bob"
    change = UserScramCredentialUpsertion(f"{name}-bob", "p")
    (await admin.alter_user_scram_credentials([change])).raise_for_errors()
    async with secured.logged_in(SaslScram(f"{name}-bob", "p")) as bob:
        hidden = await own.create_delegation_token()
        shared = await own.create_delegation_token(renewers=[renewer])
        await becomes((shared,), bob.describe_delegation_token)
        assert await bob.describe_delegation_token([renewer]) == (shared,)
        assert await bob.describe_delegation_token([]) == ()
        await known(lambda: own.renew_delegation_token(hidden))
        with pytest.raises(DelegationTokenOwnerMismatchError, match="ExpireDelegationToken"):
            await bob.expire_delegation_token(hidden)
        assert await known(lambda: bob.expire_delegation_token(shared))
        assert await own.expire_delegation_token(hidden)


async def test_a_token_for_another_owner_needs_a_permission(
    admin: Admin, alice: tuple[str, Admin], name: str
) -> None:
    principal, own = alice
    owner = f"User:{name}-owner"
    with pytest.raises(DelegationTokenAuthorizationError, match="CreateDelegationToken"):
        await own.create_delegation_token(owner=owner)
    acl = AclBinding(ResourcePattern.user(owner), principal, AclOperation.CREATE_TOKENS)
    (await admin.create_acls([acl])).raise_for_errors()

    async def created(*renewers: str) -> DelegationToken:
        async with asyncio.timeout(WAIT_S):
            while True:
                try:
                    return await own.create_delegation_token(owner=owner, renewers=renewers)
                except DelegationTokenAuthorizationError:
                    pass  # The broker does not know the ACL yet.

    token = await created()
    assert (token.owner, token.requester, token.renewers) == (owner, principal, ())
    with pytest.raises(DelegationTokenOwnerMismatchError, match="RenewDelegationToken"):
        await known(lambda: own.renew_delegation_token(token))
    renewable = await created(principal)
    assert await known(lambda: own.expire_delegation_token(renewable))
    assert (await admin.delete_acls([acl.to_filter()])).ok


async def test_a_client_that_has_not_logged_in_gets_no_token(admin: Admin) -> None:
    with pytest.raises(UnsupportedByAuthenticationError, match="Authenticate by SASL"):
        await admin.create_delegation_token()
    with pytest.raises(UnsupportedByAuthenticationError):
        await admin.describe_delegation_token()


# -- client quotas ----------------------------------------------------------------------------


async def test_quotas_are_set_described_changed_and_removed(admin: Admin, name: str) -> None:
    alone = ClientQuotaEntity(user=name)
    default = ClientQuotaEntity(user=name, client_id=ClientQuotaName.DEFAULT)
    both = ClientQuotaEntity(user=name, client_id="c")
    address = ClientQuotaEntity(ip="10.1.2.3")
    changes: dict[ClientQuotaEntity, dict[str, float | None]] = {
        alone: {"producer_byte_rate": 1_000_000, "request_percentage": 12.5},
        default: {"consumer_byte_rate": 2_000},
        both: {"controller_mutation_rate": 3},
        address: {"connection_creation_rate": 4},
    }
    checked = await admin.alter_client_quotas(changes, validate_only=True)
    assert checked.raise_for_errors() == dict.fromkeys(changes)

    async def found(**parts: Any) -> object:
        return await admin.describe_client_quotas(ClientQuotaFilter(**parts))

    assert await found(user=name) == {}
    (await admin.alter_client_quotas(changes)).raise_for_errors()
    await becomes(
        {each: changes[each] for each in (alone, default, both)}, lambda: found(user=name)
    )
    assert await found(user=name, strict=True) == {alone: changes[alone]}
    assert await found(user=name, client_id="c") == {both: changes[both]}
    own = {default: changes[default]}
    assert await found(user=name, client_id=ClientQuotaName.DEFAULT) == own
    pairs = {each: changes[each] for each in (default, both)}
    assert await found(user=name, client_id=ClientQuotaName.ANY) == pairs
    await becomes({address: changes[address]}, lambda: found(ip="10.1.2.3"))
    assert set(changes) <= set(await admin.describe_client_quotas())
    less: dict[ClientQuotaEntity, dict[str, float | None]] = {
        alone: {"request_percentage": None, "producer_byte_rate": 5},
        default: {"consumer_byte_rate": None},
        both: {"controller_mutation_rate": None},
        address: {"connection_creation_rate": None},
    }
    (await admin.alter_client_quotas(less)).raise_for_errors()
    await becomes({alone: {"producer_byte_rate": 5.0}}, lambda: found(user=name))
    (await admin.alter_client_quotas({alone: {"producer_byte_rate": None}})).raise_for_errors()
    await becomes({}, lambda: found(user=name))


async def test_one_wrong_quota_does_not_prevent_the_others(admin: Admin, name: str) -> None:
    wrong, right = ClientQuotaEntity(user=name), ClientQuotaEntity(client_id=name)
    results = await admin.alter_client_quotas(
        {wrong: {"no_such_quota": 1}, right: {"request_percentage": 50}}, validate_only=True
    )
    assert list(results) == [wrong, right]
    assert list(results.succeeded) == [right]
    error = only(results, InvalidRequestError)
    assert f"in AlterClientQuotas for user {name}" in str(error)
    assert "no_such_quota" in str(error)
