"""A topic to create."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aiokclient.adapters.aiokafka.errors import IllegalArgumentError


class NewTopic:
    """A topic to create, with numbers of partitions and replicas, or with assignments.

    With assignments, the brokers of each partition, both numbers are -1.
    """

    def __init__(
        self,
        name: str,
        num_partitions: int,
        replication_factor: int,
        replica_assignments: Mapping[int, Sequence[int]] | None = None,
        topic_configs: Mapping[str, str] | None = None,
    ) -> None:
        has_numbers = num_partitions != -1 and replication_factor != -1
        if has_numbers == (replica_assignments is not None):
            raise IllegalArgumentError(
                f"Topic {name} needs either num_partitions and replication_factor, or "
                "replica_assignments with -1 for both numbers."
            )
        self.name = name
        self.num_partitions = num_partitions
        self.replication_factor = replication_factor
        self.replica_assignments = replica_assignments or {}
        self.topic_configs = topic_configs or {}
