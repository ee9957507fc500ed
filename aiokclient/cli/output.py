"""Results as text or JSON, on standard output.

A text is for people. Its lines are the same on a terminal and in a pipe, except that some of them
have styles on a terminal.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import typer

AsJson = Annotated[
    bool, typer.Option("--json", help="Print the result as one JSON document instead of text.")
]


class OutputError(Exception):
    """An error raised if standard output cannot be written."""


class Line(NamedTuple):
    """One line of text. `style` is a style of the package rich, such as "bold" or "dim"."""

    text: str
    style: str = ""


class Result(NamedTuple):
    """The result of a command: the same content as text and as data for JSON."""

    lines: Sequence[Line]
    data: Any


def write(result: Result, as_json: bool) -> None:
    """Write a result to standard output. Raises OutputError if that is not possible."""
    if sys.stdout is None:
        raise OutputError("standard output is closed")
    try:
        if as_json:
            sys.stdout.write(f"{json.dumps(result.data, indent=2)}\n")
        elif sys.stdout.isatty():
            _write_styled(result.lines)
        else:
            sys.stdout.writelines(f"{_encodable(line.text)}\n" for line in result.lines)
        # If the output cannot be written, the error occurs here, not at the end of the process.
        sys.stdout.flush()
    except OSError as error:
        raise OutputError(error.strerror or str(error)) from error


def _encodable(text: str) -> str:
    """Return the text with escapes for characters outside the encoding of standard output."""
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _write_styled(lines: Sequence[Line]) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    for line in lines:
        console.print(_encodable(line.text), style=line.style or None)


def discard() -> None:
    """Let the rest of standard output vanish, so that the interpreter's end does not fail."""
    if sys.stdout is not None:
        with contextlib.suppress(OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, sys.stdout.fileno())
            os.close(null)
