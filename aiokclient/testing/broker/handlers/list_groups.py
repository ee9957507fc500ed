"""ListGroups 0 to 5: the groups that this broker coordinates.

A request may select groups by state (version 4 on, KIP-518) and by type (version 5 on, KIP-848),
without regard to case. A broker that is still loading some of its groups answers
COORDINATOR_LOAD_IN_PROGRESS.
"""

from __future__ import annotations

from aiokclient.protocol.messages import ListGroupsRequest, ListGroupsResponse
from aiokclient.protocol.messages.list_groups import ListedGroup
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.groups.coordinator import get_groups
from aiokclient.testing.broker.security.acls import AclOperation, AclResource


async def handle(call: Call) -> Answer:
    request: ListGroupsRequest = call.request
    code = call.find_refusal()
    if not code and get_groups(call.cluster).is_loading(call.broker):
        code = Code.COORDINATOR_LOAD_IN_PROGRESS
    if code:
        return ListGroupsResponse(error_code=code)
    states = [each.strip().lower() for each in request.states_filter]
    types = [each.strip().lower() for each in request.types_filter]
    return ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.kind.value,
            )
            async for group in call.iterate_items(get_groups(call.cluster).list_loaded(call.broker))
            if _is_visible(call, group.group_id)
            and (not states or group.state.lower() in states)
            and (not types or group.kind.value.lower() in types)
        ]
    )


def _is_visible(call: Call, group_id: str) -> bool:
    """Return whether the client may see this group, by a permission on it or on the cluster."""
    if not call.check_cluster_authorization(AclOperation.DESCRIBE):
        return True
    return not call.check_authorization(AclResource.GROUP, group_id)
