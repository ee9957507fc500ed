"""The state of a cluster, read with the calls that describe it."""

from __future__ import annotations

from collections.abc import Mapping

from aiokclient import TopicPartition
from aiokclient.admin import Admin, ConfigResource, ConfigSource, OffsetSpec, ResourceType

from .model import Key, PartitionState, State, TopicState

SOURCES = {
    ResourceType.BROKER: (ConfigSource.DYNAMIC_BROKER, ConfigSource.DYNAMIC_DEFAULT_BROKER),
    ResourceType.GROUP: (ConfigSource.GROUP,),
    ResourceType.CLIENT_METRICS: (ConfigSource.CLIENT_METRICS,),
    ResourceType.TOPIC: (ConfigSource.TOPIC,),
}
"""The source of the options that were set for a resource itself."""
INTERNAL = "__"
"""The beginning of the names of Kafka's internal topics."""


async def read_picture(admin: Admin, tokens: Admin | None = None) -> dict[Key, State]:
    """Return the states of all things that a walk changes. All brokers must run.

    `tokens` is a client that has logged in, which the calls for delegation tokens need.
    """
    picture: dict[Key, State] = {}
    picture.update(await _read_topics(admin))
    picture.update(await _read_configs(admin))
    picture.update(await _read_groups(admin))
    for binding in await admin.describe_acls():
        picture["acl", binding] = True
    for entity, quotas in (await admin.describe_client_quotas()).items():
        picture["quota", entity] = frozenset(quotas.items())
    users = await admin.describe_user_scram_credentials()
    for user, credentials in users.raise_for_errors().items():
        picture["scram", user] = frozenset(
            (each.mechanism, each.iterations) for each in credentials
        )
    for name in await admin.list_transactions():
        picture["transactional id", name] = True
    if tokens is not None:
        for token in await tokens.describe_delegation_token():
            picture["token", token.token_id] = True
    return picture


async def _read_topics(admin: Admin) -> dict[Key, State]:
    names = [name for name in await admin.list_topics() if not name.startswith(INTERNAL)]
    topics = (await admin.describe_topics(names)).raise_for_errors()
    tps = [TopicPartition(t.name, p.index) for t in topics.values() for p in t.partitions]
    starts = await _read_offsets(admin, tps, OffsetSpec.EARLIEST)
    ends = await _read_offsets(admin, tps, OffsetSpec.LATEST)
    configs = await _read_set_options(admin, [ConfigResource.topic(name) for name in names])
    return {
        ("topic", str(name)): TopicState(
            tuple(
                PartitionState(
                    tuple(each.replicas),
                    starts[TopicPartition(str(name), each.index)],
                    ends[TopicPartition(str(name), each.index)],
                )
                for each in topic.partitions
            ),
            configs[ConfigResource.topic(str(name))],
        )
        for name, topic in topics.items()
    }


async def _read_offsets(
    admin: Admin, tps: list[TopicPartition], spec: OffsetSpec
) -> dict[TopicPartition, int]:
    listed = (await admin.list_offsets(dict.fromkeys(tps, spec))).raise_for_errors()
    return {tp: each.offset for tp, each in listed.items() if each is not None}


async def _read_configs(admin: Admin) -> dict[Key, State]:
    resources = [
        each
        for each in await admin.list_config_resources()
        if each.type in (ResourceType.GROUP, ResourceType.CLIENT_METRICS)
    ]
    cluster = await admin.describe_cluster()
    resources += [
        ConfigResource.broker(),
        *(ConfigResource.broker(b.node_id) for b in cluster.brokers),
    ]
    found = await _read_set_options(admin, resources)
    return {("config", resource): options for resource, options in found.items() if options}


async def _read_set_options(
    admin: Admin, resources: list[ConfigResource]
) -> dict[ConfigResource, frozenset[tuple[str, str]]]:
    described = (await admin.describe_configs(resources)).raise_for_errors()
    return {
        resource: frozenset(
            (name, entry.value or "")
            for name, entry in entries.items()
            if entry.source is _find_source(resource)
        )
        for resource, entries in described.items()
    }


def _find_source(resource: ConfigResource) -> ConfigSource:
    of_broker, *others = SOURCES[resource.type]
    return others[0] if others and not resource.name else of_broker


async def _read_groups(admin: Admin) -> dict[Key, State]:
    groups = await admin.list_groups()
    offsets = (await admin.list_consumer_group_offsets(groups)).raise_for_errors()
    found: dict[Key, dict[int, int]] = {}
    for group, committed in offsets.items():
        for tp, offset in committed.items():
            found.setdefault(("offsets", group, tp.topic), {})[tp.partition] = offset.offset
    sharing = [name for name, group in groups.items() if group.type == "share"]
    starts = (await admin.list_share_group_offsets(sharing)).raise_for_errors()
    for group, of_group in starts.items():
        for tp, start in of_group.items():
            if start is not None:
                key = ("starts", group, tp.topic)
                found.setdefault(key, {})[tp.partition] = start.start_offset
    return {key: frozenset(each.items()) for key, each in found.items()}


def find_misplaced(
    picture: Mapping[Key, State], held: Mapping[int, frozenset[TopicPartition]]
) -> list[str]:
    """Return descriptions of the brokers that hold other replicas than those assigned to them."""
    assigned: dict[int, set[TopicPartition]] = {broker: set() for broker in held}
    for key, topic in picture.items():
        if key[0] == "topic":
            for index, each in enumerate(topic.partitions):
                for broker in each.replicas:
                    assigned.setdefault(broker, set()).add(TopicPartition(key[1], index))
    return [
        f"Broker {broker} holds the replicas {sorted(held.get(broker, ()))} and not {sorted(tps)}."
        for broker, tps in assigned.items()
        if held.get(broker, frozenset()) != tps
    ]


async def read_held(admin: Admin) -> dict[int, frozenset[TopicPartition]]:
    """Return the replicas that each broker has in its log directories."""
    described = (await admin.describe_log_dirs()).raise_for_errors()
    return {
        broker: frozenset(
            tp
            for directory in directories
            for tp, log in directory.replicas.items()
            if not tp.topic.startswith(INTERNAL) and not log.is_future
        )
        for broker, directories in described.items()
    }
