"""Details for errors by which a group refuses a member: the settings that do not match."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from aiokclient.cluster.targets import Coordinator
from aiokclient.errors import (
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
    KafkaError,
    error_for,
)
from aiokclient.policy import Scope
from aiokclient.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

if TYPE_CHECKING:
    from aiokclient.cluster.client import ClusterClient
    from aiokclient.protocol.messages.join_group import JoinGroupRequest

__all__ = ["describe_group", "explain"]

ASKING_S = 3.0
"""Seconds within which the coordinator has to describe the group."""


async def explain(cluster: ClusterClient, request: Any, error: KafkaError) -> None:
    """Add details about the group to the text of `error`. Raises no KafkaError."""
    told = TOLD.get(error.code)
    if told is not None and hasattr(request, "protocols"):
        parts = (error.message, await told(cluster, request))
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


async def describe_group(cluster: ClusterClient, group_id: str) -> DescribedGroup:
    """Return the coordinator's description of a group, within ASKING_S."""

    def refusal(response: DescribeGroupsResponse) -> KafkaError | None:
        return error_for(response.groups[0].error_code) if response.groups else None

    response = await cluster.request(
        DescribeGroupsRequest(groups=[group_id]),
        Coordinator("group", group_id),
        timeout=ASKING_S,
        scope=Scope.ADMIN,
        check=refusal,
    )
    return response.groups[0] if response.groups else DescribedGroup()


async def _session_timeout(cluster: ClusterClient, request: JoinGroupRequest) -> str:
    return f"session_timeout_ms is {request.session_timeout_ms}."


TOLD: Mapping[int | None, Callable[[ClusterClient, JoinGroupRequest], Awaitable[str]]] = {
    InconsistentGroupProtocolError.code: _protocols,
    InvalidSessionTimeoutError.code: _session_timeout,
}
"""The functions that describe the cause of an error code."""
