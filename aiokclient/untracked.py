"""Hiding data from the garbage collector.

The collector stops the whole process for seconds when it visits millions of objects. The data of a
large response has no reference cycles, so that reference counting is enough to free it.
Without the native modules, the functions here do nothing.
"""

from __future__ import annotations

from typing import Any

from aiokclient._native import twin

__all__ = ["MANY", "free_slowly", "structs_are", "untrack", "untrack_whole"]

MANY = 1_000
"""The structs of an array are hidden from the garbage collector if there are at least this many."""

PART = 256


@twin("ground")
def structs_are(kind: type) -> None:
    """Set the base class of all structs in messages. `untrack_whole` also hides its instances."""


@twin("ground")
def untrack(item: object) -> None:
    """Hide one object from the garbage collector."""


@twin("ground")
def untrack_whole(item: object) -> None:
    """Hide an object, and all lists, tuples, ids and messages in it, from the garbage collector.

    The contents of an object that is already hidden are not visited again.
    """


def free_slowly(items: list[Any]) -> None:
    """Empty a list in steps, so that other threads can run in between."""
    while items:
        del items[-PART:]
