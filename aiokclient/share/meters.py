"""The metrics and the events of a share consumer."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from aiokclient.errors import KafkaError
from aiokclient.metrics import OwnMetrics
from aiokclient.share.delivery.record import ShareRecord
from aiokclient.share.locks import AcknowledgeType, Acquisition, Reason

if TYPE_CHECKING:
    from aiokclient.protocol.messages.share_fetch import ShareFetchResponse
    from aiokclient.share.engine import ShareEngine
    from aiokclient.share.outcomes import SessionOutcome

RECENT_S: Final = 60.0
"""The seconds for which `health()` counts lost locks and throttled fetches."""


class ShareMeters:
    """The metrics of one share consumer, and what `health()` shows of the last minute."""

    def __init__(self, engine: ShareEngine) -> None:
        self._engine = engine
        self._clock = engine.cluster.clock
        self.own_metrics = OwnMetrics(engine.cluster.metrics, "share", "group", owner=engine)
        self._lost_at: deque[float] = deque()
        self._throttled_at: deque[float] = deque()

    def end(self) -> None:
        """Forget the metrics, because the consumer is closed. Synchronous."""
        self.own_metrics.end_owner()

    def on_fetch_sent(self) -> None:
        """Count a fetch."""

    def on_fetched(self, answer: ShareFetchResponse, seconds: float) -> None:
        """Count the answer to a fetch."""

    def on_acquired(self, acquisition: Acquisition) -> None:
        """Count records that were acquired."""

    def on_delivered(self, acquisition: Acquisition, count: int) -> None:
        """Count records that were passed to the application."""

    def on_settled(self, kind: AcknowledgeType, count: int, remaining_s: float | None) -> None:
        """Count settlements of the application, with the time that was left of their locks."""

    def on_undelivered(self, count: int) -> None:
        """Count records that were released because they had waited too long."""

    def on_renewed(self, count: int) -> None:
        """Count locks that were renewed."""

    def on_throttled(self) -> None:
        """Count a fetch whose records were lost by a quota."""
        self._throttled_at.append(self._clock.monotonic())

    def on_lost(self, reason: Reason, count: int, confirmed: bool | None) -> None:
        """Count locks that were lost."""
        self._lost_at.extend([self._clock.monotonic()] * min(count, 1000))

    def on_acknowledge_error(self, error: KafkaError) -> None:
        """Count a settlement that has failed."""

    def on_session_reset(self, node_id: int, outcome: SessionOutcome | None) -> None:
        """Report that the session with a broker begins anew; None is a lost connection."""

    def emit_lost(self, record: ShareRecord[Any, Any], reason: Reason) -> None:
        """Report that the lock of a held record was lost."""

    def emit_expiring(self, record: ShareRecord[Any, Any]) -> None:
        """Report that the lock of a held record will end."""

    def count_recent(self, times: deque[float]) -> int:
        """Return how many of these times are within the last minute."""
        since = self._clock.monotonic() - RECENT_S
        while times and times[0] < since:
            times.popleft()
        return len(times)

    def list_troubles(self) -> list[str]:
        """Return what `health()` says of the last minute, as texts. Synchronous."""
        found = []
        if lost := self.count_recent(self._lost_at):
            found.append(f"locks are lost: {lost} in the last minute")
        if throttled := self.count_recent(self._throttled_at):
            found.append(
                f"fetches are throttled: {throttled} in the last minute, whose records are counted "
                "as delivered"
            )
        return found
