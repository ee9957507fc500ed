"""The sizes of the fetches of one range. Sans-IO.

The size of the rest of the range is estimated from what was fetched, so that few records after the
range are fetched. Fetches grow with what the reader has taken: a reader that needs only the first
records of a large range, such as a limit in SQL, causes few bytes to be fetched.
"""

from __future__ import annotations

from typing import Final

from aiokclient.config.rules import RESPONSE_OVERHEAD

__all__ = ["FetchSizes"]

PARTS: Final = 4
"""The number of parts into which the memory is divided.

One part is in flight, two wait for the reader, and one is being converted.
"""
FIRST: Final = 64 * 1024
"""The size of the first fetches, when it is not known how large the records are, and how many of
them the reader needs."""
EARLY: Final = 1024 * 1024
"""Bytes that the reader must have taken before anything is fetched that it has not asked for. Until
then, it may need only the first records."""
STEADY: Final = 8 * 1024 * 1024
"""Bytes after which the reader is expected to read the whole range. Spark passes about half of this
to its virtual machine before a limit stops a task."""
EARLY_GROWTH: Final = 8
"""The divisor of the bytes that the reader has taken, for the size of a fetch before `STEADY`."""
GROWTH: Final = 2
"""The divisor of the bytes that the reader has taken, for the size of a fetch after `STEADY`."""
AHEAD: Final = 2
"""The largest number of responses that wait for the reader, after `STEADY`."""
SPARE: Final = 64 * 1024
"""Bytes that are added to an estimate, so that it is rarely too small."""


class FetchSizes:
    """The sizes of the next fetches. All responses in memory take at most about `most` bytes.

    `response_limit` is the size in bytes of the largest response that the client accepts.
    """

    def __init__(self, most: int, response_limit: int) -> None:
        self.largest = max(min(most // PARTS, response_limit - RESPONSE_OVERHEAD), 1)
        """The largest size of one fetch. A single larger batch is fetched as a whole."""
        # Both are lower if the memory is small, because many small fetches would take too long.
        self._early, self._steady = min(EARLY, self.largest // 2), min(STEADY, self.largest)
        self._offsets = 0
        self._bytes = 0
        self._taken = 0

    def taken(self, size: int) -> None:
        """Record the bytes of a response that the reader has taken."""
        self._taken += size

    def fetched(self, offsets: int, size: int) -> None:
        """Record the number of offsets and the bytes of a response."""
        self._offsets += offsets
        self._bytes += size

    @property
    def ahead(self) -> int:
        """The largest number of responses that wait for the reader. With 0, it asks for each."""
        if self._taken < self._steady:
            return 0 if self._taken < self._early else 1
        return AHEAD

    def next(self, offsets: int) -> int:
        """Return the bytes to request in the next fetch.

        `offsets` is the number of offsets of the range that are left.
        """
        growth = EARLY_GROWTH if self._taken < self._steady else GROWTH
        most = min(max(FIRST, self._taken // growth), self.largest)
        if not self._offsets:
            return most
        estimate = offsets * self._bytes // self._offsets
        return min(estimate + estimate // 8 + SPARE, most)
