"""Tests of members of a share group whose user lacks permissions, on both kinds of brokers."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from share_memberships import ShareGroupMember

from aiokclient import AclBinding, AclOperation, Admin, NewTopic, ResourcePattern, SaslScram
from aiokclient.admin import UserScramCredentialUpsertion
from aiokclient.errors import (
    GroupAuthorizationError,
    SaslAuthenticationError,
    TopicAuthorizationError,
)
from aiokclient.testing import BrokerListener, EmbeddedCluster

CONFIGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
PASSWORD = "a-password"


@pytest.fixture(scope="module", params=["embedded", "kafka"])
def addresses(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """The addresses at which clients are super users, and at which they log in."""
    if request.param == "embedded":
        listeners = {"SASL": BrokerListener(mechanisms=("SCRAM-SHA-256", "SCRAM-SHA-512"))}
        with EmbeddedCluster(listeners=listeners, configs=CONFIGS) as cluster:
            yield cluster.bootstrap_servers, cluster.bootstrap_servers_for("SASL")
        return
    kafka = request.getfixturevalue("kafka_secured")
    yield kafka.bootstrap, kafka.listener("SASL")


@pytest.fixture
async def admin(addresses: tuple[str, str]) -> AsyncIterator[Admin]:
    async with Admin(bootstrap_servers=addresses[0]) as admin:
        yield admin


@pytest.fixture
async def login(addresses: tuple[str, str], admin: Admin) -> dict[str, Any]:
    """The options of a client that logs in as a new user, whom the broker knows already."""
    name = f"share-{uuid.uuid4().hex[:12]}"
    credentials = [UserScramCredentialUpsertion(name, PASSWORD)]
    (await admin.alter_user_scram_credentials(credentials)).raise_for_errors()
    options = {"bootstrap_servers": addresses[1], "security": SaslScram(name, PASSWORD)}
    async with asyncio.timeout(30):
        while True:
            client = Admin(**options)
            try:
                await client.start()
                return options
            except SaslAuthenticationError:
                pass
            finally:
                await client.close()


async def allow(admin: Admin, options: dict[str, Any], *patterns: ResourcePattern) -> None:
    principal = f"User:{options['security'].user}"
    bindings = [AclBinding(each, principal, AclOperation.READ) for each in patterns]
    (await admin.create_acls(bindings)).raise_for_errors()


async def test_a_share_consumer_without_permission_for_its_group_is_refused(
    admin: Admin, login: dict[str, Any]
) -> None:
    topic = f"t-{uuid.uuid4().hex[:12]}"
    (await admin.create_topics([NewTopic(topic, 1)])).raise_for_errors()
    async with ShareGroupMember(login, topic, group_id=topic) as member:
        await member.membership.wait_until_assigned(60.0)
        assert isinstance(member.membership.find_refusal(), GroupAuthorizationError)
        assert member.failures == [member.membership.find_refusal()]


async def test_a_share_consumer_waits_for_the_permission_to_describe_its_topics(
    admin: Admin, login: dict[str, Any]
) -> None:
    name = f"t-{uuid.uuid4().hex[:12]}"
    one, other = f"{name}-1", f"{name}-2"
    (await admin.create_topics([NewTopic(one, 1), NewTopic(other, 1)])).raise_for_errors()
    await allow(admin, login, ResourcePattern.topic(one), ResourcePattern.group(name))
    async with ShareGroupMember(login, one, group_id=name) as member:
        await member.until(lambda: member.has == [(one, 0)])
        assert member.membership.find_read_error() is None
        member.subscribe(one, other)
        await member.until(member.membership.find_read_error)
        heard = member.meters.own_metrics.spread("heartbeats")
        await member.until(lambda: other in str(member.membership.find_read_error()))
        error = member.membership.find_read_error()
        assert isinstance(error, TopicAuthorizationError)
        before = len(heard.uncounted)
        await member.until(lambda: len(heard.uncounted) > before + 1)
        assert member.has == [(one, 0)]
        await allow(admin, login, ResourcePattern.topic(other))
        await member.until(lambda: member.has == [(one, 0), (other, 0)])
        assert member.membership.find_read_error() is None
        assert member.failures == []
