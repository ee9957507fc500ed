"""The offsets of a stream, and their JSON in the checkpoint. Sans-IO.

    {"version": 1,
     "topics": {"orders": {"id": "6bc1e5f0-...", "offsets": {"0": 12, "1": 7}}},
     "starts": {"orders": {"0": 10}}}

`topics` has the id of each topic, and the offset of the next record to read in each partition.

Spark stores the end of each batch, and takes the end of the previous batch as its start. `starts`
has the partitions in which the batch starts at another offset: all partitions of the first batch,
later the partitions that are new, or whose topic was deleted and created again. A batch that was
planned and not committed is therefore repeated with exactly the records of its plan, although Spark
requests the initial offset again, and "latest" may then be another offset.

`{"version": 1, "initial": true}` is a placeholder for the start of a query, which the first plan
replaces.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiokclient import TopicPartition
from aiokclient.errors import ConfigError

VERSION = 1
SHOWN = 60
"""Number of characters of a wrong value that an error text shows."""
INDEX = re.compile("0|[1-9][0-9]{0,9}")
"""The pattern of a partition's number in JSON."""
CONVERT = "python -m aiokclient.spark.convert CHECKPOINT"

Positions = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class StreamOffsets:
    """The offsets up to which a query has read at the end of a batch."""

    ids: Mapping[str, str | None] = field(default_factory=dict)
    """The id of each topic. None is an id that the connector did not store."""
    offsets: Positions = field(default_factory=dict)
    """The offset of the next record to read, by partition."""
    starts: Positions = field(default_factory=dict)
    """The first offset of the batch, for partitions in which the previous batch ended elsewhere."""
    initial: bool = False
    """Whether this is the placeholder for the start of a query."""

    @classmethod
    def beginning(cls) -> StreamOffsets:
        """Return the placeholder for the start of a query."""
        return cls(initial=True)

    def as_json(self) -> dict[str, Any]:
        """Return the JSON document, in an order that depends on the offsets only."""
        if self.initial:
            return {"version": VERSION, "initial": True}
        topics: dict[str, Any] = {
            name: {"id": self.ids[name], "offsets": {}} for name in sorted(self.ids)
        }
        for topic, partition, offset in _ordered(self.offsets):
            topics[topic]["offsets"][str(partition)] = offset
        document: dict[str, Any] = {"version": VERSION, "topics": topics}
        if self.starts:
            starts: dict[str, dict[str, int]] = {}
            for topic, partition, offset in _ordered(self.starts):
                starts.setdefault(topic, {})[str(partition)] = offset
            document["starts"] = starts
        return document


def parse(document: object) -> StreamOffsets:
    """Return the offsets of a JSON document from a checkpoint.

    Raises ConfigError, which names the part of the document that is wrong.
    """
    if not isinstance(document, dict):
        raise _wrong("the document", document, "an object")
    version = document.get("version")
    if not isinstance(version, int) or isinstance(version, bool):
        if connector_offsets(document) is not None:
            raise ConfigError(
                "The offsets in the checkpoint were written by Spark's Kafka connector. Stop the "
                f"query and convert its checkpoint: {CONVERT}"
            )
        raise _wrong("version", version, f"the integer {VERSION}")
    if version > VERSION:
        raise ConfigError(
            f"The offsets in the checkpoint have the version {version}, and this release of "
            f"aiokclient reads versions up to {VERSION}. Install the release that wrote them, or a "
            "newer one."
        )
    if version < VERSION:
        raise _wrong("version", version, f"the integer {VERSION}")
    if "initial" in document:
        _only(document, "", ("version", "initial"))
        if document["initial"] is not True:
            raise _wrong("initial", document["initial"], "true")
        return StreamOffsets.beginning()
    _only(document, "", ("version", "topics", "starts"))
    ids, offsets = _topics(document.get("topics"))
    starts = _starts(document.get("starts", {}), offsets)
    return StreamOffsets(ids, offsets, starts)


def load(text: str, source: str) -> Any:
    """Return the JSON document in a text.

    `source` says where the text is from. Raises ConfigError with the position of an error.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        problem = f"{source} is not JSON: {error.msg} at {where}."
    except (ValueError, RecursionError):
        problem = f"{source} has a number or a depth that no offsets have."
    raise ConfigError(problem)


def connector_offsets(document: object) -> dict[TopicPartition, int] | None:
    """Return the offsets of the Kafka connector's JSON, or None if it is something else."""
    if not isinstance(document, dict):
        return None
    offsets: dict[TopicPartition, int] = {}
    for topic, partitions in document.items():
        if not isinstance(partitions, dict) or not partitions:
            return None
        for partition, offset in partitions.items():
            if not is_index(partition) or not _is_integer(offset) or offset < 0:
                return None
            offsets[TopicPartition(topic, int(partition))] = offset
    return offsets


def _topics(document: object) -> tuple[dict[str, str | None], dict[TopicPartition, int]]:
    if not isinstance(document, dict):
        raise _wrong("topics", document, "an object")
    ids: dict[str, str | None] = {}
    offsets: dict[TopicPartition, int] = {}
    for name, topic in document.items():
        path = f"topics.{name}"
        if not isinstance(topic, dict):
            raise _wrong(path, topic, "an object")
        _only(topic, f"{path}.", ("id", "offsets"))
        topic_id = topic.get("id")
        if topic_id is not None and not isinstance(topic_id, str):
            raise _wrong(f"{path}.id", topic_id, "a string or null")
        ids[name] = topic_id
        offsets.update(_positions(f"{path}.offsets", name, topic.get("offsets")))
    return ids, offsets


def _starts(document: object, ends: Positions) -> dict[TopicPartition, int]:
    if not isinstance(document, dict):
        raise _wrong("starts", document, "an object")
    starts: dict[TopicPartition, int] = {}
    for name, partitions in document.items():
        starts.update(_positions(f"starts.{name}", name, partitions))
    for tp in starts:
        if tp not in ends:
            raise ConfigError(
                'The offsets in the checkpoint cannot be used: "starts" has the partition '
                f'{tp}, but "topics" does not have it.'
            )
    return starts


def _positions(path: str, topic: str, document: object) -> dict[TopicPartition, int]:
    if not isinstance(document, dict):
        raise _wrong(path, document, "an object of partitions and offsets")
    found = {}
    for partition, offset in document.items():
        if not is_index(partition):
            raise _wrong(f"a partition in {path}", partition, "an integer from 0")
        if not _is_integer(offset) or offset < 0:
            raise _wrong(f"{path}.{partition}", offset, "an integer from 0")
        found[TopicPartition(topic, int(partition))] = offset
    return found


def _only(document: dict[str, Any], path: str, known: tuple[str, ...]) -> None:
    for name in document:
        if name not in known:
            raise ConfigError(
                f"The offsets in the checkpoint cannot be used: {path}{name} is not known. The "
                f"names there are {', '.join(known)}."
            )


def _wrong(path: str, value: object, allowed: str) -> ConfigError:
    shown = json.dumps(value, default=repr)
    if len(shown) > SHOWN:
        shown = f"{shown[:SHOWN]}..."
    return ConfigError(
        f"The offsets in the checkpoint cannot be used: {path} is {shown}, and must be {allowed}."
    )


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value < 1 << 63


def is_index(value: str) -> bool:
    """Return whether a key of a JSON object is the number of a partition."""
    return INDEX.fullmatch(value) is not None and int(value) < 1 << 31


def _ordered(positions: Positions) -> Iterator[tuple[str, int, int]]:
    for topic, partition in sorted(positions):
        yield topic, partition, positions[TopicPartition(topic, partition)]
