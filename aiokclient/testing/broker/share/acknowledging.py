"""The acknowledgements in a ShareFetch or a ShareAcknowledge request, and their results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.share.records import Acknowledgement, AckType
from aiokclient.testing.broker.share.sessions import SessionKey, SharePartitionKey

if TYPE_CHECKING:
    from aiokclient.protocol.messages import share_acknowledge, share_fetch
    from aiokclient.testing.broker.call import Call

    AckBatch = share_acknowledge.AcknowledgementBatch | share_fetch.AcknowledgementBatch

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


def acknowledge_partition(
    call: Call, key: SessionKey, target: SharePartitionKey, batches: Sequence[AckBatch]
) -> AckResult:
    """Apply the acknowledgements of one partition: all of them, or none."""
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
    try:
        loaded.acknowledge(key.member_id, [each for each in read if each is not None])
    except Refused as refused:
        shares.drop_fenced(key.group_id, target)
        return AckResult(refused.code, refused.message or None)
    return AckResult(Code.NONE)


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
