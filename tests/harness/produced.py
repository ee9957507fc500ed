"""The log of topic `t` in a simulated cluster, as a producer wrote it."""

from __future__ import annotations

from world import World

from aiokclient.record.batch import walk


def numbers(world: World, partition: int = 0) -> list[tuple[int, int, int]]:
    """Return producer id, epoch and first sequence of each batch in the log."""
    batches = [
        walk(buffer)[0] for _, buffer, _ in world.cluster._data._read_batches("t", partition, 0)
    ]
    return [(b.producer_id, b.producer_epoch, b.base_sequence) for b in batches]


def values(world: World, partition: int | None = None) -> list[bytes | None]:
    """Return the values in the log of a partition, or of all partitions if none is given."""
    return [record.value for record in world.cluster.records("t", partition)]
