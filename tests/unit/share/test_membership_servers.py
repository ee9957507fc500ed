"""Tests of members of a share group on the embedded cluster and on a real Kafka."""

import uuid
from typing import Any

import pytest
from share_memberships import ShareGroupMember

from aiokclient import Admin, Consumer, NewTopic
from aiokclient.errors import GroupIdNotFoundError, UnknownMemberIdError
from aiokclient.protocol.messages import ShareGroupHeartbeatRequest


@pytest.fixture
def member_of(cluster_servers: Any) -> Any:
    """Return a function that makes members of one share group."""
    group_id = f"share-{uuid.uuid4().hex[:12]}"

    def make(*topics: str, **options: Any) -> ShareGroupMember:
        return ShareGroupMember(
            {"bootstrap_servers": cluster_servers.bootstrap, "group_id": group_id},
            *topics,
            **options,
        )

    return make


async def test_members_of_a_share_group_divide_the_partitions(
    cluster_servers: Any, member_of: Any
) -> None:
    topic = await cluster_servers.new_topic(4)
    every = [(topic, index) for index in range(4)]
    async with member_of(topic) as first:
        await first.membership.wait_until_assigned(60.0)
        await first.until(lambda: first.has == every)
        async with member_of(topic) as second:
            await second.until(lambda: len(first.has) == len(second.has) == 2)
            assert sorted(first.has + second.has) == every
        await first.until(lambda: first.has == every)
        assert first.membership.list_troubles() == []
    async with Admin(bootstrap_servers=cluster_servers.bootstrap) as admin:
        described = (await admin.describe_groups([first.group_id]))[first.group_id]
        assert len(described.members) == 0


async def test_a_share_group_assigns_a_topic_that_is_created_later(
    cluster_servers: Any, member_of: Any
) -> None:
    topic = f"later-{uuid.uuid4().hex[:12]}"
    member = member_of(topic)
    async with Admin(bootstrap_servers=cluster_servers.bootstrap) as admin, member:
        await member.membership.wait_until_assigned(60.0)
        assert member.has == []
        assert member.membership.list_troubles() == [f"no assignment: there is no topic {topic}"]
        await admin.create_topics([NewTopic(topic, 2)])
        await member.until(lambda: member.has == [(topic, 0), (topic, 1)])
        former = set(member.assignment.values())
        await admin.delete_topics([topic])
        await member.until(lambda: member.has == [])
        await admin.create_topics([NewTopic(topic, 1)])
        await member.until(lambda: member.has == [(topic, 0)])
        assert set(member.assignment.values()) != former


async def test_a_share_group_changes_its_subscription_to_nothing_and_back(
    cluster_servers: Any, member_of: Any
) -> None:
    one, other = await cluster_servers.new_topic(), await cluster_servers.new_topic(2)
    async with member_of(one) as member:
        await member.until(lambda: member.has == [(one, 0)])
        member.subscribe(one, other)
        await member.until(lambda: len(member.has) == 3)
        member.subscribe()
        assert member.has == []
        member.subscribe(other)
        await member.until(lambda: member.has == [(other, 0), (other, 1)])
        assert member.failures == []


async def test_a_share_member_that_was_removed_joins_again_with_its_id(
    cluster_servers: Any, member_of: Any
) -> None:
    topic = await cluster_servers.new_topic(2)
    async with member_of(topic) as member:
        await member.until(lambda: len(member.has) == 2)
        status = member.membership.member
        before = status.memberships
        leave = ShareGroupHeartbeatRequest(
            group_id=member.group_id, member_id=member.member_id, member_epoch=-1
        )
        await member.membership._connection.send_heartbeat(leave, 10.0)
        await member.until(lambda: status.memberships > before and status.has_epoch)
        await member.until(lambda: len(member.has) == 2)
        stranger = ShareGroupHeartbeatRequest(
            group_id=member.group_id, member_id="stranger", member_epoch=7
        )
        with pytest.raises(UnknownMemberIdError):
            await member.membership._connection.send_heartbeat(stranger, 10.0)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_share_consumer_is_refused_by_a_consumer_group(
    cluster_servers: Any, member_of: Any, protocol: str
) -> None:
    topic = await cluster_servers.new_topic()
    member = member_of(topic)
    consumer = Consumer(
        topic,
        bootstrap_servers=cluster_servers.bootstrap,
        group_id=member.group_id,
        group_protocol=protocol,
    )
    async with consumer, member:
        await member.membership.wait_until_assigned(60.0)
        refusal = member.membership.find_refusal()
        assert isinstance(refusal, GroupIdNotFoundError)
        assert "is not a share group" in str(refusal)
        assert member.failures == [refusal]
