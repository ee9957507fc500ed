"""The layout of PEM texts, which OpenSSL reads only with lines of their own for each part.

A PEM text in a properties file is often one line, because a backslash at the end of a line
continues it, and its lines may be indented. Java's clients and brokers accept that, in files, too.
"""

from __future__ import annotations

import re
from typing import Final

from aiokclient.config.secret import Secret

__all__ = ["laid_out", "laid_out_file"]

_BLOCK: Final = re.compile(
    r"\s*-+BEGIN\s+(?P<label>[^-]*?)\s*-+\s+"
    r"(?P<headers>(?:[^\r\n:]*:[^\r\n]*[\r\n]+)*)"
    r"(?P<base64>[A-Za-z0-9/+=\s]*)"
    r"-+END\s+[^-]*-+"
)
_CONTINUED: Final = re.compile(r"\\[ \t]*\r?\n")
_WIDTH: Final = 64


def laid_out(text: Secret | None) -> Secret | None:
    """Return a PEM text with the usual lines. Any other text is returned as it is. Never raises."""
    if text is None or not text.is_text:
        return text
    return Secret(_BLOCK.sub(_lay_out, text.reveal()))


def laid_out_file(path: str) -> Secret | None:
    """Return the PEM parts of a file whose lines OpenSSL does not read.

    Return None for a file that OpenSSL reads, or that cannot be read at all. Blocking.
    """
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            given = file.read()
    except OSError:
        return None
    text = _CONTINUED.sub("\n", given)
    blocks = list(_BLOCK.finditer(text))
    parts = [_lay_out(block) for block in blocks]
    if text == given and all(map(_has_usual_lines, blocks, parts)):
        return None
    return Secret("".join(parts))


def _has_usual_lines(block: re.Match[str], part: str) -> bool:
    return [line.rstrip() for line in block[0].strip("\r\n").split("\n")] == part.split("\n")[1:-1]


def _lay_out(block: re.Match[str]) -> str:
    label = " ".join(block["label"].split())
    headers = [line.strip() for line in block["headers"].splitlines() if line.strip()]
    body = "".join(block["base64"].split())
    lines = [body[start : start + _WIDTH] for start in range(0, len(body), _WIDTH)]
    between = [*headers, ""] if headers else []
    return "\n".join(
        ["", f"-----BEGIN {label}-----", *between, *lines, f"-----END {label}-----", ""]
    )
