"""The check of new connections by a real Kafka (KIP-1242)."""

from typing import Any

import pytest

from aiokclient import AnyBroker, Client
from aiokclient.errors import DisconnectedError
from aiokclient.events import ClusterChanged, Rebootstrapped
from aiokclient.network.pool import Purpose
from aiokclient.protocol import ApiKey, messages

VERSION = ApiKey.API_VERSIONS


async def read_events(client: Client, use: Any) -> list[Any]:
    """Run `use()`, close the client, and return all events of the client until then."""
    events = client.events()
    await use()
    await client.close()
    return [each async for each in events]


@pytest.mark.fault(26)
async def test_broker_refuses_a_connection_that_is_meant_for_another_cluster(kafka: Any) -> None:
    client = Client(bootstrap_servers=kafka.bootstrap)
    await client.start()
    identity = client.cluster._metadata_requests.identity
    present = identity.cluster_id
    identity.cluster_id = "another-cluster-------"  # From now on, another id is expected.

    async def use() -> None:
        await client.cluster.brokers.find_pool(1).get_connection(Purpose.CONTROL)
        with pytest.raises(DisconnectedError, match="is not broker 1 of this cluster"):
            await client.cluster.connect(1, Purpose.PRODUCE)
        response = await client.request(messages.MetadataRequest(topics=[]), to=AnyBroker())
        assert response.cluster_id == present
        assert (await client.cluster.connect(1, Purpose.PRODUCE)).broker.node_id == 1

    found = await read_events(client, use)
    assert [each.trigger for each in found if isinstance(each, Rebootstrapped)] == ["required"]
    assert [each.new_cluster_id for each in found if isinstance(each, ClusterChanged)] == [present]


async def test_each_version_of_kafka_accepts_the_ids_or_ignores_them(
    kafka: Any, kafka_old: Any
) -> None:
    for cluster, newest in ((kafka, 5), (kafka_old, 4)):
        client = Client(bootstrap_servers=cluster.bootstrap)
        await client.start()

        async def use(client: Client = client, newest: int = newest) -> None:
            connection = await client.cluster.connect(1, Purpose.PRODUCE)
            assert connection.broker.api_versions[VERSION][1] == newest

        found = await read_events(client, use)
        assert not [each for each in found if isinstance(each, Rebootstrapped)]
