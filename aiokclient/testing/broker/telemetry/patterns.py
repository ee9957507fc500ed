"""The conditions under which a client is subscribed: regular expressions on its properties.

Kafka matches with Java's regular expressions. Here, expressions that RE2 also supports are matched
in linear time, and all others by Python's own matching. Syntax that only Java supports, such as
classes of Unicode properties, is refused as an illegal pattern.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from aiokclient.testing.broker.configs import ConfigValueError
from aiokclient.testing.broker.groups.regex import check_pattern, is_match, is_match_uncached

CLIENT_PROPERTIES = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)

TRIMMED = "".join(map(chr, range(33)))
"""The characters that Java's String.trim removes."""
_REMEMBERED = 250

_QUOTED = re.compile(r"\\Q(.*?)(?:\\E|\Z)", re.DOTALL)
_TOKENS = re.compile(
    r"""
    \\.                                # an escaped character
    | \[ \^? \]? (?:\\. | [^\]\\])* \]  # a class of characters
    | \{ (?! \d+ (?:,\d*)? \} )         # a brace that is no repetition, which Java refuses
    | \(\?P                             # Python's named groups, which Java refuses
    | \(\?< (?! [=!] )                  # Java's named groups
    """,
    re.VERBOSE | re.DOTALL,
)


class MatchPatterns:
    """The patterns of one subscription. A client matches if all of them match."""

    def __init__(self, items: Iterable[str]) -> None:
        """Parse items such as `client_id=orders-.*`.

        Of two patterns for the same property, the last one applies. Raises ConfigValueError for an
        item that Kafka refuses.
        """
        self._patterns: dict[str, str] = {}
        for item in items:
            parts = _split_pattern(item)
            if len(parts) != 2 or parts[0].strip(TRIMMED) not in CLIENT_PROPERTIES:
                raise _make_illegal_error(item)
            try:
                pattern = _translate_pattern(parts[1].strip(TRIMMED))
                re.compile(pattern)
            except (re.error, RecursionError, OverflowError):
                raise _make_illegal_error(item) from None
            self._patterns[parts[0].strip(TRIMMED)] = pattern

    def is_match(self, client: Mapping[str, str | None]) -> bool:
        """Return whether a client's properties match. A property without a value never matches."""
        for name, pattern in self._patterns.items():
            value = client.get(name)
            if value is None or not _is_match(pattern, value):
                return False
        return True


def _make_illegal_error(item: str) -> ConfigValueError:
    return ConfigValueError(f"Illegal client matching pattern: {item}")


def _split_pattern(item: str) -> list[str]:
    """Split at "=" like Java's String.split, which drops empty parts at the end."""
    parts = item.split("=")
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts


def _translate_pattern(pattern: str) -> str:
    """Return one of Java's regular expressions in Python's notation."""
    unquoted = _QUOTED.sub(lambda found: re.escape(found[1]), pattern)
    return _TOKENS.sub(_translate_token, unquoted)


def _translate_token(found: re.Match[str]) -> str:
    token = found[0]
    if token == "(?<":
        return "(?P<"
    if token in ("{", "(?P"):
        raise re.error("Java refuses this")
    return r"\Z" if token == r"\z" else token


@lru_cache(maxsize=1_000)
def _is_linear(pattern: str) -> bool:
    """Return whether the pattern can be matched in linear time."""
    try:
        check_pattern(pattern)
    except re.error:
        return False
    return True


def _is_match(pattern: str, value: str) -> bool:
    if _is_linear(pattern):
        # Results for long values are not remembered, because that would take much memory.
        match = is_match if len(value) <= _REMEMBERED else is_match_uncached
        return match(pattern, value)
    return re.fullmatch(pattern, value, re.ASCII) is not None
