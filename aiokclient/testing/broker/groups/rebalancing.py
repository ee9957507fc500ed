"""The rebalances of a classic group, and the removal of members that do not take part.

The states are Kafka's. The design of client-side assignment has other names for some of them:

    design       here                   what it means
    ----------   --------------------   ------------------------------------------------------
    Down         Dead                   there is no such group (any more)
    Initialize   loading                the coordinator has not loaded it yet (`coordinator.py`)
    Stable       Empty                  no members; the next one to join begins a generation
    Stable       Stable                 every member may fetch what the leader assigned to it
    Joining      PreparingRebalance     JoinGroups wait until all members have sent one
    AwaitSync    CompletingRebalance    SyncGroups wait until the leader has sent its own

              a member joins, a leader rejoins, one leaves, one fails, metadata changes
          +------------------------------------------------------------------------------+
          v                                                                              |
    PreparingRebalance --all have joined--> CompletingRebalance --leader's sync--> Stable +
          ^      |                                        |  ^                       |
          |      +--no members left--> Empty              |  +---resync, see below---+
          +-----------a member joins---+                  |
          +-----------------------------------------------+  (as from Stable)

The generation is incremented when all members have joined. Members that have not joined within the
rebalance timeout (the longest of any member) are removed, except static ones. Members that do not
send their SyncGroup within the same time, or send nothing for their session timeout, are removed as
well. The leader stays the same while it joins again. Otherwise, the first member that joined leads
a group that was empty, and one of the members that joined, chosen at random, any other group.

The next coordinator finds what was persisted:

* the generation with its members, when all have joined (CompletingRebalance). Kafka persists it
  only together with the assignments. If its coordinator fails before that, the members join again.
* the assignments, before any of them is sent (Stable)
* the new member id of a static member
* that the group became empty

A member that did not receive its generation joins again with the same metadata, and receives it.

With `resync`, the leader may send other assignments while the group is Stable. The group returns to
CompletingRebalance in the same generation. Until a member has sent its SyncGroup, its heartbeats
are answered with REBALANCE_IN_PROGRESS, and it may still commit. When the last member has sent its
SyncGroup, all are answered with their new assignments. So a partition is assigned to another member
only after its previous owner has sent its SyncGroup. A JoinGroup with unchanged metadata is
answered immediately with the same generation, so that members that do not know resync are not
disturbed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from aiokclient.protocol.messages import JoinGroupResponse, SyncGroupResponse
from aiokclient.protocol.messages.join_group import JoinGroupResponseMember
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.groups.group import Group, GroupType
from aiokclient.testing.broker.groups.members import ClassicMember, Members
from aiokclient.testing.broker.internal.records import ClassicGroupSnapshot, write_classic_group

if TYPE_CHECKING:
    from aiokclient.testing.broker.state import ClusterState


class ClassicGroupState(Enum):
    """The states, under Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


_SHORTEST_WAIT_MS = 100
_WITH_GENERATION = (ClassicGroupState.COMPLETING, ClassicGroupState.STABLE)


class _Persisted(NamedTuple):
    state: ClassicGroupState
    generation: int
    protocol_type: str | None
    protocol: str | None
    leader: str | None
    members: tuple[ClassicMember, ...]


class RebalancingGroup(Group):
    """The state machine of a classic group. `classic.py` has the requests that drive it."""

    kind = GroupType.CLASSIC

    def __init__(self, cluster: ClusterState, group_id: str) -> None:
        super().__init__(cluster, group_id)
        self._reset_state()
        self._persisted: _Persisted | None = None

    def _reset_state(self) -> None:
        self.members = Members()
        self.pending: dict[str, asyncio.TimerHandle] = {}
        """Member ids that were assigned and have not joined yet (KIP-394)."""
        self.unsynced: dict[str, None] = {}
        """Members of this generation that have not sent their SyncGroup."""
        self.phase = self.before = ClassicGroupState.EMPTY
        self.generation = 0
        self.type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.given: dict[str, bytes] | None = None
        """The leader's assignments of a resync, until all members have asked for theirs."""
        self._grown = False
        self._join_timer: asyncio.TimerHandle | None = None
        self._sync_timer: asyncio.TimerHandle | None = None

    @property
    def state(self) -> str:
        return self.phase.value

    @property
    def is_empty(self) -> bool:
        return self.phase is ClassicGroupState.EMPTY

    def _enter_phase(self, phase: ClassicGroupState) -> None:
        self.before, self.phase = self.phase, phase

    # -- loading and unloading ---------------------------------------------------------------

    def unload(self) -> None:
        for member in self.members:
            cancel_timer(member.expiry)
            member.answer_join(
                JoinGroupResponse(error_code=Code.NOT_COORDINATOR, member_id=member.member_id)
            )
            member.answer_sync(SyncGroupResponse(error_code=Code.NOT_COORDINATOR))
        for timer in self.pending.values():
            timer.cancel()
        cancel_timer(self._join_timer)
        cancel_timer(self._sync_timer)
        self._reset_state()

    def load(self) -> None:
        known = self._persisted
        if known is None:
            return
        self.phase = self.before = known.state
        self.generation, self.leader = known.generation, known.leader
        self.type, self.protocol = known.protocol_type, known.protocol
        for each in known.members:
            member = each.copy_with_id(each.member_id)
            self.members.add_member(member)
            self.restart_session(member)
        if self.phase is ClassicGroupState.COMPLETING:
            self._await_syncs()

    def persist_state(self) -> None:
        """Persist the current state of the group for the next coordinator."""
        self._persisted = _Persisted(
            self.phase,
            self.generation,
            self.type,
            self.protocol,
            self.leader,
            tuple(each.copy_with_id(each.member_id) for each in self.members),
        )
        if self.phase is not ClassicGroupState.COMPLETING:
            self.write_state()

    def write_state(self) -> None:
        """Write the state of the group, as it was persisted, to `__consumer_offsets`."""
        known = self._persisted
        now_ms = self.cluster.clock.time_ms()
        if known is None:
            snapshot = ClassicGroupSnapshot("", 0, None, None, now_ms, ())
        else:
            kind = known.protocol_type or ""
            snapshot = ClassicGroupSnapshot(
                kind, known.generation, known.protocol, known.leader, now_ms, known.members
            )
        write_classic_group(self.cluster, self.group_id, snapshot)

    def write_deletion(self) -> None:
        write_classic_group(self.cluster, self.group_id, None)

    # -- timers ----------------------------------------------------------------------------

    def call_after(self, milliseconds: int, step: Callable[[], None]) -> asyncio.TimerHandle:
        """Call `step` later. If it raises, this is reported as a bug in the embedded cluster."""

        def run() -> None:
            self.cluster.call_guarded(step)
            self.cluster.notify_tests()

        return self.cluster.loop.call_later(milliseconds / 1000, run)

    def restart_session(self, member: ClassicMember, milliseconds: int | None = None) -> None:
        """Restart the session timeout of a member."""
        cancel_timer(member.expiry)
        session = member.session_timeout_ms if milliseconds is None else milliseconds
        member.expiry = self.call_after(session, lambda: self._expire_session(member))

    def _expire_session(self, member: ClassicMember) -> None:
        if not member.is_waiting():
            self.drop_member(member)
            self.on_members_dropped()

    # -- members ---------------------------------------------------------------------------

    def drop_member(self, member: ClassicMember) -> None:
        """Remove a member, and answer its waiting requests with UNKNOWN_MEMBER_ID."""
        cancel_timer(member.expiry)
        member.answer_join(JoinGroupResponse(error_code=Code.UNKNOWN_MEMBER_ID))
        member.answer_sync(SyncGroupResponse(error_code=Code.UNKNOWN_MEMBER_ID))
        self.members.remove_member(member)
        self.unsynced.pop(member.member_id, None)
        if self.leader == member.member_id:
            self.leader = None

    def on_members_dropped(self) -> None:
        """Continue without members that were removed."""
        if self.phase in _WITH_GENERATION:
            self.begin_rebalance()
        else:
            self.complete_if_joined()

    # -- to the next generation ------------------------------------------------------------

    def rebalance(self) -> None:
        if self.phase in _WITH_GENERATION:
            self.begin_rebalance()

    def on_joined(self) -> None:
        """Begin a rebalance, or continue the current one, after a member joined or changed."""
        if self.phase is ClassicGroupState.PREPARING:
            self.complete_if_joined()
        else:
            self.begin_rebalance()

    def begin_rebalance(self) -> None:
        """Begin a rebalance. The rebalance of an empty group waits for more members to join."""
        if self.phase is ClassicGroupState.COMPLETING:
            for member in self.members:
                member.assignment = b""
                if self._answer_sync(member, Code.REBALANCE_IN_PROGRESS):
                    # While its request waited, the member needed to send no heartbeats.
                    self.restart_session(member)
        self._forget_syncs()
        first = self.phase is ClassicGroupState.EMPTY
        self._enter_phase(ClassicGroupState.PREPARING)
        if first:
            delay = self.cluster.configs.read_number("group.initial.rebalance.delay.ms")
            left = max(self.members.rebalance_timeout_ms - delay, 0)
            self._join_timer = self.call_after(delay, lambda: self._end_first_wait(delay, left))
        elif self._have_all_joined():
            self._complete_rebalance()
        else:
            self._await_joins()

    def extend_first_wait(self) -> None:
        """Extend the wait of the group's first rebalance after a new member joined."""
        if self.phase is ClassicGroupState.PREPARING and self.before is ClassicGroupState.EMPTY:
            self._grown = True

    def _end_first_wait(self, delay: int, left: int) -> None:
        if self._grown and left > 0:
            self._grown = False
            again = min(self.cluster.configs.read_number("group.initial.rebalance.delay.ms"), left)
            rest = max(left - delay, 0)
            self._join_timer = self.call_after(again, lambda: self._end_first_wait(again, rest))
        else:
            self._complete_rebalance()

    def complete_if_joined(self) -> None:
        """Begin the next generation if all members have joined.

        In the first rebalance of a group, only the timer begins the generation.
        """
        first = self.before is ClassicGroupState.EMPTY
        if self.phase is ClassicGroupState.PREPARING and not first and self._have_all_joined():
            self._complete_rebalance()

    def _have_all_joined(self) -> bool:
        return not self.pending and all(each.joining is not None for each in self.members)

    def _await_joins(self, at_least: int = 0) -> None:
        cancel_timer(self._join_timer)
        wait = max(self.members.rebalance_timeout_ms, at_least)
        self._join_timer = self.call_after(wait, self._complete_rebalance)

    def _complete_rebalance(self) -> None:
        """Begin the next generation without waiting for more members."""
        cancel_timer(self._join_timer)
        for member in self.members:
            if member.joining is None and member.instance_id is None:
                self.drop_member(member)
        candidates = self.members.list_joining()
        if len(self.members) and not candidates:
            # Only static members are left, and none of them has joined again yet.
            self._await_joins(at_least=_SHORTEST_WAIT_MS)
            return
        self.generation += 1
        self._grown = False
        self.leader = self._choose_leader([each.member_id for each in candidates])
        self.protocol = self.members.choose_protocol()
        self._enter_phase(ClassicGroupState.COMPLETING if candidates else ClassicGroupState.EMPTY)
        self.persist_state()
        for member in self.members:
            member.is_new = False
            member.answer_join(self.make_join_response(member, with_members=self.is_leader(member)))
            self.restart_session(member)
        if candidates:
            self._await_syncs()

    def _choose_leader(self, candidates: list[str]) -> str | None:
        """Return the id of the leader of the next generation, whose members are `candidates`."""
        if self.leader in candidates or not candidates:
            return self.leader if candidates else None
        if self.before is ClassicGroupState.EMPTY:
            return candidates[0]
        # Kafka takes the first member in the order of a hash table of random ids.
        return self.cluster.rng.choice(candidates)

    def is_leader(self, member: ClassicMember) -> bool:
        return member.member_id == self.leader

    def make_join_response(self, member: ClassicMember, *, with_members: bool) -> JoinGroupResponse:
        """Return the JoinGroup response for a member of this generation."""
        everyone = [
            JoinGroupResponseMember(
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                metadata=each.find_metadata(self.protocol),
            )
            for each in (self.members if with_members else ())
        ]
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.type,
            protocol_name=self.protocol,
            leader=self.leader or "",
            member_id=member.member_id,
            members=everyone,
        )

    # -- assignments -----------------------------------------------------------------------

    def _await_syncs(self) -> None:
        """Wait for the SyncGroup of each member, at most for the rebalance timeout."""
        cancel_timer(self._sync_timer)
        self.unsynced = dict.fromkeys(each.member_id for each in self.members)
        self._sync_timer = self.call_after(self.members.rebalance_timeout_ms, self._expire_syncs)

    def _expire_syncs(self) -> None:
        late = [each for each in self.members if each.member_id in self.unsynced]
        for member in late:
            self.drop_member(member)
        if late:
            self.begin_rebalance()

    def on_sync(self, member: ClassicMember) -> None:
        """Record that a member has sent its SyncGroup."""
        self.unsynced.pop(member.member_id, None)
        if not self.unsynced:
            cancel_timer(self._sync_timer)

    def _forget_syncs(self) -> None:
        self.unsynced.clear()
        self.given = None
        cancel_timer(self._sync_timer)

    def distribute_assignments(self, assignments: dict[str, bytes]) -> None:
        """Persist the leader's assignments, and then send them to the members."""
        for member in self.members:
            member.assignment = assignments.get(member.member_id, b"")
        self.given = None
        self._enter_phase(ClassicGroupState.STABLE)
        self.persist_state()
        for member in self.members:
            if self._answer_sync(member, Code.NONE):
                self.restart_session(member)

    def replace_assignments(self, assignments: dict[str, bytes]) -> None:
        """Handle new assignments within the generation: each member must ask for its own again."""
        self.given = assignments
        self._enter_phase(ClassicGroupState.COMPLETING)
        self._await_syncs()

    def _answer_sync(self, member: ClassicMember, code: Code) -> bool:
        if code:
            return member.answer_sync(SyncGroupResponse(error_code=code))
        return member.answer_sync(self.make_sync_response(member))

    def make_sync_response(self, member: ClassicMember) -> SyncGroupResponse:
        """Return the SyncGroup response for a member."""
        return SyncGroupResponse(
            protocol_type=self.type, protocol_name=self.protocol, assignment=member.assignment
        )


def cancel_timer(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
