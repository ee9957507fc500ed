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
    assignment_bytes,
    partition_ids,
    read_subscription,
    version_of,
)
from aiokclient.testing.broker.groups.consumer_member import (
    ClassicSide,
    ConsumerMember,
    ConsumerMemberState,
)
from aiokclient.testing.broker.groups.members import protocols_of

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

    def join(self, call: Call) -> Reply:
        request: JoinGroupRequest = call.request
        try:
            return self._join(call, request)
        except Refused as refused:
            return JoinGroupResponse(error_code=refused.code, member_id=request.member_id)

    def _join(self, call: Call, request: JoinGroupRequest) -> JoinGroupResponse:
        group = self._group
        member_id = request.member_id or f"{call.client_id or ''}-{group.cluster.new_id()}"
        self._check(request, member_id)
        static = request.group_instance_id is not None
        if not request.member_id and not static and call.version >= _IDS_SINCE:
            return JoinGroupResponse(error_code=Code.MEMBER_ID_REQUIRED, member_id=member_id)
        before = self._joining(request, member_id)
        subscription = read_subscription(request.protocols[0].metadata)
        member = _joined(before, request, call, subscription)
        group.put(member)
        group.bump(member.subscription != before.subscription)
        group.retarget()
        member = group.step(member, partition_ids(group.cluster, subscription.owned_partitions))
        group.timers.cancel(("join", member_id))
        group.keep(member)
        group.start_timer("sync", member_id, member.rebalance_timeout_ms)
        group.maybe_downgrade()
        return JoinGroupResponse(
            generation_id=member.epoch,
            protocol_type="consumer",
            protocol_name=request.protocols[0].name,
            member_id=member_id,
        )

    def _check(self, request: JoinGroupRequest, member_id: str) -> None:
        members = self._group.members
        most = self._group.option("max.size")
        if member_id not in members and len(members) >= most:
            raise Refused(Code.GROUP_MAX_SIZE_REACHED, f"The group already has {most} members.")
        names = {each.name for each in request.protocols}
        for each in members.values():
            if each.classic is not None:
                names &= {name for name, _ in each.classic.protocols}
        if request.protocol_type != "consumer" or not names:
            raise Refused(Code.INCONSISTENT_GROUP_PROTOCOL, "The members have no common protocol.")

    def _joining(self, request: JoinGroupRequest, member_id: str) -> ConsumerMember:
        instance_id = request.group_instance_id
        if instance_id is None:
            return self._group.members.get(member_id) or ConsumerMember(member_id=member_id)
        before = self._group.static(instance_id)
        if request.member_id:
            return self._known(member_id, instance_id)
        if before is None:
            return ConsumerMember(member_id=member_id)
        return self._group.replace(before, member_id)

    # -- SyncGroup, Heartbeat --------------------------------------------------------------

    def sync(self, call: Call) -> Reply:
        request: SyncGroupRequest = call.request
        try:
            member, side = self._member(request)
            self._check_protocol(request, side)
            outdated = self._group.epoch > member.epoch
            if outdated and member.state is not ConsumerMemberState.UNREVOKED_PARTITIONS:
                raise self._rebalancing(member)
        except Refused as refused:
            return SyncGroupResponse(error_code=refused.code)
        self._group.timers.cancel(("sync", member.member_id))
        self._group.keep(member)
        return SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=assignment_bytes(
                self._group.cluster, member.assigned, version_of(side.protocols[0][1])
            ),
        )

    def _check_protocol(self, request: SyncGroupRequest, side: ClassicSide) -> None:
        type_ok = request.protocol_type in (None, "consumer")
        if not type_ok or request.protocol_name not in (None, side.protocols[0][0]):
            raise Refused(Code.INCONSISTENT_GROUP_PROTOCOL, "This is not the group's protocol.")

    def heartbeat(self, call: Call) -> Reply:
        request: HeartbeatRequest = call.request
        try:
            member, _ = self._member(request)
            self._group.keep(member)
            if self._has_to_rejoin(member):
                raise self._rebalancing(member)
        except Refused as refused:
            return HeartbeatResponse(error_code=refused.code)
        return HeartbeatResponse()

    def _has_to_rejoin(self, member: ConsumerMember) -> bool:
        self._group.bump(subscription_changed=False)
        if (
            member.epoch < self._group.epoch
            or member.state is ConsumerMemberState.UNREVOKED_PARTITIONS
        ):
            return True
        unreleased = member.state is ConsumerMemberState.UNRELEASED_PARTITIONS
        return unreleased and not self._group.waits_for_others(member)

    def _rebalancing(self, member: ConsumerMember) -> Refused:
        if ("join", member.member_id) not in self._group.timers:
            self._group.start_timer("join", member.member_id, member.rebalance_timeout_ms)
        return Refused(Code.REBALANCE_IN_PROGRESS, "The member must join again.")

    def _member(
        self, request: SyncGroupRequest | HeartbeatRequest
    ) -> tuple[ConsumerMember, ClassicSide]:
        member = self._known(request.member_id, request.group_instance_id)
        if member.classic is None:
            raise Refused(Code.UNKNOWN_MEMBER_ID, "The member uses the consumer protocol.")
        if request.generation_id != member.epoch:
            raise Refused(Code.ILLEGAL_GENERATION, "This is not the epoch of the member.")
        return member, member.classic

    def _known(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """Return the member, whichever protocol it uses. Raises Refused if there is none."""
        if instance_id is None:
            member = self._group.members.get(member_id)
        else:
            member = self._group.static(instance_id)
            if member is not None and member_id and member.member_id != member_id:
                raise Refused(Code.FENCED_INSTANCE_ID, "Another member uses the instance id.")
        if member is None:
            raise Refused(Code.UNKNOWN_MEMBER_ID, "There is no such member.")
        return member

    # -- LeaveGroup ------------------------------------------------------------------------

    def leave(self, identities: list[MemberIdentity]) -> Reply:
        leaving: list[ConsumerMember] = []
        answers = []
        for each in identities:
            code, member_id = Code.NONE, each.member_id
            try:
                member = self._known(each.member_id, each.group_instance_id)
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
            self._group.expel(leaving)
        return LeaveGroupResponse(members=answers)


def _joined(
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
            session_timeout_ms=request.session_timeout_ms, protocols=protocols_of(request)
        ),
    )
