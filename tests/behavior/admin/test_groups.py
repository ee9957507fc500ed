"""The admin client's view of groups, the same on the embedded cluster and on a real Kafka."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from sharing import Life, Sharing, living, together

from aiokclient import Admin, Client, Coordinator, GroupMember, OffsetAndMetadata, TopicPartition
from aiokclient.admin import GroupDescription, GroupListing
from aiokclient.errors import (
    GroupIdNotFoundError,
    GroupNotEmptyError,
    IllegalStateError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from aiokclient.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    LeaveGroupRequest,
)
from aiokclient.testing import EmbeddedCluster


def member(servers: Any, group: str, name: str, **options: Any) -> Life:
    protocol = Sharing(name)
    options = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 100, **options}
    made = GroupMember(
        group,
        protocol_type="test",
        protocols=[protocol],
        bootstrap_servers=servers.bootstrap,
        **options,
    )
    return Life(made, protocol)


async def test_a_group_of_a_custom_protocol_is_described(
    cluster_servers: Any, admin: Admin, group: str
) -> None:
    one, two = member(cluster_servers, group, "one"), member(cluster_servers, group, "two")
    async with living(one, two):
        await together(one, two)
        listed = (await admin.list_groups())[group]
        assert (listed.type, listed.protocol_type, listed.state) == ("classic", "test", "Stable")
        described = (await admin.describe_groups([group])).raise_for_errors()[group]
        assert described.type == "classic"
        assert described.protocol == "sharing"
        assert described.coordinator == listed.coordinator
        assert sorted(each.metadata for each in described.members) == [b"one", b"two"]
        assert sorted(each.assignment for each in described.members) == [b"one of 2", b"two of 2"]
        refused = (await admin.delete_groups([group]))[group]
        assert isinstance(refused, GroupNotEmptyError)
    assert (await admin.list_groups(states=["Empty"]))[group].state == "Empty"
    assert group not in await admin.list_groups(states=["Stable"])
    assert group not in await admin.list_groups(types=["consumer", "share"])
    (await admin.delete_groups([group])).raise_for_errors()
    assert group not in await admin.list_groups()


async def test_a_group_of_the_consumer_protocol_is_described(
    cluster_servers: Any, admin: Admin, group: str
) -> None:
    topic = await cluster_servers.new_topic(2)
    async with Client(bootstrap_servers=cluster_servers.bootstrap) as client:
        member_id = str(uuid.uuid4())
        joining = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member_id,
            member_epoch=0,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=[topic],
            topic_partitions=[],
        )
        joined = await client.request(joining, to=Coordinator("group", group))
        listed = (await admin.list_groups(types=["consumer"]))[group]
        assert isinstance(listed, GroupListing)
        assert listed.type == "consumer"
        beat = ConsumerGroupHeartbeatRequest(
            group_id=group, member_id=member_id, member_epoch=joined.member_epoch
        )
        described = await assigned(admin, client, beat)
        assert (described.type, described.protocol) == ("consumer", "uniform")
        assert described.epoch is not None
        (only,) = described.members
        assert only.member_id == member_id
        assert only.subscribed == (topic,)
        assert only.target == (TopicPartition(topic, 0), TopicPartition(topic, 1))
        leaving = ConsumerGroupHeartbeatRequest(
            group_id=group, member_id=member_id, member_epoch=-1
        )
        await client.request(leaving, to=Coordinator("group", group))
    (await admin.delete_groups([group])).raise_for_errors()


async def assigned(
    admin: Admin, client: Client, beat: ConsumerGroupHeartbeatRequest
) -> GroupDescription:
    """Return the description of the group once it has an assignment.

    The coordinator assigns partitions once it knows the topic.
    """
    group = beat.group_id
    async with asyncio.timeout(20):
        while True:
            described = (await admin.describe_groups([group])).raise_for_errors()[group]
            if described.members[0].target:
                return described
            answer = await client.request(beat, to=Coordinator("group", group))
            beat.member_epoch = answer.member_epoch
            await asyncio.sleep(0.05)


async def test_missing_groups_return_errors(admin: Admin, group: str) -> None:
    other = f"{group}-2"
    for results in (
        await admin.describe_groups([group, other]),
        await admin.delete_groups([group, other]),
    ):
        assert list(results) == [group, other]
        assert all(isinstance(error, GroupIdNotFoundError) for error in results.errors.values())
        assert len(results.errors) == 2
        assert group in str(results[group])
    assert (await admin.list_consumer_group_offsets([group]))[group] == {}


async def test_offsets_are_set_listed_and_deleted(
    cluster_servers: Any, admin: Admin, group: str
) -> None:
    topic, other = await cluster_servers.new_topic(2), await cluster_servers.new_topic(1)
    noted = OffsetAndMetadata(7, "a note", 0)
    offsets = {TopicPartition(topic, 0): 5, TopicPartition(other, 0): noted}
    nowhere = TopicPartition(f"{topic}-not", 0)
    results = await admin.alter_consumer_group_offsets(group, {**offsets, nowhere: 1}, check=False)
    assert isinstance(results[nowhere], UnknownTopicOrPartitionError)
    assert len(results.errors) == 1
    listed = (await admin.list_consumer_group_offsets([group], require_stable=True))[group]
    assert listed == {
        TopicPartition(topic, 0): OffsetAndMetadata(5),
        TopicPartition(other, 0): noted,
    }
    (
        await admin.delete_consumer_group_offsets(group, [TopicPartition(other, 0)])
    ).raise_for_errors()
    listed = (await admin.list_consumer_group_offsets([group]))[group]
    assert listed == {TopicPartition(topic, 0): OffsetAndMetadata(5)}
    (await admin.delete_groups([group])).raise_for_errors()


async def test_removed_members_join_again_with_new_ids(
    cluster_servers: Any, admin: Admin, group: str
) -> None:
    """`remove_members` removes a dynamic member by its id and a static one by its instance id.

    Both join again with new member ids.
    """
    # The session timeout is long, so that a slow test machine does not end the session.
    options = {"session_timeout_ms": 60_000, "group_instance_id": "i-1"}
    life = member(cluster_servers, group, "a", **options)
    async with living(life):
        before = await together(life)
        member_id = life.member.group_metadata().member_id
        (await admin.remove_members(group, ["i-1"], static=True)).raise_for_errors()
        await together(life, after=before)
        assert life.member.group_metadata().member_id != member_id
        refused = await admin.remove_members(group, ["nobody"])
        assert isinstance(refused["nobody"], UnknownMemberIdError)


@pytest.mark.parametrize("call", ["describe_groups", "delete_groups"])
async def test_a_single_name_is_refused_as_a_collection(admin: Admin, call: str) -> None:
    with pytest.raises(IllegalStateError, match="not a collection of names"):
        await getattr(admin, call)("group")


async def test_low_level_requests_find_the_coordinator(cluster_servers: Any, group: str) -> None:
    async with Client(bootstrap_servers=cluster_servers.bootstrap) as client:
        beat = HeartbeatRequest(group_id=group, generation_id=1, member_id="m")
        with pytest.raises(UnknownMemberIdError):
            await client.request(beat, to=Coordinator("group", group))
        leave = LeaveGroupRequest(group_id=group)
        await client.request(leave, to=Coordinator("group", group))


async def test_offsets_are_set_after_the_coordinator_has_moved(embedded: EmbeddedCluster) -> None:
    embedded.create_topic("moving-coordinator", 1)
    tp = TopicPartition("moving-coordinator", 0)
    async with Admin(bootstrap_servers=embedded.bootstrap_servers) as admin:

        async def set_offset() -> int:
            altered = await admin.alter_consumer_group_offsets("moving", {tp: 0}, timeout=5)
            altered.raise_for_errors()
            described = (await admin.describe_groups(["moving"])).raise_for_errors()
            return described["moving"].coordinator.node_id

        coordinator = await set_offset()
        embedded.stop(coordinator)
        assert await set_offset() != coordinator
        # The other broker answers still, and is not the coordinator any more.
        embedded.start(coordinator)
        assert await set_offset() == coordinator
