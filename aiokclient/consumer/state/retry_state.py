"""The part of a partition's state that concerns retries: failures, delays, and lost positions."""

from __future__ import annotations

import math
import random
from typing import Final

from aiokclient.cluster.requests.attempts import LastAnswer
from aiokclient.errors import KafkaError
from aiokclient.policy import Backoff

__all__ = ["RetryState"]

LASTING: Final = 4
"""The number of consecutive failures after which a warning is logged."""
WARNED_EVERY_S: Final = 30.0
"""Seconds between two warnings about the same partition."""
LOSSES_S: Final = 30.0
"""After this many seconds without a lost position, earlier losses no longer count."""


class RetryState:
    """The retry part of a `PartitionState`. All times are on the monotonic clock."""

    __slots__ = ("_losses", "_lost_at", "_warned_until", "at", "attempts", "last", "trouble")

    def __init__(self) -> None:
        self.at = 0.0
        """The earliest time of the next request; infinity while a lookup is in flight."""
        self.attempts = 0
        """The number of consecutive failures."""
        self.trouble: KafkaError | None = None
        """The last error of the brokers; None after a response without an error."""
        self.last = LastAnswer()
        """The last error of the same attempts, which is a refusal if one of them was refused."""
        self._warned_until = -math.inf
        self._losses = 0  # Losses of the position without a long pause between them.
        self._lost_at = -math.inf

    def requested(self) -> None:
        """Request nothing more until a lookup is answered, or the position jumps."""
        self.at = math.inf

    def back_off(self, until: float, trouble: KafkaError | None = None) -> bool:
        """Request nothing for this partition until that time; return whether to log the trouble.

        The result is true at most once in a series of failed attempts, and at most once in
        WARNED_EVERY_S.
        """
        self.attempts += 1
        self.at = until
        self.trouble = trouble
        if trouble is not None:
            self.last.note(trouble)
        if trouble is None or self.attempts != LASTING or until <= self._warned_until:
            return False
        self._warned_until = until + WARNED_EVERY_S
        return True

    def lost(self, now: float, backoff: Backoff, rng: random.Random) -> None:
        """Record that the position was lost; delay requests if that happens repeatedly."""
        self._losses = self._losses + 1 if now - self._lost_at < LOSSES_S else 1
        self._lost_at = now
        if self._losses > 1:
            self.at = now + backoff.delay(self._losses - 2, rng)

    def succeeded(self) -> None:
        """Record a response without an error."""
        self.attempts, self.at = 0, 0.0
        if self.trouble is not None:
            self.trouble, self.last = None, LastAnswer()

    def due(self) -> None:
        """Allow the next request at once, because the partition has a new leader."""
        self.at = 0.0
