"""Fixtures: raw clients that request subscriptions and push metrics."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from parity import named

from aiokclient.protocol import messages
from aiokclient.protocol.framing import ClientPipeline
from aiokclient.protocol.messages import incremental_alter_configs as incremental
from aiokclient.testing import (
    ClientTelemetryContext,
    ClientTelemetryPayload,
    EmbeddedCluster,
)

CLIENT_METRICS = 16
SET, DELETE = 0, 1
PATIENCE_S = 60.0
NO_ID = uuid.UUID(int=0)


class Collector:
    """A receiver that keeps the pushes, or raises its `error`."""

    def __init__(self) -> None:
        self.pushes: list[tuple[ClientTelemetryContext, ClientTelemetryPayload]] = []
        self.error: Exception | None = None

    def export(self, context: ClientTelemetryContext, payload: ClientTelemetryPayload) -> None:
        if self.error is not None:
            raise self.error
        self.pushes.append((context, payload))


class TelemetryClient:
    """A raw client on a connection of its own."""

    def __init__(
        self, connection: Any, client_id: str | None, software: tuple[str, str] | None = None
    ) -> None:
        self.connection = connection
        connection.pipeline = ClientPipeline(client_id)
        if software is not None:
            name, version = software
            request = messages.ApiVersionsRequest(
                client_software_name=name, client_software_version=version
            )
            assert connection.request(request, 3).error_code == 0

    def ask(self, instance_id: uuid.UUID = NO_ID) -> Any:
        request = messages.GetTelemetrySubscriptionsRequest(client_instance_id=instance_id)
        return self.connection.request(request)

    def push(
        self,
        instance_id: uuid.UUID,
        subscription_id: int,
        metrics: bytes = b"",
        *,
        codec: int = 0,
        terminating: bool = False,
    ) -> str:
        """Push metrics, and return the name of the error code."""
        request = messages.PushTelemetryRequest(
            client_instance_id=instance_id,
            subscription_id=subscription_id,
            terminating=terminating,
            compression_type=codec,
            metrics=metrics,
        )
        return named(self.connection.request(request).error_code)


class TelemetryBroker:
    """One broker: connections to it, and the subscriptions of its cluster."""

    def __init__(self, wire: Any, address: tuple[str, int]) -> None:
        self.wire, self.address = wire, address
        self.connection = wire.at(address)

    def client(
        self, client_id: str | None = "raw", software: tuple[str, str] | None = None
    ) -> TelemetryClient:
        return TelemetryClient(self.wire.at(self.address), client_id, software)

    def alter(self, name: str, changes: Sequence[tuple[str, int, str | None]]) -> Any:
        """Change the options of a subscription. A change is a tuple (name, operation, value)."""
        resource = incremental.AlterConfigsResource(
            resource_type=CLIENT_METRICS,
            resource_name=name,
            configs=[
                incremental.AlterableConfig(name=option, config_operation=operation, value=value)
                for option, operation, value in changes
            ],
        )
        request = messages.IncrementalAlterConfigsRequest(resources=[resource])
        (answer,) = self.connection.request(request).responses
        return answer

    def subscribe(self, name: str, **options: str) -> None:
        """Create a subscription, and wait until the broker uses it."""
        changes = [(key.replace("_", "."), SET, value) for key, value in options.items()]
        answer = self.alter(name, changes)
        assert answer.error_code == 0, answer
        self.until(lambda: name in self.names())

    def unsubscribe(self, *names: str) -> None:
        """Delete subscriptions, and wait until the broker does not use them any more."""
        for name in names:
            options = ("metrics", "interval.ms", "match")
            assert self.alter(name, [(each, DELETE, None) for each in options]).error_code == 0
        self.until(lambda: not set(names) & set(self.names()))

    def names(self) -> list[str]:
        request = messages.ListConfigResourcesRequest(resource_types=[CLIENT_METRICS])
        answer = self.connection.request(request)
        assert answer.error_code == 0, answer
        return [each.resource_name for each in answer.config_resources]

    @staticmethod
    def until(predicate: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not predicate():
            assert time.monotonic() < deadline


@pytest.fixture
def telemetry_broker(wire_to: Any) -> Any:
    """Return `telemetry_broker(address)`, which makes a `TelemetryBroker` for one broker."""
    wire = wire_to(None)
    return lambda address: TelemetryBroker(wire, address)


@pytest.fixture
def collector() -> Collector:
    return Collector()


@pytest.fixture
def telemetry_cluster(collector: Collector) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(telemetry=collector, seed=7) as cluster:
        yield cluster


@pytest.fixture
def broker(telemetry_cluster: EmbeddedCluster, telemetry_broker: Any) -> TelemetryBroker:
    found: TelemetryBroker = telemetry_broker(telemetry_cluster.address(1))
    return found
