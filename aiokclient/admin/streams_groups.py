"""The admin call that describes streams groups, which Kafka Streams uses (KIP-1071)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aiokclient.admin.arguments import as_names
from aiokclient.admin.cluster import (
    AclOperation,
    BrokerDescription,
    described_broker,
    read_operations,
)
from aiokclient.admin.requests import AdminRequests, Answers, read_failure
from aiokclient.admin.results import OpenEnum, Results
from aiokclient.cluster.metadata.snapshot import BrokerInfo
from aiokclient.cluster.targets import Broker
from aiokclient.protocol.messages.streams_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    StreamsGroupDescribeRequest,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
    TopologyDescription,
    TopologyDescriptionNode,
)
from aiokclient.types import public_in
from aiokclient.types.named_tuple import NamedTuple


@public_in("aiokclient.admin")
class StreamsTopic(NamedTuple):
    """An internal topic of a streams group.

    `partitions` and `replication_factor` are None if the group does not prescribe them.
    """

    name: str
    partitions: int | None
    replication_factor: int | None
    configs: Mapping[str, str]


@public_in("aiokclient.admin")
class StreamsSubtopology(NamedTuple):
    """A part of a topology whose tasks are assigned together, and its topics."""

    subtopology_id: str
    source_topics: tuple[str, ...]
    repartition_sink_topics: tuple[str, ...]
    changelog_topics: tuple[StreamsTopic, ...]
    repartition_source_topics: tuple[StreamsTopic, ...]


@public_in("aiokclient.admin")
class StreamsTasks(NamedTuple):
    """The tasks of a member: partitions by the id of their subtopology."""

    active: Mapping[str, tuple[int, ...]]
    standby: Mapping[str, tuple[int, ...]]
    warmup: Mapping[str, tuple[int, ...]]


@public_in("aiokclient.admin")
@dataclass(frozen=True, slots=True)
class StreamsMemberDescription:
    """A member of a streams group.

    `process_id` is the same for all members of a process. `endpoint` is the host and port for
    interactive queries, or None. `target` has the tasks that the member will have when the current
    rebalance is complete. `task_offsets` and `task_end_offsets` are the offsets in the changelogs,
    and their ends, by subtopology and partition. `classic` is whether the member still uses the
    classic protocol.
    """

    member_id: str
    client_id: str
    host: str
    epoch: int
    topology_epoch: int
    process_id: str
    tasks: StreamsTasks
    target: StreamsTasks
    group_instance_id: str | None = None
    rack: str | None = None
    endpoint: tuple[str, int] | None = None
    client_tags: Mapping[str, str] | None = None
    task_offsets: Mapping[tuple[str, int], int] | None = None
    task_end_offsets: Mapping[tuple[str, int], int] | None = None
    classic: bool = False


@public_in("aiokclient.admin")
class StreamsNodeType(OpenEnum):
    """The kinds of nodes in a topology. The values are those of Kafka's protocol."""

    UNKNOWN = 0
    SOURCE = 1
    PROCESSOR = 2
    SINK = 3


@public_in("aiokclient.admin")
class StreamsNode(NamedTuple):
    """A node of a topology, with the names of the nodes that follow it.

    `source_topics` are those of a source, `sink_topic` that of a sink, and `stores` those of a
    processor. Topics that the program chooses while it runs are missing.
    """

    name: str
    type: StreamsNodeType
    source_topics: tuple[str, ...]
    sink_topic: str | None
    stores: tuple[str, ...]
    successors: tuple[str, ...]


@public_in("aiokclient.admin")
class StreamsTopologyDescription(NamedTuple):
    """The nodes of a topology (KIP-1331): by the id of their subtopology, and of global stores.

    A global store has a source and a processor.
    """

    subtopologies: Mapping[str, tuple[StreamsNode, ...]]
    global_stores: tuple[tuple[StreamsNode, StreamsNode], ...]


@public_in("aiokclient.admin")
class TopologyDescriptionStatus(OpenEnum):
    """The reasons why a description of a topology is there or not (KIP-1331)."""

    UNKNOWN = -1
    NOT_REQUESTED = 0
    NOT_STORED = 1
    ERROR = 2
    AVAILABLE = 3


@public_in("aiokclient.admin")
@dataclass(frozen=True, slots=True)
class StreamsGroupDescription:
    """A streams group with its subtopologies and members.

    `topology_epoch` is None, and there are no subtopologies, while the topology is not initialized.
    `assignor` is None before Kafka 4.4. `topology_description` is None unless its status is
    AVAILABLE. `authorized_operations` is None unless the call requested it.
    """

    group_id: str
    state: str
    coordinator: BrokerDescription
    epoch: int
    assignment_epoch: int
    topology_epoch: int | None
    subtopologies: tuple[StreamsSubtopology, ...]
    members: tuple[StreamsMemberDescription, ...]
    assignor: str | None = None
    topology_description: StreamsTopologyDescription | None = None
    topology_description_status: TopologyDescriptionStatus = TopologyDescriptionStatus.NOT_REQUESTED
    authorized_operations: frozenset[AclOperation] | None = None


async def describe_streams_groups(
    requests: AdminRequests,
    groups: Iterable[str],
    include_authorized_operations: bool,
    include_topology_description: bool,
    timeout: float | None,
) -> Results[str, StreamsGroupDescription]:
    """See `Admin.describe_streams_groups`."""

    async def ask(
        items: dict[str, None], to: BrokerInfo, remaining: float
    ) -> Answers[str, StreamsGroupDescription]:
        request = StreamsGroupDescribeRequest(
            group_ids=list(items),
            include_authorized_operations=include_authorized_operations,
            include_topology_description=include_topology_description,
        )
        response = await requests.send_request(request, Broker(to.node_id), remaining)
        coordinator = described_broker(to)
        return {
            group.group_id: read_failure(group, "StreamsGroupDescribe", f"group {group.group_id}")
            or read_streams_group(group, coordinator)
            for group in response.groups
        }

    return await requests.ask_coordinators(dict.fromkeys(as_names(groups)), ask, timeout)


def read_streams_group(
    group: DescribedGroup, coordinator: BrokerDescription
) -> StreamsGroupDescription:
    """Return a description of a group in a StreamsGroupDescribe response. Synchronous."""
    topology = group.topology
    nodes = group.topology_description
    return StreamsGroupDescription(
        group.group_id,
        group.group_state,
        coordinator,
        group.group_epoch,
        group.assignment_epoch,
        None if topology is None else topology.epoch,
        () if topology is None else tuple(map(_read_subtopology, topology.subtopologies or ())),
        tuple(map(_read_member, group.members)),
        group.assignor_name,
        None if nodes is None else _read_topology(nodes),
        TopologyDescriptionStatus(group.topology_description_status),
        read_operations(group.authorized_operations),
    )


def _read_subtopology(given: Subtopology) -> StreamsSubtopology:
    return StreamsSubtopology(
        given.subtopology_id,
        tuple(given.source_topics),
        tuple(given.repartition_sink_topics),
        tuple(map(_read_topic, given.state_changelog_topics)),
        tuple(map(_read_topic, given.repartition_source_topics)),
    )


def _read_topic(given: TopicInfo) -> StreamsTopic:
    configs = {each.key: each.value for each in given.topic_configs}
    return StreamsTopic(
        given.name, given.partitions or None, given.replication_factor or None, configs
    )


def _read_member(given: Member) -> StreamsMemberDescription:
    endpoint = given.user_endpoint
    return StreamsMemberDescription(
        given.member_id,
        given.client_id,
        given.client_host,
        given.member_epoch,
        given.topology_epoch,
        given.process_id,
        _read_tasks(given.assignment),
        _read_tasks(given.target_assignment),
        given.instance_id,
        given.rack_id,
        None if endpoint is None else (endpoint.host, endpoint.port),
        {each.key: each.value for each in given.client_tags},
        _read_offsets(given.task_offsets),
        _read_offsets(given.task_end_offsets),
        given.is_classic,
    )


def _read_tasks(given: Assignment) -> StreamsTasks:
    return StreamsTasks(
        _read_partitions(given.active_tasks),
        _read_partitions(given.standby_tasks),
        _read_partitions(given.warmup_tasks),
    )


def _read_partitions(tasks: Iterable[TaskIds]) -> dict[str, tuple[int, ...]]:
    return {each.subtopology_id: tuple(sorted(each.partitions)) for each in tasks}


def _read_offsets(given: Iterable[TaskOffset]) -> dict[tuple[str, int], int]:
    return {(each.subtopology_id, each.partition): each.offset for each in given}


def _read_topology(given: TopologyDescription) -> StreamsTopologyDescription:
    return StreamsTopologyDescription(
        {each.subtopology_id: tuple(map(_read_node, each.nodes)) for each in given.subtopologies},
        tuple(
            (_read_node(each.source), _read_node(each.processor)) for each in given.global_stores
        ),
    )


def _read_node(given: TopologyDescriptionNode) -> StreamsNode:
    return StreamsNode(
        given.name,
        StreamsNodeType(given.node_type),
        tuple(given.source_topics),
        given.sink_topic,
        tuple(given.stores),
        tuple(given.successors),
    )
