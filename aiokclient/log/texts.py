"""Texts of other systems in errors and logs, which must not break lines or control a terminal.

A broker, or a server that pretends to be one, decides about its error messages and about the names
that it advertises. So such a text is bounded where it comes in, and escaped where it becomes a
part of an error or of a log line.
"""

from __future__ import annotations

from typing import Final

LONGEST: Final = 1000
"""The number of characters of a broker's text that an error shows."""


def printable(text: str) -> str:
    r"""Return a text with all characters escaped that are not printable, such as \n and \x1b."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def bounded(text: str, longest: int = LONGEST) -> str:
    """Return a text, or its beginning with its length if it has over `longest` characters."""
    if len(text) <= longest:
        return text
    return f"{text[:longest]}... ({len(text)} characters)"
