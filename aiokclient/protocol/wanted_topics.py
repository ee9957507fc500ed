"""Metadata requests whose responses keep only some topics.

A cluster may have a million topics, and a broker may name them all to a client that asked for one.
Objects for all of them would cost gigabytes and stop the whole process while the garbage collector
goes through them. So each topic is dropped as soon as it is decoded, unless it is wanted.
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

__all__ = ["WantedTopicsRequest"]


class WantedTopicsRequest(MetadataRequest):
    """A request for some topics, or None for all, of which `wants` selects those that are kept.

    `wants(name)` is called in the thread that decodes the response; without it all that was asked
    for is kept. Topics without a name are kept.
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
