"""The lag of groups whose partitions have no end that a broker could return."""

import pytest
from world import World, simulate

from aiokclient import Admin, TopicPartition
from aiokclient.admin import PartitionLag
from aiokclient.errors import ApiTimeoutError, LeaderNotAvailableError

T0, U0 = TopicPartition("t", 0), TopicPartition("u", 0)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_group_lag_has_no_end_for_a_topic_that_was_deleted(protocol: str) -> None:
    """Members own the partitions of a deleted topic until they notice it."""

    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"1", b"2"])
        async with (
            Admin(**world.options()) as admin,
            world.consumer(
                "t", "u", group_id="g", group_protocol=protocol, enable_auto_commit=False
            ) as consumer,
        ):
            while set(consumer.assignment()) != {T0, U0}:
                await consumer.poll(timeout=0.1)
            await consumer.commit({T0: 1})
            (await admin.delete_topics(["u"])).raise_for_errors()
            began = world.now
            lags = (await admin.group_lag(["g"])).raise_for_errors()["g"]
            assert world.now - began < 10
            assert (lags[T0].committed, lags[T0].end, lags[T0].lag) == (1, 2, 1)
            if U0 in lags:  # A coordinator of the newer protocol takes it away at once.
                assert (lags[U0].end, lags[U0].lag) == (None, None)
            assert protocol == "consumer" or U0 in lags

    simulate(scenario, topics={"t": 1, "u": 1})


def test_group_lag_has_the_error_of_a_partition_without_leader() -> None:
    async def scenario(world: World) -> None:
        world.cluster.move_leader("t", to=1)
        world.cluster.move_leader("u", to=2)
        async with Admin(**world.options()) as admin:
            (await admin.alter_consumer_group_offsets("g", {T0: 0})).raise_for_errors()
            (await admin.alter_consumer_group_offsets("h", {U0: 0})).raise_for_errors()
            coordinators = {
                each.coordinator.node_id for each in (await admin.list_groups()).values()
            }
            lost = next(node for node in (1, 2) if node not in coordinators)
            world.cluster.stop(lost)
            began = world.now
            results = await admin.group_lag(["g", "h"], timeout=5)
            assert world.now - began < 8
            failed, whole = ("g", "h") if lost == 1 else ("h", "g")
            (tp,) = (T0 if whole == "g" else U0,)
            assert results[whole] == {tp: PartitionLag(0, 0, 0)}
            error = results[failed]
            assert isinstance(error, ApiTimeoutError | LeaderNotAvailableError)
            assert ("t-0" if failed == "g" else "u-0") in str(error)

    simulate(scenario, brokers=3, topics={"t": 1, "u": 1}, replication=1)
