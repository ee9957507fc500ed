"""DescribeCluster 0 to 2: the cluster id, the controller, and the brokers.

Only brokers (endpoint type 1) are described. Controllers (2) are MISMATCHED_ENDPOINT_TYPE on a
broker, and any other type is UNSUPPORTED_ENDPOINT_TYPE. From version 2 on, brokers that are stopped
are listed as fenced if the request asks for them.
"""

from __future__ import annotations

from aiokclient.protocol.messages import DescribeClusterRequest, DescribeClusterResponse
from aiokclient.protocol.messages.describe_cluster import DescribeClusterBroker
from aiokclient.testing.broker.call import Call, Reply
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.security.request_checks import find_authorized_on_cluster

_BROKERS, _CONTROLLERS = 1, 2


def handle(call: Call) -> Reply:
    request: DescribeClusterRequest = call.request
    cluster, listener = call.cluster, call.owner.listener
    code, message = call.find_refusal(), None
    if not code and request.endpoint_type != _BROKERS:
        mismatched = request.endpoint_type == _CONTROLLERS
        code = Code.MISMATCHED_ENDPOINT_TYPE if mismatched else Code.UNSUPPORTED_ENDPOINT_TYPE
        message = f"A broker does not describe endpoints of type {request.endpoint_type}."
    if code:
        return DescribeClusterResponse(error_code=code, error_message=message)
    response = DescribeClusterResponse(
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller,
        brokers=[
            DescribeClusterBroker(
                broker_id=broker.node_id,
                host=broker.endpoints[listener].host,
                port=broker.endpoints[listener].port,
                rack=broker.rack,
                is_fenced=not broker.alive and call.version >= 2,
            )
            for broker in cluster.registered.values()
            if broker.alive or (request.include_fenced_brokers and call.version >= 2)
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = find_authorized_on_cluster(call)
    return response
