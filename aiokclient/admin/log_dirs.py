"""The admin calls about the log directories of brokers, and of single replicas (KIP-113)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from aiokclient.admin.arguments import (
    TOPIC,
    as_list,
    as_mapping,
    as_name,
    as_text,
    require_integer,
)
from aiokclient.admin.requests import AdminRequests, Answers, ask_targets, by_topic
from aiokclient.admin.results import Results
from aiokclient.cluster.metadata.snapshot import ClusterMetadata
from aiokclient.cluster.targets import Broker
from aiokclient.errors import (
    KafkaError,
    ReplicaNotAvailableError,
    UnknownTopicOrPartitionError,
    error_for,
)
from aiokclient.errors.local import ArgumentTypeError
from aiokclient.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from aiokclient.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from aiokclient.types import TopicPartition, is_integer, public_in
from aiokclient.types.named_tuple import NamedTuple

API = "DescribeLogDirs"
ALTER = "AlterReplicaLogDirs"


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
            described = tuple(_read_log_dir(result, to.node_id) for result in response.results)
            return dict.fromkeys(some, described)

        return await ask_targets({Broker(node): {node: None} for node in items}, ask_one)

    chosen = sorted(snapshot.brokers) if nodes is None else nodes
    return await requests.ask_items(dict.fromkeys(chosen), ask, requests.compute_remaining_s(until))


def _read_log_dir(result: DescribeLogDirsResult, node_id: int) -> LogDirDescription:
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


@public_in("aiokclient.admin")
class TopicPartitionReplica(NamedTuple):
    """The replica of a partition on one broker."""

    topic: str
    partition: int
    broker_id: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} on broker {self.broker_id}"


@public_in("aiokclient.admin")
class ReplicaLogDirs(NamedTuple):
    """The log directory of a replica, and the one to which it is being moved.

    `path` is None if the broker has no such replica, and `future_path` is None if the replica is
    not being moved. `offset_lag` is the number of offsets from the end of the log to the high
    watermark, and `future_offset_lag` from the end of the new copy to the end of the log. They are
    None if there is no such directory.
    """

    path: str | None = None
    offset_lag: int | None = None
    future_path: str | None = None
    future_offset_lag: int | None = None


async def describe_replica_log_dirs(
    requests: AdminRequests, replicas: Iterable[TopicPartitionReplica], timeout: float | None
) -> Results[TopicPartitionReplica, ReplicaLogDirs]:
    """See `Admin.describe_replica_log_dirs`."""
    wanted = dict.fromkeys(map(_as_replica, _as_replicas(replicas)))

    async def ask_broker(
        items: dict[TopicPartitionReplica, None], to: Broker, remaining: float
    ) -> Answers[TopicPartitionReplica, ReplicaLogDirs]:
        topics = [
            DescribableLogDirTopic(topic=name, partitions=[tp.partition for tp in tps])
            for name, tps in by_topic(map(_find_partition, items)).items()
        ]
        response = await requests.send_request(
            DescribeLogDirsRequest(topics=topics), to, min(remaining, requests.patience_s)
        )
        found = _find_dirs(response)
        return {each: found.get(_find_partition(each), ReplicaLogDirs()) for each in items}

    return await _ask_brokers(requests, wanted, ask_broker, timeout)


async def alter_replica_log_dirs(
    requests: AdminRequests,
    paths: Mapping[TopicPartitionReplica, str],
    check: bool,
    timeout: float | None,
) -> Results[TopicPartitionReplica, None]:
    """See `Admin.alter_replica_log_dirs`."""
    given = as_mapping(paths, "replicas")
    wanted = {_as_replica(each): as_text(path, "a path") for each, path in given.items()}

    async def ask_broker(
        items: dict[TopicPartitionReplica, str], to: Broker, remaining: float
    ) -> Answers[TopicPartitionReplica, None]:
        answers: dict[TopicPartitionReplica, KafkaError | None] = {}
        if check:
            names = list(dict.fromkeys(each.topic for each in items))
            snapshot = await requests.cluster.updater.refresh(
                names, timeout=remaining, at_once=True
            )
            answers = {
                each: error
                for each in items
                if (error := _find_problem(snapshot, each)) is not None
            }
        left = {each: path for each, path in items.items() if each not in answers}
        if not left:
            return answers
        response = await requests.send_request(
            _make_request(left), to, min(remaining, requests.patience_s)
        )
        for topic in response.results:
            for result in topic.partitions:
                each = TopicPartitionReplica(topic.topic_name, result.partition_index, to.node_id)
                answers[each] = error_for(
                    result.error_code, api=ALTER, resource=f"replica {each}", broker=to.node_id
                )
        return answers

    return await _ask_brokers(requests, wanted, ask_broker, timeout)


async def _ask_brokers(
    requests: AdminRequests,
    wanted: Mapping[TopicPartitionReplica, Any],
    ask_broker: Any,
    timeout: float | None,
) -> Results[TopicPartitionReplica, Any]:
    """Send the request for each replica to its broker."""

    async def ask(
        items: dict[TopicPartitionReplica, Any], remaining: float
    ) -> Answers[TopicPartitionReplica, Any]:
        brokers: dict[Broker, dict[TopicPartitionReplica, Any]] = {}
        for each, item in items.items():
            brokers.setdefault(Broker(each.broker_id), {})[each] = item
        return await ask_targets(brokers, lambda some, to: ask_broker(some, to, remaining))

    return await requests.ask_items(wanted, ask, timeout)


def _find_dirs(response: DescribeLogDirsResponse) -> dict[TopicPartition, ReplicaLogDirs]:
    found: dict[TopicPartition, ReplicaLogDirs] = {}
    for directory in response.results:
        for topic in directory.topics:
            for part in topic.partitions:
                tp = TopicPartition(topic.name, part.partition_index)
                now = found.get(tp, ReplicaLogDirs())
                if part.is_future_key:
                    found[tp] = ReplicaLogDirs(*now[:2], directory.log_dir, part.offset_lag)
                else:
                    found[tp] = ReplicaLogDirs(directory.log_dir, part.offset_lag, *now[2:])
    return found


def _find_problem(snapshot: ClusterMetadata, replica: TopicPartitionReplica) -> KafkaError | None:
    """Return an error if the broker has no such replica.

    A broker would remember the directory for a topic that is created later, although it returns an
    error.
    """
    topic = snapshot.find_topic(replica.topic)
    if topic is not None and topic.error:
        return error_for(topic.error, api=ALTER, resource=f"replica {replica}")
    if topic is None or not 0 <= replica.partition < len(topic.partitions):
        return UnknownTopicOrPartitionError(api=ALTER, resource=f"replica {replica}")
    if replica.broker_id not in topic.partitions[replica.partition].replicas:
        return ReplicaNotAvailableError(api=ALTER, resource=f"replica {replica}")
    return None


def _make_request(paths: Mapping[TopicPartitionReplica, str]) -> AlterReplicaLogDirsRequest:
    by_path: dict[str, list[TopicPartition]] = {}
    for each, path in paths.items():
        by_path.setdefault(path, []).append(_find_partition(each))
    return AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=path,
                topics=[
                    AlterReplicaLogDirTopic(name=name, partitions=[tp.partition for tp in of_topic])
                    for name, of_topic in by_topic(tps).items()
                ],
            )
            for path, tps in by_path.items()
        ]
    )


def _find_partition(replica: TopicPartitionReplica) -> TopicPartition:
    return TopicPartition(replica.topic, replica.partition)


def _as_replicas(given: Any) -> Iterable[Any]:
    if isinstance(given, str | bytes | TopicPartitionReplica) or not isinstance(given, Iterable):
        raise ArgumentTypeError(
            f"{given!r} is not a collection of replicas. Pass a list of TopicPartitionReplica."
        )
    return given


def _as_replica(given: Any) -> TopicPartitionReplica:
    if isinstance(given, tuple) and len(given) == 3:
        topic, partition, broker_id = given
        if isinstance(topic, str) and is_integer(partition) and is_integer(broker_id):
            return TopicPartitionReplica(as_name(topic, TOPIC), partition, broker_id)
    raise ArgumentTypeError(
        f"{given!r} is not a replica. Pass a TopicPartitionReplica, or a topic, the number of the "
        "partition, and the id of the broker."
    )
