"""The 32-bit murmur2 hash by which Kafka's clients map keys to partitions, equal to Java's."""

from __future__ import annotations

import struct

from aiokclient._native import twin

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C


@twin("record")
def murmur2(data: bytes | bytearray | memoryview) -> int:
    """Return Kafka's murmur2 hash of `data` as a signed 32-bit integer, as Java's `Utils.murmur2`.

    The default partitioner puts a record with a key, on all clients that use Kafka's partitioner,
    into the partition `(murmur2(key) & 0x7FFFFFFF) % partitions`, where `key` is the serialized key
    and `partitions` the number of the topic's partitions.
    """
    if type(data) is not bytes:
        data = memoryview(data).cast("B")
    length = len(data)
    words = length >> 2
    h = _SEED ^ length
    for k in struct.unpack_from(f"<{words}I", data):
        k = k * _M & _MASK
        h = (h * _M & _MASK) ^ ((k ^ k >> 24) * _M & _MASK)
    if length & 3:
        tail = int.from_bytes(data[words << 2 :], "little")
        h = (h ^ tail) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h & 0x80000000 else h


def to_positive(number: int) -> int:
    """Return `number` without its sign bit, as Kafka does before it computes a partition."""
    return number & 0x7FFFFFFF
