"""Names and identifiers that no request can contain, in virtual time.

They fail their own call, with an error that is a ValueError, and before any time has passed.
Everything else that uses the same client continues.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from inspect import isawaitable
from typing import Any

import pytest
from world import World, simulate

from aiokclient import (
    Admin,
    AnyBroker,
    Client,
    ConfigResource,
    Consumer,
    Coordinator,
    GroupMember,
    GroupMetadata,
    GroupProtocol,
    Leader,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
    work_pool,
)
from aiokclient.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    Append,
    ClientQuotaEntity,
    ClientQuotaFilter,
    ElectionType,
    HangingTransaction,
    PatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ScramMechanism,
    TopicPartitionReplica,
    UserScramCredentialDeletion,
)
from aiokclient.errors import ConfigError, KafkaError
from aiokclient.protocol.messages import DescribeConfigsRequest, ListGroupsRequest, MetadataRequest
from aiokclient.protocol.messages.metadata import MetadataRequestTopic

BAD = {"surrogate": "bad\udcff", "long": "x" * 40_000}


def tp(name: str) -> TopicPartition:
    return TopicPartition(name, 0)


def acl(name: str) -> AclBinding:
    pattern = ResourcePattern(AclResourceType.TOPIC, name, PatternType.LITERAL)
    return AclBinding(pattern, "User:a", AclOperation.READ, AclPermissionType.ALLOW)


def acl_filter(name: str) -> AclBindingFilter:
    return AclBindingFilter(ResourcePatternFilter(name=name))


ADMIN: Mapping[str, Callable[[Admin, str], Any]] = {
    "create_topics": lambda a, bad: a.create_topics([NewTopic(bad, 1, 1)]),
    "create_topics with an option": lambda a, bad: a.create_topics(
        [NewTopic("new", 1, 1, {bad: "1"})]
    ),
    "create_topics with a value": lambda a, bad: a.create_topics(
        [NewTopic("new", 1, 1, {"cleanup.policy": bad})]
    ),
    "delete_topics": lambda a, bad: a.delete_topics([bad]),
    "describe_topics": lambda a, bad: a.describe_topics(["t", bad]),
    "create_partitions": lambda a, bad: a.create_partitions({bad: 2}),
    "delete_records": lambda a, bad: a.delete_records({tp(bad): 0}),
    "describe_configs": lambda a, bad: a.describe_configs([ConfigResource.topic(bad)]),
    "describe_configs of options": lambda a, bad: a.describe_configs(
        {ConfigResource.topic("t"): [bad]}
    ),
    "alter_configs": lambda a, bad: a.alter_configs(
        {ConfigResource.topic(bad): {"cleanup.policy": "delete"}}
    ),
    "alter_configs of an option": lambda a, bad: a.alter_configs(
        {ConfigResource.topic("t"): {bad: "delete"}}
    ),
    "alter_configs to a value": lambda a, bad: a.alter_configs(
        {ConfigResource.topic("t"): {"cleanup.policy": bad}}
    ),
    "alter_configs by an item": lambda a, bad: a.alter_configs(
        {ConfigResource.topic("t"): {"cleanup.policy": Append(bad)}}
    ),
    "list_offsets": lambda a, bad: a.list_offsets({tp(bad): 0}),
    "elect_leaders": lambda a, bad: a.elect_leaders(ElectionType.PREFERRED, [tp(bad)]),
    "alter_partition_reassignments": lambda a, bad: a.alter_partition_reassignments({tp(bad): [1]}),
    "list_partition_reassignments": lambda a, bad: a.list_partition_reassignments([tp(bad)]),
    "rebalance_plan": lambda a, bad: a.rebalance_plan([bad]),
    "describe_replica_log_dirs": lambda a, bad: a.describe_replica_log_dirs(
        [TopicPartitionReplica(bad, 0, 1)]
    ),
    "alter_replica_log_dirs": lambda a, bad: a.alter_replica_log_dirs(
        {TopicPartitionReplica(bad, 0, 1): "/d"}
    ),
    "alter_replica_log_dirs to a path": lambda a, bad: a.alter_replica_log_dirs(
        {TopicPartitionReplica("t", 0, 1): bad}
    ),
    "list_share_group_offsets": lambda a, bad: a.list_share_group_offsets([bad]),
    "list_share_group_offsets of a partition": lambda a, bad: a.list_share_group_offsets(
        {"g": [tp(bad)]}
    ),
    "alter_share_group_offsets": lambda a, bad: a.alter_share_group_offsets("g", {tp(bad): 0}),
    "alter_share_group_offsets of a group": lambda a, bad: a.alter_share_group_offsets(
        bad, {tp("t"): 0}
    ),
    "delete_share_group_offsets": lambda a, bad: a.delete_share_group_offsets("g", [bad]),
    "delete_share_group_offsets of a group": lambda a, bad: a.delete_share_group_offsets(
        bad, ["t"]
    ),
    "create_share_group": lambda a, bad: a.create_share_group("g", [bad], "latest"),
    "create_share_group of a group": lambda a, bad: a.create_share_group(bad, ["t"], "latest"),
    "describe_streams_groups": lambda a, bad: a.describe_streams_groups([bad]),
    "update_features": lambda a, bad: a.update_features({bad: 1}),
    "list_groups by state": lambda a, bad: a.list_groups(states=[bad]),
    "list_groups by type": lambda a, bad: a.list_groups(types=[bad]),
    "describe_groups": lambda a, bad: a.describe_groups([bad]),
    "delete_groups": lambda a, bad: a.delete_groups([bad]),
    "remove_members": lambda a, bad: a.remove_members("g", [bad]),
    "remove_members of a group": lambda a, bad: a.remove_members(bad, ["m"]),
    "remove_members with a reason": lambda a, bad: a.remove_members("g", ["m"], reason=bad),
    "group_lag": lambda a, bad: a.group_lag([bad]),
    "reset_offsets": lambda a, bad: a.reset_offsets(bad, 0),
    "reset_offsets of a topic": lambda a, bad: a.reset_offsets("g", 0, topics=[bad]),
    "reset_offsets of a partition": lambda a, bad: a.reset_offsets("g", 0, topics=[tp(bad)]),
    "reset_offsets with metadata": lambda a, bad: a.reset_offsets(
        "g", {tp("t"): OffsetAndMetadata(0, bad)}
    ),
    "copy_offsets from a group": lambda a, bad: a.copy_offsets(bad, "g"),
    "copy_offsets to a group": lambda a, bad: a.copy_offsets("g", bad),
    "copy_offsets of a topic": lambda a, bad: a.copy_offsets("g", "h", topics=[bad]),
    "ensure_topics": lambda a, bad: a.ensure_topics([NewTopic(bad, 1, 1)]),
    "ensure_topics with a value": lambda a, bad: a.ensure_topics(
        [NewTopic("t", 1, 1, {"cleanup.policy": bad})]
    ),
    "list_consumer_group_offsets": lambda a, bad: a.list_consumer_group_offsets([bad]),
    "alter_consumer_group_offsets": lambda a, bad: a.alter_consumer_group_offsets(
        "g", {tp(bad): 0}
    ),
    "alter_consumer_group_offsets of a group": lambda a, bad: a.alter_consumer_group_offsets(
        bad, {tp("t"): 0}
    ),
    "alter_consumer_group_offsets with metadata": lambda a, bad: a.alter_consumer_group_offsets(
        "g", {tp("t"): OffsetAndMetadata(0, bad)}
    ),
    "delete_consumer_group_offsets": lambda a, bad: a.delete_consumer_group_offsets("g", [tp(bad)]),
    "delete_consumer_group_offsets of a group": lambda a, bad: a.delete_consumer_group_offsets(
        bad, [tp("t")]
    ),
    "list_transactions by state": lambda a, bad: a.list_transactions(states=[bad]),
    "list_transactions by pattern": lambda a, bad: a.list_transactions(pattern=bad),
    "describe_transactions": lambda a, bad: a.describe_transactions([bad]),
    "describe_log_dirs": lambda a, bad: a.describe_log_dirs(topics=[bad]),
    "describe_producers": lambda a, bad: a.describe_producers([tp(bad)]),
    "describe_producers of a broker": lambda a, bad: a.describe_producers([tp(bad)], broker_id=0),
    "fence_producers": lambda a, bad: a.fence_producers([bad]),
    "force_terminate_transaction": lambda a, bad: a.force_terminate_transaction(bad),
    "find_hanging_transactions": lambda a, bad: a.find_hanging_transactions(topic=bad),
    "abort_transaction": lambda a, bad: a.abort_transaction(HangingTransaction(tp(bad), 1, 0, 0)),
    "create_acls": lambda a, bad: a.create_acls([acl(bad)]),
    "create_acls for a principal": lambda a, bad: a.create_acls(
        [replace(acl("t"), principal=f"User:{bad}")]
    ),
    "create_acls for a host": lambda a, bad: a.create_acls([replace(acl("t"), host=bad)]),
    "describe_acls": lambda a, bad: a.describe_acls(acl_filter(bad)),
    "delete_acls": lambda a, bad: a.delete_acls([acl_filter(bad)]),
    "describe_user_scram_credentials": lambda a, bad: a.describe_user_scram_credentials([bad]),
    "alter_user_scram_credentials": lambda a, bad: a.alter_user_scram_credentials(
        [UserScramCredentialDeletion(bad, ScramMechanism.SCRAM_SHA_256)]
    ),
    "create_delegation_token": lambda a, bad: a.create_delegation_token(owner=f"User:{bad}"),
    "create_delegation_token with a renewer": lambda a, bad: a.create_delegation_token(
        renewers=[f"User:{bad}"]
    ),
    "describe_delegation_token": lambda a, bad: a.describe_delegation_token([f"User:{bad}"]),
    "describe_client_quotas": lambda a, bad: a.describe_client_quotas(ClientQuotaFilter(user=bad)),
    "alter_client_quotas": lambda a, bad: a.alter_client_quotas(
        {ClientQuotaEntity(user=bad): {"producer_byte_rate": 1}}
    ),
    "alter_client_quotas by name": lambda a, bad: a.alter_client_quotas(
        {ClientQuotaEntity(user="u"): {bad: 1}}
    ),
    "delete_client_metrics": lambda a, bad: a.delete_client_metrics([bad]),
}

REQUESTS: Mapping[str, Callable[[Client, str], Any]] = {
    "to a leader": lambda c, bad: c.request(ListGroupsRequest(), to=Leader(bad, 0)),
    "to a coordinator": lambda c, bad: c.request(ListGroupsRequest(), to=Coordinator("group", bad)),
    "to a transaction's coordinator": lambda c, bad: c.request(
        ListGroupsRequest(), to=Coordinator("transaction", bad)
    ),
    "that contains it": lambda c, bad: c.request(
        MetadataRequest(topics=[MetadataRequestTopic(name=bad)]), to=AnyBroker()
    ),
    "by send": lambda c, bad: c.send(ListGroupsRequest(states_filter=[bad]), to=AnyBroker()),
}


async def raised_by(call: Callable[[Any, str], Any], client: Any, bad: str) -> Exception | None:
    """Return the error of a call, which may be synchronous."""
    try:
        result = call(client, bad)
        if isawaitable(result):
            await result
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_an_unencodable_name_fails_its_own_admin_call_at_once(bad: str) -> None:
    async def scenario(world: World) -> None:
        async with Admin(**world.options()) as admin:
            for name, call in ADMIN.items():
                began = world.now
                error = await raised_by(call, admin, bad)
                assert isinstance(error, ValueError), name
                assert isinstance(error, KafkaError), name
                assert world.now == began, name
                assert len(str(error)) < 500, name
                described = await admin.describe_producers([tp("t")])
                assert described[tp("t")] == (), name

    simulate(scenario)


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_an_unencodable_name_fails_its_own_request_at_once(bad: str) -> None:
    async def scenario(world: World) -> None:
        async with world.client() as client:
            for name, call in REQUESTS.items():
                began = world.now
                error = await raised_by(call, client, bad)
                assert isinstance(error, ValueError), name
                assert isinstance(error, KafkaError), name
                assert world.now - began < 0.1, name
                await client.request(DescribeConfigsRequest(), to=Leader("t", 0))

    simulate(scenario)


@pytest.mark.parametrize("target", [Leader(["t"], 0), Leader("t", "0"), Coordinator("group", None)])  # type: ignore[arg-type]
def test_a_target_of_wrong_types_is_refused(target: Any) -> None:
    async def scenario(world: World) -> None:
        async with world.client() as client:
            with pytest.raises(TypeError, match="is not"):
                await client.request(ListGroupsRequest(), to=target)
            await client.request(DescribeConfigsRequest(), to=Leader("t", 0))

    simulate(scenario)


def test_calls_of_other_tasks_succeed_beside_one_with_an_unencodable_name() -> None:
    async def scenario(world: World) -> None:
        client = world.client()
        async with client, Admin(client=client) as admin, Producer(client=client) as producer:
            calls = [
                admin.delete_records({tp(BAD["surrogate"]): 0}),
                admin.describe_producers([tp("t")]),
                producer.send("u", b"1"),
                admin.describe_log_dirs(topics=["t"]),
            ]
            results = await asyncio.gather(*calls, return_exceptions=True)
            failed = [isinstance(each, Exception) for each in results]
            assert failed == [True, False, False, False]

    simulate(scenario, topics={"t": 1, "u": 1})


def test_a_refreshed_topic_is_requested_no_longer_than_its_call_waits() -> None:
    async def scenario(world: World) -> None:
        async with world.client(request_timeout_ms=500) as client:
            world.cluster.pause(world.cluster.brokers[0])
            for number in range(5):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await client.request(ListGroupsRequest(), to=Leader(f"gone-{number}", 0))
            world.cluster.resume(world.cluster.brokers[0])
            since = world.now
            await client.request(DescribeConfigsRequest(), to=Leader("t", 0))
            await asyncio.sleep(5)
            asked = [
                topic.name
                for request in world.cluster.requests
                if request.at > since + 1 and isinstance(request.message, MetadataRequest)
                for topic in request.message.topics or ()
            ]
            assert not [name for name in asked if name.startswith("gone")]

    simulate(scenario)


class Nothing(GroupProtocol):
    def __init__(self, name: str = "nothing") -> None:
        self.name = name

    def assign(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        return {}


SERVERS: Any = {"bootstrap_servers": "host:9092"}

IDENTIFIERS: Mapping[str, Callable[[str], Any]] = {
    "client_id": lambda bad: Client(client_id=bad, **SERVERS),
    "client_rack": lambda bad: Consumer("t", client_rack=bad, **SERVERS),
    "group_id": lambda bad: Consumer("t", group_id=bad, **SERVERS),
    "group_instance_id": lambda bad: Consumer("t", group_id="g", group_instance_id=bad, **SERVERS),
    "group_remote_assignor": lambda bad: Consumer(
        "t", group_id="g", group_protocol="consumer", group_remote_assignor=bad, **SERVERS
    ),
    "transactional_id": lambda bad: Producer(transactional_id=bad, **SERVERS),
    "a member's group_id": lambda bad: GroupMember(
        bad, protocol_type="p", protocols=[Nothing()], **SERVERS
    ),
    "protocol_type": lambda bad: GroupMember(
        "g", protocol_type=bad, protocols=[Nothing()], **SERVERS
    ),
    "a protocol's name": lambda bad: GroupMember(
        "g", protocol_type="p", protocols=[Nothing(bad)], **SERVERS
    ),
    "a member's group_instance_id": lambda bad: GroupMember(
        "g", protocol_type="p", protocols=[Nothing()], group_instance_id=bad, **SERVERS
    ),
    "the group of a work pool": lambda bad: work_pool(bad, {"a": 1}, **SERVERS),
    "the host of a bootstrap server": lambda bad: Client(bootstrap_servers=f"{bad}:9092"),
    "a property": lambda bad: Consumer.from_properties(
        {"group.id": bad, "bootstrap.servers": "h:1"}
    ),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
@pytest.mark.parametrize("name", IDENTIFIERS)
def test_an_unencodable_identifier_is_refused_when_the_client_is_made(name: str, bad: str) -> None:
    with pytest.raises(ConfigError, match=r"surrogate|40,000 bytes") as raised:
        IDENTIFIERS[name](bad)
    assert len(str(raised.value)) < 700
    str(raised.value).encode()


def test_a_reason_that_utf_8_cannot_express_is_refused_and_the_member_stays() -> None:
    async def scenario(world: World) -> None:
        member = GroupMember("g", protocol_type="p", protocols=[Nothing()], **world.options())
        async with member:
            generations = member.generations()
            first = await anext(generations)
            with pytest.raises(ValueError, match="surrogate"):
                member.rejoin("caf\udce9")
            member.rejoin("x" * 40_000)
            async with asyncio.timeout(10):
                second = await anext(generations)
            assert second.generation_id > first.generation_id

    simulate(scenario)


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_unencodable_metadata_of_an_offset_is_refused_by_the_commit(bad: str) -> None:
    async def scenario(world: World) -> None:
        async with world.consumer("t", group_id="g") as consumer:
            await consumer.poll(timeout=5)
            began = world.now
            with pytest.raises(ValueError):
                await consumer.commit({tp("t"): OffsetAndMetadata(0, bad)})
            assert world.now == began
            await consumer.commit({tp("t"): OffsetAndMetadata(0, "good")})
        async with world.producer(transactional_id="x") as producer:
            with pytest.raises(ValueError):
                async with producer.transaction() as tx:
                    await tx.send_offsets({tp("t"): 1}, GroupMetadata(bad))
            with pytest.raises(ValueError):
                async with producer.transaction() as tx:
                    await tx.send_offsets({tp("t"): OffsetAndMetadata(0, bad)}, GroupMetadata("g"))

    simulate(scenario)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_pattern_that_no_request_can_contain_is_matched_by_the_client(
    protocol: str, bad: str
) -> None:
    async def scenario(world: World) -> None:
        pattern = re.compile(f"{bad}|t")
        async with world.consumer(group_id="g", group_protocol=protocol) as consumer:
            consumer.subscribe(pattern)
            async with asyncio.timeout(30):
                while not consumer.assignment():
                    await consumer.poll(timeout=0.1)

    simulate(scenario)
