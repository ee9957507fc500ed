"""The admin call that creates a share group whose start is stored before its first member."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from aiokclient.admin.arguments import as_name, as_names, as_partition
from aiokclient.admin.group_descriptions import GroupDescription
from aiokclient.admin.offsets import OffsetSpec
from aiokclient.admin.plans.offset_changes import (
    NO_PARTITION,
    KnownGroup,
    OffsetChange,
    commit_changes,
    make_results,
    read_group,
    require_no_members,
)
from aiokclient.admin.requests import AdminRequests
from aiokclient.admin.results import Results
from aiokclient.admin.share_groups import as_start, find_starts
from aiokclient.admin.topics import describe_topics
from aiokclient.errors import InconsistentGroupProtocolError, KafkaError, NoOffsetError
from aiokclient.errors.local import ArgumentValueError
from aiokclient.types import OffsetAndMetadata, TopicPartition

CREATE: Final = "create_share_group"

GroupStart: TypeAlias = Literal["earliest", "latest"] | datetime | Mapping[TopicPartition, int]
"""The start of a new share group, in the forms that `create_share_group` takes."""
Start: TypeAlias = OffsetSpec | datetime | dict[TopicPartition, int]
Starts: TypeAlias = dict[TopicPartition, int | KafkaError]


async def create_share_group(
    requests: AdminRequests,
    group: str,
    topics: Iterable[str],
    start: GroupStart,
    dry_run: bool,
    check: bool,
    timeout: float | None,
) -> Results[TopicPartition, OffsetChange]:
    """See `Admin.create_share_group`."""
    as_name(group, "group")
    names = as_names(topics)
    wanted = _as_group_start(start, names, check)
    requests.require_open()
    deadline = requests.compute_deadline(timeout)
    known = await read_group(requests, group, deadline)
    if known.description is not None and not known.is_share:
        raise _make_conflict(known)
    found = await _find_partitions(requests, names, requests.compute_remaining_s(deadline) / 2)
    if any(error is None and tp not in known.offsets for tp, error in found.items()):
        require_no_members(known, CREATE)
    starts = await _find_group_starts(requests, known, found, wanted, check, deadline)
    planned = {tp: _plan_start(known, tp, each) for tp, each in starts.items()}
    if dry_run:
        return make_results(requests, planned)
    missing = {tp: each for tp, each in planned.items() if not _is_kept(each)}
    done = await commit_changes(requests, known, missing, True, deadline)
    return make_results(requests, {**planned, **done})


def _as_group_start(start: Any, topics: list[str], check: bool) -> Start:
    """Return the start of a group. Raises the errors of `as_start`."""
    if isinstance(start, Mapping):
        offsets: dict[TopicPartition, int] = {}
        for tp, offset in start.items():
            if isinstance(found := as_start(offset, "start", check), datetime | OffsetSpec):
                raise ArgumentValueError(f"start: {offset!r} is not an offset. Pass an int.")
            offsets[as_partition(tp)] = found
        for tp in offsets:
            if tp.topic not in topics:
                raise ArgumentValueError(
                    f"start has an offset of {tp}, whose topic is not one of topics. Add it there."
                )
        return offsets
    found = as_start(start, "start", check)
    if isinstance(found, OffsetSpec | datetime):
        return found
    raise ArgumentValueError(
        f"start: {start!r} would be the offset in each partition. Pass 'earliest', 'latest', an "
        "aware datetime, or a mapping from partitions to offsets."
    )


def _make_conflict(group: KnownGroup) -> KafkaError:
    description = group.description
    kind = description.type if isinstance(description, GroupDescription) else "streams"
    error = InconsistentGroupProtocolError(api=CREATE, resource=f"group {group.group_id}")
    error.what = f"The group is not a share group, but a {kind} group."
    error.hint = "Pass another group id, or delete the group by Admin.delete_groups()."
    return error


async def _find_partitions(
    requests: AdminRequests, names: list[str], timeout: float
) -> dict[TopicPartition, KafkaError | None]:
    """Return the partitions of topics with None. A topic that cannot be described has its error."""
    described = await describe_topics(requests, names, False, None, timeout)
    found: dict[TopicPartition, KafkaError | None] = {}
    for name in names:
        topic = described[name]
        if isinstance(topic, KafkaError):
            found[TopicPartition(name, NO_PARTITION)] = topic
        else:
            found.update((TopicPartition(name, each.index), None) for each in topic.partitions)
    return found


async def _find_group_starts(
    requests: AdminRequests,
    group: KnownGroup,
    found: Mapping[TopicPartition, KafkaError | None],
    start: Start,
    check: bool,
    deadline: float,
) -> Starts:
    """Return the start offset of each partition: the one that is stored, or the wanted one."""
    starts: Starts = {tp: error for tp, error in found.items() if error is not None}
    asked: dict[TopicPartition, int | OffsetSpec | datetime] = {}
    for tp, error in found.items():
        if error is not None:
            continue
        stored = group.offsets.get(tp)
        if stored is not None:
            starts[tp] = stored.offset
        elif not isinstance(start, dict):
            asked[tp] = start
        elif tp in start:
            asked[tp] = start[tp]
        else:
            starts[tp] = _make_absence(tp)
    if isinstance(start, dict):
        # Partitions that do not exist have an error each.
        asked.update((tp, offset) for tp, offset in start.items() if tp not in starts)
    remaining = requests.compute_remaining_s(deadline)
    starts.update(await find_starts(requests, asked, check, remaining))
    return {tp: starts[tp] for tp in dict.fromkeys([*found, *starts])}


def _make_absence(tp: TopicPartition) -> KafkaError:
    error = NoOffsetError(api=CREATE, topic_partition=tp)
    error.what = "start has no offset of this partition."
    error.hint = "Add it. Otherwise the group would start here by its share.auto.offset.reset."
    return error


def _plan_start(
    group: KnownGroup, tp: TopicPartition, start: int | KafkaError
) -> OffsetChange | KafkaError:
    if isinstance(start, KafkaError):
        return start
    return group.make_change(tp, OffsetAndMetadata(start))


def _is_kept(planned: OffsetChange | KafkaError) -> bool:
    return isinstance(planned, KafkaError) or planned.before is not None
