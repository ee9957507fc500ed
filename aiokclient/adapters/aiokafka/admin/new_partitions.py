"""Partitions to add to a topic."""

from __future__ import annotations

from collections.abc import Sequence


class NewPartitions:
    """The number of partitions that a topic is to have, and the brokers of each new one."""

    def __init__(
        self, total_count: int, new_assignments: Sequence[Sequence[int]] | None = None
    ) -> None:
        self.total_count = total_count
        self.new_assignments = new_assignments
