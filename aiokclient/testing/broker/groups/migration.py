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
    encode_assignment,
    read_assignment,
    read_subscription,
    read_version,
)
from aiokclient.testing.broker.groups.consumer_member import ClassicSide, ConsumerMember
from aiokclient.testing.broker.groups.members import ClassicMember
from aiokclient.testing.broker.groups.rebalancing import ClassicGroupState, RebalancingGroup

if TYPE_CHECKING:
    from aiokclient.testing.broker.groups.consumer_group import ConsumerGroup
    from aiokclient.testing.broker.state import ClusterState

_UP = ("bidirectional", "upgrade")
_DOWN = ("bidirectional", "downgrade")


def upgrade_group(old: RebalancingGroup, new: ConsumerGroup) -> None:
    """Fill `new` with the members of a classic group. Raises Refused if that is not possible."""
    cluster = old.cluster
    allowed = cluster.configs["group.consumer.migration.policy"] in _UP
    most = cluster.configs.read_number("group.consumer.max.size")
    if not allowed or old.protocol_type != "consumer" or len(old.members) > most:
        raise Refused(Code.GROUP_ID_NOT_FOUND, f"Group {old.group_id} is not a consumer group.")
    members = [
        _upgrade_member(old, each) for each in old.members if each.find_metadata(old.protocol)
    ]
    for each in old.members:
        each.answer_join(
            JoinGroupResponse(error_code=Code.REBALANCE_IN_PROGRESS, member_id=each.member_id)
        )
        each.answer_sync(SyncGroupResponse(error_code=Code.REBALANCE_IN_PROGRESS))
    new.take_over_members(old.generation, members)


def _upgrade_member(group: RebalancingGroup, member: ClassicMember) -> ConsumerMember:
    subscription = read_subscription(member.find_metadata(group.protocol))
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


def is_classic_only(group: ConsumerGroup) -> bool:
    """Return whether a consumer group must become a classic one."""
    allowed = group.cluster.configs["group.consumer.migration.policy"] in _DOWN
    members = group.members.values()
    return allowed and bool(members) and all(each.classic is not None for each in members)


def downgrade_group(old: ConsumerGroup, new: RebalancingGroup) -> None:
    """Fill `new` with the members of a consumer group, all of which use the classic protocol."""
    for each in old.members.values():
        new.members.add_member(_downgrade_member(old.cluster, each))
    new.type, new.protocol = "consumer", new.members.choose_protocol()
    new.generation = old.epoch
    new.leader = next(iter(old.members))
    new.phase = new.before = ClassicGroupState.STABLE
    new.persist_state()
    for member in new.members:
        new.restart_session(member)


def _downgrade_member(cluster: ClusterState, member: ConsumerMember) -> ClassicMember:
    side = member.classic
    assert side is not None
    classic = ClassicMember(
        member.member_id, member.instance_id, member.client_id, member.client_host, "consumer"
    )
    classic.protocols = side.protocols
    classic.session_timeout_ms = side.session_timeout_ms
    classic.rebalance_timeout_ms = member.rebalance_timeout_ms
    version = read_version(side.protocols[0][1])
    classic.assignment = encode_assignment(cluster, member.assigned, version)
    return classic
