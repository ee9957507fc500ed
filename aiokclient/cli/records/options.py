"""The types of options that several commands for records have, and the checks that they share."""

from __future__ import annotations

import re
import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Sequence

from aiokclient.cli.grammar import WrongUseError
from aiokclient.cli.values import Duration, Place, PlaceType, TopicPartitions

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS = ("all", "-1", "0", "1")
TERMINAL_RECORDS = "-10"
"""The position at which reading begins on a terminal by default."""


class Partitions:
    """Numbers of partitions, as 0,1,5."""

    def __init__(self, text: str) -> None:
        try:
            self.numbers = tuple(dict.fromkeys(int(each) for each in text.split(",")))
        except ValueError:
            raise ArgumentTypeError(f"{text!r} is not numbers of partitions, such as 0,1") from None


class Count:
    """A number of records, at least 1."""

    def __init__(self, text: str) -> None:
        if not (text.isascii() and text.isdecimal() and int(text)):
            raise ArgumentTypeError(f"{text!r} is no number of records above 0")
        self.number = int(text)


class Seconds:
    """A time span such as 30s or 5m, or a number of seconds."""

    def __init__(self, text: str) -> None:
        try:
            self.seconds = float(text)
        except ValueError:
            self.seconds = Duration(text).milliseconds / 1000
        if not self.seconds > 0:
            raise ArgumentTypeError(f"{text!r} is no time span above 0")


class Rate:
    """A number of records a second."""

    def __init__(self, text: str) -> None:
        self.per_second = float(text)
        if not self.per_second > 0:
            raise ArgumentTypeError(f"{text!r} is no number of records a second above 0")


def find_typed_property(given: Namespace, name: str) -> str | None:
    """Return the value of an option of the client that -X has."""
    for text in reversed(given.X):
        typed, _, value = text.partition("=")
        if typed.replace("_", ".") == name:
            return str(value)
    return None


def settle_reading(given: Namespace) -> None:
    """Set the positions that were not given. Raises WrongUseError for options that do not fit."""
    given.start = getattr(given, "from")
    if given.share_group is not None:
        _settle_sharing(given)
        return
    if given.ack is not None:
        raise WrongUseError("--ack needs the share group whose records it settles: --share-group.")
    if given.group is None:
        given.group = find_typed_property(given, "group.id")
    if given.group is None:
        if given.commit:
            raise WrongUseError("--commit needs the group to commit to: -g GROUP.")
        if PlaceType.COMMITTED in {each.type for each in (given.start, given.until) if each}:
            raise WrongUseError("The position committed needs a group: -g GROUP.")
        if given.start is None:
            is_terminal = sys.stdout is not None and sys.stdout.isatty()
            given.start = Place(TERMINAL_RECORDS if is_terminal else "end")
    given.topics, given.pattern = [], None
    if not given.regex:
        given.topics = [_as_topic(text) for text in given.topic]
    elif given.partitions is not None:
        raise WrongUseError("-p needs names of topics, not --regex.")
    else:
        given.pattern = _compile_topics(given.topic)


def _settle_sharing(given: Namespace) -> None:
    """Set what a share consumer has. Raises WrongUseError for what its group decides."""
    unfit = {
        "-o": given.start,
        "--until": given.until,
        "--per-partition": given.per_partition,
        "-p": given.partitions,
        "-g": given.group,
        "--commit": given.commit or None,
        "--isolation-level": given.isolation_level,
        "--grep": given.grep or None,
        "--regex": given.regex or None,
    }
    if found := [name for name, value in unfit.items() if value is not None]:
        raise WrongUseError(
            f"--share-group does not go with {', '.join(found)}. `aiokclient groups reset` sets "
            "the start of a share group, `aiokclient configs alter group:GROUP` its configuration."
        )
    given.topics, given.pattern = [_as_topic(text) for text in given.topic], None
    if any(each.partitions is not None for each in given.topics):
        raise WrongUseError("A share group reads whole topics: name them without partitions.")
    given.ack = given.ack or "accept"


def _as_topic(text: str) -> TopicPartitions:
    try:
        return TopicPartitions(text)
    except ArgumentTypeError as error:
        raise WrongUseError(f"{error}.") from None


def _compile_topics(patterns: Sequence[str]) -> re.Pattern[str]:
    """Return one pattern for several. Raises WrongUseError."""
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise WrongUseError(f"{pattern!r} is no regular expression: {error}.") from None
    return re.compile("|".join(f"(?:{each})" for each in patterns))
