"""Members of a consumer group that use the classic protocol, while the group migrates (KIP-848).

They take part in the group like all other members: JoinGroup has their subscription, their epoch is
also their generation, and SyncGroup returns what the broker has assigned. No member waits for
others, so JoinGroup and SyncGroup are answered immediately, and there is no leader. A heartbeat is
answered with REBALANCE_IN_PROGRESS if the member has to revoke partitions or can get more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aiokclient.protocol.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from aiokclient.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from aiokclient.protocol.messages.leave_group import MemberIdentity, MemberResponse
from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.groups.classic_wire import (
    encode_assignment,
    find_partition_ids,
    read_subscription,
    read_version,
)
from aiokclient.testing.broker.groups.consumer_member import (
    ClassicSide,
    ConsumerMember,
    ConsumerMemberState,
)
from aiokclient.testing.broker.groups.members import read_protocols

if TYPE_CHECKING:
    from aiokclient.testing.broker.call import Call, Reply
    from aiokclient.testing.broker.groups.consumer_group import ConsumerGroup

_IDS_SINCE = 4
"""From this version of JoinGroup on, a new member gets its id before it joins (KIP-394)."""


class ClassicMembers:
    """The classic protocol for the members of one consumer group."""

    def __init__(self, group: ConsumerGroup) -> None:
        self._group = group

    # -- JoinGroup -------------------------------------------------------------------------

    def handle_join(self, call: Call) -> Reply:
        request: JoinGroupRequest = call.request
        try:
            return self._join_member(call, request)
        except Refused as refused:
            return JoinGroupResponse(error_code=refused.code, member_id=request.member_id)

    def _join_member(self, call: Call, request: JoinGroupRequest) -> JoinGroupResponse:
        group = self._group
        member_id = request.member_id or f"{call.client_id or ''}-{group.cluster.make_topic_id()}"
        self._check_join(request, member_id)
        static = request.group_instance_id is not None
        if not request.member_id and not static and call.version >= _IDS_SINCE:
            return JoinGroupResponse(error_code=Code.MEMBER_ID_REQUIRED, member_id=member_id)
        before = self._find_joining(request, member_id)
        subscription = read_subscription(request.protocols[0].metadata)
        member = _apply_join(before, request, call, subscription)
        group.store_member(member)
        group.increase_epoch(member.subscription != before.subscription)
        group.update_targets()
        member = group.advance_member(
            member, find_partition_ids(group.cluster, subscription.owned_partitions)
        )
        group.timers.cancel_timer(("join", member_id))
        group.restart_session(member)
        group.start_timer("sync", member_id, member.rebalance_timeout_ms)
        group.downgrade_if_classic()
        return JoinGroupResponse(
            generation_id=member.epoch,
            protocol_type="consumer",
            protocol_name=request.protocols[0].name,
            member_id=member_id,
        )

    def _check_join(self, request: JoinGroupRequest, member_id: str) -> None:
        members = self._group.members
        most = self._group.read_option("max.size")
        if member_id not in members and len(members) >= most:
            raise Refused(Code.GROUP_MAX_SIZE_REACHED, f"The group already has {most} members.")
        names = {each.name for each in request.protocols}
        for each in members.values():
            if each.classic is not None:
                names &= {name for name, _ in each.classic.protocols}
        if request.protocol_type != "consumer" or not names:
            raise Refused(Code.INCONSISTENT_GROUP_PROTOCOL, "The members have no common protocol.")

    def _find_joining(self, request: JoinGroupRequest, member_id: str) -> ConsumerMember:
        instance_id = request.group_instance_id
        if instance_id is None:
            return self._group.members.get(member_id) or ConsumerMember(member_id=member_id)
        before = self._group.find_static_member(instance_id)
        if request.member_id:
            return self._require_member(member_id, instance_id)
        if before is None:
            return ConsumerMember(member_id=member_id)
        return self._group.replace_member(before, member_id)

    # -- SyncGroup, Heartbeat --------------------------------------------------------------

    def handle_sync(self, call: Call) -> Reply:
        request: SyncGroupRequest = call.request
        try:
            member, side = self._find_member(request)
            self._check_protocol(request, side)
            outdated = self._group.epoch > member.epoch
            if outdated and member.state is not ConsumerMemberState.UNREVOKED_PARTITIONS:
                raise self._make_rebalance_error(member)
        except Refused as refused:
            return SyncGroupResponse(error_code=refused.code)
        self._group.timers.cancel_timer(("sync", member.member_id))
        self._group.restart_session(member)
        return SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=encode_assignment(
                self._group.cluster, member.assigned, read_version(side.protocols[0][1])
            ),
        )

    def _check_protocol(self, request: SyncGroupRequest, side: ClassicSide) -> None:
        type_ok = request.protocol_type in (None, "consumer")
        if not type_ok or request.protocol_name not in (None, side.protocols[0][0]):
            raise Refused(Code.INCONSISTENT_GROUP_PROTOCOL, "This is not the group's protocol.")

    def handle_heartbeat(self, call: Call) -> Reply:
        request: HeartbeatRequest = call.request
        try:
            member, _ = self._find_member(request)
            self._group.restart_session(member)
            if self._has_to_rejoin(member):
                raise self._make_rebalance_error(member)
        except Refused as refused:
            return HeartbeatResponse(error_code=refused.code)
        return HeartbeatResponse()

    def _has_to_rejoin(self, member: ConsumerMember) -> bool:
        self._group.increase_epoch(subscription_changed=False)
        if (
            member.epoch < self._group.epoch
            or member.state is ConsumerMemberState.UNREVOKED_PARTITIONS
        ):
            return True
        unreleased = member.state is ConsumerMemberState.UNRELEASED_PARTITIONS
        return unreleased and not self._group.is_waiting_for_others(member)

    def _make_rebalance_error(self, member: ConsumerMember) -> Refused:
        if ("join", member.member_id) not in self._group.timers:
            self._group.start_timer("join", member.member_id, member.rebalance_timeout_ms)
        return Refused(Code.REBALANCE_IN_PROGRESS, "The member must join again.")

    def _find_member(
        self, request: SyncGroupRequest | HeartbeatRequest
    ) -> tuple[ConsumerMember, ClassicSide]:
        member = self._require_member(request.member_id, request.group_instance_id)
        if member.classic is None:
            raise Refused(Code.UNKNOWN_MEMBER_ID, "The member uses the consumer protocol.")
        if request.generation_id != member.epoch:
            raise Refused(Code.ILLEGAL_GENERATION, "This is not the epoch of the member.")
        return member, member.classic

    def _require_member(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """Return the member, whichever protocol it uses. Raises Refused if there is none."""
        if instance_id is None:
            member = self._group.members.get(member_id)
        else:
            member = self._group.find_static_member(instance_id)
            if member is not None and member_id and member.member_id != member_id:
                raise Refused(Code.FENCED_INSTANCE_ID, "Another member uses the instance id.")
        if member is None:
            raise Refused(Code.UNKNOWN_MEMBER_ID, "There is no such member.")
        return member

    # -- LeaveGroup ------------------------------------------------------------------------

    def handle_leave(self, identities: list[MemberIdentity]) -> Reply:
        leaving: list[ConsumerMember] = []
        answers = []
        for each in identities:
            code, member_id = Code.NONE, each.member_id
            try:
                member = self._require_member(each.member_id, each.group_instance_id)
                leaving.append(member)
                member_id = member.member_id
            except Refused as refused:
                code = refused.code
            answers.append(
                MemberResponse(
                    member_id=member_id,
                    group_instance_id=each.group_instance_id,
                    error_code=code,
                )
            )
        if leaving:
            self._group.expel_members(leaving)
        return LeaveGroupResponse(members=answers)


def _apply_join(
    member: ConsumerMember,
    request: JoinGroupRequest,
    call: Call,
    subscription: ConsumerProtocolSubscription,
) -> ConsumerMember:
    """Return a copy of the member, updated with the contents of its JoinGroup request."""
    timeout_ms = request.rebalance_timeout_ms if call.version >= 1 else request.session_timeout_ms
    return replace(
        member,
        instance_id=request.group_instance_id or member.instance_id,
        rack=subscription.rack_id or member.rack,
        rebalance_timeout_ms=timeout_ms,
        topics=tuple(subscription.topics),
        regex="",
        assignor=None,
        client_id=call.client_id or "",
        client_host=call.owner.client_host,
        classic=ClassicSide(
            session_timeout_ms=request.session_timeout_ms, protocols=read_protocols(request)
        ),
    )
