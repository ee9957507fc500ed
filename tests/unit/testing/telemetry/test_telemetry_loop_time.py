"""Tests that pushes of many clients do not hold the loop of the embedded cluster."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from loop_time import check_held, held_times, measured

from aiokclient.config.codecs import Compression
from aiokclient.protocol import messages
from aiokclient.record.compression import compress
from aiokclient.testing import EmbeddedCluster, TopicTelemetryReceiver


@measured
@pytest.mark.parametrize(("connections", "instances"), [(1_000, 1), (50, 20)])
async def test_a_thousand_clients_push_without_holding_the_loop(
    connections: int, instances: int, telemetry_broker: Any
) -> None:
    metrics = b"".join(b"org.apache.kafka.producer.metric.%d" % number for number in range(2000))
    packed = {codec: bytes(compress(codec, metrics)) for codec in Compression}

    def subscribed(broker: Any) -> list[tuple[Any, list[Any]]]:
        """Return the clients of each connection, and their pushes."""
        found = []
        for number in range(connections):
            client = broker.client(f"client-{number}")
            codec = Compression(number % len(Compression))
            requests = []
            for _ in range(instances):
                answer = client.ask(identity := uuid.uuid4())
                requests.append(
                    messages.PushTelemetryRequest(
                        client_instance_id=identity,
                        subscription_id=answer.subscription_id,
                        compression_type=codec,
                        metrics=packed[codec],
                    )
                )
            found.append((client, requests))
        return found

    def push(clients: list[tuple[Any, list[Any]]]) -> list[int]:
        """Push once from each client, all at the same time, and return the error codes."""
        for client, requests in clients:
            client.connection.send_all(*requests)
        return [
            client.connection.receive().error_code for client, requests in clients for _ in requests
        ]

    async with EmbeddedCluster(telemetry=TopicTelemetryReceiver("metrics")) as cluster:
        broker = await asyncio.to_thread(telemetry_broker, cluster.address(1))
        await asyncio.to_thread(broker.subscribe, "all", metrics="*")
        with held_times(collecting=False) as times:
            clients = await asyncio.to_thread(subscribed, broker)
            codes = await asyncio.to_thread(push, clients)
            check_held(times)
        assert codes == [0] * connections * instances
        assert len(cluster.records("metrics", 0)) == connections * instances
