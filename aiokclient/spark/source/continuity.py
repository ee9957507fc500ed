"""The changes of the partitions of a stream since its offsets were written. Sans-IO.

`compare` takes the offsets that a query has reached and the present logs of the cluster, and
divides the partitions:

    continuing    the log continues at the query's offset
    fresh         read from the first offset: new partitions, and topics that were created again
    moved         the log ends before the query's offset: reading continues at its end

A topic that was deleted and created again is recognized by its id, even if its new log is longer
than the old log was. Each loss of records has a text, which becomes an error if
`failOnDataLoss` is true.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from aiokclient import TopicPartition
from aiokclient.errors import OffsetOutOfRangeError
from aiokclient.spark.source.offsets import Positions, StreamOffsets

NAMED = 20
"""Number of losses that an error text names."""


class DataLossError(OffsetOutOfRangeError):
    """An error raised when records that the query has not read are lost, or may be lost."""

    what = ""
    hint = (
        "Set failOnDataLoss=false to continue with the records that exist, or restart the query "
        "with a new checkpoint."
    )

    def __init__(self, losses: Collection[str], *, hint: str | None = None) -> None:
        shown = list(losses)[:NAMED]
        if len(losses) > NAMED:
            shown.append(f"There are {len(losses) - NAMED} more such partitions.")
        super().__init__(" ".join(shown))
        self.losses = tuple(losses)
        if hint is not None:
            self.hint = hint


@dataclass(frozen=True, slots=True)
class Logs:
    """The topics of the cluster: the id of each, and the end offset of each partition."""

    ids: Mapping[str, str | None]
    ends: Positions


@dataclass(slots=True)
class Comparison:
    """The partitions of the cluster, grouped by where the query continues to read them."""

    continuing: dict[TopicPartition, int] = field(default_factory=dict)
    """The offset at which each continuing partition is read next."""
    moved: dict[TopicPartition, int] = field(default_factory=dict)
    """The end offset of each log that was truncated."""
    fresh: list[TopicPartition] = field(default_factory=list)
    """Partitions to be read from their first offset."""
    added: list[TopicPartition] = field(default_factory=list)
    """New partitions in `fresh`, without the partitions of topics that were created again."""
    losses: list[str] = field(default_factory=list)


def compare(start: StreamOffsets, logs: Logs) -> Comparison:
    """Compare the offsets of a query with the logs of the cluster."""
    result = Comparison()
    replaced = set()
    by_topic: dict[str, dict[TopicPartition, int]] = {}
    for tp, offset in start.offsets.items():
        by_topic.setdefault(tp.topic, {})[tp] = offset
    for topic, topic_id in start.ids.items():
        reached = by_topic.get(topic, {})
        if topic not in logs.ids:
            result.losses.extend(gone(tp, offset) for tp, offset in reached.items())
        elif differ(topic_id, logs.ids[topic]):
            replaced.add(topic)
            result.losses.append(recreated(topic, topic_id, logs.ids[topic], reached, logs.ends))
        else:
            _follow(reached, logs.ends, result)
    for tp in sorted(logs.ends):
        if tp.topic in replaced or tp not in start.offsets:
            result.fresh.append(tp)
            if tp.topic not in replaced:
                result.added.append(tp)
    return result


def differ(old: str | None, new: str | None) -> bool:
    """Return whether both topic ids are known, and belong to different topics."""
    return old is not None and new is not None and old != new


def recreated(
    topic: str, old: str | None, new: str | None, reached: Positions, ends: Positions
) -> str:
    """Return the text for a topic that was deleted and created again under its name."""
    partitions = [
        f"{tp} up to offset {offset}" + (f" (the new log ends at {ends[tp]})" if tp in ends else "")
        for tp, offset in sorted(reached.items())
    ]
    return (
        f"The topic {topic} was deleted and created again: its id was {old}, and is {new} now. Of "
        f"the old one, the query has read {_join_parts(partitions)}."
    )


def trimmed(starts: Positions, earliest: Positions) -> list[str]:
    """Return a text for each partition whose first records were deleted before they were read."""
    return [
        f"The records of {tp} from offset {start} to {earliest[tp] - 1} were deleted before "
        f"the query read them: the log starts at offset {earliest[tp]} now."
        for tp, start in sorted(starts.items())
        if tp in earliest and earliest[tp] > start
    ]


def added_late(added: Iterable[TopicPartition], earliest: Positions) -> list[str]:
    """Return a text for each new partition whose first records are already deleted."""
    return [
        f"The partition {tp} is new to the query, and its records from offset 0 to "
        f"{earliest[tp] - 1} were deleted before the query read them: the log starts at offset "
        f"{earliest[tp]}."
        for tp in added
        if earliest.get(tp, 0) > 0
    ]


def beyond(starts: Positions, ends: Positions, what: str) -> list[str]:
    """Return a text for each partition whose start is greater than its end."""
    return [
        f"The start of {tp} is offset {start}, and {what} offset {ends[tp]}."
        for tp, start in sorted(starts.items())
        if tp in ends and start > ends[tp]
    ]


def _follow(reached: Positions, ends: Positions, result: Comparison) -> None:
    for tp, offset in reached.items():
        if tp not in ends:
            result.losses.append(gone(tp, offset))
        elif ends[tp] < offset:
            result.moved[tp] = ends[tp]
            result.losses.append(truncated(tp, offset, ends[tp]))
        else:
            result.continuing[tp] = offset


def truncated(tp: TopicPartition, offset: int, end: int) -> str:
    """Return the text for a partition whose log ends before an offset of the query."""
    return (
        f"The query has read or planned {tp} up to offset {offset}, and its log ends at "
        f"offset {end}: it was truncated, or the checkpoint belongs to another cluster."
    )


def gone(tp: TopicPartition, offset: int) -> str:
    """Return the text for a partition that no longer exists."""
    return (
        f"The query has read {tp} up to offset {offset}, and the partition is gone: its "
        "topic was deleted, or the options of the query no longer name it."
    )


def _join_parts(parts: list[str]) -> str:
    shown = parts[:NAMED]
    if len(parts) > NAMED:
        shown.append(f"and {len(parts) - NAMED} more")
    return ", ".join(shown)
