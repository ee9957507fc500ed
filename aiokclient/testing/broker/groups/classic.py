"""A group of the classic protocol: the effect of its members' requests in each state.

`rebalancing.py` has the states, the timers, and what is persisted. Errors are the same as those of
Kafka's coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokclient.errors import KafkaError
from aiokclient.protocol.messages import (
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from aiokclient.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from aiokclient.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from aiokclient.protocol.messages.leave_group import MemberIdentity, MemberResponse
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.groups.group import GroupView, MemberView
from aiokclient.testing.broker.groups.members import ClassicMember, read_protocols
from aiokclient.testing.broker.groups.rebalancing import (
    ClassicGroupState,
    RebalancingGroup,
    cancel_timer,
)

if TYPE_CHECKING:
    from aiokclient.testing.broker.call import Call, Reply

_CONSUMER = "consumer"
_MEMBER_ID_FIRST = 4
"""From this version of JoinGroup on, a new member gets its id before it joins (KIP-394)."""
_SKIPS_ASSIGNMENT = 9
_NEW_MEMBER_TIMEOUT_MS = 300_000
"""The session timeout of a new member until its first JoinGroup request is answered."""


class ClassicGroup(RebalancingGroup):
    """A classic group. If it has no members and no protocol type, it only stores offsets."""

    # -- JoinGroup -------------------------------------------------------------------------

    def handle_join(self, call: Call) -> Reply:
        request: JoinGroupRequest = call.request
        member_id = request.member_id
        if not self._has_room_for(member_id):
            gone = self.members.find_member(member_id)
            if gone is not None:
                self.drop_member(gone)
            return JoinGroupResponse(error_code=Code.GROUP_MAX_SIZE_REACHED)
        if not self._has_common_protocol(request):
            return _refuse_join(Code.INCONSISTENT_GROUP_PROTOCOL, member_id)
        if not member_id:
            return self._handle_new_member(call)
        if member_id in self.pending:
            return self._add_member(call, member_id)
        code = self._check_member(member_id, request.group_instance_id)
        if code:
            return _refuse_join(code, member_id)
        return self._handle_rejoin(call, self.members[member_id])

    def _has_room_for(self, member_id: str) -> bool:
        most = self.cluster.configs.read_number("group.max.size")
        known = self.members.find_member(member_id)
        if self.phase is ClassicGroupState.EMPTY:
            return True
        if self.phase is ClassicGroupState.PREPARING:
            waits = known is not None and known.joining is not None
            return waits or len(self.members.list_joining()) < most
        return known is not None or len(self.members) < most

    def _has_common_protocol(self, request: JoinGroupRequest) -> bool:
        """Return whether the member supports a protocol that all other members support."""
        if self.phase is ClassicGroupState.EMPTY:
            return bool(request.protocol_type and request.protocols)
        if request.protocol_type != self.type:
            return False
        if not len(self.members):
            return bool(request.protocols)
        common = self.members.find_common_protocols()
        return any(each.name in common for each in request.protocols)

    def _check_member(self, member_id: str, instance_id: str | None) -> Code:
        if instance_id is not None:
            now = self.members.static.get(instance_id)
            if now is None:
                return Code.UNKNOWN_MEMBER_ID
            if now != member_id:
                return Code.FENCED_INSTANCE_ID
        return Code.NONE if member_id in self.members else Code.UNKNOWN_MEMBER_ID

    def _handle_new_member(self, call: Call) -> Reply:
        instance_id = call.request.group_instance_id
        name = call.client_id or "" if instance_id is None else instance_id
        member_id = f"{name}-{self.cluster.make_topic_id()}"
        if instance_id is not None:
            before = self.members.static.get(instance_id)
            if before is None:
                return self._add_member(call, member_id)
            return self._replace_static_member(call, self.members[before], member_id)
        # Older clients do not know MEMBER_ID_REQUIRED (KIP-394).
        if call.version < _MEMBER_ID_FIRST:
            return self._add_member(call, member_id)
        self.pending[member_id] = self.call_after(
            call.request.session_timeout_ms, lambda: self._drop_pending(member_id)
        )
        return _refuse_join(Code.MEMBER_ID_REQUIRED, member_id)

    def _drop_pending(self, member_id: str) -> None:
        """Remove a member that received an id and did not join with it in time."""
        cancel_timer(self.pending.pop(member_id, None))
        self.complete_if_joined()

    def _add_member(self, call: Call, member_id: str) -> Reply:
        request: JoinGroupRequest = call.request
        cancel_timer(self.pending.pop(member_id, None))
        member = ClassicMember(
            member_id,
            request.group_instance_id,
            call.client_id or "",
            call.owner.client_host,
            request.protocol_type,
        )
        member.is_new = True
        member.store_request(request, call.version)
        if not len(self.members):
            self.type = request.protocol_type
        future = member.hold_join(call)
        self.extend_first_wait()
        self.members.add_member(member)
        # A client that is gone before its first generation must not delay the group for its whole
        # session (KAFKA-7610).
        self.restart_session(member, _NEW_MEMBER_TIMEOUT_MS)
        self.on_joined()
        return future

    def _handle_rejoin(self, call: Call, member: ClassicMember) -> Reply:
        """Handle a repeated join: answer with the current generation, or begin a rebalance."""
        unchanged = member.protocols == read_protocols(call.request)
        leads = self.is_leader(member)
        if self.phase is ClassicGroupState.EMPTY:
            return _refuse_join(Code.UNKNOWN_MEMBER_ID, member.member_id)
        if self.phase is ClassicGroupState.COMPLETING and unchanged:
            return self.make_join_response(member, with_members=leads)
        # A join of the leader always begins a rebalance: it may have found new partitions.
        if self.phase is ClassicGroupState.STABLE and unchanged and not leads:
            return self.make_join_response(member, with_members=False)
        member.store_request(call.request, call.version)
        future = member.hold_join(call)
        self.on_joined()
        return future

    def _replace_static_member(self, call: Call, old: ClassicMember, member_id: str) -> Reply:
        """Replace a static member that joins under a new id, and fence the old one (KIP-345)."""
        new = old.copy_with_id(member_id)
        led, told = self.is_leader(old), self.leader
        cancel_timer(old.expiry)
        old.answer_join(_refuse_join(Code.FENCED_INSTANCE_ID, old.member_id))
        old.answer_sync(SyncGroupResponse(error_code=Code.FENCED_INSTANCE_ID))
        self.members.replace_member(old, new)
        if old.member_id in self.unsynced:
            self.unsynced[member_id] = self.unsynced.pop(old.member_id)
        if led:
            self.leader = member_id
        new.store_request(call.request, call.version)
        self.restart_session(new)
        if (
            self.phase is ClassicGroupState.STABLE
            and self.members.choose_protocol() == self.protocol
        ):
            # Nothing changes for the other members.
            self.persist_state()
            skips = call.version >= _SKIPS_ASSIGNMENT
            answer = self.make_join_response(new, with_members=led and skips)
            answer.skip_assignment = led and skips
            if not skips:
                # The response names the old leader, so that the member does not act as the leader.
                answer.leader = told or ""
            return answer
        future = new.hold_join(call)
        self.on_joined()
        return future

    # -- SyncGroup -------------------------------------------------------------------------

    def handle_sync(self, call: Call) -> Reply:
        request: SyncGroupRequest = call.request
        code = self._check_sync(request)
        if code:
            return SyncGroupResponse(error_code=code)
        member = self.members[request.member_id]
        given = {each.member_id: bytes(each.assignment) for each in request.assignments}
        if self.phase is ClassicGroupState.STABLE:
            if not self._is_resync(member, given):
                self.on_sync(member)
                return self.make_sync_response(member)
            self.replace_assignments(given)
        future = member.syncing = call.hold_response()
        self.on_sync(member)
        if self.given is None:
            if self.is_leader(member):
                self.distribute_assignments(given)
            return future
        if self.is_leader(member) and given:
            self.given = given
        if not self.unsynced:
            self.distribute_assignments(self.given)
        return future

    def _check_sync(self, request: SyncGroupRequest) -> Code:
        if self.phase is ClassicGroupState.EMPTY:
            return Code.UNKNOWN_MEMBER_ID
        code = self._check_member(request.member_id, request.group_instance_id)
        if code:
            return code
        if request.generation_id != self.generation:
            return Code.ILLEGAL_GENERATION
        if request.protocol_type is not None and request.protocol_type != self.type:
            return Code.INCONSISTENT_GROUP_PROTOCOL
        if None not in (request.protocol_name, self.protocol) and (
            request.protocol_name != self.protocol
        ):
            return Code.INCONSISTENT_GROUP_PROTOCOL
        return (
            Code.REBALANCE_IN_PROGRESS if self.phase is ClassicGroupState.PREPARING else Code.NONE
        )

    def _is_resync(self, member: ClassicMember, given: dict[str, bytes]) -> bool:
        """Return whether the leader sends new assignments, and does not repeat the current ones."""
        if not (self.cluster.groups.resync and self.is_leader(member) and given):
            return False
        return any(each.assignment != given.get(each.member_id, b"") for each in self.members)

    # -- Heartbeat and LeaveGroup ----------------------------------------------------------

    def handle_heartbeat(self, call: Call) -> Reply:
        request = call.request
        code = self._check_member(request.member_id, request.group_instance_id)
        if not code and request.generation_id != self.generation:
            code = Code.ILLEGAL_GENERATION
        if not code:
            self.restart_session(self.members[request.member_id])
            asked_anew = self.given is not None and request.member_id in self.unsynced
            if self.phase is ClassicGroupState.PREPARING or asked_anew:
                code = Code.REBALANCE_IN_PROGRESS
        return HeartbeatResponse(error_code=code)

    def handle_leave(self, call: Call, members: list[MemberIdentity]) -> Reply:
        answers = []
        for each in members:
            code = self._remove_leaving(each)
            answers.append(
                MemberResponse(
                    member_id=each.member_id,
                    group_instance_id=each.group_instance_id,
                    error_code=code,
                )
            )
        if any(not each.error_code for each in answers):
            self.on_members_dropped()
        return LeaveGroupResponse(members=answers)

    def _remove_leaving(self, who: MemberIdentity) -> Code:
        member_id = who.member_id
        if not member_id:
            # An administrator removes a static member, whatever its id is.
            member_id = self.members.static.get(who.group_instance_id or "", "")
            if who.group_instance_id is None or not member_id:
                return Code.UNKNOWN_MEMBER_ID
        elif member_id in self.pending:
            cancel_timer(self.pending.pop(member_id))
            return Code.NONE
        else:
            code = self._check_member(member_id, who.group_instance_id)
            if code:
                return code
        self.drop_member(self.members[member_id])
        return Code.NONE

    # -- offsets ---------------------------------------------------------------------------

    def check_commit(
        self,
        member_id: str,
        epoch: int,
        instance_id: str | None,
        version: int,
        *,
        transactional: bool = False,
    ) -> Code:
        if epoch < 0 and self.phase is ClassicGroupState.EMPTY:
            return Code.NONE
        if epoch < 0 and not member_id and instance_id is None:
            # Producers before KIP-447 commit offsets without the identity of a member.
            return Code.NONE if transactional else Code.UNKNOWN_MEMBER_ID
        code = self._check_member(member_id, instance_id)
        if code:
            return code
        if epoch != self.generation:
            return Code.ILLEGAL_GENERATION
        gives_up = self.given is not None and member_id in self.unsynced
        if self.phase is ClassicGroupState.COMPLETING and not gives_up and not transactional:
            return Code.REBALANCE_IN_PROGRESS
        return Code.NONE

    def on_commit(self, member_id: str) -> None:
        member = self.members.find_member(member_id)
        if member is not None:
            self.restart_session(member)

    def check_delete_offsets(self) -> Code:
        if self.phase is ClassicGroupState.EMPTY or self.type == _CONSUMER:
            return Code.NONE
        return Code.NON_EMPTY_GROUP

    def is_subscribed_to(self, topic: str) -> bool:
        if self.type != _CONSUMER or not len(self.members):
            return False
        return any(_is_read(each.find_metadata(self.protocol), topic) for each in self.members)

    # -- observation by tests and requests -----------------------------------------------------

    @property
    def protocol_type(self) -> str:
        return self.type or ""

    def describe(self) -> DescribedGroup:
        stable = self.phase is ClassicGroupState.STABLE
        members = [
            DescribedGroupMember(
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                member_metadata=each.find_metadata(self.protocol) if stable else b"",
                member_assignment=each.assignment,
            )
            for each in self.members
        ]
        return DescribedGroup(
            group_id=self.group_id,
            group_state=self.state,
            protocol_type=self.protocol_type,
            protocol_data=self.protocol or "" if stable else "",
            members=members,
        )

    def make_view(self) -> GroupView:
        members = {
            each.member_id: MemberView(
                each.member_id,
                each.instance_id,
                each.client_id,
                each.find_metadata(self.protocol),
                each.assignment,
            )
            for each in self.members
        }
        return GroupView(
            self.group_id,
            self.kind,
            self.state if self.node is not None else "loading",
            self.generation,
            self.protocol_type,
            self.protocol or "",
            self.leader,
            members,
        )


def _refuse_join(code: int, member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, member_id=member_id)


def _is_read(metadata: bytes, topic: str) -> bool:
    """Return whether a member's metadata names this topic, or cannot be decoded."""
    version = min(int.from_bytes(metadata[:2], "big"), ConsumerProtocolSubscription.max_version)
    try:
        return topic in ConsumerProtocolSubscription.decode(metadata[2:], version).topics
    except KafkaError:
        return True
