"""Memory for large frames and columns, which is used again once nothing refers to it.

Frames and columns have similar sizes, and each lives until the program drops the last record in it.
To allocate each anew would cost more than to decode small records, because the system clears the
memory page by page.
"""

from __future__ import annotations

from aiokclient._native import twin

__all__ = ["BufferPool"]


@twin("ground")
class BufferPool:
    """A pool of memory, which keeps at most `limit` bytes for later use.

    `take` returns a memoryview. Its memory comes back to the pool when nothing refers to it any
    more. This version in Python keeps nothing, because a bytearray does not know when its last view
    is gone.
    """

    __slots__ = ("kept", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.kept = 0
        """Bytes that are kept for later use."""

    def take(self, size: int) -> memoryview:
        """Return `size` bytes of memory with arbitrary content."""
        return memoryview(bytearray(size))

    def clear(self) -> None:
        """Free the memory that is kept."""
