"""The state of clients, as the metrics that they push show it to a cluster (KIP-714).

`Fleet` is a receiver for the embedded cluster. It sees clients of all languages in the same way:
by the names of Kafka's metrics in OTLP payloads. From these alone it finds out which client is
slow, which one fails, and which one has become silent. `fleet.py` runs the clients.
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from rich.table import Table
from rich.text import Text

from aiokclient.testing import ClientTelemetryContext, ClientTelemetryPayload

PREFIX = "org.apache.kafka."
LATENCY = "producer.request.latency.avg"  # milliseconds
ERRORS = "producer.record.error.total"
RECORDS = ("producer.record.send.total", "consumer.fetch.manager.records.consumed.total")
KINDS = ("producer", "consumer", "admin")
SLOW_MS = 200  # The lowest latency of a slow client.
SLOW_RATIO = 4  # The lowest ratio of its latency to that of the others.
SLOW_PUSHES = 3  # The number of its last pushes that must all have such a latency.
MISSED_PUSHES = 5  # The number of pushes that a client misses before it counts as silent.


class Push(NamedTuple):
    """One push, at a time in seconds. `values` has the metrics of the client as a whole."""

    at: float
    values: dict[str, float]
    series: int


class Finding(NamedTuple):
    """A problem of a client, and the time since which it exists."""

    what: str
    since: float


class PushedClient:
    """The metrics that one client has pushed."""

    def __init__(self, context: ClientTelemetryContext) -> None:
        self.name = context.client_id
        self.software = f"{context.software_name} {context.software_version}"
        self.pushes: list[Push] = []
        self.totals = Counter[str]()
        self.attributes: dict[str, str] = {}
        self.closed = False

    def add(self, at: float, data: bytes) -> None:
        """Add a payload.

        Its sums count only what is new since the previous payload, as the broker requests.
        """
        values, series = dict[str, float](), 0
        for metric in self._metrics(data):
            name = metric.name.removeprefix(PREFIX)
            points = metric.sum.data_points or metric.gauge.data_points
            series += len(points)
            for point in points:
                # A point without labels is about the whole client. Labels limit a point to a
                # part of it, such as a topic.
                if not point.attributes:
                    values[name] = float(getattr(point, point.WhichOneof("value")))
        self.totals.update({name: values[name] for name in (*RECORDS, ERRORS) if name in values})
        self.pushes.append(Push(at, values, series))

    def _metrics(self, data: bytes) -> Iterator[Any]:
        for resource in MetricsData.FromString(data).resource_metrics:
            for attribute in resource.resource.attributes:
                self.attributes[attribute.key] = attribute.value.string_value
            for scope in resource.scope_metrics:
                yield from scope.metrics

    @property
    def kind(self) -> str:
        """The kind of the client, by the names of its metrics and by its attributes."""
        names = {name for push in self.pushes for name in push.values}
        kind = " ".join(kind for kind in KINDS if any(name.startswith(kind) for name in names))
        if "transactional_id" in self.attributes:
            return f"transactional {kind}"
        group = self.attributes.get("group_id")
        return f"{kind} in {group}" if group else kind

    @property
    def records(self) -> int:
        """The number of records sent or received."""
        return sum(int(self.totals[name]) for name in RECORDS)

    @property
    def latencies(self) -> list[tuple[float, float]]:
        """The time and the latency of each push. NaN, which means no request, is left out."""
        found = [(push.at, push.values.get(LATENCY, math.nan)) for push in self.pushes]
        return [(at, latency) for at, latency in found if not math.isnan(latency)]


class Fleet:
    """A receiver of pushed metrics, with a mapping from instance ids to clients."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._changed = asyncio.Event()
        self._frozen = False
        self.clients: dict[object, PushedClient] = {}

    # -- receiving -----------------------------------------------------------------------------

    def export(self, context: ClientTelemetryContext, payload: ClientTelemetryPayload) -> None:
        """Take one push. The embedded cluster calls this in its event loop."""
        if self._frozen:
            return
        identity = context.client_instance_id
        client = self.clients.setdefault(identity, PushedClient(context))
        client.add(self._clock() - self._began, payload.data)
        client.closed = payload.terminating
        self._changed.set()

    def freeze(self) -> None:
        """Ignore all further pushes, such as those of clients that are being closed."""
        self._frozen = True

    async def until(self, predicate: Callable[[], bool]) -> None:
        """Wait until pushes have made the predicate true."""
        while not predicate():
            await self.change()

    async def change(self) -> None:
        """Wait for the next push."""
        self._changed.clear()
        await self._changed.wait()

    # -- finding -------------------------------------------------------------------------------

    def findings(self) -> dict[str, Finding]:
        """Return what is wrong, by the name of the client."""
        return {
            client.name: finding
            for client in self.clients.values()
            if (finding := self._silent(client) or self._fails(client) or self._slow(client))
        }

    @property
    def decided(self) -> bool:
        """Whether exactly one client is slow, one fails, and one is silent."""
        found = sorted(finding.what for finding in self.findings().values())
        return found == ["fails", "silent", "slow"]

    def _fails(self, client: PushedClient) -> Finding | None:
        """Find a client whose records are refused."""
        failed = [push.at for push in client.pushes if push.values.get(ERRORS, 0) > 0]
        return Finding("fails", failed[0]) if failed else None

    def _silent(self, client: PushedClient) -> Finding | None:
        """Find a client that was not closed, but no longer pushes, while the others do."""
        last = client.pushes[-1].at
        later = [sum(push.at > last for push in other.pushes) for other in self._others(client)]
        missed = median(later) if later else 0
        silent = missed >= MISSED_PUSHES and not client.closed
        return Finding("silent", last) if silent else None

    def _slow(self, client: PushedClient) -> Finding | None:
        """Find a client whose requests take much longer than those of the others at this time."""
        usual = [median(late) for other in self._others(client) if (late := last_of(other))]
        limit = max(SLOW_MS, SLOW_RATIO * median(usual)) if usual else SLOW_MS
        last = last_of(client)
        if len(last) < SLOW_PUSHES or min(last) < limit:
            return None
        since = math.inf
        for at, latency in reversed(client.latencies):
            if latency < limit:
                break
            since = at
        return Finding("slow", since)

    def _others(self, client: PushedClient) -> list[PushedClient]:
        return [each for each in self.clients.values() if each is not client and not each.closed]

    # -- showing -------------------------------------------------------------------------------

    def table(self) -> Table:
        """Return the table of all clients."""
        caption = "ms: the latency of produce requests. errors: records that were refused."
        table = Table(title="What the clients push", caption=caption)
        table.add_column("client", no_wrap=True)
        table.add_column("software")
        table.add_column("kind")
        for column in ("pushes", "series", "records", "errors", "ms"):
            table.add_column(column, justify="right", no_wrap=True)
        table.add_column("finding", no_wrap=True)
        findings = self.findings()
        for client in sorted(self.clients.values(), key=lambda each: each.name):
            latency = f"{client.latencies[-1][1]:.1f}" if client.latencies else "-"
            finding = findings.get(client.name)
            table.add_row(
                client.name,
                # A narrow terminal shows only the beginnings of these two texts.
                Text(client.software, no_wrap=True, overflow="ellipsis"),
                Text(client.kind, no_wrap=True, overflow="ellipsis"),
                *(str(len(client.pushes)), str(client.pushes[-1].series), str(client.records)),
                *(str(int(client.totals[ERRORS])), latency),
                f"{finding.what} since {finding.since:.1f} s" if finding else "",
                style="bold red" if finding else "",
            )
        return table

    def draw(self, path: Path) -> None:
        """Draw when the slow client went wrong, and when each client has pushed."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(10, 9), layout="constrained")
        latencies, pushes = figure.subplots(2, 1, sharex=True, height_ratios=(2, 3))
        findings = self.findings()
        clients = sorted(self.clients.values(), key=lambda each: each.name, reverse=True)
        for row, client in enumerate(clients):
            finding = findings.get(client.name)
            color = "tab:red" if finding else "tab:gray"
            pushes.plot(
                [push.at for push in client.pushes], [row] * len(client.pushes), ".", c=color
            )
            slow = finding is not None and finding.what == "slow"
            if client.latencies:
                line = zip(*client.latencies, strict=True)
                latencies.plot(*line, marker=".", c=color if slow else "tab:gray")
            if finding:
                text = f"{client.name}: {finding.what} since {finding.since:.1f} s"
                pushes.plot(finding.since, row, "o", c=color, fillstyle="none", markersize=12)
                pushes.annotate(text, (finding.since, row + 0.3), c=color)
                if slow:
                    latencies.axvline(finding.since, c=color, ls="--")
                    latencies.set_title(text)
        latencies.set(ylabel="latency of produce requests, ms", yscale="log")
        pushes.set(xlabel="seconds", yticks=range(len(clients)))
        pushes.set_yticklabels([client.name for client in clients])
        figure.savefig(path)


def last_of(client: PushedClient) -> list[float]:
    """Return the last latencies of a client."""
    return [latency for _, latency in client.latencies[-SLOW_PUSHES:]]
