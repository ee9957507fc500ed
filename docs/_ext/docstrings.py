"""The conversion of our docstrings, which use Markdown's backticks, for autodoc."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["setup"]

INDENT = "    "


NAMED = re.compile(r"[\w`, ]+: ")


def to_rst(lines: list[str]) -> list[str]:
    """Return a docstring as reStructuredText: literals in backticks, indented blocks as code."""
    lines = _with_bullets(lines)
    result: list[str] = []
    code = False
    for index, line in enumerate(lines):
        blank_before = index == 0 or not lines[index - 1].strip()
        if line.startswith(INDENT) and (code or blank_before):
            if not code:
                result += [".. code-block:: text", ""]
                code = True
            result.append(line)
            continue
        if line.strip():
            if code:
                result.append("")
            code = False
        result.append(line if code else _inline(line))
    return [*result, ""]


def _with_bullets(lines: list[str]) -> list[str]:
    """Turn each paragraph into a list if all its lines begin with a name, as in `name: text`."""
    result: list[str] = []
    for paragraph in "\n".join(lines).split("\n\n"):
        own = [line for line in paragraph.split("\n") if line[:1] not in ("", " ")]
        listing = len(own) > 1 and all(map(NAMED.match, own))
        for line in paragraph.split("\n"):
            if listing:
                line = f"- {line}" if line[:1] != " " else f"  {line.strip()}"
            result.append(line)
        result.append("")
    return result


def _inline(line: str) -> str:
    bullet = re.match(r"\s*[-*] ", line)
    start = bullet.end() if bullet else 0
    # Parts at odd indexes are between backticks.
    parts = re.split(r"`+", line[start:])
    for index, part in enumerate(parts):
        if index % 2 and part:
            parts[index] = f"``{part}``"
        else:
            parts[index] = re.sub(r"([*|]|_(?!\w))", r"\\\1", part)
    text = "".join(parts)
    # A literal that is followed by a letter needs a separator, as in ``Delivery``s.
    return line[:start] + re.sub(r"(?<=``)(?=[A-Za-z])(?<=\w``)", r"\\ ", text)


def process(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Convert a docstring in place, as autodoc's event demands."""
    lines[:] = to_rst(lines)


def setup(app: Any) -> dict[str, Any]:
    """Connect to autodoc."""
    app.connect("autodoc-process-docstring", process)
    return {"parallel_read_safe": True}
