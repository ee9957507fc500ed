"""The commands of offsets."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError, Namespace
from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING

from aiokclient.cli.grammar import AdminCommand, Argument, Command, Option
from aiokclient.cli.nouns.topics import INTERNAL, choose_partitions
from aiokclient.cli.output import Result, Row, iso_time, rows_result
from aiokclient.cli.values import TopicPartitions, time_ms

if TYPE_CHECKING:
    from aiokclient import Admin, TopicPartition
    from aiokclient.admin import ListedOffset

SPECS = {
    "end": "LATEST",
    "start": "EARLIEST",
    "max-timestamp": "MAX_TIMESTAMP",
    "local-start": "EARLIEST_LOCAL",
    "tiered": "LATEST_TIERED",
    "pending-upload": "EARLIEST_PENDING_UPLOAD",
}
"""The members of `OffsetSpec` by the words for them."""
KAFKAS_WORDS = {
    "latest": "end",
    "earliest": "start",
    "earliest-local": "local-start",
    "latest-tiered": "tiered",
    "earliest-pending-upload": "pending-upload",
    "-1": "end",
    "-2": "start",
    "-3": "max-timestamp",
    "-4": "local-start",
    "-5": "tiered",
    "-6": "pending-upload",
}
"""The words and numbers for these in kafka-get-offsets."""


class LogPosition:
    """A position in a log for which brokers know the offset: a word of `SPECS`, or a time.

    A bare number is a time in milliseconds since the epoch. `spec` is the name of a member of
    `OffsetSpec`, or None for a time.
    """

    def __init__(self, text: str) -> None:
        self.spec = SPECS.get(KAFKAS_WORDS.get(text, text))
        self.milliseconds = 0
        if self.spec is None:
            is_number = text.isascii() and text.isdecimal()
            try:
                self.milliseconds = int(text) if is_number else time_ms(text)
            except ArgumentTypeError as error:
                raise ArgumentTypeError(
                    f"{error}; other positions are {', '.join(SPECS)}"
                ) from None

    def as_spec(self) -> int:
        """Return what `Admin.list_offsets` takes for the position."""
        from aiokclient.admin import OffsetSpec

        return self.milliseconds if self.spec is None else OffsetSpec[self.spec]


class PartitionRanges(TopicPartitions):
    """A topic, and partitions with ranges, whose ends are not meant: 0-3 is 0, 1, and 2.

    kafka-get-offsets has the same ranges. 5- is 5 and all after it, and -3 the same as 0-3. Without
    a topic, the partitions are those of all topics.
    """

    _PART = re.compile(r"(\d+)|(\d*)-(\d*)")

    def __init__(self, text: str) -> None:
        topic, colon, numbers = text.rpartition(":")
        parts = [self._PART.fullmatch(part) for part in numbers.split(",")]
        self.ranges: list[tuple[int, int | None]] | None = None
        if not colon or topic.endswith("(?"):
            super().__init__(text)
            return
        super().__init__(topic)
        # A last part that is empty, as in "orders:", stands for all partitions.
        if numbers:
            self.ranges = [self._as_range(part, text) for part in parts]

    @staticmethod
    def _as_range(part: re.Match[str] | None, text: str) -> tuple[int, int | None]:
        if part is None:
            raise ArgumentTypeError(
                f"{text!r} is not TOPIC or TOPIC:PARTITION[,...], such as orders:0,1 or orders:0-3"
            )
        if part[1]:
            return int(part[1]), int(part[1]) + 1
        return int(part[2] or 0), int(part[3]) if part[3] else None

    def select(self, count: int) -> Sequence[int]:
        """Return the partitions that are meant of a topic that has `count` partitions."""
        if self.ranges is None:
            return range(count)
        chosen: dict[int, None] = {}
        for first, end in self.ranges:
            # A single partition must exist, but a range is cut where the topic ends.
            is_single = end == first + 1
            chosen.update(
                dict.fromkeys([first] if is_single else range(first, min(end or count, count)))
            )
        return list(chosen)


class ListOffsets(AdminCommand):
    """List an offset of each partition: its start, its end, or that for a time.

    For a time, it is the first offset whose record is not older; there is none if all records are.
    Further positions are max-timestamp (the record with the greatest time), and for tiered storage
    local-start, tiered (the last offset in remote storage), and pending-upload (the first that is
    not in remote storage).

    Partitions may be ranges as in kafka-get-offsets, which do not contain their end: orders:0-3 is
    the partitions 0, 1, and 2.
    """

    verb = "list"
    arguments = (
        Argument(
            "TOPIC",
            "Topics, or TOPIC:PARTITION[,...]; all topics without any.",
            "*",
            PartitionRanges,
            completes="topics",
        ),
    )
    options = (
        Option(
            ("--at",),
            f"The position: {', '.join(SPECS)}, or a time. The default is end.",
            "POSITION",
            type=LogPosition,
            completes=" ".join(SPECS),
        ),
        Option(
            ("--committed",),
            "Partitions end at the last stable offset, before which no transaction is open.",
        ),
        INTERNAL,
        Option(("--regex",), "The topics are regular expressions that match whole names."),
    )

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for each partition."""
        are_patterns = given.regex or any(not each.topic for each in given.topic)
        typed = given.topic
        if are_patterns:
            typed = [as_pattern(each, given.regex) for each in typed]
        chosen, failures = await choose_partitions(admin, typed, are_patterns, given.internal)
        spec = (given.at or LogPosition("end")).as_spec()
        listed = await admin.list_offsets(
            dict.fromkeys(chosen, spec),
            isolation_level="read_committed" if given.committed else "read_uncommitted",
        )
        failures |= {str(tp): error for tp, error in listed.errors.items()}
        rows = [offset_row(tp, each) for tp, each in listed.succeeded.items()]
        return rows_result(["topic", "partition", "offset", "timestamp_iso"], rows, failures)


def as_pattern(typed: PartitionRanges, is_pattern: bool) -> PartitionRanges:
    """Return what was typed with a regular expression for its topic, all topics without any."""
    pattern = copy(typed)
    pattern.topic = (typed.topic if is_pattern else re.escape(typed.topic)) or ".*"
    return pattern


def offset_row(tp: TopicPartition, listed: ListedOffset | None) -> Row:
    """Return the offset of a partition as a row; its fields are None if there is no such offset."""
    timestamp = listed.timestamp if listed else None
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "offset": listed.offset if listed else None,
        "timestamp": timestamp,
        "timestamp_iso": iso_time(timestamp),
        "leader_epoch": listed.leader_epoch if listed else None,
    }


COMMANDS: Sequence[type[Command]] = (ListOffsets,)
