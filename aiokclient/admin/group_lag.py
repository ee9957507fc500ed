"""The admin call that compares the committed offsets of groups with the ends of partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from aiokclient.admin.arguments import as_names
from aiokclient.admin.groups import describe_groups, list_consumer_group_offsets
from aiokclient.admin.requests import AdminRequests, Answers, leader_failure
from aiokclient.admin.results import Results
from aiokclient.cluster.targets import Leader
from aiokclient.errors import KafkaError, UsageError
from aiokclient.errors.local import ArgumentTypeError, ArgumentValueError
from aiokclient.log.kept_errors import bare
from aiokclient.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from aiokclient.types import OffsetAndMetadata, TopicPartition, public_in

if TYPE_CHECKING:
    from aiokclient.admin.group_descriptions import GroupDescription, GroupMemberDescription

__all__ = ["group_lag", "PartitionLag"]

API: Final = "ListOffsets"
CONSUMER: Final = -1
"""The replica id of a client that is no broker."""
LATEST: Final = -1
"""The timestamp that requests the end of a partition."""
LEVELS: Final = ("read_uncommitted", "read_committed")
"""The isolation levels, in the order of their numbers in the protocol."""


@public_in("aiokclient.admin")
@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The progress of a group in one partition, and the member that owns the partition.

    `committed` is the committed offset, or None if the group has committed none. `end` is the
    offset after the last record (with "read_committed": the last stable offset), or None if the
    partition does not exist any more. `lag` is the number of offsets from `committed` to `end`, at
    least 0, or None if one of them is None. `member_id`, `client_id`, and `host` describe the
    member, and are None if no member owns the partition.
    """

    committed: int | None
    end: int | None
    lag: int | None
    member_id: str | None = None
    client_id: str | None = None
    host: str | None = None


async def group_lag(
    requests: AdminRequests, groups: Iterable[str], isolation_level: str, timeout: float | None
) -> Results[str, dict[TopicPartition, PartitionLag]]:
    """See `Admin.group_lag`."""
    names, level = list(dict.fromkeys(as_names(groups))), _level(isolation_level)
    requests.require_open()
    until = requests.deadline_after(timeout)
    described = await describe_groups(requests, names, False, requests.seconds_until(until))
    errors: dict[str, KafkaError] = dict(described.errors)
    # The ends are read last. A group that commits in the meantime would otherwise seem to have
    # committed an offset after the end.
    committed = await list_consumer_group_offsets(
        requests, described.succeeded, False, requests.seconds_until(until)
    )
    errors.update(committed.errors)
    offsets = committed.succeeded
    owners = {group: _owners(described.succeeded[group]) for group in offsets}
    wanted = {group: sorted({*offsets[group], *owners[group]}) for group in offsets}
    ends = await _read_ends(
        requests,
        dict.fromkeys(tp for tps in wanted.values() for tp in tps),
        level,
        requests.seconds_until(until),
    )
    return Results(
        {
            group: errors[group]
            if group in errors
            else _lags(wanted[group], offsets[group], owners[group], ends)
            for group in names
        },
        requests.cluster.make_log("admin"),
    )


async def _read_ends(
    requests: AdminRequests, tps: dict[TopicPartition, None], level: int, timeout: float
) -> Mapping[TopicPartition, int | KafkaError]:
    """Return the ends of partitions, without those that do not exist."""
    if not tps:
        return {}
    until = requests.deadline_after(timeout)
    topics = list(dict.fromkeys(tp.topic for tp in tps))
    try:
        metadata = await requests.cluster.updater.refresh(topics, timeout=timeout, at_once=True)
    except UsageError:
        raise
    except KafkaError as error:
        return dict.fromkeys(tps, bare(error))
    # Without this, the lookup would repeat UNKNOWN_TOPIC_OR_PARTITION until the timeout.
    existing = {
        tp: None
        for tp in tps
        if metadata.exists(tp.topic)
        and ((topic := metadata.topics[tp.topic]).error or tp.partition < len(topic.partitions))
    }

    async def ask(
        items: dict[TopicPartition, None], to: Leader, remaining: float
    ) -> Answers[TopicPartition, int]:
        request = _request(items, level, requests.broker_timeout_ms(remaining))
        response = await requests.send(request, to, remaining)
        return {
            (tp := TopicPartition(topic.name, part.partition_index)): leader_failure(
                part.error_code, API, tp
            )
            or part.offset
            for topic in response.topics
            for part in topic.partitions
        }

    found = await requests.ask_leaders(existing, ask, API, requests.seconds_until(until))
    return {**found.succeeded, **found.errors}


def _level(given: Any) -> int:
    if not isinstance(given, str):
        raise ArgumentTypeError(f"isolation_level must be a str, not {given!r}.")
    if given not in LEVELS:
        raise ArgumentValueError(
            f"isolation_level must be one of {', '.join(LEVELS)}, not {given!r}."
        )
    return LEVELS.index(given)


def _request(tps: Iterable[TopicPartition], level: int, timeout_ms: int) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for name, index in tps:
        partition = ListOffsetsPartition(partition_index=index, timestamp=LATEST)
        topics.setdefault(name, []).append(partition)
    return ListOffsetsRequest(
        replica_id=CONSUMER,
        isolation_level=level,
        topics=[ListOffsetsTopic(name=name, partitions=found) for name, found in topics.items()],
        timeout_ms=timeout_ms,
    )


def _owners(group: GroupDescription) -> dict[TopicPartition, GroupMemberDescription]:
    return {tp: member for member in group.members for tp in member.partitions}


def _lags(
    tps: Iterable[TopicPartition],
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    owners: Mapping[TopicPartition, GroupMemberDescription],
    ends: Mapping[TopicPartition, int | KafkaError],
) -> dict[TopicPartition, PartitionLag] | KafkaError:
    """Return the lag of each partition of a group, or the first error of their ends."""
    lags: dict[TopicPartition, PartitionLag] = {}
    for tp in tps:
        end, owner = ends.get(tp), owners.get(tp)
        if isinstance(end, KafkaError):
            return end
        committed = offsets[tp].offset if tp in offsets else None
        lags[tp] = PartitionLag(
            committed,
            end,
            None if committed is None or end is None else max(end - committed, 0),
            *((owner.member_id, owner.client_id, owner.host) if owner is not None else ()),
        )
    return lags
