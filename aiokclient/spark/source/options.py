"""The options of the Spark source, with the names, defaults, and rules of Spark's Kafka connector.

Options that the connector would silently ignore, or with which it would read nothing, are errors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypeAlias, cast

from aiokclient import Client, Consumer, TopicPartition
from aiokclient.spark.option_names import option_names, text_options
from aiokclient.spark.option_reader import OptionReader, Properties, bad_value, number_of
from aiokclient.spark.source.offsets import is_index

EARLIEST = -2
"""The number that stands for the first offset in JSON."""
LATEST = -1
"""The number that stands for the end offset in JSON."""

Kind: TypeAlias = Literal["earliest", "latest", "offsets", "timestamp", "timestamps"]
Isolation: TypeAlias = Literal["read_uncommitted", "read_committed"]
Partitions: TypeAlias = tuple[tuple[TopicPartition, int], ...]

STRATEGIES = ("subscribe", "subscribePattern", "assign")
ENDING = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
KNOWN = (
    *STRATEGIES,
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingTimestamp",
    "startingOffsetsByTimestampStrategy",
    *ENDING,
    "minPartitions",
    "maxRecordsPerPartition",
    *STREAM_ONLY,
    "failOnDataLoss",
    "includeHeaders",
    "groupIdPrefix",
    "commitOffsets",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
)
OF_THE_SINK = ("topic", "deliveryGuarantee", "writeId")
REFUSED = {
    "auto.offset.reset": "Set startingOffsets, which says where the source begins.",
    "key.deserializer": "Keys are read as binary. Convert them with functions of Spark.",
    "value.deserializer": "Values are read as binary. Convert them with functions of Spark.",
    "enable.auto.commit": "Spark keeps the offsets. To commit them to a group, set "
    "commitOffsets=group and kafka.group.id in a stream.",
    "interceptor.classes": "The source runs no interceptors.",
}
"""The options of Kafka that are not allowed, as in Spark's connector, with the reason."""
OFFSETS_EXAMPLE = '{"topic": {"0": 23, "1": -2}}'
TIMES_EXAMPLE = '{"topic": {"0": 1700000000000}}'
ASSIGN_EXAMPLE = '{"topic": [0, 1]}'
FETCH_MAX_BYTES = 52_428_800
MAX_TRIGGER_DELAY_MS = 900_000
TOPIC = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
TOPIC_NAME = "the name of a topic: 1 to 249 letters, digits, '.', '_', and '-', not '.' or '..'."
"""The text of errors that say what a topic must be."""
SHOWN = 60
"""The number of characters of a topic that an error shows."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The start or the end of the reading, by the option with the highest precedence."""

    option: str
    kind: Kind
    values: Partitions = ()
    """The offsets (with EARLIEST and LATEST) or timestamps of single partitions."""
    timestamp: int | None = None
    """The timestamp for all partitions, in milliseconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The checked options of a source.

    `properties` may have passwords. They are not in the repr.
    """

    topics: tuple[str, ...] = ()
    """The topics of `subscribe`."""
    pattern: str | None = None
    """The regular expression of `subscribePattern`."""
    partitions: tuple[TopicPartition, ...] = ()
    """The partitions of `assign`."""
    starting: Bound
    ending: Bound
    starting_strategy: str = "error"
    """The reaction if no record has the starting timestamp or a later one.

    With `error`, the query fails. With `latest`, it starts at the end of the partition.
    """
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = MAX_TRIGGER_DELAY_MS
    fail_on_data_loss: bool = True
    include_headers: bool = False
    commit_group: str | None = None
    """The group to which a stream commits its offsets, for tools that show lag."""
    fetch_offset_num_retries: int = 3
    fetch_offset_retry_interval_ms: int = 10
    isolation_level: Isolation = "read_uncommitted"
    fetch_max_bytes: int = FETCH_MAX_BYTES
    properties: Properties = field(default=(), repr=False)
    """The options of a Client."""

    @classmethod
    def parse(cls, given: Mapping[str, str], *, streaming: bool) -> Self:
        """Return the options of a batch query or a stream. Raises ConfigError for all mistakes."""
        reader = _reader(given)
        found = cls(**_parse(reader, streaming))
        reader.refuse_mistakes()
        return found

    @classmethod
    def read_include_headers(cls, given: Mapping[str, str]) -> bool:
        """Return `include_headers`, before it is known whether the query is a stream.

        Raises ConfigError for options that are wrong in a batch query and also in a stream.
        """
        batch, stream = _reader(given), _reader(given)
        found = cls(**_parse(batch, False))
        _parse(stream, True)
        both = OptionReader({}, (), "source")
        for text in batch.problems:
            if text in stream.problems:
                both.add_problem(text)
        both.refuse_mistakes()
        return found.include_headers


def _reader(given: Mapping[str, str]) -> OptionReader:
    of_kafka = text_options(option_names(Consumer), REFUSED)
    return OptionReader(given, KNOWN, "source", {"sink": OF_THE_SINK}, of_kafka=of_kafka)


def _parse(reader: OptionReader, streaming: bool) -> dict[str, Any]:
    properties = dict(reader.read_properties(REFUSED, Consumer.from_properties))
    least, most = (reader.read_integer(f"{word}OffsetsPerTrigger") for word in ("min", "max"))
    if least is not None and most is not None and least > most:
        reader.add_problem(
            bad_value(
                "minOffsetsPerTrigger", str(least), f"maxOffsetsPerTrigger is lower ({most})."
            )
        )
    if streaming:
        for name in ENDING:
            if reader.has_option(name):
                reader.add_problem(
                    f"{name} is not allowed in a stream, which has no end. Remove it."
                )
    reader.read_integer("kafkaConsumer.pollTimeoutMs", least=0)
    level = properties.get("isolation.level", "read_uncommitted").strip().lower()
    # The source makes no consumer that would need them: it only passes on what `Client` has.
    of_consumers = option_names(Consumer) - option_names(Client)
    return {
        **_chosen(reader),
        "starting": _bound(reader, "starting", "latest" if streaming else "earliest", streaming),
        "ending": _bound(reader, "ending", "latest", streaming),
        "starting_strategy": reader.read_choice(
            "startingOffsetsByTimestampStrategy", ("error", "latest"), "error"
        ),
        "min_partitions": reader.read_integer("minPartitions", most=(1 << 31) - 1),
        "max_records_per_partition": reader.read_integer("maxRecordsPerPartition"),
        "max_offsets_per_trigger": most,
        "min_offsets_per_trigger": least,
        "max_trigger_delay_ms": reader.read_duration_ms("maxTriggerDelay", MAX_TRIGGER_DELAY_MS),
        "fail_on_data_loss": reader.read_flag("failOnDataLoss", True),
        "include_headers": reader.read_flag("includeHeaders", False),
        "commit_group": _commit_group(reader, properties.get("group.id"), streaming),
        "fetch_offset_num_retries": reader.read_integer("fetchOffset.numRetries", 3, least=0),
        "fetch_offset_retry_interval_ms": reader.read_integer(
            "fetchOffset.retryIntervalMs", 10, least=0
        ),
        "isolation_level": level,
        "fetch_max_bytes": number_of(properties.get("fetch.max.bytes", ""), 0) or FETCH_MAX_BYTES,
        "properties": tuple(pair for pair in properties.items() if pair[0] not in of_consumers),
    }


def _chosen(reader: OptionReader) -> dict[str, Any]:
    """Return the topics, the pattern, or the partitions, exactly one of which must be given."""
    given = [name for name in STRATEGIES if reader.has_option(name)]
    if len(given) != 1:
        several = f"{' and '.join(given)} exclude each other" if given else "The topics are missing"
        reader.add_problem(
            f"{several}. Set exactly one of subscribe, subscribePattern, and assign."
        )
        return {}
    (name,) = given
    text = reader.read_text(name) or ""
    if name == "assign":
        return {"partitions": _assigned(reader, text)}
    if name == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            at = "" if error.pos is None else f" at position {error.pos}"
            reason = f"It is not a regular expression: {error.msg}{at}."
            reader.add_problem(bad_value(name, text, reason))
        if not text.strip():
            reader.add_problem(bad_value(name, text, "It must be a regular expression."))
        return {"pattern": text}
    topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
    if not topics:
        reader.add_problem(
            bad_value(name, text, "It must be names of topics, separated by commas.")
        )
    _check_topics(reader, name, text, topics)
    return {"topics": topics}


def _check_topics(reader: OptionReader, name: str, text: str, topics: Iterable[str]) -> None:
    """Add a problem for the first name that no topic can have."""
    wrong = next((topic for topic in topics if not TOPIC.fullmatch(topic)), None)
    if wrong is not None:
        reader.add_problem(bad_value(name, text, f"{wrong[:SHOWN]!r} is not {TOPIC_NAME}"))


def _assigned(reader: OptionReader, text: str) -> tuple[TopicPartition, ...]:
    value = reader.read_json("assign", ASSIGN_EXAMPLE)
    if value is None:
        return ()
    found = list[TopicPartition]()
    if isinstance(value, dict):
        for topic, numbers in value.items():
            if not isinstance(numbers, list) or not all(_is_partition(one) for one in numbers):
                found.clear()
                break
            found += [TopicPartition(topic, number) for number in numbers]
    if not found:
        reader.add_problem(bad_value("assign", text, f"It must have the form {ASSIGN_EXAMPLE}."))
    _check_topics(reader, "assign", text, [tp.topic for tp in found])
    return tuple(sorted(set(found)))


def _is_partition(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 31


def _bound(reader: OptionReader, side: str, default: Kind, streaming: bool) -> Bound:
    """Return the start or the end. All options are checked, even those without an effect."""
    name = f"{side}OffsetsByTimestamp"
    # As in the connector, a query can have any offsets if a timestamp takes precedence.
    anything = streaming or reader.has_option(name) or reader.has_option(f"{side}Timestamp")
    by_offset = _by_offset(reader, f"{side}Offsets", default, anything)
    times = _values(reader, name, TIMES_EXAMPLE, 0)
    timestamp = reader.read_integer(f"{side}Timestamp", least=0)
    if timestamp is not None:
        return Bound(f"{side}Timestamp", "timestamp", timestamp=timestamp)
    if reader.has_option(name):
        return Bound(name, "timestamps", times)
    return by_offset


def _by_offset(reader: OptionReader, name: str, default: Kind, anything: bool) -> Bound:
    text = (reader.read_text(name, default) or "").strip()
    # A batch query must have something to read.
    wrong, number = ("latest", LATEST) if name == "startingOffsets" else ("earliest", EARLIEST)
    word = text.lower()
    if word in ("earliest", "latest"):
        if word == wrong and not anything:
            reader.add_problem(bad_value(name, text, "In a batch query, nothing would be read."))
        return Bound(name, cast(Kind, word))
    if not text.startswith("{"):
        reason = f"It must be earliest, latest, or JSON in the form {OFFSETS_EXAMPLE}."
        reader.add_problem(bad_value(name, text, reason))
        return Bound(name, default)
    values = _values(reader, name, OFFSETS_EXAMPLE, EARLIEST)
    for tp, offset in values:
        if offset == number and not anything:
            reason = f"{number} ({wrong}) of {tp} would read nothing in a batch query."
            reader.add_problem(bad_value(name, text, reason))
    return Bound(name, "offsets", values)


def _values(reader: OptionReader, name: str, example: str, least: int) -> Partitions:
    """Return the number for each partition, from a JSON option that has the form of `example`."""
    value = reader.read_json(name, example)
    if value is None:
        return ()
    found = list[tuple[TopicPartition, int]]()
    text = reader.read_text(name) or ""
    if not isinstance(value, dict):
        reader.add_problem(bad_value(name, text, f"It must have the form {example}."))
        return ()
    for topic, numbers in value.items():
        if not isinstance(numbers, dict):
            reason = f"The value of {topic!r} must have the form of the one in {example}."
            reader.add_problem(bad_value(name, text, reason))
            continue
        for partition, number in numbers.items():
            if not is_index(partition):
                reason = f"{partition[:20]!r} of {topic!r} must be the number of a partition."
                reader.add_problem(bad_value(name, text, reason))
            elif type(number) is not int or not least <= number < 1 << 63:
                reason = (
                    f"The value of {topic}-{partition} must be an integer of at least {least}, not "
                    f"{json.dumps(number)[:SHOWN]}."
                )
                reader.add_problem(bad_value(name, text, reason))
            else:
                found.append((TopicPartition(topic, int(partition)), number))
    return tuple(sorted(found))


def _commit_group(reader: OptionReader, group: str | None, streaming: bool) -> str | None:
    value = reader.read_text("commitOffsets")
    if value is None:
        return None
    if value.strip().lower() != "group":
        reader.add_problem(bad_value("commitOffsets", value, "It must be group."))
    if not streaming:
        reader.add_problem("commitOffsets is not allowed in a batch query, which commits nothing.")
    if not (group or "").strip():
        reader.add_problem("commitOffsets=group needs kafka.group.id, the name of the group.")
    return group
