"""The admin call that resets the committed offsets of a group.

A reset has a target, such as a time, from which each partition gets an offset of its own: the
brokers are asked for the offset of the target and for the bounds of the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypeAlias

from aiokclient.admin.arguments import (
    as_name,
    as_partition,
    as_text,
    require_integer,
    require_offset,
)
from aiokclient.admin.offsets import (
    LIST_OFFSETS,
    MILLISECOND,
    OffsetSpec,
    as_time_ms,
    ask_leader,
)
from aiokclient.admin.plans.offset_changes import (
    NO_PARTITION,
    KnownGroup,
    OffsetChange,
    Selection,
    as_selection,
    commit_changes,
    make_absence,
    make_results,
    read_group,
    require_group,
    require_no_members,
)
from aiokclient.admin.requests import AdminRequests, Answers
from aiokclient.admin.results import Results
from aiokclient.admin.topics import describe_topics
from aiokclient.cluster.targets import Leader
from aiokclient.errors import ConfigError, KafkaError, OffsetOutOfRangeError
from aiokclient.errors.local import ArgumentTypeError, ArgumentValueError
from aiokclient.types import OffsetAndMetadata, TopicPartition, is_integer, public_in
from aiokclient.types.named_tuple import NamedTuple

RESET: Final = "reset_offsets"
CURRENT: Final = "current"
BOUNDS: Final = (int(OffsetSpec.EARLIEST), int(OffsetSpec.LATEST))
WITHOUT_END: Final = frozenset(
    {OffsetSpec.EARLIEST_LOCAL, OffsetSpec.LATEST_TIERED, OffsetSpec.EARLIEST_PENDING_UPLOAD}
)
"""The offsets of tiered storage. The end of the log does not stand for a missing one of these."""
READ_UNCOMMITTED: Final = 0


@public_in("aiokclient.admin")
class Shift(NamedTuple):
    """A target of `reset_offsets`: the committed offset, and so many offsets after it.

    A negative distance leads to earlier offsets.
    """

    distance: int


class Time(NamedTuple):
    """A time as the target of a reset, in milliseconds since the epoch."""

    ms: int


SpecName: TypeAlias = Literal[
    "earliest",
    "latest",
    "max_timestamp",
    "earliest_local",
    "latest_tiered",
    "earliest_pending_upload",
    "current",
]
OffsetTarget: TypeAlias = (
    OffsetSpec
    | SpecName
    | int
    | Shift
    | datetime
    | timedelta
    | Mapping[TopicPartition, int | OffsetAndMetadata]
)
"""The new position of a group, in the forms that `reset_offsets` takes."""

Given: TypeAlias = dict[TopicPartition, OffsetAndMetadata]
Target: TypeAlias = OffsetSpec | Literal["current"] | int | Shift | Time | Given
Listed: TypeAlias = dict[int, int | None]
"""Offsets of one partition by what was asked for: an `OffsetSpec`, or a time in milliseconds."""


async def reset_offsets(
    requests: AdminRequests,
    group: str,
    to: OffsetTarget,
    topics: Iterable[str | TopicPartition] | None,
    dry_run: bool,
    check: bool,
    timeout: float | None,
) -> Results[TopicPartition, OffsetChange]:
    """See `Admin.reset_offsets`."""
    as_name(group, "group")
    selection = as_selection(topics)
    target = _as_target(to, check)
    if isinstance(target, dict):
        if selection is not None:
            raise ArgumentValueError(
                "Both a mapping of offsets and topics are given. Pass only the mapping, whose "
                "partitions are reset."
            )
        selection = dict.fromkeys(target)
    requests.require_open()
    deadline = requests.compute_deadline(timeout)
    if isinstance(target, timedelta):
        target = Time(max(requests.cluster.clock.time_ms() - target // MILLISECOND, 0))
    known = await read_group(requests, group, deadline)
    require_no_members(known, RESET)
    if selection is None:
        require_group(known, RESET, "Check the spelling, or pass topics, to create the group.")
        selection = dict.fromkeys(sorted(known.offsets))
    planned = await _plan_changes(requests, known, target, selection, check, deadline)
    if dry_run:
        return make_results(requests, planned)
    return await commit_changes(requests, known, planned, known.is_share, deadline)


def _as_target(to: Any, check: bool) -> Target | timedelta:
    """Return the target of a reset.

    Raises ArgumentTypeError for a wrong type, ArgumentValueError for a wrong name or offset, and
    ConfigError for a time that is unclear, or is not in the past.
    """
    if isinstance(to, str):
        return _as_named_target(to)
    if isinstance(to, Shift):
        require_integer(to.distance, "a number of offsets")
        return to
    if isinstance(to, OffsetSpec):
        return to
    if is_integer(to):
        return _as_offset(to, check).offset
    if isinstance(to, datetime):
        return Time(as_time_ms(to, "to"))
    if isinstance(to, timedelta):
        if to < timedelta():
            raise ConfigError(
                f"to: {to!r} before now is in the future. Pass a timedelta that is not negative."
            )
        return to
    if isinstance(to, Mapping):
        return {as_partition(tp): _as_offset(offset, check) for tp, offset in to.items()}
    raise ArgumentTypeError(
        f"{to!r} is not a target of a reset. Pass an OffsetSpec, an offset, a Shift, an aware "
        "datetime, a timedelta, 'current', or a mapping from partitions to offsets."
    )


def _as_named_target(name: str) -> Target:
    if name == CURRENT:
        return CURRENT
    names = {spec.name.lower(): spec for spec in OffsetSpec}
    if name not in names:
        known = ", ".join(map(repr, (*names, CURRENT)))
        raise ArgumentValueError(f"{name!r} is not a target of a reset. Pass one of {known}.")
    return names[name]


def _as_offset(offset: Any, check: bool) -> OffsetAndMetadata:
    made = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
    require_integer(made.offset, "an offset")
    as_text(made.metadata, "the metadata of an offset")
    if check:
        require_offset(made.offset)
    return made


async def _plan_changes(
    requests: AdminRequests,
    group: KnownGroup,
    target: Target,
    selection: Selection,
    check: bool,
    deadline: float,
) -> dict[TopicPartition, OffsetChange | KafkaError]:
    """Return the change of each selected partition, or the error that prevents it, in order."""
    # A partition without a leader is asked for until the end of this time. The others are then
    # reset in the rest.
    until = requests.compute_deadline(requests.compute_remaining_s(deadline) / 2)
    tps = await _find_partitions(requests, selection, until)
    specs = _list_specs(target, check)
    asked = [
        tp
        for tp, error in tps.items()
        if specs and error is None and not (target == CURRENT and tp in group.offsets)
    ]
    listed = await _list_offsets(requests, asked, specs, requests.compute_remaining_s(until))
    return {
        tp: _plan_change(group, target, tp, listed.get(tp, {})) if error is None else error
        for tp, error in tps.items()
    }


async def _find_partitions(
    requests: AdminRequests, selection: Selection, deadline: float
) -> dict[TopicPartition, KafkaError | None]:
    """Return the selected partitions, each once and with None, in the order of the selection.

    A topic that cannot be described has its error, for the partition -1.
    """
    names = [each for each in selection if isinstance(each, str)]
    remaining = requests.compute_remaining_s(deadline)
    described = await describe_topics(requests, names, False, None, remaining)
    found: dict[TopicPartition, KafkaError | None] = {}
    for each in selection:
        if isinstance(each, TopicPartition):
            found[each] = None
            continue
        topic = described[each]
        if isinstance(topic, KafkaError):
            found[TopicPartition(each, NO_PARTITION)] = topic
        else:
            found.update((TopicPartition(each, p.index), None) for p in topic.partitions)
    return found


def _list_specs(target: Target, check: bool) -> tuple[int, ...]:
    """Return what must be asked about each partition: the target, then the bounds of the log.

    The end is the last of them, because records that arrive meanwhile only move it forward.
    """
    if isinstance(target, OffsetSpec):
        return BOUNDS if target in BOUNDS else (int(target), *BOUNDS)
    if isinstance(target, Time):
        return target.ms, *BOUNDS
    if target == CURRENT or isinstance(target, Shift):
        return BOUNDS
    return BOUNDS if check else ()


async def _list_offsets(
    requests: AdminRequests,
    tps: Iterable[TopicPartition],
    specs: tuple[int, ...],
    timeout: float,
) -> Mapping[TopicPartition, Listed | KafkaError]:
    """Return the offsets of each partition that the specs name, or the error of the partition."""

    async def ask(
        items: dict[TopicPartition, None], to: Leader, remaining: float
    ) -> Answers[TopicPartition, Listed]:
        until = requests.compute_deadline(remaining)
        found: dict[TopicPartition, Listed] = {tp: {} for tp in items}
        errors: dict[TopicPartition, KafkaError] = {}
        for spec in specs:  # A request may name a partition only once.
            answers = await ask_leader(
                requests,
                dict.fromkeys(found, spec),
                READ_UNCOMMITTED,
                to,
                requests.compute_remaining_s(until),
            )
            errors.update(
                (tp, each) for tp, each in answers.items() if isinstance(each, KafkaError)
            )
            # A partition that is missing in the response is missing in these answers, too.
            found = {
                tp: {**listed, spec: each.offset if each.offset >= 0 else None}
                for tp, listed in found.items()
                if (each := answers.get(tp)) is not None and not isinstance(each, KafkaError)
            }
            if not found:
                break
        return {**found, **errors}

    results = await requests.ask_leaders(dict.fromkeys(tps), ask, LIST_OFFSETS, timeout)
    return {**results.succeeded, **results.errors}


def _plan_change(
    group: KnownGroup, target: Target, tp: TopicPartition, listed: Listed | KafkaError
) -> OffsetChange | KafkaError:
    if isinstance(listed, KafkaError):
        return listed
    wanted = _find_offset(group, target, tp, listed)
    if isinstance(wanted, KafkaError):
        return wanted
    start, end = (listed.get(spec) for spec in BOUNDS)
    if start is None or end is None or start <= wanted.offset <= end:
        return group.make_change(tp, wanted)
    # The leader epoch, if any, is that of the requested offset.
    moved = OffsetAndMetadata(min(max(wanted.offset, start), end), wanted.metadata)
    return group.make_change(tp, moved, requested=wanted.offset)


def _find_offset(
    group: KnownGroup, target: Target, tp: TopicPartition, listed: Listed
) -> OffsetAndMetadata | KafkaError:
    """Return the offset of the target in a partition, which may be outside of the log."""
    committed = group.offsets.get(tp)
    if isinstance(target, dict):
        return target[tp]
    if isinstance(target, Shift):
        if committed is None:
            hint = "Pass an offset, a time, or an OffsetSpec for this partition."
            return make_absence(tp, group.group_id, RESET, hint)
        return OffsetAndMetadata(committed.offset + target.distance)
    offset: int | None
    if isinstance(target, OffsetSpec):
        offset = listed[target]
        if offset is None and target in WITHOUT_END:
            error = OffsetOutOfRangeError(api=LIST_OFFSETS, topic_partition=tp)
            error.what = f"The partition has no offset OffsetSpec.{target.name}."
            error.hint = "Pass another target for this partition."
            return error
    elif isinstance(target, Time):
        offset = listed[target.ms]
    elif isinstance(target, int):
        return OffsetAndMetadata(target)
    else:
        if committed is not None:
            return committed
        offset = None
    # All records are older than the target, or it is the current position and there is none.
    return OffsetAndMetadata(listed[OffsetSpec.LATEST] or 0 if offset is None else offset)
