"""Tests of the description of streams groups, from responses that are encoded and decoded."""

from __future__ import annotations

import pytest

from aiokclient import Admin
from aiokclient.admin import (
    AclOperation,
    BrokerDescription,
    StreamsNode,
    StreamsNodeType,
    StreamsSubtopology,
    StreamsTasks,
    StreamsTopic,
    StreamsTopologyDescription,
    TopologyDescriptionStatus,
)
from aiokclient.admin.streams_groups import read_streams_group
from aiokclient.errors import UnsupportedVersionError
from aiokclient.protocol.messages import StreamsGroupDescribeResponse
from aiokclient.protocol.messages import streams_group_describe as parts

BROKER = BrokerDescription(1, "localhost", 9092)


def make_group(version: int) -> parts.DescribedGroup:
    tasks = parts.Assignment(
        active_tasks=[parts.TaskIds(subtopology_id="0", partitions=[2, 0])],
        standby_tasks=[parts.TaskIds(subtopology_id="1", partitions=[1])],
    )
    member = parts.Member(
        member_id="m",
        member_epoch=3,
        client_id="c",
        client_host="/127.0.0.1",
        topology_epoch=2,
        process_id="p",
        user_endpoint=parts.Endpoint(host="h", port=80),
        client_tags=[parts.KeyValue(key="zone", value="a")],
        task_offsets=[parts.TaskOffset(subtopology_id="0", partition=2, offset=7)],
        assignment=tasks,
        is_classic=True,
    )
    changelog = parts.TopicInfo(
        name="g-store-changelog",
        replication_factor=3,
        topic_configs=[parts.KeyValue(key="cleanup.policy", value="compact")],
    )
    group = parts.DescribedGroup(
        group_id="g",
        group_state="Stable",
        group_epoch=4,
        assignment_epoch=3,
        topology=parts.Topology(
            epoch=2,
            subtopologies=[
                parts.Subtopology(
                    subtopology_id="0",
                    source_topics=["orders"],
                    state_changelog_topics=[changelog],
                )
            ],
        ),
        members=[member],
        authorized_operations=1 << AclOperation.READ,
    )
    if version:
        node = parts.TopologyDescriptionNode(
            name="SINK", node_type=3, sink_topic="out", successors=[]
        )
        group.topology_description = parts.TopologyDescription(
            subtopologies=[parts.TopologyDescriptionSubtopology(subtopology_id="0", nodes=[node])]
        )
        group.topology_description_status = 3
        group.assignor_name = "sticky"
    return group


@pytest.mark.parametrize("version", [0, 1])
def test_a_streams_group_has_its_topology_and_tasks(version: int) -> None:
    response = StreamsGroupDescribeResponse(groups=[make_group(version)])
    data = b"".join(response.encode(version))
    decoded = StreamsGroupDescribeResponse.decode(data, version)
    found = read_streams_group(decoded.groups[0], BROKER)
    assert (found.group_id, found.state, found.coordinator) == ("g", "Stable", BROKER)
    assert (found.epoch, found.assignment_epoch, found.topology_epoch) == (4, 3, 2)
    changelog = StreamsTopic("g-store-changelog", None, 3, {"cleanup.policy": "compact"})
    assert found.subtopologies == (StreamsSubtopology("0", ("orders",), (), (changelog,), ()),)
    assert found.authorized_operations == {AclOperation.READ}
    (member,) = found.members
    assert member.tasks == StreamsTasks({"0": (0, 2)}, {"1": (1,)}, {})
    assert member.target == StreamsTasks({}, {}, {})
    assert (member.endpoint, member.client_tags) == (("h", 80), {"zone": "a"})
    assert (member.task_offsets, member.task_end_offsets) == ({("0", 2): 7}, {})
    assert member.classic
    if version:
        sink = StreamsNode("SINK", StreamsNodeType.SINK, (), "out", (), ())
        assert found.topology_description == StreamsTopologyDescription({"0": (sink,)}, ())
        assert found.topology_description_status is TopologyDescriptionStatus.AVAILABLE
        assert found.assignor == "sticky"
    else:
        assert found.topology_description is None
        assert found.topology_description_status is TopologyDescriptionStatus.NOT_REQUESTED
        assert found.assignor is None


def test_a_group_without_topology_has_no_subtopologies() -> None:
    found = read_streams_group(parts.DescribedGroup(group_id="g"), BROKER)
    assert (found.topology_epoch, found.subtopologies, found.members) == (None, (), ())
    assert found.authorized_operations is None


async def test_brokers_without_streams_groups_describe_none(admin: Admin) -> None:
    results = await admin.describe_streams_groups(["g"])
    assert isinstance(results["g"], UnsupportedVersionError)
