"""The default partitioner, and the hash of keys."""

from __future__ import annotations

import random
from collections.abc import Sequence

from aiokclient import murmur2 as signed_murmur2


class DefaultPartitioner:
    """Kafka's choice of a partition: by the hash of the key, or any for a record without one.

    A producer that has this partitioner leaves the choice to the native one: the same partition for
    each key, and for records without a key one partition for each batch instead of one for each
    record.
    """

    @classmethod
    def __call__(
        cls, key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]
    ) -> int:
        """Return the partition of a key; without a key, any that is available."""
        if key is None:
            return random.choice(available or all_partitions)
        return all_partitions[(murmur2(key) & 0x7FFFFFFF) % len(all_partitions)]


def murmur2(data: bytes) -> int:
    """Return the hash of a key as Kafka computes it, as a number from 0 to 2**32 - 1."""
    return signed_murmur2(bytes(data)) & 0xFFFFFFFF
