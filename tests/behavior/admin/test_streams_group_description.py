"""The description of a streams group on a real Kafka. The embedded cluster has no such groups."""

from __future__ import annotations

import asyncio
from typing import Any

from streams_member import StreamsMember

from aiokclient import Admin, Client
from aiokclient.admin import StreamsSubtopology, StreamsTasks, TopologyDescriptionStatus
from aiokclient.errors import GroupIdNotFoundError


async def test_a_streams_group_is_described_with_its_tasks(kafka: Any, group: str) -> None:
    topic = await asyncio.to_thread(kafka.create_topic, None, 2)
    async with Client(bootstrap_servers=kafka.bootstrap) as client, Admin(client=client) as admin:
        member = StreamsMember(client, group, topic)
        await member.join()
        await member.wait_for_tasks()
        described = await admin.describe_streams_groups(
            [group, f"{group}-absent"], include_topology_description=True
        )
        assert isinstance(described[f"{group}-absent"], GroupIdNotFoundError)
        found = described.succeeded[group]
        assert found.subtopologies == (StreamsSubtopology("0", (topic,), (), (), ()),)
        assert found.topology_epoch == 1
        assert found.topology_description_status is TopologyDescriptionStatus.NOT_STORED
        (one,) = found.members
        assert one.member_id == member.member_id
        assert (one.process_id, one.topology_epoch) == ("process", 1)
        assert one.target == StreamsTasks({"0": (0, 1)}, {}, {})
        assert isinstance((await admin.describe_groups([group]))[group], GroupIdNotFoundError)
        await member.leave()
        (await admin.delete_groups([group])).raise_for_errors()
