"""The request that creates topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aiokclient.adapters.aiokafka.protocol.responses import CreateTopicsResponse
from aiokclient.protocol import messages
from aiokclient.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
)

DEFAULT_TIMEOUT_MS = 60_000


class CreateTopicsRequest:
    """A request to create topics.

    Each is (name, partitions, replication factor, assignments, configs), with assignments as
    (partition, brokers) and configs as (name, value).
    """

    API_KEY = 19
    response_type = CreateTopicsResponse

    def __init__(
        self,
        create_topic_requests: Sequence[tuple[Any, ...]],
        timeout: int | None = None,
        validate_only: bool = False,
    ) -> None:
        self.create_topic_requests = create_topic_requests
        self.timeout = timeout
        self.validate_only = validate_only

    def convert(self) -> messages.CreateTopicsRequest:
        """Return the request of aiokclient."""
        topics = [
            CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=factor,
                assignments=[
                    CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
                    for index, brokers in assignments
                ],
                configs=[
                    CreatableTopicConfig(name=key, value=None if value is None else str(value))
                    for key, value in configs
                ],
            )
            for name, partitions, factor, assignments, configs in self.create_topic_requests
        ]
        return messages.CreateTopicsRequest(
            topics=topics,
            timeout_ms=self.timeout or DEFAULT_TIMEOUT_MS,
            validate_only=self.validate_only,
        )
