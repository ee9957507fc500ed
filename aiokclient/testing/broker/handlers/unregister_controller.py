"""UnregisterController 0: remove the registration of a controller (KIP-1312).

The brokers are the controllers. The active one is INVALID_REQUEST. The registration of another one
is not removed, although the request succeeds, because that of the broker would go, too. One that
is not registered is CONTROLLER_ID_NOT_REGISTERED.
"""

from __future__ import annotations

from aiokclient.protocol.messages import UnregisterControllerRequest, UnregisterControllerResponse
from aiokclient.testing.broker.call import Call, Reply
from aiokclient.testing.broker.codes import Code


def handle(call: Call) -> Reply:
    request: UnregisterControllerRequest = call.request
    code = call.find_refusal() or call.check_cluster_authorization()
    if code:
        return UnregisterControllerResponse(error_code=code)
    controller_id = request.controller_id
    if controller_id not in call.cluster.registered:
        return UnregisterControllerResponse(
            error_code=Code.CONTROLLER_ID_NOT_REGISTERED,
            error_message=f"Controller ID {controller_id} is not currently registered.",
        )
    if controller_id == call.cluster.controller:
        return UnregisterControllerResponse(
            error_code=Code.INVALID_REQUEST,
            error_message="Controller cannot unregister itself while it is active.",
        )
    return UnregisterControllerResponse(error_message="")
