"""One error for all mistakes in the options of a client."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from importlib import import_module
from typing import Any

from aiokclient.errors import ConfigError
from aiokclient.types import shortened

CLOSE = 0.75
"""The similarity of two names, from 0 to 1, at which one is suggested for the other."""
LISTED = 50
"""The number of problems that the text of an error lists."""
NAME_CHARACTERS = 200
"""The length of the longest name for which another name is suggested."""
CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Problems:
    """The errors of several `with problems:` blocks. They are raised as one error."""

    def __init__(self) -> None:
        self._texts: dict[str, None] = {}

    def add_unknown(self, name: str, known: Collection[str], kind: str) -> None:
        """Add the problem of a name that is not an option of a `kind`, such as "Producer".

        After `LISTED` problems, the text has no suggestion, because looking for one takes a
        millisecond.
        """
        if len(self._texts) < LISTED and len(name) <= NAME_CHARACTERS:
            self.add_problem(unknown(name, known, kind))
        else:
            self.add_problem(f"{shortened(name)} is not an option.")

    def add_problem(self, text: str) -> None:
        """Add the text of a problem."""
        self._texts[text] = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if not isinstance(error, ConfigError):
            return False
        for text in getattr(error, "problems", None) or (error.message,):
            self.add_problem(text)
        return True

    def raise_any(self) -> None:
        """Raise ConfigError if there are problems. Its `problems` has all texts."""
        texts = tuple(self._texts)
        if not texts:
            return
        if len(texts) == 1:
            error = ConfigError(texts[0])
        else:
            listed = [f"{len(texts)} options cannot be used:", *texts[:LISTED]]
            if len(texts) > LISTED:
                listed.append(f"... and {len(texts) - LISTED} more.")
            error = ConfigError("\n".join(listed))
        error.problems = texts
        raise error


def together(config: Any, *rules: Callable[[Any], object]) -> None:
    """Apply rules about several options. Raise one ConfigError with all their errors."""
    problems = Problems()
    for rule in rules:
        with problems:
            rule(config)
    problems.raise_any()


_suggested: dict[str, Collection[str]] = {}
"""The names of the options of each kind of client, such as "Producer"."""


USUAL = {"Producer": 0, "Consumer": 1, "Admin": 2, "Client": 3}
"""The order in which errors name the kinds of clients that have an option."""


def suggest(kind: str, options: Collection[str]) -> None:
    """Let errors name this kind of client, such as "Producer", as the owner of `options`."""
    _suggested[kind] = options


def is_of_another_kind(name: str, kind: str) -> bool:
    """Return whether a dotted name is an option of another kind of client than this one.

    Also counts options of Kafka's Java clients that this library does not have.
    """
    from aiokclient.log.hints.java import OWNERS

    for module in ("admin", "consumer", "producer", "share"):
        # The program may not have imported these clients, whose modules import this one.
        import_module(f"aiokclient.config.{module}")

    plain = name.replace(".", "_")
    if "_" in name:
        return False  # Java's options have no underscores.
    if any(plain in options for other, options in _suggested.items() if other != kind):
        return True
    return plain in OWNERS and kind not in OWNERS[plain]


def unknown(name: str, known: Collection[str], kind: str) -> str:
    """Return the text for a name that is not an option of a `kind`, such as "Producer".

    It suggests a name only if one is similar.
    """
    dotted = any("." in one for one in known)
    plain = name.replace(".", "_")
    if not dotted and plain in known:
        return (
            f"{name} is not an option. Write {plain}, or pass Kafka's dotted names to "
            f"{kind}.from_properties()."
        )
    if plain.replace("_", ".") in known:
        return f"{name} is not an option. Did you mean {plain.replace('_', '.')}?"
    from aiokclient.log.hints import option_hint

    hint = option_hint(name, dotted=dotted)
    if hint is not None:
        return hint
    # Several kinds may have the option. The order of their imports must not decide.
    for other, options in sorted(
        _suggested.items(), key=lambda item: USUAL.get(item[0], len(USUAL))
    ):
        if plain in options and kind != other:
            mine, its = (f"{'an' if each[:1] in 'AEIOU' else 'a'} {each}" for each in (kind, other))
            return f"{name} is not an option of {mine}, but of {its}."
    guess = _guess(name, known, "." if dotted else "_")
    return f"{name} is not an option.{'' if guess is None else f' Did you mean {guess}?'}"


def _guess(name: str, known: Collection[str], separator: str) -> str | None:
    snake = CAMEL.sub("_", name).lower().replace("-", "_")
    for spelling in (snake.replace("_", separator), snake.replace(".", "_")):
        if spelling in known:
            return spelling
    import difflib

    nearest = difflib.get_close_matches(name, known, n=1, cutoff=CLOSE)
    if nearest:
        return nearest[0]
    longer = [one for one in known if one.startswith(f"{name}{separator}")]
    return longer[0] if len(longer) == 1 else None


def refuse_positional(kind: str, given: Collection[object]) -> None:
    """Raise TypeError for arguments that a `kind`, such as "Producer", does not take."""
    if given:
        raise TypeError(
            f"{kind}() takes options as keyword arguments: {kind}(bootstrap_servers=...). Pass a "
            f"mapping with Kafka's dotted names to {kind}.from_properties()."
        )
