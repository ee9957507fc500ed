"""Release of large messages and of objects derived from them, without blocking the event loop.

Python frees a list of a million objects in one step, which stops all threads for a large part of a
second. Here, a thread frees the objects in portions, and lets other threads run in between.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from aiokclient import threads
from aiokclient.memory import MANY, free_slowly, untrack

_PORTION = 256


def discard_items(items: list[Any] | dict[Any, Any]) -> None:
    """Empty a list or a dict that nothing else uses, in a thread if it is large."""
    if len(items) < MANY:
        items.clear()
        return
    try:
        threads.run(_empty_items, items)
    except RuntimeError:
        # The event loop has ended, so there is nothing to block.
        items.clear()


def discard_messages(messages: list[Any]) -> None:
    """Empty a list of messages, and free in a thread the objects that only they refer to.

    The messages themselves are not changed, because other code may still refer to them.
    """
    threads.run(_free_messages, messages)


def _empty_items(items: list[Any] | dict[Any, Any]) -> None:
    if isinstance(items, list):
        free_slowly(items)
        return
    while items:
        for _ in range(min(_PORTION, len(items))):
            items.popitem()


def _free_messages(messages: list[Any]) -> None:
    parts: list[Any] = []
    untrack(parts)
    while messages:
        _collect_structs(messages.pop(), parts)
    # Each struct comes after those that it contains, and the list is emptied from its end. So when
    # a struct is freed, the list still refers to its contents, which are freed later.
    free_slowly(parts)


def _collect_structs(struct: Any, parts: list[Any]) -> None:
    """Append the structs in the arrays of a struct. A struct comes after those that it contains."""
    cls: Any = type(struct)
    for name, nested in _find_arrays(cls):
        items = getattr(struct, name)
        if not items:
            continue
        if nested:
            for each in items:
                _collect_structs(each, parts)
        parts.extend(items)


@cache
def _find_arrays(cls: Any) -> tuple[tuple[str, bool], ...]:
    """Return the fields that are arrays of structs, and whether those structs have such fields."""
    found = [
        (field.name, field.element)
        for field in cls._fields
        if field.kind == "array" and isinstance(field.element, type)
    ]
    return tuple((name, bool(_find_arrays(element))) for name, element in found)
