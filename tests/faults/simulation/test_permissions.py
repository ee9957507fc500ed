"""Permissions that are missing, and are granted later, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from world import World, simulate

from aiokclient import SaslPlain
from aiokclient.errors import TopicAuthorizationError
from aiokclient.protocol import ApiKey
from aiokclient.testing import BrokerListener

USERS = {"alice": "secret"}


def run(scenario: Any) -> None:
    listener = BrokerListener(mechanisms=("PLAIN",), users=USERS)
    configs = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    simulate(scenario, brokers=2, topics={"t": 2}, listeners={"SASL": listener}, configs=configs)


def options(world: World) -> dict[str, Any]:
    servers = world.cluster.bootstrap_servers_for("SASL")
    return {"bootstrap_servers": servers, "security": SaslPlain("alice", "secret")}


def test_every_record_for_a_forbidden_topic_fails_soon_until_the_topic_is_permitted() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(**options(world)) as producer:
            for _ in range(3):
                began = world.now
                with pytest.raises(TopicAuthorizationError, match="in Metadata for t: "):
                    await producer.send("t", b"refused")
                assert world.now - began < 2
            world.cluster.allow("User:alice", "WRITE", topic="t")
            began = world.now
            await producer.send("t", b"accepted")
            assert world.now - began < 2
        assert [record.value for record in world.cluster.records("t")] == [b"accepted"]

    run(scenario)


def test_an_idle_producer_does_not_ask_for_a_forbidden_topic() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(**options(world)) as producer:
            with pytest.raises(TopicAuthorizationError):
                await producer.send("t", b"refused")
            before = len(world.requests(ApiKey.METADATA))
            await asyncio.sleep(60)
            assert len(world.requests(ApiKey.METADATA)) == before

    run(scenario)
