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
FIRST: Final = 256 * 1024
"""The size of the first fetches, when it is not known how large the records are, and how many of
them the reader needs."""
GROWTH: Final = 4
"""The part of what the reader has taken so far that one fetch may have, as a divisor."""
SPARE: Final = 64 * 1024
"""Bytes that are added to an estimate, so that it is rarely too small."""


class FetchSizes:
    """The sizes of the next fetches. All responses in memory take at most about `most` bytes.

    `response_limit` is the size in bytes of the largest response that the client accepts.
    """

    def __init__(self, most: int, response_limit: int) -> None:
        self.largest = max(min(most // PARTS, response_limit - RESPONSE_OVERHEAD), 1)
        """The largest size of one fetch. A single larger batch is fetched as a whole."""
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

    def next(self, offsets: int) -> int:
        """Return the bytes to request in the next fetch.

        `offsets` is the number of offsets of the range that are left.
        """
        most = min(max(FIRST, self._taken // GROWTH), self.largest)
        if not self._offsets:
            return most
        estimate = offsets * self._bytes // self._offsets
        return min(estimate + estimate // 8 + SPARE, most)
