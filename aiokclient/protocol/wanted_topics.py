"""Metadata requests whose responses keep only some topics.

A cluster may have a million topics, and a broker may return all of them to a client that requested
only one. Objects for all topics would take gigabytes of memory, and the whole process would stop
while the garbage collector visits them. So a topic that is not wanted is dropped right after it was
decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from aiokclient.protocol import codec
from aiokclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiokclient.protocol.fields import Buffer


class WantedTopicsRequest(MetadataRequest):
    """A request for the given topics, or for all if None. `wants` selects the topics to keep.

    `wants(name)` is called in the thread that decodes the response. Without it, all requested
    topics are kept. Topics without a name are always kept.
    """

    __slots__ = ("_keep",)

    def __init__(
        self,
        topics: Iterable[str] | None,
        *,
        allow_auto_topic_creation: bool = False,
        wants: Callable[[str], bool] | None = None,
    ) -> None:
        names = None if topics is None else dict.fromkeys(topics)
        self.topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        self.allow_auto_topic_creation = allow_auto_topic_creation
        self.include_cluster_authorized_operations = False
        self.include_topic_authorized_operations = False
        self._tags = None
        if wants is None and names is not None:
            wants = names.__contains__
        self._keep = _keeping(wants) if wants is not None else None

    def read_response(self, frame: Buffer, position: int, version: int) -> tuple[Any, int]:
        """Return the response that begins at a position, and the position after it."""
        if self._keep is None:
            return super().read_response(frame, position, version)
        data = frame if type(frame) is bytes else bytes(frame)
        return _sieve(version)(data, position, self._keep)


WantedTopicsRequest._fields = MetadataRequest._fields


def _keeping(wants: Callable[[str], bool]) -> Callable[[MetadataResponseTopic], bool]:
    def keep(topic: MetadataResponseTopic) -> bool:
        return topic.name is None or wants(topic.name)

    return keep


@cache
def _sieve(version: int) -> codec.Sieve:
    MetadataResponse.has_records()
    return codec.compile_sieve(MetadataResponse, version, "topics")
