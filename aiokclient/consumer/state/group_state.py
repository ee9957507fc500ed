"""The part of a partition's state that concerns the group: what is committed, and its note."""

from __future__ import annotations

__all__ = ["GroupState"]


class GroupState:
    """The group part of a `PartitionState`."""

    __slots__ = ("committed", "note")

    def __init__(self) -> None:
        self.committed = -1
        """The offset that the group has, as far as is known since the last jump; -1 if unknown."""
        self.note = ""
        """The metadata of commits that have none of their own."""

    def committed_to(self, offset: int) -> None:
        """Take note of the offset that the group has."""
        self.committed = offset

    def forget_committed(self) -> None:
        """Allow commits of lower offsets again, after a jump."""
        self.committed = -1

    def keep_note(self, note: str) -> None:
        """Send this metadata with the next commits."""
        self.note = note
