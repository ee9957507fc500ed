"""The owners of partitions when a rebalance begins, determined from what the members report.

Members may contradict each other: a member that missed a generation still reports the partitions
that it had before. If several members claim a partition, the claim of the latest generation
counts. If two members claim it for the same latest generation, the partition has no owner.

Members of the eager `sticky` strategy own nothing while they join, so they send their previous
partitions as user data (KIP-54). `cooperative-sticky` sends only the generation as user data, for
clients whose subscriptions have no field for it (KIP-429, KIP-792). Both formats are those of
Kafka's own classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aiokclient.errors import ProtocolError
from aiokclient.protocol.schema import Message, Struct, array, int32, string
from aiokclient.types import TopicPartition
from aiokclient.types.named_tuple import NamedTuple

NO_GENERATION = -1
GENERATION_BYTES = 4


class Holding(NamedTuple):
    """The partitions that a member reports, and the generation in which they were assigned."""

    partitions: Sequence[TopicPartition] = ()
    generation: int = NO_GENERATION


def owners(holdings: Mapping[str, Holding]) -> dict[TopicPartition, str]:
    """Return the owner of each partition that has one."""
    best: dict[TopicPartition, tuple[int, str | None]] = {}
    for member, (partitions, generation) in holdings.items():
        for partition in dict.fromkeys(partitions):
            known, _ = best.get(partition, (NO_GENERATION - 1, None))
            if generation > known:
                best[partition] = generation, member
            elif generation == known:
                best[partition] = generation, None
    return {partition: member for partition, (_, member) in best.items() if member is not None}


class _StickyTopic(Struct):
    topic: str = string()
    partitions: list[int] = array(int32)


class _StickyData(Message, versions="0-1", flexible="none"):
    previous_assignment: list[_StickyTopic] = array(_StickyTopic)
    generation: int = int32("1+", default=NO_GENERATION, ignorable=True)


class _GenerationData(Message, versions="0", flexible="none"):
    generation: int = int32(default=NO_GENERATION)


def sticky_data(holding: Holding) -> bytes:
    """Return the user data that a member with the `sticky` assignor sends."""
    topics: dict[str, list[int]] = {}
    for topic, index in holding.partitions:
        topics.setdefault(topic, []).append(index)
    previous = [_StickyTopic(topic=topic, partitions=indexes) for topic, indexes in topics.items()]
    message = _StickyData(previous_assignment=previous, generation=holding.generation)
    return b"".join(message.encode(1))


def read_holding(user_data: bytes | None) -> Holding:
    """Decode the user data of `sticky`.

    The generation is -1 if the user data has none, as with old clients. The holding is empty if the
    user data is damaged.
    """
    for version in (1, 0):
        try:
            data, _ = _StickyData.decode_from(user_data or b"", 0, version)
        except ProtocolError:
            continue
        found = [TopicPartition(t.topic, i) for t in data.previous_assignment for i in t.partitions]
        return Holding(found, max(data.generation, NO_GENERATION))
    return Holding()


def generation_data(generation: int) -> bytes:
    """Return the user data of `cooperative-sticky`."""
    return b"".join(_GenerationData(generation=generation).encode(0))


def read_generation(user_data: bytes | None) -> int:
    """Return the generation in the user data of `cooperative-sticky`, or -1 if there is none.

    Damaged user data gives -1, too. librdkafka sends the format of `sticky`, which is also read.
    """
    if user_data is None or len(user_data) != GENERATION_BYTES:
        return read_holding(user_data).generation
    return max(_GenerationData.decode(user_data, 0).generation, NO_GENERATION)
