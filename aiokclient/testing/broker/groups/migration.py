"""The conversion of a group with members: classic to consumer, and back (KIP-848).

Upgrade: a first member that uses the consumer protocol joins a group of classic consumers. Each
classic consumer keeps what the leader assigned, and joins again at its next heartbeat. Downgrade:
the last member that uses the consumer protocol leaves, or a classic member replaces it, and the
remaining members begin a classic rebalance. `group.consumer.migration.policy` determines whether an
upgrade or a downgrade is allowed. Groups without members can always be converted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokclient.protocol.messages import JoinGroupResponse, SyncGroupResponse
from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.groups.classic_wire import (
    assignment_bytes,
    read_assignment,
    read_subscription,
    version_of,
)
from aiokclient.testing.broker.groups.consumer_member import ClassicSide, ConsumerMember
from aiokclient.testing.broker.groups.members import ClassicMember
from aiokclient.testing.broker.groups.rebalancing import ClassicGroupState, RebalancingGroup

if TYPE_CHECKING:
    from aiokclient.testing.broker.groups.consumer_group import ConsumerGroup
    from aiokclient.testing.broker.state import ClusterState

_UP = ("bidirectional", "upgrade")
_DOWN = ("bidirectional", "downgrade")


def upgrade(old: RebalancingGroup, new: ConsumerGroup) -> None:
    """Fill `new` with the members of a classic group. Raises Refused if that is not possible."""
    cluster = old.cluster
    allowed = cluster.configs["group.consumer.migration.policy"] in _UP
    most = cluster.configs.number("group.consumer.max.size")
    if not allowed or old.protocol_type != "consumer" or len(old.members) > most:
        raise Refused(Code.GROUP_ID_NOT_FOUND, f"Group {old.group_id} is not a consumer group.")
    members = [_upgraded(old, each) for each in old.members if each.metadata(old.protocol)]
    for each in old.members:
        each.answer_join(
            JoinGroupResponse(error_code=Code.REBALANCE_IN_PROGRESS, member_id=each.member_id)
        )
        each.answer_sync(SyncGroupResponse(error_code=Code.REBALANCE_IN_PROGRESS))
    new.begin(old.generation, members)


def _upgraded(group: RebalancingGroup, member: ClassicMember) -> ConsumerMember:
    subscription = read_subscription(member.metadata(group.protocol))
    return ConsumerMember(
        member_id=member.member_id,
        epoch=group.generation,
        previous_epoch=group.generation,
        instance_id=member.instance_id,
        rack=subscription.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=tuple(subscription.topics),
        assigned=read_assignment(group.cluster, member.assignment),
        classic=ClassicSide(
            session_timeout_ms=member.session_timeout_ms, protocols=member.protocols
        ),
    )


def classic_only(group: ConsumerGroup) -> bool:
    """Return whether a consumer group must become a classic one."""
    allowed = group.cluster.configs["group.consumer.migration.policy"] in _DOWN
    members = group.members.values()
    return allowed and bool(members) and all(each.classic is not None for each in members)


def downgrade(old: ConsumerGroup, new: RebalancingGroup) -> None:
    """Fill `new` with the members of a consumer group, all of which use the classic protocol."""
    for each in old.members.values():
        new.members.add(_downgraded(old.cluster, each))
    new.type, new.protocol = "consumer", new.members.choose()
    new.generation = old.epoch
    new.leader = next(iter(old.members))
    new.phase = new.before = ClassicGroupState.STABLE
    new.persist()
    for member in new.members:
        new.keep(member)


def _downgraded(cluster: ClusterState, member: ConsumerMember) -> ClassicMember:
    side = member.classic
    assert side is not None
    classic = ClassicMember(
        member.member_id, member.instance_id, member.client_id, member.client_host, "consumer"
    )
    classic.protocols = side.protocols
    classic.session_timeout_ms = side.session_timeout_ms
    classic.rebalance_timeout_ms = member.rebalance_timeout_ms
    version = version_of(side.protocols[0][1])
    classic.assignment = assignment_bytes(cluster, member.assigned, version)
    return classic
