"""What the user names, checked where it comes in: topics and partitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aiokclient.errors import IllegalStateError
from aiokclient.types import TopicPartition

__all__ = ["as_partitions", "as_topics"]


def as_topics(topics: Iterable[str]) -> list[str]:
    """The names in a collection, or one name alone. Raises IllegalStateError for what is no name.

    Whether a topic may be called so is for the brokers to say.
    """
    given: Any = topics
    names = [given] if isinstance(given, str) or not isinstance(given, Iterable) else [*given]
    for name in names:
        if not isinstance(name, str):
            raise IllegalStateError(
                f"{name!r} is no topic: it takes names, each a str, or one compiled pattern"
            )
    return names


def as_partitions(tps: Iterable[TopicPartition]) -> list[TopicPartition]:
    """The partitions in a collection, plain pairs too. Raises IllegalStateError for all else."""
    given: Any = tps
    if isinstance(given, str | TopicPartition) or not isinstance(given, Iterable):
        raise IllegalStateError(
            f"{given!r} is not a collection of partitions: write [TopicPartition(topic, number)]"
        )
    return [_partition(tp) for tp in given]


def _partition(tp: Any) -> TopicPartition:
    if isinstance(tp, tuple) and len(tp) == 2:
        topic, number = tp
        if isinstance(topic, str) and isinstance(number, int) and number >= 0:
            return TopicPartition(topic, number)
    raise IllegalStateError(f"{tp!r} is no partition: that is a topic's name and a number from 0")
