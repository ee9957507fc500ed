"""ConsumerGroupHeartbeat requests to a group: members join, report, reconcile, and leave.

* A member joins, or joins again under the same member id, with epoch 0. It leaves with -1. A static
  member leaves temporarily with -2. Any other epoch must be the current one of the member. The
  previous one is also accepted if the member owns only partitions that it was assigned, because the
  response with the current epoch may have been lost.
* The response has the assignment if it changed, or if the request is full: it has epoch 0, or it
  names the topics, the owned partitions, and the rebalance timeout.
* A regular expression is evaluated immediately, and again whenever a topic is created or deleted.
  Internal topics match like any others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from aiokclient.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from aiokclient.protocol.messages.consumer_group_heartbeat import Assignment, TopicPartitions
from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.groups.consumer_member import AWAY, LEAVING, ConsumerMember
from aiokclient.testing.broker.groups.regex import check_pattern
from aiokclient.testing.broker.groups.server_assignors import PartitionId, PartitionIds

if TYPE_CHECKING:
    from aiokclient.testing.broker.call import Call
    from aiokclient.testing.broker.groups.consumer_group import ConsumerGroup

_CLASS = re.compile(r"(?<!\\)\[\^?\]?(?:\\.|[^\]\\])*\]")
_NOT_RE2 = re.compile(r"(?:[^\\]|^)(?:\\\\)*(?:\(\?(?:[=!>#(]|<[=!]|P=)|\\[1-9]|[*+?}]\+)")
"""Syntax that Python has and RE2 lacks: lookaround, references, possessive quantifiers."""

_FENCED = "The member must abandon all its partitions and rejoin."


def check_request(
    request: ConsumerGroupHeartbeatRequest, version: int, assignors: Sequence[str]
) -> None:
    """Raise Refused if a request is invalid for any group."""
    _require_not_blank("GroupId", request.group_id)
    _require_not_blank("InstanceId", request.instance_id)
    _require_not_blank("RackId", request.rack_id)
    if request.member_epoch != 0 or version > 0:
        _require_not_blank("MemberId", request.member_id)
    if request.member_epoch == 0:
        _check_join(request)
    elif request.member_epoch == AWAY and request.instance_id is None:
        raise _make_invalid_error("InstanceId can't be null.")
    elif request.member_epoch < AWAY:
        raise _make_invalid_error("MemberEpoch is invalid.")
    if request.server_assignor not in (None, *assignors):
        raise Refused(
            Code.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: "
            f"{', '.join(assignors)}.",
        )
    if request.member_epoch >= 0 and request.subscribed_topic_regex:
        _check_regex(request.subscribed_topic_regex)


def _require_not_blank(name: str, value: str | None) -> None:
    if value is not None and not value.strip():
        raise _make_invalid_error(f"{name} can't be empty.")


def _make_invalid_error(message: str) -> Refused:
    return Refused(Code.INVALID_REQUEST, message)


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _make_invalid_error("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise _make_invalid_error("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _make_invalid_error(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
            "(re-)joining."
        )


class ConsumerGroupHeartbeats:
    """The handling of heartbeats for one group."""

    def __init__(self, group: ConsumerGroup) -> None:
        self._group = group

    def answer_heartbeat(self, call: Call) -> ConsumerGroupHeartbeatResponse:
        """Return the response to a heartbeat. Raises Refused."""
        request: ConsumerGroupHeartbeatRequest = call.request
        if request.member_epoch < 0:
            return self._handle_leave(request)
        member_id = request.member_id or str(self._group.cluster.make_topic_id())
        self._check_room(member_id)
        owned = _read_partition_ids(request.topic_partitions)
        before = self._find_member(request, member_id, owned)
        member = _apply_request(before, request, call)
        self._group.store_member(member)
        self._group.increase_epoch(member.subscription != before.subscription)
        self._group.update_targets()
        member = self._group.advance_member(member, owned)
        self._group.restart_session(member)
        return self._make_response(request, before, member)

    def _make_response(
        self, request: ConsumerGroupHeartbeatRequest, before: ConsumerMember, member: ConsumerMember
    ) -> ConsumerGroupHeartbeatResponse:
        given = (request.subscribed_topic_names, request.topic_partitions)
        full = request.member_epoch == 0 or (
            request.rebalance_timeout_ms != -1 and None not in given
        )
        told = full or member.assigned != before.assigned
        return ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._group.read_option("heartbeat.interval.ms"),
            assignment=Assignment(topic_partitions=_write_partitions(member.assigned))
            if told
            else None,
        )

    # -- identification of the member ---------------------------------------------------------

    def _find_member(
        self, request: ConsumerGroupHeartbeatRequest, member_id: str, owned: PartitionIds | None
    ) -> ConsumerMember:
        """Return the member that sent this request. If it joins, it may be a new one."""
        if request.member_epoch == 0:
            return self._find_joining(member_id, request.instance_id)
        member = self._require_member(member_id, request.instance_id)
        epoch = request.member_epoch
        if epoch > member.epoch:
            raise self._make_fenced_error("greater", epoch, member)
        # The response with the current epoch may have been lost.
        missed_response = (
            epoch == member.previous_epoch and owned is not None and owned <= member.assigned
        )
        if epoch < member.epoch and not missed_response:
            raise self._make_fenced_error("smaller", epoch, member)
        return member

    def _make_fenced_error(self, how: str, epoch: int, member: ConsumerMember) -> Refused:
        return Refused(
            Code.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a {how} member epoch ({epoch}) than the one known by "
            f"the group coordinator ({member.epoch}). {_FENCED}",
        )

    def _find_joining(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        before = self._group.find_static_member(instance_id)
        if before is None:
            return self._group.members.get(member_id) or ConsumerMember(member_id=member_id)
        if before.classic is None and before.epoch != AWAY:
            raise Refused(
                Code.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group "
                f"because the instance id is owned by {before.member_id} member.",
            )
        return self._group.replace_member(before, member_id)

    def _require_member(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        if instance_id is None:
            member = self._group.members.get(member_id)
            if member is None:
                text = f"Member {member_id} is not a member of group {self._group.group_id}."
                raise Refused(Code.UNKNOWN_MEMBER_ID, text)
            return member
        member = self._group.find_static_member(instance_id)
        if member is None:
            raise Refused(Code.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if member.member_id != member_id:
            raise Refused(
                Code.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member "
                f"{member.member_id}.",
            )
        return member

    # -- permission ---------------------------------------------------------------------------

    def _check_room(self, member_id: str) -> None:
        most, members = self._group.read_option("max.size"), self._group.members
        if member_id not in members and len(members) >= most:
            raise Refused(
                Code.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {most} members.",
            )

    def _handle_leave(
        self, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroupHeartbeatResponse:
        member = self._require_member(request.member_id, request.instance_id)
        if request.member_epoch == LEAVING:
            self._group.expel_members([member])
        else:
            self._group.store_member(replace(member, epoch=AWAY, revoking=frozenset()))
            self._group.timers.cancel_timer(("rebalance", member.member_id))
        return ConsumerGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=request.member_epoch
        )


def _check_regex(text: str) -> None:
    message = f"SubscribedTopicRegex `{text}` is not a valid regular expression"
    try:
        check_pattern(text)
    except re.error as error:
        raise Refused(Code.INVALID_REGULAR_EXPRESSION, f"{message}: {error}.") from None
    if _NOT_RE2.search(_CLASS.sub("[]", text)):
        raise Refused(Code.INVALID_REGULAR_EXPRESSION, f"{message}: RE2 has no such syntax.")


def _apply_request(
    member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, call: Call
) -> ConsumerMember:
    """Return a copy of the member, updated with the contents of the request."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=request.instance_id or member.instance_id,
        rack=request.rack_id or member.rack,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        assignor=request.server_assignor or member.assignor,
        topics=member.topics if names is None else tuple(names),
        regex=member.regex if regex is None else regex,
        client_id=call.client_id or "",
        client_host=call.owner.client_host,
        classic=None,
    )


def _read_partition_ids(given: list[TopicPartitions] | None) -> PartitionIds | None:
    if given is None:
        return None
    return frozenset(
        PartitionId(each.topic_id, index) for each in given for index in each.partitions
    )


def _write_partitions(partitions: PartitionIds) -> list[TopicPartitions]:
    topics: dict[UUID, list[int]] = {}
    for topic_id, index in sorted(partitions):
        topics.setdefault(topic_id, []).append(index)
    return [TopicPartitions(topic_id=each, partitions=topics[each]) for each in topics]
