"""FindCoordinator 0 to 6: the coordinator of a group, a transactional id, or a share partition.

The types of these keys are 0, 1, and, from version 6 on, 2. A request has one key up to version 3,
and several from version 4 on. A hash of the key selects the broker. If this broker is stopped, the
next running broker is the coordinator. `move_coordinator` moves a key to another broker. The first
request of a kind creates its internal topic. An unknown type is INVALID_REQUEST. So is the key of a
share partition if it does not have the form `group:topic id:partition`. The response for one key
has the error message NONE if there is no error.
"""

from __future__ import annotations

from aiokclient.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse
from aiokclient.protocol.messages.find_coordinator import Coordinator
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.security.acls import AclOperation, AclResource
from aiokclient.testing.broker.topics.topics import (
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTIONS_TOPIC,
)

_RESOURCES = (AclResource.GROUP, AclResource.TRANSACTIONAL_ID)
_TOPICS = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC)
_SHARE = 2
_SHARE_SINCE = 6
_NOT_FOUND = "The coordinator could not be found."


async def handle(call: Call) -> Answer:
    request: FindCoordinatorRequest = call.request
    if call.version >= 4:
        return FindCoordinatorResponse(
            coordinators=[
                _find_coordinator(call, key)
                async for key in call.iterate_items(request.coordinator_keys)
            ]
        )
    found = _find_coordinator(call, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message or (_NOT_FOUND if found.error_code else "NONE"),
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find_coordinator(call: Call, key: str) -> Coordinator:
    kind = call.request.key_type
    code, message = call.find_refusal(), ""
    if not code and not 0 <= kind <= _SHARE:
        code, message = Code.INVALID_REQUEST, f"Unknown coordinator type {kind}."
    if not code:
        code = _check_authorization(call, kind, key)
    too_old = call.version < _SHARE_SINCE
    if not code and kind == _SHARE and (too_old or not _is_share_partition(key)):
        code = Code.INVALID_REQUEST
    broker = None if code else call.cluster.find_coordinator(key)
    if broker is None:
        code = code or Code.COORDINATOR_NOT_AVAILABLE
        return Coordinator(
            key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message
        )
    call.cluster.internal.open_topic(_TOPICS[kind])
    host, port = broker.endpoints[call.owner.listener]
    return Coordinator(key=key, node_id=broker.node_id, host=host, port=port)


def _check_authorization(call: Call, kind: int, key: str) -> int:
    if kind == _SHARE:
        return call.check_cluster_authorization(AclOperation.CLUSTER_ACTION)
    return call.check_authorization(_RESOURCES[kind], key)


def _is_share_partition(key: str) -> bool:
    parts = key.rsplit(":", 2)
    return len(parts) == 3 and all(parts) and parts[2].isdecimal()
