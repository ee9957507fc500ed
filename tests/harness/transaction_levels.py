"""The level of the feature transaction.version of a real Kafka."""

from __future__ import annotations

import asyncio

from kafka_harness import KafkaCluster

from aiokclient import Broker, Client, Controller
from aiokclient.protocol import messages
from aiokclient.protocol.messages.update_features import FeatureUpdateKey

NAME = "transaction.version"
DEADLINE = 40.0


async def set_level(kafka: KafkaCluster, level: int) -> None:
    """Change the level of transaction.version, and wait until all three brokers announce it."""
    change = FeatureUpdateKey(feature=NAME, max_version_level=level, upgrade_type=1 if level else 3)
    async with Client(bootstrap_servers=kafka.bootstrap) as client, asyncio.timeout(DEADLINE):
        request = messages.UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[change])
        response = await client.request(request, Controller())
        assert response.error_code == 0, response
    await until_level(kafka, level)


async def until_level(kafka: KafkaCluster, level: int) -> None:
    """Wait until all three brokers announce a level of transaction.version."""
    asked = messages.ApiVersionsRequest(client_software_name="test", client_software_version="1")
    async with Client(bootstrap_servers=kafka.bootstrap) as client, asyncio.timeout(DEADLINE):
        for node in (1, 2, 3):
            announced = -1
            while announced != level:
                versions = await client.request(asked, Broker(node))
                levels = {each.name: each.max_version_level for each in versions.finalized_features}
                announced = levels.get(NAME, 0)
