"""The acknowledgements in a ShareFetch or a ShareAcknowledge request, and their results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.share.records import Acknowledgement, AckType, Settlement
from aiokclient.testing.broker.share.sessions import SessionKey, SharePartitionKey

if TYPE_CHECKING:
    from aiokclient.protocol.messages import share_acknowledge, share_fetch
    from aiokclient.testing.broker.call import Call
    from aiokclient.testing.broker.share.partition import SharePartition

    AckBatch = share_acknowledge.AcknowledgementBatch | share_fetch.AcknowledgementBatch

_UNAVAILABLE = "The share coordinator is not available."
_NOT_HERE = "This server does not host this topic-partition."
_RENEWED_SINCE = 2
"""The version of both requests in which a member can renew locks."""


class AckResult(NamedTuple):
    """The result for one partition."""

    code: int
    message: str | None = None


def list_acknowledged(
    topics: Iterable[share_acknowledge.AcknowledgeTopic | share_fetch.FetchTopic],
) -> dict[SharePartitionKey, list[AckBatch]]:
    """Return the acknowledgements of a request by partition."""
    return {
        SharePartitionKey(topic.topic_id, each.partition_index): list(each.acknowledgement_batches)
        for topic in topics
        for each in topic.partitions
        if each.acknowledgement_batches
    }


class _Pending(NamedTuple):
    """The settlements of one partition that the share coordinator has not stored yet."""

    partition: SharePartition
    settled: list[Settlement]


async def acknowledge_partitions(
    call: Call, key: SessionKey, acknowledged: Mapping[SharePartitionKey, Sequence[AckBatch]]
) -> dict[SharePartitionKey, AckResult]:
    """Apply the acknowledgements of partitions: for each, all of them, or none.

    If a test keeps the share coordinator unavailable, settlements wait for it. After 61 seconds,
    they end with COORDINATOR_NOT_AVAILABLE, and the locks of their records may have ended.
    """
    results: dict[SharePartitionKey, AckResult] = {}
    pending: dict[SharePartitionKey, _Pending] = {}
    async for target in call.iterate_items(acknowledged):
        checked = _check_partition(call, key, target, acknowledged[target])
        if isinstance(checked, _Pending):
            pending[target] = checked
        results[target] = checked if isinstance(checked, AckResult) else AckResult(Code.NONE)
    states = call.cluster.share_states
    is_stored = states.is_available(key.group_id)
    if any(each.settled for each in pending.values()) and not is_stored:
        try:
            is_stored = await states.wait_until_available(key.group_id)
        except GeneratorExit:
            _give_up(pending)
            raise
    if not is_stored:
        _give_up(pending)
    for target, each in pending.items():
        if not each.settled:
            continue
        if not each.partition.is_led:
            results[target] = AckResult(Code.UNKNOWN_TOPIC_OR_PARTITION)
        elif not is_stored:
            results[target] = AckResult(Code.COORDINATOR_NOT_AVAILABLE, _UNAVAILABLE)
        else:
            results[target] = _settle(call, key, target, each)
    return results


def _give_up(pending: Mapping[SharePartitionKey, _Pending]) -> None:
    for each in pending.values():
        each.partition.give_up(each.settled)


def _settle(call: Call, key: SessionKey, target: SharePartitionKey, pending: _Pending) -> AckResult:
    try:
        pending.partition.settle(pending.settled)
    except Refused as refused:
        call.broker.shares.drop_fenced(key.group_id, target)
        return AckResult(refused.code, refused.message or None)
    return AckResult(Code.NONE)


def _check_partition(
    call: Call, key: SessionKey, target: SharePartitionKey, batches: Sequence[AckBatch]
) -> AckResult | _Pending:
    """Return the settlements of one partition, or the error of the partition."""
    cluster, shares = call.cluster, call.broker.shares
    topic = cluster.topics_by_id.get(target.topic_id)
    if topic is None:
        return AckResult(call.find_refusal() or Code.UNKNOWN_TOPIC_ID)
    if code := call.find_refusal(topic.name, target.partition):
        return AckResult(code)
    read = [_read_batch(call, each) for each in batches]
    if None in read or not _is_ascending(batches):
        return AckResult(Code.INVALID_REQUEST)
    loaded = shares.find_loaded(key.group_id, target)
    if topic.find_partition(target.partition) is None:
        return AckResult(Code.UNKNOWN_TOPIC_OR_PARTITION)
    if loaded is None:
        return AckResult(Code.UNKNOWN_TOPIC_OR_PARTITION, _NOT_HERE)
    valid = [each for each in read if each is not None]
    try:
        loaded.check_state()
        return _Pending(loaded, loaded.check_acknowledgements(key.member_id, valid))
    except Refused as refused:
        shares.drop_fenced(key.group_id, target)
        return AckResult(refused.code, refused.message or None)


def _is_ascending(batches: Sequence[AckBatch]) -> bool:
    pairs = pairwise(batches)
    return all(after.first_offset >= before.last_offset for before, after in pairs)


def _read_batch(call: Call, batch: AckBatch) -> Acknowledgement | None:
    """Return an acknowledgement, or None if it is invalid whatever the state of the records."""
    first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
    renewed = call.version >= _RENEWED_SINCE and call.request.is_renew_ack
    most = AckType.RENEW if renewed else AckType.REJECT
    if first > last or len(types) not in (1, last - first + 1):
        return None
    if not all(AckType.GAP <= each <= most for each in types):
        return None
    return Acknowledgement(first, last, [AckType(each) for each in types])
