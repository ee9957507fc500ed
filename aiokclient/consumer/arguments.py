"""What the user names, checked where it comes in: topics and partitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aiokclient.errors import IllegalStateError, InvalidTopicError
from aiokclient.types import TopicPartition, is_topic_name

__all__ = ["as_partitions", "as_topics"]


def as_topics(topics: Iterable[str]) -> list[str]:
    """The names in a collection, or one name alone.

    Raises IllegalStateError for what is no name, InvalidTopicError for what no topic is called.
    """
    given: Any = topics
    names = [given] if isinstance(given, str) or not isinstance(given, Iterable) else [*given]
    for name in names:
        if not isinstance(name, str):
            raise IllegalStateError(
                f"{name!r} is no topic: it takes names, each a str, or one compiled pattern"
            )
        _require_name(name)
    return names


def as_partitions(tps: Iterable[TopicPartition]) -> list[TopicPartition]:
    """The partitions in a collection, plain pairs too; raises as `as_topics`."""
    given: Any = tps
    if isinstance(given, str | TopicPartition) or not isinstance(given, Iterable):
        raise IllegalStateError(
            f"{given!r} is not a collection of partitions: write [TopicPartition(topic, number)]"
        )
    return [_partition(tp) for tp in given]


def _require_name(topic: str) -> None:
    if not is_topic_name(topic):
        raise InvalidTopicError(
            f"{topic!r} cannot be a topic: 1 to 249 letters, digits, '.', '_' and '-'"
        )


def _partition(tp: Any) -> TopicPartition:
    if isinstance(tp, tuple) and len(tp) == 2:
        topic, number = tp
        if isinstance(topic, str) and isinstance(number, int) and number >= 0:
            _require_name(topic)
            return TopicPartition(topic, number)
    raise IllegalStateError(f"{tp!r} is no partition: that is a topic's name and a number from 0")
