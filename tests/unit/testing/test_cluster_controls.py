"""Tests of the controls that wipe an embedded cluster, and that delay a broker's metadata."""

from __future__ import annotations

import pytest
from world import World, simulate

from aiokclient.cluster.targets import AnyBroker, Broker
from aiokclient.protocol.messages import InitProducerIdRequest, MetadataRequest
from aiokclient.protocol.messages.metadata import MetadataRequestTopic


@pytest.mark.parametrize("same_id", [False, True])
def test_wipe_leaves_an_empty_cluster_at_the_same_addresses(same_id: bool) -> None:
    async def scenario(world: World) -> None:
        cluster = world.cluster
        cluster.produce("t", [b"old"])
        before = cluster.bootstrap_servers, cluster.cluster_id, cluster.topic_id("t")
        async with world.client() as client:
            request = InitProducerIdRequest(
                transactional_id=None, transaction_timeout_ms=1, producer_id=-1
            )
            first = await client.request(request, AnyBroker())
            cluster.bump_epoch("t")
            cluster.stop(2)
            cluster.wipe({"t": 2}, same_id=same_id)
            again = await client.request(request, AnyBroker())
            assert again.producer_id == first.producer_id
        assert cluster.bootstrap_servers == before[0]
        assert (cluster.cluster_id == before[1]) is same_id
        assert cluster.topic_id("t") != before[2]
        assert cluster.topics == {"t": 2}
        assert cluster.records("t") == []
        assert cluster.leader_epoch("t", 0) == 0
        assert sorted(cluster.isr("t", 0)) == [1, 2]

    simulate(scenario, brokers=2)


def test_hold_metadata_freezes_the_metadata_of_one_broker() -> None:
    async def scenario(world: World) -> None:
        cluster = world.cluster
        old = cluster.topic_id("t")

        async def told(node: int) -> list[tuple[object, int, list[int]]]:
            request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
            answer = await client.request(request, Broker(node))
            return [
                (each.topic_id, each.error_code, [part.leader_epoch for part in each.partitions])
                for each in answer.topics or ()
            ]

        async with world.client() as client:
            await client.request(MetadataRequest(topics=None), AnyBroker())
            with cluster.hold_metadata(2):
                cluster.bump_epoch("t")
                assert await told(1) == [(old, 0, [1])]
                assert await told(2) == [(old, 0, [0])]
                cluster.delete_topic("t")
                assert (await told(1))[0][1] == 3
                new = cluster.create_topic("t", 3)
                assert await told(1) == [(new, 0, [0, 0, 0])]
                assert await told(2) == [(old, 0, [0])]
            assert await told(2) == [(new, 0, [0, 0, 0])]

    simulate(scenario, brokers=2)
