"""Data that the garbage collector does not look through.

A collector that meets millions of objects stops the whole process for seconds, whichever thread
made them. What is decoded from a large response, or kept of it, refers to nothing that could refer
back to it, so that counting references is enough to free it. The functions here do nothing where
the native modules are not in use.
"""

from __future__ import annotations

from typing import Any

from aiokclient._native import twin

__all__ = ["MANY", "free_slowly", "structs_are", "untrack", "untrack_whole"]

MANY = 1_000
"""An array of so many structs is kept from the collector."""

PART = 256


@twin("ground")
def structs_are(kind: type) -> None:
    """Have instances of a class, the base of all structs in messages, count as data."""


@twin("ground")
def untrack(item: object) -> None:
    """Hide one object from the garbage collector."""


@twin("ground")
def untrack_whole(item: object) -> None:
    """Hide an object with all lists, tuples, ids and messages in it from the garbage collector.

    What is hidden already hides what is in it.
    """


def free_slowly(items: list[Any]) -> None:
    """Empty a list, letting other threads run meanwhile."""
    while items:
        del items[-PART:]
