"""The values that an assignor of a program gets and returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from aiokclient import TopicPartition


class ConsumerProtocolMemberMetadata(NamedTuple):
    """The subscription of a member."""

    version: int
    subscription: Sequence[str]
    user_data: bytes | None

    @property
    def topics(self) -> Sequence[str]:
        """The subscribed topics."""
        return self.subscription


class ConsumerProtocolMemberAssignment(NamedTuple):
    """The partitions of a member, by topic."""

    version: int
    assignment: Sequence[tuple[str, Sequence[int]]]
    user_data: bytes | None

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions as one list."""
        return [TopicPartition(topic, each) for topic, some in self.assignment for each in some]


class ConsumerProtocol:
    """The protocol of consumer groups."""

    PROTOCOL_TYPE = "consumer"
    METADATA = ConsumerProtocolMemberMetadata
    ASSIGNMENT = ConsumerProtocolMemberAssignment
