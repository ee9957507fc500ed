"""The names of Kafka's options as a program gives them to Spark: kafka.linger.ms, not linger_ms."""

from __future__ import annotations

import functools
import re
import typing
from collections.abc import Collection, Iterator

from aiokclient import Client, Consumer, Producer

PREFIX = "kafka."
OBJECTS = ("security", "clock", "connector")
"""Options whose values are objects, which a program cannot give to Spark."""
FUNCTIONS = ("partitioner", "on.delivery.error", "on.record.error")
"""Options whose values are functions."""
ADVICE = re.compile(
    r"(?:For tokens from elsewhere, pass security=|Pass security=|Pass a function as partitioner=|"
    r"Call metrics\(\)|Wrap send\(\)).*"
)
"""The pattern of advice about an object or a call in Python."""
SENTENCES = re.compile(r"(?<=[.!?]) (?=[A-Z])")
OR_USE = re.compile(r"Pass security=.*, or (use .*)")
SECURITY = re.compile(r"(?<![\w.'\"-])(?:ssl|sasl)_[a-z_]*[a-z]\b")
"""The pattern of a security option's name as an argument in Python, such as ssl_cafile."""


@functools.cache
def option_names(kind: type[Client] | type[Consumer] | type[Producer]) -> frozenset[str]:
    """Return the dotted names of the options that a class has, from its signature."""
    (options,) = typing.get_args(typing.get_type_hints(kind.__init__)["options"])
    # The options of a generic class are a generic type with the names in its origin.
    named = typing.get_origin(options) or options
    return frozenset(name.replace("_", ".") for name in named.__annotations__)


def text_options(names: frozenset[str], refused: Collection[str]) -> frozenset[str]:
    """Return those of the options `names` that a program can give to Spark.

    These are all but the ones in `refused`, and those whose values are objects or functions.
    """
    return names - {*OBJECTS, *FUNCTIONS, *refused}


def as_in_spark(text: str) -> str:
    """Replace the names of arguments in a text by the names that a program gives to Spark.

    `linger_ms` becomes `kafka.linger.ms`. Names with dots stay: they are options of brokers, of
    topics, or of other clients.
    """
    found = SECURITY.sub(_dotted, text)
    return _names("_").sub(_dotted, found)


def _dotted(match: re.Match[str]) -> str:
    return PREFIX + match[0].replace("_", ".")


def prefixed(text: str, given: Collection[str]) -> str:
    """Replace the names of properties in a text by the names that a program gives to Spark.

    `linger.ms` becomes `kafka.linger.ms`. The text may begin with one of the `given` names, which
    then gets the prefix even if it is not the name of an option. Advice that a program cannot
    follow with Spark is left out.
    """
    found = _names(".").sub(rf"{PREFIX}\g<0>", " ".join(_followed(text)))
    begin = re.split(r"[: ]", found, maxsplit=1)[0]
    return as_in_spark(PREFIX + found if begin in given else found)


def _followed(text: str) -> Iterator[str]:
    """Yield the sentences of a text that a program can follow with Spark."""
    for number, sentence in enumerate(SENTENCES.split(text)):
        use = OR_USE.fullmatch(sentence)
        if use is not None:
            yield f"U{use[1][1:]}"
        elif not number or not ADVICE.fullmatch(sentence):
            yield sentence


@functools.cache
def _names(separator: str) -> re.Pattern[str]:
    names = (option_names(Consumer) | option_names(Producer)) - set(OBJECTS)
    several = sorted((name for name in names if "." in name), key=len, reverse=True)
    either = "|".join(re.escape(name.replace(".", separator)) for name in several)
    # An option of one word, such as acks, can also be a word of a sentence.
    words = "|".join(name for name in names if "." not in name)
    return re.compile(rf"(?<![\w.-])(?:(?:{either})(?![\w-]|\.\w)|(?:{words})(?==))")
