"""The admin call that lists offsets of partitions, by time or by their place in the log."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import Any, Final

from aiokclient.admin.arguments import as_mapping, as_partition
from aiokclient.admin.requests import (
    AdminRequests,
    Answers,
    by_partition,
    by_topic,
    compute_check_s,
    make_leader_failure,
)
from aiokclient.admin.results import Results
from aiokclient.cluster.targets import Leader
from aiokclient.errors import (
    ConfigError,
    KafkaError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from aiokclient.errors.local import ArgumentTypeError, ArgumentValueError
from aiokclient.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from aiokclient.types import TopicPartition, is_integer, public_in
from aiokclient.types.named_tuple import NamedTuple

LIST_OFFSETS: Final = "ListOffsets"
CLIENT_REPLICA_ID: Final = -1
"""The replica id of a client that is no broker."""
ISOLATION_LEVELS: Final = ("read_uncommitted", "read_committed")
"""The isolation levels, in the order of their numbers in the protocol."""
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND: Final = timedelta(milliseconds=1)


@public_in("aiokclient.admin")
class OffsetSpec(IntEnum):
    """The offsets that `list_offsets` finds without a time. The values are those of the protocol.

    `EARLIEST` is the first offset of the partition, and `LATEST` the one after its last record.
    `MAX_TIMESTAMP` is the offset of the first record with the greatest timestamp (Kafka 3.0,
    KIP-734).

    The others are about tiered storage. `EARLIEST_LOCAL` is the first offset on the leader's disk
    (KIP-405), `LATEST_TIERED` the last one in remote storage (KIP-1005), and
    `EARLIEST_PENDING_UPLOAD` the first one that is not in remote storage yet (KIP-1023). Without
    tiered storage, the first of them is that of `EARLIEST`, and the others do not exist.
    """

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


@public_in("aiokclient.admin")
class ListedOffset(NamedTuple):
    """An offset that `list_offsets` has found.

    `timestamp` is that of the record at the offset, in milliseconds since the epoch, or None if the
    broker does not return it, as for the start and the end of a partition. `leader_epoch` is the
    leader epoch of the record, or None if the broker does not return it.
    """

    offset: int
    timestamp: int | None = None
    leader_epoch: int | None = None


async def list_offsets(
    requests: AdminRequests,
    specs: Mapping[TopicPartition, OffsetSpec | int],
    isolation_level: str,
    check: bool,
    timeout: float | None,
) -> Results[TopicPartition, ListedOffset | None]:
    """See `Admin.list_offsets`."""
    given = as_mapping(specs, "partitions")
    wanted = {as_partition(tp): _as_timestamp(spec, check) for tp, spec in given.items()}
    level = isolation_number(isolation_level)

    async def ask(
        items: dict[TopicPartition, int], to: Leader, remaining: float
    ) -> Answers[TopicPartition, ListedOffset | None]:
        return {
            tp: answer if isinstance(answer, KafkaError) else _read_listed_offset(answer)
            for tp, answer in (await ask_leader(requests, items, level, to, remaining)).items()
        }

    return await requests.ask_leaders(wanted, ask, LIST_OFFSETS, timeout)


async def find_offsets(
    requests: AdminRequests, specs: Mapping[TopicPartition, int], timeout: float
) -> Answers[TopicPartition, int]:
    """Return the offset of each spec: a bound of the log, or a time in milliseconds.

    If all records are older than the time, it is the end of the partition.
    """
    deadline = requests.compute_deadline(timeout)
    level = ISOLATION_LEVELS[0]
    listed = await list_offsets(requests, specs, level, True, timeout)
    found: dict[TopicPartition, int | KafkaError] = dict(listed.errors)
    found.update((tp, each.offset) for tp, each in listed.succeeded.items() if each is not None)
    late = {tp: OffsetSpec.LATEST for tp in specs if tp not in found}
    remaining = requests.compute_remaining_s(deadline)
    ends = await list_offsets(requests, late, level, True, remaining)
    found.update(ends.errors)
    found.update((tp, 0 if each is None else each.offset) for tp, each in ends.succeeded.items())
    return found


async def find_out_of_range(
    requests: AdminRequests,
    offsets: Mapping[TopicPartition, int],
    timeout: float,
) -> dict[TopicPartition, KafkaError]:
    """Return an error for each offset outside of its partition, or whose partition is unknown.

    The end of a partition is not outside. An offset whose partition cannot be asked is not in the
    result: the brokers then decide.
    """
    deadline = requests.compute_deadline(compute_check_s(timeout))
    found: dict[TopicPartition, KafkaError] = {}
    bounds: list[dict[TopicPartition, ListedOffset]] = []
    for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST):
        listed = await list_offsets(
            requests,
            {tp: spec for tp in offsets if tp not in found},
            ISOLATION_LEVELS[0],
            True,
            requests.compute_remaining_s(deadline),
        )
        bounds.append({tp: each for tp, each in listed.succeeded.items() if each is not None})
        for tp, error in listed.errors.items():
            if error.code == UnknownTopicOrPartitionError.code:
                found[tp] = error
    first, last = bounds
    for tp, offset in offsets.items():
        if tp in first and tp in last and not first[tp].offset <= offset <= last[tp].offset:
            error = found[tp] = OffsetOutOfRangeError(api=LIST_OFFSETS, topic_partition=tp)
            error.what = (
                f"Offset {offset} is not from {first[tp].offset}, the start of the partition, to "
                f"{last[tp].offset}, its end."
            )
            error.hint = "Pass check=False to set it nevertheless."
    return found


async def ask_leader(
    requests: AdminRequests,
    timestamps: Mapping[TopicPartition, int],
    level: int,
    to: Leader,
    remaining: float,
) -> Answers[TopicPartition, ListOffsetsPartitionResponse]:
    """Send one request to the broker that leads all of these partitions."""
    topics = [
        ListOffsetsTopic(
            name=name,
            partitions=[
                ListOffsetsPartition(partition_index=tp.partition, timestamp=timestamps[tp])
                for tp in of_topic
            ],
        )
        for name, of_topic in by_topic(timestamps).items()
    ]
    request = ListOffsetsRequest(
        replica_id=CLIENT_REPLICA_ID,
        isolation_level=level,
        topics=topics,
        timeout_ms=requests.compute_broker_timeout_ms(remaining),
    )
    response = await requests.send_request(request, to, remaining)
    return {
        tp: _read_error(result.error_code, tp, timestamps) or result
        for tp, result in by_partition(response.topics)
    }


def as_time_ms(given: datetime, name: str) -> int:
    """Return an aware datetime in milliseconds since the epoch.

    `name` is that of the argument. Raises ConfigError for a datetime that has no time zone or is
    before 1970.
    """
    if given.utcoffset() is None:
        raise ConfigError(
            f"{name}: {given.isoformat()} has no time zone. Pass an aware datetime, such as "
            "datetime(2026, 1, 1, tzinfo=timezone.utc), or local.astimezone() for a local time."
        )
    since = given - EPOCH
    if since < timedelta():
        raise ConfigError(f"{name}: {given.isoformat()} is before 1970, and no record is that old.")
    return since // MILLISECOND


def isolation_number(given: Any) -> int:
    """Return the number of an isolation level in the protocol.

    Raises ArgumentTypeError or ArgumentValueError if it is not one.
    """
    if not isinstance(given, str):
        raise ArgumentTypeError(f"isolation_level must be a str, not {given!r}.")
    if given not in ISOLATION_LEVELS:
        raise ArgumentValueError(
            f"isolation_level must be one of {', '.join(ISOLATION_LEVELS)}, not {given!r}."
        )
    return ISOLATION_LEVELS.index(given)


def _as_timestamp(spec: Any, check: bool) -> int:
    if not is_integer(spec):
        raise ArgumentTypeError(
            f"{spec!r} is not an offset to list. Pass an OffsetSpec, or a time in milliseconds "
            "since the epoch."
        )
    if check and spec < 0 and spec not in set(OffsetSpec):
        raise ArgumentValueError(
            f"{spec} is not a time. Pass milliseconds since the epoch, which are not negative, or "
            "an OffsetSpec."
        )
    return int(spec)


def _read_error(
    code: int, tp: TopicPartition, timestamps: Mapping[TopicPartition, int]
) -> KafkaError | None:
    error = make_leader_failure(code, LIST_OFFSETS, tp)
    if code == UnsupportedVersionError.code and error is not None:
        # A broker refuses only the partitions whose special timestamp it does not know.
        spec = timestamps.get(tp, 0)
        known = {int(each): each.name for each in OffsetSpec}
        error.what = f"The broker does not know {known.get(spec, f'the timestamp {spec}')}."
    return error


def _read_listed_offset(result: ListOffsetsPartitionResponse) -> ListedOffset | None:
    if result.offset < 0:
        return None
    return ListedOffset(
        result.offset,
        None if result.timestamp < 0 else result.timestamp,
        None if result.leader_epoch < 0 else result.leader_epoch,
    )
