"""Tests that pushes of many clients do not hold the loop of the embedded cluster."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from loop_time import LIMIT_S, held_times

from aiokclient.codecs import Compression
from aiokclient.protocol import messages
from aiokclient.record.compression import compress
from aiokclient.testing import EmbeddedCluster, TopicTelemetryReceiver

CONNECTIONS, CLIENTS = 50, 20


async def test_a_thousand_clients_push_without_holding_the_loop(telemetry_place: Any) -> None:
    metrics = b"".join(b"org.apache.kafka.producer.metric.%d" % number for number in range(2000))
    packed = {codec: bytes(compress(codec, metrics)) for codec in Compression}

    def push(place: Any) -> list[int]:
        """Push once from each client, all at the same time, and return the error codes."""
        codes = []
        clients = [place.client(f"client-{number}") for number in range(CONNECTIONS)]
        for number, client in enumerate(clients):
            codec = Compression(number % len(Compression))
            requests = []
            for _ in range(CLIENTS):
                answer = client.ask(identity := uuid.uuid4())
                requests.append(
                    messages.PushTelemetryRequest(
                        client_instance_id=identity,
                        subscription_id=answer.subscription_id,
                        compression_type=codec,
                        metrics=packed[codec],
                    )
                )
            client.connection.send_all(*requests)
        for client in clients:
            codes += [client.connection.receive().error_code for _ in range(CLIENTS)]
        return codes

    async with EmbeddedCluster(telemetry=TopicTelemetryReceiver("metrics")) as cluster:
        place = await asyncio.to_thread(telemetry_place, cluster.address(1))
        await asyncio.to_thread(place.subscribe, "all", metrics="*")
        with held_times(collecting=False) as times:
            codes = await asyncio.to_thread(push, place)
            longest = max(times)
        assert codes == [0] * CONNECTIONS * CLIENTS
        assert len(cluster.records("metrics", 0)) == CONNECTIONS * CLIENTS
    assert longest < LIMIT_S
