"""The request for metadata."""

from __future__ import annotations

from collections.abc import Sequence

from aiokclient.adapters.aiokafka.protocol.responses import MetadataResponse
from aiokclient.protocol import messages
from aiokclient.protocol.messages.metadata import MetadataRequestTopic


class MetadataRequest:
    """A request for the brokers, and for these topics. None means all topics."""

    API_KEY = 3
    response_type = MetadataResponse

    def __init__(
        self,
        topics: Sequence[str] | None = None,
        allow_auto_topic_creation: bool | None = None,
    ) -> None:
        self.topics = topics
        self.allow_auto_topic_creation = allow_auto_topic_creation

    def convert(self) -> messages.MetadataRequest:
        """Return the request of aiokclient."""
        topics = None
        if self.topics is not None:
            topics = [MetadataRequestTopic(name=topic) for topic in self.topics]
        return messages.MetadataRequest(
            topics=topics, allow_auto_topic_creation=self.allow_auto_topic_creation is not False
        )


MetadataRequest_v1 = MetadataRequest
