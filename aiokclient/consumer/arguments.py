"""Checks of the arguments of a consumer: topics, partitions, offsets and numbers."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, overload

from aiokclient.errors import InvalidTopicError
from aiokclient.errors.local import ArgumentTypeError
from aiokclient.types import (
    ConsumerRecord,
    OffsetAndMetadata,
    TopicPartition,
    is_integer,
    is_offset,
    is_topic_name,
)

PATTERN_CHARACTERS: Final = frozenset("^$*+?()[]{}|\\")
"""Characters of regular expressions that no topic name contains."""
MAX_BYTES: Final = 64 * 1024 * 1024
"""The default limit for the bytes of a list or table."""
LISTENING: Final = ("on_assigned", "on_revoked", "on_lost")


@overload
def as_topics(topics: re.Pattern[str]) -> re.Pattern[str]: ...
@overload
def as_topics(topics: Iterable[str]) -> list[str]: ...
def as_topics(topics: Iterable[str] | re.Pattern[str]) -> list[str] | re.Pattern[str]:
    """Return the given topics as a list of names, or the given pattern.

    Raises ArgumentTypeError for a name that is not a str, and InvalidTopicError for a name that
    Kafka does not permit.
    """
    given: Any = topics
    if isinstance(given, re.Pattern):
        if not isinstance(given.pattern, str):
            raise ArgumentTypeError(f"{given!r} matches bytes. Topic names are str.")
        return given
    alone = isinstance(given, str | bytes) or not isinstance(given, Iterable)
    names = [given] if alone else [*given]
    for name in names:
        if not isinstance(name, str):
            raise ArgumentTypeError(
                f"{name!r} is not a topic. Pass topic names, each a str, or one compiled pattern."
            )
        if not is_topic_name(name) and not PATTERN_CHARACTERS.isdisjoint(name):
            raise InvalidTopicError(
                f"{name!r} cannot be a topic. If it is a regular expression, pass the compiled "
                f"pattern, re.compile({name.removeprefix('^')!r}), instead of a list of names. It "
                "must match the whole name of a topic."
            )
        _require_name(name)
    return names


def as_listener(listener: Any) -> Any:
    """Return the given object. Raise ArgumentTypeError if it is neither a listener nor None."""
    methods = [getattr(listener, name, None) for name in LISTENING]
    if listener is None or (not inspect.isclass(listener) and any(map(callable, methods))):
        return listener
    raise ArgumentTypeError(
        f"{listener!r} is not a listener. A listener is an object with on_assigned(partitions), "
        "on_revoked(partitions) or on_lost(partitions)."
    )


def as_partitions(tps: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return the given partitions, which may be tuples. Raises the errors of `as_topics`."""
    given: Any = tps
    if isinstance(given, str | TopicPartition) or not isinstance(given, Iterable):
        raise ArgumentTypeError(
            f"{given!r} is not a collection of partitions. Write [TopicPartition(topic, number)]."
        )
    return [as_partition(tp) for tp in given]


def as_partition(tp: Any) -> TopicPartition:
    """Return a partition, which may be given as a tuple. Raises the errors of `as_topics`."""
    if isinstance(tp, tuple) and len(tp) == 2:
        topic, number = tp
        if isinstance(topic, str) and is_integer(number) and number >= 0:
            _require_name(topic)
            return TopicPartition(topic, number)
    raise ArgumentTypeError(f"{tp!r} is not a partition. Write TopicPartition(topic, number).")


def as_numbers(numbers: Mapping[TopicPartition, int], what: str) -> dict[TopicPartition, int]:
    """Return the given mapping from partitions to integers of at least 0, after checking it.

    `what` describes the integers in error messages. Raises the errors of `as_topics`.
    """
    given: Any = numbers
    if not isinstance(given, Mapping):
        raise ArgumentTypeError(
            f"{given!r} is not a mapping from partitions. Write "
            "{TopicPartition(topic, number): ...}."
        )
    for value in given.values():
        if not is_offset(value):
            raise ArgumentTypeError(f"{value!r} is not {what}. It must be an integer from 0.")
    return dict(zip(as_partitions(given), given.values(), strict=True))


def as_position(
    to: ConsumerRecord[Any, Any] | TopicPartition, offset: int | OffsetAndMetadata | None
) -> tuple[TopicPartition, int, int | None]:
    """Return the target of a seek: partition, offset, and the leader epoch if it is known."""
    position: Any = offset
    epoch = None
    if isinstance(to, ConsumerRecord):
        return TopicPartition(to.topic, to.partition), to.offset, to.leader_epoch
    if isinstance(offset, OffsetAndMetadata):
        position, epoch = offset.offset, offset.leader_epoch
    if position is None:
        raise ArgumentTypeError("seek() takes a record, or a partition and an offset.")
    if not is_offset(position):
        raise ArgumentTypeError(
            f"{position!r} is not an offset. See also seek_to_beginning() and seek_to_end()."
        )
    return as_partition(to), position, epoch


def require_count(name: str, value: Any) -> None:
    """Raise ArgumentTypeError unless the value is an integer from 1."""
    if not is_integer(value) or value < 1:
        raise ArgumentTypeError(f"{name} must be at least 1 and an integer, not {value!r}.")


def require_record(record: Any) -> None:
    """Raise ArgumentTypeError unless the argument is a record."""
    if not isinstance(record, ConsumerRecord):
        raise ArgumentTypeError(
            f"{record!r} is not a record. done() takes a record that tracked() has delivered."
        )


def _require_name(topic: str) -> None:
    if not is_topic_name(topic):
        raise InvalidTopicError(f"{topic!r} cannot be a topic.")
