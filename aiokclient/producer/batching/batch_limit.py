"""How large the batches of a topic may be.

A batch that the broker refused as too large halves the limit. After a number of written batches the
full size is tried again; each attempt in vain doubles that number.
"""

from __future__ import annotations

__all__ = ["BatchLimit"]

REQUIRED = 150
"""Number of batches to be written before the full size is tried again."""
MOST_REQUIRED = 1 << 20
"""The largest such number."""


class BatchLimit:
    """The largest size of a topic's batches, in bytes."""

    __slots__ = ("_largest", "_probing", "_required", "_written", "lowered", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        """Bytes that a batch may take now."""
        self.lowered = False
        """Whether batches are smaller than configured."""
        self._largest = size
        self._written = 0
        """Batches about as large as the limit that were written since one was refused."""
        self._required = REQUIRED
        self._probing = False
        """Whether the full size was tried again since one was refused."""

    def lower(self, size: int) -> int:
        """Lower the limit after a batch of `size` bytes was refused. Return the limit of its parts.

        If the full size was tried in vain, it is tried again after twice as many batches.
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

        Enough of them restore the full size.
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
