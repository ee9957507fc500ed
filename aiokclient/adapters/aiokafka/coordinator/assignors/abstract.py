"""The class from which a program derives a strategy of its own."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping

from aiokclient.adapters.aiokafka.cluster import ClusterMetadata
from aiokclient.adapters.aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)


class AbstractPartitionAssignor(abc.ABC):
    """A strategy that assigns partitions to the members of a group, on the leader of the group."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The name by which the members agree on the strategy."""

    @classmethod
    @abc.abstractmethod
    def assign(
        cls,
        cluster: ClusterMetadata,
        members: Mapping[str, ConsumerProtocolMemberMetadata],
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """Return the assignment of each member, by member id.

        `cluster` has the partitions of all topics that a member subscribes to.
        """

    @classmethod
    @abc.abstractmethod
    def metadata(cls, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """Return what this member sends to the leader."""

    @classmethod
    @abc.abstractmethod
    def on_assignment(cls, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Store the assignment of this member."""
