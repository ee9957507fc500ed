"""The pause before the first produce request of a transaction right after another transaction.

At level 2 of `transaction.version` (KIP-890), the response to EndTxn comes before the markers of
the transaction are written. A produce request that arrives in between waits in the leader, which
asks the coordinator again after `add.partitions.to.txn.retry.backoff.ms`, by default 20 ms. The
markers are written within a millisecond or two, so that a short pause before the request is faster
than the wait in the leader.

How long the markers take depends on the cluster, so the pause adapts. It begins at zero, becomes
longer whenever the response to the first request came late, and a little shorter whenever it did
not. A response is late if it took `LATE_S` longer than the fastest recent one. A program whose
transactions do not follow each other at once never waits.
"""

from __future__ import annotations

import math

__all__ = ["MarkerPause"]

LATE_S = 0.012
"""The least number of seconds by which waiting for markers delays a response."""
LONGER_S = 0.001
"""The seconds by which the pause grows after a late response."""
SHORTER_S = LONGER_S / 40
"""The seconds by which the pause shrinks after a response that is not late.

With this ratio to `LONGER_S`, about one response in 40 is late.
"""
LONGEST_S = 0.005
"""The longest pause, in seconds."""
SOON_S = 0.02
"""A request that is sent more than this many seconds after the end of the previous transaction does
not change the pause."""
FORGET = 1.02
"""The factor by which the fastest time grows with each response, so that old ones are forgotten."""


class MarkerPause:
    """The pause of one producer. All times are in seconds."""

    def __init__(self) -> None:
        self.length_s = 0.0
        self._ended = -math.inf
        """The time at which the previous transaction ended."""
        self._sent = 0.0
        """The time at which the first produce request of the transaction was sent, or 0."""
        self._fastest = math.inf

    @property
    def is_used(self) -> bool:
        """Whether a produce request of the transaction was sent. Later requests do not wait."""
        return self._sent != 0.0

    def on_transaction_end(self, now: float) -> None:
        """Record when a transaction ended. Its markers are now being written."""
        self._ended, self._sent = now, 0.0

    def compute_wait_s(self, now: float) -> float:
        """Return how long to wait before a produce request is sent, or 0."""
        return 0.0 if self._sent else max(self._ended + self.length_s - now, 0.0)

    def on_request_sent(self, now: float) -> None:
        """Record when the first produce request of a transaction was sent."""
        self._sent = now

    def on_request_answered(self, now: float) -> None:
        """Adapt the pause to the time that the first produce request of a transaction took."""
        took = now - self._sent
        self._fastest = min(self._fastest * FORGET, took)
        if took - self._fastest >= LATE_S:
            self.on_request_refused()
        elif self._sent - self._ended < SOON_S:
            self.length_s = max(self.length_s - SHORTER_S, 0.0)

    def on_request_refused(self) -> None:
        """Lengthen the pause: the first produce request probably came before the markers."""
        if self._sent - self._ended < SOON_S:
            self.length_s = min(self.length_s + LONGER_S, LONGEST_S)
