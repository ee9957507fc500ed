"""The conversion of a response's topics. A response may have a million topics.

Converting that many would block the event loop for seconds, and so would freeing their memory.
Therefore a thread does both, in pieces between which other threads can run.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

from aiokclient import threads
from aiokclient.memory import free_slowly, untrack, untrack_whole

if TYPE_CHECKING:
    from aiokclient.protocol.messages.metadata import MetadataResponseTopic

K = TypeVar("K")
T = TypeVar("T")

PART = 2_000
"""The number of topics in one piece.

No thread is used if a response has fewer topics than this number, and fewer partitions, too.
"""


async def listed(
    topics: list[MetadataResponseTopic],
    make: Callable[[MetadataResponseTopic], tuple[K, T] | None],
) -> dict[K, T]:
    """Return a dict of the pairs of key and value that `make(topic)` returns for the topics.

    A topic for which it returns None is left out. The list of topics is empty afterwards. `make`
    may be called in another thread.
    """
    return await _in_thread_if_many(_pairs, topics, make)


async def by_name(
    topics: list[MetadataResponseTopic], make: Callable[[MetadataResponseTopic], T | None]
) -> dict[str, T]:
    """Return the value of `make(topic)` for each topic that has a name, sorted by name.

    The remarks about `listed` apply here, too.
    """

    def named(topic: MetadataResponseTopic) -> tuple[str, T] | None:
        made = None if topic.name is None else make(topic)
        return None if made is None else (topic.name or "", made)

    return await _in_thread_if_many(_sorted_pairs, topics, named)


async def _in_thread_if_many(
    function: Callable[..., dict[Any, Any]], topics: list[MetadataResponseTopic], make: Any
) -> dict[Any, Any]:
    if len(topics) < PART and sum(len(topic.partitions) for topic in topics) < PART:
        return function(topics, make)
    return await threads.run(function, topics, make)


def _pairs(topics: list[MetadataResponseTopic], make: Any) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    while topics:
        found.update(_piece(topics, make))
    untrack(found)
    return found


def _sorted_pairs(topics: list[MetadataResponseTopic], make: Any) -> dict[Any, Any]:
    key = itemgetter(0)
    pieces = []
    while topics:
        pieces.append(sorted(_piece(topics, make), key=key))
    found = dict(heapq.merge(*pieces, key=key))
    untrack(found)
    for piece in pieces:
        free_slowly(piece)
    return found


def _piece(topics: list[MetadataResponseTopic], make: Any) -> list[tuple[Any, Any]]:
    """Remove the last topics from their list and return their pairs of key and value."""
    part = topics[-PART:]
    del topics[-PART:]
    pairs = [pair for topic in part if (pair := make(topic)) is not None]
    for pair in pairs:
        # An error stays tracked, because it can be part of a reference cycle.
        if not isinstance(pair[1], BaseException):
            untrack_whole(pair[1])
            untrack(pair[1])
            untrack(pair)
    free_slowly(part)
    return pairs
