"""The steps by which a member enters a generation: JoinGroup, assignment on the leader, SyncGroup.

JoinGroup and SyncGroup have a connection of their own. It is closed when such a request is
abandoned, because the broker would answer later requests only after that one. It is also closed
when the generation begins, because it is not needed until the next rebalance.

If a follower joins again with unchanged metadata, the coordinator returns the present generation.
A follower that needs a new generation therefore offers an additional protocol with a unique name,
which the group can never choose.

A failed assignment is reported to all members (`requests.failure_payload`), and the leader requests
a new generation after increasing delays. If the group refuses the member, the text of the error
names the settings that do not match.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from aiokclient.cluster.lifecycle.public_calls import own_cancellation
from aiokclient.cluster.targets import Coordinator
from aiokclient.errors import (
    AssignmentFailedError,
    ClosedError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
    KafkaError,
    UnsupportedVersionError,
    error_for,
)
from aiokclient.group import requests
from aiokclient.group.handler import Generation, MemberInfo
from aiokclient.group.states import CODES, MemberEvent
from aiokclient.log.limited_log import LimitedLog
from aiokclient.network.pool import Purpose
from aiokclient.policy import Attempts, Backoff, Decision, Scope, classify
from aiokclient.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from aiokclient.types import GroupMetadata

if TYPE_CHECKING:
    from aiokclient.cluster.client import ClusterClient
    from aiokclient.group.engine import GroupEngine
    from aiokclient.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

AGAIN = "again-"
"""The prefix of the name of a protocol that is offered only to change the metadata."""

FAILED_ASSIGNMENTS = 10
"""The longest delay after a failed assignment, in units of `retry_backoff_max_ms`. Each attempt
costs the whole group a rebalance."""

RESYNC = "group.resync"
"""The feature by which the embedded cluster announces that it accepts a second assignment in one
generation. Kafka has no such feature."""

MARGIN_S = 5.0
"""Seconds after the rebalance timeout until a response to JoinGroup counts as lost."""

DESCRIBING_S = 3.0
"""Seconds within which the coordinator has to describe the group, if nothing else is given."""


class GroupJoin:
    """The generation of a member, and the requests that lead to the next one."""

    def __init__(self, engine: GroupEngine) -> None:
        cluster, settings = engine.cluster, engine.settings
        self.no_member = GroupMetadata(
            settings.group_id, group_instance_id=settings.group_instance_id
        )
        self.generation = Generation(self.no_member, "", "", b"")
        self._engine = engine
        self._cluster = cluster
        self._settings = settings
        self._handler = engine.handler
        self._heartbeats = engine.heartbeats
        self._meters = engine.meters
        self._target = Coordinator("group", settings.group_id)
        self._request_s = cluster.config.request_timeout_ms / 1000
        self._rebalance_s = settings.rebalance_timeout_ms / 1000
        backoff = Backoff.of(cluster.config)
        backoff = backoff._replace(maximum_s=backoff.maximum_s * FAILED_ASSIGNMENTS)
        self._assigning = Attempts(math.inf, backoff, cluster.clock)
        self._log = LimitedLog(cluster.make_log("group", settings.group_id), cluster.clock)
        self._retry: asyncio.TimerHandle | None = None
        self._offered: list[tuple[str, bytes]] = []
        self._assignments: dict[str, bytes] | None = None

    def reset_generation(self, member: GroupMetadata | None = None) -> None:
        """Leave the generation and continue with this identity, or with none. Synchronous."""
        member = member or self.no_member
        self.generation = Generation(member, "", "", b"")
        self._assignments = None
        self._cancel_retry()
        self._heartbeats.set_member(member)

    def request_assignment(self) -> None:
        """Make the leader's next `send_sync` assign again in the same generation. Synchronous."""
        self._assignments = None

    # -- joining ----------------------------------------------------------------------------

    async def send_join(self, reason: str, *, again: bool) -> MemberEvent:
        """Send JoinGroup. With `again` it always leads to a new generation."""
        member = self.generation.metadata
        if member.group_instance_id is not None and not member.member_id:
            await self._handler.before_return()
        protocols = self._ask_for_protocols()
        if protocols is None:
            return MemberEvent.FAULT
        if again and not self.generation.is_leader and protocols == self._offered:
            # The coordinator answers a follower that joins with unchanged protocols with the
            # present generation.
            protocols.append((f"{AGAIN}{self._cluster.clock.rng.getrandbits(64):x}", b""))
        request = requests.join(
            self._settings,
            self.generation.metadata.member_id,
            self._handler.protocol_type,
            protocols,
            reason,
        )
        sent_at = self._cluster.clock.monotonic()
        # The response may take as long as a whole rebalance.
        answer = await self._send_held_request(
            request, max(self._rebalance_s + MARGIN_S, self._request_s)
        )
        if isinstance(answer, MemberEvent):
            return answer
        event = CODES.get(answer.error_code)
        # From JoinGroup 4 on, a new member gets its id by a refusal, and joins again with it. So a
        # client that is lost in between does not leave a member in the group (KIP-394).
        if event is MemberEvent.MEMBER_ID_REQUIRED:
            member = self.no_member._replace(member_id=answer.member_id)
            self.generation = Generation(member, "", "", b"")
        return event or self._on_joined(answer, sent_at, request)

    def _ask_for_protocols(self) -> list[tuple[str, bytes]] | None:
        """Return the handler's protocols with their metadata, or None after reporting its error."""
        try:
            with own_cancellation("metadata()"):
                return list(self._handler.offer_protocols())
        except ClosedError:
            raise  # The object of the application was dropped without a close.
        except Exception as error:
            # The application may raise any exception. The member tries again after a delay.
            self._handler.report_error(error)
            text, extra = "The metadata of this member failed: %r", {"event": "group_join_failed"}
            self._log.write(logging.WARNING, ("metadata", repr(error)), text, error, extra=extra)
            return None

    def _on_joined(
        self, answer: JoinGroupResponse, sent_at: float, request: JoinGroupRequest
    ) -> MemberEvent:
        error = requests.mismatch(answer, self._handler.protocol_type, None)
        if error is not None:
            return self._report_refusal(error)
        self._meters.on_joined(sent_at)
        member = self.no_member._replace(
            generation_id=answer.generation_id, member_id=answer.member_id
        )
        members = tuple(
            MemberInfo(m.member_id, m.group_instance_id, m.metadata) for m in answer.members
        )
        protocol = answer.protocol_name or ""
        self.generation = Generation(member, protocol, answer.leader, b"", members)
        self._offered = [(protocol.name, protocol.metadata) for protocol in request.protocols]
        # The coordinator keeps the assignment when a static leader returns (KIP-814).
        leads = self.generation.is_leader and not answer.skip_assignment
        self._assignments = None if leads else {}
        self._cancel_retry()
        self._heartbeats.set_member(member, sent_at)
        return MemberEvent.JOINED

    # -- assigning and receiving the assignment ---------------------------------------------

    async def send_sync(self) -> MemberEvent:
        """Send SyncGroup. On the leader, call `assign` before that."""
        generation, protocol_type = self.generation, self._handler.protocol_type
        if self._assignments is None:
            self._assignments = await self._compute_assignments(generation)
        sent_at = self._cluster.clock.monotonic()
        request = requests.sync(
            generation.metadata, protocol_type, generation.protocol, self._assignments
        )
        # The response waits only for the leader's assignment. The request is sent again after the
        # request timeout, so that a lost response on an open connection costs no more time.
        answer = await self._send_held_request(request, self._request_s)
        if isinstance(answer, MemberEvent):
            return answer
        event = CODES.get(answer.error_code)
        if event is not None:
            return event
        error = requests.mismatch(answer, protocol_type, generation.protocol)
        if error is not None:
            return self._report_refusal(error)
        # Only JoinGroup and SyncGroup, which wait at the broker, need a connection of their own.
        # The next ones may be hours away.
        self.close_connection()
        self._meters.on_synced(sent_at)
        self._heartbeats.on_answer(sent_at)
        return self._take_assignment(bytes(answer.assignment))

    def _take_assignment(self, assignment: bytes) -> MemberEvent:
        failure = requests.failure_in(self._handler.protocol_type, assignment)
        if failure is not None:
            # The leader has reported the error itself.
            if not self.generation.is_leader:
                self._handler.report_error(failure)
            return MemberEvent.UNASSIGNED
        self._assigning.start_over()
        self.generation = self.generation._replace(assignment=assignment)
        return MemberEvent.SYNCED

    async def _compute_assignments(self, generation: Generation) -> dict[str, bytes]:
        """Return the leader's payloads: the assignments, or the failure of the handler."""
        try:
            assigned = await self._call_assign(generation)
            return requests.checked(assigned, generation.members)
        except Exception as error:
            # The handler may raise any exception, which is reported to the application and to all
            # members.
            self._handler.report_error(error)
            text, extra = "The assignment failed: %r", {"event": "group_assignment_failed"}
            self._log.write(logging.WARNING, ("assign", repr(error)), text, error, extra=extra)
            self._schedule_retry()
            payload = requests.failure_payload(self._handler.protocol_type, error)
            return {member.member_id: payload for member in generation.members}

    async def _call_assign(self, generation: Generation) -> Mapping[str, bytes]:
        """Call the handler's `assign` within the rebalance timeout."""
        limit_s = self._rebalance_s
        try:
            async with asyncio.timeout(limit_s) as bound:
                with own_cancellation("assign()", AssignmentFailedError):
                    return await self._handler.assign(
                        generation.protocol, generation.leader_id, generation.members
                    )
        except TimeoutError as error:
            if not bound.expired():
                raise
            raise AssignmentFailedError(
                f"assign() of protocol {generation.protocol} did not return within {limit_s:.1f} "
                "s, the rebalance timeout."
            ) from error

    def _schedule_retry(self) -> None:
        self._cancel_retry()
        delay_s = self._assigning.take_pause_s()
        self._retry = self._engine.callbacks.call_later(
            delay_s, self._engine.rejoin, "the last assignment failed"
        )

    def _cancel_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    # -- requests that the coordinator may hold ---------------------------------------------

    async def _send_held_request(self, request: Any, timeout_s: float) -> Any:
        """Return the response to a request, or the event for its failure.

        It is repeated after retriable errors. A failure or cancellation closes the connection.
        """
        answered = False
        try:
            answer = await self._cluster.request(
                request,
                self._target,
                timeout=math.inf,
                attempt_timeout=timeout_s,
                scope=Scope.GROUP,
                check=requests.unexpected,
                purpose=Purpose.JOIN,
                owner=self,
            )
            answered = True
            return answer
        except KafkaError as error:
            if classify(error, Scope.GROUP) is Decision.FAIL:
                await explain(self._cluster, request, error)
                return self._report_refusal(error)
            text, extra = "Joining the group failed: %s", {"event": "group_join_failed"}
            self._log.write(logging.INFO, ("join", type(error)), text, error, extra=extra)
            return MemberEvent.FAULT
        finally:
            # The broker may hold the request until the rebalance ends, and reads nothing after it
            # on this connection before that.
            if not answered:
                self.close_connection()

    def _report_refusal(self, error: KafkaError) -> MemberEvent:
        self._handler.report_error(error)
        return MemberEvent.REFUSED

    # -- the coordinator ------------------------------------------------------------------

    @property
    def can_resync(self) -> bool:
        """Whether the coordinator accepts several assignments by the leader in one generation."""
        known = self._cluster.coordinators.find_cached("group", self._settings.group_id)
        if known is None:
            return False
        connection = self._cluster.find_connection(known, Purpose.GROUP, self._engine)
        return connection is not None and connection.broker.features.get(RESYNC, 0) > 0

    def waits_at_former_coordinator(self) -> bool:
        """Return whether a request waits at a broker that is no longer the coordinator."""
        known = self._cluster.coordinators.find_cached("group", self._settings.group_id)
        holding = self.list_holding_brokers()
        return known is not None and bool(holding) and known not in holding

    def list_holding_brokers(self) -> list[int]:
        """Return the brokers that have not yet answered a JoinGroup or SyncGroup."""
        return [
            node_id
            for node_id in self._cluster.metadata.brokers
            if (connection := self._cluster.find_connection(node_id, Purpose.JOIN, self))
            and connection.in_flight
        ]

    async def send_leave(self, member: GroupMetadata, reason: str) -> None:
        """Send LeaveGroup for a member. A failure is only logged."""
        # Brokers before 2.4 do not know a list of members to remove (LeaveGroup 3, KIP-345).
        for batched in (True, False):
            try:
                await self._cluster.request(
                    requests.leave(member, reason, batched=batched),
                    self._target,
                    timeout=min(self._settings.session_timeout_ms / 1000, self._request_s),
                    scope=Scope.GROUP,
                    check=requests.left,
                    purpose=Purpose.GROUP,
                    owner=self._engine,
                )
                return
            except UnsupportedVersionError:
                continue
            except Exception as error:
                # Leaving is optional: the session timeout removes the member anyway.
                text, extra = "Could not leave the group: %s", {"event": "group_leave_failed"}
                self._log.write(logging.INFO, "leave", text, error, extra=extra)
                return

    def close_connection(self) -> None:
        """Close the connection of JoinGroup and SyncGroup. Synchronous."""
        self._cluster.release_owner(self)

    def close_connections(self) -> None:
        """Close all connections of the member. Synchronous."""
        self.close_connection()
        self._cluster.release_owner(self._engine)


async def explain(cluster: ClusterClient, request: Any, error: KafkaError) -> None:
    """Add details about the group to the text of `error`. Raises no KafkaError."""
    explanation = EXPLANATIONS.get(error.code)
    if explanation is not None and hasattr(request, "protocols"):
        parts = (error.message, await explanation(cluster, request))
        error.message = " ".join(part for part in parts if part)


async def _protocols(cluster: ClusterClient, request: JoinGroupRequest) -> str:
    names = ", ".join(protocol.name for protocol in request.protocols)
    mine = f"This member offers {names} in a group of type {request.protocol_type!r}."
    try:
        group = await describe_group(cluster, request.group_id)
    except KafkaError:
        # The description is not permitted, or the group is not a classic one.
        return mine
    if not group.protocol_data:
        return f"{mine} The group's type is {group.protocol_type!r}."
    return f"The group of type {group.protocol_type!r} uses {group.protocol_data!r}. {mine}"


async def describe_group(
    cluster: ClusterClient, group_id: str, timeout_s: float = DESCRIBING_S
) -> DescribedGroup:
    """Return the coordinator's description of a group."""

    def refusal(response: DescribeGroupsResponse) -> KafkaError | None:
        return error_for(response.groups[0].error_code) if response.groups else None

    response = await cluster.request(
        DescribeGroupsRequest(groups=[group_id]),
        Coordinator("group", group_id),
        timeout=timeout_s,
        scope=Scope.ADMIN,
        check=refusal,
    )
    return response.groups[0] if response.groups else DescribedGroup()


async def _session_timeout(cluster: ClusterClient, request: JoinGroupRequest) -> str:
    return f"session_timeout_ms is {request.session_timeout_ms}."


EXPLANATIONS: Mapping[int | None, Callable[[ClusterClient, JoinGroupRequest], Awaitable[str]]] = {
    InconsistentGroupProtocolError.code: _protocols,
    InvalidSessionTimeoutError.code: _session_timeout,
}
"""The functions that describe the cause of an error code."""
