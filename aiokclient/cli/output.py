"""Results as text or JSON, on standard output.

A text is for people. Its lines are the same on a terminal and in a pipe, except that some of them
have styles on a terminal.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import typer

__all__ = ["AsJson", "Line", "Result", "write"]

AsJson = Annotated[
    bool, typer.Option("--json", help="Print the result as one JSON document instead of text.")
]


class Line(NamedTuple):
    """One line of text. `style` is a style of the package rich, such as "bold" or "dim"."""

    text: str
    style: str = ""


class Result(NamedTuple):
    """The result of a command: the same content as text and as data for JSON."""

    lines: Sequence[Line]
    data: Any


def write(result: Result, as_json: bool) -> None:
    """Write a result to standard output."""
    if as_json:
        sys.stdout.write(f"{json.dumps(result.data, indent=2)}\n")
    elif sys.stdout.isatty():
        _write_styled(result.lines)
    else:
        sys.stdout.writelines(f"{line.text}\n" for line in result.lines)
    # If the pipe has no reader any more, the error occurs here, not at the end of the process.
    sys.stdout.flush()


def _write_styled(lines: Sequence[Line]) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    for line in lines:
        console.print(line.text, style=line.style or None)
