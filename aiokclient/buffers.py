"""Memory for large frames and columns, used again once nobody holds what was in it.

They come one after the other, each a little different in size, and each lives until the program has
done with the last record of it. Fresh memory for all of them would be cleared, or faulted in page
by page, for more than it costs to decode small records.
"""

from __future__ import annotations

from aiokclient._native import twin

__all__ = ["BufferPool"]


@twin("ground")
class BufferPool:
    """Gives memory, and keeps at most `limit` bytes of what comes back.

    What `take` returns is a memoryview; its memory comes back when neither that one exists any more
    nor anything else that refers to the same memory. Here, in Python, nothing is kept: a bytearray
    cannot tell when its last view is gone.
    """

    __slots__ = ("kept", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.kept = 0
        """Bytes that wait to be used again."""

    def take(self, size: int) -> memoryview:
        """Memory of so many bytes, of any content."""
        return memoryview(bytearray(size))

    def clear(self) -> None:
        """Release what is kept."""
