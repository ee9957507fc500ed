"""The adaptive limit for the size of a topic's batches.

When the broker refuses a batch as too large, the limit is halved. After a number of written batches
the full size is tried again. Each failed attempt doubles that number.
"""

from __future__ import annotations

__all__ = ["BatchLimit"]

REQUIRED = 150
"""Number of batches that must be written before the full size is first tried again."""
MOST_REQUIRED = 1 << 20
"""The largest number of batches that must be written before the full size is tried again."""


class BatchLimit:
    """The largest size of a topic's batches, in bytes."""

    __slots__ = ("_largest", "_probing", "_required", "_written", "lowered", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        """The current limit for the size of a batch, in bytes."""
        self.lowered = False
        """Whether the current limit is below the configured one."""
        self._largest = size
        self._written = 0
        """Number of batches of about the limit's size written since the last refusal."""
        self._required = REQUIRED
        self._probing = False
        """Whether the full size was restored since the last refusal."""

    def lower(self, size: int) -> int:
        """Lower the limit after a batch of `size` bytes was refused. Return the limit of its parts.

        If the refused batch was the attempt to use the full size again, the next attempt comes
        after twice as many batches.
        """
        limit = size // 2
        self._set(min(self.size, limit))
        self._written = 0
        if self._probing:
            self._probing = False
            self._required = min(2 * self._required, MOST_REQUIRED)
        return limit

    def note_written(self, size: int) -> None:
        """Count a batch of `size` bytes that was written while the limit was lowered.

        After enough such batches the full size is restored.
        """
        if 2 * size < self.size:
            return
        self._written += 1
        if self._written >= self._required:
            self._probing = True
            self._set(self._largest)

    def _set(self, size: int) -> None:
        self.size = size
        self.lowered = size < self._largest
