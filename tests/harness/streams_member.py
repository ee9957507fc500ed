"""The only member of a group of Kafka Streams, by raw requests (KIP-1071)."""

from __future__ import annotations

import asyncio
import uuid

from aiokclient import Client, Coordinator
from aiokclient.protocol.messages import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from aiokclient.protocol.messages import streams_group_heartbeat as parts


class StreamsMember:
    """A member whose topology is one subtopology, "0", which reads a topic."""

    def __init__(self, client: Client, group: str, topic: str) -> None:
        self.member_id = uuid.uuid4().hex
        self._client, self._group, self._topic = client, group, topic
        self._epoch = 0

    async def join(self) -> StreamsGroupHeartbeatResponse:
        """Join the group, and create it if it does not exist."""
        topology = parts.Topology(
            epoch=1,
            subtopologies=[parts.Subtopology(subtopology_id="0", source_topics=[self._topic])],
        )
        return await self._send(
            StreamsGroupHeartbeatRequest(
                rebalance_timeout_ms=10_000,
                topology=topology,
                active_tasks=[],
                standby_tasks=[],
                warmup_tasks=[],
                process_id="process",
                client_tags=[],
            )
        )

    async def wait_for_tasks(self) -> list[parts.TaskIds]:
        """Wait until the coordinator has assigned tasks, which takes some seconds in a new group.

        The tasks are not owned until `own_tasks` has said so.
        """
        while True:
            if assigned := (await self._send(StreamsGroupHeartbeatRequest())).active_tasks:
                return assigned
            await asyncio.sleep(0.1)

    async def own_tasks(self, tasks: list[parts.TaskIds]) -> None:
        """Tell the coordinator that the member runs these active tasks."""
        await self._send(
            StreamsGroupHeartbeatRequest(active_tasks=tasks, standby_tasks=[], warmup_tasks=[])
        )

    async def leave(self) -> None:
        self._epoch = -1
        await self._send(StreamsGroupHeartbeatRequest())

    async def _send(self, heartbeat: StreamsGroupHeartbeatRequest) -> StreamsGroupHeartbeatResponse:
        heartbeat.group_id, heartbeat.member_id = self._group, self.member_id
        heartbeat.member_epoch = self._epoch
        response = await self._client.request(heartbeat, Coordinator("group", self._group))
        assert response.error_code == 0, response
        self._epoch = response.member_epoch
        return response
