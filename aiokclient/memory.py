"""Memory: buffers that are reused, and data that is hidden from the garbage collector.

Frames, columns, and batches have similar sizes, and each is needed until the application drops the
last record in it, or until a batch was sent. A new allocation for each of them would cost more than
decoding small records, because the operating system clears new memory page by page.

The collector stops the whole process for seconds when it visits millions of objects. The data of a
large response has no reference cycles, so that reference counting is enough to free it.
Without the native modules, the functions here do nothing.
"""

from __future__ import annotations

import sys
from typing import Any

from aiokclient._native import twin

MOST_BYTES = sys.maxsize // 8
"""The largest limit of memory that is counted: a sum of several such limits fits into a register of
the processor."""
MANY = 1_000
"""The structs of an array are hidden from the garbage collector if there are at least this many."""

PART = 256


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

    def trim(self) -> None:
        """Free the memory that was not used since the last call of `trim`."""


@twin("ground")
def structs_are(kind: type) -> None:
    """Set the base class of all structs in messages. `untrack_whole` also hides its instances."""


@twin("ground")
def untrack(item: object) -> None:
    """Hide one object from the garbage collector."""


@twin("ground")
def untrack_whole(item: object) -> None:
    """Hide an object, and all lists, tuples, ids and messages in it, from the garbage collector.

    The contents of an object that is already hidden are not visited again.
    """


def free_slowly(items: list[Any]) -> None:
    """Empty a list in steps, so that other threads can run in between."""
    while items:
        del items[-PART:]
