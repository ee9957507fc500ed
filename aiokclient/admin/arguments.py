"""Checks of the types of arguments of admin calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from aiokclient.errors import IllegalStateError
from aiokclient.errors.local import ArgumentTypeError
from aiokclient.types import TopicPartition, is_integer

__all__ = [
    "as_kind",
    "as_mapping",
    "as_name",
    "as_partition",
    "as_principal",
    "as_resources",
    "require_integer",
]

K = TypeVar("K")
T = TypeVar("T")
V = TypeVar("V")


def as_mapping(given: Mapping[K, V], keys: str) -> Mapping[K, V]:
    """Return the argument; raise ArgumentTypeError if it is not a mapping."""
    checked: Any = given
    if not isinstance(checked, Mapping):
        raise ArgumentTypeError(f"{given!r} is not a mapping from {keys}. Pass a dict.")
    return checked


def as_partition(given: Any) -> TopicPartition:
    """Return a TopicPartition or a pair as a TopicPartition.

    Raises ArgumentTypeError for any other object.
    """
    if isinstance(given, tuple) and len(given) == 2:
        topic, number = given
        if isinstance(topic, str) and is_integer(number):
            return TopicPartition(topic, number)
    raise ArgumentTypeError(
        f"{given!r} is not a partition. Pass a TopicPartition, or a topic and a number."
    )


def as_resources(given: Iterable[K], kind: type[K]) -> Iterable[K]:
    """Return a mapping unchanged, and the items of any other iterable as a list.

    Raises ArgumentTypeError if the argument is not iterable or an item is not of the given kind.
    """
    checked: Any = given
    if isinstance(checked, Iterable):
        found: Iterable[Any] = checked if isinstance(checked, Mapping) else list(checked)
        if all(isinstance(one, kind) for one in found):
            return found
    raise ArgumentTypeError(f"{given!r} is not a collection of {kind.__name__}. Pass a list.")


def as_name(given: Any, what: str) -> str:
    """Return the argument; raise ArgumentTypeError if it is not a str."""
    if not isinstance(given, str):
        raise ArgumentTypeError(f"{given!r} is not the name of {_with_article(what)}. Pass a str.")
    return given


def require_integer(given: Any, what: str) -> None:
    """Raise ArgumentTypeError if the argument is not an int."""
    if not is_integer(given):
        raise ArgumentTypeError(f"{given!r} is not {what}. Pass an int.")


def as_kind(given: Any, kind: type[T]) -> T:
    """Return the argument; raise ArgumentTypeError if it is not of the given kind."""
    if not isinstance(given, kind):
        name = _with_article(kind.__name__)
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


def _with_article(noun: str) -> str:
    return f"an {noun}" if noun[0] in "AEIOUaeiou" else f"a {noun}"
