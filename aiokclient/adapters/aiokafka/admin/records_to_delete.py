"""Records to delete."""

from __future__ import annotations


class RecordsToDelete:
    """The records of a partition before an offset."""

    def __init__(self, before_offset: int) -> None:
        self.before_offset = before_offset
