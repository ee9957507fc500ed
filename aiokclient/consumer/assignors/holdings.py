"""Who holds what when a rebalance begins, out of what the members say.

Members may contradict each other: one that missed a generation still believes in what it had. Of
several claims to a partition the one of the latest generation is right; where two members claim
it for the same generation, neither is believed.

What the eager `sticky` strategy sends along is in its user data, as its members hold nothing while
they join (KIP-54); `cooperative-sticky` needs only the generation there, for clients that have no
field for it in the subscription (KIP-429, KIP-792). Both are written as Kafka's own classes do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from aiokclient.errors import ProtocolError
from aiokclient.protocol.schema import Message, Struct, array, int32, string
from aiokclient.types import TopicPartition

__all__ = [
    "NO_GENERATION",
    "Holding",
    "generation_data",
    "owners",
    "read_generation",
    "read_holding",
    "sticky_data",
]

NO_GENERATION = -1
GENERATION_BYTES = 4


class Holding(NamedTuple):
    """What a member says that it has, and since which generation."""

    partitions: Sequence[TopicPartition] = ()
    generation: int = NO_GENERATION


def owners(holdings: Mapping[str, Holding]) -> dict[TopicPartition, str]:
    """The member whose claim is right, for each partition that has one."""
    best: dict[TopicPartition, tuple[int, str | None]] = {}
    for member, (partitions, generation) in holdings.items():
        for partition in dict.fromkeys(partitions):
            known, _ = best.get(partition, (NO_GENERATION - 1, None))
            if generation > known:
                best[partition] = generation, member
            elif generation == known:
                best[partition] = generation, None
    return {partition: member for partition, (_, member) in best.items() if member is not None}


class _Topic(Struct):
    topic: str = string()
    partitions: list[int] = array(int32)


class _StickyData(Message, versions="0-1", flexible="none"):
    previous_assignment: list[_Topic] = array(_Topic)
    generation: int = int32("1+", default=NO_GENERATION, ignorable=True)


class _GenerationData(Message, versions="0", flexible="none"):
    generation: int = int32(default=NO_GENERATION)


def sticky_data(holding: Holding) -> bytes:
    """The user data of `sticky`."""
    topics: dict[str, list[int]] = {}
    for topic, index in holding.partitions:
        topics.setdefault(topic, []).append(index)
    previous = [_Topic(topic=topic, partitions=indexes) for topic, indexes in topics.items()]
    message = _StickyData(previous_assignment=previous, generation=holding.generation)
    return b"".join(message.encode(1))


def read_holding(user_data: bytes | None) -> Holding:
    """What `sticky` sent, without a generation if its client is old; nothing if it is damaged."""
    for version in (1, 0):
        try:
            data, _ = _StickyData.decode_from(user_data or b"", 0, version)
        except ProtocolError:
            continue
        found = [TopicPartition(t.topic, i) for t in data.previous_assignment for i in t.partitions]
        return Holding(found, max(data.generation, NO_GENERATION))
    return Holding()


def generation_data(generation: int) -> bytes:
    """The user data of `cooperative-sticky`."""
    return b"".join(_GenerationData(generation=generation).encode(0))


def read_generation(user_data: bytes | None) -> int:
    """What `cooperative-sticky` sent, -1 for nothing or damaged bytes.

    librdkafka sends what `sticky` does.
    """
    if user_data is None or len(user_data) != GENERATION_BYTES:
        return read_holding(user_data).generation
    return max(_GenerationData.decode(user_data, 0).generation, NO_GENERATION)
