"""The admin calls about the metadata quorum, its voters, and the registrations of brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final
from uuid import UUID

from aiokclient.admin.arguments import as_kind, as_list, as_name, require_integer
from aiokclient.admin.cluster import describe_cluster
from aiokclient.admin.requests import AdminRequests
from aiokclient.cluster.client import top_level_error
from aiokclient.cluster.targets import AnyBroker
from aiokclient.errors import IllegalStateError, KafkaError, ProtocolError, error_for
from aiokclient.protocol.messages.add_raft_voter import AddRaftVoterRequest, Listener
from aiokclient.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    ReplicaState,
    ResponsePartitionData,
    TopicData,
)
from aiokclient.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from aiokclient.protocol.messages.unregister_broker import UnregisterBrokerRequest
from aiokclient.protocol.messages.unregister_controller import UnregisterControllerRequest
from aiokclient.types import public_in
from aiokclient.types.named_tuple import NamedTuple

QUORUM_TOPIC: Final = "__cluster_metadata"
"""The topic of the metadata. It has one partition, and only the controllers have it."""
NO_ID: Final = UUID(int=0)
RUNNING_MS: Final = 10_000
"""A broker that has fetched the metadata within this time is running: brokers fetch often."""


@public_in("aiokclient.admin")
class RaftVoterEndpoint(NamedTuple):
    """The address of a listener of a controller."""

    listener: str
    host: str
    port: int


@public_in("aiokclient.admin")
class QuorumReplica(NamedTuple):
    """A voter or an observer of the metadata quorum.

    `directory_id` is the id of the directory with its log, or None if the voters are those of the
    option `controller.quorum.voters`. The times are in milliseconds since the epoch: those of the
    last fetch, and of the last one that reached the end of the leader's log. They are None if the
    leader does not know them.
    """

    replica_id: int
    directory_id: UUID | None
    log_end_offset: int
    last_fetch_timestamp: int | None
    last_caught_up_timestamp: int | None


@public_in("aiokclient.admin")
class QuorumInfo(NamedTuple):
    """The metadata quorum (KIP-595): the controllers, which are its voters, and the other brokers.

    The leader is the active controller. A replica lacks the offsets from its `log_end_offset` to
    that of the leader. `endpoints` has the listeners of the voters by their ids. It is empty with
    brokers before Kafka 3.9.
    """

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    endpoints: Mapping[int, tuple[RaftVoterEndpoint, ...]]


async def describe_metadata_quorum(requests: AdminRequests, timeout: float | None) -> QuorumInfo:
    """See `Admin.describe_metadata_quorum`."""
    topic = TopicData(topic_name=QUORUM_TOPIC, partitions=[PartitionData(partition_index=0)])
    response: DescribeQuorumResponse = await requests.send_request(
        DescribeQuorumRequest(topics=[topic]), AnyBroker(), timeout, check=_find_error
    )
    (part,) = _list_parts(response)
    return QuorumInfo(
        part.leader_id,
        part.leader_epoch,
        part.high_watermark,
        tuple(map(_read_replica, part.current_voters)),
        tuple(map(_read_replica, part.observers)),
        {
            node.node_id: tuple(RaftVoterEndpoint(e.name, e.host, e.port) for e in node.listeners)
            for node in response.nodes
        },
    )


def _find_error(response: DescribeQuorumResponse) -> KafkaError | None:
    """Return the error of a response, for example that of a controller which no longer leads."""
    parts = _list_parts(response)
    if error := top_level_error(response):
        return error
    if len(parts) != 1:
        return ProtocolError("The response does not describe the metadata quorum.")
    return error_for(parts[0].error_code, parts[0].error_message, api="DescribeQuorum")


def _list_parts(response: DescribeQuorumResponse) -> list[ResponsePartitionData]:
    return [part for topic in response.topics for part in topic.partitions]


async def add_raft_voter(
    requests: AdminRequests,
    voter_id: int,
    directory_id: UUID,
    endpoints: Iterable[RaftVoterEndpoint],
    cluster_id: str | None,
    timeout: float | None,
) -> None:
    """See `Admin.add_raft_voter`."""
    _check_voter(voter_id, directory_id, cluster_id)
    listeners = [
        Listener(name=as_name(name, "listener"), host=as_name(host, "host"), port=port)
        for name, host, port in as_list(endpoints, "RaftVoterEndpoint", RaftVoterEndpoint)
    ]
    for listener in listeners:
        require_integer(listener.port, "a port")
    requests.require_open()
    deadline = requests.compute_deadline(timeout)
    remaining = requests.compute_remaining_s(deadline)
    request = AddRaftVoterRequest(
        cluster_id=cluster_id,
        timeout_ms=requests.compute_broker_timeout_ms(remaining),
        voter_id=voter_id,
        voter_directory_id=directory_id,
        listeners=listeners,
    )
    await requests.send_request(request, AnyBroker(), remaining)


async def remove_raft_voter(
    requests: AdminRequests,
    voter_id: int,
    directory_id: UUID,
    cluster_id: str | None,
    timeout: float | None,
) -> None:
    """See `Admin.remove_raft_voter`."""
    _check_voter(voter_id, directory_id, cluster_id)
    request = RemoveRaftVoterRequest(
        cluster_id=cluster_id, voter_id=voter_id, voter_directory_id=directory_id
    )
    await requests.send_request(request, AnyBroker(), timeout)


async def unregister_broker(
    requests: AdminRequests, broker_id: int, check: bool, timeout: float | None
) -> None:
    """See `Admin.unregister_broker`."""
    require_integer(broker_id, "the id of a broker")
    requests.require_open()
    deadline = requests.compute_deadline(timeout)
    remaining = requests.compute_remaining_s(deadline)
    if check and broker_id in await _list_running(requests, remaining):
        raise IllegalStateError(
            f"Broker {broker_id} is running, and would not register again before its next "
            "start. Stop it first, or pass check=False."
        )
    request = UnregisterBrokerRequest(broker_id=broker_id)
    await requests.send_request(request, AnyBroker(), requests.compute_remaining_s(deadline))


async def _list_running(requests: AdminRequests, timeout: float) -> set[int]:
    """Return the ids of the brokers that run.

    Controllers do not list brokers, but know when these have fetched the metadata.
    """
    if not requests.uses_controllers:
        cluster = await describe_cluster(requests, False, False, timeout)
        return {each.node_id for each in cluster.brokers}
    quorum = await describe_metadata_quorum(requests, timeout)
    # A node may be both a broker and a voter.
    nodes = (*quorum.voters, *quorum.observers)
    replicas = {each.replica_id: each.last_fetch_timestamp or 0 for each in nodes}
    now_ms = max((each.last_fetch_timestamp or 0 for each in quorum.voters), default=0)
    return {node for node, fetched_ms in replicas.items() if now_ms - fetched_ms < RUNNING_MS}


async def unregister_controller(
    requests: AdminRequests, controller_id: int, check: bool, timeout: float | None
) -> None:
    """See `Admin.unregister_controller`."""
    require_integer(controller_id, "the id of a controller")
    requests.require_open()
    deadline = requests.compute_deadline(timeout)
    if check:
        quorum = await describe_metadata_quorum(requests, requests.compute_remaining_s(deadline))
        if any(each.replica_id == controller_id for each in quorum.voters):
            raise IllegalStateError(
                f"Controller {controller_id} is a voter. Remove it from the voters first, or pass "
                "check=False."
            )
    request = UnregisterControllerRequest(controller_id=controller_id)
    await requests.send_request(request, AnyBroker(), requests.compute_remaining_s(deadline))


def _check_voter(voter_id: Any, directory_id: Any, cluster_id: Any) -> None:
    require_integer(voter_id, "the id of a controller")
    as_kind(directory_id, UUID)
    if cluster_id is not None:
        as_name(cluster_id, "cluster")


def _read_replica(state: ReplicaState) -> QuorumReplica:
    fetched, caught_up = state.last_fetch_timestamp, state.last_caught_up_timestamp
    return QuorumReplica(
        state.replica_id,
        None if state.replica_directory_id == NO_ID else state.replica_directory_id,
        state.log_end_offset,
        None if fetched < 0 else fetched,
        None if caught_up < 0 else caught_up,
    )
