"""StreamsGroupTopologyDescriptionUpdate, key 93: sends a topology for display."""

from __future__ import annotations

from aiokclient.protocol.schema import (
    Request,
    Response,
    Route,
    Struct,
    array,
    int8,
    int16,
    int32,
    string,
    struct,
)


class TopologyDescriptionNode(Struct):
    name: str = string()
    node_type: int = int8()
    source_topics: list[str] = array(string)
    sink_topic: str | None = string(null="0+", default=None)
    stores: list[str] = array(string)
    successors: list[str] = array(string)


class TopologyDescriptionSubtopology(Struct):
    subtopology_id: str = string()
    nodes: list[TopologyDescriptionNode] = array(TopologyDescriptionNode)


class TopologyDescriptionGlobalStore(Struct):
    source: TopologyDescriptionNode = struct(TopologyDescriptionNode)
    processor: TopologyDescriptionNode = struct(TopologyDescriptionNode)


class TopologyDescription(Struct):
    subtopologies: list[TopologyDescriptionSubtopology] = array(TopologyDescriptionSubtopology)
    global_stores: list[TopologyDescriptionGlobalStore] = array(TopologyDescriptionGlobalStore)


class StreamsGroupTopologyDescriptionUpdateRequest(
    Request["StreamsGroupTopologyDescriptionUpdateResponse"],
    key=93,
    versions="0",
    flexible="0+",
    route=Route.GROUP_COORDINATOR,
):
    group_id: str = string()
    member_id: str = string()
    topology_epoch: int = int32()
    topology_description: TopologyDescription = struct(TopologyDescription)


class StreamsGroupTopologyDescriptionUpdateResponse(
    Response, request=StreamsGroupTopologyDescriptionUpdateRequest
):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
