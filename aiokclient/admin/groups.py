"""The admin calls that list, describe, and delete groups of any type, and remove members."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from aiokclient.admin.arguments import as_name, as_text
from aiokclient.admin.cluster import BrokerDescription, described_broker
from aiokclient.admin.group_descriptions import (
    GroupDescription,
    GroupListing,
    classic_group,
    epoch_group,
)
from aiokclient.admin.requests import AdminRequests, Answers, ask_targets, failure
from aiokclient.admin.results import Results
from aiokclient.cluster.metadata.snapshot import BrokerInfo
from aiokclient.cluster.targets import Broker, Coordinator
from aiokclient.errors import (
    CoordinatorLoadInProgressError,
    GroupIdNotFoundError,
    KafkaError,
    NotCoordinatorError,
    UnknownMemberIdError,
    UnsupportedVersionError,
)
from aiokclient.errors.local import ArgumentTypeError
from aiokclient.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from aiokclient.protocol.messages.delete_groups import DeleteGroupsRequest
from aiokclient.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from aiokclient.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from aiokclient.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from aiokclient.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from aiokclient.protocol.schema import Request

__all__ = ["GroupCalls", "group_ids"]

CLASSIC = "classic"
DEAD = "Dead"
"""The state that brokers older than 4.0 return for a group that does not exist."""

NOT_REMOVED = frozenset(
    {
        UnknownMemberIdError.code,
        CoordinatorLoadInProgressError.code,
        NotCoordinatorError.code,
    }
)
"""Error codes that imply that the broker has removed no member."""

ABSENT: Mapping[int | None, str] = {GroupIdNotFoundError.code: "no group of this type"}
"""Error codes for a group that does not exist or is of another type."""


class GroupCalls:
    """The admin calls about groups."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def list_groups(
        self,
        *,
        states: Iterable[str] = (),
        types: Iterable[str] = (),
        timeout: float | None = None,
    ) -> dict[str, GroupListing]:
        """See `Admin.list_groups`."""
        request = ListGroupsRequest(states_filter=group_ids(states), types_filter=group_ids(types))
        found: dict[str, GroupListing] = {}
        for broker, response in (await self._requests.of_all_brokers(request, timeout)).items():
            found.update(_listed(response, described_broker(broker)))
        return dict(sorted(found.items()))

    async def describe_groups(
        self,
        groups: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        timeout: float | None = None,
    ) -> Results[str, GroupDescription]:
        """See `Admin.describe_groups`."""
        forms: dict[str, Callable[[list[str]], Request[Any]]] = {
            CLASSIC: lambda ids: DescribeGroupsRequest(
                groups=ids, include_authorized_operations=include_authorized_operations
            ),
            "consumer": lambda ids: ConsumerGroupDescribeRequest(
                group_ids=ids, include_authorized_operations=include_authorized_operations
            ),
            "share": lambda ids: ShareGroupDescribeRequest(
                group_ids=ids, include_authorized_operations=include_authorized_operations
            ),
        }

        async def ask(
            items: dict[str, None], to: BrokerInfo, remaining: float
        ) -> Answers[str, GroupDescription]:
            answers: dict[str, GroupDescription | KafkaError] = {}
            left = list(items)
            for kind, form in forms.items():
                said = await self._described_as(kind, form(left), to, remaining) if left else {}
                answers.update(said)
                left = [group for group in left if _is_absent(answers.get(group))]
            return answers

        return await self._requests.by_coordinator(dict.fromkeys(group_ids(groups)), ask, timeout)

    async def _described_as(
        self, kind: str, request: Request[Any], to: BrokerInfo, remaining: float
    ) -> Answers[str, GroupDescription]:
        try:
            response = await self._requests.send(request, Broker(to.node_id), remaining)
        except UnsupportedVersionError:
            if kind == CLASSIC:
                raise
            # A broker that does not know this type of group has no groups of this type.
            return {}
        api, broker = request.api_key.api_name, described_broker(to)
        return {
            group.group_id: _failure(group, api)
            or (
                classic_group(group, broker)
                if kind == CLASSIC
                else epoch_group(group, kind, broker)
            )
            for group in response.groups
        }

    async def delete_groups(
        self, groups: Iterable[str], *, timeout: float | None = None
    ) -> Results[str, None]:
        """See `Admin.delete_groups`."""

        async def ask(
            items: dict[str, None], to: BrokerInfo, remaining: float
        ) -> Answers[str, None]:
            request = DeleteGroupsRequest(groups_names=list(items))
            response = await self._requests.send(request, Broker(to.node_id), remaining)
            return {
                result.group_id: failure(
                    result.error_code,
                    result.error_message,
                    "DeleteGroups",
                    f"group {result.group_id}",
                )
                for result in response.results
            }

        return await self._requests.by_coordinator(dict.fromkeys(group_ids(groups)), ask, timeout)

    async def remove_members(
        self,
        group: str,
        members: Iterable[str],
        *,
        static: bool = False,
        reason: str = "removed by an admin",
        timeout: float | None = None,
    ) -> Results[str, None]:
        """See `Admin.remove_members`."""
        as_name(group, "group")
        as_text(reason, "a reason")
        unknown: list[KafkaError] = []

        async def ask(items: dict[str, None], remaining: float) -> Answers[str, None]:
            request = LeaveGroupRequest(
                group_id=group,
                members=[
                    MemberIdentity(
                        member_id="" if static else name,
                        group_instance_id=name if static else None,
                        reason=reason,
                    )
                    for name in items
                ],
            )
            try:
                to = Coordinator("group", group)
                response = await self._requests.send(
                    request, to, remaining, _outcomes_unknown(unknown)
                )
            except UnsupportedVersionError:
                if static:
                    raise
                return await self._remove_each(group, items, remaining)
            answers: dict[str, KafkaError | None] = {}
            for member in response.members:
                name = (member.group_instance_id or "") if static else member.member_id
                gone = member.error_code == UnknownMemberIdError.code
                code = 0 if unknown and gone else member.error_code
                answers[name] = failure(code, None, "LeaveGroup", f"group {group}")
            return answers

        return await self._requests.each(dict.fromkeys(group_ids(members)), ask, timeout)

    async def _remove_each(
        self, group: str, members: Iterable[str], remaining: float
    ) -> Answers[str, None]:
        """Remove members with one request each, for brokers older than 2.4."""

        async def ask(items: dict[str, None], member: str) -> Answers[str, None]:
            unknown: list[KafkaError] = []
            request = LeaveGroupRequest(group_id=group, member_id=member)
            try:
                to = Coordinator("group", group)
                await self._requests.send(request, to, remaining, _outcomes_unknown(unknown))
            except KafkaError as error:
                if error.code != UnknownMemberIdError.code or not unknown:
                    raise
            return items

        return await ask_targets({member: {member: None} for member in members}, ask)


def group_ids(groups: Iterable[str]) -> list[str]:
    """Return the names in a collection as a list.

    Raises ArgumentTypeError if it is not a collection of str, and ArgumentValueError for a name
    that no broker could receive.
    """
    if isinstance(groups, Iterable) and not isinstance(groups, str | bytes):
        given = list(groups)
        if all(isinstance(group, str) for group in given):
            return [as_text(group, "a name") for group in given]
    raise ArgumentTypeError(f"{groups!r} is not a collection of names. Pass a list of str.")


def _outcomes_unknown(found: list[KafkaError]) -> Callable[[KafkaError], None]:
    """Return a function that records errors after which members may have been removed.

    It appends each such error to the given list.
    """

    def failed(error: KafkaError) -> None:
        if error.code not in NOT_REMOVED:
            found.append(error)

    return failed


def _listed(response: ListGroupsResponse, broker: BrokerDescription) -> dict[str, GroupListing]:
    return {
        group.group_id: GroupListing(
            group.group_id,
            # A broker that supports only classic groups leaves the type empty.
            group.group_type.lower() or CLASSIC,
            group.protocol_type,
            group.group_state,
            broker,
        )
        for group in response.groups
    }


def _failure(group: Any, api: str) -> KafkaError | None:
    absent = isinstance(group, DescribedGroup) and group.group_state == DEAD
    error = failure(group.error_code, group.error_message, api, f"group {group.group_id}")
    if error is None and absent:
        return GroupIdNotFoundError(api=api, resource=f"group {group.group_id}")
    return error


def _is_absent(answer: Any) -> bool:
    return answer is None or (isinstance(answer, KafkaError) and answer.code in ABSENT)
