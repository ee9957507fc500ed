"""Hints about options, methods, and classes of other clients: what to use here instead.

The tables contain the documented options of Kafka's Java clients (`java`), of librdkafka, which
confluent-kafka uses (`librdkafka`), and of aiokafka and kafka-python (`python`). Names have `_`
instead of `.`. Options with the same name and meaning here are not in the tables. Sans-IO.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import NoReturn

from aiokclient.log.hints import java, librdkafka, python
from aiokclient.log.hints.error_names import error_hint
from aiokclient.log.hints.names import CLASSES, serializer_hint

__all__ = [
    "ABSENT",
    "RENAMED",
    "error_hint",
    "import_hint",
    "option_hint",
    "refuse_name",
    "serializer_hint",
]

RENAMED: Mapping[str, str] = MappingProxyType(
    {**librdkafka.RENAMED, **python.RENAMED, **java.RENAMED}
)
"""Options of other clients that have another name here. The values are the names here."""

ABSENT: Mapping[str, str] = MappingProxyType({**librdkafka.ABSENT, **python.ABSENT, **java.ABSENT})
"""Options of other clients that do not exist here, each with a hint in whole sentences."""


def option_hint(name: str, *, dotted: bool = False) -> str | None:
    """Return a hint about an option of another client, or None if no table contains it.

    With `dotted`, option names have dots, as in properties files.
    """
    plain = name.replace(".", "_")
    renamed = RENAMED.get(plain)
    if renamed is not None:
        here = renamed.replace("_", ".") if dotted else renamed
        return f"{name} is called {here} here."
    absent = ABSENT.get(plain)
    if absent is not None:
        return f"{name} is not an option here. {absent}"
    return None


def import_hint(name: str) -> str | None:
    """Return a hint about a class of another client, or None if it is unknown."""
    return CLASSES.get(name)


def refuse_name(module: str, name: str, hint: str | None) -> NoReturn:
    """Raise the error for a name that a module does not have, from the module's `__getattr__`.

    `from module import ...` would hide the text of an AttributeError, so it gets an ImportError.
    All other callers, such as hasattr(), expect an AttributeError.
    """
    if hint is None:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    if sys._getframe(2).f_globals.get("__name__") == "importlib._bootstrap":
        raise ImportError(hint, name=module)
    raise AttributeError(hint)
