"""Clients that push metrics to the embedded cluster, in virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Container, Coroutine, Sequence
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from world import World, simulate

from aiokclient import Admin
from aiokclient.admin import ConfigResource
from aiokclient.metrics import Labels
from aiokclient.protocol import ApiKey
from aiokclient.telemetry.collector import Collected
from aiokclient.telemetry.points import Point, PointKind
from aiokclient.testing import ClientTelemetryContext, ClientTelemetryPayload

ASK, PUSH = ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY
NAME = "org.apache.kafka.producer.record.send.total"
SUMS = "org.apache.kafka.fake.sum"
MAIN = "main"
"""The client id of the client under test."""
INTERVAL_S = 10.0
LONG_S = 7_300.0
"""A number of seconds that is greater than any wait of the reporter."""
RESOURCE: Labels = (("group_id", "g"),)


class Push(NamedTuple):
    """A push as it reached the receiver."""

    at: float
    instance_id: UUID
    terminating: bool
    metrics: Any

    @property
    def sums(self) -> Counter[str]:
        """The values of all sums. A key is the name and the label values, joined with dots."""
        found: Counter[str] = Counter()
        for metric, _ in self._metrics():
            for point in metric.sum.data_points:
                labels = [attribute.value.string_value for attribute in point.attributes]
                found[".".join([metric.name, *labels])] += point.as_double
        return found

    @property
    def taken(self) -> set[int]:
        """The times at which the sums were taken."""
        return {p.time_unix_nano for metric, _ in self._metrics() for p in metric.sum.data_points}

    @property
    def names(self) -> set[str]:
        return {metric.name for metric, _ in self._metrics()}

    def _metrics(self) -> list[tuple[Any, Any]]:
        return [
            (metric, each.resource)
            for each in self.metrics.resource_metrics
            for scope in each.scope_metrics
            for metric in scope.metrics
        ]


class Pushed:
    """A receiver that keeps all pushes of the client under test."""

    def __init__(self) -> None:
        self.pushes: list[Push] = []

    def export(self, context: ClientTelemetryContext, payload: ClientTelemetryPayload) -> None:
        if context.client_id == MAIN:
            metrics = MetricsData.FromString(payload.data)
            now = asyncio.get_running_loop().time()
            push = Push(now, context.client_instance_id, payload.terminating, metrics)
            self.pushes.append(push)

    @property
    def total(self) -> Counter[str]:
        return sum((push.sums for push in self.pushes), Counter())


class FakeCollector:
    """A source of metrics: one sum and `sums` more, and `more` gauges.

    The sums increase at each collection.
    """

    def __init__(self, more: int = 0) -> None:
        self.value = 0
        self.more = more
        self.sums = 0
        """The number of additional sums, which have no labels. A test may set it."""
        self.collected = 0
        self.restarted = 0
        self.error: Exception | None = None

    def take_metrics(self, wanted: Container[str]) -> Collected:
        if self.error is not None:
            raise self.error
        self.collected += 1
        self.value += 1
        points = [Point(NAME, PointKind.SUM, self.value, (), RESOURCE)]
        for number in range(self.more):
            labels = (("topic", "t"), ("partition", str(number)))
            points.append(Point("org.apache.kafka.fake.lag", PointKind.GAUGE, number, labels))
        for number in range(self.sums):
            points.append(Point(f"{SUMS}.{number}", PointKind.SUM, self.value))
        points = [point for point in points if point.name in wanted]
        return Collected(None, points, len(points))

    def begin_span(self) -> None:
        self.restarted += 1


class Reports:
    """The telemetry requests and pushes of the client under test.

    The metrics that this client pushes come from `fake`.
    """

    def __init__(self, world: World, pushed: Pushed, fake: FakeCollector) -> None:
        self.world, self.pushed, self.fake = world, pushed, fake

    @property
    def requests(self) -> list[tuple[float, ApiKey, int, Any]]:
        """The time, API, broker, and message of each telemetry request."""
        return [
            (each.at, each.api, each.broker, each.message)
            for each in self.world.cluster.requests
            if each.api in (ASK, PUSH) and each.client_id == MAIN
        ]

    def times(self, api: ApiKey) -> list[float]:
        return [at for at, each, _, _ in self.requests if each is api]

    def messages(self, api: ApiKey) -> list[Any]:
        return [message for _, each, _, message in self.requests if each is api]

    async def until(self, count: int, api: ApiKey | None = None, timeout_s: float = 4_000) -> None:
        """Wait until the client has sent `count` telemetry requests, of any API or of `api`."""

        def are_sent() -> bool:
            return sum(api in (None, each) for _, each, _, _ in self.requests) >= count

        if not are_sent():
            await self.world.cluster.until(are_sent, timeout_s)
            await asyncio.sleep(0.01)  # The response to the last one arrives.

    def check_nothing_is_lost(self) -> None:
        """Check that the sum over all accepted pushes equals the last value of the source."""
        assert self.pushed.total[NAME] == self.fake.value

    async def subscribe(
        self, metrics: str = "*", interval_s: float = INTERVAL_S, name: str = "all"
    ) -> None:
        """Subscribe to metrics of all clients."""
        options: dict[str, str | int] = {"metrics": metrics, "interval.ms": int(interval_s * 1000)}
        async with Admin(**self.world.options(enable_metrics_push=False)) as admin:
            resource = ConfigResource.client_metrics(name)
            (await admin.alter_configs({resource: {**options}})).raise_for_errors()

    def options(self, **more: Any) -> dict[str, Any]:
        return self.world.options(client_id=MAIN, **more)


Scenario = Callable[[Reports], Coroutine[Any, Any, None]]


def simulate_reports(
    monkeypatch: pytest.MonkeyPatch,
    scenario: Scenario,
    *,
    subscribed: bool = True,
    more: int = 0,
    **options: Any,
) -> None:
    """Run a scenario on brokers that receive metrics. If `subscribed`, they request all metrics."""
    pushed, fake = Pushed(), FakeCollector(more)
    collector = "aiokclient.cluster.client.ClusterClient.make_collector"
    monkeypatch.setattr(collector, lambda client: fake)

    async def run(world: World) -> None:
        reports = Reports(world, pushed, fake)
        if subscribed:
            await reports.subscribe()
        await scenario(reports)

    simulate(run, telemetry=pushed, **options)


def warnings(records: Sequence[Any]) -> list[str]:
    """Return the warnings about client metrics."""
    return [r.getMessage() for r in records if r.name == "aiokclient.telemetry" and r.levelno > 20]
