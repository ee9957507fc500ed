"""The names that options, methods and classes of other clients have here, or why there are none.

The tables have the documented options of Kafka's own Java clients (`java`), of librdkafka and so of
confluent-kafka (`librdkafka`), and of aiokafka and kafka-python (`python`). Names are written with
`_` for `.`. An option that has the same name and meaning here is in none of them. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from aiokclient.hints import java, librdkafka, python
from aiokclient.hints.names import CLASSES, serializer_hint

__all__ = ["ABSENT", "RENAMED", "import_hint", "option_hint", "serializer_hint"]

RENAMED: Mapping[str, str] = MappingProxyType(
    {**librdkafka.RENAMED, **python.RENAMED, **java.RENAMED}
)
"""From the names of options in other clients to the names here."""

ABSENT: Mapping[str, str] = MappingProxyType({**librdkafka.ABSENT, **python.ABSENT, **java.ABSENT})
"""Options of other clients that do not exist here: why, or what to use instead."""

SASL = "SASL is not available in this version of aiokclient"


def option_hint(name: str, *, dotted: bool = False) -> str | None:
    """Return a text about an option of another client, or None if no table has it.

    With `dotted`, options are written as properties files have them.
    """
    plain = name.replace(".", "_")
    renamed = RENAMED.get(plain)
    if renamed is not None:
        here = renamed.replace("_", ".") if dotted else renamed
        return f"{name} is called {here} here."
    absent = ABSENT.get(plain)
    if absent is not None:
        return f"{name} is not an option here: {absent}."
    if plain.startswith("sasl_"):
        return f"{name}: {SASL}."
    return None


def import_hint(name: str) -> str | None:
    """Return what to import instead of a class of another client."""
    return CLASSES.get(name)
