"""The time for which pushes of client metrics block a client's and the embedded cluster's loop."""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from loop_time import held_times, iteration_times

from aiokclient import Admin, Producer
from aiokclient.admin import ConfigResource
from aiokclient.protocol import messages
from aiokclient.protocol.framing import ClientPipeline
from aiokclient.testing import EmbeddedCluster, TopicTelemetryReceiver

TOPIC = "client-metrics"
TOPICS = PARTITIONS = 100
PUSHES = 20
CLIENTS = 1_000
PAYLOAD = 50_000
"""Bytes of a push."""

Held = tuple[float, float]
"""CPU seconds of the longest callback, and of the longest iteration of the loop."""


class Measured:
    """A measurement of the callbacks and the iterations of the current thread's loop."""

    def __enter__(self) -> Measured:
        self._stack = ExitStack()
        self.callbacks = self._stack.enter_context(held_times(collecting=False))
        self.iterations = self._stack.enter_context(iteration_times(collecting=False))
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @property
    def longest(self) -> Held:
        return max(self.callbacks), max(self.iterations)


async def producer_pushes() -> Held:
    """Measure the pushes of all metrics of a producer with 100 topics of 100 partitions."""
    names = [f"topic-{number}" for number in range(TOPICS)]
    cluster = EmbeddedCluster(
        topics=dict.fromkeys(names, PARTITIONS), telemetry=TopicTelemetryReceiver(TOPIC)
    )
    async with cluster as brokers:
        await subscribe(brokers.bootstrap_servers, 100)
        async with Producer(bootstrap_servers=brokers.bootstrap_servers) as producer:
            for partition in range(PARTITIONS):
                sent = [producer.send(name, b"x", partition=partition) for name in names]
                await producer.gather(sent)
            await pushed(brokers, 2)  # The first push imports the package that encodes it.
            with Measured() as measured:
                await pushed(brokers, PUSHES)
                return measured.longest


async def pushed(brokers: EmbeddedCluster, more: int) -> None:
    """Wait until the client has made `more` additional pushes."""
    wanted = len(brokers.records(TOPIC, 0)) + more
    while len(brokers.records(TOPIC, 0)) < wanted:  # noqa: ASYNC110
        await asyncio.sleep(0.1)


async def cluster_receives() -> Held:
    """Measure the pushes of 1,000 connections at the same time, to the embedded cluster."""
    async with EmbeddedCluster(telemetry=TopicTelemetryReceiver(TOPIC)) as brokers:
        await subscribe(brokers.bootstrap_servers, 300_000)
        with ExitStack() as stack:
            address = brokers.address(1)
            clients = await asyncio.to_thread(connected, address, stack)
            pushes = await asyncio.to_thread(lambda: list(asked(clients)))
            with Measured() as measured:
                await asyncio.to_thread(push_all, clients, pushes)
                return measured.longest


async def subscribe(servers: str, interval_ms: int) -> None:
    async with Admin(bootstrap_servers=servers, enable_metrics_push=False) as admin:
        configs = {"metrics": "*", "interval.ms": str(interval_ms)}
        resource = ConfigResource.client_metrics("everything")
        (await admin.alter_configs({resource: configs})).raise_for_errors()


Client = tuple[socket.socket, ClientPipeline]


def connected(address: tuple[str, int], stack: ExitStack) -> list[Client]:
    return [
        (stack.enter_context(socket.create_connection(address)), ClientPipeline(f"client-{number}"))
        for number in range(CLIENTS)
    ]


def asked(clients: Sequence[Client]) -> Iterator[messages.PushTelemetryRequest]:
    """Request the subscription of each client, and yield the client's next push request."""
    payload = bytes(PAYLOAD)
    for client in clients:
        identity = uuid.uuid4()
        request = messages.GetTelemetrySubscriptionsRequest(client_instance_id=identity)
        send(client, request)
        answer = receive(client)
        yield messages.PushTelemetryRequest(
            client_instance_id=identity,
            subscription_id=answer.subscription_id,
            metrics=payload,
        )


def push_all(clients: Sequence[Client], pushes: Sequence[messages.PushTelemetryRequest]) -> None:
    for client, push in zip(clients, pushes, strict=True):
        send(client, push)
    for client in clients:
        code = receive(client).error_code
        if code:
            raise RuntimeError(f"A push was refused with the error code {code}.")


def send(client: Client, request: Any) -> None:
    _, segments = client[1].encode_request(request, request.max_version)
    client[0].sendall(b"".join(segments))


def receive(client: Client) -> Any:
    size = int.from_bytes(read(client[0], 4), "big")
    frame = memoryview(read(client[0], size))
    return client[1].match_response(frame).decode(frame)


def read(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise RuntimeError("The embedded cluster has closed a connection.")
        data += more
    return data
