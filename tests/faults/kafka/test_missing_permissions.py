"""Calls of a user without permissions on a real Kafka: the texts and the effects of the errors."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from secured_kafka import STRANGER, STRANGER_PASSWORD, SecuredKafka

from aiokclient import (
    AclBinding,
    AclOperation,
    Admin,
    Consumer,
    NewTopic,
    Producer,
    ResourcePattern,
    SaslScram,
)
from aiokclient.errors import (
    AuthorizationError,
    ClusterAuthorizationError,
    GroupAuthorizationError,
    KafkaError,
    TopicAuthorizationError,
    TransactionalIdAuthorizationError,
)

READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE


@pytest.fixture
def stranger(secured: SecuredKafka) -> dict[str, Any]:
    """The options of a user without permissions."""
    return {
        "bootstrap_servers": secured.servers("SASL_PLAINTEXT"),
        "security": SaslScram(STRANGER, STRANGER_PASSWORD),
    }


@pytest.fixture
async def admin(secured: SecuredKafka) -> AsyncIterator[Admin]:
    async with Admin(bootstrap_servers=secured.cluster.bootstrap) as admin:
        yield admin


@pytest.fixture
async def topic(admin: Admin) -> str:
    name = f"secret-{uuid.uuid4().hex[:8]}"
    (await admin.create_topics([NewTopic(name, 1, 1)])).raise_for_errors()
    return name


async def allow(admin: Admin, *grants: tuple[ResourcePattern, AclOperation]) -> None:
    """Grant permissions, and wait until the broker has them."""
    bindings = [AclBinding(pattern, f"User:{STRANGER}", each) for pattern, each in grants]
    (await admin.create_acls(bindings)).raise_for_errors()
    async with asyncio.timeout(60):
        while True:
            if set(bindings) <= set(await admin.describe_acls()):
                return
            await asyncio.sleep(0.02)


def check(error: KafkaError, kind: type[AuthorizationError], api: str, *parts: str) -> None:
    """Check that an error has this class, and names the operation, the resource, and the ACL."""
    assert type(error) is kind, error
    assert not error.retriable
    assert error.api == api
    for part in (f"in {api} ", *parts):
        assert part in str(error)


@pytest.mark.parametrize(("granted", "api"), [((), "Metadata"), ((DESCRIBE,), "Produce")])
async def test_a_producer_without_permission_for_a_topic_is_told_so(
    stranger: dict[str, Any], admin: Admin, topic: str, granted: tuple[AclOperation, ...], api: str
) -> None:
    await allow(admin, *((ResourcePattern.topic(topic), each) for each in granted))
    async with Producer(**stranger) as producer:
        with pytest.raises(TopicAuthorizationError) as caught:
            await producer.send(topic, b"v")
        check(caught.value, TopicAuthorizationError, api, topic, "Write and Describe to produce")
        await allow(admin, (ResourcePattern.topic(topic), WRITE))
        await producer.send(topic, b"v")


@pytest.mark.parametrize(("granted", "api"), [((), "Metadata"), ((DESCRIBE,), "Fetch")])
async def test_a_consumer_without_permission_for_a_topic_is_told_so(
    stranger: dict[str, Any], admin: Admin, topic: str, granted: tuple[AclOperation, ...], api: str
) -> None:
    await allow(admin, *((ResourcePattern.topic(topic), each) for each in granted))
    consumer = Consumer(topic, auto_offset_reset="earliest", **stranger)
    with pytest.raises(TopicAuthorizationError) as caught:
        async with consumer:
            await consumer.get(timeout=60)
    check(caught.value, TopicAuthorizationError, api, topic, "Read and Describe to consume")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("granted", [(), (DESCRIBE,)])
async def test_a_member_without_permission_for_its_group_is_told_so(
    stranger: dict[str, Any],
    admin: Admin,
    topic: str,
    protocol: str,
    granted: tuple[AclOperation, ...],
) -> None:
    group = f"group-{uuid.uuid4().hex[:8]}"
    pattern = ResourcePattern.group(group)
    await allow(admin, (ResourcePattern.topic(topic), READ), *((pattern, each) for each in granted))
    consumer = Consumer(topic, group_id=group, group_protocol=protocol, **stranger)
    with pytest.raises(GroupAuthorizationError) as caught:
        async with consumer:
            await consumer.get(timeout=60)
    joining = "JoinGroup" if protocol == "classic" else "ConsumerGroupHeartbeat"
    api = joining if granted else "FindCoordinator"
    check(caught.value, GroupAuthorizationError, api, group, "Grant Read on the group")


@pytest.mark.parametrize(
    ("granted", "api"), [((), "FindCoordinator"), ((DESCRIBE,), "InitProducerId")]
)
async def test_a_producer_without_permission_for_its_transactional_id_is_told_so(
    stranger: dict[str, Any], admin: Admin, granted: tuple[AclOperation, ...], api: str
) -> None:
    name = f"transfer-{uuid.uuid4().hex[:8]}"
    await allow(admin, *((ResourcePattern.transactional_id(name), each) for each in granted))
    producer = Producer(transactional_id=name, **stranger)
    with pytest.raises(TransactionalIdAuthorizationError) as caught:
        async with producer:
            pass
    check(caught.value, TransactionalIdAuthorizationError, api, name, "Grant Write and Describe")


async def test_an_admin_without_permission_for_the_cluster_is_told_so(
    stranger: dict[str, Any],
) -> None:
    async with Admin(**stranger) as admin:
        for call, api in (
            (admin.describe_acls(), "DescribeAcls"),
            (admin.describe_client_quotas(), "DescribeClientQuotas"),
        ):
            with pytest.raises(ClusterAuthorizationError) as caught:
                await call
            check(caught.value, ClusterAuthorizationError, api, "Grant the ACL on the cluster")
        binding = AclBinding(ResourcePattern.topic("t"), f"User:{STRANGER}", READ)
        result = await admin.create_acls([binding])
        with pytest.raises(ClusterAuthorizationError) as caught:
            result.raise_for_errors()
        check(caught.value, ClusterAuthorizationError, "CreateAcls", "Grant the ACL on the cluster")


async def test_an_admin_without_permission_to_create_a_topic_is_told_so(
    stranger: dict[str, Any],
) -> None:
    async with Admin(**stranger) as admin:
        result = await admin.create_topics([NewTopic("forbidden", 1, 1)])
    with pytest.raises(TopicAuthorizationError) as caught:
        result.raise_for_errors()
    check(caught.value, TopicAuthorizationError, "CreateTopics", "forbidden", "Create, Delete, or")
