"""The throttle of reassignments: the bytes a second that brokers copy to each other.

A throttle has two parts. The topics name the replicas to which it applies, those that are copied
and those that copy, each as "partition:broker". The brokers have the rates, and each must be told
its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from aiokclient.admin.arguments import require_integer
from aiokclient.admin.cluster import describe_cluster
from aiokclient.admin.configs import (
    Append,
    Change,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    Subtract,
    alter_configs,
    describe_configs,
)
from aiokclient.admin.replicas.partitions import (
    PartitionReassignment,
    list_partition_reassignments,
)
from aiokclient.admin.requests import AdminRequests, by_topic
from aiokclient.admin.results import Results
from aiokclient.admin.topics import list_topics
from aiokclient.errors import UnknownTopicOrPartitionError
from aiokclient.errors.local import ArgumentValueError
from aiokclient.types import MAX_TEXT_BYTES, TopicPartition
from aiokclient.types.named_tuple import NamedTuple

RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS: Final = "leader.replication.throttled.replicas"
FOLLOWERS: Final = "follower.replication.throttled.replicas"
ALL_REPLICAS: Final = "*"


class Copying(NamedTuple):
    """The brokers that have the records of a partition, and those that copy them."""

    sources: tuple[int, ...]
    targets: tuple[int, ...]


def find_copying(moving: PartitionReassignment) -> Copying:
    """Return the copying of a partition that is being moved."""
    former = tuple(each for each in moving.replicas if each not in moving.adding)
    return Copying(former, moving.adding)


def require_rate(throttle: int | None) -> None:
    """Raise an error if the argument is neither None nor a number of bytes a second."""
    if throttle is None:
        return
    require_integer(throttle, "a number of bytes a second")
    if throttle <= 0:
        raise ArgumentValueError(
            f"A throttle of {throttle} bytes a second would stop the copies. Pass a number above 0."
        )


async def throttle_reassignments(
    requests: AdminRequests, throttle: int | None, timeout: float | None
) -> Results[ConfigResource, None]:
    """See `Admin.throttle_reassignments`."""
    require_rate(throttle)
    requests.require_open()
    deadline = requests.compute_deadline(timeout)
    if throttle is None:
        return await _remove_all(requests, deadline)
    moving = await list_partition_reassignments(
        requests, None, requests.compute_remaining_s(deadline)
    )
    copies = {tp: find_copying(now) for tp, now in moving.items()}
    return await set_throttle(requests, copies, throttle, deadline)


async def set_throttle(
    requests: AdminRequests,
    copies: Mapping[TopicPartition, Copying],
    throttle: int,
    deadline: float,
) -> Results[ConfigResource, None]:
    """Limit the bytes a second that each broker sends and receives for these copies."""
    lists = _list_throttled(copies)
    described = await _describe_lists(requests, lists, deadline)
    used = {each for copy in copies.values() for brokers in copy for each in brokers}
    changes: dict[ConfigResource, Mapping[str, Change]] = {
        broker: dict.fromkeys(RATES, throttle)
        for broker in await _find_brokers(requests, used, deadline)
    }
    for topic, wanted in lists.items():
        # A list has either replicas or "*", which means all of them.
        appended: dict[str, Change] = {}
        for name, replicas in wanted.items():
            text = ",".join(replicas)
            if text and ALL_REPLICAS not in _split(described[topic], name):
                is_short = len(text) <= MAX_TEXT_BYTES
                appended[name] = Append(text) if is_short else ALL_REPLICAS
        if appended:
            changes[topic] = appended
    return await _alter(requests, changes, deadline)


async def remove_throttle(
    requests: AdminRequests, copies: Mapping[TopicPartition, Copying], deadline: float
) -> Results[ConfigResource, None]:
    """Remove what `set_throttle` has set.

    The brokers are those of the copies, and those that the topics name: a plan from a file may not
    have the brokers that are copied from. The rates stay while other partitions are being moved,
    which may need them.
    """
    lists = _list_throttled(copies)
    described = await _describe_lists(requests, lists, deadline)
    changes: dict[ConfigResource, Mapping[str, Change]] = {}
    by_name = by_topic(copies)
    used = {each for copy in copies.values() for brokers in copy for each in brokers}
    for topic, wanted in lists.items():
        entries = described[topic]
        if entries is None:
            continue
        numbers = {str(tp.partition) for tp in by_name[topic.name]}
        removed: dict[str, Change] = {}
        for name, replicas in wanted.items():
            listed = _split(entries, name)
            # The broker that was asked may not know yet what was appended.
            ours = {*replicas, *(each for each in listed if each.split(":")[0] in numbers)}
            used.update(int(each.split(":")[1]) for each in ours)
            # Without its last replica, the option would stay set, to an empty list.
            others = [each for each in listed if each not in ours]
            text = ",".join(sorted(ours))
            removed[name] = Subtract(text) if others and len(text) <= MAX_TEXT_BYTES else None
        changes[topic] = removed
    moving = await list_partition_reassignments(
        requests, None, requests.compute_remaining_s(deadline)
    )
    if copies.keys() >= moving.keys():
        for broker in await _find_brokers(requests, used, deadline):
            changes[broker] = dict.fromkeys(RATES)
    return await _alter(requests, changes, deadline)


async def _remove_all(requests: AdminRequests, deadline: float) -> Results[ConfigResource, None]:
    """Remove the rates of all brokers, and the lists of all topics that have some."""
    names = await list_topics(requests, True, requests.compute_remaining_s(deadline))
    topics = map(ConfigResource.topic, names)
    described = await _describe_lists(requests, topics, deadline)
    changes: dict[ConfigResource, Mapping[str, Change]] = {
        topic: dict.fromkeys(each)
        for topic, entries in described.items()
        if entries is not None and (each := _find_set(entries))
    }
    for node in await find_running(requests, deadline):
        changes[ConfigResource.broker(node)] = dict.fromkeys(RATES)
    return await _alter(requests, changes, deadline)


def _list_throttled(
    copies: Mapping[TopicPartition, Copying],
) -> dict[ConfigResource, dict[str, list[str]]]:
    """Return the replicas that the options of each topic must name."""
    return {
        ConfigResource.topic(topic): {
            LEADERS: [f"{tp.partition}:{each}" for tp in tps for each in copies[tp].sources],
            FOLLOWERS: [f"{tp.partition}:{each}" for tp in tps for each in copies[tp].targets],
        }
        for topic, tps in by_topic(copies).items()
    }


async def _describe_lists(
    requests: AdminRequests, topics: Iterable[ConfigResource], deadline: float
) -> dict[ConfigResource, dict[str, ConfigEntry] | None]:
    """Return the lists of topics, or None for one that was deleted."""
    wanted = dict.fromkeys(topics, (LEADERS, FOLLOWERS))
    described = await describe_configs(
        requests, wanted, False, False, requests.compute_remaining_s(deadline)
    )
    found: dict[ConfigResource, dict[str, ConfigEntry] | None] = dict(described.succeeded)
    for topic, error in described.errors.items():
        if error.code != UnknownTopicOrPartitionError.code:
            raise error
        found[topic] = None
    return found


async def find_running(requests: AdminRequests, deadline: float) -> list[int]:
    """Return the ids of the brokers that run, sorted."""
    cluster = await describe_cluster(requests, False, False, requests.compute_remaining_s(deadline))
    return [broker.node_id for broker in cluster.brokers]


async def _find_brokers(
    requests: AdminRequests, used: Collection[int], deadline: float
) -> list[ConfigResource]:
    """Return those of the brokers that run. Others could not be told their rate."""
    running = await find_running(requests, deadline)
    return [ConfigResource.broker(each) for each in running if each in used]


async def _alter(
    requests: AdminRequests, changes: Mapping[ConfigResource, Mapping[str, Change]], deadline: float
) -> Results[ConfigResource, None]:
    # A check would only cost requests: topics were described, and brokers have all these options.
    return await alter_configs(
        requests, changes, False, False, requests.compute_remaining_s(deadline)
    )


def _split(entries: Mapping[str, ConfigEntry] | None, name: str) -> list[str]:
    entry = None if entries is None else entries.get(name)
    return [each for each in ((entry and entry.value) or "").split(",") if each]


def _find_set(entries: Mapping[str, ConfigEntry]) -> list[str]:
    return [name for name, entry in entries.items() if entry.source is ConfigSource.TOPIC]
