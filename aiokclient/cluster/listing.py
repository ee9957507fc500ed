"""Convert the topics of a response, which may name a million of them.

Converting so many would hold the event loop for seconds, and so would freeing them. So a thread
does both, in pieces between which other threads run.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

from aiokclient import threads
from aiokclient.untracked import free_slowly, untrack, untrack_whole

if TYPE_CHECKING:
    from aiokclient.protocol.messages.metadata import MetadataResponseTopic

__all__ = ["PART", "by_name", "listed"]

K = TypeVar("K")
T = TypeVar("T")

PART = 2_000
"""Number of topics that are one piece; fewer topics and partitions need no thread."""


async def listed(
    topics: list[MetadataResponseTopic],
    make: Callable[[MetadataResponseTopic], tuple[K, T] | None],
) -> dict[K, T]:
    """Return the pairs of key and value that `make(topic)` returns; None leaves a topic out.

    The topics are taken out of their list. `make` may be called in a thread.
    """
    return await _in_thread_if_many(_pairs, topics, make)


async def by_name(
    topics: list[MetadataResponseTopic], make: Callable[[MetadataResponseTopic], T | None]
) -> dict[str, T]:
    """Return what `make(topic)` returns for each topic that has a name, in the order of the names.

    As `listed`.
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
    """Take the last topics out of their list and return what is made of them."""
    part = topics[-PART:]
    del topics[-PART:]
    pairs = [pair for topic in part if (pair := make(topic)) is not None]
    for pair in pairs:
        if not isinstance(pair[1], BaseException):  # Which can be in a cycle, by its traceback.
            untrack_whole(pair[1])
            untrack(pair[1])
            untrack(pair)
    free_slowly(part)
    return pairs
