"""Checks of the types of arguments of admin calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from aiokclient.errors import IllegalStateError
from aiokclient.errors.local import ArgumentTypeError, ArgumentValueError, TopicValueError
from aiokclient.types import TopicPartition, is_integer, shortened, text_problem

TOPIC = "topic"
"""The kind of name for which `as_name` raises the errors of topic names."""

K = TypeVar("K")
T = TypeVar("T")
V = TypeVar("V")


def as_mapping(given: Mapping[K, V], keys: str) -> Mapping[K, V]:
    """Return the argument; raise ArgumentTypeError if it is not a mapping."""
    checked: Any = given
    if not isinstance(checked, Mapping):
        raise ArgumentTypeError(f"{given!r} is not a mapping from {keys}. Pass a dict.")
    return checked


def as_list(given: Any, what: str, *kinds: type) -> list[Any]:
    """Return the items of a collection.

    Raises ArgumentTypeError if it is not a collection, or if an item is of none of the given kinds.
    """
    # A str is iterable, too. Its letters would be used as items.
    if isinstance(given, Iterable) and not isinstance(given, str | bytes):
        items = list(given)
        if not kinds or all(isinstance(item, kinds) for item in items):
            return items
    raise ArgumentTypeError(f"{given!r} is not a collection of {what}. Pass a list.")


def as_partition(given: Any) -> TopicPartition:
    """Return a TopicPartition or a pair as a TopicPartition.

    Raises ArgumentTypeError for any other object, and the errors of `as_name` for the topic.
    """
    if isinstance(given, tuple) and len(given) == 2:
        topic, number = given
        if isinstance(topic, str) and is_integer(number):
            return TopicPartition(as_name(topic, TOPIC), number)
    raise ArgumentTypeError(
        f"{given!r} is not a partition. Pass a TopicPartition, or a topic and a number."
    )


def as_partitions(given: Any) -> dict[TopicPartition, None]:
    """Return the partitions of a collection, each once.

    Raises ArgumentTypeError if it is not a collection, and the errors of `as_partition`.
    """
    if isinstance(given, str | bytes | TopicPartition) or not isinstance(given, Iterable):
        raise ArgumentTypeError(
            f"{given!r} is not a collection of partitions. Pass a list of TopicPartition."
        )
    return dict.fromkeys(map(as_partition, given))


def as_resources(given: Iterable[K], kind: type[K]) -> Iterable[K]:
    """Return a mapping unchanged, and the items of any other iterable as a list.

    Raises ArgumentTypeError if the argument is not iterable or an item is not of the given kind.
    """
    items = as_list(given, kind.__name__, kind)
    return given if isinstance(given, Mapping) else items


def as_name(given: Any, what: str) -> str:
    """Return the argument.

    Raises ArgumentTypeError if it is not a str. If no broker could receive it, raises
    TopicValueError for a topic, and ArgumentValueError for anything else.
    """
    if not isinstance(given, str):
        raise ArgumentTypeError(f"{given!r} is not the name of {_add_article(what)}. Pass a str.")
    if problem := text_problem(given):
        kind = TopicValueError if what == TOPIC else ArgumentValueError
        raise kind(f"{shortened(given)} cannot be the name of {_add_article(what)}. {problem}")
    return given


def as_text(given: Any, what: str) -> str:
    """Return the argument. Raises the errors of `as_name` for a text that is not a name."""
    if not isinstance(given, str):
        raise ArgumentTypeError(f"{given!r} is not {what}. Pass a str.")
    if problem := text_problem(given):
        raise ArgumentValueError(f"{shortened(given)} cannot be {what}. {problem}")
    return given


def as_names(names: Iterable[str]) -> list[str]:
    """Return the names in a collection as a list.

    Raises ArgumentTypeError if it is not a collection of str, and ArgumentValueError for a name
    that no broker could receive.
    """
    if isinstance(names, Iterable) and not isinstance(names, str | bytes):
        given = list(names)
        if all(isinstance(name, str) for name in given):
            return [as_text(name, "a name") for name in given]
    raise ArgumentTypeError(f"{names!r} is not a collection of names. Pass a list of str.")


def require_integer(given: Any, what: str) -> None:
    """Raise ArgumentTypeError if the argument is not an int."""
    if not is_integer(given):
        raise ArgumentTypeError(f"{given!r} is not {what}. Pass an int.")


def require_offset(given: int) -> None:
    """Raise ArgumentValueError if the argument cannot be an offset of a record or of an end."""
    if given < 0:
        raise ArgumentValueError(
            f"{given} is not an offset. Offsets are not negative. Pass check=False to set it "
            "nevertheless."
        )


def as_kind(given: Any, kind: type[T]) -> T:
    """Return the argument; raise ArgumentTypeError if it is not of the given kind."""
    if not isinstance(given, kind):
        name = _add_article(kind.__name__)
        raise ArgumentTypeError(f"{given!r} is not {name}. Pass {name}.")
    return given


def as_principal(given: Any) -> str:
    """Return the argument, which must be the type and the name of a principal.

    Raises ArgumentTypeError if it is not a str, and IllegalStateError if it has no type.
    """
    kind, _, name = as_name(given, "principal").partition(":")
    if not kind or not name:
        raise IllegalStateError(
            f"{given!r} is not a principal. Write its type and its name, as in 'User:alice'."
        )
    return str(given)


def _add_article(noun: str) -> str:
    return f"an {noun}" if noun[0] in "AEIOaeio" else f"a {noun}"


def format_config_value(value: object) -> str:
    """Return the value of an option as text in Kafka's notation."""
    return str(value).lower() if isinstance(value, bool) else str(value)
