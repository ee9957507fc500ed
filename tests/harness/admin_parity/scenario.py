"""The rows of the tables, and what can exist before a call."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kafka_harness import ExternalKafka
from raw_transactions import RawTransaction
from share_member import SharingMember

from admin_parity.forms import uuid_text
from aiokclient import (
    Admin,
    Broker,
    Client,
    Consumer,
    Coordinator,
    Producer,
    SaslScram,
    TopicPartition,
)
from aiokclient.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ClientQuotaEntity,
    ConfigResource,
    ElectionType,
    NewTopic,
    ResourcePattern,
    UserScramCredentialUpsertion,
)
from aiokclient.errors import DelegationTokenNotFoundError
from aiokclient.protocol.messages import (
    DescribeAclsRequest,
    DescribeDelegationTokenRequest,
    StreamsGroupHeartbeatRequest,
)
from aiokclient.protocol.messages import streams_group_heartbeat as streams

ALL = ("embedded", "kafka", "kafka3")
REAL = ("kafka", "kafka3")
THREE = ("embedded", "kafka3")
"""The clusters with three brokers."""
PATIENCE_S = 60
ALICE, PASSWORD, MECHANISM = "alice", "a-password", "SCRAM-SHA-256"
"""A user without permissions."""
TOKEN = re.compile(r"\$(\w+)")
VALUE = re.compile(r"\$=(\w+)")


class World:
    """The objects of one call, whose names have a prefix of their own.

    In arguments, `$name` is the name of an object with the prefix, and `$=name` a value that a step
    has left.
    """

    def __init__(self, servers: str, client: Client, admin: Admin, prefix: str) -> None:
        self.servers, self.client, self.admin, self.prefix = servers, client, admin, prefix
        self.values: dict[str, Any] = {}
        self.stack = AsyncExitStack()

    def resolve(self, given: Any) -> Any:
        """Return arguments with the names and values of this world."""
        if isinstance(given, str):
            if value := VALUE.fullmatch(given):
                return self.values[value[1]]
            return TOKEN.sub(lambda found: self.prefix + found[1], given)
        if isinstance(given, Mapping):
            return {self.resolve(key): self.resolve(value) for key, value in given.items()}
        if isinstance(given, list | tuple):
            return [self.resolve(each) for each in given]
        return given

    def tp(self, topic: str, partition: int = 0) -> TopicPartition:
        return TopicPartition(self.resolve(topic), partition)


Step: TypeAlias = Callable[[World], Awaitable[None]]


@dataclass(frozen=True)
class Scenario:
    """A call with its arguments, and what must exist before it.

    `reads`: nothing is changed, so that both calls are about the same objects. `varies` names the
    fields whose values are others in each call. `then` is a call of Java's client that shows what
    has been changed. `differs` is the reason why the results may be different, and `lacks` names
    the fields that this client does not have, with the reason. `elsewhere` is the reason why the
    embedded cluster does not refuse the same as a real one.
    """

    method: str
    title: str
    given: Mapping[str, Any] = field(default_factory=dict)
    before: tuple[Step, ...] = ()
    reads: bool = False
    varies: tuple[str, ...] = ()
    client: str = "root"
    on: tuple[str, ...] = ALL
    then: tuple[str, Mapping[str, Any]] | None = None
    differs: str = ""
    lacks: Mapping[str, str] = field(default_factory=dict)
    elsewhere: str = ""

    @property
    def name(self) -> str:
        return f"{self.method}, {self.title}"


def topic(name: str, partitions: int = 1, factor: int = 1, **configs: Any) -> Step:
    async def make(world: World) -> None:
        kafka = ExternalKafka(world.servers)
        options = {key.replace("_", "."): value for key, value in configs.items()}
        made = world.resolve(name)
        await asyncio.to_thread(kafka.create_topic, made, partitions, factor, options)
        listed = (await world.admin.describe_topics([made])).raise_for_errors()
        world.values[f"id_{name.strip('$')}"] = uuid_text(listed[made].topic_id)

    return make


def placed_topic(name: str, *replicas: list[int]) -> Step:
    """Return a step that makes a topic with these replicas of its partitions."""

    async def make(world: World) -> None:
        made = world.resolve(name)
        new = NewTopic(made, assignments=dict(enumerate(replicas)))
        (await world.admin.create_topics([new])).raise_for_errors()
        kafka = ExternalKafka(world.servers)
        await asyncio.to_thread(kafka.await_partitions, made, len(replicas))

    return make


def records(name: str, count: int, partition: int = 0, first_time: int = 1_000_000) -> Step:
    """Return a step that writes records whose times are a second apart."""

    async def write(world: World) -> None:
        async with Producer(client=world.client) as producer:
            for number in range(count):
                at = first_time + 1000 * number
                value = b"value"
                await producer.send(
                    world.resolve(name), value, key=b"key", partition=partition, timestamp=at
                )

    return write


def deleted_records(name: str, before: int) -> Step:
    async def delete(world: World) -> None:
        (await world.admin.delete_records({world.tp(name): before})).raise_for_errors()

    return delete


async def elected_leaders(world: World) -> None:
    """Make the first replica of each partition its leader."""
    (await world.admin.elect_leaders(ElectionType.PREFERRED)).raise_for_errors()


def committed(group: str, *offsets: tuple[str, int, int]) -> Step:
    async def commit(world: World) -> None:
        wanted = {world.tp(name, partition): offset for name, partition, offset in offsets}
        altered = await world.admin.alter_consumer_group_offsets(
            world.resolve(group), wanted, check=False
        )
        altered.raise_for_errors()

    return commit


def share_offsets(group: str, *offsets: tuple[str, int, int]) -> Step:
    async def alter(world: World) -> None:
        wanted = {world.tp(name, partition): offset for name, partition, offset in offsets}
        name = world.resolve(group)
        (await world.admin.alter_share_group_offsets(name, wanted)).raise_for_errors()

    return alter


def share_member(group: str, name: str) -> Step:
    """Return a step with a member of a share group, which has an assignment."""

    async def join(world: World) -> None:
        member = SharingMember(world.client, world.resolve(group), world.resolve(name))
        await member.join()
        world.stack.push_async_callback(member.leave)

    return join


def configured(kind: str, name: str, **options: Any) -> Step:
    async def alter(world: World) -> None:
        changes = {key.replace("_", "."): value for key, value in options.items()}
        resource = ConfigResource(kind, world.resolve(name))
        (await world.admin.alter_configs({resource: changes})).raise_for_errors()

    return alter


def member(group: str, name: str, protocol: str = "classic", instance: str | None = None) -> Step:
    """Return a step with a consumer in the group, which stays until the end of the scenario."""

    async def join(world: World) -> None:
        options: Any = {"group_instance_id": world.resolve(instance)} if instance else {}
        consumer: Consumer[Any, Any] = Consumer(
            world.resolve(name),
            bootstrap_servers=world.servers,
            group_id=world.resolve(group),
            group_protocol=protocol,
            client_id="member",
            **options,
        )
        await world.stack.enter_async_context(consumer)
        async with asyncio.timeout(PATIENCE_S):
            while not consumer.assignment():
                await consumer.poll(timeout=0.1)
            while True:
                found = await world.admin.describe_groups([world.resolve(group)])
                if getattr(found[world.resolve(group)], "state", "") == "Stable":
                    return
                await consumer.poll(timeout=0.1)

    return join


def streams_member(group: str, name: str) -> Step:
    """Return a step with a member of a streams group, which has its tasks."""

    async def join(world: World) -> None:
        topics = [world.resolve(name)]
        part = streams.Subtopology(subtopology_id="0", source_topics=topics)
        group_id, to = world.resolve(group), Coordinator("group", world.resolve(group))
        request = StreamsGroupHeartbeatRequest(
            group_id=group_id,
            member_id=world.resolve("$member"),
            member_epoch=0,
            rebalance_timeout_ms=10_000,
            topology=streams.Topology(epoch=1, subtopologies=[part]),
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
            process_id="process",
            client_tags=[],
        )
        answer = await world.client.request(request, to)
        async with asyncio.timeout(PATIENCE_S):
            while not answer.active_tasks:
                await asyncio.sleep(0.1)
                request = StreamsGroupHeartbeatRequest(
                    group_id=group_id,
                    member_id=world.resolve("$member"),
                    member_epoch=answer.member_epoch,
                )
                answer = await world.client.request(request, to)
        left = StreamsGroupHeartbeatRequest(
            group_id=group_id, member_id=world.resolve("$member"), member_epoch=-1
        )
        world.stack.push_async_callback(world.client.request, left, to)

    return join


def open_transaction(identity: str, name: str, count: int = 2) -> Step:
    """Return a step with a transaction that has written records, and is not ended."""

    async def begin(world: World) -> None:
        transaction = RawTransaction(world.client, world.resolve(identity))
        await transaction.begin()
        await transaction.produce(world.tp(name), *[b"value"] * count, timestamp=2_000_000)
        world.values["producer"] = transaction.producer_id
        world.values["epoch"] = transaction.producer_epoch

    return begin


def ended_transaction(identity: str, name: str, commit: bool = True) -> Step:
    async def run(world: World) -> None:
        transaction = RawTransaction(world.client, world.resolve(identity))
        await transaction.begin()
        await transaction.produce(world.tp(name), b"value", timestamp=2_000_000)
        await transaction.end(commit=commit)
        async with asyncio.timeout(PATIENCE_S):
            # The markers are written after the answer.
            while not (await _find_state(world, identity)).startswith("Complete"):
                pass

    return run


async def _find_state(world: World, identity: str) -> str:
    found = await world.admin.describe_transactions([world.resolve(identity)])
    return str(found.raise_for_errors()[world.resolve(identity)].state)


def allowed(name: str, operation: AclOperation = AclOperation.READ, user: str = "alice") -> Step:
    async def create(world: World) -> None:
        pattern = ResourcePattern.topic(world.resolve(name))
        acl = AclBinding(pattern, f"User:{user}", operation)
        (await world.admin.create_acls([acl])).raise_for_errors()
        # Every broker must know the ACL before a call is compared.
        request = DescribeAclsRequest(
            resource_type_filter=pattern.type,
            resource_name_filter=pattern.name,
            pattern_type_filter=pattern.pattern_type,
            principal_filter=acl.principal,
            host_filter=None,
            operation=operation,
            permission_type=AclPermissionType.ANY,
        )
        async with asyncio.timeout(PATIENCE_S):
            for broker in (await world.admin.describe_cluster()).brokers:
                while not (await world.client.request(request, Broker(broker.node_id))).resources:
                    pass

    return create


def credential(user: str) -> Step:
    async def set_password(world: World) -> None:
        change = UserScramCredentialUpsertion(world.resolve(user), "a-password")
        (await world.admin.alter_user_scram_credentials([change])).raise_for_errors()

    return set_password


def token(*renewers: str) -> Step:
    """Return a step with a token of alice, which every broker knows."""

    async def create(world: World) -> None:
        login = SaslScram(ALICE, PASSWORD, MECHANISM)
        client = Client(bootstrap_servers=world.values["sasl"], security=login)
        async with client, Admin(client=client) as alice, asyncio.timeout(PATIENCE_S):
            made = await alice.create_delegation_token(renewers=renewers)
            for broker in (await alice.describe_cluster()).brokers:
                known: set[str] = set()
                while made.token_id not in known:
                    request = DescribeDelegationTokenRequest(owners=None)
                    response = await client.request(request, Broker(broker.node_id))
                    known = {each.token_id for each in response.tokens}
            # The controller, which renews tokens, may know it later than the brokers.
            while True:
                with contextlib.suppress(DelegationTokenNotFoundError):
                    await alice.renew_delegation_token(made)
                    break
        world.values["hmac"] = made.hmac.reveal()
        world.values["token"] = made.token_id

    return create


def quota(user: str, **values: float) -> Step:
    async def alter(world: World) -> None:
        entity = ClientQuotaEntity(user=world.resolve(user))
        (await world.admin.alter_client_quotas({entity: values})).raise_for_errors()

    return alter
