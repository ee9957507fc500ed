"""Reading the options of a Spark source or sink, whose names are not case-sensitive.

All mistakes are raised as one ConfigError. Its first line has the first mistake: the option, its
value, and what is allowed.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, NoReturn, TypeAlias

from aiokclient.errors import ConfigError
from aiokclient.spark.option_names import PREFIX, prefixed

Properties: TypeAlias = tuple[tuple[str, str], ...]
"""Options of Kafka, sorted by name: what `Client.from_properties` takes, but hashable."""

LARGEST = (1 << 63) - 1
SHOWN = 120
"""The number of characters of a value that an error shows."""
CLOSE = 0.6
"""The similarity of two names, from 0 to 1, at which one is suggested for the other."""
CLOSE_KAFKA = 0.8
"""The same limit for the options of Kafka. There are so many of these that a lower limit would
suggest unrelated ones."""
INTEGER = re.compile("[+-]?[0-9]{1,19}")
NUMBER = re.compile("[0-9]{1,10}")
DURATION = re.compile("([0-9]{1,12})\\s*(us|ms|s|m|min|h|d)?")
UNITS_MS = {"us": 0.001, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000}
UNITS_MS["d"] = 24 * UNITS_MS["h"]


def bad_value(name: str, value: str, reason: str) -> str:
    """Return the text of an error about the value of an option."""
    shown = value if len(value) <= SHOWN else f"{value[:SHOWN]}..."
    return f"{name}: {shown!r} is not allowed. {reason}"


def refuse_problems(problems: Collection[str]) -> None:
    """Raise one ConfigError with the texts of all problems, if there are any."""
    if problems:
        error = ConfigError("\n".join(problems))
        error.problems = tuple(problems)
        raise error


def number_of(text: str, default: int) -> int:
    """Return the integer in the text of a Kafka option, or the default if there is none.

    An invalid text raises no error here, because `read_properties` refuses it.
    """
    return int(text) if NUMBER.fullmatch(text.strip()) else default


CATALOG = "provider"
"""The property that each table in Spark's catalog has, and that no program gives as an option."""
OF_CATALOG = (
    CATALOG,
    "owner",
    "comment",
    "location",
    "path",
    "external",
    "is_managed_location",
    "collation",
    "serialization.format",
)
"""Properties of tables in Spark's catalog."""
IN_CATALOG = "option."
"""The prefix with which Spark's catalog repeats the options of a table among its properties."""
NOT_PASSED = (
    "Spark does not pass the options of a table in its catalog to a source or a sink in Python. "
    "Create a temporary view (CREATE TEMPORARY VIEW ... USING aiokclient OPTIONS ...), or name the "
    "options in the query (SELECT ... FROM ... WITH (...))."
)


def _of_program(given: dict[str, str]) -> dict[str, str]:
    """Return the options without the properties of a table, which Spark passes along with them."""
    if CATALOG not in given:
        return given
    repeated = {name.removeprefix(IN_CATALOG) for name in given if name.startswith(IN_CATALOG)}
    return {
        name: value
        for name, value in given.items()
        if (name in repeated if repeated else name not in OF_CATALOG)
    }


class OptionReader:
    """The options that a program gave to a source or a sink (`kind`).

    `known` are all names that are allowed, besides those that begin with `kafka.`. `others` are the
    names for other kinds, by kind: an error about one of them says to which kind it belongs.
    `hidden` names are allowed, too, but errors do not suggest them. `of_kafka` are those that a
    program must begin with `kafka.`. Mistakes are collected, and `refuse_mistakes` raises them.
    """

    def __init__(
        self,
        given: Mapping[str, str],
        known: Collection[str],
        kind: str,
        others: Mapping[str, Collection[str]] | None = None,
        *,
        hidden: Collection[str] = (),
        of_kafka: Collection[str] = (),
    ) -> None:
        self._given = _of_program({name.lower(): str(given[name]) for name in given})
        self._problems: dict[str, None] = {}
        allowed = {name.lower() for name in (*known, *hidden)}
        for name in self._given:
            if not name.startswith(PREFIX) and name not in allowed:
                self.add_problem(_unknown(name, known, kind, others or {}, of_kafka))

    def add_problem(self, text: str) -> None:
        """Add a mistake."""
        self._problems[text] = None

    @property
    def problems(self) -> tuple[str, ...]:
        """The texts of the mistakes that were found so far."""
        return tuple(self._problems)

    def refuse_mistakes(self) -> None:
        """Raise ConfigError if there are mistakes."""
        refuse_problems(self._problems)

    def has_option(self, name: str) -> bool:
        """Return whether the option was given."""
        return name.lower() in self._given

    def read_text(self, name: str, default: str | None = None) -> str | None:
        """Return the text of an option as it was given."""
        return self._given.get(name.lower(), default)

    def read_choice(self, name: str, allowed: Collection[str], default: str) -> str:
        """Return one of the allowed words, which are not case-sensitive."""
        value = self.read_text(name)
        if value is None:
            return default
        for word in allowed:
            if value.strip().lower() == word.lower():
                return word
        self.add_problem(bad_value(name, value, f"It must be {' or '.join(allowed)}."))
        return default

    def read_flag(self, name: str, default: bool) -> bool:
        """Return whether an option is set to `true`."""
        return self.read_choice(name, ("true", "false"), str(default).lower()) == "true"

    def read_integer(
        self, name: str, default: int | None = None, *, least: int = 1, most: int = LARGEST
    ) -> int | None:
        """Return an integer, of 64 bits if `most` does not say otherwise."""
        value = self.read_text(name)
        if value is None:
            return default
        text = value.strip()
        if INTEGER.fullmatch(text) and least <= int(text) <= most:
            return int(text)
        is_large = INTEGER.fullmatch(text) and int(text) > most
        allowed = f"of at most {most}" if is_large else f"of at least {least}"
        self.add_problem(bad_value(name, value, f"It must be an integer {allowed}."))
        return default

    def read_duration_ms(self, name: str, default: int) -> int:
        """Return the milliseconds of a duration such as 500ms or 15m. The default unit is ms."""
        value = self.read_text(name)
        if value is None:
            return default
        match = DURATION.fullmatch(value.strip().lower())
        if match:
            return int(int(match[1]) * UNITS_MS[match[2] or "ms"])
        units = ", ".join(UNITS_MS)
        self.add_problem(
            bad_value(name, value, f"It must be an integer with a unit ({units}), such as 15m.")
        )
        return default

    def read_json(self, name: str, example: str) -> Any:
        """Return the value of a JSON text, or None if the option is absent or wrong."""
        value = self.read_text(name)
        if value is None:
            return None
        try:
            return json.loads(value, parse_constant=_refuse_constant, object_pairs_hook=_object_of)
        except _TwiceError as error:
            reason = f"It names {error} twice. It must have the form {example}."
            self.add_problem(bad_value(name, value, reason))
        except json.JSONDecodeError as error:
            reason = (
                f"It is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}. "
                f"It must have the form {example}."
            )
            self.add_problem(bad_value(name, value, reason))
        except (ValueError, RecursionError):
            self.add_problem(bad_value(name, value, f"It must have the form {example}."))
        return None

    def read_properties(
        self, refused: Mapping[str, str], check: Callable[[dict[str, str]], object]
    ) -> Properties:
        """Return the options of Kafka, without their prefix.

        `refused` has the reason for each option that is not allowed. `check` raises ConfigError for
        properties that are wrong.
        """
        found = {
            name.removeprefix(PREFIX): value
            for name, value in self._given.items()
            if name.startswith(PREFIX)
        }
        for name in sorted(found):
            if name in refused:
                self.add_problem(f"{PREFIX}{name} is not allowed. {refused[name]}")
        kept = {name: value for name, value in found.items() if name not in refused}
        if not kept.get("bootstrap.servers", "").strip():
            self.add_problem(
                "kafka.bootstrap.servers is missing. It must be the addresses of one or more "
                "brokers, as host:port separated by commas."
                f"{'' if self._given else f' {NOT_PASSED}'}"
            )
            kept["bootstrap.servers"] = "localhost:9092"
        try:
            check(kept)
        except ConfigError as error:
            for text in error.problems or (error.message,):
                self.add_problem(prefixed(text, kept))
        return tuple(sorted(found.items()))


class _TwiceError(Exception):
    """An error about a name that occurs twice in a JSON object. `json` keeps the last value."""


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict[str, Any]()
    for name, value in pairs:
        if name in found:
            raise _TwiceError(repr(name))
        found[name] = value
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _unknown(
    name: str,
    known: Collection[str],
    kind: str,
    others: Mapping[str, Collection[str]],
    of_kafka: Collection[str],
) -> str:
    for other, names in others.items():
        for each in names:
            if each.lower() == name:
                return f"{each} is not an option of the {kind}, but of the {other}."
    text = f"{name or repr(name)} is not an option of the {kind}."
    with_prefix = {_letters(one): f"{PREFIX}{one}" for one in of_kafka}
    if _letters(name) in with_prefix:
        return f"{text} Did you mean {with_prefix[_letters(name)]}?"
    for names, cutoff in (
        ({_letters(one): one for one in known}, CLOSE),
        (with_prefix, CLOSE_KAFKA),
    ):
        near = difflib.get_close_matches(_letters(name), names, n=1, cutoff=cutoff)
        if near:
            return f"{text} Did you mean {names[near[0]]}?"
    return f"{text} It must be one of {', '.join(known)}, or begin with {PREFIX!r}."


def _letters(name: str) -> str:
    """Return a name in lower case without the separators of its words.

    So two spellings of one name become equal, such as `group.id` and `groupId`.
    """
    return re.sub("[._-]", "", name.lower())
