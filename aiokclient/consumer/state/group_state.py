"""The part of a partition's state that concerns the group: committed offset and rewind note."""

from __future__ import annotations

__all__ = ["GroupState"]


class GroupState:
    """The group part of a `PartitionState`."""

    __slots__ = ("committed", "fallback", "note")

    def __init__(self) -> None:
        self.committed = -1
        """The committed offset, as known since the last jump of the position; -1 if unknown."""
        self.fallback = -1
        """The offset at which to continue if the group has committed none; -1 for none."""
        self.note = ""
        """The rewind note, which is the metadata of commits without other metadata."""

    def committed_to(self, offset: int) -> None:
        """Store the committed offset."""
        self.committed = offset

    def forget_committed(self) -> None:
        """Allow commits of lower offsets again, after a jump."""
        self.committed = self.fallback = -1

    def fall_back_to(self, offset: int) -> None:
        """Continue at this offset if the group has committed none, until the next jump."""
        self.fallback = offset

    def keep_note(self, note: str) -> None:
        """Send this metadata with the next commits."""
        self.note = note
