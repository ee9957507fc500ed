"""JAAS texts, in which Java clients have their credentials (the option sasl_jaas_config).

A text names a login module, a flag, and the module's options:

    org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";

White space separates the parts, `//`, `/* */`, and `/` begin comments, and values may be quoted. No
function that raises an error has a part of the text in a local variable, and no error shows one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from aiokclient.config.secret import Secret
from aiokclient.errors import ConfigError
from aiokclient.types.named_tuple import NamedTuple

FLAGS: Final = ("required", "requisite", "sufficient", "optional")

_PARTS = re.compile(
    r"""(?P<skipped>[\x00-\x20]+|/\*.*?(?:\*/|\Z)|/[^\n\r]*)
    |(?P<mark>[;=])
    |"(?P<double>(?:\\.|[^"\\\n\r])*)"
    |'(?P<single>(?:\\.|[^'\\\n\r])*)'
    |(?P<word>[^\x00-\x20;="'/]+)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[0-7]{1,2}|.)", re.DOTALL)
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class JaasEntry(NamedTuple):
    """One login module with its options, whose values are secrets."""

    module: str
    """The name of the class without its package."""
    options: Mapping[str, Secret]

    def get_text(self, name: str) -> str | None:
        """Return an option that is not secret, or None if it is absent."""
        value = self.options.get(name)
        return None if value is None else value.reveal()

    def has_flag(self, name: str) -> bool:
        """Return whether a flag such as `tokenauth` is "true"."""
        return (self.get_text(name) or "").lower() == "true"


def parse_jaas(text: Secret) -> JaasEntry:
    """Return the only entry of a JAAS text.

    Raises ConfigError if there is none. The error contains no part of the text.
    """
    found = _parse(text)
    if isinstance(found, JaasEntry):
        return found
    raise ConfigError(
        f"sasl_jaas_config: {found} It must have the form: LOGIN_MODULE required "
        'username="..." password="...";'
    )


def _parse(text: Secret) -> JaasEntry | str:
    """Return the entry, or the problem as a sentence. This does not raise."""
    parts = _parts(text)
    if parts is None:
        return "A quotation mark is not closed, or a character is not allowed."
    if not parts:
        return "It is empty."
    if (";", True) not in parts:
        return "The semicolon at the end is missing."
    end = parts.index((";", True))
    if parts[end + 1 :]:
        return "There may be only one login module."
    words = parts[:end]
    if len(words) < 2 or ("=", True) in words[:2]:
        return "The login module or its flag is missing."
    if words[1][0].lower() not in FLAGS:
        return f"The flag after the login module must be one of {', '.join(FLAGS)}."
    options = words[2:]
    if len(options) % 3 or any(options[i + 1] != ("=", True) for i in range(0, len(options), 3)):
        return "An option has no value, or a value with special characters is not quoted."
    if any(mark for i in range(0, len(options), 3) for mark in (options[i][1], options[i + 2][1])):
        return "An option has no name or no value."
    return JaasEntry(
        words[0][0].rpartition(".")[2],
        {options[i][0]: Secret(options[i + 2][0]) for i in range(0, len(options), 3)},
    )


def _parts(text: Secret) -> list[tuple[str, bool]] | None:
    """Return the parts of the text as pairs, or None if the text is malformed.

    The second item of a pair is True for a mark, and False for a word.
    """
    source, position, parts = text.reveal(), 0, list[tuple[str, bool]]()
    while position < len(source):
        match = _PARTS.match(source, position)
        if match is None:
            return None
        position = match.end()
        kind = match.lastgroup or ""
        if kind in ("double", "single"):
            parts.append((_ESCAPE.sub(_unescaped, match[kind]), False))
        elif kind != "skipped":
            parts.append((match[kind], kind == "mark"))
    return parts


def _unescaped(match: re.Match[str]) -> str:
    escaped = match[1]
    if escaped[0] in "01234567":
        return chr(int(escaped, 8))
    return _ESCAPES.get(escaped, escaped)
