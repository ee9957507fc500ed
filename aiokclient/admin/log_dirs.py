"""The admin call that describes the log directories of brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from aiokclient.admin.arguments import TOPIC, as_list, as_name, require_integer
from aiokclient.admin.requests import AdminRequests, Answers, ask_targets
from aiokclient.admin.results import Results
from aiokclient.cluster.targets import Broker
from aiokclient.errors import KafkaError, UnknownTopicOrPartitionError, error_for
from aiokclient.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)
from aiokclient.types import TopicPartition, public_in

API = "DescribeLogDirs"


@public_in("aiokclient.admin")
@dataclass(frozen=True, slots=True)
class ReplicaLog:
    """The log of one replica in a log directory.

    `size` is in bytes. `is_future` is whether the log is a new copy, which replaces the current
    log in another directory as soon as it has caught up. `offset_lag` is the number of offsets from
    the end of this log to the high watermark, or for a new copy, to the end of the current log.
    """

    size: int
    offset_lag: int
    is_future: bool


@public_in("aiokclient.admin")
@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A log directory of a broker.

    `error` is the reason why the directory is offline, or None if it is online. The sizes of its
    volume are in bytes; they are None before Kafka 3.3. A cordoned directory gets no new replicas
    (Kafka 4.3).
    """

    path: str
    replicas: Mapping[TopicPartition, ReplicaLog]
    total_bytes: int | None = None
    usable_bytes: int | None = None
    is_cordoned: bool = False
    error: KafkaError | None = None


async def describe_log_dirs(
    requests: AdminRequests,
    brokers: Iterable[int] | None,
    topics: Iterable[str] | None,
    timeout: float | None,
) -> Results[int, tuple[LogDirDescription, ...]]:
    """See `Admin.describe_log_dirs`."""
    nodes = None if brokers is None else as_list(brokers, "broker ids")
    for node in nodes or ():
        require_integer(node, "the id of a broker")
    names = None if topics is None else as_list(topics, "topics")
    for name in names or ():
        as_name(name, TOPIC)
    names = None if names is None else list(dict.fromkeys(names))
    requests.require_open()
    until = requests.compute_deadline(timeout)
    snapshot = await requests.cluster.updater.refresh(
        names or None, timeout=requests.compute_remaining_s(until), at_once=True
    )
    wanted: list[DescribableLogDirTopic] | None = None
    if names is not None:
        wanted = []
        for name in names:
            info = snapshot.find_topic(name)
            if info is None:
                raise UnknownTopicOrPartitionError(api=API, resource=f"topic {name}")
            if error := error_for(info.error, api=API, resource=f"topic {name}"):
                raise error
            indexes = [part.index for part in info.partitions]
            wanted.append(DescribableLogDirTopic(topic=name, partitions=indexes))
    request = DescribeLogDirsRequest(topics=wanted)

    async def ask(
        items: dict[int, None], remaining: float
    ) -> Answers[int, tuple[LogDirDescription, ...]]:
        bound = min(remaining, requests.patience_s)

        async def ask_one(some: dict[int, None], to: Broker) -> Answers[int, Any]:
            response = await requests.send_request(request, to, bound)
            described = tuple(_described(result, to.node_id) for result in response.results)
            return dict.fromkeys(some, described)

        return await ask_targets({Broker(node): {node: None} for node in items}, ask_one)

    chosen = sorted(snapshot.brokers) if nodes is None else nodes
    return await requests.ask_items(dict.fromkeys(chosen), ask, requests.compute_remaining_s(until))


def _described(result: DescribeLogDirsResult, node_id: int) -> LogDirDescription:
    error = error_for(result.error_code, api=API, resource=f"log directory {result.log_dir}")
    if error is not None:
        error.broker = node_id
    replicas = {
        TopicPartition(topic.name, part.partition_index): ReplicaLog(
            part.partition_size, part.offset_lag, part.is_future_key
        )
        for topic in result.topics
        for part in topic.partitions
    }
    return LogDirDescription(
        result.log_dir,
        MappingProxyType(replicas),
        None if result.total_bytes < 0 else result.total_bytes,
        None if result.usable_bytes < 0 else result.usable_bytes,
        result.is_cordoned,
        error,
    )
