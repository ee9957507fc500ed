"""Errors that are kept for longer than the call that has raised them.

A traceback refers to the local variables of all its functions, with everything to which they refer:
connections, buffers, and clients.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

E = TypeVar("E", bound=BaseException)


def bare(error: E) -> E:
    """Remove the tracebacks of the error and of its causes; return it.

    Errors that are kept need this: a traceback would keep alive all variables of its functions.
    """
    for found in chain(error):
        found.__traceback__ = None
    return error


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, its causes and contexts, each once."""
    left: list[BaseException | None] = [error]
    seen: set[int] = set()
    while left:
        found = left.pop()
        if found is not None and id(found) not in seen:
            seen.add(id(found))
            left += (found.__cause__, found.__context__)
            yield found
