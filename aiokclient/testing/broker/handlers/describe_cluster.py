"""DescribeCluster 0 to 2: the cluster id, the controller, and the brokers or the controllers.

A broker describes the brokers (endpoint type 1), and a controller the controllers (2). The other
type is MISMATCHED_ENDPOINT_TYPE, and any further one UNSUPPORTED_ENDPOINT_TYPE. From version 2 on,
brokers that are stopped are listed as fenced if the request asks for them. Controllers that are
stopped are always listed.
"""

from __future__ import annotations

from aiokclient.protocol.messages import DescribeClusterRequest, DescribeClusterResponse
from aiokclient.protocol.messages.describe_cluster import DescribeClusterBroker
from aiokclient.testing.broker.call import Call, Reply
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.security.listeners import CONTROLLER
from aiokclient.testing.broker.security.request_checks import find_authorized_on_cluster

_TYPES = {1: "BROKER", 2: "CONTROLLER"}
"""The types of endpoints. Requests before version 1 are for brokers."""


def handle(call: Call) -> Reply:
    request: DescribeClusterRequest = call.request
    cluster, listener = call.cluster, call.owner.listener
    is_controller = listener == CONTROLLER
    own, wanted = _TYPES[1 + is_controller], _TYPES.get(request.endpoint_type)
    code, message = call.find_refusal(), None
    if not code and wanted is None:
        code = Code.UNSUPPORTED_ENDPOINT_TYPE
        message = f"Unsupported endpoint type {request.endpoint_type}"
    elif not code and wanted != own:
        code = Code.MISMATCHED_ENDPOINT_TYPE
        message = (
            f"The request was sent to an endpoint of type {own}, but we wanted an endpoint of type "
            f"{wanted}"
        )
    if code:
        return DescribeClusterResponse(error_code=code, error_message=message)
    with_fenced = call.version >= 2 and not is_controller
    response = DescribeClusterResponse(
        endpoint_type=request.endpoint_type,
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller,
        brokers=[
            DescribeClusterBroker(
                broker_id=broker.node_id,
                host=broker.endpoints[listener].host,
                port=broker.endpoints[listener].port,
                rack=None if is_controller else broker.rack,
                is_fenced=with_fenced and not broker.alive,
            )
            for broker in cluster.registered.values()
            if broker.alive or is_controller or (request.include_fenced_brokers and with_fenced)
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = find_authorized_on_cluster(call)
    return response
