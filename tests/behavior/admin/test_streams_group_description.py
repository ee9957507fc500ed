"""The description of a streams group on a real Kafka. The embedded cluster has no such groups."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from aiokclient import Admin, Client, Coordinator
from aiokclient.admin import StreamsSubtopology, StreamsTasks, TopologyDescriptionStatus
from aiokclient.errors import GroupIdNotFoundError
from aiokclient.protocol.messages import StreamsGroupHeartbeatRequest
from aiokclient.protocol.messages import streams_group_heartbeat as parts


async def test_a_streams_group_is_described_with_its_tasks(kafka: Any) -> None:
    topic = await asyncio.to_thread(kafka.create_topic, None, 2)
    group, member = (uuid.uuid4().hex[:12] for _ in range(2))
    subtopology = parts.Subtopology(subtopology_id="0", source_topics=[topic])
    join = StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        topology=parts.Topology(epoch=1, subtopologies=[subtopology]),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id="process",
        client_tags=[],
    )
    async with Client(bootstrap_servers=kafka.bootstrap) as client, Admin(client=client) as admin:
        answer = await client.request(join, Coordinator("group", group))
        # The coordinator assigns the tasks of a new group after a delay of some seconds.
        while not answer.active_tasks:
            await asyncio.sleep(0.1)
            heartbeat = StreamsGroupHeartbeatRequest(
                group_id=group, member_id=member, member_epoch=answer.member_epoch
            )
            answer = await client.request(heartbeat, Coordinator("group", group))
        described = await admin.describe_streams_groups(
            [group, f"{group}-absent"], include_topology_description=True
        )
        assert isinstance(described[f"{group}-absent"], GroupIdNotFoundError)
        found = described.succeeded[group]
        assert found.subtopologies == (StreamsSubtopology("0", (topic,), (), (), ()),)
        assert found.topology_epoch == 1
        assert found.topology_description_status is TopologyDescriptionStatus.NOT_STORED
        (one,) = found.members
        assert (one.member_id, one.process_id, one.topology_epoch) == (member, "process", 1)
        assert one.target == StreamsTasks({"0": (0, 1)}, {}, {})
        assert isinstance((await admin.describe_groups([group]))[group], GroupIdNotFoundError)
        leave = StreamsGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=-1)
        assert answer.member_epoch > 0
        await client.request(leave, Coordinator("group", group))
        (await admin.delete_groups([group])).raise_for_errors()
