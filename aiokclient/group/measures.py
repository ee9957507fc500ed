"""The measures of a group member: rebalances, heartbeats, joins, and syncs."""

from __future__ import annotations

from collections.abc import Callable

from aiokclient.measures import Measures

__all__ = ["GroupMeasures"]


class GroupMeasures:
    """The measures of a membership, in seconds. `time` is the monotonic clock."""

    def __init__(self, measures: Measures, time: Callable[[], float]) -> None:
        self.heartbeats = measures.spread("heartbeats")
        self.joins = measures.spread("joins")
        self.syncs = measures.spread("syncs")
        self._rebalances = measures.spread("rebalances")
        self._failed = measures.quantity("rebalances.failed")
        self._time = time
        self._heartbeat_at: float | None = None
        self._rebalanced_at: float | None = None
        measures.present("heartbeat.age", lambda: self._since(self._heartbeat_at))
        measures.present("rebalance.age", lambda: self._since(self._rebalanced_at))

    def _since(self, at: float | None) -> float:
        """Return the whole seconds since that time, or -1 for None, as Kafka's clients do."""
        return -1.0 if at is None else float(int(self._time() - at))

    def heartbeat_sent(self, now: float) -> None:
        """Record that a heartbeat was sent."""
        self._heartbeat_at = now

    def heartbeat_answered(self, sent_at: float) -> None:
        """Record the response to a heartbeat."""
        self.heartbeats.observe(self._time() - sent_at)

    def joined(self, sent_at: float) -> None:
        """Record that the coordinator has accepted a JoinGroup."""
        self.joins.observe(self._time() - sent_at)

    def synced(self, sent_at: float) -> None:
        """Record that the coordinator has sent an assignment."""
        self.syncs.observe(self._time() - sent_at)

    def rebalanced(self, since: float | None) -> None:
        """Record the end of a rebalance. `since` is the time at which it began, or None."""
        self._rebalanced_at = now = self._time()
        self._rebalances.observe(0.0 if since is None else now - since)

    def rebalance_failed(self) -> None:
        """Record a rebalance that has ended with the loss of the membership."""
        self._failed.add()
