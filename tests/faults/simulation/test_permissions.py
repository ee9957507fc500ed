"""Permissions that are missing, and are granted later, in virtual time."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from world import World, simulate

from aiokclient import SaslPlain
from aiokclient.errors import KafkaError, TopicAuthorizationError
from aiokclient.protocol import ApiKey
from aiokclient.testing import BrokerListener

USERS = {"alice": "secret"}


def run(scenario: Any) -> None:
    listener = BrokerListener(mechanisms=("PLAIN",), users=USERS)
    configs = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    simulate(
        scenario, brokers=2, topics={"t": 2, "u": 1}, listeners={"SASL": listener}, configs=configs
    )


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


def test_records_for_several_forbidden_topics_fail_and_are_sent_independently() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(**options(world)) as producer:
            for _ in range(2):
                deliveries = [producer.send(topic, b"refused") for topic in ("t", "u")]
                failures = await asyncio.gather(*deliveries, return_exceptions=True)
                assert [type(each) for each in failures] == 2 * [TopicAuthorizationError]
            world.cluster.allow("User:alice", "WRITE", topic="u")
            began = world.now
            with pytest.raises(TopicAuthorizationError):
                await producer.send("t", b"refused")
            await producer.send("u", b"accepted")
            assert world.now - began < 4
        assert world.cluster.records("t") == []

    run(scenario)


def test_a_producer_asks_for_a_forbidden_topic_only_while_records_wait_for_it() -> None:
    async def scenario(world: World) -> None:
        producer = world.producer(**options(world))
        await producer.start()
        with pytest.raises(TopicAuthorizationError):
            await producer.send("t", b"refused")
        before = len(world.requests(ApiKey.METADATA))
        await asyncio.sleep(60)
        assert len(world.requests(ApiKey.METADATA)) == before
        refused = producer.send("t", b"refused")
        await producer.close(timeout=0)
        assert isinstance(refused.exception(), KafkaError)
        closed = len(world.requests(ApiKey.METADATA))
        await asyncio.sleep(60)
        assert len(world.requests(ApiKey.METADATA)) == closed

    run(scenario)


@pytest.mark.parametrize("group", [None, "g"])
def test_a_forbidden_topic_is_not_logged_as_missing(
    caplog: pytest.LogCaptureFixture, group: str | None
) -> None:
    async def scenario(world: World) -> None:
        if group is not None:
            world.cluster.allow("User:alice", "READ", group=group)
        more = {**options(world), "allow_auto_create_topics": False}
        # Nobody owns what the group must not see.
        async with world.consumer("t", "gone", group_id=group, checked=False, **more) as consumer:
            with pytest.raises(TopicAuthorizationError):
                await consumer.poll(timeout=30)

    with caplog.at_level(logging.WARNING, logger="aiokclient"):
        run(scenario)
    texts = [record.getMessage() for record in caplog.records]
    assert not any("t does not exist" in text for text in texts)
    assert any("t cannot be read: TOPIC_AUTHORIZATION_FAILED" in text for text in texts), texts
