"""The metrics of a group member: rebalances, heartbeats, joins, and syncs."""

from __future__ import annotations

from aiokclient.clock import Clock
from aiokclient.metrics import OwnMetrics


class GroupMeters:
    """The metrics of a membership, in seconds."""

    def __init__(self, own_metrics: OwnMetrics, clock: Clock) -> None:
        self.heartbeats = own_metrics.spread("heartbeats")
        self.joins = own_metrics.spread("joins")
        self.syncs = own_metrics.spread("syncs")
        self._rebalances = own_metrics.spread("rebalances")
        self._failed = own_metrics.counter("rebalances.failed")
        self._clock = clock
        self._heartbeat_at: float | None = None
        self._rebalanced_at: float | None = None
        own_metrics.gauge("heartbeat.age", lambda: self._count_seconds_since(self._heartbeat_at))
        own_metrics.gauge("rebalance.age", lambda: self._count_seconds_since(self._rebalanced_at))

    def _count_seconds_since(self, at: float | None) -> float:
        """Return the whole seconds since that time, or -1 for None, as Kafka's clients do."""
        return -1.0 if at is None else float(int(self._clock.monotonic() - at))

    def on_heartbeat_sent(self, now: float) -> None:
        """Record that a heartbeat was sent."""
        self._heartbeat_at = now

    def on_heartbeat_answered(self, sent_at: float) -> None:
        """Record the response to a heartbeat."""
        self.heartbeats.observe(self._clock.monotonic() - sent_at)

    def on_joined(self, sent_at: float) -> None:
        """Record that the coordinator has accepted a JoinGroup."""
        self.joins.observe(self._clock.monotonic() - sent_at)

    def on_synced(self, sent_at: float) -> None:
        """Record that the coordinator has sent an assignment."""
        self.syncs.observe(self._clock.monotonic() - sent_at)

    def on_rebalanced(self, since: float | None) -> None:
        """Record the end of a rebalance. `since` is the time at which it began, or None."""
        self._rebalanced_at = now = self._clock.monotonic()
        self._rebalances.observe(0.0 if since is None else now - since)

    def count_failed_rebalance(self) -> None:
        """Record a rebalance that has ended with the loss of the membership."""
        self._failed.add()
