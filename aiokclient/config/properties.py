r"""Java properties files, the format of the options of Kafka's tools and clients.

A line is a key and a value, separated by `=`, `:` or white space. Lines that begin with `#` or `!`
are comments. A line that ends with an odd number of backslashes continues on the next one, whose
leading white space is dropped. A backslash escapes the character after it: `\\t`, `\\n`, `\\r` and
`\\f` have their usual meaning, `\\u0041` is a character by its number in UTF-16, and any other
character stands for itself. If a key occurs twice, the last value counts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from aiokclient.config.secret import hide_secrets
from aiokclient.errors import ConfigError
from aiokclient.types import shortened

LARGEST_FILE = 1_000_000
"""The size in bytes of the largest file that is read, because reading blocks the event loop."""

_LINES = re.compile(r"\r\n|\r|\n")
_SPACE = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_UNICODE = re.compile(r"[0-9A-Fa-f]{4}")


def hidden_properties(
    source: Any, secret: Collection[str], public: Collection[str]
) -> dict[str, Any] | Exception:
    """Return the properties with all secrets hidden, or the error. This does not raise.

    `source` is a mapping, or the path of a file. `secret` and `public` are the names of options.
    """
    try:
        if isinstance(source, str | os.PathLike):
            source = read_properties(source)
    except ConfigError as error:
        return _bare(error)
    if not isinstance(source, Mapping) or not all(isinstance(name, str) for name in source):
        return TypeError(
            f"{type(source).__name__} is neither a mapping of Kafka's dotted names to texts nor "
            "the path of a file."
        )
    found = dict(source)
    hide_secrets(found, *([name.replace("_", ".") for name in names] for names in (secret, public)))
    return found


def _bare(error: ConfigError) -> ConfigError:
    """Return the error without references to functions that have read secrets."""
    error.__context__ = None
    if error.__cause__ is not None:
        error.__cause__ = error.__cause__.with_traceback(None)
    return error.with_traceback(None)


def read_properties(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return the properties of a file. Blocking.

    The file is decoded as UTF-8, or as Latin-1 (Java's encoding) if it is not valid UTF-8. Raises
    ConfigError for a file that cannot be read, and for a malformed escape.
    """
    name = os.fspath(path)
    if not name.isprintable() or len(name) > 1_000:
        name = shortened(name)
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except (OSError, ValueError) as error:  # ValueError: the path contains a null character.
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"The properties file {name} cannot be read: {reason}.") from error
    if len(data) > LARGEST_FILE:
        size = f"{LARGEST_FILE:,} bytes"
        raise ConfigError(f"The file {name} is not one of properties: it has more than {size}.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return parse_properties(text, name)


def parse_properties(text: str, name: str = "the properties") -> dict[str, str]:
    """Return the properties in a text. Raises ConfigError with the line number if malformed."""
    found: dict[str, str] = {}
    for number, line in _logical_lines(text):
        key, value = _split(line)
        try:
            found[_unescape(key)] = _unescape(value)
        except ValueError as error:
            raise ConfigError(f"Line {number} of {name} is malformed: {error}.") from None
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line that is not a comment, joined with its continuation lines."""
    first, parts = 0, list[str]()
    for number, natural in enumerate(_LINES.split(text), start=1):
        line = natural.lstrip(_SPACE)
        if not parts:
            if not line or line[0] in "#!":
                continue
            first = number
        if (len(line) - len(line.rstrip("\\"))) % 2:
            parts.append(line[:-1])
            continue
        yield first, "".join([*parts, line])
        parts = []
    if parts:
        yield first, "".join(parts)


def _split(line: str) -> tuple[str, str]:
    """Return the key and the value of a line, with their escapes."""
    end, escaped = len(line), False
    for index, character in enumerate(line):
        if not escaped and (character in _SPACE or character in "=:"):
            end = index
            break
        escaped = character == "\\" and not escaped
    rest = line[end:].lstrip(_SPACE)
    if rest and rest[0] in "=:":
        rest = rest[1:].lstrip(_SPACE)
    return line[:end], rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    index = 0
    while index < len(text):
        character = text[index]
        index += 1
        if character != "\\" or index == len(text):
            out.append(character if character != "\\" else "")
            continue
        character = text[index]
        index += 1
        if character == "u":
            digits = text[index : index + 4]
            if not _UNICODE.fullmatch(digits):
                raise ValueError(f"\\u{digits} is not followed by four hexadecimal digits")
            out.append(chr(int(digits, 16)))
            index += 4
        else:
            out.append(_ESCAPES.get(character, character))
    # This converts each pair of surrogates to one character.
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
