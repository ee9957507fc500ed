"""The lookup of the offsets at which a log begins and ends."""

from __future__ import annotations

from typing import Any

from aiokclient.cluster.client import ClusterClient
from aiokclient.cluster.targets import Leader
from aiokclient.consumer.state.offset_reset import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from aiokclient.errors import KafkaError, ProtocolError, error_for
from aiokclient.policy import Scope
from aiokclient.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from aiokclient.types import TopicPartition

__all__ = ["LOOKS", "LOOK_S", "log_bounds"]

LOOKS = 3
"""The number of times that a log is found to end before an offset, before that counts as true."""
LOOK_S = 1.0
"""Seconds between two such looks."""

API = "ListOffsets"


async def log_bounds(cluster: ClusterClient, tp: TopicPartition, timeout: float) -> tuple[int, int]:
    """Return the log start offset and the high watermark of a partition, from its leader.

    `timeout` is in seconds. Raises the errors of `ClusterClient.request`.
    """
    until = cluster.clock.monotonic() + timeout
    start = await _offset(cluster, tp, EARLIEST_TIMESTAMP, timeout)
    left = max(until - cluster.clock.monotonic(), 0.0)
    return start, await _offset(cluster, tp, LATEST_TIMESTAMP, left)


async def _offset(
    cluster: ClusterClient, tp: TopicPartition, timestamp: int, timeout: float
) -> int:
    partition = ListOffsetsPartition(partition_index=tp.partition, timestamp=timestamp)
    topic = ListOffsetsTopic(name=tp.topic, partitions=[partition])
    request = ListOffsetsRequest(replica_id=-1, topics=[topic])
    response = await cluster.request(
        request,
        Leader(*tp),
        timeout=timeout,
        scope=Scope.LIST_OFFSETS,
        check=lambda response: _refusal(response, tp),
    )
    offset: int = response.topics[0].partitions[0].offset
    return offset


def _refusal(response: Any, tp: TopicPartition) -> KafkaError | None:
    found = [part for topic in response.topics for part in topic.partitions]
    if not found:
        text = "The response does not contain the partition."
        return ProtocolError(text, api=API, topic_partition=tp)
    return error_for(found[0].error_code, api=API, topic_partition=tp)
