"""The common parts of ShareFetch and ShareAcknowledge."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol, TypeVar

from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.security.acls import AclResource
from aiokclient.testing.broker.share.acknowledging import AckResult
from aiokclient.testing.broker.share.sessions import SessionKey, SharePartitionKey

if TYPE_CHECKING:
    from aiokclient.testing.broker.call import Call

E = TypeVar("E")
_LONGEST_ID = 36
_PARTITION_CODES = (
    Code.UNKNOWN_SERVER_ERROR,
    Code.UNKNOWN_TOPIC_OR_PARTITION,
    Code.NOT_LEADER_OR_FOLLOWER,
    Code.REQUEST_TIMED_OUT,
    Code.COORDINATOR_LOAD_IN_PROGRESS,
    Code.COORDINATOR_NOT_AVAILABLE,
    Code.TOPIC_AUTHORIZATION_FAILED,
    Code.FENCED_LEADER_EPOCH,
    Code.UNKNOWN_LEADER_EPOCH,
    Code.OFFSET_NOT_AVAILABLE,
    Code.UNKNOWN_TOPIC_ID,
    Code.INVALID_RECORD_STATE,
)
"""The errors of partitions. A test that injects one does not refuse the whole request."""


class NamedLeader(Protocol):
    """The leader of a partition in a response."""

    leader_id: int
    leader_epoch: int


def check_member(call: Call) -> SessionKey:
    """Return the group and the member of a request. Raises Refused."""
    code = call.find_refusal()
    if code and code not in _PARTITION_CODES:
        raise Refused(Code(code), "")
    group_id, member_id = call.request.group_id, call.request.member_id
    if code := call.check_authorization(AclResource.GROUP, group_id or ""):
        raise Refused(Code(code), "")
    if group_id is None or not member_id or len(member_id) > _LONGEST_ID:
        raise Refused(Code.INVALID_REQUEST, "")
    return SessionKey(group_id, member_id)


def read_lock_duration_ms(call: Call, group_id: str) -> int:
    """Return the duration of locks that begin now."""
    configs = call.cluster.groups.find_configs(group_id, keep=False)
    return configs.read_number("share.record.lock.duration.ms")


def name_fenced_leader(
    call: Call,
    target: SharePartitionKey,
    result: AckResult,
    named: NamedLeader,
    leaders: dict[int, None],
) -> None:
    """Name the leader of a partition whose offsets were altered: this broker still leads it."""
    if result.code == Code.NOT_LEADER_OR_FOLLOWER:
        topic = call.cluster.topics_by_id.get(target.topic_id)
        partition = None if topic is None else topic.find_partition(target.partition)
        if partition is not None:
            named.leader_id, named.leader_epoch = partition.leader, partition.leader_epoch
            leaders[partition.leader] = None


def list_endpoints(call: Call, make: Callable[..., E], leaders: Iterable[int]) -> list[E]:
    """Return the addresses of leaders that are running."""
    alive, listener = call.cluster.alive, call.owner.listener
    named = [alive[node] for node in leaders if node in alive]
    return [
        make(
            node_id=each.node_id,
            host=each.endpoints[listener].host,
            port=each.endpoints[listener].port,
            rack=each.rack,
        )
        for each in named
    ]
