"""DescribeCluster, key 60: returns the cluster's id, controller and brokers (KIP-700).

Version 1 can request the controllers (KIP-919). Version 2 can include fenced
brokers.
"""

from __future__ import annotations

from aiokclient.protocol.schema import (
    Request,
    Response,
    Route,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    string,
)


class DescribeClusterRequest(
    Request["DescribeClusterResponse"], key=60, versions="0-2", flexible="0+", route=Route.ANY
):
    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8("1+", default=1)
    include_fenced_brokers: bool = boolean("2+")


class DescribeClusterBroker(Struct):
    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(null="0+", default=None)
    is_fenced: bool = boolean("2+")


class DescribeClusterResponse(Response, request=DescribeClusterRequest):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-0x80000000)
