"""FindCoordinator 0 to 6: who coordinates a group (0), a transactional id (1), a share
partition (2, version 6 on).

One key up to version 3, several from 4 on. Each key has its broker by a hash; if that one is
down, the next one that is up. `move_coordinator` gives a key to another. An unknown type, or
an empty key, is INVALID_REQUEST.
"""

from __future__ import annotations

from aiokclient.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse
from aiokclient.protocol.messages.find_coordinator import Coordinator
from aiokclient.testing.call import Call, Reply
from aiokclient.testing.codes import Code

_SHARE = 2
_SHARE_SINCE = 6


def handle(call: Call) -> Reply:
    request: FindCoordinatorRequest = call.request
    if call.version >= 4:
        return FindCoordinatorResponse(
            coordinators=[_find(call, key) for key in request.coordinator_keys]
        )
    found = _find(call, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find(call: Call, key: str) -> Coordinator:
    kind = call.request.key_type
    code = call.refused()
    last = _SHARE if call.version >= _SHARE_SINCE else _SHARE - 1
    if not code and not 0 <= kind <= last:
        code = Code.INVALID_REQUEST
    broker = None if code else call.cluster.coordinator_of(key)
    if broker is None:
        code = code or Code.COORDINATOR_NOT_AVAILABLE
        return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code)
    return Coordinator(key=key, node_id=broker.node_id, host=broker.host, port=broker.port)
