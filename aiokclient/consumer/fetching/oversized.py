"""The search for the partition whose next record batch is too large to be received.

A broker returns at least the first batch of a response, whatever its size. If that makes a response
larger than `receive_message_max_bytes`, the client closes the connection, and does not know which
of the requested partitions was the reason. So halves of them are fetched apart, and then halves of
these, until one partition is left. Its next batch, fetched alone, is beyond the limit. From then on
it is fetched apart, so that it does not affect other partitions: it may be deleted, or another
broker may have a shorter batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiokclient.consumer.fetching.responses import PartitionResponses
from aiokclient.consumer.fetching.session import FetchOptions, FetchSession, Wanted
from aiokclient.errors import ResponseTooLargeError
from aiokclient.types import TopicPartition

__all__ = ["OversizedFetches"]

OVERHEAD_SHARE: Final = 2
"""The response limit, divided by this, is the size to request after a response over the limit.

A response is larger than the records in it: it lists partitions and aborted transactions.
"""


class OversizedFetches:
    """The partitions to fetch apart from the others of one broker."""

    def __init__(self, options: FetchOptions, responses: PartitionResponses) -> None:
        self._options = options
        self._responses = responses
        self._groups: list[list[TopicPartition]] = []
        self._fetched: Mapping[TopicPartition, Wanted] = {}
        """The last partitions that were fetched apart."""

    def choose(
        self, wanted: Mapping[TopicPartition, Wanted]
    ) -> tuple[Mapping[TopicPartition, Wanted], FetchSession | None]:
        """Return what to fetch next of `wanted`.

        If it is to be fetched apart from the rest, also return the session for this one request.
        """
        if not self._groups and not self._responses.obstructed:
            return wanted, None
        found: Mapping[TopicPartition, Wanted] = {}
        while self._groups and not found:
            group = self._groups.pop()
            found = {tp: wanted[tp] for tp in group if tp in wanted}
        if not found:
            alone = next((tp for tp in wanted if self._responses.is_obstructed(tp)), None)
            if alone is None:
                return wanted, None
            found = {alone: wanted[alone]}
        self._fetched = found
        options = self._options
        if len(found) == 1:
            options = options._replace(max_bytes=1, partition_max_bytes=1)
        return found, FetchSession(options)

    def on_too_large(
        self, asked: Mapping[TopicPartition, Wanted], error: ResponseTooLargeError
    ) -> int:
        """Handle a response over the limit; return the size to request from now on, in bytes."""
        max_bytes = min(self._options.max_bytes, max(error.limit // OVERHEAD_SHARE, 1))
        self._options = self._options._replace(max_bytes=max_bytes)
        apart, self._fetched = asked is self._fetched, {}
        names = list(asked)
        if len(names) == 1 and apart:
            self._responses.too_large(names[0], asked[names[0]], error)
        elif len(names) == 1:
            self._groups.append(names)
        else:
            half = len(names) // 2
            self._groups += [names[half:], names[:half]]
        return max_bytes
