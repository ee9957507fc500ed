"""Offsets that an application uses after its client has moved to another cluster."""

import asyncio
from typing import Any

import pytest
from two_clusters import EVERY_CLUSTER, EVERY_STRATEGY, in_two_clusters, read, replace_cluster
from world import World

from aiokclient import Client, Consumer, State, TopicPartition
from aiokclient.errors import ClusterChangedError, CommitFailedError

T = TopicPartition("t", 0)
GROUP: dict[str, Any] = {
    "group_id": "g",
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
}


@pytest.mark.parametrize("form", ["record", "records", "offsets", "everything", "topic"])
def test_commit_of_records_of_the_old_cluster_is_refused_in_the_new_one(form: str) -> None:
    """If the new cluster stored the old offsets, records that were never read would be skipped."""

    async def work(world: World, options: dict[str, Any]) -> None:
        world.cluster.produce("t", [b"old"] * 10)
        async with Consumer("t", **GROUP, **options) as consumer:
            records = await read(consumer, 10)
            replace_cluster(world, records=20)
            await consumer._cluster.updater.refresh(["t"], timeout=30)
            await asyncio.sleep(10)
            assert consumer.assignment()
            given = {
                "record": records[-1],
                "records": records,
                "offsets": {T: 10},
                "everything": None,
                "topic": "t",
            }[form]
            with pytest.raises(CommitFailedError, match="moved to another cluster") as caught:
                await consumer.commit(given)
            assert tuple(caught.value.partitions) == (T,)
            found = await read(consumer, 60)
            assert {each.offset for each in found if each.partition == 0} == set(range(20))
            await consumer.commit(found)
        stored = world.cluster.committed("g")
        assert {stored[TopicPartition("t", each)].offset for each in range(3)} == {20}

    in_two_clusters(work, {})


def test_commit_of_a_late_handler_is_refused_until_the_new_cluster_has_progressed() -> None:
    async def work(world: World, options: dict[str, Any]) -> None:
        world.cluster.produce("t", [b"old"] * 10)
        async with Consumer("t", **GROUP, **options) as consumer:
            late = (await read(consumer, 10))[-1]
            replace_cluster(world, records=5)
            await consumer._cluster.updater.refresh(["t"], timeout=30)
            found = await read(consumer, 15)
            with pytest.raises(CommitFailedError, match="moved to another cluster"):
                await consumer.commit(late)
            await consumer.commit(found)
            await consumer.commit()
            await consumer.commit({T: 3})
            await consumer.commit({T: 12})

    in_two_clusters(work, {})


@pytest.mark.parametrize("committed", [False, True])
def test_commit_of_partitions_that_were_assigned_by_hand_is_refused_too(committed: bool) -> None:
    async def work(world: World, options: dict[str, Any]) -> None:
        world.cluster.produce("t", [b"old"] * 10)
        async with Consumer(**GROUP, **options) as consumer:
            consumer.assign([T])
            records = await read(consumer, 10)
            if committed:
                await consumer.commit(records)
            replace_cluster(world, records=20)
            await consumer._cluster.updater.refresh(["t"], timeout=30)
            with pytest.raises(CommitFailedError, match="moved to another cluster"):
                await consumer.commit(records)
            assert (await read(consumer, 20))[0].offset == 0
            await consumer.commit()
        assert world.cluster.committed("g")[T].offset == 20

    in_two_clusters(work, {})


@EVERY_CLUSTER
@EVERY_STRATEGY
def test_range_of_the_old_cluster_does_not_continue_in_the_new_one(
    limits: dict[Any, Any], strategy: str
) -> None:
    async def work(world: World, options: dict[str, Any]) -> None:
        for _ in range(10):
            world.cluster.produce("t", [b"old"] * 10)
        async with Client(**options) as client:
            former, values = world.cluster.cluster_id, list[bytes]()

            async def read_all() -> None:
                async for batch in client.read_range(T, 0, 100, fetch_max_bytes=200):
                    values.extend(batch.column("value").to_pylist())
                    if len(values) == 30:
                        replace_cluster(world, records=200)
                        await client.cluster.updater.refresh(["t"], timeout=30)

            with pytest.raises(ClusterChangedError, match="while the range was read") as caught:
                await read_all()
            ids = (caught.value.old_cluster_id, caught.value.new_cluster_id)
            assert ids == (former, world.cluster.cluster_id)
            assert client.state is State.RUNNING
            assert set(values) == {b"old"}

    in_two_clusters(work, limits, strategy)
