"""The conversion of an application's argument, in any form, to offsets by partition. Without IO."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aiokclient.errors.local import ArgumentTypeError, ArgumentValueError, TopicValueError
from aiokclient.types import (
    ConsumerRecord,
    GroupMetadata,
    OffsetAndMetadata,
    TopicPartition,
    is_integer,
    is_offset,
    shortened,
    text_problem,
)

Offsets = dict[TopicPartition, OffsetAndMetadata]


def as_offsets(what: Any) -> Offsets:
    """Return the offsets to commit for records, or for a mapping from partition to offset.

    Raises ArgumentTypeError, which is an IllegalStateError and a TypeError, for anything else.
    """
    if isinstance(what, ConsumerRecord):
        return after_records([what])
    if isinstance(what, Mapping):
        return {_partition(tp): as_offset(value) for tp, value in what.items()}
    if isinstance(what, Iterable) and not isinstance(what, str | tuple):
        records = list(what)
        if all(isinstance(record, ConsumerRecord) for record in records):
            return after_records(records)
    raise ArgumentTypeError(
        f"{what!r} has no offsets to commit. Pass one or more records, or a mapping from "
        "TopicPartition to offset or OffsetAndMetadata."
    )


def after_records(records: Iterable[ConsumerRecord[Any, Any]]) -> Offsets:
    """Return for each partition the offset after its last record. Records may have any order."""
    offsets: Offsets = {}
    for record in records:
        tp = TopicPartition(record.topic, record.partition)
        if tp not in offsets or offsets[tp].offset <= record.offset:
            offsets[tp] = OffsetAndMetadata(record.offset + 1, "", record.leader_epoch)
    return offsets


def as_offset(value: Any) -> OffsetAndMetadata:
    """Return a value as an OffsetAndMetadata.

    Raises ArgumentTypeError if it is not an offset, and ArgumentValueError if no broker could
    receive its metadata.
    """
    to = value if isinstance(value, OffsetAndMetadata) else OffsetAndMetadata(value)
    if not is_offset(to.offset):
        raise ArgumentTypeError(
            f"{value!r} is not an offset to commit. Use an integer from 0 or an OffsetAndMetadata."
        )
    if not isinstance(to.metadata, str):
        raise ArgumentTypeError(f"{to.metadata!r} is not the metadata of an offset. Pass a str.")
    if to.metadata and (problem := text_problem(to.metadata)):
        raise ArgumentValueError(f"The metadata {shortened(to.metadata)} cannot be sent. {problem}")
    return to


def require_group_metadata(given: Any) -> None:
    """Raise ArgumentTypeError unless this is a GroupMetadata.

    Raises ArgumentValueError if no broker could receive one of its names.
    """
    if not isinstance(given, GroupMetadata):
        raise ArgumentTypeError(
            f"{given!r} is not a GroupMetadata. Pass consumer.group_metadata()."
        )
    for name in (given.group_id, given.member_id, given.group_instance_id or ""):
        if isinstance(name, str) and (problem := text_problem(name)):
            raise ArgumentValueError(f"{shortened(name)} cannot identify a group. {problem}")


def _partition(tp: Any) -> TopicPartition:
    if (
        isinstance(tp, tuple)
        and len(tp) == 2
        and isinstance(tp[0], str)
        and is_integer(tp[1])
        and tp[1] >= 0
    ):
        if problem := text_problem(tp[0]):
            raise TopicValueError(f"{shortened(tp[0])} cannot be a topic. {problem}")
        return TopicPartition(*tp)
    raise ArgumentTypeError(f"{tp!r} is not a partition. Use TopicPartition(topic, number).")
