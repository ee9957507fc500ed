"""A member of a share group (KIP-932) with raw requests, through a client, on any broker."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from aiokclient import Client, Coordinator, Leader
from aiokclient.protocol.messages import (
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareGroupHeartbeatRequest,
    share_acknowledge,
    share_fetch,
)

PATIENCE_S = 60.0
ACCEPT = 1


class SharingMember:
    """A member that reads partition 0 of a topic."""

    def __init__(self, client: Client, group: str, topic: str) -> None:
        self.client, self.group, self.topic = client, group, topic
        self.id = uuid.uuid4().hex
        self._epoch = self._session_epoch = 0
        self._topic_id = uuid.UUID(int=0)

    async def _beat(self, epoch: int, topics: list[str] | None = None) -> Any:
        request = ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.id,
            member_epoch=epoch,
            subscribed_topic_names=topics,
        )
        answer = await self.client.request(request, Coordinator("group", self.group))
        assert not answer.error_code, answer
        return answer

    async def join(self) -> None:
        """Join, and wait until the topic is assigned."""
        async with asyncio.timeout(PATIENCE_S):
            answer = await self._beat(0, [self.topic])
            while not (answer.assignment and answer.assignment.topic_partitions):
                await asyncio.sleep(0.02)  # The assignment comes with a later heartbeat.
                answer = await self._beat(answer.member_epoch)
        (assigned,) = answer.assignment.topic_partitions
        self._topic_id = assigned.topic_id

    async def fetch(self, max_wait_ms: int = 1000) -> list[tuple[int, int, int]]:
        """Fetch once, and return the acquired ranges with their delivery counts."""
        epoch, self._session_epoch = self._session_epoch, self._session_epoch + 1
        partition = share_fetch.FetchPartition(partition_index=0)
        request = ShareFetchRequest(
            group_id=self.group,
            member_id=self.id,
            share_session_epoch=epoch,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=500,
            batch_size=500,
            topics=[share_fetch.FetchTopic(topic_id=self._topic_id, partitions=[partition])],
        )
        answer = await self.client.request(request, Leader(self.topic, 0))
        assert not answer.error_code, answer
        return [
            (each.first_offset, each.last_offset, each.delivery_count)
            for topic in answer.responses
            for found in topic.partitions
            for each in found.acquired_records
        ]

    async def fetch_until_acquired(self) -> list[tuple[int, int, int]]:
        """Fetch until something is acquired, in one range or in several."""
        found: list[tuple[int, int, int]] = []
        async with asyncio.timeout(PATIENCE_S):
            while not found:
                found = await self.fetch()
        return found

    async def accept(self, first: int, last: int) -> None:
        """Accept records."""
        epoch, self._session_epoch = self._session_epoch, self._session_epoch + 1
        batch = share_acknowledge.AcknowledgementBatch(
            first_offset=first, last_offset=last, acknowledge_types=[ACCEPT]
        )
        partition = share_acknowledge.AcknowledgePartition(
            partition_index=0, acknowledgement_batches=[batch]
        )
        topic = share_acknowledge.AcknowledgeTopic(topic_id=self._topic_id, partitions=[partition])
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.id,
            share_session_epoch=epoch,
            topics=[topic],
        )
        answer = await self.client.request(request, Leader(self.topic, 0))
        assert not answer.error_code, answer
        assert not answer.responses[0].partitions[0].error_code, answer

    async def leave(self) -> None:
        await self._beat(-1)
