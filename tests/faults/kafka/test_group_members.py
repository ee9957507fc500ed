"""Members of a group on three real brokers, while its coordinator is killed, hangs, and moves."""

import asyncio
import uuid
from typing import Any

import pytest
from kafka_harness import KafkaCluster
from sharing import Life, Sharing, living, together

from aiokclient import Client, GroupMember
from aiokclient.errors import FencedInstanceIdError


def life(kafka: KafkaCluster, group: str, says: str, **options: Any) -> Life:
    protocol = Sharing(says)
    options = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 200, **options}
    member = GroupMember(
        group,
        protocol_type="test",
        protocols=[protocol],
        bootstrap_servers=kafka.bootstrap,
        **options,
    )
    return Life(member, protocol)


async def coordinator(kafka: KafkaCluster, group: str) -> int:
    async with Client(bootstrap_servers=kafka.bootstrap) as client:
        return await client.cluster.coordinators.locate_coordinator("group", group)


@pytest.mark.fault(5)
@pytest.mark.parametrize(("breaking", "mending"), [("kill", "start"), ("pause", "resume")])
async def test_classic_members_continue_when_the_coordinator_dies_and_returns(
    kafka3: KafkaCluster, breaking: str, mending: str
) -> None:
    """The group is persisted, so its members find it at another broker and continue there."""
    group = f"g-{uuid.uuid4().hex[:12]}"
    lives = [life(kafka3, group, name) for name in "abc"]
    async with living(*lives):
        before = await together(*lives)
        broken = await coordinator(kafka3, group)
        await asyncio.to_thread(getattr(kafka3, breaking), broken)
        lives[0].member.rejoin("to see who answers")
        after = await together(*lives, after=before)
        await asyncio.to_thread(getattr(kafka3, mending), broken)
        lives[1].member.rejoin("again")
        await together(*lives, after=after)
    assert all(not each.errors for each in lives)


@pytest.mark.fault(44)
async def test_kafka_fences_the_older_of_two_members_with_one_instance_id(
    kafka3: KafkaCluster,
) -> None:
    group = f"g-{uuid.uuid4().hex[:12]}"
    first = life(kafka3, group, "1", group_instance_id="i")
    second = life(kafka3, group, "2", group_instance_id="i")
    async with living(first):
        await together(first)
        async with living(second):
            await second.until(lambda life: life.now)
            await first.until(lambda life: life.errors)
            assert isinstance(first.errors[0], FencedInstanceIdError)
