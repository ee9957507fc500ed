"""Tests of ACLs: how rules are combined, and which requests of a client they refuse."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aiokclient import Consumer, NewTopic, Producer
from aiokclient.admin import Admin
from aiokclient.errors import (
    ClusterAuthorizationError,
    GroupAuthorizationError,
    TopicAuthorizationError,
    TransactionalIdAuthorizationError,
)
from aiokclient.testing import EmbeddedCluster
from aiokclient.testing.broker.security.acls import (
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResource,
    Authorizer,
    PatternType,
)

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ALICE, BOB, HERE = "User:alice", "User:bob", "10.0.0.1"
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
TOPIC = AclResource.TOPIC


def acl(
    name: str = "orders",
    operation: AclOperation = READ,
    permission: AclPermission = ALLOW,
    principal: str = ALICE,
    host: str = "*",
    pattern: PatternType = PatternType.LITERAL,
    resource: AclResource = TOPIC,
) -> Acl:
    return Acl(resource, name, pattern, principal, host, operation, permission)


def decides(rules: list[Acl], operation: AclOperation = READ, name: str = "orders") -> bool:
    authorizer = Authorizer((), allow_everyone=False)
    for each in rules:
        authorizer.add_acl(each)
    return authorizer.is_allowed(ALICE, HERE, operation, TOPIC, name)


PREFIX = PatternType.PREFIXED


@pytest.mark.parametrize(
    ("rules", "operation", "allowed"),
    [
        ([], READ, False),
        ([acl()], READ, True),
        ([acl()], WRITE, False),
        ([acl()], DESCRIBE, True),
        ([acl(operation=AclOperation.ALL)], WRITE, True),
        ([acl(operation=DESCRIBE)], READ, False),
        ([acl(principal=BOB)], READ, False),
        ([acl(principal="User:*")], READ, True),
        ([acl(host=HERE)], READ, True),
        ([acl(host="10.0.0.2")], READ, False),
        ([acl(name="*")], READ, True),
        ([acl(name="ord", pattern=PREFIX)], READ, True),
        ([acl(name="ord")], READ, False),
        ([acl(name="*", pattern=PREFIX)], READ, False),
        ([acl(), acl(permission=DENY)], READ, False),
        ([acl(), acl(permission=DENY, name="*")], READ, False),
        ([acl(), acl(permission=DENY, name="o", pattern=PREFIX)], READ, False),
        ([acl(), acl(permission=DENY, principal="User:*")], READ, False),
        ([acl(), acl(permission=DENY, host="10.0.0.2")], READ, True),
        ([acl(), acl(permission=DENY)], DESCRIBE, True),
        ([acl(), acl(permission=DENY, operation=DESCRIBE)], READ, True),
        ([acl(), acl(permission=DENY, operation=DESCRIBE)], DESCRIBE, False),
        ([acl(operation=AclOperation.ALTER_CONFIGS)], AclOperation.DESCRIBE_CONFIGS, True),
        ([acl(resource=AclResource.GROUP)], READ, False),
    ],
)
def test_rules_are_combined_as_in_kafka(
    rules: list[Acl], operation: AclOperation, allowed: bool
) -> None:
    assert decides(rules, operation) is allowed
    assert decides(rules[::-1], operation) is allowed


def test_super_users_are_not_restricted_and_others_only_where_a_rule_exists() -> None:
    authorizer = Authorizer([ALICE], allow_everyone=True)
    authorizer.add_acl(acl(permission=DENY))
    assert authorizer.is_allowed(ALICE, HERE, READ, TOPIC, "orders")
    assert not authorizer.is_allowed(BOB, HERE, READ, TOPIC, "orders")
    assert authorizer.is_allowed(BOB, HERE, READ, TOPIC, "others")
    assert not Authorizer([], allow_everyone=False).is_allowed(BOB, HERE, READ, TOPIC, "others")


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        ([], False),
        ([acl(operation=WRITE)], True),
        ([acl(operation=READ)], False),
        ([acl(operation=WRITE), acl(operation=WRITE, permission=DENY)], False),
        ([acl(operation=WRITE), acl(operation=WRITE, permission=DENY, name="*")], False),
        ([acl(operation=WRITE), acl("or", WRITE, DENY, pattern=PREFIX)], False),
        ([acl("or", WRITE, pattern=PREFIX), acl("ord", WRITE, DENY, pattern=PREFIX)], True),
        ([acl("or", WRITE, pattern=PREFIX), acl("orders", WRITE, DENY)], True),
    ],
)
def test_an_operation_on_any_topic_needs_one_that_is_not_denied(
    rules: list[Acl], allowed: bool
) -> None:
    authorizer = Authorizer((), allow_everyone=False)
    for each in rules:
        authorizer.add_acl(each)
    assert authorizer.is_any_allowed(ALICE, HERE, WRITE, TOPIC) is allowed


@pytest.mark.parametrize(
    ("pattern", "name", "found"),
    [
        (PatternType.ANY, None, {"orders", "ord", "*", "o"}),
        (PatternType.ANY, "ord", {"ord"}),
        (PatternType.LITERAL, None, {"orders", "*"}),
        (PatternType.PREFIXED, "ord", {"ord"}),
        (PatternType.MATCH, "orders", {"orders", "ord", "*", "o"}),
        (PatternType.MATCH, "over", {"*", "o"}),
    ],
)
def test_a_filter_selects_by_pattern(
    pattern: PatternType, name: str | None, found: set[str]
) -> None:
    rules = [acl(), acl("ord", pattern=PREFIX), acl("*"), acl("o", pattern=PREFIX)]
    wanted = AclFilter(TOPIC, name, pattern, None, None, AclOperation.ANY, AclPermission.ANY)
    assert {each.name for each in rules if wanted.matches(each)} == found


@pytest.mark.parametrize(
    ("configs", "text"),
    [
        ({"authorizer.class.name": "com.example.Own"}, "StandardAuthorizer"),
        ({"super.users": "User:admin"}, "need authorizer.class.name"),
        ({"authorizer.class.name": STANDARD, "super.users": "admin"}, "not a principal"),
        ({"allow.everyone.if.no.acl.found": "yes"}, "true or false"),
    ],
)
def test_bad_configs_raise_value_error(configs: dict[str, str], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        EmbeddedCluster(configs=configs)


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    configs = {"authorizer.class.name": STANDARD}
    with EmbeddedCluster(topics=["orders", "secret"], configs=configs) as cluster:
        yield cluster


ANYBODY = "User:ANONYMOUS"


async def test_a_producer_needs_write_on_its_topic(cluster: EmbeddedCluster) -> None:
    cluster.allow(ANYBODY, "WRITE", topic="ord", prefixed=True)
    cluster.allow(ANYBODY, "DESCRIBE", topic="secret")
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        await producer.send("orders", b"1")
        with pytest.raises(TopicAuthorizationError):
            await producer.send("secret", b"2")
        cluster.deny(ANYBODY, "WRITE", topic="orders")
        with pytest.raises(TopicAuthorizationError):
            await producer.send("orders", b"3")
    assert [each.value for each in cluster.records("orders", 0)] == [b"1"]


async def test_an_idempotent_producer_without_any_write_is_refused_by_the_cluster(
    cluster: EmbeddedCluster,
) -> None:
    cluster.allow(ANYBODY, "DESCRIBE", topic="*")
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        with pytest.raises(ClusterAuthorizationError):
            await producer.send("orders", b"1")


async def test_a_consumer_needs_read_on_its_topic_and_its_group(cluster: EmbeddedCluster) -> None:
    cluster.produce("orders", [b"1"])
    options = {"bootstrap_servers": cluster.bootstrap_servers, "auto_offset_reset": "earliest"}
    consumer = Consumer("orders", group_id="billing", **options)
    cluster.allow(ANYBODY, "READ", topic="orders")
    with pytest.raises(GroupAuthorizationError):
        await consumer.start()
    await consumer.close()
    cluster.allow(ANYBODY, "READ", group="bill", prefixed=True)
    async with Consumer("orders", group_id="billing", **options) as consumer:
        assert (await consumer.get(timeout=30)).value == b"1"
    async with Consumer("secret", group_id="billing", **options) as consumer:
        with pytest.raises(TopicAuthorizationError):
            await consumer.get(timeout=30)


async def test_a_transactional_producer_needs_write_on_its_id(cluster: EmbeddedCluster) -> None:
    cluster.allow(ANYBODY, "WRITE", topic="orders")
    servers = cluster.bootstrap_servers
    producer = Producer(bootstrap_servers=servers, transactional_id="t-1")
    with pytest.raises(TransactionalIdAuthorizationError):
        await producer.start()
    await producer.close()
    cluster.allow(ANYBODY, "WRITE", transactional_id="t-1")
    async with (
        Producer(bootstrap_servers=servers, transactional_id="t-1") as producer,
        producer.transaction() as transaction,
    ):
        transaction.send("orders", b"1")
    assert len(cluster.records("orders", 0)) == 1


async def test_an_admin_sees_and_creates_what_it_is_allowed(cluster: EmbeddedCluster) -> None:
    cluster.allow(ANYBODY, "DESCRIBE", topic="orders")
    cluster.allow(ANYBODY, "CREATE", topic="mine-", prefixed=True)
    async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        assert set(await admin.list_topics()) == {"orders"}
        results = await admin.create_topics([NewTopic("mine-1", 1), NewTopic("other", 1)])
        assert list(results.succeeded) == ["mine-1"]
        assert isinstance(results.errors["other"], TopicAuthorizationError)


def test_controls_without_an_authorizer_raise_value_error() -> None:
    with pytest.raises(ValueError, match="no authorizer"):
        EmbeddedCluster().allow(ANYBODY, "READ", topic="orders")
    cluster = EmbeddedCluster(configs={"authorizer.class.name": STANDARD})
    with pytest.raises(ValueError, match="one of topic, group"):
        cluster.allow(ANYBODY, "READ", topic="orders", group="billing")
    with pytest.raises(ValueError, match="Use one of ALL"):
        cluster.allow(ANYBODY, "EAT", topic="orders")
    with pytest.raises(ValueError, match="not a principal"):
        cluster.deny("alice", "READ", topic="orders")
