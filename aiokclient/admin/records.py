"""The admin call that deletes the oldest records of partitions."""

from __future__ import annotations

from collections.abc import Mapping

from aiokclient.admin.arguments import as_mapping, as_partition, require_integer
from aiokclient.admin.requests import AdminRequests, Answers, failure
from aiokclient.admin.results import Results
from aiokclient.cluster.targets import Leader
from aiokclient.errors import KafkaError
from aiokclient.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from aiokclient.types import TopicPartition

__all__ = ["RecordCalls"]

API = "DeleteRecords"


class RecordCalls:
    """The admin calls about records."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> Results[TopicPartition, int]:
        """See `Admin.delete_records`."""
        given = as_mapping(offsets, "partitions")
        for offset in given.values():
            require_integer(offset, "an offset")
        wanted = {as_partition(partition): offset for partition, offset in given.items()}
        return await self._requests.by_leader(wanted, self._ask_leader, API, timeout)

    async def _ask_leader(
        self, group: dict[TopicPartition, int], to: Leader, remaining: float
    ) -> Answers[TopicPartition, int]:
        """Send one request to the broker that leads all of these partitions."""
        topics: dict[str, list[DeleteRecordsPartition]] = {}
        for (topic, index), offset in group.items():
            one = DeleteRecordsPartition(partition_index=index, offset=offset)
            topics.setdefault(topic, []).append(one)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=name, partitions=p) for name, p in topics.items()],
            timeout_ms=self._requests.broker_timeout_ms(remaining),
        )
        response = await self._requests.send(request, to, remaining)
        answers: dict[TopicPartition, int | KafkaError] = {}
        for topic in response.topics:
            for result in topic.partitions:
                partition = TopicPartition(topic.name, result.partition_index)
                error = failure(result.error_code, None, API, f"partition {partition}")
                answers[partition] = error or result.low_watermark
        return answers
