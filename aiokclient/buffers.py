"""Memory for large frames and columns, which is reused when nothing refers to it any more.

Frames and columns have similar sizes, and each is needed until the application drops the last
record in it. A new allocation for each of them would cost more than decoding small records, because
the operating system clears new memory page by page.
"""

from __future__ import annotations

from aiokclient._native import twin

__all__ = ["BufferPool"]


@twin("ground")
class BufferPool:
    """A pool of memory, which keeps at most `limit` bytes for reuse.

    `take` returns a memoryview. Its memory returns to the pool when nothing refers to it any more.
    This Python version keeps no memory, because a bytearray does not know when its last view was
    deleted.
    """

    __slots__ = ("kept", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.kept = 0
        """Number of bytes that are kept for reuse."""

    def take(self, size: int) -> memoryview:
        """Return `size` bytes of memory with arbitrary content."""
        return memoryview(bytearray(size))

    def clear(self) -> None:
        """Free the memory that is kept."""
