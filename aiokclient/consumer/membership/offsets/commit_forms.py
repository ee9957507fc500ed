"""The conversion of every form of argument of `commit` to offsets by partition. Without IO."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from aiokclient.consumer.arguments import as_partition, as_partitions, as_topics
from aiokclient.errors import IllegalStateError
from aiokclient.errors.local import ArgumentTypeError
from aiokclient.group.offset_forms import Offsets, after_records, as_offset
from aiokclient.types import ConsumerRecord, TopicPartition, is_integer


def to_commit(what: Any, consumed: Offsets) -> tuple[Offsets, list[TopicPartition]]:
    """Return the offsets to commit, and the given partitions of which no record was delivered.

    `what` is None (for all of `consumed`), one or more records, a mapping from partition to offset,
    or one or more topics or partitions. Raises IllegalStateError for anything else.
    """
    if what is None:
        return consumed, []
    if isinstance(what, ConsumerRecord):
        return after_records([what]), []
    if isinstance(what, Mapping):
        tps = as_partitions(what)
        return dict(zip(tps, map(as_offset, what.values()), strict=True)), []
    if isinstance(what, str):
        return _of_topics([what], consumed), []
    if _is_partition(what):
        return _of_many([as_partition(what)], consumed)
    if isinstance(what, bytes) or not isinstance(what, Iterable):
        raise _refusal(what)
    return _of_many(list(what), consumed)


def named_topics(what: Any) -> list[str]:
    """Return the topics that `commit(what)` names, or none if it names something else."""
    if isinstance(what, str):
        return [what]
    if isinstance(what, ConsumerRecord | Mapping) or not isinstance(what, Collection):
        return []
    return [*what] if all(isinstance(item, str) for item in what) else []


def covered(what: Any) -> Callable[[TopicPartition], bool]:
    """Return a function that tells whether `commit(what)` covers all delivered records.

    The function takes a partition. It returns True for every partition if `what` is None, for the
    given ones if `what` has topics or partitions, and for none if `what` has records or offsets.
    """
    if what is None:
        return lambda tp: True
    if isinstance(what, ConsumerRecord | Mapping):
        return lambda tp: False
    named = frozenset([what] if isinstance(what, str) or _is_partition(what) else what)
    return lambda tp: tp.topic in named or tp in named


def _is_partition(what: Any) -> bool:
    """Return whether this is one partition, which may be given as a tuple."""
    if not isinstance(what, tuple) or len(what) != 2:
        return False
    return isinstance(what, TopicPartition) or (isinstance(what[0], str) and is_integer(what[1]))


def _of_many(items: list[Any], consumed: Offsets) -> tuple[Offsets, list[TopicPartition]]:
    if all(isinstance(item, ConsumerRecord) for item in items):
        return after_records(items), []
    if all(isinstance(item, str) for item in items):
        return _of_topics(items, consumed), []
    if any(isinstance(item, ConsumerRecord | str) for item in items):
        raise _refusal(items)
    tps = as_partitions(items)
    return {tp: consumed[tp] for tp in tps if tp in consumed}, [
        tp for tp in tps if tp not in consumed
    ]


def _of_topics(topics: list[str], consumed: Offsets) -> Offsets:
    wanted = dict.fromkeys(as_topics(topics))
    return {tp: offset for tp, offset in consumed.items() if tp.topic in wanted}


def _refusal(what: Any) -> IllegalStateError:
    return ArgumentTypeError(
        f"{what!r} cannot be committed. commit() accepts one or more records, a mapping from "
        "TopicPartition to offset, or one or more topics or partitions."
    )
