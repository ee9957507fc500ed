"""What the user names, checked where it comes in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from aiokclient.errors import IllegalStateError
from aiokclient.types import TopicPartition

__all__ = ["as_mapping", "as_partition", "as_resources"]

K = TypeVar("K")
V = TypeVar("V")


def as_mapping(given: Mapping[K, V], keys: str) -> Mapping[K, V]:
    """What was given; IllegalStateError if it is no mapping."""
    checked: Any = given
    if not isinstance(checked, Mapping):
        raise IllegalStateError(f"{given!r} is not a mapping from {keys}: write {{...: ...}}")
    return checked


def as_partition(given: Any) -> TopicPartition:
    """A partition, a plain pair too; IllegalStateError for what is none."""
    if isinstance(given, tuple) and len(given) == 2:
        topic, number = given
        if isinstance(topic, str) and isinstance(number, int):
            return TopicPartition(topic, number)
    raise IllegalStateError(f"{given!r} is no partition: that is a topic's name and a number")


def as_resources(given: Iterable[K], kind: type[K]) -> Iterable[K]:
    """A collection, or a mapping, of what has configurations; IllegalStateError for another."""
    checked: Any = given
    if isinstance(checked, Iterable):
        found: Iterable[Any] = checked if isinstance(checked, Mapping) else list(checked)
        if all(isinstance(one, kind) for one in found):
            return found
    raise IllegalStateError(f"{given!r} is not a collection of {kind.__name__}: write it as [...]")
