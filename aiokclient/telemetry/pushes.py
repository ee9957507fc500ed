"""The content of the pushes of one client: metrics, differences, and parts that fit into a push."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from aiokclient.clock import Clock
from aiokclient.config.codecs import Compression
from aiokclient.metrics import Metrics
from aiokclient.telemetry.accumulation import Accumulation
from aiokclient.telemetry.otlp import is_loaded
from aiokclient.telemetry.payload import Payload, Payloads, make_payloads
from aiokclient.telemetry.subscription import Subscription

if TYPE_CHECKING:
    from aiokclient.telemetry.collector import ClientCollector, Collected
    from aiokclient.telemetry.reporter import ReportingClient

__all__ = ["Encoding", "Pushes"]

INLINE_POINTS: Final = 40
"""Maximum number of points to encode in the event loop, which takes about a millisecond."""
LEAST_BYTES: Final = 1_000
"""The lowest limit to which the size of a push is reduced if brokers refuse it as too large."""
UNLIMITED: Final = 2**31 - 1


class Encoding:
    """Metrics that were taken at one moment, and how to encode them."""

    def __init__(
        self,
        collected: Collected,
        accumulation: Accumulation,
        subscription: Subscription,
        time_ms: int,
        max_bytes: int,
        codec: Compression,
    ) -> None:
        self._collected = collected
        self._accumulation = accumulation
        self._subscription = subscription
        self._time_ms = time_ms
        self._max_bytes = max_bytes
        self._codec = codec

    @property
    def takes_long(self) -> bool:
        """Whether `encode_metrics` must be called in a thread."""
        return self._collected.most > INLINE_POINTS or not is_loaded()

    def encode_metrics(self) -> Payloads:
        """Compute, encode, and compress the metrics. This may be called in any thread."""
        return make_payloads(
            self._collected.compute_points(),
            self._accumulation.measure_points,
            self._time_ms,
            delta=self._subscription.delta,
            max_bytes=self._max_bytes,
            codec=self._codec,
        )


class Pushes:
    """The payloads of pushes.

    The source of the metrics is created with the first subscription. From then on, objects that are
    closed keep their metrics until the next push. The first push contains the changes since
    `since_ms`.
    """

    def __init__(
        self, clock: Clock, metrics: Metrics, client: ReportingClient, *, since_ms: int
    ) -> None:
        self._clock = clock
        self._metrics = metrics
        self._client = client
        self._collector: ClientCollector | None = None
        self._accumulation = Accumulation(since_ms)
        self._payloads: deque[Payload] = deque()
        self._taken_ms = 0
        """The time at which the metrics of all payloads were taken."""
        self._refused_codecs: set[Compression] = set()
        self._limit = UNLIMITED
        """A limit for the size of a push, in addition to that of the brokers."""

    @property
    def next(self) -> Payload | None:
        """The next payload of metrics that were taken and did not fit into the last push."""
        return self._payloads[0] if self._payloads else None

    @property
    def is_last(self) -> bool:
        """Whether the next payload is the last one of the metrics that were taken."""
        return len(self._payloads) <= 1

    def keep_only_next(self) -> None:
        """Forget all payloads except for the next one."""
        while len(self._payloads) > 1:
            self._payloads.pop()

    def follow_subscription(self, subscription: Subscription) -> None:
        """Begin a new subscription."""
        if self._collector is None:
            self._collector = self._client.make_collector()
        self._limit = UNLIMITED
        self._payloads.clear()
        self._accumulation.follow_temporality(subscription.delta)

    def take_metrics(self, subscription: Subscription) -> Encoding:
        """Take all metrics now. Return the object that encodes them.

        Call `follow_subscription` first.
        """
        assert self._collector is not None
        self._payloads.clear()
        self._taken_ms = self._clock.time_ms()
        collected = self._collector.take_metrics(subscription.names)
        if collected.ended_topics:
            self._accumulation.forget_topics(collected.ended_topics)
        return Encoding(
            collected,
            self._accumulation,
            subscription,
            self._taken_ms,
            min(subscription.max_bytes, self._limit),
            self._choose_codec(subscription),
        )

    def add_payloads(self, made: Payloads) -> Payload:
        """Add encoded payloads, and return the first one."""
        self._payloads.extend(made.payloads)
        for counter, count in (
            ("telemetry.partitions.omitted", made.without_partitions),
            ("telemetry.topics.omitted", made.without_topics),
            ("telemetry.pushes.split", len(made.payloads) > 1),
            ("telemetry.series.skipped", made.skipped),
        ):
            if count:
                self._metrics.counter(counter).add(int(count))
        return self._payloads[0]

    def on_accepted(self) -> None:
        """Record that a broker has accepted the next payload."""
        payload = self._payloads.popleft()
        self._accumulation.accept_values(payload.values)
        if not self._payloads and self._collector is not None:
            self._collector.restart()

    def discard_payloads(self) -> None:
        """Forget the payloads. The payloads that are taken next contain their values."""
        self._payloads.clear()

    def shrink_limit(self) -> None:
        """Forget the payloads. Limit later ones to half the size of the one that was refused.

        The limit is never below `LEAST_BYTES`.
        """
        refused = 0 if self.next is None else self.next.size
        self._limit = max(min(self._limit, refused) // 2, LEAST_BYTES)
        self._payloads.clear()

    def switch_codec(self, subscription: Subscription) -> None:
        """Use the next compression, because brokers refuse the present one."""
        self._refused_codecs.add(self._choose_codec(subscription))

    def _choose_codec(self, subscription: Subscription) -> Compression:
        """Return the first accepted compression that no broker has refused, or Compression.NONE."""
        usable = (each for each in subscription.codecs if each not in self._refused_codecs)
        return next(usable, Compression.NONE)
