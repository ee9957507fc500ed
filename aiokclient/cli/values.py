"""The values that users type: topics with partitions, positions in a log, times, and settings.

A time is a date or a date and time of ISO 8601, which is in UTC unless it names another zone, `@`
with milliseconds since the epoch, or relative to now: `-1h`, `+5m`, `-PT10M`. The units are ms, s,
m, h, d, and w.

Each class is the type of an option or of an argument: it is called with the text.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from enum import Enum
from typing import Any

from aiokclient.cli.grammar import value_error

STANDARD_INPUT = "standard input"
UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_UNIT = r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)"
_PERIOD = r"P(?=.)(?:(\d+)W)?(?:(\d+)D)?(?:T(?=.)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?"
_PERIOD_UNITS = ("w", "d", "h", "m", "s")
_BYTES = r"(\d+(?:\.\d+)?) ?((?:[kmgt]i?)?b?)"
_BYTE_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BYTE_UNITS |= {"ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40}


class TopicPartitions:
    """A topic, and the partitions that are meant: TOPIC or TOPIC:PARTITION[,...].

    `partitions` is None for all of them.
    """

    def __init__(self, text: str) -> None:
        topic, colon, numbers = text.rpartition(":")
        # The colon of a group in a regular expression, (?:a|b), comes before no partition.
        colon = "" if topic.endswith("(?") else colon
        self.topic = topic if colon else text
        self.partitions: tuple[int, ...] | None = None
        if colon:
            try:
                self.partitions = tuple(int(each) for each in numbers.split(","))
            except ValueError:
                raise value_error(
                    f"{text!r} is not TOPIC or TOPIC:PARTITION[,...], such as orders:0,1"
                ) from None

    def select(self, count: int) -> Sequence[int]:
        """Return the partitions that are meant of a topic that has `count` partitions."""
        return range(count) if self.partitions is None else self.partitions


class TextFile:
    """The text of a file, or of standard input if the path is `-`."""

    def __init__(self, path: str) -> None:
        self.name = STANDARD_INPUT if path == "-" else path
        try:
            if path == "-":
                self.text = sys.stdin.read() if sys.stdin is not None else ""
            else:
                with open(path, encoding="utf-8") as file:
                    self.text = file.read()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise value_error(f"{self.name} cannot be read: {reason}") from None


class Duration:
    """A time span such as 10m, 1.5h, or PT10M, in milliseconds. It has no sign."""

    def __init__(self, text: str) -> None:
        milliseconds = duration_ms(text)
        if milliseconds is None:
            raise value_error(f"{text!r} is no time span, such as 30s, 10m, 1h, or PT10M")
        self.milliseconds = milliseconds


class PlaceType(Enum):
    """The ways to name a position in a log."""

    START = "start"
    END = "end"
    COMMITTED = "committed"
    """The offset that the group has committed."""
    OFFSET = "offset"
    LAST = "last"
    """A number of records before the end."""
    FIRST = "first"
    """A number of offsets after the start."""
    TIME = "time"


class Place:
    """A position in a log: start, end, committed, N, +N after the start, -N before the end, a time.

    `value` is the offset, the number of records, or the milliseconds since the epoch. Relative
    times are relative to the moment at which the value is made.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.value = 0
        word = {"beginning": "start", "earliest": "start", "latest": "end", "current": "committed"}
        if (name := word.get(text, text)) in ("start", "end", "committed"):
            self.type = PlaceType(name)
        elif text.isascii() and text.isdecimal():
            self.type, self.value = PlaceType.OFFSET, int(text)
        elif text[:1] in ("-", "+") and text[1:].isascii() and text[1:].isdecimal():
            self.type = PlaceType.LAST if text[0] == "-" else PlaceType.FIRST
            self.value = int(text[1:])
        else:
            self.type, self.value = PlaceType.TIME, time_ms(text)

    def __repr__(self) -> str:
        return f"Place({self.text!r})"


class Setting:
    """A name and a value: NAME=VALUE. The value may be empty."""

    def __init__(self, text: str) -> None:
        self.name, equals, self.value = text.partition("=")
        if not equals or not self.name:
            raise value_error(f"{text!r} is not NAME=VALUE")


class Numbers:
    """Whole numbers with commas between them, such as the brokers 1,2,3."""

    def __init__(self, text: str) -> None:
        try:
            self.values = tuple(int(each) for each in text.split(","))
        except ValueError:
            raise value_error(f"{text!r} is not numbers, such as 1,2,3") from None


class ByteCount:
    """A number of bytes such as 1000, 50MB, or 1GiB. A rate may end in /s."""

    def __init__(self, text: str) -> None:
        import re

        match = re.fullmatch(_BYTES, text.removesuffix("/s"), re.IGNORECASE)
        if match is None:
            raise value_error(f"{text!r} is no number of bytes, such as 1000, 50MB, or 1GiB")
        self.bytes = round(float(match[1]) * _BYTE_UNITS[match[2].lower().removesuffix("b")])


def named_bytes(count: int) -> str:
    """Return a number of bytes as a text such as 512 B or 1.5 GB, as `ByteCount` reads it."""
    size, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 999.95 or unit == "TB":
            break
        size /= 1000
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, such as "1 fault" or "2 faults"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


class KafkaId:
    """An id in Kafka's notation, which has 22 characters, or in that of UUIDs."""

    def __init__(self, text: str) -> None:
        from base64 import urlsafe_b64decode
        from uuid import UUID

        try:
            is_short = len(text) == 22
            self.uuid = UUID(bytes=urlsafe_b64decode(f"{text}==")) if is_short else UUID(text)
        except ValueError:
            raise value_error(f"{text!r} is no id of Kafka") from None


class JsonFile(TextFile):
    """The content of a JSON file, or of standard input if the path is `-`."""

    def __init__(self, path: str) -> None:
        import json

        super().__init__(path)
        try:
            self.data: Any = json.loads(self.text)
        except (ValueError, RecursionError) as error:
            raise value_error(f"{self.name} is not JSON: {error}") from None


def time_ms(text: str) -> int:
    """Return a time in milliseconds since the epoch. Raises argparse.ArgumentTypeError."""
    from datetime import UTC, datetime

    if text.startswith("@") and text[1:].isascii() and text[1:].isdecimal():
        return int(text[1:])
    if text[:1] in ("-", "+") and (span := duration_ms(text[1:])) is not None:
        return round(time.time() * 1000) + (span if text[0] == "+" else -span)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise value_error(
            f"{text!r} is no time. Times are 2026-01-31, 2026-01-31T12:00 (UTC), "
            "2026-01-31T12:00+01:00, -1h, +5m, or @ and milliseconds since the epoch"
        ) from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def duration_ms(text: str) -> int | None:
    """Return a time span in milliseconds, or None if the text is none."""
    import re

    if match := re.fullmatch(_UNIT, text):
        return round(float(match[1]) * UNITS_MS[match[2]])
    if match := re.fullmatch(_PERIOD, text):
        parts = zip(match.groups(), _PERIOD_UNITS, strict=True)
        return round(sum(float(n) * UNITS_MS[unit] for n, unit in parts if n))
    return None
